//! What is started, and what is said when it cannot be.

mod common;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::*;
use fettle_live::*;

fn start(launch: &Launch) -> Result<ExitStatus, LiveError> {
    let (mut recorder, _) = counting_recorder();
    let result = run(launch, &mut recorder, options(WaitFor::All));
    if result.is_ok() {
        recorder.assert_lives_are_whole();
    } else {
        assert_eq!(recorder.events, [], "no program, no events");
    }
    result
}

/// A file that this process never has open for writing: a test that forks at the same time would
/// inherit the descriptor, and a file that is open for writing cannot be executed. So another
/// process writes it.
fn file(name: &str, content: &[u8], mode: u32) -> PathBuf {
    let path = temporary(name);
    let mut tee = Command::new("tee");
    let tee = tee.arg(&path).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
    let mut tee = tee.unwrap();
    tee.stdin.take().unwrap().write_all(content).unwrap();
    assert!(tee.wait().unwrap().success());
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

#[test]
fn nothing_there() {
    for program in ["/nowhere/at/all", "no-such-program-anywhere", ""] {
        let error = start(&launch(program, &[])).unwrap_err();
        assert!(matches!(error, LiveError::NotFound { .. }), "{program}: {error}");
    }
}

#[test]
fn not_executable() {
    for path in [file("plain", b"#!/bin/sh\n", 0o644), PathBuf::from("/tmp")] {
        let error = start(&launch(&path, &[])).unwrap_err();
        assert!(matches!(&error, LiveError::NotExecutable { path: at } if *at == path), "{error}");
    }
}

#[test]
fn of_another_format() {
    let path = file("format", b"\x7fELF\0\0\0\0rubbish", 0o755);
    let error = start(&launch(&path, &[])).unwrap_err();
    assert!(matches!(error, LiveError::Format { .. }), "{error}");
}

#[test]
fn missing_interpreter() {
    let path = file("interpreter", b"#!/nowhere/sh\n", 0o755);
    let error = start(&launch(&path, &[])).unwrap_err();
    assert!(matches!(error, LiveError::Interpreter { .. }), "{error}");
}

#[test]
fn missing_directory() {
    let mut launch = launch("true", &[]);
    launch.cwd = Some("/nowhere".into());
    let error = start(&launch).unwrap_err();
    assert!(matches!(error, LiveError::WorkingDirectory { .. }), "{error}");
}

#[test]
fn scripts() {
    let path = file("script", b"#!/bin/sh\nexit $1\n", 0o755);
    assert_eq!(start(&launch(&path, &["7"])).unwrap(), ExitStatus::Code(7));
    let path = file("bare", b"exit $1\n", 0o755);
    assert_eq!(start(&launch(&path, &["8"])).unwrap(), ExitStatus::Code(8));
}

#[test]
fn path_and_environment_and_directory() {
    let script = file("fettle-test-program", b"#!/bin/sh\n[ \"$A\" = b ] && exit 9\n", 0o755);
    let directory = script.parent().unwrap();
    let hidden = directory.join("hidden");
    fs::create_dir(&hidden).unwrap();
    file("hidden/fettle-test-program", b"not executable", 0o644);
    let mut launch = launch("fettle-test-program", &[]);
    let path = format!("/nowhere:{}:{}", hidden.display(), directory.display());
    launch.env = Some(vec![("A".into(), "b".into()), ("PATH".into(), path.into())]);
    assert_eq!(start(&launch).unwrap(), ExitStatus::Code(9));

    let mut member = common::launch("./fettle-test-program", &[]);
    member.cwd = Some(directory.to_owned());
    member.env = Some(vec![("A".into(), "b".into())]);
    assert_eq!(start(&member).unwrap(), ExitStatus::Code(9));
}

#[test]
fn set_user_id_needs_root() {
    // SAFETY: cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("not root: not tested");
    }
    let path = temporary("setuid");
    copy_file("/bin/true", &path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
    assert_eq!(start(&launch(&path, &[])).unwrap(), ExitStatus::Code(0));

    let copy = temporary("follow");
    copy_file(follow(), &copy);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy).arg(&path);
    let output = command.current_dir("/").output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("set-user-ID"), "{output:?}");

    // Started by another program it runs with its privileges, untraced, and is reported: executed in a
    // process of its own, in the place of the launched one, by a relative path, as an interpreter, by a
    // path that no longer is its file's.
    let id = temporary("id");
    copy_file("/usr/bin/id", &id);
    fs::set_permissions(&id, fs::Permissions::from_mode(0o6755)).unwrap();
    let id = id.display().to_string();
    let (folder, name) = id.rsplit_once('/').unwrap();
    let interpreted = file("interpreted", format!("#!{id} -u\n").as_bytes(), 0o755);
    let log = temporary("setuid-log");
    fs::write(&log, "").unwrap();
    fs::set_permissions(&log, fs::Permissions::from_mode(0o666)).unwrap();
    let plain = "65534 65534 65534\n";
    let scripts = [
        (
            format!("a=$({id} -u) b=$({id} -g) c=$({id} -ru); echo $a $b $c; exit 3"),
            "0 0 65534\n",
            3,
            3,
        ),
        (format!("exec {id} -u"), "0\n", 0, 1),
        (format!("cd {folder}; A='x y' exec ./{name} -u"), "0\n", 0, 1),
        (format!("cd /; exec {id} --no-such-option 2>/dev/null"), "", 1, 1),
        (format!("exec setpriv --no-new-privs {id} -u"), "65534\n", 0, 0),
        (format!("exec {}", interpreted.display()), "", 1, 1),
        ("a=$(id -u) b=$(id -g) c=$(id -ru); echo $a $b $c; exit 4".to_owned(), plain, 4, 0),
    ];
    for (script, said, status, times) in scripts {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&copy)
            .arg("/bin/sh");
        command.arg("-c").arg(&script).env("FOLLOW_LOG", &log).current_dir("/");
        let output = command.output().unwrap();
        let text = fs::read_to_string(&log).unwrap();
        assert_eq!(output.status.code(), Some(status), "{script}: {output:?} {text}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), said, "{script}: {text}");
        assert_eq!(text.matches("SetuidExec").count(), times, "{script}: {text}");
    }
    fs::remove_file(&log).unwrap();
}

#[test]
fn executable_but_not_readable() {
    // SAFETY: cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("not root: not tested");
    }
    let path = temporary("secret");
    copy_file(program("state"), &path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o711)).unwrap();
    let copy = temporary("follow-secret");
    copy_file(follow(), &copy);
    let log = std::env::temp_dir().join(format!("fettle-secret-{}", std::process::id()));
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy).arg(&path);
    command.env("FOLLOW_LOG", &log).current_dir("/");
    assert_eq!(command.status().unwrap().code(), Some(0));
    let text = fs::read_to_string(&log).unwrap();
    fs::remove_file(&log).unwrap();
    assert!(text.contains("could not open the memory"), "{text}");
    assert!(text.contains("counts (0, 0)"), "{text}");
}

#[test]
fn narrow_programs_run_untouched() {
    // An i386 program that exits with 42:
    //   b8 01000000  mov eax, 1; bb 2a000000  mov ebx, 42; cd 80  int 0x80
    let mut elf = vec![0x7f, b'E', b'L', b'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    elf.extend([2, 0, 3, 0, 1, 0, 0, 0]); // executable, i386
    for word in [0x0804_8054u32, 52, 0, 0] {
        elf.extend(word.to_le_bytes()); // entry, program headers, no sections, flags
    }
    for half in [52u16, 32, 1, 0, 0, 0] {
        elf.extend(half.to_le_bytes());
    }
    for word in [1u32, 0, 0x0804_8000, 0x0804_8000, 96, 96, 5, 0x1000] {
        elf.extend(word.to_le_bytes());
    }
    elf.extend([0xb8, 1, 0, 0, 0, 0xbb, 42, 0, 0, 0, 0xcd, 0x80]);
    let path = file("narrow", &elf, 0o755);
    if Command::new(&path).status().map(|status| status.code()).ok() != Some(Some(42)) {
        return eprintln!("no 32-bit programs here: not tested");
    }
    let counter = memfd(&[0; PAGE as usize]);
    let mut recorder = Recorder::new(move |stop| {
        assert!(stop.compat);
        assert_eq!(stop.auxv.entry, LiveAddr(0x0804_8054));
        Some(counting_injection(stop, &counter))
    });
    let status = run(&launch(&path, &[]), &mut recorder, options(WaitFor::All)).unwrap();
    assert_eq!(status, ExitStatus::Code(42));
    assert_eq!(recorder.errors().len(), 1);
    assert!(recorder.errors()[0].contains("32-bit"), "{:?}", recorder.errors());
}

#[test]
fn a_program_that_is_traced_already() {
    let output = Command::new(follow()).arg(follow()).arg("/bin/true").output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not allowed to trace"));
}

#[test]
fn broken_pipes_end_programs_as_they_do_without_us() {
    // `follow` is a Rust program, whose runtime ignores SIGPIPE for itself.
    let state = program("state");
    for trap in ["", "trap '' PIPE; "] {
        let plain = format!("{trap}{}", state.display());
        let traced = format!("{trap}{} {}", follow().display(), state.display());
        let output =
            |script: &str| Command::new("sh").args(["-c", script]).output().unwrap().stdout;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let (plain, traced) = (text(output(&plain)), text(output(&traced)));
        assert_eq!(plain, traced);
        assert_eq!(plain.contains("signal 13 ignored 1"), !trap.is_empty(), "{plain}");
    }
}
