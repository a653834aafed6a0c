//! Keys of timelines or streams as small numbers, *places*.
//!
//! A batch's keys are looked up column by column, before anything is done with its events: the looks
//! do not depend on each other then, and the processor has many of them under way at once. So a place
//! belongs to its key whether or not something is open there at the moment. Those where nothing is are
//! *idle*, and given up all at once when they are too many: see [`Keys::sweep`].

use crate::table::{First, Table, Word};

/// The place of a key whose value does not fit it.
pub(crate) const UNFIT: u32 = u32::MAX;
/// Idle places that are never too many: most are soon used again.
const IDLE: usize = 256;
/// One of so many places may always be idle, so that a sweep finds some.
const IDLE_PART: usize = 8;
/// The lane of a place that has no key.
const FREE: u16 = u16::MAX;

/// Places by key, of a lane: most keys have 64 bits at most.
enum Places {
    Narrow(Table<u64>),
    Wide(Table<u128>),
}

#[derive(Clone, Copy)]
struct Name {
    key: u128,
    lane: u16,
}

/// What keys of all lanes have in common.
#[derive(Default)]
struct Names {
    all: Vec<Name>,
    free: Vec<u32>,
    /// Room for a sweep.
    idle: Vec<u32>,
}

/// All keys of a schema's timelines, or of its streams.
pub(crate) struct Keys {
    lanes: Vec<Places>,
    names: Names,
}

/// The keys of one lane.
pub(crate) enum Lane<'a> {
    Narrow(Lookup<'a, u64>),
    Wide(Lookup<'a, u128>),
}

/// Finds places of one lane.
pub(crate) struct Lookup<'a, K> {
    table: &'a mut Table<K>,
    names: &'a mut Names,
    lane: u16,
}

impl Keys {
    /// For lanes whose keys have so many bits.
    pub fn new(bits: impl IntoIterator<Item = u32>) -> Keys {
        let places = |bits: u32| match bits <= u64::BITS {
            true => Places::Narrow(Table::default()),
            false => Places::Wide(Table::default()),
        };
        Keys { lanes: bits.into_iter().map(places).collect(), names: Names::default() }
    }

    /// Number of places, those without a key included: how long arrays indexed by them have to be.
    pub fn len(&self) -> usize {
        self.names.all.len()
    }

    /// The lane and key of a place.
    pub fn name(&self, place: u32) -> (u16, u128) {
        let Name { key, lane } = self.names.all[place as usize];
        (lane, key)
    }

    /// The place of a lane's key, which has one.
    pub fn find(&self, lane: u16, key: u128) -> u32 {
        let place = match &self.lanes[usize::from(lane)] {
            Places::Narrow(table) => table.find(key as u64),
            Places::Wide(table) => table.find(key),
        };
        place.expect("what is open has a place")
    }

    /// To look up many keys of a lane.
    pub fn lane(&mut self, lane: usize) -> Lane<'_> {
        let names = &mut self.names;
        let number = lane as u16;
        match &mut self.lanes[lane] {
            Places::Narrow(table) => Lane::Narrow(Lookup { table, names, lane: number }),
            Places::Wide(table) => Lane::Wide(Lookup { table, names, lane: number }),
        }
    }

    /// Whether there are so many idle places that they should be swept, if so many are in use.
    pub fn has_many_idle(&self, used: usize) -> bool {
        let Names { all, free, .. } = &self.names;
        all.len() - free.len() > used + (used / 4).max(all.len() / IDLE_PART).max(IDLE)
    }

    /// Gives up idle places; `in_use` says of each place whether something is there. No event may name
    /// them any more.
    pub fn sweep(&mut self, in_use: impl Iterator<Item = bool>) {
        let Names { all, free, idle } = &mut self.names;
        // Which of them are idle cannot be foreseen, so those come together first.
        idle.resize(all.len(), 0);
        let mut number = 0;
        for (is_used, place) in in_use.zip(0..) {
            idle[number] = place;
            number += usize::from(!is_used);
        }
        // The first of them will be the first to be used again.
        for place in idle[..number].iter().rev() {
            let Name { key, lane } = &mut all[*place as usize];
            if *lane == FREE {
                continue;
            }
            match &mut self.lanes[usize::from(*lane)] {
                Places::Narrow(table) => table.remove(*key as u64),
                Places::Wide(table) => table.remove(*key),
            }
            *lane = FREE;
            free.push(*place);
        }
    }
}

impl<K: Word + Into<u128>> Lookup<'_, K> {
    /// To look where a key is looked for first.
    #[inline]
    pub fn first(&self) -> First<'_, K> {
        self.table.first()
    }

    /// The place of a key.
    #[inline]
    pub fn place(&mut self, key: K) -> u32 {
        match self.table.find(key) {
            Some(place) => place,
            None => self.add(key),
        }
    }

    #[cold]
    fn add(&mut self, key: K) -> u32 {
        let Names { all, free, .. } = &mut *self.names;
        let name = Name { key: key.into(), lane: self.lane };
        let place = match free.pop() {
            Some(place) => {
                all[place as usize] = name;
                place
            }
            None => {
                all.push(name);
                all.len() as u32 - 1
            }
        };
        self.table.insert(key, place);
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(keys: &mut Keys, lane: usize, key: u64) -> u32 {
        match keys.lane(lane) {
            Lane::Narrow(mut lookup) => lookup.place(key),
            Lane::Wide(mut lookup) => lookup.place(u128::from(key) << 64),
        }
    }

    #[test]
    fn places_stay_as_long_as_they_are_in_use() {
        let mut keys = Keys::new([32, 128]);
        let (a, b, c) = (place(&mut keys, 0, 7), place(&mut keys, 1, 7), place(&mut keys, 0, 8));
        assert_eq!(place(&mut keys, 0, 7), a);
        assert_eq!((keys.name(a), keys.name(b)), ((0, 7), (1, 7 << 64)));
        keys.sweep((0..3).map(|place| place != b));
        assert_eq!((place(&mut keys, 0, 7), place(&mut keys, 0, 8)), (a, c));
        // What was given up is used again.
        assert_eq!((place(&mut keys, 0, 9), keys.len()), (b, 3));
        keys.sweep([false; 3].into_iter());
        assert_ne!(place(&mut keys, 0, 1), place(&mut keys, 0, 2));
        assert_eq!(keys.len(), 3);
    }
}
