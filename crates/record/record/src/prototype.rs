//! Prototypes of functions as in C, for functions that no debug information describes.
//!
//! ```text
//! prototype = [type] name "(" [ "void" | parameter { "," parameter } [ "," "..." ] ] ")"
//! parameter = type [name]
//! type      = word { word } { "*" | "const" }
//! ```

use fettle_image::{ArgType, Param, Signature};

/// What is wrong with a prototype.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column} of `{text}`: {problem}")]
pub struct PrototypeError {
    /// The prototype.
    pub text: String,
    /// Where, from 1.
    pub column: usize,
    /// What.
    pub problem: String,
}

/// One word or sign, and where it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Token<'a> {
    text: &'a str,
    at: usize,
}

/// Reads a prototype; gives the function's name, which may be a pattern, and what it takes.
///
/// # Errors
///
/// The first thing that is no prototype.
pub fn parse(text: &str) -> Result<(String, Signature), PrototypeError> {
    let fail = |at: usize, problem: &str| PrototypeError {
        text: text.to_owned(),
        column: text[..at.min(text.len())].chars().count() + 1,
        problem: problem.to_owned(),
    };
    let (head, open) = match text.find('(') {
        Some(open) => (&text[..open], open),
        None => return Err(fail(text.len(), "no `(`")),
    };
    let Some(close) = text.rfind(')') else { return Err(fail(text.len(), "no `)`")) };
    let rest = text[close + 1..].trim_start_matches([' ', ';']);
    if close < open || !rest.is_empty() {
        return Err(fail(close + 1, "nothing may follow the `)`"));
    }
    // The name is the last word; stars before it belong to the type, others to a pattern.
    let before = head.trim_end();
    let word = before.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    let name = before[word..].trim_start_matches('*');
    if name.is_empty() {
        return Err(fail(word, "no name before the `(`"));
    }
    let result = words(&before[..before.len() - name.len()], 0);
    let ret = match result.as_slice() {
        [] => ArgType::Void,
        result => kind(result).map_err(|(at, problem)| fail(at, &problem))?,
    };
    let mut params = Vec::new();
    let mut variadic = false;
    let mut at = open + 1;
    for part in text[open + 1..close].split(',') {
        let tokens = words(part, at);
        at += part.len() + 1;
        match tokens.as_slice() {
            [] if params.is_empty() && text[open + 1..close].trim().is_empty() => {}
            [] => return Err(fail(at - 1, "no parameter between the commas")),
            [only] if only.text == "void" && params.is_empty() => {}
            [only] if only.text == "..." => variadic = true,
            tokens => params.push(parameter(tokens).map_err(|(at, problem)| fail(at, &problem))?),
        }
    }
    let signature = Signature { params, ret, ret_in_memory: false, variadic };
    Ok((name.to_owned(), signature))
}

/// Splits into words and stars.
fn words(text: &str, offset: usize) -> Vec<Token<'_>> {
    let mut all = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let at = offset + (text.len() - rest.len());
        let end = match rest.chars().next() {
            None => return all,
            Some('*') => 1,
            Some(_) => rest.find(|c: char| c.is_whitespace() || c == '*').unwrap_or(rest.len()),
        };
        all.push(Token { text: &rest[..end], at });
        rest = &rest[end..];
    }
}

/// The last word is the name if what stands before it is a type of its own.
fn parameter(tokens: &[Token<'_>]) -> Result<Param, (usize, String)> {
    if let [ty @ .., name] = tokens
        && name.text != "*"
        && let Ok(found) = kind(ty)
    {
        let name = name.text.trim_end_matches("[]");
        return Ok(Param { name: name.to_owned(), ty: found });
    }
    Ok(Param { name: String::new(), ty: kind(tokens)? })
}

/// The type that `tokens` name.
fn kind(tokens: &[Token<'_>]) -> Result<ArgType, (usize, String)> {
    let int = |bytes, signed| ArgType::Int { bytes, signed };
    let plain = |t: &&Token<'_>| {
        !matches!(t.text, "const" | "volatile" | "restrict" | "register" | "extern" | "static")
    };
    let tokens: Vec<Token<'_>> = tokens.iter().filter(plain).copied().collect();
    let stars = tokens.iter().filter(|t| t.text == "*").count();
    let base: Vec<&str> = tokens.iter().map(|t| t.text).filter(|t| *t != "*").collect();
    let first = tokens.first().map_or(0, |t| t.at);
    match (base.as_slice(), stars) {
        ([], _) => return Err((first, "no type".to_owned())),
        (["char"], 1) => return Ok(ArgType::CString),
        // Whatever it points to; but a name alone behind the star is no type.
        (_, 1..) if tokens.last().is_some_and(|t| t.text == "*") => return Ok(ArgType::Pointer),
        (_, 1..) => return Err((first, "a name after the `*` is not part of a type".to_owned())),
        _ => {}
    }
    Ok(match base.as_slice() {
        ["void"] => ArgType::Void,
        ["str" | "text"] => ArgType::CString,
        ["ptr" | "pointer"] => ArgType::Pointer,
        ["enum", _] => int(4, true),
        ["char" | "i8" | "int8_t"] | ["signed", "char"] => int(1, true),
        ["u8" | "uint8_t" | "bool" | "_Bool"] | ["unsigned", "char"] => int(1, false),
        ["short" | "i16" | "int16_t"] | ["short", "int"] => int(2, true),
        ["u16" | "uint16_t"] | ["unsigned", "short"] | ["unsigned", "short", "int"] => {
            int(2, false)
        }
        ["int" | "i32" | "int32_t" | "signed" | "pid_t" | "wchar_t"] => int(4, true),
        ["u32" | "uint32_t" | "unsigned" | "uid_t" | "gid_t" | "mode_t" | "socklen_t"]
        | ["unsigned", "int"] => int(4, false),
        [
            "long" | "i64" | "int64_t" | "isize" | "ssize_t" | "off_t" | "ptrdiff_t" | "intptr_t"
            | "time_t",
        ]
        | ["long", "int" | "long"]
        | ["long", "long", "int"] => int(8, true),
        ["u64" | "uint64_t" | "usize" | "size_t" | "uintptr_t"]
        | ["unsigned", "long"]
        | ["unsigned", "long", "int" | "long"]
        | ["unsigned", "long", "long", "int"] => int(8, false),
        ["float" | "f32"] => ArgType::Float { bytes: 4 },
        ["double" | "f64"] => ArgType::Float { bytes: 8 },
        ["long", "double"] => ArgType::Float { bytes: 16 },
        _ => {
            return Err((
                first,
                format!(
                    "unknown type `{}`: write an integer type of C, u8 to u64, i8 to i64, a pointer \
                     as `void *`, or `char *` for text",
                    base.join(" ")
                ),
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (String, Vec<(String, ArgType)>, ArgType) {
        let (name, s) = parse(text).unwrap();
        (name, s.params.into_iter().map(|p| (p.name, p.ty)).collect(), s.ret)
    }

    #[test]
    fn prototypes_of_c() {
        let int = |bytes, signed| ArgType::Int { bytes, signed };
        let named = |name: &str, ty| (name.to_owned(), ty);
        assert_eq!(
            read("int open(const char *path, int flags, ...)"),
            (
                "open".into(),
                vec![named("path", ArgType::CString), named("flags", int(4, true))],
                int(4, true)
            )
        );
        assert_eq!(
            read("void *realloc(void *, size_t n);"),
            (
                "realloc".into(),
                vec![named("", ArgType::Pointer), named("n", int(8, false))],
                ArgType::Pointer
            )
        );
        assert_eq!(
            read("unsigned long f(unsigned long long a, char **argv, double)"),
            (
                "f".into(),
                vec![
                    named("a", int(8, false)),
                    named("argv", ArgType::Pointer),
                    named("", ArgType::Float { bytes: 8 })
                ],
                int(8, false)
            )
        );
        assert_eq!(read("lua_*(u32 n)").0, "lua_*");
        assert_eq!(read("f()").1, []);
        assert_eq!(read("f(void)").1, []);
        assert_eq!(read("sub_1f0(struct file *f)").1, [named("f", ArgType::Pointer)]);
    }

    #[test]
    fn errors_point_at_their_place() {
        let column = |text: &str| parse(text).unwrap_err().column;
        assert_eq!(column("int f(int a, frob b)"), 14);
        assert_eq!(column("int f(int a,, int b)"), 13);
        assert_eq!(column("int f(int a"), 12);
        assert_eq!(column("(int a)"), 1);
        assert_eq!(column("int f(int) x"), 11);
        assert!(parse("frob f(int)").unwrap_err().problem.contains("frob"));
    }
}
