//! From text to tokens.

use crate::diagnostic::Span;

/// What a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name or keyword.
    Word(String),
    /// A number, decimal or `0x`.
    Number(u64),
    /// A text in quotes, without them.
    Text(String),
    /// Punctuation.
    Sign(&'static str),
    /// After the last token.
    End,
}

/// A token and its place.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub kind: Kind,
    pub span: Span,
}

/// Longest name. Longer ones are slips, and comparing names for suggestions should stay cheap.
const NAME_MAX: usize = 64;

/// Signs, longer ones before their beginnings.
const SIGNS: [&str; 25] = [
    "->", "==", "!=", "<=", ">=", "<<", ">>", "<", ">", "=", "+", "-", "*", "&", "|", "^", "(",
    ")", "{", "}", ",", ":", ";", "[", "]",
];

/// Splits a text; the last token is [`Kind::End`]. What is no token is reported and left out.
pub(crate) fn tokens(text: &str, complain: &mut dyn FnMut(Span, String)) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let start = at;
        let kind = if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        } else if first == '#' {
            at += rest.find('\n').unwrap_or(rest.len());
            continue;
        } else if first.is_ascii_alphabetic() || first == '_' {
            at += word_length(rest);
            if at - start > NAME_MAX {
                let message = format!("names have at most {NAME_MAX} characters");
                complain(Span { start, end: at }, message);
            }
            // Cut, not left out: what stands around it should not look wrong too.
            Kind::Word(text[start..at.min(start + NAME_MAX)].into())
        } else if first.is_ascii_digit() {
            at += word_length(rest);
            match number(&text[start..at]) {
                Some(number) => Kind::Number(number),
                None => {
                    let message = format!("`{}` is not a number of 64 bits", &text[start..at]);
                    complain(Span { start, end: at }, message);
                    Kind::Number(0)
                }
            }
        } else if first == '"' {
            let (length, content) = quoted(rest);
            at += length;
            match content {
                Ok(content) => Kind::Text(content),
                Err(message) => {
                    complain(Span { start, end: at }, message);
                    Kind::Text(String::new())
                }
            }
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            at += sign.len();
            Kind::Sign(sign)
        } else {
            at += first.len_utf8();
            let shown: String = first.escape_debug().collect();
            complain(Span { start, end: at }, format!("`{shown}` has no meaning in schemas"));
            continue;
        };
        tokens.push(Token { kind, span: Span { start, end: at } });
    }
    // The end is shown behind the last token: that is where something is missing.
    let end = tokens.last().map_or(0, |token| token.span.end);
    tokens.push(Token { kind: Kind::End, span: Span { start: end, end } });
    tokens
}

fn word_length(rest: &str) -> usize {
    rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len())
}

fn number(text: &str) -> Option<u64> {
    let digits = text.replace('_', "");
    match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => digits.parse().ok(),
    }
}

/// Length of a quoted text with its quotes, and what it says.
fn quoted(rest: &str) -> (usize, Result<String, String>) {
    let mut content = String::new();
    let mut wrong = None;
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (at + 1, wrong.map_or(Ok(content), Err)),
            '\n' => return (at, Err("this text has no closing quote on its line".into())),
            '\\' => match chars.next() {
                Some((_, c @ ('"' | '\\'))) => content.push(c),
                Some((_, 'n')) => content.push('\n'),
                Some((_, 't')) => content.push('\t'),
                Some((at, '\n')) => return (at, Err("this text has no closing quote".into())),
                _ => wrong = Some("known escapes are \\\" \\\\ \\n \\t".into()),
            },
            c => content.push(c),
        }
    }
    (rest.len(), Err("this text has no closing quote".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lex(text: &str) -> (Vec<Kind>, Vec<String>) {
        let mut messages = Vec::new();
        let tokens = tokens(text, &mut |_, message| messages.push(message));
        (tokens.into_iter().map(|token| token.kind).collect(), messages)
    }

    #[test]
    fn tokens_of_every_kind() {
        let (kinds, messages) = lex("on a_1->0x1_F <= \"q\\\"\\n\" # no\n;");
        let expected = [
            Kind::Word("on".into()),
            Kind::Word("a_1".into()),
            Kind::Sign("->"),
            Kind::Number(31),
            Kind::Sign("<="),
            Kind::Text("q\"\n".into()),
            Kind::Sign(";"),
            Kind::End,
        ];
        assert_eq!((kinds.as_slice(), messages.len()), (expected.as_slice(), 0));
    }

    #[test]
    fn what_is_no_token_is_reported() {
        for (text, message) in [
            ("a § b", "`§` has no meaning in schemas"),
            ("\"a", "this text has no closing quote"),
            ("\"a\nb", "this text has no closing quote on its line"),
            ("\"\\q\"", "known escapes are \\\" \\\\ \\n \\t"),
            ("12ab", "`12ab` is not a number of 64 bits"),
            ("99999999999999999999", "`99999999999999999999` is not a number of 64 bits"),
        ] {
            assert_eq!(lex(text).1, [message], "{text}");
        }
    }
}
