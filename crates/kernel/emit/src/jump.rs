//! Jumps between blocks, which are written anew.

/// What a jump depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Jump {
    /// `jmp`
    Always,
    /// `jcc`, by the condition's number in machine code.
    If(u8),
}

impl Jump {
    /// The jump that is taken when this one is not.
    pub(crate) fn inverted(self) -> Jump {
        match self {
            Jump::Always => Jump::Always,
            Jump::If(condition) => Jump::If(condition ^ 1),
        }
    }

    /// Its size in bytes.
    pub(crate) fn size(self, short: bool) -> u32 {
        match (self, short) {
            (_, true) => 2,
            (Jump::Always, false) => 5,
            (Jump::If(_), false) => 6,
        }
    }

    /// Appends it to `text`; the long form's distance has the last four bytes.
    pub(crate) fn write(self, text: &mut Vec<u8>, short: bool, distance: i32) {
        match (self, short) {
            (Jump::Always, true) => text.push(0xeb),
            (Jump::Always, false) => text.push(0xe9),
            (Jump::If(condition), true) => text.push(0x70 | condition),
            (Jump::If(condition), false) => text.extend_from_slice(&[0x0f, 0x80 | condition]),
        }
        match short {
            true => text.push(distance as u8),
            false => text.extend_from_slice(&distance.to_le_bytes()),
        }
    }
}
