//! Hooks: the places of a call at which code can stand, and code of one's own for them.
//!
//! They are those of `dice_trace` (request-tracking-drops-2006, 4.1), of which each language has a
//! counterpart; `docs/internals/rpc.md` has the table. A file of hooks:
//!
//! ```text
//! # A comment.
//! [go default_includes]
//! import "log"
//! [go before_call]
//! log.Print("calling {service}/{method}")
//! ```

use std::collections::BTreeMap;

use fettle_abi::rpc::HOOKS;

use crate::error::{Error, Place, Result};

/// Hooks that are not a moment of a call, but a place in the text or in the program's start.
pub const STATIC: usize = 3;

const LANGUAGES: [&str; 5] = ["go", "python", "cpp", "java", "rust"];

/// Code of one's own for one language, by hook.
#[derive(Clone, Debug, Default)]
pub struct Hooks {
    code: BTreeMap<usize, String>,
}

impl Hooks {
    /// Reads a file of hooks and keeps those of a language.
    pub fn read(file: &str, text: &str, language: &str) -> Result<Hooks> {
        let mut hooks = Hooks::default();
        // The section that lines belong to: `None` before the first; a hook of another language is skipped.
        let mut section: Option<Option<usize>> = None;
        for (number, line) in text.lines().enumerate() {
            let bad = |problem: String| {
                Err(Error::Hooks { place: Place::line(file, number + 1), problem })
            };
            let head = line.strip_prefix('[').and_then(|rest| rest.trim_end().strip_suffix(']'));
            if let Some((of, hook)) = head.and_then(|head| head.split_once(' '))
                && LANGUAGES.contains(&of)
            {
                let Some(place) = HOOKS.iter().position(|known| *known == hook.trim()) else {
                    return bad(format!(
                        "there is no hook {:?}; there are {}",
                        hook.trim(),
                        HOOKS.join(", ")
                    ));
                };
                section = Some((of == language).then_some(place));
                continue;
            }
            match section {
                None if line.trim().is_empty() || line.starts_with('#') => {}
                None => {
                    return bad(format!(
                        "a hook begins with [LANGUAGE HOOK], such as [go before_call]; languages are {}",
                        LANGUAGES.join(", ")
                    ));
                }
                Some(None) => {}
                Some(Some(hook)) => {
                    let code = hooks.code.entry(hook).or_default();
                    code.push_str(line);
                    code.push('\n');
                }
            }
        }
        Ok(hooks)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.code.is_empty()
    }

    /// The code at a hook of a method, each line indented.
    pub fn code(&self, hook: usize, service: &str, method: &str, indent: &str) -> Option<String> {
        let code = self.code.get(&hook)?;
        let code = code.replace("{service}", service).replace("{method}", method);
        Some(code.lines().map(|line| format!("{indent}{line}\n")).collect())
    }

    /// The hooks that are moments of a call and have code.
    pub fn moments(&self) -> impl Iterator<Item = usize> + '_ {
        self.code.keys().copied().filter(|hook| *hook >= STATIC)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_by_language_and_filled_in() {
        let text = "# c\n[go before_call]\nx(\"{service}/{method}\")\n[python before_call]\ny\n";
        let hooks = Hooks::read("h", text, "go").unwrap();
        assert_eq!(hooks.code(3, "a.S", "M", "\t").unwrap(), "\tx(\"a.S/M\")\n");
        assert_eq!(hooks.moments().collect::<Vec<_>>(), [3]);
        assert!(hooks.code(4, "a.S", "M", "").is_none());
    }

    #[test]
    fn wrong_hooks_are_reported_with_their_line() {
        let message = |text: &str| Hooks::read("h", text, "go").unwrap_err().to_string();
        assert!(message("\n[go sometimes]\n").starts_with("h:2: there is no hook \"sometimes\""));
        assert!(message("x = 1\n").starts_with("h:1: a hook begins with"));
    }
}
