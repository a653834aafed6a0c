//! Broken source text for a second: no panic, and lines and sites stay within the file.
//! `fuzz/fuzz_targets/census.rs` does the same for longer.

use std::time::{Duration, Instant};

use fettle_census::conditional::kept_lines;
use fettle_census::file::census;
use fettle_census::kinds::Kinds;
use fettle_census::lines::compare;
use fettle_census::names::Names;
use fettle_census::token::{Language, Tokens};

const PIECES: [&str; 44] = [
    "{",
    "}",
    "(",
    ")",
    ";",
    "\n",
    "#if A\n",
    "#if U && (A",
    "#else\n",
    "#elif !U\n",
    "#endif\n",
    "#ifdef A\n",
    "#define f(x) spin_lock(x)\n",
    "\\\n",
    "/*",
    "*/",
    "//",
    "\"",
    "'",
    "r#\"",
    "\"#",
    "R\"(",
    ")\"",
    "spin_lock(&l)",
    "spin_unlock(&l)",
    "mutex_lock",
    "if (a) ",
    "else ",
    "for (;;) ",
    "switch (a) ",
    "case 1:",
    "goto out;",
    "out:",
    "return 1;",
    "break;",
    "do ",
    "while ",
    "fn f() ",
    "let a = m.lock();",
    "std::lock_guard<std::mutex> g(m);",
    "int f(int a) ",
    "= ",
    "\u{e9}",
    "\0",
];

fn random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 16) as usize
}

#[test]
fn broken_source_text() {
    let kinds = Kinds::usual().unwrap();
    let (mut with, mut without) = (Names::default(), Names::default());
    with.define("A");
    without.closed = true;
    without.undefine("A");
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 | 1;
    println!("seed {seed}");
    let mut state = seed;
    let until = Instant::now() + Duration::from_secs(1);
    let (mut runs, mut sites, mut candidates) = (0_u64, 0, 0);
    // On a machine with other work a second is few texts.
    while Instant::now() < until || (candidates == 0 && runs < 10_000) {
        let mut text = Vec::new();
        for _ in 0..random(&mut state) % 200 {
            text.extend_from_slice(PIECES[random(&mut state) % PIECES.len()].as_bytes());
            if random(&mut state).is_multiple_of(16) {
                text.push(random(&mut state) as u8);
            }
        }
        let lines = text.split_inclusive(|&byte| byte == b'\n').count();
        for language in [Language::C, Language::Cpp, Language::Assembler, Language::Rust] {
            for token in Tokens::new(&text, language) {
                assert!(
                    token.last_line >= token.line && !token.text.is_empty() || token.text == b""
                );
            }
            let counted = census(&text, language, &kinds, &with);
            assert!(counted.code_lines as usize <= lines);
            for site in &counted.sites {
                assert!((site.line as usize) <= lines);
                assert!((site.function as usize) < counted.functions.len());
            }
            assert_eq!(kept_lines(&text, language, &without).len(), lines);
            let builds = compare(&text, language, &without, &with).counts;
            assert!(builds.with.max(builds.without) as usize <= lines);
            sites += counted.sites.len();
            candidates += counted.candidates.len();
        }
        runs += 1;
    }
    println!("{runs} texts, {sites} sites, {candidates} candidates");
    assert!(sites > 0 && candidates > 0);
}

#[test]
fn nesting_without_end_takes_no_time() {
    let kinds = Kinds::usual().unwrap();
    for piece in
        ["{", "(", "int f(int a) {", "#if U\n", "if (a) ", "f(int a) { #if U\n{\n", "else ", "/*"]
    {
        let text = piece.repeat(200_000 / piece.len());
        let start = Instant::now();
        census(text.as_bytes(), Language::C, &kinds, &Names::default());
        assert!(start.elapsed() < Duration::from_secs(5), "{piece:?}: {:?}", start.elapsed());
    }
}
