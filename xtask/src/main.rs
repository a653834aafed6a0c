//! Chores of the Fettle repository.

fn main() {}
