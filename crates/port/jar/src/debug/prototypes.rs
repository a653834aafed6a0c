//! Prototypes of functions, with the names and types of their parameters.

use super::{Sections, Slice};

/// Types nested deeper are not looked at.
const DEPTH_MAX: usize = 12;

/// A type, as far as calls between languages care.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CType {
    /// Nothing.
    Void,
    /// `_Bool`.
    Bool,
    /// An integer of so many bytes; enumerations are integers.
    Int {
        /// How many.
        bytes: u64,
        /// Whether it is a character.
        character: bool,
        /// Whether it has no sign.
        unsigned: bool,
    },
    /// A floating-point number of so many bytes.
    Float(u64),
    /// A pointer.
    Pointer {
        /// To what.
        to: Box<CType>,
        /// Whether the function may not write there.
        constant: bool,
    },
    /// A structure.
    Struct(Struct),
    /// A function, to which there can only be pointers.
    Function(Box<Prototype>),
    /// Anything else.
    Other,
}

/// A structure whose members are known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Struct {
    /// Its name, or that of its `typedef`; empty if it has none.
    pub name: String,
    /// How many bytes it has.
    pub size: u64,
    /// Names, types and places of its members. None if some have bits only.
    pub members: Option<Vec<(String, CType, u64)>>,
}

/// A parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// Its name; empty if it has none.
    pub name: String,
    /// Its type.
    pub ty: CType,
}

/// What a function takes and returns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prototype {
    /// Its parameters.
    pub parameters: Vec<Parameter>,
    /// Its result.
    pub result: CType,
    /// Whether more arguments may follow.
    pub variadic: bool,
}

/// Looks prototypes up.
pub struct Prototypes<'a> {
    dwarf: gimli::Dwarf<Slice<'a>>,
}

/// A type without parts, by its encoding.
fn base_type(encoding: u64, bytes: u64) -> CType {
    let (character, unsigned) = match gimli::DwAte(encoding as u8) {
        gimli::DW_ATE_boolean => return CType::Bool,
        gimli::DW_ATE_float => return CType::Float(bytes),
        gimli::DW_ATE_signed_char => (true, false),
        gimli::DW_ATE_unsigned_char => (true, true),
        gimli::DW_ATE_signed => (false, false),
        gimli::DW_ATE_unsigned => (false, true),
        _ => return CType::Other,
    };
    CType::Int { bytes, character, unsigned }
}

type Unit<'a> = gimli::Unit<Slice<'a>>;
type Entry<'a> = gimli::DebuggingInformationEntry<Slice<'a>>;

impl<'a> Prototypes<'a> {
    /// Of the file with these sections.
    pub fn new(sections: &'a Sections<'_>) -> Self {
        Self { dwarf: sections.dwarf() }
    }

    /// The prototype of a function: of its definition if there is one, else of a declaration.
    pub fn of(&self, function: &str) -> Option<Prototype> {
        let mut declared = None;
        let mut headers = self.dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            let Ok(unit) = self.dwarf.unit(header) else { continue };
            let mut entries = unit.entries();
            while let Ok(Some(entry)) = entries.next_dfs() {
                if entry.tag() != gimli::DW_TAG_subprogram
                    || self.name(&unit, entry).as_deref() != Some(function)
                {
                    continue;
                }
                let Some(prototype) = self.prototype(&unit, entry.offset(), 0) else { continue };
                if entry.attr(gimli::DW_AT_declaration).is_none() {
                    return Some(prototype);
                }
                declared = declared.or(Some(prototype));
            }
        }
        declared
    }

    fn name(&self, unit: &Unit<'a>, entry: &Entry<'a>) -> Option<String> {
        let value = entry.attr(gimli::DW_AT_name)?.value();
        Some(self.dwarf.attr_string(unit, value).ok()?.to_string_lossy().into_owned())
    }

    fn prototype(&self, unit: &Unit<'a>, at: gimli::UnitOffset, depth: usize) -> Option<Prototype> {
        let result = self.type_of(unit, &unit.entry(at).ok()?, depth);
        let (mut parameters, mut variadic) = (Vec::new(), false);
        let mut tree = unit.entries_tree(Some(at)).ok()?;
        let mut children = tree.root().ok()?.children();
        while let Ok(Some(child)) = children.next() {
            let entry = child.entry();
            match entry.tag() {
                gimli::DW_TAG_formal_parameter => {
                    let name = self.name(unit, entry).unwrap_or_default();
                    parameters.push(Parameter { name, ty: self.type_of(unit, entry, depth) });
                }
                gimli::DW_TAG_unspecified_parameters => variadic = true,
                _ => {}
            }
        }
        Some(Prototype { parameters, result, variadic })
    }

    /// The type that an entry has as its attribute.
    fn type_of(&self, unit: &Unit<'a>, entry: &Entry<'a>, depth: usize) -> CType {
        match entry.attr(gimli::DW_AT_type).map(gimli::Attribute::value) {
            None => CType::Void,
            Some(gimli::AttributeValue::UnitRef(at)) => self.ty(unit, at, depth),
            Some(_) => CType::Other,
        }
    }

    fn ty(&self, unit: &Unit<'a>, at: gimli::UnitOffset, depth: usize) -> CType {
        let Ok(entry) = unit.entry(at) else { return CType::Other };
        if depth > DEPTH_MAX {
            return CType::Other;
        }
        let entry = &entry;
        let number = |name| entry.attr(name).and_then(gimli::Attribute::udata_value);
        let bytes = number(gimli::DW_AT_byte_size).unwrap_or(0);
        match entry.tag() {
            gimli::DW_TAG_typedef => match self.type_of(unit, entry, depth + 1) {
                CType::Struct(found) if found.name.is_empty() => {
                    let name = self.name(unit, entry).unwrap_or_default();
                    CType::Struct(Struct { name, ..found })
                }
                other => other,
            },
            gimli::DW_TAG_const_type
            | gimli::DW_TAG_volatile_type
            | gimli::DW_TAG_restrict_type
            | gimli::DW_TAG_atomic_type => self.type_of(unit, entry, depth + 1),
            gimli::DW_TAG_enumeration_type => {
                CType::Int { bytes, character: false, unsigned: false }
            }
            gimli::DW_TAG_base_type => base_type(number(gimli::DW_AT_encoding).unwrap_or(0), bytes),
            gimli::DW_TAG_pointer_type => {
                let constant = self.is_constant(unit, entry);
                CType::Pointer { to: Box::new(self.type_of(unit, entry, depth + 1)), constant }
            }
            gimli::DW_TAG_structure_type => {
                let name = self.name(unit, entry).unwrap_or_default();
                let members = self.members(unit, at, depth + 1);
                CType::Struct(Struct { name, size: bytes, members })
            }
            gimli::DW_TAG_subroutine_type => match self.prototype(unit, at, depth + 1) {
                Some(prototype) => CType::Function(Box::new(prototype)),
                None => CType::Other,
            },
            _ => CType::Other,
        }
    }

    /// Whether what a pointer leads to may not be written, also by way of a `typedef`.
    fn is_constant(&self, unit: &Unit<'a>, pointer: &Entry<'a>) -> bool {
        let mut to = pointer.attr(gimli::DW_AT_type).map(gimli::Attribute::value);
        for _ in 0..DEPTH_MAX {
            let Some(gimli::AttributeValue::UnitRef(at)) = to else { return false };
            let Ok(entry) = unit.entry(at) else { return false };
            match entry.tag() {
                gimli::DW_TAG_const_type => return true,
                gimli::DW_TAG_typedef => {}
                _ => return false,
            }
            to = entry.attr(gimli::DW_AT_type).map(gimli::Attribute::value);
        }
        false
    }

    fn members(
        &self,
        unit: &Unit<'a>,
        at: gimli::UnitOffset,
        depth: usize,
    ) -> Option<Vec<(String, CType, u64)>> {
        let mut members = Vec::new();
        let mut tree = unit.entries_tree(Some(at)).ok()?;
        let mut children = tree.root().ok()?.children();
        while let Ok(Some(child)) = children.next() {
            let entry = child.entry();
            if entry.tag() != gimli::DW_TAG_member {
                continue;
            }
            let number = |name| entry.attr(name).and_then(gimli::Attribute::udata_value);
            if entry.attr(gimli::DW_AT_bit_size).is_some() {
                return None;
            }
            let place = number(gimli::DW_AT_data_member_location)?;
            members.push((self.name(unit, entry)?, self.type_of(unit, entry, depth), place));
        }
        Some(members)
    }
}
