//! What the tests share: a directory of sensors, producers in C and Rust, and the truth about what
//! they committed.
#![allow(dead_code)]

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use fettle_sensor::{Directory, Drained, List, Sensor};

/// Names the arguments of [`rust_producer`] to a copy of the test's own program.
const ROLE: &str = "FETTLE_TEST_PRODUCER";

/// Which producer to test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    C,
    Rust,
}

/// A fresh directory of sensors.
pub struct Bench {
    pub folder: tempfile::TempDir,
    pub directory: Directory,
}

impl Bench {
    pub fn new() -> Bench {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).unwrap();
        let sensors = folder.path().join("sensors");
        let directory = Directory::create(&sensors).unwrap();
        Bench { folder, directory }
    }

    /// A command whose sensors go here.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("FETTLE_SENSORS", self.directory.path());
        command
    }

    /// Starts a producer (see `c/producer.c`) in either language.
    pub fn produce(&self, language: Language, plan: Plan) -> Producer {
        let path = self.folder.path().join("truth");
        File::create(&path).unwrap().set_len(4096).unwrap();
        let truth = Truth::open(&path);
        let numbers = [plan.policy as u64, plan.slots, plan.ring_log2, plan.threads, plan.events];
        let mut args = vec![path.to_str().unwrap().to_string()];
        args.extend(numbers.map(|n| n.to_string()));
        let child = match language {
            Language::C => self.command(&compile("producer")).args(args).spawn(),
            Language::Rust => self
                .command(&std::env::current_exe().unwrap())
                .args(["--exact", "rust_producer", "--nocapture", "--test-threads=1"])
                .env(ROLE, args.join(" "))
                .stdout(Stdio::null())
                .spawn(),
        };
        Producer { child: child.unwrap(), truth, plan }
    }

    /// Starts a producer in another language, by its program and first arguments.
    pub fn produce_by(&self, program: &[String], plan: Plan) -> Producer {
        self.produce_with(program, plan, &[])
    }

    /// The same, with more arguments.
    pub fn produce_with(&self, program: &[String], plan: Plan, more: &[&str]) -> Producer {
        let path = self.folder.path().join("truth");
        File::create(&path).unwrap().set_len(4096).unwrap();
        let truth = Truth::open(&path);
        let numbers = [plan.policy as u64, plan.slots, plan.ring_log2, plan.threads, plan.events];
        let mut command = self.command(Path::new(&program[0]));
        command.args(&program[1..]).arg(&path).args(numbers.map(|n| n.to_string())).args(more);
        Producer { child: command.spawn().unwrap(), truth, plan }
    }

    /// Waits until a sensor of this name is there.
    pub fn wait_for(&self, name: &str) -> Sensor {
        self.wait_for_where(name, |_| true)
    }

    /// Becomes the consumer of a list that had another one. What another test is just starting has our
    /// locks, too, until its exec.
    pub fn next_list(&self, name: &str) -> List {
        let start = Instant::now();
        loop {
            match self.wait_for(name).into_list() {
                Err(fettle_sensor::Error::Busy { .. })
                    if start.elapsed() < Duration::from_secs(60) =>
                {
                    std::thread::sleep(Duration::from_micros(200));
                }
                list => return list.unwrap(),
            }
        }
    }

    /// Waits until a sensor of this name is there of which this is true.
    pub fn wait_for_where(&self, name: &str, is_it: impl Fn(&Sensor) -> bool) -> Sensor {
        let start = Instant::now();
        loop {
            let found = self.directory.find(name).unwrap().sensors.into_iter().find(&is_it);
            if let Some(sensor) = found {
                return sensor;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "no sensor {name}");
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// What a producer shall do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub policy: fettle_sensor::Policy,
    pub slots: u64,
    pub ring_log2: u64,
    pub threads: u64,
    /// Of each thread; 0: until killed.
    pub events: u64,
}

/// A producer that runs.
pub struct Producer {
    pub child: Child,
    pub truth: Truth,
    pub plan: Plan,
}

impl Producer {
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Events begun and done, by thread, in memory that survives the producer.
pub struct Truth(&'static [AtomicU64]);

impl Truth {
    pub fn open(path: &Path) -> Truth {
        use std::os::fd::AsRawFd;
        let file = File::options().read(true).write(true).open(path).unwrap();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of one page, never unmapped, reached by atomics only.
        unsafe {
            let null = std::ptr::null_mut();
            let page = libc::mmap(null, 4096, access, libc::MAP_SHARED, file.as_raw_fd(), 0);
            assert_ne!(page, libc::MAP_FAILED);
            Truth(std::slice::from_raw_parts(page.cast(), 512))
        }
    }

    pub fn begun(&self, thread: u64) -> &AtomicU64 {
        &self.0[2 * thread as usize]
    }

    pub fn done(&self, thread: u64) -> &AtomicU64 {
        &self.0[2 * thread as usize + 1]
    }
}

/// Checks each event that comes, and the balance in the end.
#[derive(Default)]
pub struct Check {
    /// The next number that may come, by thread.
    next: std::collections::BTreeMap<u64, u64>,
    /// Whether a thread's events may come in any order: then each may come once.
    pub in_any_order: bool,
    seen: std::collections::BTreeSet<u64>,
    pub drained: Drained,
}

impl Check {
    /// Of a producer whose threads' events come in order, or not.
    pub fn with_order(in_order: bool) -> Check {
        Check { in_any_order: !in_order, ..Check::default() }
    }

    pub fn drain(&mut self, list: &mut List) {
        let Check { next, in_any_order, seen, .. } = self;
        let drained = list.drain(|event| {
            let [word, hash] = *event.words else { panic!("torn: {event:?}") };
            assert_eq!(hash, word.wrapping_mul(0x9e37_79b9_7f4a_7c15), "torn: {event:?}");
            let (thread, i) = (word >> 48, word & 0xffff_ffff_ffff);
            let next = next.entry(thread).or_insert(0);
            assert_eq!(event.number, i as u16, "torn: {event:?}");
            match *in_any_order {
                true => assert!(seen.insert(word), "twice: {event:?}"),
                false => assert!(i >= *next, "twice or out of order, wanted {next}: {event:?}"),
            }
            *next = (i + 1).max(*next);
        });
        let drained = drained.unwrap();
        self.drained.read += drained.read;
        self.drained.lost += drained.lost;
    }

    /// After the producer died: takes what is left, then `read + lost = produced`, and what the
    /// sensor calls produced is what the producer did.
    pub fn finish(&mut self, list: &mut List, producer: &Producer) {
        let truth = &producer.truth;
        self.drain(list);
        let account = list.sensor().account().unwrap();
        assert_eq!(account.pending, 0, "{account:?}");
        assert_eq!(account.read + account.lost, account.produced, "{account:?}");
        assert_eq!((account.read, account.lost), (self.drained.read, self.drained.lost));
        let sum = |f: &dyn Fn(u64) -> u64| (0..producer.plan.threads).map(f).sum::<u64>();
        let done = sum(&|thread| truth.done(thread).load(SeqCst));
        let begun = sum(&|thread| truth.begun(thread).load(SeqCst));
        assert!((done..=begun).contains(&account.produced), "{done} {begun} {account:?}");
        for thread in 0..producer.plan.threads {
            let next = self.next.get(&thread).copied().unwrap_or(0);
            assert!(next <= truth.begun(thread).load(SeqCst));
        }
    }
}

/// The Rust twin of `c/producer.c`. Each test that needs it has a test of this name that calls it.
pub fn rust_producer() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let args: Vec<&str> = role.split(' ').collect();
    let number = |i: usize| args[i].parse::<u64>().unwrap();
    let truth = Truth::open(Path::new(args[0]));
    let list: &fettle::List = Box::leak(Box::new(
        fettle::Sensor::list("test.events", 1, 1)
            .policy(fettle::Policy::from_u32(number(1) as u32).unwrap())
            .threads(number(2) as u32 - 1)
            .ring_bytes(1 << number(3))
            .open(),
    ));
    let wanted = number(5);
    std::thread::scope(|scope| {
        for thread in 0..number(4) {
            let truth = &truth;
            scope.spawn(move || {
                for i in (0..).take_while(|&i| wanted == 0 || i < wanted) {
                    let word = thread << 48 | i;
                    truth.begun(thread).store(i + 1, Relaxed);
                    list.commit(i as u16, &[word, word.wrapping_mul(0x9e37_79b9_7f4a_7c15)]);
                    truth.done(thread).store(i + 1, Relaxed);
                }
            });
        }
    });
}

/// The header's folder.
pub fn header_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../runtime/sensor")
}

/// Compiles `c/NAME.c` once in this process.
pub fn compile(name: &str) -> PathBuf {
    use std::collections::HashMap;
    use std::sync::Mutex;
    static DONE: Mutex<Option<HashMap<String, PathBuf>>> = Mutex::new(None);
    let mut done = DONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let done = done.get_or_insert_default();
    if let Some(path) = done.get(name) {
        return path.clone();
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = folder.join(format!("{name}-{}", std::process::id()));
    compile_as(&["cc", "-std=gnu99", "-O2", "-pthread"], &source, &program);
    done.insert(name.to_string(), program.clone());
    program
}

/// Compiles a file, warnings being errors.
pub fn compile_as(compiler: &[&str], source: &Path, program: &Path) {
    let output = Command::new(compiler[0])
        .args(&compiler[1..])
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(header_folder())
        .arg("-o")
        .args([program, source])
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler:?}: {messages}");
}

/// Random numbers whose seed is printed, and can be given as `FETTLE_SEED`.
pub struct Random(u64);

impl Random {
    pub fn new() -> Random {
        let now = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 | 1;
        let seed = std::env::var("FETTLE_SEED").ok().and_then(|s| s.parse().ok());
        let seed = seed.unwrap_or_else(now);
        println!("FETTLE_SEED={seed}");
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}
