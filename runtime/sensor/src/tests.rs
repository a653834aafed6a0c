//! Interleavings forced by injection points. Tests of whole programs are in `fettle-sensor`.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, MutexGuard};

use fettle_sensor::{Directory, Error};

use crate::inject::{BEGUN, COMMITTED, HOOK, MAKING, RESERVED, STORED};
use crate::{Event, Histogram, List, Policy, Scalar, Sensor, sys};

static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| {
    let path = PathBuf::from(format!("/dev/shm/fettle-unit-test-{}", std::process::id()));
    // SAFETY: every test comes here before it uses a sensor, and nothing else here reads the
    // environment.
    unsafe { std::env::set_var("FETTLE_SENSORS", &path) };
    Directory::create(&path).unwrap();
    path
});

/// One test at a time: the child of a fork holds the lock of the lists that other tests drain.
/// Deletes the directory in the end; the next sensor makes it again.
struct Turn(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Turn {
    fn wait() -> Turn {
        static TURN: Mutex<()> = Mutex::new(());
        let guard = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let _ = &*DIRECTORY;
        Turn(guard)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&*DIRECTORY);
    }
}

fn sensor(name: &str) -> fettle_sensor::Sensor {
    let pid = std::process::id();
    let mut found = Directory::open(&DIRECTORY).unwrap().find(name).unwrap().sensors;
    found.retain(|sensor| sensor.description().producer.pid == pid);
    assert_eq!(found.len(), 1, "{name}");
    found.remove(0)
}

/// All events that are there, and how many were found lost.
fn drain(name: &str) -> (Vec<(u16, Vec<u64>)>, u64) {
    let mut events = Vec::new();
    let mut list = sensor(name).into_list().unwrap();
    let drained = list.drain(|event| events.push((event.number, event.words.to_vec()))).unwrap();
    (events, drained.lost)
}

thread_local! {
    static WANTED: Cell<u32> = const { Cell::new(0) };
    static LIST: Cell<Option<&'static List>> = const { Cell::new(None) };
}

/// A list for one test; sensors live as long as the program.
fn leak(list: List) -> &'static List {
    Box::leak(Box::new(list))
}

extern "C" fn commit_in_handler(_signal: i32) {
    LIST.get().unwrap().commit(2, &[7, 8]);
}

/// Sends ourselves a signal at the wanted point, once.
fn raise_once(point: u32) {
    if point == WANTED.get() {
        WANTED.set(0);
        // SAFETY: the handler is async-signal-safe: committing is, by design.
        unsafe {
            libc::signal(libc::SIGUSR1, commit_in_handler as *const () as usize);
            libc::raise(libc::SIGUSR1);
        }
    }
}

#[test]
fn a_handler_nests_at_each_point() {
    let _turn = Turn::wait();
    for shared in [false, true] {
        let list = Sensor::list("unit.nest", 1, 1);
        let list = leak(if shared { list.shared().open() } else { list.open() });
        LIST.set(Some(list));
        HOOK.set(raise_once);
        // From the first commit on, which is made on the slow path.
        for point in (BEGUN..=COMMITTED).chain(BEGUN..=COMMITTED) {
            WANTED.set(point);
            list.commit(1, &[u64::from(point)]);
            assert_eq!(WANTED.get(), 0, "point {point} is passed");
            let (events, lost) = drain("unit.nest");
            let mut all = vec![(1, vec![u64::from(point)]), (2, vec![7, 8])];
            if point < RESERVED {
                all.reverse();
            }
            assert_eq!((events, lost), (all, 0), "{point} {shared}");
        }
        HOOK.set(|_| ());
        sensor("unit.nest").remove().unwrap();
    }
}

/// Fills the ring at the wanted point, once; at the next point everything must be whole.
fn fill_once(point: u32) {
    match WANTED.get() {
        wanted if wanted == point => {
            WANTED.set(u32::MAX);
            (0..200).for_each(|i| LIST.get().unwrap().commit(2, &[i, !i]));
            WANTED.set(0);
        }
        0 => {
            WANTED.set(u32::MAX);
            let (events, _) = drain("unit.late");
            let whole = |event: &(u16, Vec<u64>)| event.0 == 2 && event.1[0] == !event.1[1];
            assert!(events.iter().all(whole), "{events:?}");
            // The last 128 of 200; or those up to the cell that was being stored to, which are 55.
            assert!([128, 55].contains(&events.len()), "{}", events.len());
        }
        _ => {}
    }
}

#[test]
fn who_comes_a_lap_late_tears_nothing() {
    let _turn = Turn::wait();
    for shared in [false, true] {
        let list = Sensor::list("unit.late", 1, 1).policy(Policy::Overwrite).ring_bytes(4096);
        let list = leak(if shared { list.shared().open() } else { list.open() });
        LIST.set(Some(list));
        for point in BEGUN..=COMMITTED {
            HOOK.set(fill_once);
            WANTED.set(point);
            list.commit(1, &[1, 1]);
            list.commit(1, &[1, 1]);
            assert_eq!(WANTED.get(), u32::MAX, "{point} is passed, and another");
            HOOK.set(|_| ());
            drain("unit.late");
        }
        sensor("unit.late").remove().unwrap();
    }
}

#[test]
fn a_handler_that_interrupts_the_making_is_counted() {
    let _turn = Turn::wait();
    let list = leak(Sensor::list("unit.making", 1, 1).open());
    LIST.set(Some(list));
    HOOK.set(raise_once);
    WANTED.set(MAKING);
    list.commit(1, &[1]);
    HOOK.set(|_| ());
    assert_eq!(drain("unit.making"), (vec![(1, vec![1])], 1));
}

#[test]
fn the_consumer_stops_at_a_commit_under_way() {
    let _turn = Turn::wait();
    let list = leak(Sensor::list("unit.way", 1, 1).policy(Policy::Overwrite).open());
    list.commit(0, &[]);
    assert_eq!(drain("unit.way"), (vec![(0, vec![])], 0));
    for point in BEGUN..=COMMITTED {
        WANTED.set(point);
        HOOK.set(|point| {
            if point == WANTED.get() {
                let seen = if point == COMMITTED { vec![(1, vec![9])] } else { vec![] };
                assert_eq!(drain("unit.way"), (seen, 0));
                let pending = sensor("unit.way").account().unwrap().pending;
                assert_eq!(pending, u64::from((RESERVED..=STORED).contains(&point)));
            }
        });
        list.commit(1, &[9]);
        HOOK.set(|_| ());
        let left = if point == COMMITTED { vec![] } else { vec![(1, vec![9])] };
        assert_eq!(drain("unit.way"), (left, 0));
    }
}

#[test]
fn a_child_killed_at_each_point_leaves_whole_records() {
    let _turn = Turn::wait();
    let list = leak(Sensor::list("unit.kill", 1, 1).open());
    list.commit(1, &[1]);
    for point in BEGUN..=COMMITTED {
        // SAFETY: the child does nothing but commit, which is async-signal-safe, and dies.
        let child = unsafe { libc::fork() };
        if child == 0 {
            list.commit(1, &[2]);
            WANTED.set(point);
            HOOK.set(|point| {
                if point == WANTED.get() {
                    // SAFETY: kills the child of the test, which is us.
                    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
                }
            });
            list.commit(1, &[3]);
            // SAFETY: not reached unless the test fails.
            unsafe { libc::_exit(1) };
        }
        let mut status = 0;
        // SAFETY: waits for our child; writes to `status`, which lives.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL);
        let found = Directory::open(&DIRECTORY).unwrap().find("unit.kill").unwrap().sensors;
        let of_child = |s: &fettle_sensor::Sensor| s.description().producer.pid == child as u32;
        let mut dead = found.into_iter().find(of_child).unwrap().into_list().unwrap();
        let mut events = Vec::new();
        let drained = dead.drain(|event| events.push(event.words[0])).unwrap();
        let whole = if point == COMMITTED { vec![2, 3] } else { vec![2] };
        assert_eq!(events, whole, "{point}");
        assert_eq!(drained.lost, u64::from((RESERVED..=STORED).contains(&point)), "{point}");
        dead.sensor().remove().unwrap();
    }
    // The child's events are not among ours.
    assert_eq!(drain("unit.kill"), (vec![(1, vec![1])], 0));
}

#[test]
fn typed_events_and_long_ones() {
    struct Moved {
        from: u64,
        to: u64,
    }
    impl Event for Moved {
        const NUMBER: u16 = 12;
        type Words = [u64; 2];
        fn words(&self) -> [u64; 2] {
            [self.from, self.to]
        }
    }
    let _turn = Turn::wait();
    static LONG: List = Sensor::list("unit.typed", 1, 1).words(3).instance(5).open();
    LONG.emit(&Moved { from: 1, to: 2 });
    // Room for three takes room for six; what is longer is cut.
    LONG.commit(13, &[1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(sensor("unit.typed").description().instance, 5);
    let cut = (13, vec![1, 2, 3, 4, 5, 6]);
    assert_eq!(drain("unit.typed"), (vec![(12, vec![1, 2]), cut], 0));
}

#[test]
fn scalars_and_histograms() {
    let _turn = Turn::wait();
    static OPEN: Scalar = Sensor::scalar("unit.open", 1, 1).open();
    static SIZES: Histogram = Sensor::histogram("unit.sizes", 1, 2).threads(1).open();
    // Three threads and one slot: two use the shared one.
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                (1..=1000).for_each(|i| SIZES.record(i));
                (0..1000).for_each(|_| OPEN.add(-2));
            });
        }
    });
    OPEN.set(10);
    assert_eq!(sensor("unit.open").scalar().unwrap(), 10 - 6000);
    let sizes = sensor("unit.sizes").histogram().unwrap();
    assert_eq!((sizes.count(), sizes.sum()), (3000, Some(3 * 500_500)));
    assert!(matches!(sensor("unit.open").into_list(), Err(Error::WrongKind { .. })));
}

#[test]
fn errno_is_kept() {
    let _turn = Turn::wait();
    let list = leak(Sensor::list("unit.errno", 1, 1).open());
    // SAFETY: the address of this thread's errno is always valid.
    unsafe { *libc::__errno_location() = 77 };
    list.commit(1, &[]);
    // SAFETY: as above.
    assert_eq!(unsafe { *libc::__errno_location() }, 77);
    assert!(sys::thread_lives(sys::tid()));
}

/// More sensors than a thread's table has places for still work, through their shared rings.
#[test]
fn more_sensors_than_places() {
    let _turn = Turn::wait();
    for instance in 0..70 {
        let list = leak(Sensor::list("unit.many", 1, 1).instance(instance).open());
        list.commit(1, &[u64::from(instance)]);
        list.commit(1, &[u64::from(instance)]);
    }
    let found = Directory::open(&DIRECTORY).unwrap().find("unit.many").unwrap().sensors;
    assert_eq!(found.len(), 70);
    for sensor in found {
        assert_eq!(sensor.account().unwrap().pending, 2);
        sensor.remove().unwrap();
    }
}
