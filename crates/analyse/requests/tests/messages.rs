//! What people read when a schema is wrong: `messages.txt` has schemas and what is said about them.
//! `BLESS=1 cargo test -p fettle-requests --test messages` writes it anew.

use std::fmt::Write;

use fettle_requests::{Source, compile, shipped};

const DECLARED: &str =
    "use kernel actor thread(tid: u32) timeline file(pid: u32, fd: i32) stream s(k: u64)\n";

/// Schemas with one slip each; `…` stands for the declarations above.
const WRONG: [&str; 56] = [
    "evnt read(x: u32)",
    "event x(a u32)",
    "event x(a: u33)",
    "event x(a: u32, a: u32)",
    "event x(a: u32",
    "event start(a: u32)",
    "event x(a: u32)\nevent x(a: u64)",
    "timeline t()",
    "timeline t(a: u64, b: u64, c: u8)",
    "timeline t(a: u32) timeline t(a: u32)",
    "basic thread(tid)",
    "use kernal",
    "…on raed { seed }",
    "…on read where fdd > 3 { seed }",
    "…on read where fd { seed }",
    "…on read where fd > 3 and { seed }",
    "…on read where 1 < fd < 3 { seed }",
    "…on read where fd == \"3\" { seed }",
    "…on open where path > 3 { seed }",
    "…on open where fd in (3, \"4\") { seed }",
    "…on read where (((fd > 3) { seed }",
    "…on read { start fil(pid, fd) seed }",
    "…on read { start file(pid) seed }",
    "…on open { start file(pid, path) seed }",
    "…on read { basic file(pid, fd) is runing seed }",
    "…on read { basic file(pid, fd) is running seed }",
    "…on read { basic thread(tid) expects running seed }",
    "…on read { basic thread(tid) is seed }",
    "…on read { basic thread(tid) is queued seed }",
    "…on read { basic thread(tid) was running seed }",
    "…on read { handoff thread(tid) -> file(pid, fd) expects disk seed }",
    "…on read { seed } actor queue(x: u32) expects queued",
    "…on read { strt file(pid, fd) seed }",
    "…on read { start file(pid, fd) after clos seed }",
    "…on read { handoff thread(tid) thread(fd) seed }",
    "…on read { handoff thread(tid) -> s(fd) seed }",
    "…on read { send s(pid) seed }",
    "…on read { send file(pid, fd) bytes bytes seed }",
    "…on read { send s(pid) bytes true seed }",
    "…on read { basic s(pid) seed }",
    "…on read { let fd = 3 seed }",
    "…on read { let x = y seed }",
    "…on read { seed",
    "…on read { seed }\non read { seed }",
    "…on read { basic thread(tid) }",
    "…on read where fd > 99999999999999999999 { seed }",
    "…on read { seed \"abc }",
    "…on read { seed § }",
    "…on open { seed }\non nothing_at_all { seed }\non read { basic thred(tid) }\nevent (",
    "…on open where not fd { seed }",
    "…on open { seed fd }",
    "…on open { seed pth }",
    "…on read { lend thread(tid) file(pid, fd) seed }",
    "…on read { stop thread(tid) if file(pid, fd) unless thred(tid) seed }",
    "…on read { stop thread(tid) if file(pid, fd) and thread(tid) seed }",
    "…on read { join s(pid) seed }",
];

#[test]
fn messages_point_at_the_slip() {
    let mut text = String::new();
    for wrong in WRONG {
        let schema = wrong.replace('…', DECLARED);
        let report = match compile(&[Source::new("schema", &schema)], &shipped) {
            Ok(program) => program.warnings().to_string(),
            Err(report) => report.to_string(),
        };
        assert!(!report.is_empty(), "nothing is said about {wrong}");
        writeln!(text, "--- {}\n{report}", wrong.replace('\n', " ")).unwrap();
    }
    let text = format!("{}\n", text.trim_end());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/messages.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap();
    assert!(text == expected, "not what messages.txt says; now it is:\n{text}");
}
