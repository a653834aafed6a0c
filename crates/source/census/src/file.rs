//! Takes the census of one file.

use crate::conditional::{Piece, walk};
use crate::kinds::{Form, Kinds, Meaning};
use crate::names::Names;
use crate::site::{FileCensus, Function, Site, text_of};
use crate::structure::Structure;
use crate::token::{Language, Token, TokenKind, Tokens};

/// Takes the census of a file.
pub fn census(text: &[u8], language: Language, kinds: &Kinds, names: &Names) -> FileCensus {
    let mut out = FileCensus {
        bytes: text.len() as u64,
        lines: text.split_inclusive(|&byte| byte == b'\n').count() as u32,
        ..FileCensus::default()
    };
    let mut pieces = Vec::with_capacity(text.len() / 5);
    let mut last_line = 0;
    let mut count = |token: &Token<'_>, out: &mut FileCensus| {
        let from = token.line.max(last_line + 1);
        // A directive that is to go on behind the end of the file ends with it.
        out.code_lines += (token.last_line.min(out.lines) + 1).saturating_sub(from);
        last_line = last_line.max(token.last_line);
    };
    let none = Default::default();
    let meanings = kinds.of(language).unwrap_or(&none);
    walk(text, language, names, |piece| match piece {
        Piece::Definition(token) => {
            count(&token, &mut out);
            definition(&token, kinds, language, &mut out);
        }
        Piece::Token(token) => {
            count(&token, &mut out);
            pieces.push(piece);
        }
        Piece::Branch(_) => pieces.push(piece),
    });
    if language == Language::Assembler {
        assembler(&pieces, meanings, &mut out);
    } else {
        Structure::new(&pieces, language, meanings, &mut out).run();
    }
    out
}

type Meanings = rustc_hash::FxHashMap<Vec<u8>, Vec<Meaning>>;

/// Counts what a macro stands for.
fn definition(token: &Token<'_>, kinds: &Kinds, language: Language, out: &mut FileCensus) {
    let Some(meanings) = kinds.of(language) else { return };
    let mut tokens = Tokens::of_directive(token.text, token.line).skip(1).peekable();
    let Some(name) = tokens.next() else { return };
    // Parameters, where the name has any: a value in parentheses has none of these names either way.
    let implementation = meanings.contains_key(name.text);
    let mut function = None;
    let mut before = [None, None];
    while let Some(word) = tokens.next() {
        let opened = before;
        before = [opened[1], Some(word)];
        if word.kind != TokenKind::Word {
            continue;
        }
        let form = match tokens.peek() {
            Some(next) if next.is(b'(') => Form::Call,
            Some(next) if is_class(&opened, next) => Form::Class,
            _ => continue,
        };
        let Some(found) = meanings.get(word.text) else { continue };
        let Some(meaning) = found.iter().find(|meaning| meaning.form == form) else { continue };
        let function = *function
            .get_or_insert_with(|| out.add_function(&name, (token.line, token.last_line), true));
        out.add_flat(meaning, word.line, function, implementation);
    }
}

/// Whether a word behind these two and before that one is the class of a guard, as in `guard(mutex)(lock)`.
fn is_class(before: &[Option<Token<'_>>; 2], next: &Token<'_>) -> bool {
    let [Some(guard), Some(open)] = before else { return false };
    let scoped = guard.is_word("scoped_guard") || guard.is_word("scoped_cond_guard");
    open.is(b'(')
        && (next.is(b')') && (scoped || guard.is_word("guard")) || next.is(b',') && scoped)
}

impl FileCensus {
    /// Adds a function, or a macro, of these first and last lines, and gives its number.
    fn add_function(&mut self, name: &Token<'_>, lines: (u32, u32), is_macro: bool) -> u32 {
        let (line, last_line) = lines;
        self.functions.push(Function { name: text_of(name.text), line, last_line, is_macro });
        self.functions.len() as u32 - 1
    }

    /// Adds a site where nesting is not known.
    fn add_flat(&mut self, meaning: &Meaning, line: u32, function: u32, implementation: bool) {
        let Meaning { kind, operation, .. } = *meaning;
        self.sites.push(Site { kind, operation, line, function, depth: 0, implementation });
    }
}

/// Counts names in assembler: after a label, anywhere but where they are declared.
fn assembler(pieces: &[Piece<'_>], meanings: &Meanings, out: &mut FileCensus) {
    let tokens: Vec<&Token<'_>> = pieces
        .iter()
        .filter_map(|piece| if let Piece::Token(token) = piece { Some(token) } else { None })
        .collect();
    let mut label: Option<(&Token<'_>, Option<u32>)> = None;
    for (at, token) in tokens.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| tokens.get(at));
        let next = tokens.get(at + 1);
        if token.kind != TokenKind::Word {
            continue;
        }
        let local = before.is_some_and(|before| before.is(b'.') || before.is(b'%'));
        if next.is_some_and(|next| next.is(b':')) && !local {
            label = Some((token, None));
            out.function_count += 1;
            continue;
        }
        let declared = before.is_some_and(|before| {
            before.is(b'(') || before.is(b'.') || is_declaration(before.text)
        });
        if declared {
            continue;
        }
        let Some(meaning) = meanings.get(token.text).and_then(|found| {
            found.iter().find(|meaning| matches!(meaning.form, Form::Call | Form::Word))
        }) else {
            continue;
        };
        let (name, function) = label.get_or_insert((token, None));
        let implementation = meanings.contains_key(name.text) && name.line != token.line;
        let function =
            *function.get_or_insert_with(|| out.add_function(name, (name.line, token.line), false));
        out.add_flat(meaning, token.line, function, implementation);
    }
}

fn is_declaration(word: &[u8]) -> bool {
    matches!(word, b"globl" | b"global" | b"type" | b"size" | b"weak" | b"extern")
}
