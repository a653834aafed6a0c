//! Counting functions of the kernel while it runs.

use fettle_image::LinkAddr;
use fettle_kernel_emit as emit;
use fettle_kernel_emit::Meaning;
use fettle_kernel_lift::{KernelFunction, Lifter, Skipped};
use fettle_kernel_live::journal::Purpose;
use fettle_kernel_live::{Installed, Placed, Status, install};
use fettle_lift::BlockId;
use fettle_lift::edges::Place;
use fettle_place::lifted::Counts;
use rustc_hash::FxHashMap;

use crate::emission::emit_checked;
use crate::select::Selected;
use crate::{Error, Result};

/// Which calls are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// All calls: functions without room for a jump at their entry are left out.
    All,
    /// All calls, and of functions without room those from the others.
    Group,
    /// Those of this function, and what it leads to where it leads there.
    Root(&'a str),
}

/// How often a function was called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// Its symbol.
    pub name: String,
    /// Where the original begins.
    pub entry: u64,
    /// Calls since counting began.
    pub calls: u64,
}

/// How often the blocks and edges of a function were executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executions {
    /// Its symbol.
    pub name: String,
    /// Where the original begins.
    pub entry: u64,
    /// Its blocks by address.
    pub blocks: Vec<BlockExecutions>,
    /// Its edges, by the addresses of the blocks that they lead from and to.
    pub edges: Vec<EdgeExecutions>,
    /// The counts contradict each other: a thread was in it when they were read.
    pub inconsistent: bool,
}

impl Executions {
    /// Its calls: how often its first block was executed, but for those times that control came back to it.
    pub fn calls(&self) -> Count {
        let first = self.blocks.iter().find(|block| block.at == self.entry);
        let back: u64 =
            self.edges.iter().filter(|edge| edge.to == self.entry).map(|edge| edge.count).sum();
        let calls = first.map_or(0, |block| block.count.saturating_sub(back));
        Count { name: self.name.clone(), entry: self.entry, calls }
    }
}

/// How often a block was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockExecutions {
    /// Where the original begins.
    pub at: u64,
    /// Where its rewritten text begins; of a function's first block, behind the fentry nop.
    pub rewritten: u64,
    /// How often.
    pub count: u64,
}

/// How often an edge was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeExecutions {
    /// Where the block begins that it leads from.
    pub from: u64,
    /// Where the block begins that it leads to.
    pub to: u64,
    /// How often.
    pub count: u64,
    /// Whether that was measured, or follows from what was.
    pub exact: bool,
}

/// Calls of a function, and the time in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times {
    /// Its symbol.
    pub name: String,
    /// Where the original begins.
    pub entry: u64,
    /// Calls that began while time was taken.
    pub calls: u64,
    /// Those of them that had not ended when that was over.
    pub open: u64,
    /// Those of them that never end: their threads did.
    pub abandoned: u64,
    /// Their times; not known where calls were abandoned.
    pub spent: Option<Spent>,
}

/// Time from calls' begins to their ends, of calls that had not ended until then, with all that was called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// By the clock: with all waiting and all interrupts, ns.
    pub wall_ns: u64,
    /// Virtual time, while their threads ran: without waiting and without interrupts, ns.
    pub virtual_ns: u64,
}

/// Times of functions, and what belongs to none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllTimes {
    /// By function, the longest first.
    pub functions: Vec<Times>,
    /// Time that all processors spent in interrupts, ns.
    pub interrupts_ns: u64,
    /// How often it was not known how long a thread had run: virtual times are off by that.
    pub lost: u64,
}

impl Times {
    /// Its calls that began.
    pub fn begun(&self) -> Count {
        Count { name: self.name.clone(), entry: self.entry, calls: self.calls }
    }
}

/// Counters in the kernel. They go away with this value, however it ends.
#[derive(Debug)]
pub struct Counting {
    installed: Installed,
    placed: Placed,
    begin: Status,
    meanings: Vec<emit::Counter>,
    blocks: Vec<emit::BlockPlace>,
    names: FxHashMap<u64, String>,
    /// Functions that are left unmodified.
    pub skipped: Vec<Skipped>,
}

impl Counting {
    /// Installs copies of functions that count.
    ///
    /// # Errors
    ///
    /// When none can be counted, or the kernel does not take them.
    pub fn start(
        lifter: &Lifter<'_>,
        selected: Selected,
        what: emit::Counting,
        scope: Scope<'_>,
    ) -> Result<Counting> {
        let Selected { functions, mut skipped } = selected;
        // Only calls within the group lead to what has no room for a jump at its entry.
        let inside = |f: &KernelFunction| match scope {
            Scope::All => false,
            Scope::Group => true,
            Scope::Root(root) => root != f.name,
        };
        let (functions, crowded): (Vec<KernelFunction>, Vec<_>) =
            functions.into_iter().partition(|f| f.room.is_some() || inside(f));
        skipped.extend(crowded.into_iter().map(|function| Skipped {
            entry: function.entry(),
            at: function.behind_fentry(),
            name: function.name,
            reason: fettle_kernel_lift::Reason::CrowdedEntry,
        }));
        let mut made = emit_checked(
            lifter,
            &functions,
            &emit::Order::Identity,
            what,
            &emit::Promotions::default(),
        );
        skipped.extend(made.skipped);
        if made.plan.functions.is_empty() {
            return Err(Error::AllSkipped {
                count: skipped.len(),
                name: skipped.first().map_or("?", |first| &first.name).to_string(),
                reason: skipped.first().map_or("?", |first| first.reason.describe()),
            });
        }
        if let Scope::Root(root) = scope {
            made.plan.functions.iter_mut().filter(|f| f.name != root).for_each(|f| f.patch = None);
        }
        // What counts need not be fast, and hides nothing from a tracer that is attached to an original.
        made.plan.call_by_originals();
        let (installed, placed) = install(&made.plan, lifter.image(), Purpose::Count)?;
        let begin = installed.status()?;
        let names = made.plan.functions.iter().map(|f| (f.original, f.name.clone())).collect();
        let (meanings, blocks) = (made.counters, made.blocks);
        Ok(Counting { installed, placed, begin, meanings, blocks, names, skipped })
    }

    /// What the module in the kernel reports.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn status(&self) -> Result<Status> {
        Ok(self.installed.status()?)
    }

    /// Calls of all functions, the most first.
    ///
    /// # Errors
    ///
    /// When counters cannot be read.
    pub fn calls(&self) -> Result<Vec<Count>> {
        let values = self.installed.read_counters(&self.placed.counters)?;
        let mut counts: Vec<Count> = self
            .meanings
            .iter()
            .zip(values)
            .filter(|(counter, _)| {
                matches!(counter.meaning, Meaning::Executions(Place::Entry) | Meaning::Begun)
            })
            .map(|(counter, calls)| Count {
                name: self.names.get(&counter.function).cloned().unwrap_or_default(),
                entry: counter.function,
                calls,
            })
            .collect();
        counts.sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.name.cmp(&b.name)));
        Ok(counts)
    }

    /// Executions of all blocks, by function.
    ///
    /// # Errors
    ///
    /// When counters cannot be read.
    pub fn blocks(&self, functions: &[KernelFunction]) -> Result<FxHashMap<LinkAddr, Counts>> {
        let values = self.installed.read_counters(&self.placed.counters)?;
        let by_entry: FxHashMap<u64, &KernelFunction> =
            functions.iter().map(|function| (function.entry(), function)).collect();
        let mut counts: FxHashMap<LinkAddr, Counts> = FxHashMap::default();
        for (counter, value) in self.meanings.iter().zip(values) {
            if let (Meaning::Executions(Place::Block(block)), Some(function)) =
                (counter.meaning, by_entry.get(&counter.function))
            {
                let start = function.code.blocks[block.index()].start;
                let of = counts.entry(LinkAddr(counter.function)).or_default();
                of.blocks.insert(start, value);
            }
        }
        Ok(counts)
    }

    /// Executions of all blocks and edges of `functions`, which are those that are counted: measured, or what
    /// follows from that.
    ///
    /// # Errors
    ///
    /// When counters cannot be read.
    pub fn executions(&self, functions: &[KernelFunction]) -> Result<Vec<Executions>> {
        let values = self.installed.read_counters(&self.placed.counters)?;
        let mut counted: FxHashMap<u64, Vec<(Place, u64)>> = FxHashMap::default();
        for (counter, value) in self.meanings.iter().zip(values) {
            let Some(place) = counter.meaning.place() else { continue };
            counted.entry(counter.function).or_default().push((place, value));
        }
        let mut places: FxHashMap<u64, Vec<&emit::BlockPlace>> = FxHashMap::default();
        for place in &self.blocks {
            places.entry(place.function).or_default().push(place);
        }
        let of = |function: &KernelFunction| {
            let counted = counted.get(&function.entry())?.iter().copied();
            let places = places.get(&function.entry())?;
            Some(self.executions_of(function, emit::counts::counts(function, counted), places))
        };
        Ok(functions.iter().filter_map(of).collect())
    }

    fn executions_of(
        &self,
        function: &KernelFunction,
        counts: emit::counts::FunctionCounts,
        places: &[&emit::BlockPlace],
    ) -> Executions {
        let start = |block: BlockId| function.code.blocks[block.index()].start.0;
        let fentry = function.behind_fentry() - function.entry();
        let blocks = places.iter().map(|place| BlockExecutions {
            at: start(place.block),
            rewritten: self.begin.text_begin
                + self.placed.parts[place.part as usize]
                + u64::from(place.offset)
                + if start(place.block) == function.entry() { fentry } else { 0 },
            count: counts.blocks[place.block.index()],
        });
        let edges = counts.edges.iter().filter_map(|counted| {
            let (from, to) = (start(counted.edge.from?), start(counted.edge.to?));
            Some(EdgeExecutions { from, to, count: counted.count, exact: counted.exact })
        });
        Executions {
            name: function.name.clone(),
            entry: function.entry(),
            blocks: blocks.collect(),
            edges: edges.collect(),
            inconsistent: counts.inconsistent,
        }
    }

    /// Times of all functions, the longest first. Takes the counters out, so that no call is in the middle of
    /// taking its time.
    ///
    /// # Errors
    ///
    /// When threads cannot leave counted functions now, or counters cannot be read.
    pub fn finish_times(mut self) -> Result<AllTimes> {
        self.installed.remove_jumps()?;
        let end = self.installed.undo(fettle_kernel_live::PATIENCE)?;
        let values = self.installed.read_counters(&self.placed.counters)?;
        let mut by: FxHashMap<u64, [u64; 5]> = FxHashMap::default();
        for (counter, value) in self.meanings.iter().zip(values) {
            let index = match counter.meaning {
                Meaning::Begun => 0,
                Meaning::Ended => 1,
                Meaning::Deoptimised => 2,
                Meaning::Ticks => 3,
                Meaning::VirtualTicks => 4,
                Meaning::Executions(_) => continue,
            };
            by.entry(counter.function).or_default()[index] = value;
        }
        let passed = end.ticks.wrapping_sub(self.begin.ticks);
        let ns_of_tick = (end.now_ns - self.begin.now_ns) as f64 / (passed as f64).max(1.0);
        let ns = |ticks: u64| (ticks as f64 * ns_of_tick) as u64;
        let of = |(entry, [calls, ended, open, wall, own]): (u64, [u64; 5])| {
            let abandoned = calls.saturating_sub(ended + open);
            let spent = Spent { wall_ns: ns(wall), virtual_ns: ns(own) };
            let name = self.names.get(&entry).cloned().unwrap_or_default();
            Times { name, entry, calls, open, abandoned, spent: (abandoned == 0).then_some(spent) }
        };
        let mut functions: Vec<Times> = by.into_iter().map(of).collect();
        let wall = |times: &Times| times.spent.unwrap_or_default().wall_ns;
        functions.sort_by(|a, b| wall(b).cmp(&wall(a)).then_with(|| a.name.cmp(&b.name)));
        let (interrupts_ns, lost) = (ns(end.interrupt_ticks), end.lost_threads);
        self.finish()?;
        Ok(AllTimes { functions, interrupts_ns, lost })
    }

    /// Takes the counters out and removes the module.
    ///
    /// # Errors
    ///
    /// When threads cannot leave counted functions now.
    pub fn finish(self) -> Result<()> {
        Ok(fettle_kernel_live::remove(self.installed)?)
    }
}
