//! Executions of a place in a file are counted, all of them and no others.

use std::hint::black_box;
use std::path::PathBuf;

use fettle_kernel_events::{Hits, KernelError};

#[inline(never)]
fn passes(n: u64) -> u64 {
    black_box(n) + 1
}

/// The file with a function of this program's, and where the function lies in it.
fn place(function: fn(u64) -> u64) -> (PathBuf, u64) {
    let address = function as usize as u64;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let (begin, end) = words[0].split_once('-')?;
        let (begin, end) = (number(begin), number(end));
        let is_here = (begin..end).contains(&address);
        is_here.then(|| (PathBuf::from(words[5]), address - begin + number(words[2])))
    });
    line.expect("functions lie in a file")
}

#[test]
fn executions_are_counted() {
    let (file, offset) = place(passes);
    passes(0);
    let hits = match Hits::at(&file, offset) {
        Ok(hits) => hits,
        Err(error @ (KernelError::NotPermitted | KernelError::Io { .. })) => {
            return eprintln!("skipped 1 test: {error}");
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(hits.total().unwrap(), 0);
    for n in 0..1000 {
        passes(n);
    }
    assert_eq!(hits.total().unwrap(), 1000);
    let missing = Hits::at(&PathBuf::from("/no/such/file"), 0).unwrap_err().to_string();
    assert!(missing.contains("probe a place"), "{missing}");
}
