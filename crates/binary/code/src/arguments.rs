//! Which arguments of a function are recorded, as one number in its probes.
//!
//! The agent needs to know where a value is and whether it is text; what the value means, only the
//! reader of the trace needs to know. So two bits a value are enough. Places are those of the
//! System V ABI (AMD64 supplement, section 3.2.3).

use fettle_abi::record::ARGUMENTS_MAX;

/// How the agent reads a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Class {
    /// From a general-purpose register, or the stack when those are used up.
    Integer = 1,
    /// As an integer, and the text that it points to.
    Text = 2,
    /// From a vector register, or the stack.
    Float = 3,
}

/// Arguments and result to record: two bits for the result, then two for each argument in order;
/// the first that are zero end the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Arguments(u32);

impl Arguments {
    /// Nothing is recorded.
    pub const NONE: Arguments = Arguments(0);
    /// Arguments that one number has room for.
    pub const MOST: usize = ARGUMENTS_MAX;

    /// Arguments, in order, and the result. Arguments past [`Arguments::MOST`] are left out.
    pub fn new(arguments: impl IntoIterator<Item = Class>, result: Option<Class>) -> Arguments {
        let classes = arguments.into_iter().take(Arguments::MOST).enumerate();
        let bits = classes.fold(result.map_or(0, |c| c as u32), |bits, (i, class)| {
            bits | (class as u32) << (2 + 2 * i)
        });
        Arguments(bits)
    }

    /// Whether nothing is recorded.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The number for the agent at the entry.
    pub const fn at_entry(self) -> u32 {
        self.0
    }

    /// The number for the agent at an exit; only a return has a result.
    pub const fn at_exit(self, returns: bool) -> u32 {
        if returns { self.0 & 3 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_where_the_agent_looks() {
        let a = Arguments::new([Class::Integer, Class::Text, Class::Float], Some(Class::Float));
        assert_eq!(a.at_entry(), 0b11_10_01_11);
        assert_eq!(a.at_exit(true), 3);
        assert_eq!(a.at_exit(false), 0);
        assert!(Arguments::new([], None).is_none());
        assert_eq!(Arguments::new([Class::Integer; 20], None).at_entry(), 0x5555_5554);
    }
}
