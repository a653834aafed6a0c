//! Open addressing over keys that lie elsewhere.
//!
//! A slot is eight bytes: half of the key's hash, and where the item with the key is. Most looks end
//! at the first slot, and a table of ten thousand open sections stays in the second-level cache.

/// No item.
const EMPTY: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Slot {
    tag: u32,
    item: u32,
}

/// Finds items by the hash of their keys.
pub(crate) struct Table {
    slots: Vec<Slot>,
    len: usize,
}

/// The hash of a key, as it stands in slots.
#[inline]
pub(crate) fn hash(key: u128) -> u32 {
    // One multiplication to 128 bits, folded: every bit of the key reaches every bit of the sum.
    let (low, high) = (key as u64, (key >> 64) as u64);
    let product =
        u128::from(low ^ 0x9e37_79b9_7f4a_7c15) * u128::from(high ^ 0xc2b2_ae3d_27d4_eb4f);
    (product as u64 ^ (product >> 64) as u64) as u32
}

impl Default for Table {
    fn default() -> Table {
        Table { slots: vec![Slot { tag: 0, item: EMPTY }; 16], len: 0 }
    }
}

impl Table {
    fn mask(&self) -> usize {
        self.slots.len() - 1
    }

    /// The item with this hash that `same` agrees to.
    #[inline]
    pub fn find(&self, tag: u32, same: impl Fn(u32) -> bool) -> Option<u32> {
        let mask = self.mask();
        let mut at = tag as usize & mask;
        loop {
            let slot = self.slots[at & mask];
            if slot.item == EMPTY {
                return None;
            }
            if slot.tag == tag && same(slot.item) {
                return Some(slot.item);
            }
            at += 1;
        }
    }

    /// Adds an item that is not there yet.
    pub fn insert(&mut self, tag: u32, item: u32) {
        debug_assert_ne!(item, EMPTY);
        if (self.len + 1) * 2 > self.slots.len() {
            let bigger = vec![Slot { tag: 0, item: EMPTY }; self.slots.len() * 2];
            for slot in std::mem::replace(&mut self.slots, bigger) {
                if slot.item != EMPTY {
                    self.put(slot);
                }
            }
        }
        self.put(Slot { tag, item });
        self.len += 1;
    }

    fn put(&mut self, slot: Slot) {
        let mask = self.mask();
        let mut at = slot.tag as usize & mask;
        while self.slots[at].item != EMPTY {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
    }

    /// Takes an item out, if it is there.
    pub fn remove(&mut self, tag: u32, item: u32) {
        let mask = self.mask();
        let mut hole = tag as usize & mask;
        while self.slots[hole].item != item {
            if self.slots[hole].item == EMPTY {
                return;
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
            let home = slot.tag as usize & mask;
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole].item = EMPTY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn behaves_like_a_map() {
        let mut random = 1u64;
        let mut table = Table::default();
        // Few tags, so that runs of slots are long and wrap around the end.
        let mut keys: Vec<u32> = Vec::new();
        let mut map: HashMap<u32, u32> = HashMap::new();
        for _ in 0..100_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let key = (random >> 20) as u32 % 300;
            let tag = key % 40 * 3;
            let found = table.find(tag, |item| keys[item as usize] == key);
            assert_eq!(found, map.get(&key).copied());
            match found {
                Some(item) => {
                    table.remove(tag, item);
                    map.remove(&key);
                }
                None => {
                    keys.push(key);
                    table.insert(tag, keys.len() as u32 - 1);
                    map.insert(key, keys.len() as u32 - 1);
                }
            }
            assert_eq!(table.len, map.len());
        }
    }
}
