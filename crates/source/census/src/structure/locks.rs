//! Operations on locks, and which lock each names.

use crate::conditional::same_text;
use crate::held::{Taken, let_go, take};
use crate::kinds::{Form, Operation};
use crate::site::{Site, text_of};
use crate::token::{Token, TokenKind};

use super::Structure;

/// How many tokens of a lock's name count.
const LONGEST_NAME: u32 = 24;

impl<'a> Structure<'a, '_> {
    pub(super) fn operation(&mut self, at: usize, token: Token<'a>, begins: bool) {
        let Some(meanings) = self.meanings.get(token.text) else { return };
        let found = meanings.iter().find_map(|m| Some((*m, self.lock_of(at, m.form)?)));
        let Some((meaning, lock)) = found else { return };
        let index = self.function_index(token.line);
        let mut depth = 0;
        match meaning.operation {
            Operation::Lock | Operation::Try | Operation::Scoped => {
                self.body.taken += 1;
                let scoped = meaning.operation == Operation::Scoped;
                // A method is a statement of its own if what it is called on begins one.
                let receiver = matches!(meaning.form, Form::Method | Form::EmptyMethod);
                let alone = begins || (receiver && self.begins_statement(lock.0 as usize));
                let bound = self.flow.binds
                    || meaning.form == Form::Guard
                    || (meaning.form == Form::Class && self.is_class_of(at, &[b"guard"]))
                    || self.flow.head.is_some();
                let taken = Taken {
                    id: self.body.taken,
                    kind: meaning.kind,
                    lock,
                    line: token.line,
                    maybe: meaning.operation == Operation::Try || !alone,
                    scope: scoped.then(|| self.depth() + u32::from(!bound)),
                };
                depth = take(&mut self.flow.held, taken).min(255) as u8;
            }
            Operation::Unlock => {
                self.body.let_go.insert(meaning.kind);
                let pieces = self.pieces;
                let held = self.flow.held.as_ref();
                if held.is_some_and(|held| held.iter().all(|taken| taken.kind != meaning.kind)) {
                    self.body.given.push((meaning.kind, lock));
                }
                let_go(&mut self.flow.held, meaning.kind, |taken| {
                    same_text(pieces, taken.lock, lock)
                });
            }
            Operation::Other => {}
        }
        self.out.sites.push(Site {
            kind: meaning.kind,
            operation: meaning.operation,
            line: token.line,
            function: index,
            depth,
            implementation: self.body.implementation,
        });
    }

    /// The tokens that name the lock, if the word at `at` is an operation of this form.
    fn lock_of(&self, at: usize, form: Form) -> Option<(u32, u32)> {
        let (next_at, next) = self.next(at + 1)?;
        let method = self.before(at).is_some_and(|b| b.is(b'.') || b.is(b'>'));
        match form {
            Form::Call if next.is(b'(') && !method => Some(self.argument(next_at)),
            Form::Method | Form::EmptyMethod if next.is(b'(') && method => {
                let empty = self.next(next_at + 1).is_some_and(|(_, token)| token.is(b')'));
                (form == Form::Method || empty).then(|| self.receiver(at))
            }
            Form::Word => Some((at as u32, at as u32)),
            Form::Class => self.lock_of_class(at, next_at),
            Form::Guard => {
                let mut at = next_at;
                if next.is(b'<') {
                    let mut open = 0_i32;
                    loop {
                        let (here, token) = self.next(at)?;
                        open += i32::from(token.is(b'<')) - i32::from(token.is(b'>'));
                        at = here + 1;
                        if open <= 0 {
                            break;
                        }
                        if token.is(b';') {
                            return None;
                        }
                    }
                }
                let (variable, token) = self.next(at)?;
                let (open, brace) = self.next(variable + 1)?;
                let opens = token.kind == TokenKind::Word && (brace.is(b'(') || brace.is(b'{'));
                opens.then(|| self.argument(open))
            }
            _ => None,
        }
    }

    /// Whether the word at `at` is the first argument of one of these macros.
    fn is_class_of(&self, at: usize, macros: &[&[u8]]) -> bool {
        let mut before = (0..at).rev().filter_map(|at| self.token(at));
        let (Some(open), Some(name)) = (before.next(), before.next()) else { return false };
        open.is(b'(') && name.kind == TokenKind::Word && macros.contains(&name.text)
    }

    /// The lock of a guard whose class is at `at`: some classes have one lock only, and no argument.
    fn lock_of_class(&self, at: usize, next_at: usize) -> Option<(u32, u32)> {
        if self.is_class_of(at, &[b"guard"]) {
            let (open, token) = self.next(next_at + 1)?;
            return token.is(b'(').then(|| self.argument(open));
        }
        let none = (next_at as u32, next_at as u32);
        let argument = |comma: usize| match self.token(comma).is_some_and(|token| token.is(b',')) {
            true => self.argument(comma),
            false => none,
        };
        if self.is_class_of(at, &[b"scoped_guard"]) {
            return Some(argument(next_at));
        }
        // What is done where the lock is not had stands before it.
        let conditional = self.is_class_of(at, &[b"scoped_cond_guard"]);
        conditional.then(|| argument(argument(next_at).1 as usize))
    }

    /// The first argument of a call whose parenthesis is at `open`.
    fn argument(&self, open: usize) -> (u32, u32) {
        let mut depth = 0_u32;
        let start = open as u32 + 1;
        for at in start..start + LONGEST_NAME {
            let Some(token) = self.token(at as usize) else { return (start, at) };
            if depth == 0 && (token.is(b',') || token.is(b')') || token.is(b'}')) {
                return (start, at);
            }
            depth += u32::from(token.is(b'('));
            depth = depth.saturating_sub(u32::from(token.is(b')')));
        }
        (start, start + LONGEST_NAME)
    }

    /// What the method at `at` is called on.
    fn receiver(&self, at: usize) -> (u32, u32) {
        let mut start = at;
        let mut depth = 0_u32;
        for before in (at.saturating_sub(LONGEST_NAME as usize)..at).rev() {
            let Some(token) = self.token(before) else { break };
            let closes = token.is(b')') || token.is(b']');
            let opens = token.is(b'(') || token.is(b'[');
            let joins = [b'.', b'-', b'>', b':'].iter().any(|&byte| token.is(byte));
            let word = token.kind == TokenKind::Word && !token.is_word("return");
            if depth == 0 && (opens || !(closes || joins || word)) {
                break;
            }
            depth += u32::from(closes);
            depth = depth.saturating_sub(u32::from(opens));
            start = before;
        }
        (start as u32, at.saturating_sub(1) as u32)
    }

    pub(super) fn lock_text(&self, (from, to): (u32, u32)) -> Box<str> {
        let mut text = Vec::new();
        let mut was_word = false;
        for at in from..to {
            let Some(token) = self.token(at as usize) else { break };
            let word = token.kind != TokenKind::Punctuation;
            if word && was_word {
                text.push(b' ');
            }
            was_word = word;
            text.extend_from_slice(token.text);
        }
        text_of(&text)
    }
}
