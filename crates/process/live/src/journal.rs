//! The undo log: what was changed in a process, on disk before it is changed.
//!
//! One file per process, a line per entry, append-only. Any Fettle that reads it, perhaps long
//! after the one that wrote it was killed, can revert the process. An entry says what was intended;
//! the process shows whether it was done: its bytes are the original or the intended ones. A last
//! line without its end was never acted upon.
//!
//! The kernel's memory keeps the file if Fettle dies; if the machine does, there is no process any
//! more.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use fettle_types::Pid;

use crate::entry::{self, Entry, Region};
use crate::error::LiveError;
use crate::maps::LiveAddr;
use crate::process::{Process, hash};
use crate::world::{Era, World};

/// The log of one process, locked against use by other processes.
#[derive(Debug)]
pub struct Journal {
    pid: Pid,
    path: PathBuf,
    file: File,
    entries: Vec<Entry>,
    checks: Checks,
    /// Whether its process may live.
    era: Era,
}

/// Files beside a log: an object file for debuggers, a script for gdb, a map for perf, and where
/// calls in rewritten text come back to.
const BESIDE: [&str; 5] = ["symbols", "gdb", "map", "returns", "opened"];

/// The suffix of a log that is being begun; the number of the process that begins it stands before
/// it.
const UNFINISHED: &str = "new";

/// What the first line begins with; the [`World`] of the process follows.
const HEADER: &str = "fettle live 3 ";

/// Each line ends with a value that depends on it and on all lines before: after a lost or changed
/// line, undo would unmap code that is still in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Checks(u64);

impl Checks {
    /// The values for lines behind a header.
    fn behind(header: &str) -> Checks {
        Checks(hash(header.as_bytes()))
    }

    /// The value for the next line.
    fn next(&mut self, line: &str) -> String {
        self.0 = hash(&[&self.0.to_le_bytes(), line.as_bytes()].concat());
        format!("#{:08x}", self.0 as u32)
    }
}

impl Journal {
    /// Begins a log with `entries`, all of them or none.
    pub(crate) fn begin(path: &Path, entries: Vec<Entry>) -> Result<Journal, LiveError> {
        let failed =
            |e: io::Error| LiveError::Journal { path: path.to_owned(), what: e.to_string() };
        let pid = process_of(&entries)
            .map_err(|what| LiveError::Journal { path: path.to_owned(), what })?;
        let header = format!("{HEADER}{}", World::here()?);
        let (mut text, mut checks) = (format!("{header}\n"), Checks::behind(&header));
        entries.iter().for_each(|entry| print(entry, &mut checks, &mut text));
        // It has a name of this process's own until it is whole.
        remove_unfinished(path);
        let unfinished = path.with_extension(format!("{}.{UNFINISHED}", std::process::id()));
        let _ = std::fs::remove_file(&unfinished);
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&unfinished);
        let file = file.map_err(failed)?;
        let (path_of_it, era) = (path.to_owned(), Era::Present);
        let mut journal = Journal { pid, file, path: path_of_it, entries, checks, era };
        journal.lock()?;
        journal.write(&text)?;
        // Fails if another process was faster.
        let linked = std::fs::hard_link(&unfinished, path);
        let _ = std::fs::remove_file(&unfinished);
        linked.map_err(failed)?;
        Ok(journal)
    }

    /// The process's number.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The log's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the log of a process, if there is one.
    ///
    /// # Errors
    ///
    /// When another process uses it, could have written it, it cannot be read, or it cannot be
    /// found out here whether its process lives.
    pub fn open(folder: &Path, pid: Pid) -> Result<Option<Journal>, LiveError> {
        loop {
            let Some(journal) = Journal::look(folder, pid)? else { return Ok(None) };
            journal.lock()?;
            // Its last user may have written to it meanwhile, or removed it, and another one may
            // have begun a new one.
            let Some((now, whole)) = Journal::read(folder, pid)? else { return Ok(None) };
            if identity(&journal.file) != identity(&now.file) {
                continue;
            }
            // Its last user may have been killed within a line: the next line must not continue
            // that one.
            now.file.set_len(whole).map_err(|e| now.failed(e))?;
            return Ok(Some(Journal { entries: now.entries, checks: now.checks, ..journal }));
        }
    }

    /// Reads the log of a process, if there is one, even if another Fettle is writing it.
    ///
    /// # Errors
    ///
    /// When others could have written it, it cannot be read, or it cannot be found out here whether
    /// its process lives.
    pub fn look(folder: &Path, pid: Pid) -> Result<Option<Journal>, LiveError> {
        Ok(Journal::read(folder, pid)?.map(|(journal, _)| journal))
    }

    /// Reads the log of a process, if there is one; also gives how many bytes of the file are whole lines.
    fn read(folder: &Path, pid: Pid) -> Result<Option<(Journal, u64)>, LiveError> {
        let path = path_of(folder, pid);
        let failed = |what: String| LiveError::Journal { path: path.clone(), what };
        let options =
            OpenOptions::new().read(true).append(true).custom_flags(libc::O_NOFOLLOW).open(&path);
        let mut file = match options {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error.to_string())),
        };
        let meta = file.metadata().map_err(|e| failed(e.to_string()))?;
        if !is_ours(&meta) {
            return Err(failed("it does not belong to you alone".to_owned()));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|e| failed(e.to_string()))?;
        // The bytes behind the last line may end within a character.
        bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
        let text = std::str::from_utf8(&bytes).map_err(|e| failed(damaged(&e.to_string())))?;
        let (world, entries, checks) = parse(text).map_err(failed)?;
        let era = world.era(&World::here()?, &file).map_err(failed)?;
        let pid = process_of(&entries).map_err(failed)?;
        Ok(Some((Journal { pid, path, file, entries, checks, era }, bytes.len() as u64)))
    }

    /// The error for a file that cannot be used.
    fn failed(&self, error: io::Error) -> LiveError {
        LiveError::Journal { path: self.path.clone(), what: error.to_string() }
    }

    /// The process that the log of this name is of, if it is of this world: number, start time,
    /// address space. The other entries are not read.
    pub(crate) fn owner_of(folder: &Path, pid: Pid) -> Option<(Pid, u64, u64)> {
        let (world, owner) = Journal::head_of(folder, pid)?;
        (World::here().ok()? == world).then_some(owner)
    }

    fn head_of(folder: &Path, pid: Pid) -> Option<(World, (Pid, u64, u64))> {
        // The first two lines are not longer.
        let mut head = [0; 256];
        let mut file = File::open(path_of(folder, pid)).ok()?;
        let count = file.read(&mut head).ok()?;
        // The bytes behind the last line may end within a character.
        let end = head[..count].iter().rposition(|byte| *byte == b'\n')?;
        let (world, entries, _) = parse(std::str::from_utf8(&head[..=end]).ok()?).ok()?;
        match entries.first()? {
            Entry::Process(pid, start, space) => Some((world, (*pid, *start, *space))),
            _ => None,
        }
    }

    /// Processes that have logs in the folder.
    pub fn list(folder: &Path) -> Vec<Pid> {
        let Ok(folder) = std::fs::read_dir(folder) else { return Vec::new() };
        let name =
            |entry: io::Result<std::fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
        let mut pids: Vec<Pid> =
            folder.filter_map(|entry| name(entry)?.strip_suffix(".undo")?.parse().ok()).collect();
        pids.sort_unstable();
        pids
    }

    /// Locks the file until this is dropped or Fettle dies.
    fn lock(&self) -> Result<(), LiveError> {
        // SAFETY: takes numbers only.
        match unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
            0 => Ok(()),
            _ => Err(LiveError::Journal {
                path: self.path.clone(),
                what: "another fettle is at work on this process".to_owned(),
            }),
        }
    }

    /// Adds text to the file, all of it or, if the disk is full, none.
    fn write(&mut self, text: &str) -> Result<(), LiveError> {
        let before = self.file.metadata().map(|meta| meta.len());
        let written = self.file.write_all(text.as_bytes());
        if let (Err(_), Ok(len)) = (&written, before) {
            let _ = self.file.set_len(len);
        }
        written.map_err(|error| self.failed(error))
    }

    /// Adds entries, all at once.
    ///
    /// # Errors
    ///
    /// When the disk does not take them. Then what they record must not be done.
    pub fn add(&mut self, entries: impl IntoIterator<Item = Entry>) -> Result<(), LiveError> {
        let from = self.entries.len();
        self.entries.extend(entries);
        let (mut text, mut checks) = (String::new(), self.checks);
        self.entries[from..].iter().for_each(|entry| print(entry, &mut checks, &mut text));
        self.write(&text)?;
        self.checks = checks;
        Ok(())
    }

    /// What was done, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether the log is of this very process, and of the program that it runs now.
    pub fn is_of(&self, process: &Process) -> bool {
        let id = Entry::Process(process.pid(), process.start_time(), process.space());
        self.entries.first() == Some(&id) && !self.is_past()
    }

    /// Whether its process, and all that were forked from it, have ended with an earlier boot.
    pub(crate) fn is_past(&self) -> bool {
        self.era == Era::Past
    }

    /// Whether the log named after a process is of one that was forked from the same execution of a
    /// program as `process`; or does not say, and that process lives.
    pub fn may_be_of_member(folder: &Path, pid: Pid, process: &Process) -> bool {
        match Journal::head_of(folder, pid) {
            Some((world, (_, _, space))) => {
                space == process.space() && World::here().is_ok_and(|here| here == world)
            }
            None => crate::process::start_time(pid).is_some(),
        }
    }

    /// Memory that was mapped in the process, or was about to be.
    pub fn regions(&self) -> Vec<(Region, bool)> {
        let mut regions: Vec<(Region, bool)> = Vec::new();
        for entry in &self.entries {
            match entry {
                Entry::Map(region) => {
                    regions.retain(|(other, _)| other.at != region.at);
                    regions.push((*region, false));
                }
                Entry::Mapped(at) => {
                    regions.iter_mut().filter(|(r, _)| r.at == *at).for_each(|r| r.1 = true);
                }
                Entry::Unmapped(at) => regions.retain(|(region, _)| region.at != *at),
                _ => {}
            }
        }
        regions
    }

    /// Memory that was mapped in the process at some time, or was about to be: the last at each
    /// address.
    pub(crate) fn ever_mapped(&self) -> Vec<Region> {
        let mut regions: Vec<Region> = Vec::new();
        for entry in &self.entries {
            if let Entry::Map(region) = entry {
                regions.retain(|other| other.at != region.at);
                regions.push(*region);
            }
        }
        regions
    }

    /// Writes a file beside the log, which is removed with it: `symbols`, `gdb`, `map`, `returns`
    /// or `opened`. An existing one is replaced. Returns its path.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn put_beside(&self, kind: &str, bytes: &[u8]) -> Result<PathBuf, LiveError> {
        assert!(BESIDE.contains(&kind), "a kind of file that is removed again");
        let path = self.path_beside(kind);
        let failed = |e: io::Error| LiveError::Journal { path: path.clone(), what: e.to_string() };
        let _ = std::fs::remove_file(&path);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(bytes)).map_err(failed)?;
        Ok(path)
    }

    /// The path of a file beside the log, as every process that has the same root directory sees
    /// it.
    pub fn path_beside(&self, kind: &str) -> PathBuf {
        let path = self.path.with_extension(kind);
        let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
        match (folder, path.file_name()) {
            (Some(folder), Some(name)) => folder.join(name),
            _ => path,
        }
    }

    /// Links a file beside this log to another log, too, until either writes its own.
    ///
    /// # Errors
    ///
    /// When there is none, or the other log has one.
    pub(crate) fn share_beside(&self, kind: &str, other: &Journal) -> io::Result<()> {
        std::fs::hard_link(self.path.with_extension(kind), other.path.with_extension(kind))
    }

    /// The content of a file beside the log, and its path.
    ///
    /// # Errors
    ///
    /// When there is none, or it cannot be read.
    pub fn beside(&self, kind: &str) -> Result<(PathBuf, Vec<u8>), LiveError> {
        let path = self.path.with_extension(kind);
        match std::fs::read(&path) {
            Ok(bytes) => Ok((path, bytes)),
            Err(e) => Err(LiveError::Journal { path, what: e.to_string() }),
        }
    }

    /// The hash of what a region began with when it was about to be unmapped; `None` if no
    /// unmapping was begun since it was mapped.
    pub(crate) fn unmapping(&self, at: LiveAddr) -> Option<u64> {
        let newest = self.entries.iter().rev();
        let mut of_region = newest.filter_map(|entry| match entry {
            Entry::Unmapping(other, hash) => (*other == at).then_some(Some(*hash)),
            Entry::Map(region) => (region.at == at).then_some(None),
            _ => None,
        });
        of_region.next().flatten()
    }

    /// Removes the log: the process is unmodified again, or has ended.
    ///
    /// # Errors
    ///
    /// When the file cannot be removed.
    pub fn remove(self) -> Result<(), LiveError> {
        for kind in BESIDE {
            let _ = std::fs::remove_file(self.path.with_extension(kind));
        }
        std::fs::remove_file(&self.path)
            .map_err(|error| LiveError::Journal { path: self.path, what: error.to_string() })
    }
}

/// Device and inode; `None` if they cannot be read.
fn identity(file: &File) -> Option<(u64, u64)> {
    file.metadata().ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Removes unfinished logs of processes that have ended.
fn remove_unfinished(path: &Path) {
    let Some((folder, name)) = path.parent().zip(path.file_stem().and_then(|name| name.to_str()))
    else {
        return;
    };
    let maker = |file: &str| {
        let rest = file.strip_prefix(name)?.strip_prefix('.')?;
        rest.strip_suffix(UNFINISHED)?.strip_suffix('.')?.parse().ok()
    };
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let pid: Option<Pid> = entry.file_name().to_str().and_then(maker);
        if pid.is_some_and(crate::process::has_ended) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

pub(crate) fn path_of(folder: &Path, pid: Pid) -> PathBuf {
    folder.join(format!("{pid}.undo"))
}

pub(crate) fn make_folder(folder: &Path) -> Result<(), LiveError> {
    let failed = |what: String| LiveError::Journal { path: folder.to_owned(), what };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .and_then(|()| std::fs::metadata(folder))
        .map_err(|error| failed(error.to_string()))
        .and_then(|meta| match is_ours(&meta) {
            true => Ok(()),
            false => Err(failed("others may write to it: make it yours alone".to_owned())),
        })
}

fn is_ours(meta: &std::fs::Metadata) -> bool {
    // SAFETY: no argument, no memory, and it cannot fail.
    let user = unsafe { libc::geteuid() };
    meta.uid() == user && meta.mode() & 0o022 == 0
}

/// The message on a log that is not valid.
/// The process that a log is of, which has its first lines when it gets its name.
fn process_of(entries: &[Entry]) -> Result<Pid, String> {
    match entries.first() {
        Some(Entry::Process(pid, ..)) => Ok(*pid),
        _ => Err(damaged("its beginning is missing")),
    }
}

fn damaged(what: &str) -> String {
    format!(
        "it is damaged: {what}. Nothing is reverted by it: what was installed stays until the \
         process ends"
    )
}

fn print(entry: &Entry, checks: &mut Checks, out: &mut String) {
    let from = out.len();
    entry::print(entry, out);
    let check = checks.next(&out[from..]);
    out.push(' ');
    out.push_str(&check);
    out.push('\n');
}

fn parse(text: &str) -> Result<(World, Vec<Entry>, Checks), String> {
    let mut lines = text.lines();
    let header = lines.next().ok_or_else(|| damaged("it is empty"))?;
    let Some(world) = header.strip_prefix(HEADER) else {
        return Err("it was written by another version of Fettle".to_owned());
    };
    let world = World::parse(world).ok_or_else(|| damaged("line 1 makes no sense"))?;
    let (mut entries, mut checks) = (Vec::new(), Checks::behind(header));
    for (number, line) in lines.enumerate() {
        let wrong = |what: &str| damaged(&format!("line {} {what}", number + 2));
        let (line, check) = line.rsplit_once(' ').ok_or_else(|| wrong("makes no sense"))?;
        if checks.next(line) != check {
            return Err(wrong("is not what was written, or some before it are missing"));
        }
        entries.push(entry::parse(line).ok_or_else(|| wrong("makes no sense"))?);
    }
    Ok((world, entries, checks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Names, Patch, Place, Purpose, Record};
    use crate::maps::Prot;

    fn pid() -> Pid {
        Pid::try_from(12).unwrap()
    }

    fn all() -> Vec<Entry> {
        let prot = Prot { read: true, write: false, exec: true };
        vec![
            Entry::Process(pid(), 345, 0xdead_beef),
            Entry::Map(Region { at: LiveAddr(0x1000), len: 0x2000, prot, shared: true }),
            Entry::Mapped(LiveAddr(0x1000)),
            Entry::Code(LiveAddr(0x3000), 200),
            Entry::Cleared(LiveAddr(0x3000)),
            Entry::Guard(LiveAddr(1), LiveAddr(2)),
            Entry::Write(Patch {
                at: LiveAddr(0x4000),
                before: vec![0, 0x0f, 0xff],
                after: vec![1, 2, 3],
                purpose: Purpose::Unwind,
            }),
            Entry::Write(Patch {
                at: LiveAddr(0x5000),
                before: vec![1],
                after: vec![2],
                purpose: Purpose::Slot,
            }),
            Entry::Write(Patch {
                at: LiveAddr(0x6000),
                before: vec![3],
                after: vec![4],
                purpose: Purpose::OsrEntry,
            }),
            Entry::Place(Place {
                start: LiveAddr(1),
                end: LiveAddr(2),
                offset: 3,
                device: (4, 5),
                inode: 6,
            }),
            Entry::Record(Record { list: LiveAddr(1), at: LiveAddr(2), dynamic: LiveAddr(3) }),
            Entry::Names(Names { list: LiveAddr(4), at: LiveAddr(0x5000) }),
            Entry::PerfMap("perf-12.map".to_owned(), 7, 8),
            Entry::GsBases(LiveAddr(0x7000), LiveAddr(0x9000)),
            Entry::Loaded("/a library".to_owned()),
            Entry::Note("two words".to_owned()),
            Entry::Unmapping(LiveAddr(0x1000), 0xfeed),
            Entry::Unmapped(LiveAddr(0x1000)),
        ]
    }

    fn header() -> (String, World) {
        let world = World { boot: "a-b-c".to_owned(), pid_namespace: 4711 };
        (format!("{HEADER}{world}"), world)
    }

    /// Begins a log of this very process that was written elsewhere.
    fn written_in(folder: &Path, world: &World) {
        let pid = Pid::own();
        let start = crate::process::start_time(pid).unwrap();
        let header = format!("{HEADER}{world}");
        let (mut text, mut checks) = (format!("{header}\n"), Checks::behind(&header));
        print(&Entry::Process(pid, start, 1), &mut checks, &mut text);
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600);
        file.open(path_of(folder, pid)).unwrap().write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn logs_of_elsewhere_are_kept() {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let (here, pid) = (World::here().unwrap(), Pid::own());
        written_in(folder.path(), &here);
        assert_eq!(Journal::owner_of(folder.path(), pid).map(|owner| owner.2), Some(1));
        let journal = Journal::open(folder.path(), pid).unwrap().unwrap();
        // It lives, but this very program is not changed.
        assert!(crate::undo(journal, crate::Undoing::within(Default::default())).is_err());
        written_in(folder.path(), &World { pid_namespace: 1, ..here.clone() });
        let said = Journal::open(folder.path(), pid).unwrap_err().to_string();
        assert!(said.contains("another PID namespace"), "{said}");
        assert_eq!(Journal::owner_of(folder.path(), pid), None);
        // A log of an earlier boot is removed.
        written_in(folder.path(), &World { boot: "earlier".to_owned(), ..here });
        let Ok(Some(journal)) = Journal::open(folder.path(), pid) else {
            return eprintln!("skipped: who knows what file system /tmp is");
        };
        let undone = crate::undo(journal, crate::Undoing::within(Default::default())).unwrap();
        assert!(undone.gone && !path_of(folder.path(), pid).exists());
    }

    #[test]
    fn what_was_written_is_read() {
        let (header, world) = header();
        let (mut text, mut checks) = (format!("{header}\n"), Checks::behind(&header));
        all().iter().for_each(|entry| print(entry, &mut checks, &mut text));
        assert_eq!(parse(&text).unwrap(), (world, all(), checks));
        // Cut off behind any line, the rest is a valid prefix.
        for (end, _) in text.match_indices('\n') {
            let Ok((_, entries, _)) = parse(&text[..=end]) else { panic!("cut at {end}") };
            assert_eq!(entries, all()[..entries.len()]);
        }
        // No line may be missing or replaced.
        let lines: Vec<&str> = text.lines().collect();
        for gone in 1..lines.len() - 1 {
            let rest = [&lines[..gone], &lines[gone + 1..]].concat().join("\n") + "\n";
            assert!(parse(&rest).is_err(), "without {}", lines[gone]);
        }
        assert!(parse(&text.replace("4000", "4001")).is_err());
    }

    #[test]
    fn half_a_line_is_cut_off_before_the_next_is_added() {
        let folder = tempfile::tempdir().unwrap();
        let path = path_of(folder.path(), pid());
        drop(Journal::begin(&path, all()).unwrap());
        // Killed while it was written, within a character.
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"loaded /biblioth\xc3").unwrap();
        assert_eq!(Journal::look(folder.path(), pid()).unwrap().unwrap().entries, all());
        let mut journal = Journal::open(folder.path(), pid()).unwrap().unwrap();
        journal.add([Entry::Mapped(LiveAddr(0x8000))]).unwrap();
        drop(journal);
        let journal = Journal::open(folder.path(), pid()).unwrap().unwrap();
        assert_eq!(journal.entries.last(), Some(&Entry::Mapped(LiveAddr(0x8000))));
        assert_eq!(journal.entries.len(), all().len() + 1);
    }

    #[test]
    fn what_is_left_of_a_beginning_goes_with_its_maker() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        // Of one that has ended, one that lives, and about another process.
        let names = ["12.2147483647.new", "12.1.new", "13.2147483647.new"];
        names.iter().for_each(|name| std::fs::write(path(name), "").unwrap());
        drop(Journal::begin(&path("12.undo"), all()).unwrap());
        assert_eq!(names.map(|name| path(name).exists()), [false, true, true]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
        // A log that is in use cannot be opened.
        let _held = Journal::open(folder.path(), pid()).unwrap().unwrap();
        let said = Journal::open(folder.path(), pid()).unwrap_err().to_string();
        assert!(said.contains("another fettle"), "{said}");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in ["jump 1000 00 0000", "map 1000", "nothing 1", "jump zz 00 00"] {
            let header = header().0;
            let check = Checks::behind(&header).next(line);
            let error = parse(&format!("{header}\n{line} {check}\n")).unwrap_err();
            assert!(error.contains("line 2 makes no sense"), "{line}: {error}");
        }
        assert!(parse("fettle live 2\n").unwrap_err().contains("another version"));
    }
}
