//! Which member of which structure a lock is, from DWARF: by a variable of the function that passes the lock's
//! address, which points to the structure.

use gimli::{Operation, UnitOffset, constants as dw};

use crate::LinkAddr;
use crate::dwarf::DwarfSource;
use crate::signature::{Die, Unit, Walk, byte_size, is_transparent};
use crate::units::Slice;

/// Where a function has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A register, by its number in DWARF.
    Register(u16),
    /// So far from the canonical frame address, in memory.
    Frame(i64),
}

/// What locks are called, as types of C's and C++'s libraries.
const LOCKS: [&str; 13] = [
    "pthread_mutex_t",
    "pthread_rwlock_t",
    "pthread_spinlock_t",
    "pthread_cond_t",
    "pthread_barrier_t",
    "sem_t",
    "mutex",
    "recursive_mutex",
    "timed_mutex",
    "recursive_timed_mutex",
    "shared_mutex",
    "shared_timed_mutex",
    "condition_variable",
];

/// Deepest nesting of scopes and structures that is followed; a damaged file may have cycles.
const DEPTH_MAX: usize = 32;

/// The structure and the member, if a variable in scope at `at` says so.
pub(crate) fn find(
    source: &DwarfSource,
    at: LinkAddr,
    holder: Holder,
    offset: i64,
) -> Option<(String, String)> {
    if !source.has_debug_info() {
        return None;
    }
    let offset = u64::try_from(offset).ok()?;
    let dwarf = source.load();
    let index = source.units();
    let mut walk = Walk::new(&dwarf, &index.starts);
    index.at(at.0).find_map(|unit| {
        let (unit_at, unit) = walk.unit_of(unit)?;
        let types = variables(&dwarf, &unit, at.0, holder);
        types.into_iter().find_map(|variable| {
            Types { dwarf: &dwarf, walk: &mut walk }.pointed(unit_at + variable.0, offset)
        })
    })
}

/// Variables and parameters that lie at `holder` when `at` runs: outer scopes first.
fn variables<'a>(
    dwarf: &gimli::Dwarf<Slice<'a>>,
    unit: &Unit<'a>,
    at: u64,
    holder: Holder,
) -> Vec<UnitOffset> {
    let mut found = Vec::new();
    let mut entries = unit.entries();
    // Below entries of code that `at` is not in, nothing counts.
    let mut outside: Option<isize> = None;
    while let Ok(Some(entry)) = entries.next_dfs() {
        if outside.is_some_and(|depth| entry.depth() > depth) {
            continue;
        }
        outside = None;
        match entry.tag() {
            dw::DW_TAG_subprogram | dw::DW_TAG_lexical_block | dw::DW_TAG_inlined_subroutine
                if !covers(dwarf, unit, entry, at) =>
            {
                outside = Some(entry.depth());
            }
            dw::DW_TAG_formal_parameter | dw::DW_TAG_variable
                if lies_at(dwarf, unit, entry, at, holder) =>
            {
                found.push(entry.offset());
            }
            _ => {}
        }
    }
    found
}

fn covers<'a>(dwarf: &gimli::Dwarf<Slice<'a>>, unit: &Unit<'a>, die: &Die<'a>, at: u64) -> bool {
    let Ok(mut ranges) = dwarf.die_ranges(unit, die) else { return false };
    while let Ok(Some(range)) = ranges.next() {
        if (range.begin..range.end).contains(&at) {
            return true;
        }
    }
    false
}

fn lies_at<'a>(
    dwarf: &gimli::Dwarf<Slice<'a>>,
    unit: &Unit<'a>,
    die: &Die<'a>,
    at: u64,
    holder: Holder,
) -> bool {
    let Some(location) = die.attr_value(dw::DW_AT_location) else { return false };
    let is_there = |expression: gimli::Expression<Slice<'_>>| {
        let mut operations = expression.operations(unit.encoding());
        let first = operations.next().ok().flatten();
        let alone = matches!(operations.next(), Ok(None));
        let found = match first {
            Some(Operation::Register { register }) => Some(Holder::Register(register.0)),
            Some(Operation::FrameOffset { offset }) => Some(Holder::Frame(offset)),
            _ => None,
        };
        alone && found == Some(holder)
    };
    if let Some(expression) = location.exprloc_value() {
        return is_there(expression);
    }
    let Ok(Some(mut list)) = dwarf.attr_locations(unit, location) else { return false };
    while let Ok(Some(entry)) = list.next() {
        if (entry.range.begin..entry.range.end).contains(&at) && is_there(entry.data) {
            return true;
        }
    }
    false
}

struct Types<'w, 'd, 'a> {
    dwarf: &'d gimli::Dwarf<Slice<'a>>,
    walk: &'w mut Walk<'d, 'a>,
}

impl<'a> Types<'_, '_, 'a> {
    /// The lock so far behind what a variable points to.
    fn pointed(&mut self, variable: usize, offset: u64) -> Option<(String, String)> {
        let chain = self.walk.chain(variable);
        let of = chain.into_iter().find_map(|at| self.type_of(at))?;
        let (unit, die) = self.plain(of)?.1;
        let pointer = [dw::DW_TAG_pointer_type, dw::DW_TAG_reference_type];
        if !pointer.contains(&die.tag()) {
            return None;
        }
        let target = self.walk.reference(&unit, &die, dw::DW_AT_type)?;
        let (owner, path) = self.lock_in(target, offset, 0)?;
        // A lock by itself has no owner.
        (!path.is_empty()).then_some((owner, path))
    }

    fn type_of(&mut self, at: usize) -> Option<usize> {
        let (unit, die) = self.walk.die(at)?;
        self.walk.reference(&unit, &die, dw::DW_AT_type)
    }

    fn name(&self, unit: &Unit<'a>, die: &Die<'a>) -> Option<String> {
        let name = self.dwarf.attr_string(unit, die.attr_value(dw::DW_AT_name)?).ok()?;
        Some(name.to_string_lossy().into_owned())
    }

    /// The first name of a type, and what is behind its names.
    fn plain(&mut self, mut at: usize) -> Option<(Option<String>, (Unit<'a>, Die<'a>))> {
        let mut first = None;
        for _ in 0..DEPTH_MAX {
            let (unit, die) = self.walk.die(at)?;
            let name = self.name(&unit, &die);
            // `__gthread_mutex_t` and the like stand for what C calls them.
            let better = name.as_ref().is_some_and(|name| LOCKS.contains(&name.as_str()));
            if first.is_none() || better {
                first = name.or(first);
            }
            if !is_transparent(die.tag()) {
                return Some((first, (unit, die)));
            }
            at = self.walk.reference(&unit, &die, dw::DW_AT_type)?;
        }
        None
    }

    /// The innermost structure of the program's own with the lock at `offset` of a type, and the way from there;
    /// the way is empty where the type is the lock itself.
    fn lock_in(&mut self, of: usize, offset: u64, depth: usize) -> Option<(String, String)> {
        let (name, (unit, die)) = self.plain(of)?;
        let name = name.unwrap_or_default();
        if LOCKS.contains(&name.as_str()) {
            return (offset == 0).then_some((name, String::new()));
        }
        if depth > DEPTH_MAX {
            return None;
        }
        match die.tag() {
            dw::DW_TAG_array_type => {
                let element = self.walk.reference(&unit, &die, dw::DW_AT_type)?;
                let size = self.plain(element).and_then(|(_, (_, die))| byte_size(&die))?;
                let (owner, path) = self.lock_in(element, offset.checked_rem(size)?, depth + 1)?;
                let of_array = path.is_empty() || path.starts_with('[');
                Some((owner, if of_array { format!("[]{path}") } else { path }))
            }
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => {
                let (unit_at, _) = self.walk.unit_of(of)?;
                let at = unit_at + die.offset().0;
                self.members(at)
                    .into_iter()
                    .find_map(|member| self.lock_of_member(&name, member, offset, depth))
            }
            _ => None,
        }
    }

    /// Members and bases of a structure.
    fn members(&mut self, at: usize) -> Vec<usize> {
        let mut found = Vec::new();
        let Some((unit_at, unit)) = self.walk.unit_of(at) else { return found };
        let Ok(mut cursor) = unit.entries_at_offset(UnitOffset(at - unit_at)) else { return found };
        let Ok(Some(first)) = cursor.next_dfs() else { return found };
        let depth = first.depth();
        while let Ok(Some(entry)) = cursor.next_dfs() {
            if entry.depth() <= depth {
                break;
            }
            let wanted = [dw::DW_TAG_member, dw::DW_TAG_inheritance].contains(&entry.tag());
            if entry.depth() == depth + 1 && wanted {
                found.push(unit_at + entry.offset().0);
            }
        }
        found
    }

    fn lock_of_member(
        &mut self,
        owner: &str,
        at: usize,
        offset: u64,
        depth: usize,
    ) -> Option<(String, String)> {
        let (unit, die) = self.walk.die(at)?;
        // Members of unions have no place; static ones have no address here.
        let place = match die.attr_value(dw::DW_AT_data_member_location) {
            Some(value) => value.udata_value()?,
            None if die.attr_value(dw::DW_AT_external).is_some() => return None,
            None => 0,
        };
        let inside = offset.checked_sub(place)?;
        let of = self.walk.reference(&unit, &die, dw::DW_AT_type)?;
        let size = self.plain(of).and_then(|(_, (_, die))| byte_size(&die));
        if size.is_some_and(|size| inside >= size) {
            return None;
        }
        let name = self.name(&unit, &die).unwrap_or_default();
        let (inner, path) = self.lock_in(of, inside, depth + 1)?;
        // What a base or a named structure has is its own.
        let is_own = !path.is_empty() && !path.starts_with('[') && !inner.is_empty();
        if is_own || die.tag() == dw::DW_TAG_inheritance {
            return Some((inner, path));
        }
        let dot =
            if path.is_empty() || path.starts_with('[') || name.is_empty() { "" } else { "." };
        Some((owner.to_owned(), format!("{name}{dot}{path}")))
    }
}
