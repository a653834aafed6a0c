//! The rewritten text of one module of a process, with its addresses, and the patches that lead to it.

use fettle_types::LoadBias;
pub(crate) use fettle_types::PAGE;
use std::path::PathBuf;
use std::sync::Arc;

use fettle_image::LinkAddr;
use fettle_isa::jump;
use fettle_lift::SkipReason;
use fettle_live::{LiveAddr, Patch, Purpose, Region};
use fettle_record::libraries::Opened;
use fettle_rewrite::{Linked, Plan};

/// Why a function, or one of the patch sites that lead to its rewritten text, is left unmodified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// It has no rewritten text.
    Skipped(SkipReason),
    /// A thread may return to the middle of the bytes that a jump would cover.
    ComesBack,
    /// The jump would cross a page boundary.
    TwoPages,
    /// Its code in memory is not what its file says.
    Differs,
    /// A thread was in the middle of the bytes.
    Inside,
}

impl Reason {
    /// One short phrase for tables.
    pub const fn describe(self) -> &'static str {
        match self {
            Reason::Skipped(reason) => reason.describe(),
            Reason::ComesBack => "a loop or call within its first bytes",
            Reason::TwoPages => "its first bytes lie on two pages",
            Reason::Differs => "its code in memory is not what its file says",
            Reason::Inside => "a thread stood within its first bytes",
        }
    }
}

/// A function that is left unmodified.
#[derive(Clone, Debug)]
pub struct LeftUnmodified {
    /// Where it starts.
    pub entry: LinkAddr,
    /// Its name.
    pub name: Option<String>,
    /// Why.
    pub reason: Reason,
}

/// Rewritten text of a module, with addresses, and the patches that lead to it.
#[derive(Clone, Debug)]
pub struct Rewritten {
    /// The plan that it was made by.
    pub plan: Arc<Plan>,
    /// Its bytes.
    pub linked: Linked,
    /// Where its text goes.
    pub text: Region,
    /// Where its constants go.
    pub constants: Region,
    /// The jumps that lead to it.
    pub jumps: Vec<Patch>,
    /// Deopt jumps to the originals, at the starts of rewritten functions: for threads that stay in
    /// rewritten text when it is reverted, and for comparisons.
    pub deopt_jumps: Vec<Patch>,
    /// Calls in original text, redirected to it.
    pub calls: Vec<Patch>,
    /// The patch of the loader's record of the module.
    pub headers: Patch,
    /// What is left unmodified.
    pub left: Vec<LeftUnmodified>,
    /// The loader's record of the module.
    pub link_map: LiveAddr,
    /// The merged table of unwind entries.
    pub eh_frame_hdr: LiveAddr,
    /// For each table of the plan, whether it is one of absolute addresses that only the jumps of
    /// its function read: then the original's entries may be patched to lead to rewritten text.
    pub own_tables: Vec<bool>,
    /// What the loader has added to link addresses.
    pub bias: LoadBias,
    /// The module.
    pub path: PathBuf,
    /// It was opened after the process had been changed.
    pub opened: bool,
}

impl Rewritten {
    /// Rewritten text of a library which its process has just opened: none of it has run. `jumps`
    /// lead to it.
    pub(crate) fn of_opened(library: Opened<'_>, jumps: Vec<Patch>) -> Rewritten {
        let Opened { path, link_map, bias, plan, linked, regions, headers, .. } = library;
        let [text, constants] = regions;
        Rewritten {
            plan: plan.clone(),
            linked: linked.clone(),
            text,
            constants,
            jumps,
            deopt_jumps: deopt_jumps(plan, linked, bias),
            calls: Vec::new(),
            headers: headers.clone(),
            left: Vec::new(),
            link_map,
            eh_frame_hdr: linked.eh_frame_hdr + bias,
            own_tables: Vec::new(),
            bias,
            path: path.to_owned(),
            opened: true,
        }
    }

    /// A deopt jump from a place in rewritten text to the original.
    pub(crate) fn deopt_jump(&self, deopt_point: (LinkAddr, u32)) -> Option<Patch> {
        deopt_jump(&self.linked, self.bias, deopt_point)
    }

    /// Deopt jumps out of functions that threads are in, to the originals: at the start of every
    /// block. `inside` are addresses in rewritten text.
    pub fn escapes(&self, inside: &[LiveAddr]) -> Vec<Patch> {
        let start = self.text.at.0;
        let offsets = inside.iter().filter(|at| at.0 >= start && at.0 < start + self.text.len);
        let mut functions: Vec<usize> =
            offsets.filter_map(|at| self.plan.function_at((at.0 - start) as u32)).collect();
        functions.sort_unstable();
        functions.dedup();
        let deopt_points =
            functions.into_iter().flat_map(|f| &self.plan.functions[f].osr_map.deopt_points);
        deopt_points.filter_map(|deopt_point| self.deopt_jump(*deopt_point)).collect()
    }
}

/// Deopt jumps to the originals at the starts of rewritten functions.
pub(crate) fn deopt_jumps(plan: &Plan, linked: &Linked, bias: LoadBias) -> Vec<Patch> {
    let entries = plan.functions.iter().flat_map(|planned| {
        planned
            .osr_map
            .deopt_points
            .iter()
            .filter(|deopt_point| deopt_point.1 == planned.text_offset)
    });
    entries.filter_map(|deopt_point| deopt_jump(linked, bias, *deopt_point)).collect()
}

/// A deopt jump from a place in rewritten text to the original; `None` if it is out of reach, or
/// would cross a page boundary.
pub(crate) fn deopt_jump(
    linked: &Linked,
    bias: LoadBias,
    (to, offset): (LinkAddr, u32),
) -> Option<Patch> {
    const SIZE: usize = fettle_code::ENTRY_PATCH_SIZE as usize;
    let live = linked.text_at + u64::from(offset) + bias;
    if live.0 / PAGE != (live.0 + SIZE as u64 - 1) / PAGE {
        return None;
    }
    let after = jump::near(live.0, (to + bias).0)?.to_vec();
    let before = linked.text.get(offset as usize..offset as usize + SIZE)?.to_vec();
    Some(Patch { at: live, before, after, purpose: Purpose::DeoptJump })
}
