//! What all commands that show something share: the terminal, standard output, opening a trace.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::fs::{File, Permissions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use fettle_report::render::{Terminal, count};
use fettle_trace::{Error, Trace, open_or_recover_with};

/// A number with the word for one, or for several.
pub fn plural(n: u64, one: &str, several: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { several })
}

/// Width and colours of standard output.
pub fn terminal(no_color: bool) -> Terminal {
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        return Terminal::default();
    }
    let width = terminal_size::terminal_size_of(&stdout).map(|(width, _)| usize::from(width.0));
    // https://no-color.org: set and not empty.
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    Terminal { width, colour: !(no_color || unwanted || dumb) }
}

/// Prints a line to standard error. A recording has its own results and status, so it is no error
/// if standard error is closed.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::output::show(format_args!("{}\n", format_args!($($text)*)))
    };
}

/// Says that some of a process's threads are stopped, if they are: what waits for them takes as long.
pub fn say_stopped(process: &fettle_live::Process) {
    if let Some(line) = fettle_tune::recording::stopped(process) {
        say!("fettle: {line}");
    }
}

/// Writes to standard error as far as that can be written.
pub fn show(text: fmt::Arguments<'_>) {
    let _ =
        Harmless { to: io::stderr().lock(), styled: false }.write_all(text.to_string().as_bytes());
}

/// Writes over the line that was written last, if standard error is a terminal.
pub fn show_again(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_all(b"\r\x1b[K");
    show(text);
}

/// Clears the line that [`show_again`] wrote last, if standard error is a terminal.
pub fn clear_progress() {
    if io::stderr().is_terminal() {
        show_again(format_args!(""));
    }
}

/// Writes a result to standard output. A reader that closes the pipe has seen enough: no error.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = stdout();
    quiet(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Writes to a file, or to standard output.
pub fn write_to(to: Option<&Path>, text: &str) -> anyhow::Result<()> {
    match to {
        Some(path) => {
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
        }
        None => print(text),
    }
}

/// Standard output for text, in which names of others may be.
pub fn stdout() -> Harmless<io::StdoutLock<'static>> {
    let stdout = io::stdout();
    let styled = stdout.is_terminal();
    Harmless { to: stdout.lock(), styled }
}

/// Text on its way to a terminal. Names of functions, programs and files are untrusted: control
/// characters, which would command the terminal, are shown escaped as in JSON, so that JSON stays
/// what it is. Line breaks and tabs go through, and styles where there are any.
pub struct Harmless<W> {
    to: W,
    styled: bool,
}

impl<W: Write> Write for Harmless<W> {
    /// `bytes` hold whole characters, as all text does that is written here.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write_all(harmless(&String::from_utf8_lossy(bytes), self.styled).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn harmless(text: &str, styled: bool) -> Cow<'_, str> {
    let commands = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(commands) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(at) = rest.find(commands) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let len = match style_len(rest).filter(|_| styled) {
            Some(len) => {
                out.push_str(&rest[..len]);
                len
            }
            None => {
                let c = rest.chars().next().expect("there is one");
                let _ = write!(out, "\\u{:04x}", u32::from(c));
                c.len_utf8()
            }
        };
        rest = &rest[len..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Length of the escape sequence that `text` begins with, if it is one of a style or colour.
fn style_len(text: &str) -> Option<usize> {
    let inner = text.strip_prefix("\x1b[")?;
    let end = inner.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    inner[end..].starts_with('m').then_some(end + 3)
}

/// Turns a closed pipe into success.
pub fn quiet(result: io::Result<()>) -> anyhow::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to standard output"),
    }
}

/// Reports what a text that was written warns of: status 1 if there is anything, and success where the
/// reader of standard output has gone.
pub fn warned<W: fmt::Display>(
    written: Result<Vec<W>, fettle_report::Error>,
) -> anyhow::Result<ExitCode> {
    match written {
        Ok(warnings) => {
            for warning in &warnings {
                say!("fettle: {warning}");
            }
            Ok(ExitCode::from(u8::from(!warnings.is_empty())))
        }
        Err(fettle_report::Error::Output(error)) => {
            quiet(Err(error))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Err(error.into()),
    }
}

/// Writes a file that the user named, whole or not at all: an existing file of that name is not
/// changed until all is written. What is no regular file, such as a device or a named pipe, is
/// written to.
pub fn to_file<T>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let written = match std::fs::metadata(path) {
        Ok(there) if !there.is_file() => in_place(path, write),
        // What a link leads to is replaced, not the link.
        Ok(there) => path
            .canonicalize()
            .map_err(anyhow::Error::from)
            .and_then(|path| replace(&path, there.permissions(), write)),
        Err(_) => replace(path, Permissions::from_mode(0o666), write),
    };
    written.with_context(|| format!("cannot write {}", path.display()))
}

fn in_place<T>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut out = BufWriter::with_capacity(1 << 16, File::options().write(true).open(path)?);
    let value = write(&mut out)?;
    out.flush()?;
    Ok(value)
}

fn replace<T>(
    path: &Path,
    permissions: Permissions,
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(path.file_name().unwrap_or_default());
    let mut partial = tempfile::Builder::new();
    partial.prefix(&prefix).suffix(".partial").permissions(permissions);
    let partial = partial.tempfile_in(folder.unwrap_or(Path::new("."))).map_err(without_path)?;
    let mut out = BufWriter::with_capacity(1 << 16, partial);
    let value = write(&mut out)?;
    out.into_inner().map_err(io::IntoInnerError::into_error)?.persist(path)?;
    Ok(value)
}

/// The error, without the name of the temporary file that is renamed at the end: the user did not
/// name it.
fn without_path(error: io::Error) -> anyhow::Error {
    let text = error.to_string();
    match text.split_once(" at path ") {
        Some((what, _)) => anyhow::Error::msg(what.to_owned()),
        None => error.into(),
    }
}

/// The trace that is meant: the one named, or that in the folder of evidence that was named, or the newest `*.fettle` in
/// this folder.
pub fn chosen(trace: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(path) = trace {
        return Ok(fettle_watch::last::trace_in(path).unwrap_or_else(|| path.to_owned()));
    }
    let mut newest = None;
    for entry in std::fs::read_dir(".").context("cannot list the current folder")?.flatten() {
        let path = PathBuf::from(entry.file_name());
        let is_trace = path.extension().is_some_and(|extension| extension == "fettle");
        let time = entry.metadata().and_then(|metadata| metadata.modified());
        if let (true, Ok(time)) = (is_trace && entry.path().is_dir(), time) {
            newest = newest.max(Some((time, path)));
        }
    }
    match newest {
        Some((_, path)) => Ok(path),
        None => bail!(
            "no trace was named and there is no *.fettle in this folder; try `fettle record -- PROGRAM`"
        ),
    }
}

/// Opens a trace. One that was cut off, or whose records are still to be converted, is converted
/// first; standard error says so of one that was cut off, and shows how far the other is.
pub fn open(path: &Path) -> anyhow::Result<Trace> {
    let shows = io::stderr().is_terminal();
    let deferred = matches!(Trace::open(path), Err(Error::Deferred { .. }));
    // Of a proper recording there is nothing to say but how far it is.
    let mut said = deferred;
    if deferred && shows {
        show(format_args!("fettle: converting the records of {}\n", path.display()));
    }
    if fettle_instrument::is_uncollected(path) {
        // Programs that record themselves leave the making of the trace to its first reader.
        fettle_instrument::collect(path, &mut |_, _| {})?;
    }
    let mut progress = |done: u64, all: u64| {
        if !std::mem::replace(&mut said, true) {
            say!(
                "{} was cut off: its recording did not end properly. What was stored is converted.",
                path.display()
            );
        }
        if shows {
            show_again(format_args!("{:3} %", (done * 100).checked_div(all).unwrap_or(100)));
        }
    };
    let trace = open_or_recover_with(path, &mut progress, &mut fettle_record::kernel::recover);
    if deferred {
        clear_progress();
    } else if said && shows {
        show(format_args!("\n"));
    }
    let trace = trace?;
    if said && !deferred {
        let manifest = trace.manifest();
        let (calls, events) = (manifest.totals.records, manifest.events.rows());
        say!("It has {} calls and {} events.", count(calls), count(events));
    }
    Ok(trace)
}

/// A trace as it stands.
pub struct Stand {
    /// The trace, or a copy of what its recording has stored so far.
    pub trace: Trace,
    /// Whether it is still being recorded.
    pub live: bool,
    /// Where the copy lies, which goes with this.
    pub folder: Option<tempfile::TempDir>,
}

/// Opens a trace that may still be recorded.
pub fn stand(path: &Path) -> anyhow::Result<Stand> {
    // A recording that begins or ends just now has parts of either; soon it has not.
    const ATTEMPTS: u32 = 10;
    let mut attempt = 1;
    loop {
        let stand = match open(path) {
            Err(error) if matches!(error.downcast_ref(), Some(Error::Busy { .. })) => {
                let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
                fettle_record::snapshot(path, folder.path())
                    .map(|trace| Stand { trace, live: true, folder: Some(folder) })
                    .map_err(anyhow::Error::from)
            }
            Err(error) if path.join("spool").is_dir() => Err(error),
            trace => return Ok(Stand { trace: trace?, live: false, folder: None }),
        };
        if stand.is_ok() || attempt == ATTEMPTS {
            return stand;
        }
        attempt += 1;
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
}

/// An error and its causes, but for those that have been reported already: many say what the system
/// answered themselves.
pub(crate) fn reported(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(|cause| cause.to_string()) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::harmless;

    #[test]
    fn what_commands_a_terminal_is_shown() {
        let hostile = "\x1b]0;title\x07 \x1b[2J a\rb \u{9b}2J \x7f";
        let shown = r"\u001b]0;title\u0007 \u001b[2J a\u000db \u009b2J \u007f";
        assert_eq!(harmless(hostile, true), shown);
        assert_eq!(harmless("one\n\ttwo, dr\u{e4}i", false), "one\n\ttwo, dr\u{e4}i");
        let bold = "\x1b[1;33mbold\x1b[0m \x1b[";
        assert_eq!(harmless(bold, true), "\x1b[1;33mbold\x1b[0m \\u001b[");
        assert_eq!(harmless(bold, false), r"\u001b[1;33mbold\u001b[0m \u001b[");
    }

    #[test]
    fn json_stays_what_it_is() {
        let value = serde_json::json!({ "name": "\x1b[2J \u{9b} \x7f \n" });
        let shown = harmless(&format!("{value:#}\n"), true).into_owned();
        assert!(!shown.contains('\x7f'), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
