use fettle_live::Growth;
use fettle_types::{FunctionIndex, LoadBias};

use super::*;
use crate::modules::{ModuleOptions, Modules};
use crate::room::AddressSpace;
use crate::select::Pattern;

const BUILD: [u8; 32] = [1; 32];
const LIMIT: u64 = 1 << 30;

/// A small program that is everywhere.
const PROGRAM: &str = "/usr/bin/true";

fn options(cache: &Path, build: [u8; 32], mode: Mode, selection: Selection) -> ModuleOptions {
    ModuleOptions {
        mode,
        depth: Depth::ALL,
        selection,
        user_probe: None,
        arguments: Vec::new(),
        functions: 1 << 20,
        counters: 1 << 20,
        ring_bytes: 1 << 20,
        accumulators_at: 1 << 20,
        counters_at: 1 << 22,
        shuffle: None,
        osr_map: false,
        cache: Plans::of_build(cache, LIMIT, build),
        notify: None,
    }
}

/// Linked code of the program, and whether its plan came from the cache. When this returns, what
/// is kept is on disk.
fn linked(options: ModuleOptions, path: &Path) -> (Vec<u8>, bool) {
    let mut modules = Modules::new(options);
    let module = modules.get(path, path).unwrap();
    let space = AddressSpace { maps: &[], growth: Growth::default() };
    let placed = modules.place(module, LoadBias(0x5555_5555_4000), space).unwrap();
    let linked = &placed.linked;
    let mut bytes = linked.text.clone();
    bytes.extend_from_slice(&linked.constants);
    bytes.extend_from_slice(format!("{:?} {:?}", linked.text_at, linked.writes).as_bytes());
    let module = modules.at(module);
    let plan = &module.plan;
    bytes.extend_from_slice(format!("{:?} {:?}", plan.functions, plan.skipped).as_bytes());
    (bytes, modules.work.from_cache > 0)
}

fn plain(cache: &Path) -> ModuleOptions {
    options(cache, BUILD, Mode::Events, Selection::default())
}

#[test]
fn hits_are_the_same_code() {
    let cache = tempfile::tempdir().unwrap();
    for mode in Mode::ALL.into_iter().filter(|m| *m != Mode::User) {
        let with = || options(cache.path(), BUILD, mode, Selection::default());
        let (made, hit) = linked(with(), Path::new(PROGRAM));
        assert!(!hit && made.len() > 1000);
        let (kept, hit) = linked(with(), Path::new(PROGRAM));
        assert!(hit && made == kept, "{mode:?}");
    }
}

#[test]
fn whatever_differs_misses() {
    let cache = tempfile::tempdir().unwrap();
    let path = Path::new(PROGRAM);
    linked(plain(cache.path()), path);
    let pattern = |text: &str| text.parse::<Pattern>().unwrap();
    let selection = |only: &str, skip: &str, min_size| Selection {
        only: [only].into_iter().filter(|p| !p.is_empty()).map(pattern).collect(),
        skip: [skip].into_iter().filter(|p| !p.is_empty()).map(pattern).collect(),
        min_size,
    };
    let others = [
        options(cache.path(), [2; 32], Mode::Events, Selection::default()),
        options(cache.path(), BUILD, Mode::Time, Selection::default()),
        options(cache.path(), BUILD, Mode::Events, selection("*", "", 0)),
        options(cache.path(), BUILD, Mode::Events, selection("", "main", 0)),
        options(cache.path(), BUILD, Mode::Events, selection("", "", 1)),
    ];
    for (i, other) in others.into_iter().enumerate() {
        assert!(!linked(other, path).1, "{i}");
    }
    assert!(linked(plain(cache.path()), path).1);
    // The same name, size and build ID; one byte of the contents is another.
    let copy = cache.path().join("copy");
    let mut bytes = std::fs::read(path).unwrap();
    std::fs::write(&copy, &bytes).unwrap();
    assert!(linked(plain(cache.path()), &copy).1);
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&copy, &bytes).unwrap();
    assert!(!linked(plain(cache.path()), &copy).1);
}

#[test]
fn names_from_a_debug_file_count() {
    let wanted = Wanted {
        file: Bytes::new(b"file".to_vec()),
        build_id: b"id".to_vec(),
        debug_file: None,
        mode: Mode::Events,
        depth: Depth::ALL,
        selection: Selection::default(),
        osr_map: false,
    };
    let with = |debug: &[u8]| {
        Wanted { debug_file: Some(Bytes::new(debug.to_vec())), ..wanted.clone() }.key(&BUILD)
    };
    assert_ne!(wanted.key(&BUILD), with(b"one"));
    assert_ne!(with(b"one"), with(b"two"));
    let shallow = Wanted { depth: Depth::new(3), ..wanted.clone() };
    assert_ne!(wanted.key(&BUILD), shallow.key(&BUILD));
    let crossed = Wanted { osr_map: true, ..wanted.clone() };
    assert_ne!(wanted.key(&BUILD), crossed.key(&BUILD));
    let other = Wanted { build_id: b"di".to_vec(), ..wanted.clone() };
    assert_ne!(wanted.key(&BUILD), other.key(&BUILD));
}

#[test]
fn damaged_entries_are_made_anew() {
    let cache = tempfile::tempdir().unwrap();
    let path = Path::new(PROGRAM);
    let (made, _) = linked(plain(cache.path()), path);
    let entry = std::fs::read_dir(cache.path()).unwrap().next().unwrap().unwrap().path();
    let whole = std::fs::read(&entry).unwrap();
    let plans = Plans::of_build(cache.path(), LIMIT, BUILD).unwrap();
    let stem = entry.file_stem().unwrap().to_str().unwrap();
    let key = Key::from_hex(stem).unwrap();
    assert!(plans.get(&key).is_some());
    for at in (0..whole.len()).step_by(64) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at / 64 % 8);
        std::fs::write(&entry, &bytes).unwrap();
        assert!(plans.get(&key).is_none(), "byte {at}");
        // The same contents with a checksum that fits: it was written with intent. It may be taken for a
        // plan, but must not stop us.
        if at >= 80 {
            plans.folder.put(&key, &bytes[80..]).unwrap();
            if let Some(plan) = plans.get(&key) {
                let image = crate::modules::open_image(path).unwrap();
                let parameters = fettle_rewrite::LinkParameters {
                    text_at: fettle_image::LinkAddr(0x10_0000),
                    load_bias: LoadBias::NONE,
                    first_function: FunctionIndex(0),
                    accumulators: 0,
                    counters: 0,
                    ring_bytes: 1 << 20,
                };
                let _ = fettle_rewrite::link(&plan, &image, parameters);
            }
        }
    }
    std::fs::write(&entry, &whole[..whole.len() / 2]).unwrap();
    let (again, hit) = linked(plain(cache.path()), path);
    assert!(!hit && again == made);
    assert_eq!(std::fs::read(&entry).unwrap(), whole);
}

#[test]
fn a_folder_that_cannot_be_is_no_matter() {
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join("file");
    std::fs::write(&file, "").unwrap();
    // Below a file there can be no folder, for root either.
    assert!(Plans::open(&file.join("cache"), LIMIT).is_none());
    let (_, hit) = linked(plain(&file.join("cache")), Path::new(PROGRAM));
    assert!(!hit);
}

#[test]
fn recorders_at_once_do_not_disturb_each_other() {
    let cache = tempfile::tempdir().unwrap();
    let path = Path::new(PROGRAM);
    let all: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| linked(plain(cache.path()), path).0)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(all.iter().all(|bytes| *bytes == all[0]));
    assert_eq!(std::fs::read_dir(cache.path()).unwrap().count(), 1);
    assert!(linked(plain(cache.path()), path).1);
}
