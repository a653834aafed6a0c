//! What only a build with certain names has, and what only one without them.

use serde::Serialize;

use crate::conditional::kept_lines;
use crate::names::Names;
use crate::token::{Language, TokenKind, Tokens};

/// The same lines in two builds. Lines with nothing but comments and blanks do not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Lines of the build without the names.
    pub without: u64,
    /// Lines of the build with them.
    pub with: u64,
    /// Lines of one that stand where the other has a different one.
    pub modified: u64,
    /// Lines that only the build with the names has.
    pub new: u64,
    /// Lines that only the build without them has.
    pub removed: u64,
}

impl Counts {
    /// All lines that differ.
    pub fn changed(&self) -> u64 {
        self.modified + self.new + self.removed
    }

    /// Adds those of another file.
    pub fn add(&mut self, other: &Counts) {
        self.without += other.without;
        self.with += other.with;
        self.modified += other.modified;
        self.new += other.new;
        self.removed += other.removed;
    }
}

/// Where the builds differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hunk {
    /// The first line, from 1.
    pub line: u32,
    /// The numbers of the lines that only the build without the names has.
    pub without: Vec<u32>,
    /// The numbers of those that only the build with them has.
    pub with: Vec<u32>,
}

/// The two builds of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Builds {
    /// How many lines.
    pub counts: Counts,
    /// Which.
    pub hunks: Vec<Hunk>,
}

/// Most lines of a hunk's side in which equal ones are looked for: the time for it is quadratic.
const MOST_LINES: usize = 500;

/// Compares a file's build with some names to the one without. Includes are not followed.
pub fn compare(text: &[u8], language: Language, without: &Names, with: &Names) -> Builds {
    let kept_without = kept_lines(text, language, without);
    let kept_with = kept_lines(text, language, with);
    let code = Code::of(text, language, kept_without != kept_with);
    let mut builds = Builds::default();
    let (mut only_without, mut only_with) = (Vec::new(), Vec::new());
    for (at, &has_code) in code.lines.iter().enumerate() {
        let kept = |kept: &[bool]| has_code && kept.get(at).copied().unwrap_or(true);
        let (a, b) = (kept(&kept_without), kept(&kept_with));
        builds.counts.without += u64::from(a);
        builds.counts.with += u64::from(b);
        match (a, b) {
            (true, true) => builds.end_hunk(&code, &mut only_without, &mut only_with),
            (true, false) => only_without.push(at),
            (false, true) => only_with.push(at),
            (false, false) => {}
        }
    }
    builds.end_hunk(&code, &mut only_without, &mut only_with);
    builds
}

impl Builds {
    /// Adds what differs between two lines that both builds have. Lines that say the same are no
    /// difference, wherever they stand.
    fn end_hunk(&mut self, code: &Code, without: &mut Vec<usize>, with: &mut Vec<usize>) {
        if without.is_empty() && with.is_empty() {
            return;
        }
        let (without, with) = (std::mem::take(without), std::mem::take(with));
        let (mut i, mut j) = (0, 0);
        for (next_i, next_j) in code.common(&without, &with) {
            self.gap(&without[i..next_i], &with[j..next_j]);
            (i, j) = (next_i + 1, next_j + 1);
        }
        self.gap(&without[i..], &with[j..]);
    }

    fn gap(&mut self, without: &[usize], with: &[usize]) {
        let Some(first) = without.iter().chain(with).min() else { return };
        let modified = without.len().min(with.len());
        self.counts.modified += modified as u64;
        self.counts.new += (with.len() - modified) as u64;
        self.counts.removed += (without.len() - modified) as u64;
        let numbers = |lines: &[usize]| lines.iter().map(|&line| line as u32 + 1).collect();
        self.hunks.push(Hunk {
            line: *first as u32 + 1,
            without: numbers(without),
            with: numbers(with),
        });
    }
}

/// The lines of a file without comments and with one blank between tokens.
struct Code {
    /// Which lines have code.
    lines: Vec<bool>,
    /// What they say, where that is asked for.
    text: Vec<Vec<u8>>,
}

impl Code {
    fn of(text: &[u8], language: Language, with_text: bool) -> Code {
        let count = text.split_inclusive(|&byte| byte == b'\n').count();
        let mut lines = vec![false; count];
        let mut texts = vec![Vec::new(); if with_text { count } else { 0 }];
        for token in Tokens::new(text, language) {
            let range = token.line as usize - 1..(token.last_line as usize).min(count);
            lines.get_mut(range).unwrap_or_default().fill(true);
            let Some(line) = texts.get_mut(token.line as usize - 1) else { continue };
            match token.kind {
                TokenKind::Directive => {
                    for part in Tokens::of_directive(token.text, 1) {
                        line.extend_from_slice(part.text);
                        line.push(b' ');
                    }
                }
                _ => line.extend_from_slice(token.text),
            }
            line.push(b' ');
        }
        Code { lines, text: texts }
    }

    fn says(&self, line: usize) -> &[u8] {
        self.text.get(line).map_or(&[], Vec::as_slice)
    }

    /// Indices of lines that say the same, as many as there are in the same order.
    fn common(&self, one: &[usize], other: &[usize]) -> Vec<(usize, usize)> {
        if one.is_empty() || other.is_empty() || one.len().max(other.len()) > MOST_LINES {
            return Vec::new();
        }
        let width = other.len() + 1;
        // Longest common subsequences of what is left of both.
        let mut longest = vec![0_u16; (one.len() + 1) * width];
        let same = |i: usize, j: usize| self.says(one[i]) == self.says(other[j]);
        for i in (0..one.len()).rev() {
            for j in (0..other.len()).rev() {
                longest[i * width + j] = match same(i, j) {
                    true => longest[(i + 1) * width + j + 1] + 1,
                    false => longest[(i + 1) * width + j].max(longest[i * width + j + 1]),
                };
            }
        }
        let (mut i, mut j, mut pairs) = (0, 0, Vec::new());
        while i < one.len() && j < other.len() {
            if same(i, j) {
                pairs.push((i, j));
                (i, j) = (i + 1, j + 1);
            } else if longest[(i + 1) * width + j] >= longest[i * width + j + 1] {
                i += 1;
            } else {
                j += 1;
            }
        }
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_counts() {
        let text = "int a;\n#ifdef SMP\nint b; /* x */\nint  c;\nint d;\n#else\n\nint e;\nint c;\n#endif\n\
                    int y;\n#ifndef SMP\nint f;\n#endif\nint g;\n#ifdef OTHER\nint h;\n#endif\n";
        let (mut without, mut with) = (Names::default(), Names::default());
        without.undefine("SMP");
        with.define("SMP");
        let builds = compare(text.as_bytes(), Language::C, &without, &with);
        assert_eq!(builds.counts, Counts { without: 9, with: 9, modified: 1, new: 1, removed: 1 });
        assert_eq!(builds.hunks[0], Hunk { line: 3, without: vec![8], with: vec![3] });
        assert_eq!(builds.hunks.len(), 3);
    }
}
