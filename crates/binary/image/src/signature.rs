//! Parameters of functions, from DWARF, so that probes can show arguments.
//!
//! DWARF describes each function as a tree entry (DIE) with one child a parameter. A function
//! compiled out of line from an inline one splits this in two: the concrete entry has the
//! address, its *abstract origin* the names and types. Types are entries too, chained from
//! `const` through `typedef` to what they stand for.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use gimli::{AttributeValue, DwTag, UnitOffset, constants as dw};

use crate::LinkAddr;
use crate::dwarf::DwarfSource;
use crate::units;
use crate::units::Slice;

/// How a value is passed and shown.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ArgType {
    /// No value: the result of a `void` function.
    Void,
    /// An integer, enumeration, boolean or character of up to eight bytes.
    Int {
        /// Size.
        bytes: u8,
        /// Whether it is sign-extended.
        signed: bool,
    },
    /// An address, also a C++ reference.
    Pointer,
    /// A pointer to `char`, most likely text that ends with NUL.
    CString,
    /// A floating-point number. One of more than eight bytes (`long double`) is in memory.
    Float {
        /// Size.
        bytes: u8,
    },
    /// Anything else, such as a structure by value. It may take any number of registers, so the
    /// places of the parameters after it are not known.
    Other,
}

/// One parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Param {
    /// Name; empty if it has none. `this` for the object of a C++ member function.
    pub name: String,
    /// Type.
    pub ty: ArgType,
}

/// Parameters and result of a function, as in its source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signature {
    /// Parameters in order.
    pub params: Vec<Param>,
    /// Result.
    pub ret: ArgType,
    /// The caller passes the address for the result as a hidden first argument.
    pub ret_in_memory: bool,
    /// More arguments may follow the parameters.
    pub variadic: bool,
}

/// For each unit looked into: the offsets of its functions in `.debug_info`, by address.
type Functions = HashMap<usize, HashMap<u64, usize>>;

/// What repeated lookups would otherwise compute again.
#[derive(Clone, Debug, Default)]
pub(crate) struct SignatureCache(Arc<Mutex<Functions>>);

/// Longest chain of type or origin entries that is followed; a damaged file may have cycles.
const CHAIN_LEN_MAX: usize = 64;
/// Most parameters that are worth showing.
const PARAMS_MAX: usize = 256;

/// The signature of the function that starts at `addr`.
pub(crate) fn find(
    source: &DwarfSource,
    cache: &SignatureCache,
    addr: LinkAddr,
) -> Option<Signature> {
    if !source.has_debug_info() {
        return None;
    }
    let dwarf = source.load();
    let index = source.units();
    let die = {
        // Entries are only ever added whole, so a panic elsewhere leaves nothing half-built.
        let mut functions = cache.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        index.at(addr.0).find_map(|unit| {
            let of_unit = functions.entry(unit).or_insert_with(|| functions_of_unit(&dwarf, unit));
            of_unit.get(&addr.0).copied()
        })?
    };
    Walk::new(&dwarf, &index.starts).signature(die)
}

fn functions_of_unit(dwarf: &gimli::Dwarf<Slice<'_>>, at: usize) -> HashMap<u64, usize> {
    let mut functions = HashMap::new();
    let Some(unit) = units::load(dwarf, at) else { return functions };
    let mut entries = unit.entries();
    while let Ok(Some(entry)) = entries.next_dfs() {
        if entry.tag() != dw::DW_TAG_subprogram {
            continue;
        }
        let start = match entry.attr_value(dw::DW_AT_low_pc) {
            Some(value) => dwarf.attr_address(&unit, value).ok().flatten(),
            // A function in several pieces is entered at the first.
            None => dwarf
                .die_ranges(&unit, entry)
                .ok()
                .and_then(|mut ranges| ranges.next().ok().flatten().map(|range| range.begin)),
        };
        if let Some(start) = start
            && let Some(offset) = at.checked_add(entry.offset().0)
        {
            functions.entry(start).or_insert(offset);
        }
    }
    functions
}

/// Follows references between entries, which may lead from unit to unit.
pub(crate) struct Walk<'d, 'a> {
    dwarf: &'d gimli::Dwarf<Slice<'a>>,
    units: &'d [usize],
    loaded: HashMap<usize, Rc<gimli::Unit<Slice<'a>>>>,
}

pub(crate) type Unit<'a> = Rc<gimli::Unit<Slice<'a>>>;
pub(crate) type Die<'a> = gimli::DebuggingInformationEntry<Slice<'a>>;

impl<'d, 'a> Walk<'d, 'a> {
    pub(crate) fn new(dwarf: &'d gimli::Dwarf<Slice<'a>>, units: &'d [usize]) -> Walk<'d, 'a> {
        Walk { dwarf, units, loaded: HashMap::new() }
    }

    pub(crate) fn unit_of(&mut self, at: usize) -> Option<(usize, Unit<'a>)> {
        let unit_at = *self.units.get(self.units.partition_point(|&u| u <= at).checked_sub(1)?)?;
        if let Some(unit) = self.loaded.get(&unit_at) {
            return Some((unit_at, unit.clone()));
        }
        let unit = Rc::new(units::load(self.dwarf, unit_at)?);
        self.loaded.insert(unit_at, unit.clone());
        Some((unit_at, unit))
    }

    pub(crate) fn die(&mut self, at: usize) -> Option<(Unit<'a>, Die<'a>)> {
        let (unit_at, unit) = self.unit_of(at)?;
        let die = unit.entry(UnitOffset(at - unit_at)).ok()?;
        Some((unit, die))
    }

    /// Offset in `.debug_info` of the entry that an attribute refers to.
    pub(crate) fn reference(
        &self,
        unit: &Unit<'a>,
        die: &Die<'a>,
        name: gimli::DwAt,
    ) -> Option<usize> {
        match die.attr_value(name)? {
            AttributeValue::UnitRef(offset) => {
                offset.to_debug_info_offset(&unit.header).map(|offset| offset.0)
            }
            AttributeValue::DebugInfoRef(offset) => Some(offset.0),
            _ => None,
        }
    }

    /// The entry and those that complete it: its abstract origin, its declaration.
    pub(crate) fn chain(&mut self, at: usize) -> Vec<usize> {
        let (mut chain, mut last) = (vec![at], at);
        while chain.len() < CHAIN_LEN_MAX {
            let Some((unit, die)) = self.die(last) else { break };
            let next = self
                .reference(&unit, &die, dw::DW_AT_abstract_origin)
                .or_else(|| self.reference(&unit, &die, dw::DW_AT_specification));
            match next {
                Some(next) if !chain.contains(&next) => {
                    chain.push(next);
                    last = next;
                }
                _ => break,
            }
        }
        chain
    }

    fn signature(&mut self, at: usize) -> Option<Signature> {
        let chain = self.chain(at);
        for &at in &chain {
            // A function that is only called within its unit may use any convention.
            let convention = self.die(at)?.1.attr_value(dw::DW_AT_calling_convention);
            if convention == Some(AttributeValue::CallingConvention(dw::DW_CC_nocall)) {
                return None;
            }
        }
        let ret_at = chain.iter().find_map(|&at| {
            let (unit, die) = self.die(at)?;
            self.reference(&unit, &die, dw::DW_AT_type)
        });
        let (ret, ret_in_memory) = match ret_at {
            Some(at) => (self.arg_type(at), self.is_in_memory(at)),
            None => (ArgType::Void, false),
        };
        // The declaration has all parameters, but often no names. The concrete entry may lack
        // some that were optimised away. The nearest with the most is the best.
        let mut best = (Vec::new(), false);
        for &at in chain.iter().rev() {
            let found = self.params(at)?;
            if found.0.len() >= best.0.len() {
                best = found;
            }
        }
        let (params, variadic) = best;
        Some(Signature { params, ret, ret_in_memory, variadic })
    }

    /// Parameters below a function's entry, and whether more arguments may follow.
    fn params(&mut self, at: usize) -> Option<(Vec<Param>, bool)> {
        let (unit_at, unit) = self.unit_of(at)?;
        let mut children = Vec::new();
        let mut variadic = false;
        let mut cursor = unit.entries_at_offset(UnitOffset(at - unit_at)).ok()?;
        cursor.next_dfs().ok()??;
        let depth = cursor.depth();
        while let Ok(Some(entry)) = cursor.next_dfs() {
            if entry.depth() <= depth || children.len() >= PARAMS_MAX {
                break;
            }
            if entry.depth() == depth + 1 {
                match entry.tag() {
                    dw::DW_TAG_formal_parameter => children.push(unit_at + entry.offset().0),
                    dw::DW_TAG_unspecified_parameters => variadic = true,
                    _ => {}
                }
            }
        }
        let params = children.into_iter().map(|at| self.param(at)).collect();
        Some((params, variadic))
    }

    fn param(&mut self, at: usize) -> Param {
        let chain = self.chain(at);
        let name = chain.iter().find_map(|&at| {
            let (unit, die) = self.die(at)?;
            let name = self.dwarf.attr_string(&unit, die.attr_value(dw::DW_AT_name)?).ok()?;
            Some(name.to_string_lossy().into_owned())
        });
        let ty = chain.iter().find_map(|&at| {
            let (unit, die) = self.die(at)?;
            self.reference(&unit, &die, dw::DW_AT_type)
        });
        Param {
            name: name.unwrap_or_default(),
            ty: ty.map_or(ArgType::Other, |at| self.arg_type(at)),
        }
    }

    /// The type behind names and qualifiers.
    fn strip(&mut self, mut at: usize) -> Option<(Unit<'a>, Die<'a>)> {
        for _ in 0..CHAIN_LEN_MAX {
            let (unit, die) = self.die(at)?;
            if !is_transparent(die.tag()) {
                return Some((unit, die));
            }
            at = self.reference(&unit, &die, dw::DW_AT_type)?;
        }
        None
    }

    fn arg_type(&mut self, at: usize) -> ArgType {
        let Some((unit, die)) = self.strip(at) else { return ArgType::Other };
        match die.tag() {
            dw::DW_TAG_base_type => base_type(&die),
            dw::DW_TAG_pointer_type => {
                let target = self.reference(&unit, &die, dw::DW_AT_type);
                match target.and_then(|target| self.strip(target)) {
                    Some((unit, target)) if is_char(self.dwarf, &unit, &target) => ArgType::CString,
                    _ => ArgType::Pointer,
                }
            }
            // `nullptr_t` is the only unspecified type that values have.
            dw::DW_TAG_reference_type
            | dw::DW_TAG_rvalue_reference_type
            | dw::DW_TAG_unspecified_type => ArgType::Pointer,
            dw::DW_TAG_enumeration_type => {
                let underlying = self.reference(&unit, &die, dw::DW_AT_type);
                match underlying.and_then(|at| self.strip(at)) {
                    Some((_, base)) if base.tag() == dw::DW_TAG_base_type => base_type(&base),
                    _ => int(byte_size(&die), false),
                }
            }
            _ => ArgType::Other,
        }
    }

    /// Whether a result of this type is returned through memory: a structure of more than two
    /// registers, or one that C++ may not copy bit by bit.
    fn is_in_memory(&mut self, at: usize) -> bool {
        let Some((_, die)) = self.strip(at) else { return false };
        let aggregate = matches!(
            die.tag(),
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type
        );
        let by_reference = die.attr_value(dw::DW_AT_calling_convention)
            == Some(AttributeValue::CallingConvention(dw::DW_CC_pass_by_reference));
        aggregate && (by_reference || byte_size(&die).is_some_and(|size| size > 16))
    }
}

pub(crate) fn is_transparent(tag: DwTag) -> bool {
    matches!(
        tag,
        dw::DW_TAG_typedef
            | dw::DW_TAG_const_type
            | dw::DW_TAG_volatile_type
            | dw::DW_TAG_restrict_type
            | dw::DW_TAG_atomic_type
            | dw::DW_TAG_immutable_type
    )
}

pub(crate) fn byte_size(die: &Die<'_>) -> Option<u64> {
    die.attr_value(dw::DW_AT_byte_size)?.udata_value()
}

fn encoding(die: &Die<'_>) -> Option<gimli::DwAte> {
    match die.attr_value(dw::DW_AT_encoding)? {
        AttributeValue::Encoding(encoding) => Some(encoding),
        _ => None,
    }
}

fn int(bytes: Option<u64>, signed: bool) -> ArgType {
    match bytes {
        Some(bytes @ 1..=8) => ArgType::Int { bytes: bytes as u8, signed },
        _ => ArgType::Other,
    }
}

fn base_type(die: &Die<'_>) -> ArgType {
    let bytes = byte_size(die);
    match encoding(die) {
        Some(dw::DW_ATE_signed | dw::DW_ATE_signed_char) => int(bytes, true),
        Some(
            dw::DW_ATE_unsigned
            | dw::DW_ATE_unsigned_char
            | dw::DW_ATE_boolean
            | dw::DW_ATE_UTF
            | dw::DW_ATE_address,
        ) => int(bytes, false),
        Some(dw::DW_ATE_float) => match bytes {
            Some(bytes @ 2..=16) => ArgType::Float { bytes: bytes as u8 },
            _ => ArgType::Other,
        },
        _ => ArgType::Other,
    }
}

/// `char` and nothing else: `unsigned char` and `int8_t` are numbers more often than text.
fn is_char(dwarf: &gimli::Dwarf<Slice<'_>>, unit: &Unit<'_>, die: &Die<'_>) -> bool {
    let name = || {
        let name = dwarf.attr_string(unit, die.attr_value(dw::DW_AT_name)?).ok()?;
        Some(name.slice() == b"char")
    };
    die.tag() == dw::DW_TAG_base_type && byte_size(die) == Some(1) && name() == Some(true)
}
