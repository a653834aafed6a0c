//! What the tests of the checker share: real binaries, and random numbers that can be repeated.
#![allow(dead_code, unused_imports)]

mod random;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use fettle_check::Checker;
use fettle_code::arguments::{Arguments, Class};
use fettle_code::{Depth, Mode, Pointers, Probing, UserProbe};
use fettle_image::{Image, LinkAddr};
use fettle_lift::Lifted;
use fettle_rewrite::{Plan, PlanOptions, plan_checked_by};
pub use random::{Random, seed};

/// Every kind of probes that there is: the modes, to some depth only, with arguments of some
/// functions.
pub fn variants(lifted: &Lifted) -> Vec<Probing<'static>> {
    let mut all: Vec<Probing<'static>> =
        Mode::ALL.into_iter().filter(|m| *m != Mode::User).map(Probing::new).collect();
    all.extend(
        OWN.iter()
            .map(|user_probe| Probing { user_probe: Some(user_probe), ..Probing::new(Mode::User) }),
    );
    all.push(Probing { depth: Depth::new(1), ..Probing::new(Mode::Time) });
    all.push(Probing { depth: Depth::new(3), ..Probing::new(Mode::Events) });
    let some = [
        Arguments::new([Class::Integer, Class::Text], Some(Class::Integer)),
        Arguments::new([Class::Float; 9], None),
    ];
    let functions = lifted.functions.iter().enumerate().filter(|(i, _)| i % 3 != 0);
    let arguments = functions.map(|(i, f)| (f.entry, some[i % 2])).collect();
    all.push(Probing { arguments: Cow::Owned(arguments), ..Probing::new(Mode::Events) });
    all
}

/// The same, and what becomes of indirect calls with them, in words as well.
pub fn with_pointers(lifted: &Lifted) -> Vec<(Probing<'static>, Pointers<'static>, &'static str)> {
    let mut all = Vec::new();
    for probes in variants(lifted) {
        match probes.mode {
            Mode::Edges => all.push((probes.clone(), Pointers::Counted, "targets counted")),
            Mode::Plain => {
                let promoted = Pointers::Promoted(Box::leak(Box::new(targets(lifted))));
                all.push((probes.clone(), promoted, "calls promoted"));
            }
            _ => {}
        }
        all.push((probes, Pointers::Kept, "indirect calls as they are"));
    }
    all
}

/// What the C compiler's driver makes of this assembly source.
pub fn assembled(source: &str, flags: &[&str]) -> Image {
    let dir = tempfile::tempdir().expect("a directory");
    let (file, binary) = (dir.path().join("a.s"), dir.path().join("a.out"));
    std::fs::write(&file, source).expect("a file");
    let mut cc = std::process::Command::new("cc");
    let built = cc.args(flags).args(["-nostdlib", "-o"]).args([&binary, &file]).status();
    assert!(built.expect("a C compiler").success());
    Image::parse(std::fs::read(&binary).expect("built")).expect("an ELF")
}

/// A plan of which every function was checked, and what the checker said of those that it refused.
pub fn checked(image: &Image, lifted: &Lifted, options: PlanOptions<'_>) -> (Plan, Vec<String>) {
    let rejected = Mutex::new(Vec::new());
    let plan = plan_checked_by(image, lifted, options, || {
        let mut checker = Checker::new(image);
        let rejected = &rejected;
        move |claim, context| {
            checker.check(claim, context).inspect_err(|error| {
                let mut rejected = rejected.lock().expect("no panic before");
                rejected.push(format!("{}: {error}", claim.function.entry));
            })
        }
    });
    (plan, rejected.into_inner().expect("no panic before"))
}

/// Some function for each call or jump through a pointer.
pub fn targets(lifted: &Lifted) -> HashMap<LinkAddr, LinkAddr> {
    let functions = &lifted.functions;
    let calls = functions.iter().flat_map(|f| f.insns.iter().zip(&f.facts)).filter(|(i, facts)| {
        matches!(facts.flow(i), fettle_isa::Flow::IndirectCall | fettle_isa::Flow::IndirectJump)
    });
    let target = |n: usize| functions[n * 7 % functions.len()].entry;
    calls.enumerate().map(|(n, (insn, _))| (LinkAddr(insn.ip()), target(n))).collect()
}

/// Probes that are called, and that are inlined with registers to save.
static OWN: LazyLock<[UserProbe; 2]> = LazyLock::new(|| {
    // inc qword [rdi]; mov rax, [rsi+8]; add [rdi+8], rax; ret
    let line = [0x48, 0xff, 0x07, 0x48, 0x8b, 0x46, 8, 0x48, 0x01, 0x47, 8, 0xc3, 0x90, 0x90];
    // mov rcx, [rsi+48]; mov [rdi+16], rcx; ret
    let result = [0x48, 0x8b, 0x4e, 48, 0x48, 0x89, 0x4f, 16, 0xc3];
    // test rdi, rdi; je $+2; ret
    let called = [0x48, 0x85, 0xff, 0x74, 0, 0xc3];
    let code = [line.as_slice(), &result, &called].concat();
    let calls = (line.len() + result.len()) as u32;
    let in_line =
        fettle_rewrite::user_probe::compiled(code.clone(), Some(0), Some(line.len() as u32));
    assert!(in_line.enter.as_ref().is_some_and(|f| f.inline.is_some()));
    assert!(in_line.leave.as_ref().is_some_and(|f| f.inline.is_some()));
    let by_call = fettle_rewrite::user_probe::compiled(code, Some(calls), Some(calls));
    assert!(by_call.enter.as_ref().is_some_and(|f| f.inline.is_none()));
    [in_line, by_call]
});

/// What `probing` is, in a few words.
pub fn describe(probing: &Probing<'_>) -> String {
    let Probing { mode, depth, arguments, user_probe } = probing;
    let user_probe = user_probe.is_some();
    format!(
        "{mode:?}, depth {}, {} functions with arguments, user probe: {user_probe}",
        depth.limit(),
        arguments.len()
    )
}

/// Binaries that one or the other distribution has: C, C++, Rust and hand-written code; with and
/// without position independence; of Microsoft's ABI.
pub const BINARIES: [&str; 25] = [
    "/bin/bash",
    "/bin/tar",
    "/bin/ls",
    "/usr/bin/perl",
    "/usr/bin/python3.11",
    "/usr/bin/openssl",
    "/usr/bin/find",
    "/usr/bin/gawk",
    "/usr/bin/mawk",
    "/usr/bin/sed",
    "/usr/bin/make",
    "/usr/bin/ssh",
    "/usr/bin/curl",
    "/usr/bin/gpg",
    "/usr/bin/as",
    "/usr/bin/objdump",
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/lib/x86_64-linux-gnu/libm.so.6",
    "/lib64/ld-linux-x86-64.so.2",
    "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    "/lib/x86_64-linux-gnu/libgcc_s.so.1",
    "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
    "/usr/lib/x86_64-linux-gnu/libsqlite3.so.0",
    "/usr/lib/x86_64-linux-gnu/libgmp.so.10",
    "/usr/lib/x86_64-linux-gnu/wine/x86_64-unix/ntdll.so",
];

/// A lifted binary; `None` if this machine does not have it.
pub fn open(path: &str) -> Option<(Image, Lifted)> {
    let image = Image::parse(std::fs::read(path).ok()?).expect("a binary of the system");
    let lifted = fettle_lift::lift(&image);
    Some((image, lifted))
}
