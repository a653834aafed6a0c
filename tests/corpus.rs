//! The corpus' lists can be read and cover what they are meant to cover.

use xtask::corpus::{Expectation, Kind, load};

#[test]
fn lists_are_sound() {
    let entries = load().unwrap();
    let count = |kind| entries.iter().filter(|entry| entry.kind() == kind).count();
    assert!(count(Kind::Program) >= 70, "{} programs", count(Kind::Program));
    assert!(count(Kind::Server) >= 8, "{} servers", count(Kind::Server));
    assert!(count(Kind::Suite) >= 5, "{} suites", count(Kind::Suite));
    assert!(entries.iter().any(|entry| entry.expect == Expectation::Refusal));
}

#[test]
fn smoke_subset_is_small() {
    let smoke: Vec<_> = load().unwrap().into_iter().filter(|entry| entry.smoke).collect();
    assert!((12..=30).contains(&smoke.len()), "{} entries", smoke.len());
    assert!(smoke.iter().all(|entry| entry.kind() == Kind::Program && entry.source.is_none()));
}
