//! Objects as Node.js prints them (`console.log`, `util.inspect`), as values of JSON.
//!
//! ```text
//! { name: 'GET', 'a.b': `it's`, none: undefined, list: [ 1, 2, ... 3 more items ], deep: [Object] }
//! ```
//!
//! What JSON has no word for becomes a text, such as what is too deep to be printed.

use std::str::CharIndices;

use serde_json::{Map, Number, Value as Json};

/// Objects lie within others no deeper: Node.js itself stops after a few.
const DEEP: u32 = 64;

/// One object; `None` if it is none, or something follows.
pub fn object(text: &str) -> Option<Json> {
    let mut reader = Reader { text, at: 0 };
    let value = reader.value(0)?;
    reader.blanks();
    (value.is_object() && reader.rest().is_empty()).then_some(value)
}

/// A place in a text.
#[derive(Debug)]
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn blanks(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Goes past a character, if it is what comes next.
    fn takes(&mut self, wanted: char) -> bool {
        self.blanks();
        let found = self.rest().starts_with(wanted);
        self.at += if found { wanted.len_utf8() } else { 0 };
        found
    }

    fn value(&mut self, depth: u32) -> Option<Json> {
        if depth > DEEP {
            return None;
        }
        self.blanks();
        match self.rest().chars().next()? {
            '{' => self.members(depth),
            '[' => self.elements(depth),
            '\'' | '"' | '`' => {
                let mut whole = self.quoted()?;
                // Long ones are put together of lines.
                while self.takes('+') {
                    self.blanks();
                    whole.push_str(&self.quoted()?);
                }
                Some(Json::String(whole))
            }
            _ => self.bare(depth),
        }
    }

    fn members(&mut self, depth: u32) -> Option<Json> {
        let mut members = Map::new();
        self.takes('{');
        while !self.takes('}') {
            self.blanks();
            let key = match self.rest().chars().next()? {
                '\'' | '"' | '`' => self.quoted()?,
                _ => self.until(&[':', ',', '}']),
            };
            // `... 3 more items` and `[Circular *1]` have no value.
            if self.takes(':') {
                let value = self.value(depth + 1)?;
                members.insert(key, value);
            }
            if !self.takes(',') && !self.rest().starts_with('}') {
                return None;
            }
        }
        Some(Json::Object(members))
    }

    fn elements(&mut self, depth: u32) -> Option<Json> {
        let mut elements = Vec::new();
        self.takes('[');
        while !self.takes(']') {
            elements.push(self.value(depth + 1)?);
            if !self.takes(',') && !self.rest().starts_with(']') {
                return None;
            }
        }
        Some(Json::Array(elements))
    }

    /// A text in quotes.
    fn quoted(&mut self) -> Option<String> {
        let rest = self.rest();
        let mut characters = rest.char_indices();
        let (_, quote) = characters.next().filter(|(_, first)| "'\"`".contains(*first))?;
        let mut found = String::new();
        while let Some((at, character)) = characters.next() {
            if character == quote {
                self.at += at + 1;
                return Some(found);
            }
            if character != '\\' {
                found.push(character);
                continue;
            }
            let meant = match characters.next()?.1 {
                'x' => hexadecimal(&mut characters, 2)?,
                'u' => hexadecimal(&mut characters, 4)?,
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'v' => '\u{b}',
                other => other,
            };
            found.push(meant);
        }
        None
    }

    /// A number, a word, or what stands for something that is not printed.
    fn bare(&mut self, depth: u32) -> Option<Json> {
        let word = self.until(&[',', '}', ']', '{', '[', '\n']);
        // A class's name before its object: `Resource {`.
        if self.rest().starts_with(['{', '[']) {
            return self.value(depth + 1);
        }
        Some(match word.as_str() {
            "" => return None,
            "null" | "undefined" => Json::Null,
            "true" => Json::Bool(true),
            "false" => Json::Bool(false),
            _ => {
                let whole = word.parse::<i64>().ok().map(Number::from);
                let number = whole.or_else(|| word.parse().ok().and_then(Number::from_f64));
                number.map_or(Json::String(word), Json::Number)
            }
        })
    }

    /// What stands before one of these characters.
    fn until(&mut self, ends: &[char]) -> String {
        let rest = self.rest();
        let end = rest.find(ends).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default().trim().to_owned()
    }
}

/// The character that so many digits mean.
fn hexadecimal(characters: &mut CharIndices<'_>, digits: usize) -> Option<char> {
    let code = u32::from_str_radix(characters.as_str().get(..digits)?, 16).ok()?;
    for _ in 0..digits {
        characters.next();
    }
    Some(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_node_prints_is_read() {
        let text = "{\n  name: `query \"it's\"`,\n  'a.b': 'it\\'s \"so\" \\n\\x1b\\u2028',\n  none: undefined,\n  \
                    time: [ 17, -2.5 ],\n  deep: { list: [ 'a', ... 20 more items ], of: [Object] },\n  \
                    long: 'x\\n' +\n    'y',\n  made: Resource { a: true },\n}";
        let read = object(text).unwrap();
        assert_eq!(read["name"], "query \"it's\"");
        assert_eq!(read["a.b"], "it's \"so\" \n\u{1b}\u{2028}");
        assert_eq!((&read["none"], &read["time"][1]), (&Json::Null, &Json::from(-2.5)));
        assert_eq!((&read["deep"]["list"][0], &read["long"]), (&"a".into(), &"x\ny".into()));
        assert_eq!(read["made"]["a"], true);
        for none in ["", "{", "{ a: ", "{ a: 'x }", "{} {}", "[ 1 ]", "{ a: '\\u12' }"] {
            assert!(object(none).is_none(), "{none}");
        }
        assert!(object(&format!("{{ a: {}", "[".repeat(100_000))).is_none());
    }
}
