//! What is known of the preprocessor's names, and what follows for a condition.
//!
//! A condition is true, false or unknown. `defined(A) && B` is false where `A` is certainly not defined,
//! whatever `B` is. That is how `unifdef` reads conditions, too.

use rustc_hash::FxHashMap;

use crate::token::{Token, TokenKind, Tokens};

/// What is known of names.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// Known names: their text, or nothing where they are certainly not defined.
    known: FxHashMap<Vec<u8>, Option<Vec<u8>>>,
    /// Whether all others are certainly not defined, and definitions in a file count: as the compiler
    /// reads a file that includes nothing.
    pub closed: bool,
}

/// How deep expressions, and names that stand for others, may nest.
const DEEPEST: u32 = 64;

impl Names {
    /// Says that a name is defined. `NAME` alone stands for 1, as with compilers.
    pub fn define(&mut self, definition: &str) {
        let (name, value) = definition.split_once('=').unwrap_or((definition, "1"));
        self.known.insert(name.trim().into(), Some(value.trim().into()));
    }

    /// Says that a name is not defined.
    pub fn undefine(&mut self, name: &str) {
        self.known.insert(name.trim().into(), None);
    }

    /// Takes a `#define` or `#undef` of the file into account, where the file is all there is.
    pub(crate) fn directive(&mut self, directive: &[u8]) {
        if !self.closed {
            return;
        }
        let mut tokens = Tokens::of_directive(directive, 1);
        let Some(verb) = tokens.next() else { return };
        let Some(name) = tokens.next().filter(|name| name.kind == TokenKind::Word) else { return };
        if verb.is_word("undef") {
            self.known.insert(name.text.into(), None);
        } else if verb.is_word("define") {
            let rest: Vec<&[u8]> = tokens.map(|token| token.text).collect();
            self.known.insert(name.text.into(), Some(rest.join(&b' ')));
        }
    }

    /// Whether the condition of `#if`, `#ifdef`, `#ifndef` or one of their `#elif` holds, if that is known.
    pub fn condition(&self, directive: &[u8]) -> Option<bool> {
        let tokens: Vec<_> = Tokens::of_directive(directive, 1).collect();
        let (verb, rest) = tokens.split_first()?;
        let defined = || self.is_defined(rest.first()?.text);
        match verb.text {
            b"ifdef" | b"elifdef" => defined(),
            b"ifndef" | b"elifndef" => defined().map(|defined| !defined),
            _ => self.expression(rest, 0).map(|value| value != 0),
        }
    }

    fn is_defined(&self, name: &[u8]) -> Option<bool> {
        match self.known.get(name) {
            Some(value) => Some(value.is_some()),
            None => self.closed.then_some(false),
        }
    }

    /// The value of a whole expression, if it is known.
    fn expression(&self, tokens: &[Token<'_>], depth: u32) -> Option<i64> {
        let mut parser = Parser { names: self, tokens, depth };
        let value = parser.ternary();
        // What is not understood is not known.
        if parser.tokens.is_empty() { value } else { None }
    }
}

struct Parser<'a> {
    names: &'a Names,
    tokens: &'a [Token<'a>],
    depth: u32,
}

/// Operators of two sides, those that bind weakest first.
const OPERATORS: [&[&str]; 10] = [
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<=", ">=", "<", ">"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

impl<'a> Parser<'a> {
    fn take(&mut self, text: &str) -> bool {
        let found = self.sees(text);
        if found {
            self.tokens = self.tokens.get(text.len()..).unwrap_or_default();
        }
        found
    }

    fn sees(&self, text: &str) -> bool {
        let mut bytes = text.bytes().zip(0..);
        let here = bytes.all(|(byte, at)| self.tokens.get(at).is_some_and(|t| t.is(byte)));
        // `<` is not the beginning of `<<`, nor `|` of `||`.
        let longer = text.len() == 1
            && matches!(text, "|" | "&" | "<" | ">")
            && self.tokens.get(1).is_some_and(|t| t.is(text.as_bytes()[0]));
        here && !longer
    }

    fn ternary(&mut self) -> Option<i64> {
        let condition = self.binary(0);
        if !self.take("?") {
            return condition;
        }
        self.depth += 1;
        if self.depth > DEEPEST {
            self.tokens = &[];
            return None;
        }
        let yes = self.ternary();
        if !self.take(":") {
            return None;
        }
        let no = self.ternary();
        self.depth -= 1;
        match condition? {
            0 => no,
            _ => yes,
        }
    }

    fn binary(&mut self, level: usize) -> Option<i64> {
        let Some(operators) = OPERATORS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1);
        while let Some(operator) = operators.iter().find(|operator| self.sees(operator)) {
            self.take(operator);
            let right = self.binary(level + 1);
            left = apply(operator, left, right);
        }
        left
    }

    fn unary(&mut self) -> Option<i64> {
        self.depth += 1;
        if self.depth > DEEPEST {
            self.tokens = &[];
            return None;
        }
        let value = self.operand();
        self.depth -= 1;
        value
    }

    fn operand(&mut self) -> Option<i64> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        match first.kind {
            TokenKind::Punctuation => match first.text.first()? {
                b'!' => self.unary().map(|value| i64::from(value == 0)),
                b'-' => self.unary().map(i64::wrapping_neg),
                b'+' => self.unary(),
                b'~' => self.unary().map(|value| !value),
                b'(' => {
                    let value = self.ternary();
                    if self.take(")") { value } else { None }
                }
                _ => None,
            },
            TokenKind::Number => number(first.text),
            TokenKind::Word if first.text == b"defined" => {
                let name = self.argument()?;
                self.names.is_defined(name).map(i64::from)
            }
            TokenKind::Word if matches!(first.text, b"IS_ENABLED" | b"IS_BUILTIN") => {
                let name = self.argument()?;
                self.enabled(name, first.text == b"IS_ENABLED")
            }
            TokenKind::Word => self.name(first.text),
            _ => None,
        }
    }

    /// The name behind `defined`, with parentheses or without.
    fn argument(&mut self) -> Option<&'a [u8]> {
        let open = self.take("(");
        let (name, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        if open && !self.take(")") {
            return None;
        }
        (name.kind == TokenKind::Word).then_some(name.text)
    }

    /// Linux's `IS_ENABLED(CONFIG_A)`: built in, or as a module.
    fn enabled(&self, name: &[u8], modules: bool) -> Option<i64> {
        let module = [name, b"_MODULE"].concat();
        let (built_in, module) = (self.names.is_defined(name)?, self.names.is_defined(&module));
        // A name of the configuration that is known not to be there is not there as a module either.
        Some(i64::from(built_in || (modules && module == Some(true))))
    }

    fn name(&mut self, name: &[u8]) -> Option<i64> {
        let call = self.tokens.first().is_some_and(|token| token.is(b'('));
        if call {
            // A macro with arguments. What it makes of them is not known.
            let mut depth = 0_u32;
            while let Some((token, rest)) = self.tokens.split_first() {
                self.tokens = rest;
                depth += u32::from(token.is(b'('));
                depth = depth.saturating_sub(u32::from(token.is(b')')));
                if depth == 0 {
                    break;
                }
            }
            return None;
        }
        match self.names.known.get(name) {
            Some(None) => Some(0),
            Some(Some(value)) => {
                if self.depth >= DEEPEST {
                    return None;
                }
                let tokens: Vec<_> = Tokens::of_directive(value, 1).collect();
                self.names.expression(&tokens, self.depth + 1)
            }
            None => self.names.closed.then_some(0),
        }
    }
}

fn apply(operator: &str, left: Option<i64>, right: Option<i64>) -> Option<i64> {
    match (operator, left, right) {
        ("||", Some(value), _) | ("||", _, Some(value)) if value != 0 => return Some(1),
        ("&&", Some(0), _) | ("&&", _, Some(0)) => return Some(0),
        _ => {}
    }
    let (left, right) = (left?, right?);
    let shift = || u32::try_from(right).unwrap_or(64);
    Some(match operator {
        "||" => i64::from(left != 0 || right != 0),
        "&&" => i64::from(left != 0 && right != 0),
        "|" => left | right,
        "^" => left ^ right,
        "&" => left & right,
        "==" => i64::from(left == right),
        "!=" => i64::from(left != right),
        "<=" => i64::from(left <= right),
        ">=" => i64::from(left >= right),
        "<" => i64::from(left < right),
        ">" => i64::from(left > right),
        "<<" => left.checked_shl(shift()).unwrap_or(0),
        ">>" => left.checked_shr(shift()).unwrap_or(0),
        "+" => left.wrapping_add(right),
        "-" => left.wrapping_sub(right),
        "*" => left.wrapping_mul(right),
        "/" => left.checked_div(right)?,
        "%" => left.checked_rem(right)?,
        _ => return None,
    })
}

fn number(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?.to_ascii_lowercase().replace('\'', "");
    let digits = text.trim_end_matches(['u', 'l']);
    let parsed = if let Some(hex) = digits.strip_prefix("0x") {
        u64::from_str_radix(hex, 16)
    } else if let Some(binary) = digits.strip_prefix("0b") {
        u64::from_str_radix(binary, 2)
    } else if digits.len() > 1 && digits.starts_with('0') {
        u64::from_str_radix(digits, 8)
    } else {
        digits.parse()
    };
    parsed.ok().map(|value| value as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &Names, directive: &str) -> Option<bool> {
        names.condition(directive.as_bytes())
    }

    #[test]
    fn conditions_have_three_values() {
        let mut names = Names::default();
        names.define("A");
        names.define("V=0x20500");
        names.define("W=V + 1");
        names.undefine("N");
        for (directive, value) in [
            ("ifdef A", Some(true)),
            ("ifndef A", Some(false)),
            ("ifdef U", None),
            ("if defined(A) || U", Some(true)),
            ("if U || defined A", Some(true)),
            ("if N && U", Some(false)),
            ("if U && A", None),
            ("if V >= 0x20400", Some(true)),
            ("if (V & 0xff) != 0", Some(false)),
            ("if W == 0x20501 ? A : N", Some(true)),
            ("if !defined(N) && !(1 << 2 > 4)", Some(true)),
            ("if KERNEL_VERSION(2,4,0) > 1", None),
            ("if 1 / 0", None),
            ("if IS_ENABLED(N)", Some(false)),
            ("if", None),
            ("if A A", None),
            ("if 1 | 1 || U", Some(true)),
        ] {
            assert_eq!(of(&names, directive), value, "{directive}");
        }
        names.closed = true;
        assert_eq!(of(&names, "ifdef U"), Some(false));
        names.directive(b"define U 1");
        assert_eq!(of(&names, "if U"), Some(true));
        names.directive(b"undef U");
        assert_eq!(of(&names, "if U"), Some(false));
        // A name that stands for itself comes to an end.
        names.define("R=R");
        assert_eq!(of(&names, "if R"), None);
        assert_eq!(of(&names, &format!("if {}1", "(".repeat(10_000))), None);
    }
}
