//! Whether the same lines stay of real files as with `unifdef -k`, where every name of a condition is known:
//! `unifdef FOLDER MOST` gives each name of a file at random a value or none, compares the whole output, and
//! prints what it found as one line of JSON. Files that differ are named.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use fettle_census::conditional::kept_lines;
use fettle_census::names::Names;
use fettle_census::token::{Language, TokenKind, Tokens};

fn files(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            files(&path, found)?;
        } else if path.to_str().and_then(Language::of) == Some(Language::C) {
            found.push(path);
        }
    }
    Ok(())
}

/// Words of conditions that are no names of anybody's.
fn is_read_as_one(word: &[u8]) -> bool {
    matches!(word, b"defined" | b"IS_ENABLED" | b"IS_BUILTIN")
}

/// The names in conditions of a text.
fn names_in(text: &[u8]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for token in Tokens::new(text, Language::C) {
        let mut words = Tokens::of_directive(token.text, 1);
        let conditional = token.kind == TokenKind::Directive
            && words
                .next()
                .is_some_and(|verb| verb.text.starts_with(b"if") || verb.text.starts_with(b"elif"));
        if conditional {
            let words =
                words.filter(|word| word.kind == TokenKind::Word && !is_read_as_one(word.text));
            names.extend(words.map(|word| String::from_utf8_lossy(word.text).into_owned()));
        }
    }
    names
}

/// The lines that stay.
fn left(text: &[u8], names: &Names) -> Vec<u8> {
    let kept = kept_lines(text, Language::C, names);
    let lines = text.split_inclusive(|&byte| byte == b'\n').zip(kept);
    lines.filter(|(_, kept)| *kept).flat_map(|(line, _)| line).copied().collect()
}

fn without_directives(text: &[u8]) -> Vec<Vec<u8>> {
    let lines = text.split(|&byte| byte == b'\n');
    lines.filter(|line| !line.trim_ascii_start().starts_with(b"#")).map(Into::into).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("which folder?")?);
    let most: usize = arguments.next().map_or(Ok(1000), |most| most.parse())?;
    let mut found = Vec::new();
    files(&folder, &mut found)?;
    found.sort();
    let mut state = std::time::UNIX_EPOCH.elapsed()?.as_nanos() as u64 | 1;
    let seed = state;
    let (mut compared, mut left_open, mut different, mut lines, mut dropped) = (0, 0, 0, 0, 0);
    for path in found {
        let text = std::fs::read(&path)?;
        let in_file = names_in(&text);
        if compared == most {
            break;
        }
        if in_file.is_empty() {
            continue;
        }
        let mut names = Names::default();
        let mut command = Command::new("unifdef");
        command.arg("-k");
        for name in &in_file {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            if state & 64 == 0 {
                names.define(name);
                command.arg(format!("-D{name}"));
            } else {
                names.undefine(name);
                command.arg(format!("-U{name}"));
            }
        }
        let theirs = command.arg(&path).output()?;
        if theirs.status.code() == Some(2) {
            println!("{}: {}", path.display(), String::from_utf8_lossy(&theirs.stderr).trim());
            continue;
        }
        let kept = kept_lines(&text, Language::C, &names);
        lines += kept.len();
        dropped += kept.iter().filter(|kept| !**kept).count();
        let ours = left(&text, &names);
        compared += 1;
        // `unifdef` leaves conditions that it cannot read: of several lines, with `IS_ENABLED`, `&` or `%`.
        let code = |text: &[u8]| without_directives(&left(text, &names));
        if ours == theirs.stdout {
            continue;
        } else if code(&ours) == code(&theirs.stdout) {
            left_open += 1;
        } else {
            different += 1;
            let (a, b) = (String::from_utf8_lossy(&ours), String::from_utf8_lossy(&theirs.stdout));
            let first = a.lines().zip(b.lines()).find(|(a, b)| a != b);
            println!("{}: differs, first in {first:?}", path.display());
        }
    }
    println!(
        "{{\"seed\": {seed}, \"files\": {compared}, \"left_open\": {left_open}, \"different\": {different}, \"lines\": {lines}, \
         \"dropped\": {dropped}}}"
    );
    Ok(())
}
