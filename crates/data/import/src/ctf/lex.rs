//! Words of TSDL, the language of CTF 1.8's metadata.

/// A word.
#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    Name(String),
    Number(i128),
    Text(String),
    /// One or more signs: `:=`, `...`, `->`, or a single one.
    Sign(&'static str),
}

/// Signs, longer ones first.
const SIGNS: [&str; 18] =
    ["...", ":=", "->", "{", "}", "[", "]", "(", ")", "<", ">", ";", ",", "=", ":", ".", "-", "+"];

/// The words of a text with the place of each, or the place of what is none.
pub fn tokens(text: &str) -> Result<Vec<(Token, usize)>, (usize, String)> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at).copied() {
        let rest = &text[at..];
        if byte.is_ascii_whitespace() || byte == 0 || byte == b'*' {
            // Pointers of C are nothing here.
            at += 1;
        } else if let Some(comment) = rest.strip_prefix("/*") {
            let end = comment.find("*/").ok_or((at, "a comment has no end".to_owned()))?;
            at += 2 + end + 2;
        } else if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if byte.is_ascii_alphabetic() || byte == b'_' || byte == b'$' {
            let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
            let end = rest.find(|c| !good(c)).unwrap_or(rest.len());
            tokens.push((Token::Name(rest[..end].to_owned()), at));
            at += end;
        } else if byte.is_ascii_digit() {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
            let number = number(&rest[..end]);
            let problem = || (at, format!("{:?} is no number", &rest[..end]));
            tokens.push((Token::Number(number.ok_or_else(problem)?), at));
            at += end;
        } else if byte == b'"' || byte == b'\'' {
            let (value, length) = quoted(rest).ok_or((at, "a text has no end".to_owned()))?;
            tokens.push((Token::Text(value), at));
            at += length;
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            tokens.push((Token::Sign(sign), at));
            at += sign.len();
        } else {
            let sign = rest.chars().next().unwrap_or(' ');
            return Err((at, format!("{sign:?} has no meaning here")));
        }
    }
    Ok(tokens)
}

fn number(text: &str) -> Option<i128> {
    let digits = text.trim_end_matches(['u', 'U', 'l', 'L']);
    if let Some(digits) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        return i128::from_str_radix(digits, 16).ok();
    }
    match digits.strip_prefix('0').filter(|octal| !octal.is_empty()) {
        Some(octal) => i128::from_str_radix(octal, 8).ok(),
        None => digits.parse().ok(),
    }
}

/// What stands in quotes, and how much of the text that is.
fn quoted(text: &str) -> Option<(String, usize)> {
    let mut signs = text.char_indices();
    let (_, quote) = signs.next()?;
    let mut value = String::new();
    while let Some((at, sign)) = signs.next() {
        match sign {
            '\\' => match signs.next()?.1 {
                'n' => value.push('\n'),
                't' => value.push('\t'),
                other => value.push(other),
            },
            sign if sign == quote => return Some((value, at + 1)),
            sign => value.push(sign),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_numbers_and_signs() {
        let all = tokens("a := 0x1F; /* x */ b[3] = \"q\\\"\" ... // end\n-07UL").unwrap();
        let all: Vec<Token> = all.into_iter().map(|(token, _)| token).collect();
        let name = |name: &str| Token::Name(name.into());
        use Token::{Number, Sign, Text};
        let wanted = [
            name("a"),
            Sign(":="),
            Number(31),
            Sign(";"),
            name("b"),
            Sign("["),
            Number(3),
            Sign("]"),
            Sign("="),
            Text("q\"".into()),
            Sign("..."),
            Sign("-"),
            Number(7),
        ];
        assert_eq!(all, wanted);
        assert_eq!(tokens("a ?").unwrap_err().0, 2);
        assert!(tokens("\"a").is_err() && tokens("/* a").is_err() && tokens("08z").is_err());
    }
}
