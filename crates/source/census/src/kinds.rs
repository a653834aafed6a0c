//! Which names are operations on locks, and of what kind. Text says it, one set for each system:
//!
//! ```text
//! set linux
//! languages c asm
//!
//! kind spinlock
//!   lock    spin_lock{,_irq,_bh}      a call `spin_lock_bh(…)`
//!   unlock  spin_unlock{,_irq,_bh}
//!   try     spin_trylock
//!   other   spin_is_contended         counted, takes and lets go of nothing
//!   word    ENTER_KERNEL              the name alone, as assembler has macros
//!   scoped  .lock()                   a method without arguments, let go at the end of the block
//!   guard   lock_guard                a type whose variable holds the lock until the end of the block
//!   class   spinlock_irq              what Linux's `guard(spinlock_irq)(…)` and `scoped_guard(spinlock_irq, …)` name
//! ```

use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::token::Language;

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Takes a lock.
    Lock,
    /// Lets go of it.
    Unlock,
    /// Takes it unless it is taken.
    Try,
    /// Takes it until the end of the block.
    Scoped,
    /// Neither, but belongs to it.
    Other,
}

/// A kind of lock, as an index into [`Kinds::names`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind(pub u16);

/// How an operation is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// `name(…)`
    Call,
    /// `a.name(…)`
    Method,
    /// `a.name()`
    EmptyMethod,
    /// `name`
    Word,
    /// `name<T> variable(lock)`
    Guard,
    /// `guard(name)(lock)`, `scoped_guard(name, lock)`, `scoped_cond_guard(name, …, lock)`
    Class,
}

/// What a name means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meaning {
    pub kind: Kind,
    pub operation: Operation,
    pub form: Form,
}

#[derive(Debug, Clone)]
struct Set {
    name: String,
    languages: Vec<Language>,
    only_when_asked: bool,
    names: Vec<(Vec<u8>, Meaning)>,
}

/// Sets of names.
#[derive(Debug, Clone, Default)]
pub struct Kinds {
    names: Vec<String>,
    sets: Vec<Set>,
    by_language: FxHashMap<Language, FxHashMap<Vec<u8>, Vec<Meaning>>>,
}

/// The sets that come with this crate, by name.
const BUILT_IN: [(&str, &str); 6] = [
    ("linux", include_str!("../kinds/linux.kinds")),
    ("freebsd", include_str!("../kinds/freebsd.kinds")),
    ("netbsd", include_str!("../kinds/netbsd.kinds")),
    ("xv6", include_str!("../kinds/xv6.kinds")),
    ("pthread", include_str!("../kinds/pthread.kinds")),
    ("cpp", include_str!("../kinds/cpp.kinds")),
];
const RUST: (&str, &str) = ("rust", include_str!("../kinds/rust.kinds"));

/// Most names that the braces of one pattern may stand for.
const MOST_NAMES: usize = 1024;

impl Kinds {
    /// The names of all sets that there are without a file.
    pub fn built_in() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().chain([&RUST]).map(|(name, _)| *name)
    }

    /// All sets that need not be asked for.
    pub fn usual() -> Result<Kinds> {
        let mut kinds = Kinds::default();
        for (name, text) in BUILT_IN.iter().chain([&RUST]) {
            if !text.contains("\nonly when asked\n") {
                kinds.add(name, text)?;
            }
        }
        Ok(kinds)
    }

    /// Adds a set by its name. Whether there is one.
    pub fn add_built_in(&mut self, name: &str) -> Result<bool> {
        let Some((name, text)) = BUILT_IN.iter().chain([&RUST]).find(|(set, _)| *set == name)
        else {
            return Ok(false);
        };
        self.add(name, text)?;
        Ok(true)
    }

    /// Adds the sets of a file. Errors name the line.
    pub fn add(&mut self, file: &str, text: &str) -> Result<()> {
        let mut kind = None;
        for (number, line) in text.lines().enumerate() {
            let at = |what: String| Error::Kinds { file: file.into(), line: number + 1, what };
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let Some(verb) = words.next() else { continue };
            if verb == "set" {
                let name = words.next().ok_or_else(|| at("a set needs a name".into()))?;
                self.sets.push(Set {
                    name: name.into(),
                    languages: Vec::new(),
                    only_when_asked: false,
                    names: Vec::new(),
                });
                kind = None;
                continue;
            }
            let Some(set) = self.sets.last_mut() else {
                return Err(at("the first line says `set NAME`".into()));
            };
            match verb {
                "only" => set.only_when_asked = true,
                "languages" => {
                    for word in words {
                        let language = Language::from_name(word).ok_or_else(|| {
                            at(format!("{word:?} is none of the languages c, cpp, asm, rust"))
                        })?;
                        set.languages.push(language);
                    }
                }
                "kind" => {
                    let name = words.next().ok_or_else(|| at("a kind needs a name".into()))?;
                    let known = self.names.iter().position(|known| known == name);
                    let index = known.unwrap_or_else(|| {
                        self.names.push(name.into());
                        self.names.len() - 1
                    });
                    let index = u16::try_from(index).map_err(|_| at("too many kinds".into()))?;
                    kind = Some(Kind(index));
                }
                _ => {
                    let operation = operation(verb).ok_or_else(|| {
                        at(format!(
                            "{verb:?} is none of set, languages, kind, lock, unlock, try, scoped, \
                             guard, class, other, word"
                        ))
                    })?;
                    let kind = kind.ok_or_else(|| at(format!("`{verb}` stands below a kind")))?;
                    for pattern in words {
                        let mut names = Vec::new();
                        if !expand(pattern, &mut names) {
                            return Err(at(format!("{pattern:?} has braces that do not match")));
                        }
                        for name in names {
                            let (form, name) = form(verb, &name);
                            if !is_name(name) {
                                return Err(at(format!("{name:?} is no name")));
                            }
                            let meaning = Meaning { kind, operation, form };
                            set.names.push((name.into(), meaning));
                        }
                    }
                }
            }
        }
        self.index();
        Ok(())
    }

    fn index(&mut self) {
        self.by_language.clear();
        for set in &self.sets {
            for language in &set.languages {
                let names = self.by_language.entry(*language).or_default();
                for (name, meaning) in &set.names {
                    let meanings: &mut Vec<Meaning> = names.entry(name.clone()).or_default();
                    // The first set that knows a name has it.
                    if !meanings.iter().any(|known| known.form == meaning.form) {
                        meanings.push(*meaning);
                    }
                }
            }
        }
    }

    /// The names of kinds, by [`Kind`].
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The name of one.
    pub fn name(&self, kind: Kind) -> &str {
        self.names.get(usize::from(kind.0)).map_or("?", String::as_str)
    }

    /// The names of the sets that count.
    pub fn sets(&self) -> impl Iterator<Item = &str> {
        self.sets.iter().map(|set| set.name.as_str())
    }

    /// What names mean in a language.
    pub(crate) fn of(&self, language: Language) -> Option<&FxHashMap<Vec<u8>, Vec<Meaning>>> {
        self.by_language.get(&language)
    }
}

fn operation(verb: &str) -> Option<Operation> {
    Some(match verb {
        "lock" => Operation::Lock,
        "unlock" => Operation::Unlock,
        "try" => Operation::Try,
        "scoped" | "guard" | "class" => Operation::Scoped,
        "other" | "word" => Operation::Other,
        _ => return None,
    })
}

fn form<'a>(verb: &str, name: &'a str) -> (Form, &'a str) {
    match (verb, name.strip_prefix('.')) {
        ("word", _) => (Form::Word, name),
        ("guard", _) => (Form::Guard, name),
        ("class", _) => (Form::Class, name),
        (_, None) => (Form::Call, name),
        (_, Some(method)) => match method.strip_suffix("()") {
            Some(method) => (Form::EmptyMethod, method),
            None => (Form::Method, method),
        },
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// What a pattern's braces stand for. Whether they match.
fn expand(pattern: &str, names: &mut Vec<String>) -> bool {
    let Some(open) = pattern.find('{') else {
        names.push(pattern.into());
        return !pattern.contains('}') && names.len() <= MOST_NAMES;
    };
    let Some(close) = pattern[open..].find('}').map(|at| open + at) else { return false };
    let (before, inner, behind) =
        (&pattern[..open], &pattern[open + 1..close], &pattern[close + 1..]);
    !before.contains('}')
        && inner.split(',').all(|choice| expand(&format!("{before}{choice}{behind}"), names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_stand_for_names() {
        let mut names = Vec::new();
        assert!(expand("{,raw_}spin_lock{,_bh}", &mut names));
        assert_eq!(names, ["spin_lock", "spin_lock_bh", "raw_spin_lock", "raw_spin_lock_bh"]);
        assert!(!expand("a{b", &mut names) && !expand("a}b", &mut names));
        assert!(!expand(&"{a,b}".repeat(20), &mut Vec::new()));
    }

    #[test]
    fn built_in_sets_are_right_and_their_names_are_of_one_kind() {
        let mut kinds = Kinds::default();
        for set in Kinds::built_in() {
            assert!(kinds.add_built_in(set).unwrap(), "{set}");
        }
        assert!(!kinds.add_built_in("plan9").unwrap());
        for set in &kinds.sets {
            assert!(!set.languages.is_empty(), "{}", set.name);
            for (name, meaning) in &set.names {
                let name = String::from_utf8_lossy(name);
                let other = set.names.iter().find(|(other, known)| {
                    **other == *name.as_bytes() && known.form == meaning.form && known != meaning
                });
                assert!(other.is_none(), "{}: {name} means two things", set.name);
            }
        }
    }

    #[test]
    fn errors_name_the_line() {
        for (text, line) in [
            ("kind a", 1),
            ("set a\nlock b", 2),
            ("set a\nlanguages perl", 2),
            ("set a\nkind b\nlock a{b", 3),
            ("set a\nkind b\ngrab a", 3),
            ("set a\nkind b\nlock a-b", 3),
            ("set", 1),
        ] {
            let error = Kinds::default().add("f", text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("f:{line}: ")), "{error}");
        }
    }
}
