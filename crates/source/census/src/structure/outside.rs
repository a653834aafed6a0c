//! What lies outside of functions: declarations, and where a function begins.

use crate::token::{Language, Token, TokenKind};

use super::{Body, Control, DEEPEST, Declaration, FrameKind, Structure};

impl<'a> Structure<'a, '_> {
    pub(super) fn outside(&mut self, at: usize, token: Token<'a>) {
        let values = self.flow.frames.last().is_some_and(|f| f.kind == FrameKind::Values);
        match token.kind {
            TokenKind::Punctuation => match token.text.first() {
                Some(b'{') => self.open_outside(at),
                Some(b'}') => self.close_outside(),
                _ if values => {}
                Some(b'(') => {
                    if self.flow.parens == 0 && !self.declaration.fixed {
                        self.declaration.open = self.declaration.word;
                    }
                    self.flow.parens += 1;
                }
                Some(b')') => {
                    self.flow.parens = self.flow.parens.saturating_sub(1);
                    if self.flow.parens == 0
                        && let Some(word) = self.declaration.open.take()
                    {
                        self.declaration.name = Some(word);
                    }
                }
                Some(b';') if self.flow.parens == 0 => self.declaration = Declaration::default(),
                Some(b'=') if self.flow.parens == 0 && !self.declaration.fixed => {
                    self.declaration.values = true;
                }
                Some(b':') if self.language == Language::Cpp && self.flow.parens == 0 => {
                    // Members that a constructor begins with.
                    let qualified = self.before(at).is_some_and(|before| before.is(b':'))
                        || self.next(at + 1).is_some_and(|(_, next)| next.is(b':'));
                    self.declaration.fixed |= !qualified && self.declaration.name.is_some();
                }
                _ => {}
            },
            TokenKind::Word if !values && self.flow.parens == 0 => {
                if self.language == Language::Rust {
                    if self.before(at).is_some_and(|before| before.is_word("fn")) {
                        self.declaration.name = Some(at);
                        self.declaration.fixed = true;
                    }
                } else if !self.declaration.fixed && !is_attribute(token.text) {
                    self.declaration.word = Some(at);
                } else {
                    self.declaration.word = None;
                }
            }
            _ => {}
        }
    }

    fn open_outside(&mut self, at: usize) {
        if self.flow.frames.len() >= DEEPEST {
            self.flow.too_deep += 1;
            return;
        }
        let declaration = &self.declaration;
        let fixed = declaration.fixed && self.language == Language::Cpp;
        // `member{value}` before a constructor's body.
        let member = fixed && self.before(at).is_some_and(|before| before.kind == TokenKind::Word);
        let inner = self.flow.frames.last().is_some_and(|f| f.kind == FrameKind::Values);
        let kind = match declaration.name {
            _ if inner || member || self.flow.parens > 0 => FrameKind::Values,
            _ if declaration.values => FrameKind::Values,
            Some(_) => FrameKind::Function,
            None => FrameKind::Transparent,
        };
        if kind == FrameKind::Function {
            let name = declaration.name.and_then(|at| self.function_name(at));
            let implementation = name.is_some_and(|name| self.meanings.contains_key(name.text));
            self.out.function_count += 1;
            self.body = Body { name, implementation, ..Body::default() };
            self.flow.held = Some(Vec::new());
        }
        self.push(kind, Control::Plain);
        if kind != FrameKind::Values {
            self.declaration = Declaration::default();
        }
    }

    /// The name of a function whose head has this word before its parentheses. `SYSCALL_DEFINE1(name, …)`
    /// and its like have it inside.
    fn function_name(&self, at: usize) -> Option<Token<'a>> {
        let name = self.token(at)?;
        let shouted = !name.text.iter().any(u8::is_ascii_lowercase);
        if !shouted || self.language == Language::Rust {
            return Some(name);
        }
        let inner = self.next(at + 1).and_then(|(open, _)| self.next(open + 1));
        Some(inner.map(|(_, token)| token).filter(|t| t.kind == TokenKind::Word).unwrap_or(name))
    }

    fn close_outside(&mut self) {
        if self.flow.too_deep > 0 {
            self.flow.too_deep -= 1;
            return;
        }
        let Some(frame) = self.flow.frames.pop() else {
            self.declaration = Declaration::default();
            return;
        };
        self.flow.parens = frame.parens;
        if frame.kind == FrameKind::Transparent {
            self.declaration = Declaration::default();
        }
    }
}

/// Words behind which parentheses say something about a function, and are not its own.
fn is_attribute(word: &[u8]) -> bool {
    let word = word.strip_prefix(b"__").unwrap_or(word);
    let word = word.strip_suffix(b"__").unwrap_or(word);
    matches!(
        word,
        b"attribute"
            | b"declspec"
            | b"acquires"
            | b"releases"
            | b"must_hold"
            | b"cond_acquires"
            | b"cond_lock"
            | b"aligned"
            | b"alignas"
            | b"section"
            | b"printf"
            | b"scanf"
            | b"malloc"
            | b"alloc_size"
            | b"assume_aligned"
            | b"nonnull"
            | b"asm"
            | b"noexcept"
            | b"throw"
            | b"requires"
            | b"decltype"
            | b"REGPARM"
            | b"FASTCALL"
            | b"GUARDED_BY"
            | b"EXCLUSIVE_LOCKS_REQUIRED"
            | b"LOCKS_EXCLUDED"
    )
}
