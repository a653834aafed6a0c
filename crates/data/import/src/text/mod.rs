//! Traces that are text: of strace, perf and ftrace.

pub mod events;
pub mod fields;
pub mod strace;
mod strace_line;

/// Reads a text line by line in every way: for fuzzing.
pub fn read_all(text: &str) {
    for line in text.lines() {
        let line = &*strace_line::plain(line);
        if let Some(strace_line::Line {
            what: strace_line::What::Whole { arguments, .. }, ..
        }) = strace_line::line(line)
        {
            for part in strace_line::split(arguments).0 {
                let part = [("", crate::value::Value::Text(part))];
                let args = crate::syscalls::args::Args(&part);
                drop((args.fd(0, &[]), args.path(0, &[]), args.pair(0), args.number(0, &[])));
            }
        }
        events::read_line(line);
    }
}
