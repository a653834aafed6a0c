//! Calling conventions outside the ABI: registers and flags as arguments, as results and kept, by
//! direct calls, through pointers, by jumps, and across libraries. Programs are generated, run plain
//! and in every mode, and must print the same. `FETTLE_SEED` gives another order and other constants,
//! `FETTLE_CALLS` more calls.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

const REGISTERS: [&str; 9] = ["rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11"];
/// How a condition is asked for: carry, zero, sign, overflow, parity.
const FLAGS: [&str; 5] = ["b", "e", "s", "o", "p"];
const VECTORS: usize = 16;
const MODES: [&str; 7] = ["count", "time", "events", "sample", "cpu", "blocks", "edges"];

/// What carries a value.
#[derive(Clone, Copy)]
enum Carrier {
    Register(&'static str),
    Flag(&'static str),
    Vector(usize),
}

/// Which way it goes.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Argument,
    Result,
    /// The callee saves and restores it.
    Kept,
}

/// How the callee is reached.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Direct,
    Pointer,
    Table,
    Jump,
    JumpThroughPointer,
    Library,
    JumpToLibrary,
}

const WAYS: [Way; 7] = [
    Way::Direct,
    Way::Pointer,
    Way::Table,
    Way::Jump,
    Way::JumpThroughPointer,
    Way::Library,
    Way::JumpToLibrary,
];

/// Numbers that look random, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % n
    }
}

/// The text of a program and of its library.
#[derive(Default)]
struct Source {
    program: String,
    library: String,
    data: String,
    cases: usize,
}

fn function(text: &mut String, name: &str, body: &str) {
    writeln!(
        text,
        ".p2align 4\n.globl {name}\n.type {name},@function\n{name}: .cfi_startproc\n{body}\n\
         .cfi_endproc\n.size {name},.-{name}"
    )
    .unwrap();
}

/// What the callee does: it answers in `rax` what it was passed, or by the carrier what is in `rdi`.
fn callee(carrier: Carrier, role: Role, k: u64) -> String {
    // No callee is too small for a jump at its entry.
    let room = "nopl 0(%rax,%rax,1)";
    match (carrier, role) {
        (Carrier::Register(r), Role::Argument) => format!("lea {k}(%{r}),%rax\n{room}\nret"),
        (Carrier::Register(r), Role::Result) => format!("lea {k}(%rdi),%{r}\n{room}\nret"),
        (Carrier::Register(r), Role::Kept) => {
            format!("push %{r}\nmov ${k},%{r}\n{room}\npop %{r}\nret")
        }
        (Carrier::Flag(f), Role::Argument) => format!("set{f} %al\nmovzbl %al,%eax\nret"),
        (Carrier::Flag(_), _) => format!("{room}\ncmp ${k},%rdi\nret"),
        (Carrier::Vector(v), Role::Argument) => format!("movq %xmm{v},%rax\n{room}\nret"),
        (Carrier::Vector(v), _) => format!("movq %rdi,%xmm{v}\n{room}\nret"),
    }
}

/// What its caller does before the call and behind it; `rbx` holds a number.
fn caller(carrier: Carrier, role: Role, k: u64) -> (String, String) {
    let nothing = String::new;
    match (carrier, role) {
        (Carrier::Register(r), Role::Argument) => (format!("lea {k}(%rbx),%{r}"), nothing()),
        (Carrier::Register(r), Role::Result) => ("mov %rbx,%rdi".into(), format!("mov %{r},%rax")),
        (Carrier::Register(r), Role::Kept) => {
            (format!("lea {k}(%rbx),%{r}"), format!("mov %{r},%rax"))
        }
        (Carrier::Flag(_), Role::Argument) => (format!("cmp ${k},%rbx"), nothing()),
        (Carrier::Flag(f), _) => ("mov %rbx,%rdi".into(), format!("set{f} %al\nmovzbl %al,%eax")),
        (Carrier::Vector(v), Role::Argument) => (format!("movq %rbx,%xmm{v}"), nothing()),
        (Carrier::Vector(v), _) => ("mov %rbx,%rdi".into(), format!("movq %xmm{v},%rax")),
    }
}

impl Source {
    fn add(&mut self, (carrier, role, way): (Carrier, Role, Way), k: u64) {
        let n = self.cases;
        self.cases += 1;
        let in_library = matches!(way, Way::Library | Way::JumpToLibrary);
        let code = callee(carrier, role, k);
        let text = if in_library { &mut self.library } else { &mut self.program };
        function(text, &format!("callee_{n}"), &code);
        let jump = match way {
            Way::Jump => Some(format!("jmp callee_{n}")),
            Way::JumpThroughPointer => Some(format!("jmp *pointer_{n}(%rip)")),
            Way::JumpToLibrary => Some(format!("jmp callee_{n}@PLT")),
            _ => None,
        };
        if let Some(jump) = &jump {
            function(&mut self.program, &format!("hop_{n}"), jump);
        }
        let call = match way {
            _ if jump.is_some() => format!("call hop_{n}"),
            Way::Pointer => format!("call *pointer_{n}(%rip)"),
            Way::Table => "call *8(%rbp)".into(),
            Way::Library => format!("call callee_{n}@PLT"),
            _ => format!("call callee_{n}"),
        };
        if matches!(way, Way::Pointer | Way::JumpThroughPointer) {
            writeln!(self.data, "pointer_{n}: .quad callee_{n}").unwrap();
        }
        if way == Way::Table {
            writeln!(self.data, "table_{n}: .quad case_{n},callee_{n}").unwrap();
        }
        let table = format!("lea table_{n}(%rip),%rbp");
        let table = if way == Way::Table { &table } else { "" };
        let (before, behind) = caller(carrier, role, k);
        let body = format!(
            "push %rbx\n.cfi_adjust_cfa_offset 8\npush %rbp\n.cfi_adjust_cfa_offset 8\n\
             sub $8,%rsp\n.cfi_adjust_cfa_offset 8\nmov %rdi,%rbx\n{table}\n{before}\n{call}\n\
             {behind}\nlea 8(%rsp),%rsp\n.cfi_adjust_cfa_offset -8\npop %rbp\n\
             .cfi_adjust_cfa_offset -8\npop %rbx\n.cfi_adjust_cfa_offset -8\nret"
        );
        function(&mut self.program, &format!("case_{n}"), &body);
    }

    /// All conventions, in an order by `seed`.
    fn new(seed: u64) -> Source {
        let mut random = Random(seed);
        let carriers = REGISTERS.map(Carrier::Register).into_iter();
        let carriers = carriers.chain(FLAGS.map(Carrier::Flag));
        let carriers = carriers.chain((0..VECTORS).map(Carrier::Vector));
        let mut all = Vec::new();
        for carrier in carriers {
            for role in [Role::Argument, Role::Result, Role::Kept] {
                // Only registers can be pushed.
                if role != Role::Kept || matches!(carrier, Carrier::Register(_)) {
                    all.extend(WAYS.map(|way| (carrier, role, way)));
                }
            }
        }
        let mut source = Source::default();
        while !all.is_empty() {
            let next = random.below(all.len() as u64) as usize;
            let k = random.below(100);
            source.add(all.swap_remove(next), k);
        }
        source
    }

    fn build(&self, folder: &Path) -> std::path::PathBuf {
        let end = ".section .note.GNU-stack,\"\",@progbits\n";
        let list: Vec<String> = (0..self.cases).map(|n| format!("case_{n}")).collect();
        let main = format!(
            "#include <stdio.h>\n#include <stdlib.h>\nlong {}(long);\nint main(int n, char **a) {{ \
             static long (*const cases[])(long) = {{ {} }}; long rounds = atol(a[1]); \
             for (int i = 0; i < {}; i++) {{ unsigned long sum = n; \
             for (long k = 0; k < rounds; k++) sum = sum * 31 + cases[i](k * 7 % 101); \
             printf(\"%d %lx\\n\", i, sum); }} }}",
            list.join("(long), "),
            list.join(", "),
            self.cases,
        );
        let write = |name: &str, text: String| std::fs::write(folder.join(name), text).unwrap();
        write("main.c", main);
        write("program.s", format!(".text\n{}.data\n{}{end}", self.program, self.data));
        write("library.s", format!(".text\n{}{end}", self.library));
        let cc = |arguments: &[&str]| {
            let built = Command::new("cc").current_dir(folder).args(arguments).status().unwrap();
            assert!(built.success(), "{arguments:?}");
        };
        cc(&["-shared", "library.s", "-o", "libcallees.so"]);
        // A lazy binding would change flags and `r11` itself.
        let link = ["-L.", "-lcallees", "-Wl,-rpath,$ORIGIN", "-Wl,-z,now", "-o", "conventions"];
        cc(&[&["-O1", "main.c", "program.s"][..], &link].concat());
        folder.join("conventions")
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn no_probe_changes_what_a_convention_needs() {
    let (seed, calls) = (number("FETTLE_SEED", 1), number("FETTLE_CALLS", 100_000));
    let folder = tempfile::tempdir().unwrap();
    let source = Source::new(seed);
    let rounds = (calls / source.cases as u64 / MODES.len() as u64).max(1).to_string();
    println!("seed {seed}: {} cases, {rounds} calls of each in each mode", source.cases);
    let program = source.build(folder.path());
    let plain = Command::new(&program).arg(&rounds).output().unwrap();
    assert!(plain.status.success());
    for mode in MODES {
        let trace = folder.path().join(mode);
        let mut record = Command::new(env!("CARGO_BIN_EXE_fettle"));
        record.env("XDG_CACHE_HOME", folder.path().join("cache"));
        record.args(["record", "--quiet", "--mode", mode, "--lib", "libcallees*", "--output"]);
        let output = record.arg(&trace).arg("--").arg(&program).arg(&rounds).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{mode}, seed {seed}: {said}");
        let lines = |bytes: &[u8]| -> Vec<String> {
            String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect()
        };
        let (plain, recorded) = (lines(&plain.stdout), lines(&output.stdout));
        let other: Vec<_> = plain.iter().zip(&recorded).filter(|(a, b)| a != b).collect();
        assert!(other.is_empty(), "{mode}, seed {seed}: {} cases: {other:?}", other.len());
        assert_eq!(plain.len(), recorded.len(), "{mode}, seed {seed}");
    }
}
