//! BTF: the types of the running kernel, as it tells them in `/sys/kernel/btf/vmlinux`.
//!
//! Programs have to know where fields lie in the kernel's structures, which differ from kernel to
//! kernel. BTF is a small sibling of DWARF: a row of types, numbered from 1 on (0 is `void`), and
//! their names. The reader takes bytes as claims: whatever they hold, it answers or gives an error.
#![forbid(unsafe_code)]
// A file of another kernel says what it likes of its own lengths.
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::collections::HashMap;

/// Number of a type.
pub type TypeId = u32;

/// Why types cannot be read.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum BtfError {
    /// It does not begin as BTF does.
    #[error("it is no BTF of a little-endian kernel")]
    NoBtf,
    /// It ends too early, or a part of it lies outside.
    #[error("it is cut off or damaged at byte {0}")]
    Damaged(usize),
    /// A kind of type that this reader does not know, so that it does not know its length either.
    #[error("type {id} is of kind {kind}, which is not known here")]
    UnknownKind {
        /// The type.
        id: TypeId,
        /// Its kind.
        kind: u32,
    },
    /// There is no such type.
    #[error("there is no {kind} {name}")]
    NoType {
        /// What it should be.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A structure has no such field.
    #[error("{of} has no field {field} that can be read")]
    NoField {
        /// The structure.
        of: String,
        /// The field, or a path of fields.
        field: String,
    },
}

type Result<T> = std::result::Result<T, BtfError>;

/// What a type is; numbers as in the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A structure.
    Struct = 4,
    /// A name for another type.
    Typedef = 8,
    /// A function.
    Func = 12,
    /// A variable.
    Var = 14,
}

const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;
const DECL_TAG: u32 = 17;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;

/// Types nested deeper than this are not believed.
const DEPTH: u32 = 32;
/// Fields that are looked at for one: damaged types may contain themselves.
const FIELDS: u32 = 10_000;

/// A field of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Where it begins, in bytes.
    pub offset: u32,
    /// How long it is, in bytes.
    pub size: u32,
    /// The structure that it was asked for in.
    pub of: TypeId,
}

/// The types of a kernel.
#[derive(Debug)]
pub struct Btf {
    bytes: Vec<u8>,
    /// Where each type begins; the first is number 1.
    types: Vec<u32>,
    strings: (usize, usize),
    names: HashMap<(Kind, Vec<u8>), TypeId>,
}

#[derive(Clone, Copy, Debug)]
struct Type {
    at: usize,
    name: u32,
    kind: u32,
    /// Number of parts that follow.
    parts: u32,
    /// Offsets of fields have their width in bits in front.
    widths: bool,
    /// Size or another type.
    value: u32,
}

impl Btf {
    /// Reads types.
    ///
    /// # Errors
    ///
    /// When the bytes are not whole.
    pub fn parse(bytes: Vec<u8>) -> Result<Btf> {
        if bytes.get(..3) != Some(&[0x9f, 0xeb, 1]) {
            return Err(BtfError::NoBtf);
        }
        let header = word(&bytes, 4)? as usize;
        let section = |at: usize| -> Result<(usize, usize)> {
            let start = header.checked_add(word(&bytes, at)? as usize);
            let end =
                start.and_then(|start| start.checked_add(word(&bytes, at + 4).ok()? as usize));
            match (start, end) {
                (Some(start), Some(end)) if end <= bytes.len() => Ok((start, end)),
                _ => Err(BtfError::Damaged(at)),
            }
        };
        let (mut at, end) = section(8)?;
        let strings = section(16)?;
        let mut btf = Btf { bytes: Vec::new(), types: Vec::new(), strings, names: HashMap::new() };
        let mut types = Vec::new();
        let mut named = Vec::new();
        while at < end {
            let id = types.len() as TypeId + 1;
            let found = read_type(&bytes, at)?;
            types.push(at as u32);
            let kind = match found.kind {
                STRUCT => Some(Kind::Struct),
                TYPEDEF => Some(Kind::Typedef),
                FUNC => Some(Kind::Func),
                VAR => Some(Kind::Var),
                _ => None,
            };
            named.extend(kind.map(|kind| (kind, found.name, id)));
            let parts = found.parts as usize;
            at += 12
                + match found.kind {
                    INT | VAR | DECL_TAG => 4,
                    ARRAY => 12,
                    STRUCT | UNION | DATASEC | ENUM64 => 12 * parts,
                    ENUM | FUNC_PROTO => 8 * parts,
                    PTR | 7 | TYPEDEF | VOLATILE | CONST | RESTRICT | FUNC | 16 | TYPE_TAG => 0,
                    kind => return Err(BtfError::UnknownKind { id, kind }),
                };
        }
        if at != end {
            return Err(BtfError::Damaged(at));
        }
        (btf.bytes, btf.types) = (bytes, types);
        for (kind, name, id) in named {
            let name = btf.text(name).to_owned();
            // The first of several is the one that the kernel itself finds.
            btf.names.entry((kind, name)).or_insert(id);
        }
        Ok(btf)
    }

    fn text(&self, offset: u32) -> &[u8] {
        let (start, end) = self.strings;
        let all = self.bytes.get(start..end).unwrap_or_default();
        let rest = all.get(offset as usize..).unwrap_or_default();
        rest.split(|b| *b == 0).next().unwrap_or_default()
    }

    fn get(&self, id: TypeId) -> Option<Type> {
        let at = *self.types.get((id as usize).checked_sub(1)?)?;
        read_type(&self.bytes, at as usize).ok()
    }

    /// The type itself, behind names and qualifiers.
    fn resolve(&self, mut id: TypeId) -> Option<(TypeId, Type)> {
        for _ in 0..DEPTH {
            let found = self.get(id)?;
            match found.kind {
                TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => id = found.value,
                _ => return Some((id, found)),
            }
        }
        None
    }

    fn size(&self, id: TypeId, depth: u32) -> Option<u32> {
        let (_, found) = self.resolve(id)?;
        match found.kind {
            PTR => Some(8),
            ARRAY if depth < DEPTH => {
                let count = word(&self.bytes, found.at + 20).ok()?;
                let element = word(&self.bytes, found.at + 12).ok()?;
                self.size(element, depth + 1)?.checked_mul(count)
            }
            INT | STRUCT | UNION | ENUM | ENUM64 => Some(found.value),
            _ => None,
        }
    }

    /// A type by name.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn find(&self, kind: Kind, name: &str) -> Result<TypeId> {
        self.names.get(&(kind, name.as_bytes().to_vec())).copied().ok_or_else(|| {
            let kind = match kind {
                Kind::Struct => "struct",
                Kind::Typedef => "typedef",
                Kind::Func => "function",
                Kind::Var => "variable",
            };
            BtfError::NoType { kind, name: name.to_owned() }
        })
    }

    /// Whether there is such a type.
    pub fn has(&self, kind: Kind, name: &str) -> bool {
        self.find(kind, name).is_ok()
    }

    /// A field of a structure, which may lie in structures and unions without names; `path` leads
    /// through those with names, as in `__sk_common.skc_family`.
    ///
    /// # Errors
    ///
    /// When there is no such structure or field, or it does not consist of whole bytes.
    pub fn field(&self, of: &str, path: &str) -> Result<Field> {
        let root = self.find(Kind::Struct, of)?;
        let missing = || BtfError::NoField { of: of.to_owned(), field: path.to_owned() };
        let (mut id, mut bits) = (root, 0u32);
        for name in path.split('.') {
            let mut budget = FIELDS;
            let found = self.member(id, name.as_bytes(), &mut budget);
            let (inner, at) = found.ok_or_else(missing)?;
            bits = bits.checked_add(at).ok_or_else(missing)?;
            id = inner;
        }
        let size = self.size(id, 0).filter(|_| bits.is_multiple_of(8)).ok_or_else(missing)?;
        Ok(Field { offset: bits / 8, size, of: root })
    }

    /// The size of a structure, in bytes.
    ///
    /// # Errors
    ///
    /// When there is no such structure.
    pub fn struct_size(&self, name: &str) -> Result<u32> {
        let id = self.find(Kind::Struct, name)?;
        let missing = || BtfError::NoType { kind: "struct", name: name.to_owned() };
        self.size(id, 0).ok_or_else(missing)
    }

    /// A bit field of a structure: its first bit and how many bits it has.
    ///
    /// # Errors
    ///
    /// When there is no such structure, or no bit field of that name directly in it.
    pub fn bit_field(&self, of: &str, name: &str) -> Result<(u32, u32)> {
        let root = self.find(Kind::Struct, of)?;
        let missing = || BtfError::NoField { of: of.to_owned(), field: name.to_owned() };
        let (_, found) = self.resolve(root).ok_or_else(missing)?;
        for i in 0..found.parts as usize {
            let at = found.at + 12 + 12 * i;
            let offset = word(&self.bytes, at + 8)?;
            if self.text(word(&self.bytes, at)?) == name.as_bytes() && found.widths {
                let width = offset >> 24;
                return (width > 0).then_some((offset & 0xff_ffff, width)).ok_or_else(missing);
            }
        }
        Err(missing())
    }

    /// A field's type and where it begins, in bits. Looks at no more fields than `budget`.
    fn member(&self, of: TypeId, name: &[u8], budget: &mut u32) -> Option<(TypeId, u32)> {
        let (_, found) = self.resolve(of)?;
        if !matches!(found.kind, STRUCT | UNION) {
            return None;
        }
        for i in 0..found.parts as usize {
            *budget = budget.checked_sub(1)?;
            let at = found.at + 12 + 12 * i;
            let field = |k: usize| word(&self.bytes, at + 4 * k).ok();
            let (text, id, offset) = (field(0)?, field(1)?, field(2)?);
            let (width, offset) =
                if found.widths { (offset >> 24, offset & 0xff_ffff) } else { (0, offset) };
            if text == 0 {
                if let Some((inner, inside)) = self.member(id, name, budget) {
                    return Some((inner, offset.checked_add(inside)?));
                }
            } else if self.text(text) == name {
                return (width == 0).then_some((id, offset));
            }
        }
        None
    }

    /// The number of arguments of a tracepoint, without the one that every tracepoint has.
    ///
    /// # Errors
    ///
    /// When there is no such tracepoint.
    pub fn tracepoint_arguments(&self, tracepoint: &str) -> Result<u32> {
        let name = format!("btf_trace_{tracepoint}");
        let id = self.find(Kind::Typedef, &name)?;
        let pointer = self.resolve(id).filter(|(_, t)| t.kind == PTR);
        let proto = pointer.and_then(|(_, t)| self.resolve(t.value));
        match proto {
            Some((_, t)) if t.kind == FUNC_PROTO => Ok(t.parts.saturating_sub(1)),
            _ => Err(BtfError::NoType { kind: "tracepoint", name }),
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Result<u32> {
    let part = at.checked_add(4).and_then(|end| bytes.get(at..end));
    let part: Option<[u8; 4]> = part.and_then(|part| part.try_into().ok());
    part.map(u32::from_le_bytes).ok_or(BtfError::Damaged(at))
}

fn read_type(bytes: &[u8], at: usize) -> Result<Type> {
    let info = word(bytes, at + 4)?;
    Ok(Type {
        at,
        name: word(bytes, at)?,
        kind: info >> 24 & 0x1f,
        parts: info & 0xffff,
        widths: info >> 31 != 0,
        value: word(bytes, at + 8)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct s { int a; struct { int *b; } ; union u v; }`, with `union u { int c[3]; }`, and a
    /// tracepoint of two arguments.
    fn example() -> Vec<u8> {
        let strings = b"\0int\0s\0a\0b\0u\0v\0c\0btf_trace_t\0";
        let at = |name: &[u8]| {
            let whole = [b"\0", name, b"\0"].concat();
            let found = strings.windows(whole.len()).position(|w| w == whole);
            found.expect("a string of the example") as u32 + 1
        };
        let info = |kind: u32, parts: u32| kind << 24 | parts;
        #[rustfmt::skip]
        let types: Vec<u32> = [
            vec![at(b"int"), info(INT, 0), 4, 32],                                   // 1
            vec![0, info(PTR, 0), 1],                                                // 2
            vec![0, info(STRUCT, 1), 8, at(b"b"), 2, 0],                             // 3
            vec![0, info(ARRAY, 0), 0, 1, 1, 3],                                     // 4
            vec![at(b"u"), info(UNION, 1), 12, at(b"c"), 4, 0],                      // 5
            vec![0, info(CONST, 0), 5],                                              // 6
            vec![at(b"s"), info(STRUCT, 3), 32, at(b"a"), 1, 0, 0, 3, 64, at(b"v"), 6, 128], // 7
            vec![0, info(FUNC_PROTO, 3), 0, 0, 2, 0, 1, 0, 1],                       // 8
            vec![0, info(PTR, 0), 8],                                                // 9
            vec![at(b"btf_trace_t"), info(TYPEDEF, 0), 9],                           // 10
        ]
        .concat();
        let len = types.len() as u32 * 4;
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, len, len, strings.len() as u32] {
            bytes.extend_from_slice(&u32::to_le_bytes(word));
        }
        types.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        bytes.extend_from_slice(strings);
        bytes
    }

    #[test]
    fn fields_by_name_and_path() {
        let btf = Btf::parse(example()).unwrap();
        assert_eq!(btf.field("s", "a"), Ok(Field { offset: 0, size: 4, of: 7 }));
        assert_eq!(btf.field("s", "b"), Ok(Field { offset: 8, size: 8, of: 7 }));
        assert_eq!(btf.field("s", "v.c"), Ok(Field { offset: 16, size: 12, of: 7 }));
        assert!(btf.field("s", "v.d").is_err());
        assert!(btf.field("t", "a").is_err());
        assert_eq!(btf.tracepoint_arguments("t"), Ok(2));
        assert!(btf.tracepoint_arguments("u").is_err());
        assert_eq!(btf.struct_size("s"), Ok(32));
        assert!(btf.struct_size("t").is_err());
        assert!(btf.bit_field("s", "a").is_err(), "it is no bit field");
    }

    /// Every cut and every changed byte gives an answer or an error, and never a panic.
    #[test]
    fn damaged_bytes_are_errors() {
        let whole = example();
        let look = |bytes: &[u8]| {
            let Ok(btf) = Btf::parse(bytes.to_vec()) else { return };
            for path in ["a", "b", "v.c", "v", "d"] {
                let _ = btf.field("s", path);
            }
            let _ = btf.tracepoint_arguments("t");
        };
        for end in 0..whole.len() {
            assert!(Btf::parse(whole[..end].to_vec()).is_err());
        }
        for at in 0..whole.len() {
            for value in 0..=255 {
                let mut changed = whole.clone();
                changed[at] = value;
                look(&changed);
            }
        }
    }

    #[test]
    fn the_running_kernel() {
        let Ok(bytes) = std::fs::read("/sys/kernel/btf/vmlinux") else {
            eprintln!("skipped: this kernel has no BTF");
            return;
        };
        let btf = Btf::parse(bytes).unwrap();
        let pid = btf.field("task_struct", "pid").unwrap();
        let tgid = btf.field("task_struct", "tgid").unwrap();
        assert_eq!((pid.size, tgid.offset), (4, pid.offset + 4));
        assert_eq!(btf.field("sock", "__sk_common.skc_family").unwrap().size, 2);
        assert_eq!(btf.tracepoint_arguments("sys_exit"), Ok(2));
        assert!(btf.struct_size("task_struct").unwrap() > pid.offset);
        if btf.has(Kind::Struct, "orc_entry") {
            let (_, width) = btf.bit_field("orc_entry", "sp_reg").unwrap();
            assert_eq!(width, 4);
        }
    }
}
