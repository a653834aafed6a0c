//! Libraries: a Java interface that is made of the prototypes of C.

mod common;

use std::path::Path;
use std::process::Command;

use common::{BIG, LITTLE, MISSING, compile, output};
use fettle_jar::{Capacity, Image, Interface, Options, Output, translate, write};

const EXPORTS: [&str; 13] = [
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
doubled returned -2
1 2 1
the guest ended: guest exit status 152
the guest ended: guest exit status 143
";

#[test]
fn every_kind_of_parameter() {
    if let Some(reason) = &*MISSING {
        eprintln!("skipped: {reason}");
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/java/Interface.java");
    for (machine, flags) in [(LITTLE, ["-O2", "-g"]), (BIG, ["-O0", "-gdwarf-4"])] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let program = compile(&machine, "interface.c", &flags, folder.path());
        let bytes = std::fs::read(&program).expect("the compiler wrote it");
        let image = Image::parse(&bytes).expect("a static program");
        let translated = translate(&image, &options(&EXPORTS)).expect("it can be translated");
        let jar = folder.path().join("lib.jar");
        std::fs::write(&jar, write(&image, &translated).expect("there is a runtime"))
            .expect("the folder is writable");
        let got = output(Command::new("java").arg("-Xverify:all").arg("-cp").arg(&jar).arg(&here));
        let told = String::from_utf8_lossy(&got.stderr);
        assert_eq!(String::from_utf8_lossy(&got.stdout), EXPECTED, "{flags:?} {told}");
    }
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
