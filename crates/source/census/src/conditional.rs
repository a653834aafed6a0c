//! Which lines of a file the preprocessor leaves, as far as that is known.

use crate::names::Names;
use crate::token::{Language, Token, TokenKind, Tokens};

/// A preprocessor conditional's part in a file's structure, where it stays because its value is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Branch {
    /// `#if` and its like.
    If,
    /// `#elif` and `#else`.
    Else,
    /// `#endif`.
    End,
}

/// What is left of a file.
#[derive(Debug, Clone, Copy)]
pub enum Piece<'a> {
    /// A token that is none of the preprocessor's.
    Token(Token<'a>),
    /// A branch whose condition is unknown.
    Branch(Branch),
    /// A macro's definition, without `#define`.
    Definition(Token<'a>),
}

/// Open conditionals of a file.
#[derive(Debug, Default)]
struct Open {
    levels: Vec<Level>,
    /// How many levels drop what stands in them now.
    dropping: usize,
}

#[derive(Debug)]
struct Level {
    /// Whether the present branch is dropped.
    dropped: bool,
    /// Whether an earlier branch or this one is certainly taken.
    taken: bool,
    /// Whether a branch was kept whose condition is unknown.
    unknown: bool,
}

/// What becomes of a line with a conditional.
enum Fate {
    Dropped,
    Kept(Branch),
}

impl Open {
    fn branch(&mut self, directive: &[u8], names: &Names) -> Option<Fate> {
        let verb = Tokens::of_directive(directive, 1).next()?;
        let fate = match verb.text {
            b"if" | b"ifdef" | b"ifndef" => {
                let outside = self.dropping > 0;
                let value = if outside { Some(false) } else { names.condition(directive) };
                self.levels.push(Level {
                    dropped: value == Some(false),
                    taken: value == Some(true),
                    unknown: value.is_none(),
                });
                self.dropping += usize::from(value == Some(false));
                if value.is_none() { Fate::Kept(Branch::If) } else { Fate::Dropped }
            }
            b"elif" | b"elifdef" | b"elifndef" | b"else" => {
                let Some(level) = self.levels.last_mut() else { return Some(Fate::Dropped) };
                self.dropping -= usize::from(level.dropped);
                let outside = self.dropping > 0;
                let value = match (level.taken || outside, verb.text) {
                    (true, _) => Some(false),
                    (_, b"else") => Some(true),
                    _ => names.condition(directive),
                };
                level.dropped = value == Some(false);
                level.taken |= value == Some(true);
                self.dropping += usize::from(level.dropped);
                let first = !level.unknown;
                level.unknown |= value.is_none();
                match (value, first) {
                    (Some(false), _) | (Some(true), true) => Fate::Dropped,
                    // It becomes the `#if` of those behind it.
                    (None, true) => Fate::Kept(Branch::If),
                    _ => Fate::Kept(Branch::Else),
                }
            }
            b"endif" => {
                let Some(level) = self.levels.pop() else { return Some(Fate::Dropped) };
                self.dropping -= usize::from(level.dropped);
                if level.unknown { Fate::Kept(Branch::End) } else { Fate::Dropped }
            }
            _ => return None,
        };
        Some(fate)
    }
}

/// Walks over a file and gives what is left of it to `take`. Comments are left out.
pub fn walk<'a>(
    text: &'a [u8],
    language: Language,
    names: &Names,
    mut take: impl FnMut(Piece<'a>),
) {
    let mut open = Open::default();
    // Definitions of the file itself.
    let mut names = std::borrow::Cow::Borrowed(names);
    for token in Tokens::new(text, language) {
        if token.kind != TokenKind::Directive {
            if open.dropping == 0 {
                take(Piece::Token(token));
            }
            continue;
        }
        match open.branch(token.text, &names) {
            Some(Fate::Kept(branch)) => take(Piece::Branch(branch)),
            Some(Fate::Dropped) => {}
            None if open.dropping == 0 => {
                if names.closed {
                    names.to_mut().directive(token.text);
                }
                if Tokens::of_directive(token.text, 1).next().is_some_and(|t| t.is_word("define")) {
                    take(Piece::Definition(token));
                }
            }
            None => {}
        }
    }
}

/// For each line of a file, from the first, whether it is left: as `unifdef` leaves it, except that a
/// directive which is left stands as it was.
pub fn kept_lines(text: &[u8], language: Language, names: &Names) -> Vec<bool> {
    let count = text.split_inclusive(|&byte| byte == b'\n').count();
    let mut kept = vec![true; count];
    let mut open = Open::default();
    let mut names = std::borrow::Cow::Borrowed(names);
    let mut drop = |from: u32, to: u32| {
        let range = from as usize - 1..(to as usize - 1).min(count);
        kept.get_mut(range).unwrap_or_default().fill(false);
    };
    // The first line since which all is dropped.
    let mut since = None;
    for token in Tokens::new(text, language) {
        if token.kind != TokenKind::Directive {
            continue;
        }
        let behind = token.last_line + 1;
        let was_dropping = open.dropping > 0;
        let fate = open.branch(token.text, &names);
        if fate.is_none() && !was_dropping && names.closed {
            names.to_mut().directive(token.text);
        }
        if matches!(fate, Some(Fate::Dropped)) {
            drop(token.line, behind);
        }
        match (was_dropping, open.dropping > 0) {
            (false, true) => since = Some(behind),
            (true, false) => drop(since.take().unwrap_or(behind), token.line),
            (true, true) if fate.is_some() => {
                // A branch that is kept as a line between two that are not.
                if let Some(Fate::Kept(_)) = fate {
                    drop(since.replace(behind).unwrap_or(behind), token.line);
                }
            }
            _ => {}
        }
    }
    if let Some(since) = since {
        drop(since, count as u32 + 1);
    }
    kept
}

/// Whether two stretches of a file have the same tokens.
pub(crate) fn same_text(pieces: &[Piece<'_>], one: (u32, u32), other: (u32, u32)) -> bool {
    let tokens = |(from, to): (u32, u32)| {
        pieces.get(from as usize..to.max(from) as usize).unwrap_or_default().iter().map(|piece| {
            match piece {
                Piece::Token(token) => token.text,
                _ => &[],
            }
        })
    };
    tokens(one).eq(tokens(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(text: &str, names: &Names) -> String {
        let kept = kept_lines(text.as_bytes(), Language::C, names);
        let lines = text.split_inclusive('\n').zip(kept);
        lines.filter(|(_, kept)| *kept).map(|(line, _)| line).collect()
    }

    #[test]
    fn branches_are_dropped_as_far_as_they_are_known() {
        let mut names = Names::default();
        names.define("A");
        names.undefine("B");
        let text = "1\n#ifdef A\n2\n#else\n3\n#endif\n#ifdef U\n4\n#elif defined(A)\n5\n#else\n6\n#endif\n7\n";
        assert_eq!(left(text, &names), "1\n2\n#ifdef U\n4\n#elif defined(A)\n5\n#endif\n7\n");
        let text = "#if B\n1\n#elif U\n2\n#endif\n#if B && \\\n U\n3\n#ifdef U\n#else\n4\n#endif\n#else\n5\n#endif";
        assert_eq!(left(text, &names), "#elif U\n2\n#endif\n5\n");
        assert_eq!(left("#else\n1\n#endif\n#if B\n2", &names), "1\n");
    }
}
