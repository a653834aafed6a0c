//! Which instructions of a function lead to a copy of a jump table, and to which.

use std::cmp::Reverse;

use fettle_image::LinkAddr;
use fettle_isa::Insn;
use fettle_lift::function::Function;

/// The copies of a function's jump tables. Tables that lie in one place have one copy: every `goto *`
/// of an interpreter goes through the same table, and a data cache has no room for hundreds.
#[derive(Debug, Default)]
pub struct Copies {
    /// Instructions that hold a table's address or put it in a register, with the table that is
    /// copied; sorted.
    named: Vec<(LinkAddr, u32)>,
    /// Where tables lie, with the table that is copied; sorted.
    places: Vec<(LinkAddr, u32)>,
    /// Memory that is used again.
    order: Vec<u32>,
}

impl Copies {
    /// Finds the copies that `function` needs, instead of those of another.
    pub fn find(&mut self, function: &Function) {
        self.named.clear();
        self.places.clear();
        self.order.clear();
        let table = |t: u32| &function.tables[t as usize];
        self.order.extend((0..function.tables.len() as u32).filter(|t| table(*t).movable));
        // Of those in one place the longest is copied.
        self.order
            .sort_unstable_by_key(|t| (table(*t).start, Reverse(table(*t).entries.len()), *t));
        let in_one_place = |a: &u32, b: &u32| table(*a).start == table(*b).start;
        for tables in self.order.chunk_by(in_one_place) {
            self.places.push((table(tables[0]).start, tables[0]));
            for t in tables {
                let alike = |other: &&u32| table(**other).kind == table(*t).kind;
                let copied = tables.iter().find(alike).unwrap_or(t);
                self.named.push((table(*t).named_at, *copied));
            }
        }
        self.named.sort_unstable();
    }

    /// The table whose copy takes the place of the one that `insn` names.
    pub fn named_by(&self, insn: &Insn) -> Option<u32> {
        let find = |list: &[(LinkAddr, u32)], at: u64| {
            let i = list.partition_point(|(known, _)| known.0 < at);
            list.get(i).filter(|(known, _)| known.0 == at).map(|(_, table)| *table)
        };
        find(&self.named, insn.ip()).or_else(|| match insn.is_ip_rel_lea() {
            true => find(&self.places, insn.ip_rel_memory_address()),
            false => None,
        })
    }

    /// Whether some instruction from `start` up to `end` holds a table's address.
    pub fn any_named(&self, start: u64, end: u64) -> bool {
        let i = self.named.partition_point(|(at, _)| at.0 < start);
        self.named.get(i).is_some_and(|(at, _)| at.0 < end)
    }
}
