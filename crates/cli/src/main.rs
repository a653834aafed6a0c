//! The `fettle` command.

fn main() {}
