//! Values by numbers, given in the order in which they are first seen.

use std::hash::Hash;

use rustc_hash::FxHashMap;

/// Values and their numbers.
#[derive(Clone, Debug)]
pub(crate) struct Numbers<T> {
    all: Vec<T>,
    numbers: FxHashMap<T, u32>,
}

impl<T> Default for Numbers<T> {
    fn default() -> Numbers<T> {
        Numbers { all: Vec::new(), numbers: FxHashMap::default() }
    }
}

impl<T: Clone + Eq + Hash> Numbers<T> {
    /// The number of a value.
    pub fn number(&mut self, value: T) -> u32 {
        if let Some(number) = self.numbers.get(&value) {
            return *number;
        }
        let number = self.all.len() as u32;
        self.all.push(value.clone());
        self.numbers.insert(value, number);
        number
    }

    /// All values, each at its number.
    pub fn all(&self) -> &[T] {
        &self.all
    }
}
