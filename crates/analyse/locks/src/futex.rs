//! Waits for futexes, as the kernel and a process's memory show them from outside.

/// The part of a word that is a thread's number (`FUTEX_TID_MASK`).
pub const TID: u32 = 0x3fff_ffff;
const SYS_FUTEX: u64 = 202;

/// A system call in which a thread waits for a futex (`/proc/PID/task/TID/syscall`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FutexWait {
    /// The futex.
    pub address: u64,
    /// What it was found to hold.
    pub value: u32,
    /// Where the time limit lies in memory; 0 if there is none.
    pub limit: u64,
    /// Whether its holder inherits priority, so that the futex holds the thread that has it.
    pub inherits_priority: bool,
    /// The stack pointer.
    pub sp: u64,
    /// The program counter.
    pub pc: u64,
}

impl FutexWait {
    /// Reads what the kernel says of a thread's system call; `None` where that is no such wait.
    pub fn parse(text: &str) -> Option<FutexWait> {
        let mut fields = text.split_ascii_whitespace();
        // `running` or -1 where it is in none.
        if fields.next()?.parse::<u64>().ok()? != SYS_FUTEX {
            return None;
        }
        let mut hex = || u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok();
        let (address, operation, value, limit) = (hex()?, hex()?, hex()?, hex()?);
        let inherits_priority = match operation & 0x7f {
            // FUTEX_WAIT, FUTEX_WAIT_BITSET; FUTEX_LOCK_PI, FUTEX_LOCK_PI2.
            0 | 9 => false,
            6 | 13 => true,
            _ => return None,
        };
        let (_, _, sp, pc) = (hex()?, hex()?, hex()?, hex()?);
        Some(FutexWait { address, value: value as u32, limit, inherits_priority, sp, pc })
    }

    /// The thread that has the mutex that is waited for: glibc's, or one whose holder inherits priority.
    /// `half` reads four bytes of the process's memory. `None` where nothing says who has it.
    pub fn owner(&self, half: impl Fn(u64) -> Option<u32>) -> Option<u32> {
        if self.inherits_priority {
            return half(self.address).map(|value| value & TID);
        }
        // glibc's mutex: 2 where a thread waits, its owner eight bytes on, then how many use it, its kind.
        let (owner, users) =
            (half(self.address.wrapping_add(8))?, half(self.address.wrapping_add(12))?);
        let kind = half(self.address.wrapping_add(16))? & !0x180;
        (self.value == 2 && users > 0 && kind <= 3).then_some(owner & TID)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_of_a_system_call() {
        let wait = FutexWait::parse("202 0x5581 0x80 0x2 0x0 0x0 0x0 0x7ffd 0x7f00\n").unwrap();
        assert!(wait.address == 0x5581 && wait.value == 2 && !wait.inherits_priority);
        assert!(wait.limit == 0 && wait.sp == 0x7ffd && wait.pc == 0x7f00);
        for other in
            ["running\n", "-1 0x0 0x0\n", "202 0x1 0x81 0x2 0x0 0x0 0x0 0x1 0x1\n", "202", ""]
        {
            assert!(FutexWait::parse(other).is_none(), "{other}");
        }
    }
}
