//! Open addressing over keys of 64 or 128 bits.
//!
//! A slot has the key itself, so a look that ends at the first slot, as most do, touches one line of
//! the cache, and waits for nothing but that line.

/// No item.
const EMPTY: u32 = u32::MAX;

/// What a key is packed into.
pub(crate) trait Word: Copy + Eq {
    /// Two keys that are looked for in different slots, whatever the size of the table.
    const APART: [Self; 2];

    /// A number whose upper bits say where to begin to look.
    fn hash(self) -> u64;
}

impl Word for u64 {
    const APART: [u64; 2] = [0, 1];

    #[inline]
    fn hash(self) -> u64 {
        // Every bit of the key has been in the upper ones of the product.
        self.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl Word for u128 {
    const APART: [u128; 2] = [0, 1];

    #[inline]
    fn hash(self) -> u64 {
        let (low, high) = (self as u64, (self >> 64) as u64);
        let product =
            u128::from(low ^ 0x9e37_79b9_7f4a_7c15) * u128::from(high ^ 0xc2b2_ae3d_27d4_eb4f);
        product as u64 ^ (product >> 64) as u64
    }
}

#[derive(Clone, Copy)]
struct Slot<K> {
    /// In an empty slot one that would be looked for in another first: whether a key is where it is
    /// looked for first takes one comparison.
    key: K,
    item: u32,
}

/// Numbers by key.
pub(crate) struct Table<K> {
    slots: Vec<Slot<K>>,
    /// Bits of a hash that do not say where to begin to look.
    shift: u32,
    len: usize,
}

/// The slots of a table, to look into those where keys are looked for first.
pub(crate) struct First<'a, K> {
    slots: &'a [Slot<K>],
    shift: u32,
}

impl<K: Word> First<'_, K> {
    /// The item in a key's first slot, and whether it is the key's. No branch depends on the key.
    #[inline]
    pub fn look(&self, key: K) -> (u32, bool) {
        let slot = &self.slots[(key.hash() >> self.shift) as usize];
        (slot.item, slot.key == key)
    }
}

/// The first slots of a table, as a power of 2.
const SMALLEST: u32 = 4;

impl<K: Word> Default for Table<K> {
    fn default() -> Table<K> {
        Table::new(SMALLEST)
    }
}

impl<K: Word> Table<K> {
    /// An empty table of so many slots, as a power of 2.
    fn new(bits: u32) -> Table<K> {
        let empty = Slot { key: K::APART[0], item: EMPTY };
        let mut table = Table { slots: vec![empty; 1 << bits], shift: u64::BITS - bits, len: 0 };
        let home = table.home(empty.key);
        table.slots[home] = table.empty(home);
        table
    }

    fn mask(&self) -> usize {
        self.slots.len() - 1
    }

    /// Where a key is looked for first.
    fn home(&self, key: K) -> usize {
        (key.hash() >> self.shift) as usize
    }

    /// What an empty slot is.
    fn empty(&self, at: usize) -> Slot<K> {
        let [key, other] = K::APART;
        Slot { key: if self.home(key) == at { other } else { key }, item: EMPTY }
    }

    /// To look where a key is looked for first, where it nearly always is.
    #[inline]
    pub fn first(&self) -> First<'_, K> {
        First { slots: &self.slots, shift: self.shift }
    }

    /// The item of a key.
    #[inline]
    pub fn find(&self, key: K) -> Option<u32> {
        let mut at = self.home(key);
        loop {
            let slot = &self.slots[at];
            if slot.item == EMPTY {
                return None;
            }
            if slot.key == key {
                return Some(slot.item);
            }
            at = (at + 1) & self.mask();
        }
    }

    /// Adds an item for a key that has none.
    pub fn insert(&mut self, key: K, item: u32) {
        debug_assert_ne!(item, EMPTY);
        // A quarter full at most: then nearly all keys are where they are looked for first.
        if 4 * (self.len + 1) > self.slots.len() {
            let mut bigger = Table::new(u64::BITS - self.shift + 1);
            for slot in self.slots.iter().filter(|slot| slot.item != EMPTY) {
                bigger.put(*slot);
            }
            bigger.len = self.len;
            *self = bigger;
        }
        self.put(Slot { key, item });
        self.len += 1;
    }

    fn put(&mut self, slot: Slot<K>) {
        let mut at = self.home(slot.key);
        while self.slots[at].item != EMPTY {
            at = (at + 1) & self.mask();
        }
        self.slots[at] = slot;
    }

    /// Takes a key out, if it is there.
    pub fn remove(&mut self, key: K) {
        let mask = self.mask();
        let mut hole = self.home(key);
        loop {
            let slot = &self.slots[hole];
            if slot.item == EMPTY {
                return;
            }
            if slot.key == key {
                break;
            }
            hole = (hole + 1) & mask;
        }
        self.len -= 1;
        // Close up, so that no search stops at the hole too early: what follows moves back unless
        // it would come before its own place.
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let slot = self.slots[at];
            if slot.item == EMPTY {
                break;
            }
            let home = self.home(slot.key);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = self.empty(hole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// A key whose hash says little, so that runs of slots are long and wrap around the end.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    struct Poor(u32);

    impl Word for Poor {
        const APART: [Poor; 2] = [Poor(0), Poor(8)];

        fn hash(self) -> u64 {
            u64::from(self.0 % 40 * 3) << (64 - 7)
        }
    }

    #[test]
    fn behaves_like_a_map() {
        let mut random = 1u64;
        let mut table = Table::default();
        let mut map: HashMap<Poor, u32> = HashMap::new();
        for item in 0..100_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let key = Poor((random >> 20) as u32 % 300);
            let found = table.find(key);
            assert_eq!(found, map.get(&key).copied());
            let (first, is_there) = table.first().look(key);
            assert!(!is_there || found == Some(first));
            match found {
                Some(_) => {
                    table.remove(key);
                    map.remove(&key);
                }
                None => {
                    table.insert(key, item);
                    map.insert(key, item);
                }
            }
            assert_eq!(table.len, map.len());
        }
    }

    fn are_apart<K: Word>() {
        let [one, other] = K::APART.map(|key| key.hash() >> (64 - SMALLEST));
        assert_ne!(one, other);
    }

    #[test]
    fn keys_of_empty_slots_are_apart() {
        are_apart::<u64>();
        are_apart::<u128>();
        are_apart::<Poor>();
    }
}
