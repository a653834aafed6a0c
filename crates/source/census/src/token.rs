//! Words, punctuation and preprocessor lines of C, C++, assembler and Rust.
//!
//! A census of locks needs no types and no grammar, but it needs to see every line of every file. Parsers
//! of the whole language give up on a good part of an old kernel, whose files mean nothing before the
//! preprocessor has been there. So this knows comments, literals and directives, and nothing more. Bytes
//! that are no text are skipped.

/// What a file is written in, as its name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Language {
    /// C, headers included.
    C,
    /// C++.
    Cpp,
    /// Assembler that goes through the preprocessor.
    Assembler,
    /// Rust.
    Rust,
}

impl Language {
    /// The language of a file, by the end of its name.
    pub fn of(path: &str) -> Option<Language> {
        match path.rsplit('/').next()?.rsplit_once('.')?.1 {
            "c" | "h" => Some(Language::C),
            "cc" | "cpp" | "cxx" | "C" | "hh" | "hpp" | "hxx" | "ipp" => Some(Language::Cpp),
            "S" => Some(Language::Assembler),
            "rs" => Some(Language::Rust),
            _ => None,
        }
    }

    /// What kinds files call it.
    pub fn from_name(name: &str) -> Option<Language> {
        match name {
            "c" => Some(Language::C),
            "cpp" => Some(Language::Cpp),
            "asm" => Some(Language::Assembler),
            "rust" => Some(Language::Rust),
            _ => None,
        }
    }
}

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// A name or keyword.
    Word,
    /// A number.
    Number,
    /// One byte of punctuation.
    Punctuation,
    /// A string or character.
    Literal,
    /// A preprocessor line without its `#`, with all lines that it goes on in.
    Directive,
}

/// A token of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'a> {
    /// What it is.
    pub kind: TokenKind,
    /// Its bytes.
    pub text: &'a [u8],
    /// The line that it begins in, from 1.
    pub line: u32,
    /// The line that it ends in.
    pub last_line: u32,
}

impl Token<'_> {
    /// Whether it is this byte of punctuation.
    pub fn is(&self, byte: u8) -> bool {
        self.kind == TokenKind::Punctuation && self.text.first() == Some(&byte)
    }

    /// Whether it is this word.
    pub fn is_word(&self, word: &str) -> bool {
        self.kind == TokenKind::Word && self.text == word.as_bytes()
    }
}

/// The tokens of a text, in order.
#[derive(Debug, Clone)]
pub struct Tokens<'a> {
    text: &'a [u8],
    at: usize,
    line: u32,
    language: Language,
    /// Whether nothing but blanks and comments came before in this line.
    line_begins: bool,
}

/// Classes of bytes.
const OTHER: u8 = 0;
const BLANK: u8 = 1;
const LETTER: u8 = 2;
const DIGIT: u8 = 3;

const CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut classes = [OTHER; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b' ' | b'\t' | b'\r' | 0x0b | 0x0c => BLANK,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$' | 0x80..=0xff => LETTER,
            b'0'..=b'9' => DIGIT,
            _ => OTHER,
        };
        byte += 1;
    }
    classes
}

fn class(byte: u8) -> u8 {
    CLASSES[usize::from(byte)]
}

impl<'a> Tokens<'a> {
    /// The tokens of a file.
    pub fn new(text: &'a [u8], language: Language) -> Tokens<'a> {
        Tokens { text, at: 0, line: 1, language, line_begins: true }
    }

    /// The tokens of a directive's text, which begins in this line. Directives do not nest.
    pub fn of_directive(text: &'a [u8], line: u32) -> Tokens<'a> {
        Tokens { text, at: 0, line, language: Language::C, line_begins: false }
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Goes on by so many bytes and counts the lines among them.
    fn skip(&mut self, len: usize) {
        let end = (self.at + len).min(self.text.len());
        let passed = self.text.get(self.at..end).unwrap_or_default();
        self.line += passed.iter().filter(|&&byte| byte == b'\n').count() as u32;
        self.at = end;
    }

    fn token(&mut self, kind: TokenKind, len: usize) -> Token<'a> {
        let line = self.line;
        let start = self.at;
        self.skip(len);
        self.line_begins = false;
        let text = self.text.get(start..self.at).unwrap_or_default();
        Token { kind, text, line, last_line: self.line }
    }

    /// Length of the comment that begins here, or 0.
    fn comment(&self) -> usize {
        let rest = self.rest();
        match (self.peek(0), self.peek(1)) {
            (b'/', b'*') if self.language == Language::Rust => nested_comment(rest),
            (b'/', b'*') => {
                let inner = rest.get(2..).unwrap_or_default();
                find(inner, b"*/").map_or(rest.len(), |end| end + 4)
            }
            (b'/', b'/') => line_length(rest),
            _ => 0,
        }
    }

    /// What a `#` begins: a directive, or in assembler a comment.
    fn hash(&mut self) -> Option<Token<'a>> {
        let rest = self.rest();
        let blanks = rest.iter().skip(1).take_while(|&&byte| class(byte) == BLANK).count();
        let word = rest.get(1 + blanks..).unwrap_or_default();
        let word = word.get(..word_length(word)).unwrap_or_default();
        let directive = self.line_begins && self.language != Language::Rust;
        if self.language == Language::Assembler && !(directive && is_directive(word)) {
            self.skip(line_length(rest));
            return None;
        }
        if !directive {
            return Some(self.token(TokenKind::Punctuation, 1));
        }
        self.skip(1);
        let len = directive_length(self.rest());
        let token = self.token(TokenKind::Directive, len);
        self.line_begins = true;
        Some(token)
    }

    /// Length of the literal that begins here behind `prefix` bytes of letters, or 0.
    fn literal(&self, prefix: usize) -> usize {
        let rest = self.rest().get(prefix..).unwrap_or_default();
        let letters = self.rest().get(..prefix).unwrap_or_default();
        let len = match (self.language, rest.first()) {
            (Language::Rust, Some(b'"' | b'#')) if letters.ends_with(b"r") => raw_rust(rest),
            (Language::Cpp, Some(b'"')) if letters.ends_with(b"R") => raw_cpp(rest),
            (Language::Rust, Some(b'"')) => quoted(rest, true),
            (Language::Rust, Some(b'\'')) => rust_character(rest),
            (Language::Assembler, Some(b'\'')) => 0,
            (_, Some(b'"' | b'\'')) => quoted(rest, false),
            _ => 0,
        };
        if len == 0 { 0 } else { prefix + len }
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            let byte = *self.text.get(self.at)?;
            match class(byte) {
                BLANK => self.at += 1,
                LETTER => {
                    let len = word_length(self.rest());
                    // `L"…"`, `u8R"…"`, `br#"…"#`.
                    let quote = matches!(self.peek(len), b'"' | b'\'' | b'#') && len <= 3;
                    let literal = if quote { self.literal(len) } else { 0 };
                    return Some(match literal {
                        0 => self.token(TokenKind::Word, len),
                        literal => self.token(TokenKind::Literal, literal),
                    });
                }
                DIGIT => {
                    let len = number_length(self.rest());
                    return Some(self.token(TokenKind::Number, len));
                }
                _ if byte == b'\n' => {
                    self.at += 1;
                    self.line += 1;
                    self.line_begins = true;
                }
                _ if byte == b'\\' => {
                    // A line that goes on in the next one, which no directive begins.
                    let end = if self.peek(1) == b'\r' { 2 } else { 1 };
                    let goes_on = self.peek(end) == b'\n';
                    self.skip(if goes_on { end + 1 } else { 1 });
                }
                _ if byte == b'#' => {
                    if let Some(token) = self.hash() {
                        return Some(token);
                    }
                }
                _ => {
                    let comment = self.comment();
                    if comment > 0 {
                        self.skip(comment);
                        continue;
                    }
                    let literal = self.literal(0);
                    return Some(match literal {
                        0 => self.token(TokenKind::Punctuation, 1),
                        literal => self.token(TokenKind::Literal, literal),
                    });
                }
            }
        }
    }
}

fn word_length(text: &[u8]) -> usize {
    text.iter().take_while(|&&byte| matches!(class(byte), LETTER | DIGIT)).count()
}

/// A preprocessor's number: exponents with signs and C++'s separators are of it.
fn number_length(text: &[u8]) -> usize {
    let mut len = 0;
    while let Some(&byte) = text.get(len) {
        let next = text.get(len + 1).copied().unwrap_or(0);
        let before = if len == 0 { 0 } else { text.get(len - 1).copied().unwrap_or(0) };
        let separator = byte == b'\'' && len > 0 && matches!(class(next), LETTER | DIGIT);
        // `0..n` in Rust is no number with two points.
        let point = byte == b'.' && next != b'.' && before != b'.';
        let sign = matches!(byte, b'+' | b'-')
            && matches!(before, b'e' | b'E' | b'p' | b'P')
            && !text.starts_with(b"0x");
        if !(matches!(class(byte), LETTER | DIGIT) || point || sign || separator) {
            break;
        }
        len += 1;
    }
    len
}

/// Length up to the end of the line, which is not of it. A backslash before the end joins the next line.
fn line_length(text: &[u8]) -> usize {
    let mut len = 0;
    while let Some(end) = text.get(len..).and_then(|rest| rest.iter().position(|&b| b == b'\n')) {
        let line = text.get(len..len + end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if !line.ends_with(b"\\") {
            return len + end;
        }
        len += end + 1;
    }
    text.len()
}

/// Length of a directive: its line, those that backslashes join to it, and those that a comment goes on in.
fn directive_length(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let rest = text.get(at..).unwrap_or_default();
        at += match byte {
            b'\n' => return at,
            b'\\' if rest.starts_with(b"\\\r\n") => 3,
            b'\\' => 2,
            b'/' if rest.starts_with(b"//") => line_length(rest),
            b'/' if rest.starts_with(b"/*") => {
                let inner = rest.get(2..).unwrap_or_default();
                find(inner, b"*/").map_or(rest.len(), |end| end + 4)
            }
            b'"' => quoted(rest, false),
            // `#error don't` has one quote: a character is short.
            b'\'' if rest.get(1) == Some(&b'\\') => quoted(rest, false),
            b'\'' if rest.get(2) == Some(&b'\'') => 3,
            _ => 1,
        };
    }
    text.len()
}

/// Length of what stands in quotes. It ends with its line where no quote does, unless lines are of it.
fn quoted(text: &[u8], lines: bool) -> usize {
    let quote = text.first().copied().unwrap_or(0);
    let mut at = 1;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'\\' => at += 1,
            b'\n' if !lines => return at,
            _ if byte == quote => return at + 1,
            _ => {}
        }
        at += 1;
    }
    text.len()
}

/// `'a'` and `'\n'`, but not the lifetime `'a`: that is a word behind a quote.
fn rust_character(text: &[u8]) -> usize {
    if text.get(1) == Some(&b'\\') {
        return quoted(text, false);
    }
    // One character has up to four bytes.
    (2..=5).find(|&at| text.get(at) == Some(&b'\'')).map_or(0, |at| {
        let inner = text.get(1..at).unwrap_or_default();
        let one = std::str::from_utf8(inner).is_ok_and(|inner| inner.chars().count() == 1);
        if one { at + 1 } else { 0 }
    })
}

/// `"…"` with hashes around it. `r#name` is a word.
fn raw_rust(text: &[u8]) -> usize {
    let hashes = text.iter().take_while(|&&byte| byte == b'#').count();
    if text.get(hashes) != Some(&b'"') {
        return 0;
    }
    let mut end = vec![b'#'; hashes + 1];
    end[0] = b'"';
    let inner = text.get(hashes + 1..).unwrap_or_default();
    find(inner, &end).map_or(text.len(), |at| hashes + 1 + at + end.len())
}

/// `"delimiter(…)delimiter"`.
fn raw_cpp(text: &[u8]) -> usize {
    let Some(open) = text.iter().take(18).position(|&byte| byte == b'(') else {
        return quoted(text, false);
    };
    let mut end = vec![b')'];
    end.extend_from_slice(text.get(1..open).unwrap_or_default());
    end.push(b'"');
    find(text, &end).map_or(text.len(), |at| at + end.len())
}

fn nested_comment(text: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0_u32);
    while at < text.len() {
        let rest = text.get(at..).unwrap_or_default();
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    let first = *what.first()?;
    let mut from = 0;
    loop {
        let rest = text.get(from..)?;
        let at = rest.iter().position(|&byte| byte == first)?;
        if rest.get(at..)?.starts_with(what) {
            return Some(from + at);
        }
        from += at + 1;
    }
}

fn is_directive(word: &[u8]) -> bool {
    const WORDS: [&[u8]; 14] = [
        b"if",
        b"ifdef",
        b"ifndef",
        b"elif",
        b"elifdef",
        b"elifndef",
        b"else",
        b"endif",
        b"define",
        b"undef",
        b"include",
        b"error",
        b"warning",
        b"pragma",
    ];
    WORDS.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str, language: Language) -> Vec<String> {
        Tokens::new(text.as_bytes(), language)
            .map(|token| String::from_utf8_lossy(token.text).into_owned())
            .collect()
    }

    #[test]
    fn comments_and_literals_hold_no_words() {
        let text = "a /* lock( */ b // lock(\n\"lock(\" 'l' '\\'' 1e+5 c";
        assert_eq!(words(text, Language::C), ["a", "b", "\"lock(\"", "'l'", "'\\''", "1e+5", "c"]);
        assert_eq!(words("a // b \\\nc\nd", Language::C), ["a", "d"]);
    }

    #[test]
    fn directives_go_on() {
        let text = "#if A \\\n  && B /* c\n d */ + 1\nx\n # define Y 1 // z\ny";
        let tokens: Vec<_> = Tokens::new(text.as_bytes(), Language::C).collect();
        assert_eq!(tokens[0].kind, TokenKind::Directive);
        assert_eq!((tokens[0].line, tokens[0].last_line), (1, 3));
        assert_eq!((tokens[1].text, tokens[1].line), (&b"x"[..], 4));
        assert_eq!(tokens[2].text, b" define Y 1 // z");
        assert_eq!((tokens[3].text, tokens[3].line), (&b"y"[..], 6));
        // One quote in an error message.
        let text = "#error don't\nspin_lock\n#if 'a' == 1\nb";
        assert_eq!(words(text, Language::C)[1], "spin_lock");
    }

    #[test]
    fn rust_and_cpp_literals() {
        let text = "let a: &'static str = r#\"x \" lock()\"#; 'b' /* /* c */ d */ 'e: loop {} 0..n";
        let words_of = words(text, Language::Rust);
        assert!(!words_of.contains(&"d".into()) && words_of.contains(&"static".into()));
        assert!(words_of.contains(&"e".into()) && words_of.contains(&"'b'".into()));
        assert_eq!(words("R\"x( \")x\" a", Language::Cpp), ["R\"x( \")x\"", "a"]);
        assert_eq!(words("1'000 a", Language::Cpp), ["1'000", "a"]);
    }

    #[test]
    fn assembler_has_comments_of_its_own() {
        let text = "# don't\n call spin_lock # it's\n#ifdef A\n movl $'a, %eax\n";
        let tokens = words(text, Language::Assembler);
        assert_eq!(tokens[0], "call");
        assert_eq!(tokens[1], "spin_lock");
        assert_eq!(tokens[2], "ifdef A");
    }
}
