//! Numbers within a recording that must not be taken for one another: each counts from 0, and all are in
//! the same tables.

use std::fmt;

use fettle_abi::record::FunctionId;
use serde::{Deserialize, Serialize};

macro_rules! index {
    ($name:ident, $what:literal) => {
        #[doc = concat!("Number of ", $what, ", from 0.")]
        #[derive(
            Clone,
            Copy,
            Debug,
            Default,
            PartialEq,
            Eq,
            PartialOrd,
            Ord,
            Hash,
            Serialize,
            Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The bare number, as memory and files have it.
            pub const fn get(self) -> u32 {
                self.0
            }

            /// Its place in a list of all of them.
            pub const fn place(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

index!(SlotIndex, "a slot in a session's memory");
index!(ModuleIndex, "a module among a recording's, in the order in which they were met");
index!(FunctionIndex, "a function among all of a recording's");

impl SlotIndex {
    /// The slot behind it.
    pub const fn next(self) -> SlotIndex {
        SlotIndex(self.0 + 1)
    }
}

impl FunctionIndex {
    /// The function so many behind it.
    pub const fn plus(self, more: u32) -> FunctionIndex {
        FunctionIndex(self.0 + more)
    }

    /// How many behind `first` it is; `None` if it comes before.
    pub const fn since(self, first: FunctionIndex) -> Option<u32> {
        self.0.checked_sub(first.0)
    }

    /// It and all behind it.
    pub fn on(self) -> impl Iterator<Item = FunctionIndex> {
        (self.0..).map(FunctionIndex)
    }
}

impl From<FunctionId> for FunctionIndex {
    fn from(id: FunctionId) -> FunctionIndex {
        FunctionIndex(id.index())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_plain_numbers() {
        let function: FunctionIndex = serde_json::from_str("12").unwrap();
        assert_eq!(serde_json::to_string(&function).unwrap(), "12");
        assert_eq!((format!("{function:>4}"), function.place()), ("  12".to_owned(), 12));
        assert_eq!(
            FunctionId::from_index(5000).map(FunctionIndex::from),
            Some(FunctionIndex(5000))
        );
    }
}
