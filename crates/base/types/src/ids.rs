//! Numbers of processes and threads, which are one kind of number to the kernel and must not be confused here.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why a number names no process or thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdError;

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a process has a whole number above 0, as `ps` shows it")
    }
}

impl std::error::Error for IdError {}

macro_rules! id {
    ($name:ident, $what:literal) => {
        #[doc = concat!("The kernel's number of ", $what, ", which is above 0.")]
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(try_from = "i32", into = "i32")]
        pub struct $name(i32);

        impl $name {
            /// The number for system calls.
            pub fn get(self) -> i32 {
                self.0
            }

            /// The same as events and tables hold it.
            pub fn unsigned(self) -> u32 {
                self.0.unsigned_abs()
            }
        }

        impl TryFrom<i32> for $name {
            type Error = IdError;

            fn try_from(number: i32) -> Result<$name, IdError> {
                if number > 0 { Ok($name(number)) } else { Err(IdError) }
            }
        }

        impl TryFrom<u32> for $name {
            type Error = IdError;

            fn try_from(number: u32) -> Result<$name, IdError> {
                i32::try_from(number).map_err(|_| IdError)?.try_into()
            }
        }

        impl TryFrom<u64> for $name {
            type Error = IdError;

            fn try_from(number: u64) -> Result<$name, IdError> {
                i32::try_from(number).map_err(|_| IdError)?.try_into()
            }
        }

        impl From<$name> for i32 {
            fn from(id: $name) -> i32 {
                id.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<$name, IdError> {
                text.parse::<i32>().map_err(|_| IdError)?.try_into()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(Pid, "a process");
id!(Tid, "a thread");

impl Pid {
    /// This very process.
    pub fn own() -> Pid {
        Pid(std::process::id().cast_signed())
    }

    /// A child that has been started.
    pub fn of_child(child: &std::process::Child) -> Pid {
        Pid(child.id().cast_signed())
    }

    /// The first thread of the process, which has the same number.
    pub fn first_thread(self) -> Tid {
        Tid(self.0)
    }
}

impl Tid {
    /// The process that this is the first thread of, for one that is known to be that.
    pub fn as_process(self) -> Pid {
        Pid(self.0)
    }

    /// Whether it is the first thread of a process, which has the same number.
    pub fn is_first_of(self, process: Pid) -> bool {
        self.0 == process.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_above_zero_are_processes() {
        assert_eq!("4711".parse::<Pid>().map(Pid::get), Ok(4711));
        for wrong in ["0", "-1", "", "1.5", "self", "99999999999"] {
            assert_eq!(wrong.parse::<Pid>(), Err(IdError), "{wrong}");
        }
        assert!(Pid::try_from(0).is_err());
    }

    #[test]
    fn json_has_plain_numbers() {
        let pid: Pid = serde_json::from_str("12").unwrap();
        assert_eq!(serde_json::to_string(&pid).unwrap(), "12");
        assert!(serde_json::from_str::<Pid>("-12").is_err());
        assert_eq!(format!("{pid:>4}"), "  12");
        assert_eq!(pid.first_thread().get(), 12);
        assert!(pid.first_thread().is_first_of(pid));
    }
}
