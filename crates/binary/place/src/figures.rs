//! The figures of the paper for any group: how hot blocks lie on the cache, and the functions with
//! their hot and cold parts (A. Tamches and B. Miller, Dynamic Kernel I-Cache Optimization,
//! Figures 4 to 6).

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use crate::code::{Code, Procedure};
use crate::group::Hot;
use crate::model::{Addresses, Geometry};
use crate::order::{self, Layout};

/// How hot blocks lie on the cache.
#[derive(Clone, Debug, Serialize)]
pub struct CacheMap {
    /// For each set, how many lines of memory with hot code map to it.
    pub sets: Vec<u32>,
    /// Lines that one set holds: more than that conflict.
    pub ways: usize,
    /// Lines of memory with hot code.
    pub lines: u64,
    /// The same as a share of the cache.
    pub share: f64,
}

impl CacheMap {
    /// The map of the hot blocks of `code` at `addresses`.
    pub fn new(code: &Code, hot: Hot, addresses: &Addresses, geometry: Geometry) -> CacheMap {
        let mut lines = BTreeSet::new();
        for (p, procedure) in code.procedures.iter().enumerate() {
            for (b, _) in procedure.blocks.iter().enumerate().filter(|(_, b)| hot.is(b.count)) {
                let place = addresses.of(p, b);
                let end = place.at + u64::from(place.size.max(1));
                lines.extend(place.at / geometry.line..=(end - 1) / geometry.line);
            }
        }
        let mut sets = vec![0; geometry.sets() as usize];
        for line in &lines {
            sets[(line % geometry.sets()) as usize] += 1;
        }
        let all = geometry.size / geometry.line;
        CacheMap {
            sets,
            ways: geometry.ways,
            lines: lines.len() as u64,
            share: lines.len() as f64 / all.max(1) as f64,
        }
    }

    /// Sets with more lines than they hold.
    pub fn crowded(&self) -> usize {
        self.sets.iter().filter(|n| **n as usize > self.ways).count()
    }
}

impl fmt::Display for CacheMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in self.sets.chunks(16) {
            for set in row {
                write!(f, "{set:4}{}", if *set as usize > self.ways { '*' } else { ' ' })?;
            }
            writeln!(f)?;
        }
        let (lines, share) = (self.lines, self.share * 100.0);
        let crowded = self.crowded();
        writeln!(
            f,
            "{lines} lines of hot code ({share:.1} % of the cache); {crowded} sets (*) hold less than that"
        )
    }
}

/// A function of a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Its share of the instructions that the group's functions executed.
    pub executed: f64,
    /// Bytes of its jump tables.
    pub table_bytes: u64,
    /// Bytes of its hot blocks, as laid out.
    pub hot_bytes: u64,
    /// Chains that cover them: one is best.
    pub chains: usize,
    /// Bytes of the others.
    pub cold_bytes: u64,
}

/// The functions of a group, in the order of their hot parts.
pub fn group_table(code: &Code, layout: &Layout, addresses: &Addresses) -> Vec<Row> {
    let mut rows: Vec<Option<Row>> = vec![None; code.procedures.len()];
    let mut order = Vec::new();
    let executed = |procedure: &Procedure| -> u128 {
        procedure.blocks.iter().map(|b| u128::from(b.count) * u128::from(b.insns)).sum()
    };
    let all = code.procedures.iter().map(executed).sum::<u128>().max(1);
    for piece in &layout.pieces {
        let procedure = &code.procedures[piece.procedure];
        let row = rows[piece.procedure].get_or_insert_with(|| {
            order.push(piece.procedure);
            Row {
                name: procedure.name.clone(),
                executed: executed(procedure) as f64 / all as f64,
                table_bytes: procedure.table_bytes,
                hot_bytes: 0,
                chains: 0,
                cold_bytes: 0,
            }
        });
        let size = |b: &usize| {
            let place = addresses.of(piece.procedure, *b);
            u64::from(place.size + place.jump)
        };
        let bytes: u64 = piece.blocks.iter().map(size).sum();
        if piece.hot {
            row.hot_bytes += bytes;
            row.chains += order::chain_count(procedure, &piece.blocks);
        } else {
            row.cold_bytes += bytes;
        }
    }
    order.into_iter().filter_map(|p| rows[p].take()).collect()
}
