//! What is asked of a translation beside the file.

use crate::coordinates::Coordinates;
use crate::error::Error;
use crate::image::Image;
use crate::target::Target;

/// What is asked of a translation beside the file.
#[derive(Clone, Debug)]
pub struct Options {
    /// The Java package of the translated classes, with dots.
    pub package: String,
    /// Functions that Java calls: with any, the file is a library, and its `main` is not executed.
    pub exports: Vec<String>,
    /// The interface that is generated for them, if one is.
    pub interface: Option<Interface>,
    /// Whether loops and functions ask if they are to end: a guest that computes without system calls can
    /// then be interrupted, and its fuel counts.
    pub interruptible: bool,
    /// What the jar is to run on.
    pub target: Target,
    /// What it is called in a Maven repository, if it goes there.
    pub coordinates: Option<Coordinates>,
}

/// A Java interface with the exported functions, made of their prototypes.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Its name with its package.
    pub name: String,
    /// Functions whose result is an array that they fill.
    pub outputs: Vec<Output>,
}

/// A function that fills an array and says how much of it: it becomes a method that returns the array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Output {
    /// The function.
    pub function: String,
    /// The parameter with the array, and the one that points to its length.
    pub parameters: [String; 2],
    /// How large the array is that the function is given.
    pub capacity: Capacity,
}

/// How many elements something may have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Capacity {
    /// So many.
    Fixed(u32),
    /// What another function of the library says for parameters of this one.
    Call(String, Vec<String>),
}

impl Default for Options {
    fn default() -> Self {
        Self {
            package: "fettle.program".into(),
            exports: Vec::new(),
            interface: None,
            interruptible: false,
            target: Target::Java,
            coordinates: None,
        }
    }
}

impl Options {
    /// The package with slashes and one at its end.
    pub(crate) fn folder(&self) -> String {
        format!("{}/", self.package.replace('.', "/"))
    }

    /// The package of the interface with slashes and one at its end, if there is one in a package.
    pub(crate) fn interface_folder(&self) -> Option<String> {
        let name = self.interface.as_ref()?.name.replace('.', "/");
        name.rfind('/').map(|end| name[..=end].to_owned())
    }

    /// What Java calls of the program, with what its side needs: names and addresses.
    pub(crate) fn exported(&self, image: &Image) -> Result<Vec<(String, u32)>, Error> {
        if self.exports.is_empty() {
            return Ok(Vec::new());
        }
        if image.few_arguments {
            return Err(Error::Embedded);
        }
        let mut found = Vec::new();
        // Strings and arrays are copied to memory of these.
        let memory = ["malloc", "free"].map(str::to_owned);
        for name in self.exports.iter().chain(&memory) {
            let Some(address) = image.function_named(name) else {
                return Err(Error::NotExported(name.clone()));
            };
            if !found.iter().any(|(each, _)| each == name) {
                found.push((name.clone(), address));
            }
        }
        Ok(found)
    }
}

/// Whether a name is one that Java takes for a package or class, with dots.
pub fn is_qualified_name(name: &str) -> bool {
    let is_identifier = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !KEYWORDS.contains(&part)
    };
    name.split('.').all(is_identifier)
}

/// Words that are no names in Java.
pub(crate) const KEYWORDS: [&str; 53] = [
    "_",
    "abstract",
    "assert",
    "boolean",
    "break",
    "byte",
    "case",
    "catch",
    "char",
    "class",
    "const",
    "continue",
    "default",
    "do",
    "double",
    "else",
    "enum",
    "extends",
    "false",
    "final",
    "finally",
    "float",
    "for",
    "goto",
    "if",
    "implements",
    "import",
    "instanceof",
    "int",
    "interface",
    "long",
    "native",
    "new",
    "null",
    "package",
    "private",
    "protected",
    "public",
    "return",
    "short",
    "static",
    "strictfp",
    "super",
    "switch",
    "synchronized",
    "this",
    "throw",
    "throws",
    "transient",
    "true",
    "try",
    "void",
    "volatile",
];
