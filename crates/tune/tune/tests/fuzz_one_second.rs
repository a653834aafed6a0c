//! Broken and hostile profiles for a second: each is refused in words, or gives some order of the
//! code, whatever it says. `fuzz/fuzz_targets/profile.rs` does the same for longer.

use std::path::Path;
use std::time::{Duration, Instant};

use fettle_image::{Image, LinkAddr};
use fettle_place::model::Geometry;
use fettle_place::{Counts, Target};
use fettle_tune::profile::ByFunction;
use fettle_tune::{Group, Saved, Subject, decide};

fn random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 16) as usize
}

/// Numbers that are likely to do harm.
const NUMBERS: [u64; 7] = [0, 1, 2, 1000, 1 << 40, 1 << 63, u64::MAX];

fn mutate(profile: &Saved, state: &mut u64) -> Saved {
    let mut mutated = profile.clone();
    let functions = &mut mutated.modules[0].functions;
    for _ in 0..=(random(state) % 40) {
        let function = random(state) % functions.len();
        let number = NUMBERS[random(state) % NUMBERS.len()];
        let f = &mut functions[function];
        let (blocks, edges) = (f.blocks.len(), f.edges.len());
        match random(state) % 10 {
            0 | 1 if blocks > 0 => f.blocks[random(state) % blocks].1 = number,
            2 | 3 if edges > 0 => f.edges[random(state) % edges].2 = number,
            4 if blocks > 0 => drop(f.blocks.remove(random(state) % blocks)),
            5 if edges > 0 => f.edges[random(state) % edges].1 = number,
            6 if blocks > 0 => f.blocks.push((f.blocks[0].0, number)),
            8 if !f.targets.is_empty() => f.targets[0].count = number,
            9 if !f.targets.is_empty() => {
                let target = &mut f.targets[random(state) % 2];
                match random(state) % 3 {
                    0 => target.to = Some(number),
                    1 => target.build = Some("another".to_owned()),
                    _ => target.call = number,
                }
            }
            7 => f.entry = if random(state).is_multiple_of(8) { number } else { f.entry },
            _ => {}
        }
    }
    mutated
}

#[test]
fn broken_profiles_do_no_harm() {
    // A program of few functions that every machine has.
    let path = Path::new("/bin/true");
    let image = Image::parse(std::fs::read(path).unwrap()).unwrap();
    let lifted = fettle_lift::lift(&image);
    let subject = Subject { path, image: &image, functions: &lifted.functions };
    let mut counts = ByFunction::new();
    for function in &lifted.functions {
        let mut all = Counts::default();
        for block in &function.blocks {
            all.blocks.insert(block.start, 7);
            for to in &block.succs {
                all.edges.insert((block.start, function.blocks[to.index()].start), 3);
            }
        }
        let last = function.insns.last().unwrap().ip();
        let here = Target::Here(lifted.functions[counts.len() / 2].entry);
        all.targets.insert((LinkAddr(last), here), 5);
        let elsewhere = Target::Module("of another build".into(), LinkAddr(last));
        all.targets.insert((LinkAddr(last), elsewhere), 2);
        all.targets.insert((function.entry, Target::Unknown), 1);
        counts.insert(function.entry, all);
    }
    let right = Saved::of([(subject, &counts)]);
    let bytes = serde_json::to_vec(&right).unwrap();
    assert_eq!(Saved::parse(&bytes).unwrap(), right);
    let (read, fit) = right.counts(&[subject]).unwrap();
    assert_eq!((fit.functions, fit.differing), (lifted.functions.len(), 0));
    assert_eq!(read[0].len(), counts.len());
    let same = |(entry, was): (&LinkAddr, &Counts)| read[0][entry].targets == was.targets;
    assert!(counts.iter().all(same), "targets are not those that were kept");

    let mut state = 0x2545_f491_4f6c_dd1d ^ u64::from(std::process::id());
    println!("seed {state:#x}");
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        let mut cut = bytes.clone();
        cut.truncate(random(&mut state) % cut.len());
        assert!(Saved::parse(&cut).is_err(), "half of it");
        let at = random(&mut state) % bytes.len();
        let mut other = bytes.clone();
        other[at] = random(&mut state) as u8;
        let mut profiles = vec![mutate(&right, &mut state)];
        profiles.extend(Saved::parse(&other));
        for profile in profiles {
            match profile.counts(&[subject]) {
                Ok((counts, _)) => {
                    let decided = decide::decide(
                        (subject.image, subject.functions),
                        &counts[0],
                        &Group::default(),
                        Geometry::L1I,
                    );
                    if let Some(decided) = decided.unwrap() {
                        let share = decided.chosen.before.stall_share();
                        assert!((0.0..=1.0).contains(&share), "{share}");
                    }
                }
                Err(why) => assert!(!why.is_empty()),
            }
        }
    }
}

#[test]
fn another_build_is_told_from_this() {
    let open = |path: &'static str| {
        let image = Image::parse(std::fs::read(path).unwrap()).unwrap();
        let lifted = fettle_lift::lift(&image);
        (Path::new(path), image, lifted)
    };
    let (path, image, lifted) = open("/bin/true");
    let counts: ByFunction = [(lifted.functions[0].entry, Counts::default())].into_iter().collect();
    let subject = Subject { path, image: &image, functions: &lifted.functions };
    let saved = Saved::of([(subject, &counts)]);
    let (_, image, lifted) = open("/bin/false");
    // By the same name it is another build, in which functions with the same instructions are found; by
    // another name it is something else.
    let other = Subject { path, image: &image, functions: &lifted.functions };
    let (found, fit) = saved.counts(&[other]).unwrap();
    assert_eq!((found[0].len(), fit.functions, fit.moved), (1, 1, 1));
    let mut differs = saved.clone();
    differs.modules[0].functions[0].shape = Some(1);
    let why = differs.counts(&[other]).unwrap_err();
    assert!(why.contains("another build of /bin/true"), "{why}");
    let why = saved.counts(&[Subject { path: Path::new("/bin/false"), ..other }]).unwrap_err();
    assert!(why.contains("none of the files"), "{why}");
    // Both together: what is known of the one is used.
    let all = [subject, Subject { path: Path::new("/bin/false"), ..other }];
    let (counts, fit) = saved.counts(&all).unwrap();
    assert_eq!((counts[0].len(), counts[1].len(), fit.functions), (1, 0, 1));
}
