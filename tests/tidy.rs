//! The repository's own text is in order.

#[test]
fn repository_is_tidy() {
    let sources = xtask::tidy::sources().unwrap();
    let problems = xtask::tidy::check(&sources).unwrap();
    let list: Vec<String> = problems.iter().map(|p| format!("{}: {}", p.place, p.what)).collect();
    assert!(list.is_empty(), "\n{}", list.join("\n"));
}
