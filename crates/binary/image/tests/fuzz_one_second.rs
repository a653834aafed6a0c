//! Mutates real files for one second. Prints its seed; `FETTLE_SEED` repeats a run, and
//! `FETTLE_FUZZ_SECONDS` makes it longer.

mod common;

use std::time::{Duration, Instant};

use common::{Built, exercise};
use fettle_image::Image;

/// xorshift64*: small, fast, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// Numbers that break careless arithmetic.
const NASTY: &[u64] = &[
    0,
    1,
    7,
    0x7f,
    0xff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0xffff_ffff_ffff_ff00,
    u64::MAX,
];

/// Where changes hurt most: the headers, and the tables that sections describe.
fn hot_spots(file: &[u8]) -> Vec<(usize, usize)> {
    let mut spots = vec![(0, 64), (64, 64 + 56 * 13)];
    if let Ok(image) = Image::parse(file.to_vec()) {
        let table = u64::from_le_bytes(file[40..48].try_into().expect("eight bytes")) as usize;
        spots.push((table, table + image.sections().len() * 64));
        for section in image.sections() {
            let start = section.file_offset as usize;
            let end = start + section.size as usize;
            if end <= file.len() && start < end && !section.is_executable() {
                spots.push((start, end));
            }
        }
    }
    spots
}

fn mutate(file: &mut Vec<u8>, spots: &[(usize, usize)], random: &mut Random) {
    for _ in 0..=random.below(8) {
        let (start, end) = spots[random.below(spots.len())];
        let at = start + random.below(end - start);
        let at = at.min(file.len() - 1);
        match random.below(4) {
            0 => file[at] ^= 1 << random.below(8),
            1 => file[at] = random.next() as u8,
            2 => {
                let value = NASTY[random.below(NASTY.len())].to_le_bytes();
                let size = [1, 2, 4, 8][random.below(4)].min(file.len() - at);
                file[at..at + size].copy_from_slice(&value[..size]);
            }
            _ => {
                let from = random.below(file.len());
                let size = random.below(64).min(file.len() - at).min(file.len() - from);
                file.copy_within(from..from + size, at);
            }
        }
    }
    if random.below(16) == 0 {
        file.truncate(64 + random.below(file.len() - 64));
    }
}

#[test]
fn mutated_files_never_stop_us() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let clock = clock.map_or(1, |time| time.as_nanos() as u64);
    let seed = number("FETTLE_SEED").unwrap_or(clock).max(1);
    println!("FETTLE_SEED={seed}");
    let mut random = Random(seed);

    let mut files: Vec<Vec<u8>> = Vec::new();
    for arguments in [
        &["-g"][..],
        &["-g", "-c"],
        &["-gdwarf-4", "-gz=zlib", "-shared", "-fPIC"],
        &["-no-pie", "-s", "-Wl,-z,pack-relative-relocs"],
    ] {
        files.push(std::fs::read(Built::new(arguments).path).expect("the file"));
    }
    files.push(std::fs::read("/bin/ls").expect("ls"));
    files.extend(Built::new(&[]).with_embedded_symbols());
    let spots: Vec<_> = files.iter().map(|file| hot_spots(file)).collect();

    let started = Instant::now();
    let limit = Duration::from_secs(number("FETTLE_FUZZ_SECONDS").unwrap_or(1));
    let (mut runs, mut images) = (0, 0);
    let mut slowest = Duration::ZERO;
    while started.elapsed() < limit {
        let which = random.below(files.len());
        let mut file = files[which].clone();
        // The state before the change repeats this very file.
        let state = random.0;
        mutate(&mut file, &spots[which], &mut random);
        let before = Instant::now();
        let result = std::panic::catch_unwind(|| match Image::parse(file) {
            Ok(image) => {
                exercise(&image);
                true
            }
            Err(error) => {
                assert!(!error.to_string().contains('\n'));
                false
            }
        });
        slowest = slowest.max(before.elapsed());
        runs += 1;
        match result {
            Ok(parsed) => images += usize::from(parsed),
            Err(_) => panic!("stopped at run {runs}, file {which}, FETTLE_SEED={state}"),
        }
    }
    println!("{runs} files, {images} of them images, slowest {slowest:?}");
    assert!(images > 0);
}
