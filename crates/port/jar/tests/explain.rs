//! What `--explain` says is what is in the class files: `javap` reads the same instructions there.

mod common;

use std::process::Command;

use common::{LITTLE, MISSING, compile, output, translated};
use fettle_jar::{Image, Options, explain, translate};

/// Places and names of instructions: lines with a number, a colon or space, and a name.
fn instructions(line: &str) -> Option<(usize, String)> {
    let (place, rest) = line.trim().split_once([':', ' '])?;
    let name = rest.split_whitespace().next()?;
    Some((place.parse().ok()?, name.to_owned()))
}

#[test]
fn the_bytecode_is_what_java_reads() {
    if let Some(reason) = &*MISSING {
        eprintln!("skipped: {reason}");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compile(&LITTLE, "control.c", &["-O2", "-g"], folder.path());
    let jar = folder.path().join("program.jar");
    std::fs::write(&jar, translated(&program)).expect("the folder is writable");
    let class = "fettle.program.control_c";
    let read = output(Command::new("javap").args(["-c", "-cp"]).arg(&jar).arg(class));
    let read = String::from_utf8(read.stdout).expect("names are plain");
    let mut compared = 0;
    let bytes = std::fs::read(&program).expect("the compiler wrote it");
    let image = Image::parse(&bytes).expect("a static program");
    for method in read.split("\n\n") {
        let Some((head, code)) = method.split_once("Code:\n") else { continue };
        let code = code.split("Exception table:").next().unwrap_or(code);
        let name = head.split('(').next().and_then(|head| head.split(' ').next_back());
        let name = name.expect("a method has a name");
        // Lines of switches have a number and a colon, too, and are no instructions.
        let java: Vec<(usize, String)> = code
            .lines()
            .filter(|line| line.len() < 12 || !line.starts_with("            "))
            .filter_map(instructions)
            .collect();
        let text = explain(&image, name).expect("it can be translated").expect("it is there");
        let listed = text.split(&format!("\nmethod {name}\n")).nth(1).expect("its bytecode");
        let listed: Vec<(usize, String)> =
            listed.lines().filter_map(|line| instructions(line.get(44..)?)).collect();
        assert!(java.len() > 1, "{method}");
        let different = listed.iter().zip(&java).find(|(ours, theirs)| ours != theirs);
        assert!(different.is_none() && listed.len() == java.len(), "{name}: {different:?}");
        compared += java.len();
    }
    assert!(compared > 300, "{compared}");
}

#[test]
fn the_report_names_every_function_of_several_methods() {
    if let Some(reason) = &*MISSING {
        eprintln!("skipped: {reason}");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compile(&LITTLE, "hello.c", &["-O2"], folder.path());
    let bytes = std::fs::read(&program).expect("the compiler wrote it");
    let image = Image::parse(&bytes).expect("a static program");
    let made = translate(&image, &Options::default()).expect("every function can be translated");
    let mut javap = Command::new("javap");
    javap.arg("-p");
    for (number, class) in made.classes.values().enumerate() {
        let path = folder.path().join(format!("{number}.class"));
        std::fs::write(&path, class).expect("the folder is writable");
        javap.arg(path);
    }
    let methods = String::from_utf8(output(&mut javap).stdout).expect("names are plain");
    let divided = methods.matches("$part0(").count();
    assert!(divided > 1, "{methods}");
    assert_eq!(made.summary.split.len(), divided, "{:?}", made.summary.split);
}
