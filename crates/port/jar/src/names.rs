//! What functions and files are called in Java: stack traces show these names.
//!
//! Functions of one source file are in one class, which has the name of the file; where the
//! file is not known, neighbours are.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::classfile::SourceFile;
use crate::debug::{Lines, Place};
use crate::emit::{Method, Program, Role};
use crate::flow::Summaries;
use crate::ir::Function;
use crate::signature::Signature;
use crate::target::Target;

/// Steps of the functions of one class. A step takes about ten bytes and hardly ever more than one
/// constant, of which a class may have 65,535; larger classes would be loaded for little.
const CLASS_STEPS: usize = 20_000;

/// Longest name of a C++ function; templates make names of thousands of letters.
const NAME_MAX: usize = 200;

/// Lines that a class counts from are multiples of this. Methods have 16 bits for a line, so that there
/// are a quarter of them before and behind each function that the class has.
const LINES_STEP: u32 = 1 << 15;

/// A class that is being filled.
struct Open {
    name: String,
    steps: usize,
}

/// Classes by the file and first line of their source.
struct Classes<'a> {
    lines: &'a Lines,
    folder: &'a str,
    names: FxHashSet<String>,
    open: FxHashMap<Option<(usize, u32)>, Open>,
}

impl Classes<'_> {
    /// The class of a function with so many steps.
    fn of(&mut self, source: Option<(usize, u32)>, steps: usize) -> String {
        match self.open.get_mut(&source) {
            Some(open) if open.steps + steps <= CLASS_STEPS => {
                open.steps += steps;
                open.name.clone()
            }
            _ => {
                let name = self.fresh(source);
                self.open.insert(source, Open { name: name.clone(), steps });
                name
            }
        }
    }

    fn fresh(&mut self, source: Option<(usize, u32)>) -> String {
        let folder = self.folder;
        let plain = match source {
            Some((file, _)) => identifier(base_name(self.lines.file(file))),
            None => "Code".into(),
        };
        let mut number = 0;
        loop {
            let name = match (number, source) {
                // Other classes have names without an underscore.
                (0, Some(_)) if plain.contains('_') => format!("{folder}{plain}"),
                (_, Some(_)) => format!("{folder}{plain}_{number}"),
                (_, None) => format!("{folder}{plain}{number}"),
            };
            // Some file systems, to which jars are unpacked, do not tell upper case from lower.
            if self.names.insert(name.to_lowercase()) {
                return name;
            }
            number += 1;
        }
    }
}

/// Names, parameters and results of all methods.
pub fn methods(
    functions: &[Function],
    summaries: &Summaries,
    lines: &Lines,
    folder: &str,
    target: Target,
) -> FxHashMap<u32, Method> {
    let (names, open) = (FxHashSet::default(), FxHashMap::default());
    let mut classes = Classes { lines, folder, names, open };
    let mut used = FxHashSet::default();
    let mut methods = FxHashMap::default();
    for function in functions {
        let steps: usize = function.blocks.iter().map(|block| block.steps.len() + 1).sum();
        let source = lines.places(function.entry).last().map(|place| (place.file, first(place)));
        let class = classes.of(source, steps);
        let summary = &summaries[&function.entry];
        let mut name = java_name(&function.name);
        if target != Target::Java {
            // Older class files, and those of Android, know names of Java's language only.
            name = identifier(&name);
        }
        if !used.insert(name.clone()) {
            name = format!("{name}_{:x}", function.entry);
            used.insert(name.clone());
        }
        let (signature, grows) = (Signature::of(summary), summary.grows);
        let role = role(&function.name);
        let method = Method { class, name, signature, grows, role, source };
        methods.insert(function.entry, method);
    }
    methods
}

/// The file that the class of a function has the lines of.
pub fn source(program: &Program, function: u32) -> Option<SourceFile> {
    let (file, first) = program.methods.get(&function)?.source?;
    Some(SourceFile { name: base_name(program.lines.file(file)).to_owned(), first })
}

/// What the lines of a class count from that has a function at a place.
fn first(place: &Place) -> u32 {
    place.line.saturating_sub(LINES_STEP / 2) / LINES_STEP * LINES_STEP
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A name that Java's compiler takes for a class or method.
fn identifier(name: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = name.chars().take(NAME_MAX).map(legal).collect();
    match name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
        true => format!("_{name}"),
        false => name,
    }
}

/// What a function does beside what its code says.
pub fn role(name: &str) -> Role {
    match name {
        "setjmp" | "_setjmp" | "__setjmp" | "sigsetjmp" | "__sigsetjmp" => Role::SetJump,
        "__longjmp" | "____longjmp" => Role::LongJump,
        _ => Role::Ordinary,
    }
}

/// A name that the Java virtual machine takes for a method, as like the source's as it can be:
/// arguments of templates are in braces.
fn java_name(name: &str) -> String {
    let demangled = fettle_demangle::demangled(name, fettle_demangle::Form::Name)
        .filter(|text| text.len() <= NAME_MAX);
    let legal = |c: char| match c {
        '<' => '{',
        '>' => '}',
        '.' | ';' | '[' | '/' => '_',
        c if c.is_control() => '_',
        c => c,
    };
    demangled.as_deref().unwrap_or(name).chars().map(legal).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_methods() {
        assert_eq!(java_name("_ZN5Shape4areaEv"), "Shape::area");
        assert_eq!(
            java_name("_ZNSt6vectorIiSaIiEE9push_backERKi"),
            "std::vector{int, std::allocator{int} }::push_back"
        );
        assert_eq!(java_name("main.part.0"), "main_part_0");
        assert_eq!(java_name("_Zwrong"), "_Zwrong");
        assert_eq!(java_name("a/b;c[d<e>\n"), "a_b_c_d{e}_");
    }

    #[test]
    fn names_of_classes() {
        assert_eq!(identifier("deflate.c"), "deflate_c");
        assert_eq!(identifier("7z.c"), "_7z_c");
    }

    #[test]
    fn lines_of_large_files() {
        let of = |line| first(&Place { file: 0, line });
        assert_eq!([of(1), of(49_151), of(49_152), of(250_000)], [0, 0, 32_768, 229_376]);
        assert!(250_000 - of(250_000) < 1 << 16);
    }
}
