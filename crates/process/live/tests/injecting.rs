//! Injections are made whole or not at all, wherever the process lives.

mod common;
use std::cell::RefCell;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use common::*;
use fettle_live::*;
use fettle_types::{Pid, Tid};

fn is_root() -> bool {
    // SAFETY: cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// What a process looked like before its injection: its mappings and its first instructions.
struct Before {
    maps: String,
    at: LiveAddr,
    code: Vec<u8>,
}

/// Looks at the process again when its injection has failed, before it runs.
struct Checked {
    recorder: Recorder,
    before: Rc<RefCell<Option<Before>>>,
}

impl Session for Checked {
    fn exec(&mut self, stop: &ExecStop<'_>) -> Option<Injection> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", stop.pid)).unwrap();
        let code = stop.read(stop.instruction, 64).unwrap();
        *self.before.borrow_mut() = Some(Before { maps, at: stop.instruction, code });
        self.recorder.exec(stop)
    }

    fn injected(&mut self, pid: Pid, result: Result<(), LiveError>) {
        let before = self.before.borrow_mut().take().unwrap();
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        assert_eq!(maps, before.maps);
        let memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
        let mut code = vec![0; before.code.len()];
        memory.read_exact_at(&mut code, before.at.0).unwrap();
        assert_eq!(code, before.code);
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let mut files = descriptors.filter_map(|entry| entry.unwrap().path().read_link().ok());
        assert!(!files.any(|path| path.to_string_lossy().contains("memfd")));
        self.recorder.injected(pid, result);
    }

    fn born(&mut self, parent: Option<Tid>, pid: Pid, tid: Tid, birth: Birth) -> Option<u64> {
        self.recorder.born(parent, pid, tid, birth)
    }

    fn thread_exit(&mut self, pid: Pid, tid: Tid) {
        self.recorder.thread_exit(pid, tid);
    }

    fn process_exit(&mut self, pid: Pid, status: ExitStatus, cpu: Duration) {
        self.recorder.process_exit(pid, status, cpu);
    }

    fn tick(&mut self) {
        self.recorder.tick();
    }
}

/// Spoils an injection in one way.
type Spoil = fn(&ExecStop<'_>, &mut Injection);

#[test]
fn a_failure_reverts_all() {
    fn on_the_stack(stop: &ExecStop<'_>, injection: &Injection) -> FileMap {
        let addr = LiveAddr(stop.stack.0 & !(PAGE - 1));
        FileMap { addr, ..injection.maps[0].clone() }
    }
    let ways: [(&str, Spoil); 5] = [
        ("map one of our files", |stop, injection| {
            injection.maps.push(on_the_stack(stop, injection));
        }),
        ("map one of our files", |stop, injection| {
            injection.maps.insert(1, on_the_stack(stop, injection));
        }),
        ("read 3 bytes", |_, injection| {
            injection.writes.push((LiveAddr(0x7000_0000_0000), vec![1, 2, 3]));
        }),
        ("not page-aligned", |_, injection| {
            let addr = LiveAddr(0x3000_0000_0001);
            injection.maps.push(FileMap { addr, ..injection.maps[0].clone() });
        }),
        ("map one of our files", |_, injection| {
            // A file that may not be mapped: a directory.
            let fd = Arc::new(std::fs::File::open("/").unwrap().into());
            let addr = LiveAddr(0x3000_0000_0000);
            injection.maps.push(FileMap { fd, addr, ..injection.maps[0].clone() });
        }),
    ];
    for (message, spoil) in ways {
        let counter = memfd(&[0; PAGE as usize]);
        let recorder = Recorder::new(move |stop| {
            let mut injection = counting_injection(stop, &counter);
            spoil(stop, &mut injection);
            Some(injection)
        });
        let mut checked = Checked { recorder, before: Rc::default() };
        let status = run(&launch("/bin/true", &[]), &mut checked, options(WaitFor::All)).unwrap();
        assert_eq!(status, ExitStatus::Code(0));
        let errors = checked.recorder.errors();
        assert!(errors.len() == 1 && errors[0].contains(message), "{message}: {errors:?}");
        checked.recorder.assert_lives_are_whole();
    }
}

#[test]
fn many_files_and_large_ones() {
    let mut recorder = Recorder::new(|stop| {
        let content: Vec<u8> = (0..16 * PAGE).map(|at| (at / PAGE) as u8).collect();
        let maps = (0..40)
            .map(|index| FileMap {
                fd: memfd(&content),
                offset: (index % 4) * PAGE,
                len: 8 * PAGE,
                addr: LiveAddr(CODE + index * 0x10_0000),
                prot: Prot { read: true, write: index % 2 == 0, exec: index % 2 == 1 },
                shared: index % 3 == 0,
                dont_dump: index % 5 == 0,
            })
            .collect();
        let writes =
            (0..20_000).map(|index| (LiveAddr(CODE + 4 + index % 8191), vec![7])).collect();
        assert!(stop.read(LiveAddr(CODE), 1).is_err());
        Some(Injection { maps, writes, ..Injection::default() })
    });
    let status = run(&launch("/bin/true", &[]), &mut recorder, options(WaitFor::All)).unwrap();
    assert_eq!(status, ExitStatus::Code(0));
    assert_eq!(recorder.errors(), Vec::<String>::new());
}

#[test]
fn the_auxiliary_vector_is_believed() {
    // A copy of the program headers elsewhere, with one more of an unknown type.
    let source = temporary("phdr.c");
    std::fs::write(
        &source,
        "#include <stdio.h>\n#include <sys/auxv.h>\nint main(int c, char **v) {\n\
         FILE *f = fopen(v[1], \"w\");\n\
         fprintf(f, \"%lx %lu\", getauxval(AT_PHDR), getauxval(AT_PHNUM)); return fclose(f); }",
    )
    .unwrap();
    let binary = temporary("phdr");
    // Without a fixed base the loader computes it from the headers' address, so: a fixed one.
    let compiled =
        Command::new("cc").args(["-no-pie", "-o"]).arg(&binary).arg(&source).status().unwrap();
    assert!(compiled.success());
    let mut recorder = Recorder::new(|stop| {
        let mut headers = stop.read(stop.auxv.phdr, stop.auxv.phnum as usize * 56).unwrap();
        let mut more = [0; 56];
        more[0..4].copy_from_slice(&0x6fff_1234u32.to_le_bytes());
        headers.extend(more);
        let map = FileMap {
            fd: memfd(&headers),
            offset: 0,
            len: PAGE,
            addr: LiveAddr(DATA),
            prot: Prot { read: true, write: false, exec: false },
            shared: false,
            dont_dump: false,
        };
        let phdr = Some((LiveAddr(DATA), stop.auxv.phnum + 1));
        // PT_PHDR names the old address; without it the loader does not relocate by it.
        let mut injection = Injection { maps: vec![map], phdr, ..Injection::default() };
        for index in 0..stop.auxv.phnum as usize {
            if headers[index * 56..][..4] == 6u32.to_le_bytes() {
                let at = DATA + index as u64 * 56 + 16;
                injection.writes.push((LiveAddr(at), DATA.to_le_bytes().to_vec()));
            }
        }
        Some(injection)
    });
    let file = temporary("phdr.out");
    let args = [file.to_str().unwrap()];
    let status = run(&launch(&binary, &args), &mut recorder, options(WaitFor::All)).unwrap();
    assert_eq!((status, recorder.errors()), (ExitStatus::Code(0), vec![]));
    let text = std::fs::read_to_string(file).unwrap();
    let (address, count) = text.split_once(' ').unwrap();
    assert_eq!(u64::from_str_radix(address, 16).unwrap(), DATA);
    assert!(count.parse::<u64>().unwrap() > 5);
}

/// Runs a command whose last program lives elsewhere, and is counted there all the same.
fn elsewhere(command: &str, programs: u64) {
    let (mut recorder, counter) = counting_recorder();
    let launch = launch("/bin/sh", &["-c", command]);
    let status = run(&launch, &mut recorder, options(WaitFor::All)).unwrap();
    assert_eq!(recorder.errors(), Vec::<String>::new(), "{command}");
    assert_eq!(status, ExitStatus::Code(0), "{command}");
    assert_eq!(counts(&counter), (programs, programs), "{command}");
}

#[test]
fn in_other_namespaces_and_as_other_users() {
    if !is_root() {
        return eprintln!("not root: not tested");
    }
    elsewhere("exec setpriv --reuid=65534 --regid=65534 --clear-groups /bin/true", 3);
    elsewhere("exec setpriv --reuid=65534 --bounding-set=-all /bin/true", 3);
    elsewhere("exec unshare --pid --fork --mount-proc /bin/sh -c '/bin/true; /bin/true'", 5);
    elsewhere("exec unshare --mount /bin/sh -c 'umount -l /proc; exec /bin/true'", 5);
    elsewhere("exec unshare --net --ipc --uts /bin/true", 3);
}

#[test]
fn under_another_root() {
    let busybox = std::path::Path::new("/usr/bin/busybox");
    if !is_root() || !busybox.exists() {
        return eprintln!("not root, or no busybox: not tested");
    }
    let root = temporary("root");
    std::fs::create_dir(&root).unwrap();
    copy_file(busybox, &root.join("busybox"));
    let root = root.display();
    elsewhere(&format!("exec chroot {root} /busybox sh -c 'exec /busybox true'"), 4);
}

#[test]
fn under_a_seccomp_filter() {
    let confined = program("confined");
    for mode in ["soft", "hard"] {
        // As root the filter is suspended meanwhile.
        if is_root() {
            elsewhere(&format!("exec {} {mode} /bin/true", confined.display()), 3);
        }
    }
    if !is_root() {
        return eprintln!("not root: not tested any further");
    }
    // As a user it cannot be; the program runs without us, and is not killed.
    let copy = temporary("follow-confined");
    copy_file(follow(), &copy);
    let log = std::env::temp_dir().join(format!("fettle-confined-{}", std::process::id()));
    let status = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&copy)
        .arg(&confined)
        .args(["hard", "/bin/true"])
        .env("FOLLOW_LOG", &log)
        .current_dir("/")
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(0));
    let text = std::fs::read_to_string(&log).unwrap();
    std::fs::remove_file(&log).unwrap();
    assert!(text.contains("1 seccomp filter(s) of its own"), "{text}");
    assert!(text.contains("counts (1, 1)"), "{text}");
    // A filter that we live under ourselves is the same for both, and lets us do it.
    let status = Command::new(&confined).arg("soft").arg("/bin/true").status().unwrap();
    assert!(status.success());
}

#[test]
fn pending_and_blocked_signals_survive() {
    // A timer that runs through exec, a blocked and pending signal, an ignored one.
    let script = r#"
import os, signal, sys
signal.signal(signal.SIGALRM, signal.SIG_IGN)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGURG])
os.kill(os.getpid(), signal.SIGUSR1)
os.execv(sys.argv[1], sys.argv[1:])
"#;
    let run_it = |traced: bool| {
        let mut command = if traced {
            let mut command = Command::new(follow());
            command.arg("python3");
            command
        } else {
            Command::new("python3")
        };
        command.arg("-c").arg(script).arg(program("state"));
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let plain = run_it(false);
    assert!(plain.contains("signal 10 blocked\nsignal 10 pending"), "{plain}");
    for _ in 0..10 {
        assert_eq!(run_it(true), plain);
    }
}
