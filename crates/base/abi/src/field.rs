//! The types of fields of events: in traces, in schemas, and in the catalogue of the kernel's
//! events.

/// What a field of an event holds. In memory, values are 64 bits: signed ones extended, texts as
/// codes of the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldType {
    /// Unsigned, 8 bits.
    U8,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 8 bits.
    I8,
    /// Signed, 16 bits.
    I16,
    /// Signed, 32 bits.
    I32,
    /// Signed, 64 bits.
    I64,
    /// 0 or 1.
    Bool,
    /// A text, as its code.
    Text,
}

impl FieldType {
    /// All types and their names, in traces as in schemas.
    pub const ALL: [(&'static str, FieldType); 10] = [
        ("u8", FieldType::U8),
        ("u16", FieldType::U16),
        ("u32", FieldType::U32),
        ("u64", FieldType::U64),
        ("i8", FieldType::I8),
        ("i16", FieldType::I16),
        ("i32", FieldType::I32),
        ("i64", FieldType::I64),
        ("bool", FieldType::Bool),
        ("text", FieldType::Text),
    ];

    /// The type of that name.
    pub fn from_name(name: &str) -> Option<FieldType> {
        FieldType::ALL.iter().find(|(known, _)| *known == name).map(|(_, ty)| *ty)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        FieldType::ALL.iter().find(|(_, ty)| *ty == self).map_or("", |(name, _)| name)
    }

    /// Bits of a value.
    pub fn bits(self) -> u32 {
        match self {
            FieldType::Bool => 1,
            FieldType::U8 | FieldType::I8 => 8,
            FieldType::U16 | FieldType::I16 => 16,
            FieldType::U32 | FieldType::I32 | FieldType::Text => 32,
            FieldType::U64 | FieldType::I64 => 64,
        }
    }

    /// Whether values can be negative.
    pub fn signed(self) -> bool {
        matches!(self, FieldType::I8 | FieldType::I16 | FieldType::I32 | FieldType::I64)
    }

    /// Smallest and largest value.
    pub fn range(self) -> (i128, i128) {
        match self.signed() {
            true => (-(1 << (self.bits() - 1)), (1 << (self.bits() - 1)) - 1),
            false => (0, (1 << self.bits()) - 1),
        }
    }

    /// The value, cut to the range of this type.
    pub fn fitted(self, value: u64) -> u64 {
        match self {
            FieldType::U8 => u64::from(value as u8),
            FieldType::U16 => u64::from(value as u16),
            FieldType::U32 | FieldType::Text => u64::from(value as u32),
            FieldType::I8 => value as i8 as u64,
            FieldType::I16 => value as i16 as u64,
            FieldType::I32 => value as i32 as u64,
            FieldType::U64 | FieldType::I64 => value,
            FieldType::Bool => u64::from(value != 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_types_agree() {
        for (name, ty) in FieldType::ALL {
            assert_eq!(FieldType::from_name(name), Some(ty));
            assert_eq!(ty.name(), name);
        }
        assert_eq!(FieldType::I8.range(), (-128, 127));
        assert_eq!(FieldType::U64.range(), (0, i128::from(u64::MAX)));
        assert_eq!(FieldType::Bool.range(), (0, 1));
    }

    #[test]
    fn values_are_cut_as_their_columns_cut_them() {
        assert_eq!(FieldType::U8.fitted(0x1ff), 0xff);
        assert_eq!(FieldType::I8.fitted(0xff), u64::MAX);
        assert_eq!(FieldType::I32.fitted(0xffff_ffff), u64::MAX);
        assert_eq!(FieldType::I64.fitted(7), 7);
        assert_eq!(FieldType::Bool.fitted(7), 1);
    }
}
