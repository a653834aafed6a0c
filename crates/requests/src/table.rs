//! Open addressing over keys of 64 or 128 bits.
//!
//! A slot has the key itself, so a look that ends at the first slot, as most do, touches one line of
//! the cache, and waits for nothing but that line.

/// No item.
const EMPTY: u32 = u32::MAX;

/// Slots of a table that does not fit the first caches.
const LARGE: usize = 1 << 14;

/// What a key is packed into.
pub(crate) trait Word: Copy + Default + Eq {
    /// Where to begin to look.
    fn hash(self) -> usize;
}

impl Word for u64 {
    #[inline]
    fn hash(self) -> usize {
        // The upper half of the product, where every bit of the key has been.
        ((self ^ (self >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
    }
}

impl Word for u128 {
    #[inline]
    fn hash(self) -> usize {
        let (low, high) = (self as u64, (self >> 64) as u64);
        let product =
            u128::from(low ^ 0x9e37_79b9_7f4a_7c15) * u128::from(high ^ 0xc2b2_ae3d_27d4_eb4f);
        (product as u64 ^ (product >> 64) as u64) as usize
    }
}

#[derive(Clone, Copy)]
struct Slot<K> {
    key: K,
    item: u32,
}

impl<K: Word> Slot<K> {
    fn empty() -> Slot<K> {
        Slot { key: K::default(), item: EMPTY }
    }
}

/// Numbers by key.
pub(crate) struct Table<K> {
    slots: Vec<Slot<K>>,
    len: usize,
}

impl<K: Word> Default for Table<K> {
    fn default() -> Table<K> {
        Table { slots: vec![Slot::empty(); 16], len: 0 }
    }
}

impl<K: Word> Table<K> {
    fn mask(&self) -> usize {
        self.slots.len() - 1
    }

    /// The item of a key.
    #[inline]
    pub fn find(&self, key: K) -> Option<u32> {
        let mask = self.mask();
        let mut at = key.hash();
        loop {
            let slot = &self.slots[at & mask];
            // The only branch that depends on the key: nearly always the first slot has it.
            if slot.key == key {
                return (slot.item != EMPTY).then_some(slot.item);
            }
            if slot.item == EMPTY {
                return None;
            }
            at += 1;
        }
    }

    /// Slots for each item. A small table is sparse, so that keys are where they are looked for first:
    /// what a look costs there is mostly whether the processor foresees where it ends. A large one
    /// waits for memory.
    fn spare(&self) -> usize {
        if self.slots.len() < LARGE { 4 } else { 2 }
    }

    /// Adds an item for a key that has none.
    pub fn insert(&mut self, key: K, item: u32) {
        debug_assert_ne!(item, EMPTY);
        if (self.len + 1) * self.spare() > self.slots.len() {
            let bigger = vec![Slot::empty(); self.slots.len() * 2];
            for slot in std::mem::replace(&mut self.slots, bigger) {
                if slot.item != EMPTY {
                    self.put(slot);
                }
            }
        }
        self.put(Slot { key, item });
        self.len += 1;
    }

    fn put(&mut self, slot: Slot<K>) {
        let mask = self.mask();
        let mut at = slot.key.hash() & mask;
        while self.slots[at].item != EMPTY {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
    }

    /// Takes a key out, if it is there.
    pub fn remove(&mut self, key: K) {
        let mask = self.mask();
        let mut hole = key.hash() & mask;
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
            let home = slot.key.hash() & mask;
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = Slot::empty();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// A key whose hash says little, so that runs of slots are long and wrap around the end.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    struct Poor(u32);

    impl Word for Poor {
        fn hash(self) -> usize {
            self.0 as usize % 40 * 3
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
}
