//! Libraries: a Java interface that is made of the prototypes of C.

mod common;

use std::path::Path;
use std::process::Command;

use common::{BIG, BOARD, LITTLE, LOW, MISSING, RISCV_MISSING, compile, compile_riscv, output};
use fettle_jar::{Capacity, Error, Image, Interface, Options, Output, translate, write};

const EXPORTS: [&str; 17] = [
    "sum",
    "twice",
    "greet",
    "move_point",
    "norm",
    "swapped",
    "wide",
    "odd",
    "each",
    "bound",
    "doubled",
    "count",
    "spin",
    "push",
    "sum_of",
    "counting",
    "counted",
];

fn options(exports: &[&str]) -> Options {
    let doubled = Output {
        function: "doubled".into(),
        parameters: ["dest".into(), "destLen".into()],
        capacity: Capacity::Call("bound".into(), vec!["sourceLen".into()]),
    };
    let outputs = if exports.contains(&"doubled") { vec![doubled] } else { Vec::new() };
    Options {
        package: "org.acme".into(),
        exports: exports.iter().map(|&name| name.to_owned()).collect(),
        interface: Some(Interface { name: "org.acme.Lib".into(), outputs }),
        interruptible: true,
        ..Options::default()
    }
}

const EXPECTED: &str = "\
6 0
[3.0, 4.0]
hello you
Point[x=5, y=5.0, label=moved] true 10.0
Pair[a=4464, b=3]
3298534883328 true
298
bbccdd
7 2
doubled returned -2
1 2 1
the guest ended: guest exit status 152
the guest ended: guest exit status 143
";

/// The functions of `arguments.c`.
const ARGUMENTS: [&str; 17] = [
    "many",
    "floats",
    "seventh",
    "turned",
    "halved",
    "grown",
    "negated",
    "exchanged",
    "squared",
    "rotated",
    "shifted",
    "crowded",
    "visited",
    "rounded",
    "doubled_by",
    "during",
    "unsigned_bytes",
];

const PASSED: &str = "\
2.14748364966E11
515.5
-342497872043252
Vector[x=-2.0, y=1.5]
Single[f=2.5]
Mixed[d=4.5, i=10]
Small[s=-300, f=-0.5]
Two[a=-2, b=1]
Wide[a=1099511627776]
Three[a=2, b=3, c=1]
Bytes[a=3, b=1, c=-2]
1234.5
0 2.5 1099511627776 0.25 5 6 7 8 -9 10.0 eleven
1 2.5 1099511627776 0.25 5 6 7 8 -9 10.0 eleven
2.0
6.0
68719476736
6
50200
";

#[test]
fn every_kind_of_parameter() {
    if let Some(reason) = &*MISSING {
        eprintln!("skipped: {reason}");
        return;
    }
    for (machine, flags) in [(LITTLE, ["-O2", "-g"]), (BIG, ["-O0", "-gdwarf-4"])] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let program = compile(&machine, "interface.c", &flags, folder.path());
        assert_eq!(said(&program, &options(&EXPORTS), "Interface"), EXPECTED, "{flags:?}");
        let program = compile(&machine, "arguments.c", &flags, folder.path());
        assert_eq!(said(&program, &options(&ARGUMENTS), "Arguments"), PASSED, "{flags:?}");
    }
}

/// What a class says that calls a library.
fn said(program: &Path, options: &Options, class: &str) -> String {
    let bytes = std::fs::read(program).expect("the compiler wrote it");
    let image = Image::parse(&bytes).expect("a static program");
    let translated = translate(&image, options).expect("it can be translated");
    let jar = program.with_extension("jar");
    std::fs::write(&jar, write(&image, &translated).expect("there is a runtime"))
        .expect("the folder is writable");
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/java");
    let here = here.join(class).with_extension("java");
    let got = output(Command::new("java").arg("-Xverify:all").arg("-cp").arg(&jar).arg(&here));
    eprintln!("{}", String::from_utf8_lossy(&got.stderr));
    String::from_utf8_lossy(&got.stdout).into_owned()
}

/// Every calling convention of RISC-V, below and above 2 GB.
#[test]
fn risc_v() {
    if let Some(reason) = &*RISCV_MISSING {
        eprintln!("skipped: {reason}");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = folder.path().join("program");
    for (isa, place) in [
        (["-march=rv32imac", "-mabi=ilp32"], BOARD),
        (["-march=rv32imafc", "-mabi=ilp32f"], LOW),
        (["-march=rv32imafdc", "-mabi=ilp32d"], BOARD),
    ] {
        for level in ["-O2", "-O0"] {
            let flags = [level, "-g", "-Wl,--no-gc-sections,-u,malloc,-u,free"];
            compile_riscv("interface.c", isa, &flags, place, &program);
            assert_eq!(said(&program, &options(&EXPORTS), "Interface"), EXPECTED, "{isa:?}");
            compile_riscv("arguments.c", isa, &flags, place, &program);
            assert_eq!(said(&program, &options(&ARGUMENTS), "Arguments"), PASSED, "{isa:?}");
        }
    }
    let few = ["-march=rv32emac", "-mabi=ilp32e"];
    compile_riscv("interface.c", few, &["-g"], LOW, &program);
    let bytes = std::fs::read(&program).expect("the compiler wrote it");
    let image = Image::parse(&bytes).expect("a static program");
    let refused = translate(&image, &options(&EXPORTS));
    assert!(matches!(refused, Err(Error::Embedded)), "eight registers were taken for granted");
}

#[test]
fn what_cannot_be_a_method() {
    if let Some(reason) = &*MISSING {
        eprintln!("skipped: {reason}");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compile(&LITTLE, "interface.c", &["-O2", "-g"], folder.path());
    let bytes = std::fs::read(&program).expect("the compiler wrote it");
    let image = Image::parse(&bytes).expect("a static program");
    for (function, reason) in [
        ("absent", "no function named absent"),
        ("snprintf", "any number of arguments"),
        ("strlen", "compile it with -g"),
    ] {
        let Err(error) = translate(&image, &options(&[function])) else {
            panic!("{function} became a method");
        };
        assert!(error.to_string().contains(reason), "{error}");
    }
}
