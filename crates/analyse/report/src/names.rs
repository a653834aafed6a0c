//! What functions are called.

use std::collections::HashMap;

use fettle_trace::{Function, Module};
use fettle_types::{FunctionIndex, ModuleIndex};

/// Names by function identifier.
#[derive(Clone, Debug, Default)]
pub struct Names {
    by_id: HashMap<FunctionIndex, Name>,
}

/// Names of one function.
#[derive(Clone, Debug, Default)]
pub struct Name {
    /// As shown.
    pub shown: String,
    /// As the linker knows it.
    pub symbol: String,
    /// File name of its module, without folders.
    pub module: String,
    /// Source file and line, if known: `prog.c:17`.
    pub place: Option<String>,
}

impl Names {
    /// Names of all functions of a trace.
    pub fn new(functions: &[Function], modules: &[Module], demangle: bool) -> Names {
        let files: HashMap<ModuleIndex, &str> = modules
            .iter()
            .map(|module| (module.id, module.path.rsplit('/').next().unwrap_or_default()))
            .collect();
        let by_id = functions.iter().map(|function| {
            let known = function.demangled.as_ref().filter(|name| demangle && !name.is_empty());
            let shown = match known {
                Some(known) => one_line(known.clone()),
                None => show(&function.name, function.address, demangle),
            };
            let place = function.file.as_ref().map(|file| match function.line {
                Some(line) => format!("{file}:{line}"),
                None => file.clone(),
            });
            let name = Name {
                shown,
                symbol: function.name.clone(),
                module: files.get(&function.module).copied().unwrap_or_default().to_owned(),
                place,
            };
            (function.id, name)
        });
        Names { by_id: by_id.collect() }
    }

    /// What is shown for a function; its number if it has no name.
    pub fn shown(&self, function: FunctionIndex) -> String {
        match self.by_id.get(&function) {
            Some(name) => name.shown.clone(),
            None if function == crate::tree::NO_FUNCTION => "[deep calls, folded]".to_owned(),
            None => format!("function #{function}"),
        }
    }

    /// All names of a function, if the trace has it.
    pub fn get(&self, function: FunctionIndex) -> Option<&Name> {
        self.by_id.get(&function)
    }

    /// The functions that a user means by `wanted`: those of exactly this name or symbol; if none,
    /// those whose name without arguments is this; if none, those containing it. Ordered.
    pub fn find(&self, wanted: &str) -> Vec<FunctionIndex> {
        let matching = |test: &dyn Fn(&Name) -> bool| {
            let found = self.by_id.iter().filter(|(_, name)| test(name)).map(|(id, _)| *id);
            let mut found: Vec<FunctionIndex> = found.collect();
            found.sort_unstable();
            found
        };
        let mut found = matching(&|name| name.shown == wanted || name.symbol == wanted);
        if found.is_empty() {
            found = matching(&|name| name.shown.split('(').next() == Some(wanted));
        }
        if found.is_empty() && !wanted.is_empty() {
            found = matching(&|name| name.shown.contains(wanted) || name.symbol.contains(wanted));
        }
        if found.is_empty() {
            let number =
                wanted.strip_prefix("function #").and_then(|n| n.parse().ok().map(FunctionIndex));
            found.extend(number.filter(|id| !self.by_id.contains_key(id)));
        }
        found
    }
}

/// What is shown for a symbol; its address if it has no name.
pub(crate) fn show(symbol: &str, address: u64, demangle: bool) -> String {
    if symbol.is_empty() {
        return format!("{address:#x}");
    }
    let name = if demangle { demangled(symbol) } else { None };
    one_line(name.unwrap_or_else(|| symbol.to_owned()))
}

/// The name that the author of a C++ or Rust function wrote, if it is not too long to be shown.
fn demangled(symbol: &str) -> Option<String> {
    let name = fettle_demangle::demangled(symbol, fettle_demangle::Form::Parameters)?;
    (name.len() <= NAME_MAX).then_some(name)
}

/// Longest name shown.
const NAME_MAX: usize = 8192;

/// Names come from files: no control character of theirs reaches a terminal.
pub fn one_line(name: String) -> String {
    if name.chars().any(char::is_control) {
        return name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    }
    name
}

/// A command as one line of words: a script's line breaks and tabs as escapes, and no other control character.
pub fn command_line(command: &[String]) -> String {
    one_line(command.join(" ").replace('\n', "\\n").replace('\t', "\\t"))
}

#[cfg(test)]
mod tests {
    use super::{command_line, demangled};

    #[test]
    fn a_script_is_shown_as_one_line() {
        let command = ["sh", "-c", "a\n\tb\x1b[2J"].map(String::from);
        assert_eq!(command_line(&command), "sh -c a\\n\\tb\u{fffd}[2J");
    }

    #[test]
    fn rust_cpp_and_c_names() {
        let rust = "_ZN4core3fmt9Formatter9write_str17h0123456789abcdefE";
        assert_eq!(demangled(rust).as_deref(), Some("core::fmt::Formatter::write_str"));
        assert_eq!(demangled("_Z7computeIiEvT_").as_deref(), Some("compute<int>(int)"));
        assert_eq!(demangled("main"), None);
        assert_eq!(demangled("_ZZZZ"), None);
    }
}
