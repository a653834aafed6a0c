//! Installing rewritten text in a process.
//!
//! First the process is given memory, by a system call that one of its threads makes; it is filled
//! while the process runs, since nothing leads to it yet. Then all threads are stopped, unwinders
//! are notified of the rewritten text, and jumps to it are written, in several pauses if there are
//! many. Each step is in the journal before it is taken.
//!
//! How unwinders find rewritten text: those that walk the loader's list (`dl_iterate_phdr`) see
//! program headers with one more segment and a merged `.eh_frame_hdr`, since the loader's record of
//! the module is changed to point at a copy of the headers. Since glibc 2.35 they call
//! `_dl_find_object` instead, which is patched to search a table of ours first.

use fettle_types::PAGE;
use std::time::Duration;

use fettle_image::LinkAddr;
use fettle_isa::jump;
use fettle_lift::TableKind;
use fettle_live::{
    Entry, Journal, Known, Left, LiveAddr, LiveError, MappedFiles, Mapping, Names, Patch, Process,
    Prot, Purpose, Ranges, Record, Region, ReturnTable,
};
use fettle_record::room::{AddressSpace, find_lasting_room_beside};
use fettle_rewrite::find_object;

use crate::counters::{Counters, Counts};
use crate::error::TuneError;
use crate::rewritten::{LeftUnmodified, Reason, Rewritten};
use crate::switching::PatchSet;
use crate::target::{Loaded, PHDR_SIZE, Target, word};
use crate::{patch_sites, symbols};

const CODE: Prot = Prot { read: true, write: false, exec: true };
const TABLE: Prot = Prot { read: true, write: false, exec: false };

/// What was installed.
#[derive(Clone, Debug, Default)]
pub struct Installed {
    /// Jumps that lead to rewritten text: one for each function, and some for jump tables.
    pub jumps: usize,
    /// Calls in original text that were redirected to it.
    pub calls: usize,
    /// GOT/PLT slots that were redirected to it.
    pub slots: usize,
    /// OSR entries: blocks of functions that threads were in, and entries of their jump tables.
    pub osr_entries: usize,
    /// Patches that depend on the process: GOT/PLT slots, and OSR entries.
    pub others: PatchSet,
    /// Functions that are left unmodified.
    pub left: Vec<LeftUnmodified>,
    /// How long threads were paused, each time.
    pub stops: Vec<Duration>,
    /// Most threads that were paused at once.
    pub threads: usize,
    /// Bytes that were mapped in the process.
    pub bytes: u64,
    /// Modules with rewritten text that the process has not, or not where others have them.
    pub missing: usize,
}

/// How often another place is looked for if the process maps something there first.
const TRIES: u32 = 5;

/// Code that runs before `_dl_find_object`, and its table; and names that debuggers find by
/// themselves in C libraries that have that function.
struct Helper {
    code: (Region, Vec<u8>),
    table: (Region, Vec<u8>),
    jump: Patch,
    names: Option<(Names, Vec<u8>)>,
}

impl Helper {
    /// All memory, and its content.
    fn parts(&self) -> impl Iterator<Item = (Region, &[u8])> {
        let names = self.names.iter().map(|(names, bytes)| (Names::region(names.at), &bytes[..]));
        [&self.code, &self.table]
            .map(|(region, bytes)| (*region, &bytes[..]))
            .into_iter()
            .chain(names)
    }
}

/// Installs rewritten text for several modules of a process.
///
/// # Errors
///
/// When the process cannot be changed. What has been done stays in the journal: undo it.
pub fn install(
    target: &Target<'_>,
    journal: &mut Journal,
    all: &[Rewritten],
) -> Result<Installed, TuneError> {
    Installing::begin(target, journal, all, (&[], 0))?.finish(journal)
}

/// Installs rewritten text with counters, to which all threads get a gs base.
///
/// # Errors
///
/// As those of [`install`].
pub(crate) fn install_counting(
    target: &Target<'_>,
    journal: &mut Journal,
    all: &[Rewritten],
    counters: Counters,
) -> Result<(Installed, Counts), TuneError> {
    let process = target.process;
    let ((), stop) = process.while_paused(|paused| paused.without_gs())?;
    let (counts, mut stops) = counters.map(process, journal)?;
    let mut installing = Installing::begin(target, journal, all, (&[], 0))?;
    let (bases, region) = (counters.bases(), counters.region());
    journal.add([Entry::GsBases(region.at, region.at.offset(region.len))])?;
    let (threads, spread) = process.give_gs_bases(&bases)?;
    stops.extend([stop, spread]);
    installing.installed.bytes += region.len;
    installing.installed.threads = threads;
    installing.installed.stops.append(&mut stops);
    Ok((installing.finish(journal)?, counts))
}

/// Rewritten text that a process has, and that nothing leads to yet.
pub(crate) struct Installing<'a> {
    target: &'a Target<'a>,
    all: Vec<&'a Rewritten>,
    helper: Option<Helper>,
    installed: Installed,
}

impl<'a> Installing<'a> {
    /// Maps rewritten text, and the memory that it needs `others`, in the process. The table for
    /// unwinders has room for `more` rewritten text.
    pub(crate) fn begin(
        target: &'a Target<'a>,
        journal: &mut Journal,
        all: impl IntoIterator<Item = &'a Rewritten>,
        (others, more): (&[Region], usize),
    ) -> Result<Installing<'a>, TuneError> {
        let process = target.process;
        let mut installed = Installed::default();
        let (all, missing): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|code: &&Rewritten| has(target, code));
        installed.missing = missing.len();
        if all.is_empty() {
            let why = "it has none of the modules that are to have rewritten text".to_owned();
            return Err(TuneError::Unfit { pid: process.pid(), why });
        }
        let mut contents: Vec<(Region, &[u8])> = Vec::new();
        for code in &all {
            contents.push((code.text, &code.linked.text));
            contents.push((code.constants, &code.linked.constants));
        }
        let mut tries = 1;
        let helper = loop {
            let helper = helper(target, journal, &all, (others, more))?;
            let parts = helper.iter().flat_map(Helper::parts).map(|(region, _)| region);
            let own = contents.iter().map(|(region, _)| *region);
            let regions: Vec<Region> = own.chain(parts).chain(others.iter().copied()).collect();
            match process.map(journal, &regions) {
                Ok(stops) => {
                    installed.bytes = regions.iter().map(|region| region.len).sum();
                    installed.stops.extend(stops);
                    break helper;
                }
                // The process maps memory itself; only the helper can be placed elsewhere.
                Err(error) if error.is_taken() && tries < TRIES => tries += 1,
                Err(error) => return Err(error.into()),
            }
        };
        contents.extend(helper.iter().flat_map(Helper::parts));
        for (region, bytes) in contents {
            process.fill(region.at, bytes)?;
        }
        Ok(Installing { target, all, helper, installed })
    }

    /// The table for unwinders, and the number of its entries, if there is one.
    pub(crate) fn table(&self) -> Option<(LiveAddr, usize)> {
        Some((self.helper.as_ref()?.table.0.at, self.all.len()))
    }

    /// Writes the patches that lead to it.
    pub(crate) fn finish(self, journal: &mut Journal) -> Result<Installed, TuneError> {
        let Installing { target, all, helper, mut installed } = self;
        let process = target.process;
        let mut slots = patch_sites::slots(process, &target.loaded, &all);
        let mut patches = patches(&helper, &all, &slots);
        let places = MappedFiles::look(process, &patches);
        // Modules that were closed by now are found here, those closed later by their mapping.
        let (all, closed): (Vec<_>, Vec<_>) = all.into_iter().partition(|code| has(target, code));
        installed.missing += closed.len();
        if !closed.is_empty() {
            slots = patch_sites::slots(process, &target.loaded, &all);
            patches = self::patches(&helper, &all, &slots);
        }
        installed.others.into = slots;
        let mut entries = surroundings(target, &all, &places);
        let names =
            helper.as_ref().and_then(|helper| helper.names.as_ref()).map(|(names, _)| *names);
        entries.extend(names.map(Entry::Names));
        let deopt_jumps = all.iter().flat_map(|code| code.deopt_jumps.iter());
        entries.extend(patches.iter().chain(deopt_jumps).cloned().map(Entry::Write));
        put_beside(journal, &all)?;
        journal.add(entries)?;
        write(target, names, (&patches, &places), &mut installed, &all)?;
        for code in &all {
            installed.left.extend(code.left.iter().cloned());
            let jumps = code.jumps.len();
            journal.add([Entry::Note(format!("{jumps} jumps in {}", code.path.display()))])?;
        }
        Ok(installed)
    }
}

/// All patches, those for unwinders first.
fn patches(helper: &Option<Helper>, all: &[&Rewritten], slots: &[Patch]) -> Vec<Patch> {
    let helper = helper.iter().map(|helper| &helper.jump);
    let headers = all.iter().map(|code| &code.headers);
    let jumps = all.iter().flat_map(|code| &code.jumps);
    let calls = all.iter().flat_map(|code| &code.calls);
    helper.chain(headers).chain(jumps).chain(calls).chain(slots).cloned().collect()
}

/// Writes to the log that a library which the process has just opened is about to be patched; `all`
/// is the rewritten text of the process then.
pub(crate) fn write_down_opened(
    process: &Process,
    journal: &mut Journal,
    (code, record): (&Rewritten, Record),
    all: &[&Rewritten],
) -> Result<(), LiveError> {
    let patches: Vec<Patch> = [&code.headers].into_iter().chain(&code.jumps).cloned().collect();
    let mut entries: Vec<Entry> = MappedFiles::look(process, &patches).entries().collect();
    let path = code.path.to_string_lossy().into_owned();
    entries.extend([Entry::Loaded(path), Entry::Record(record)]);
    entries.extend(patches.iter().chain(&code.deopt_jumps).cloned().map(Entry::Write));
    // Other rewritten text is in the files already, and may be much: the thread that opens a
    // library waits meanwhile.
    let opened: Vec<&Rewritten> = all.iter().copied().filter(|code| code.opened).collect();
    journal.put_beside("opened", &returns(&opened).to_bytes())?;
    journal.add(entries)
}

/// Writes the files beside the log that describe rewritten text.
fn put_beside(journal: &Journal, all: &[&Rewritten]) -> Result<(), LiveError> {
    let names = symbols::symbols(all);
    journal.put_beside("symbols", &symbols::object(all, &names))?;
    journal.put_beside("map", symbols::perf_map(&names).as_bytes())?;
    journal.put_beside("returns", &returns(all).to_bytes())?;
    Ok(())
}

/// Return addresses in rewritten text, copied jump tables, and landing pads, each with its
/// counterpart in the original. Return addresses within the agent are not among them: it makes no
/// calls out of itself, so a thread is in it only if its program counter is, or was when a signal
/// came.
fn returns(all: &[&Rewritten]) -> ReturnTable {
    let placed = |code: &&Rewritten,
                  of: fn(&fettle_rewrite::PlannedFunction) -> &[(LinkAddr, u32)]| {
        let (text, bias) = (code.text.at, code.bias);
        let places = code.plan.functions.iter().flat_map(of);
        let live = move |(old, new): &(LinkAddr, u32)| (text.offset(u64::from(*new)), *old + bias);
        places.map(live).collect::<Vec<_>>()
    };
    let tables = |code: &&Rewritten, whole: bool| {
        let live = |at: LinkAddr| at + code.bias;
        let copies = code.linked.tables.iter().zip(&code.plan.tables);
        let copies = copies.filter(|(_, table)| (table.kind == TableKind::Absolute) == whole);
        copies.map(|(copy, table)| (live(*copy), live(table.original))).collect::<Vec<_>>()
    };
    let calls = |code| placed(code, |function| &function.osr_map.returns);
    let known = all.iter().flat_map(|code| [calls(code), tables(code, false)]).flatten();
    let whole = all.iter().flat_map(|code| tables(code, true));
    let pads = all.iter().flat_map(|code| placed(code, |function| &function.osr_map.pads));
    let headers = all.iter().flat_map(|code| headers(code));
    ReturnTable::new(all.iter().map(|code| code.text), known, whole, pads, headers)
}

/// The copies of program headers, each with the original.
fn headers(code: &Rewritten) -> Vec<(LiveAddr, LiveAddr)> {
    // Where they are, the entry point, how many there are.
    let known = &code.headers.before;
    let (at, count) = (word(known, 0), u64::from(u16::from_le_bytes([known[16], known[17]])));
    let copies = code.linked.header_copies().map(|at| at + code.bias);
    copies.zip((0..count).map(|i| LiveAddr(at + i * PHDR_SIZE as u64))).collect()
}

/// Whether a process still has the module of some rewritten text, as its loader left it: another
/// library may have been opened in its place, with much the same bytes.
pub fn has(target: &Target<'_>, code: &Rewritten) -> bool {
    let process = target.process;
    let listed = |loaded: &Loaded| {
        (loaded.link_map, loaded.bias) == (code.link_map, code.bias)
            && process.file_at(LiveAddr(loaded.dynamic)) == Some(loaded.id)
    };
    let headers = process.read(code.headers.at, code.headers.before.len());
    target.loaded.iter().any(listed) && headers.is_ok_and(|now| now == code.headers.before)
}

/// Entries for the journal on the mappings that patches are in.
fn surroundings(target: &Target<'_>, all: &[&Rewritten], places: &MappedFiles) -> Vec<Entry> {
    let mut entries: Vec<Entry> = places.entries().collect();
    let path = |loaded: &Loaded| Entry::Loaded(loaded.path.to_string_lossy().into_owned());
    entries.extend(target.loaded.iter().map(path));
    entries.extend(target.iterates.map(|(start, end)| Entry::Guard(start, end)));
    entries.extend(all.iter().filter_map(|code| {
        let module = target.loaded.iter().find(|loaded| loaded.link_map == code.link_map)?;
        let dynamic = LiveAddr(module.dynamic);
        Some(Entry::Record(Record { list: target.list, at: code.link_map, dynamic }))
    }));
    entries
}

/// Writes patches; those that cannot be written are left.
fn write(
    target: &Target<'_>,
    names: Option<Names>,
    (patches, places): (&[Patch], &MappedFiles),
    installed: &mut Installed,
    all: &[&Rewritten],
) -> Result<(), TuneError> {
    let iterates = target.iterates.iter();
    let guards = Ranges::new(iterates.map(|(start, end)| (start.0, end.0)).collect());
    let known = Known { guards: &guards, names };
    let patched = target.process.patch_known(known, patches, places)?;
    installed.stops.extend(&patched.stops);
    installed.threads = installed.threads.max(patched.threads);
    let count = |purpose: Purpose| {
        let left = patched.left.iter().filter(|(i, _)| patches[*i].purpose == purpose).count();
        patches.iter().filter(|patch| patch.purpose == purpose).count() - left
    };
    installed.jumps += count(Purpose::Jump);
    installed.calls += count(Purpose::Call);
    installed.slots += count(Purpose::Slot);
    for (index, why) in patched.left {
        let reason = if why == Left::Inside { Reason::Inside } else { Reason::Differs };
        installed.left.extend(all.iter().find_map(|code| {
            code.jumps.iter().find(|jump| jump.at == patches[index].at)?;
            let entry = patches[index].at - code.bias;
            let function = code.plan.functions.partition_point(|f| f.entry <= entry);
            let function = code.plan.functions.get(function.checked_sub(1)?)?;
            Some(LeftUnmodified { entry, name: function.name.clone(), reason })
        }));
    }
    Ok(())
}

/// The code before `_dl_find_object`, for all rewritten text and `more`; `None` if there is no such
/// function. Memory that is mapped `others` has its place already.
fn helper(
    target: &Target<'_>,
    journal: &Journal,
    all: &[&Rewritten],
    (others, more): (&[Region], usize),
) -> Result<Option<Helper>, TuneError> {
    let Some(find_object) = &target.find_object else { return Ok(None) };
    let process = target.process;
    let unfit = |why: &str| TuneError::Unfit { pid: process.pid(), why: why.to_owned() };
    let mut maps = target.maps()?;
    let codes = all.iter().flat_map(|code| [code.text, code.constants]);
    maps.extend(codes.chain(others.iter().copied()).map(taken));
    let mut known = vec![(all.len() as u64).to_le_bytes().to_vec(), vec![0; 24]];
    known.extend(all.iter().map(|code| {
        let end = code.constants.at.0 + code.constants.len;
        let link_map = code.link_map.0;
        let eh_frame_hdr = code.eh_frame_hdr.0;
        find_object::Region { start: code.text.at.0, end, link_map, eh_frame_hdr }.to_bytes()
    }));
    let known = known.concat();
    let table_len =
        (known.len() as u64 + more as u64 * find_object::Region::SIZE).next_multiple_of(PAGE);
    let no_room = || unfit("there is no room near its C library");
    let at = find_lasting_room_beside(
        &find_object.image,
        find_object.image_bias,
        PAGE + table_len + PAGE,
        AddressSpace::of(process.pid(), &maps),
    )
    .ok_or_else(no_room)?
        + find_object.image_bias;
    let at = at.0;

    let original = process.read_some(find_object.at, 32).map_err(|_| no_room())?;
    let skip = find_object::kept_bytes(&original);
    let from = find_object.at.0 + skip as u64;
    let strange = || unfit("its `_dl_find_object` cannot be led to another place");
    let (code, _) =
        find_object::code(at, at + PAGE, from, &original[skip..], 5).ok_or_else(strange)?;
    let after = jump::near(from, at).ok_or_else(strange)?.to_vec();
    if from / PAGE != (from + 4) / PAGE {
        return Err(strange());
    }
    let jump = Patch {
        at: LiveAddr(from),
        before: original[skip..skip + 5].to_vec(),
        after,
        purpose: Purpose::Unwind,
    };
    let region = |at, len, prot| Region { at: LiveAddr(at), len, prot, shared: false };
    let names_at = LiveAddr(at + PAGE + table_len);
    let names = Names::new(process, (target.list, names_at), &journal.path_beside("symbols"));
    Ok(Some(Helper {
        names,
        code: (region(at, PAGE, CODE), code),
        table: (region(at + PAGE, table_len, TABLE), known),
        jump,
    }))
}

/// A region as if it were mapped already.
pub fn taken(region: Region) -> Mapping {
    Mapping {
        start: region.at,
        end: region.at.offset(region.len),
        readable: region.prot.read,
        writable: region.prot.write,
        executable: region.prot.exec,
        shared: false,
        offset: 0,
        device: (0, 0),
        inode: 0,
        path: None,
        deleted: false,
        name: None,
    }
}
