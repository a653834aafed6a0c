//! What an interface has: types of Java, methods, records; and what names of parameters say.

use std::collections::BTreeSet;

use crate::debug::{CType, Parameter};

/// A method of the interface.
pub struct Method {
    pub name: String,
    pub parameters: Vec<(String, JType)>,
    pub result: JType,
    /// Of each argument of C where it comes from.
    pub plan: String,
}

/// A record, with its components.
pub struct Record {
    pub name: String,
    pub components: Vec<(String, JType)>,
}

/// An interface with one method, for function pointers.
pub struct Functional {
    pub name: String,
    pub parameters: Vec<(String, JType)>,
    pub result: JType,
}

/// All of an interface.
#[derive(Default)]
pub struct Model {
    pub methods: Vec<Method>,
    pub records: Vec<Record>,
    pub functionals: Vec<Functional>,
    /// Structures that functions make or change: Java has their addresses.
    pub objects: BTreeSet<String>,
}

/// A type of Java.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JType {
    /// No result.
    Void,
    /// `boolean`
    Boolean,
    /// `byte`
    Byte,
    /// `short`
    Short,
    /// `int`
    Int,
    /// `long`
    Long,
    /// `float`
    Float,
    /// `double`
    Double,
    /// `String`
    String,
    /// An array of numbers, by the letter of their type.
    Array(char),
    /// A record or an interface of the library's own.
    Own(String),
}

impl JType {
    /// The letter in descriptors; none for references.
    pub fn letter(&self) -> Option<char> {
        Some(match self {
            Self::Void => 'V',
            Self::Boolean => 'Z',
            Self::Byte => 'B',
            Self::Short => 'S',
            Self::Int => 'I',
            Self::Long => 'J',
            Self::Float => 'F',
            Self::Double => 'D',
            Self::String | Self::Array(_) | Self::Own(_) => return None,
        })
    }

    /// Its descriptor; types of the library's own are within the class of its interface.
    pub fn descriptor(&self, interface: &str) -> String {
        match self {
            Self::String => "Ljava/lang/String;".into(),
            Self::Array(element) => format!("[{element}"),
            Self::Own(name) => format!("L{interface}${name};"),
            other => other.letter().map(String::from).unwrap_or_default(),
        }
    }

    /// Its size as a member of a structure, which is also its alignment there.
    pub fn size(&self) -> Option<u64> {
        match self {
            Self::Boolean | Self::Byte => Some(1),
            Self::Short => Some(2),
            Self::Int | Self::Float | Self::String => Some(4),
            Self::Long | Self::Double => Some(8),
            Self::Void | Self::Array(_) | Self::Own(_) => None,
        }
    }
}

/// The type of a number.
pub fn scalar(ty: &CType) -> Option<JType> {
    match ty {
        CType::Bool => Some(JType::Boolean),
        CType::Int { bytes: 1, .. } => Some(JType::Byte),
        CType::Int { bytes: 2, .. } => Some(JType::Short),
        CType::Int { bytes: 4, .. } => Some(JType::Int),
        CType::Int { bytes: 8, .. } => Some(JType::Long),
        CType::Float(4) => Some(JType::Float),
        CType::Float(8) => Some(JType::Double),
        _ => None,
    }
}

/// Endings of names that mean how many elements there are.
const LENGTHS: [&str; 8] = ["len", "length", "size", "count", "num", "bytes", "elements", "_n"];

/// Whether a parameter is the length of the array before it.
pub fn is_length(array: &str, parameter: &Parameter) -> bool {
    let name = parameter.name.to_lowercase();
    let is_count = matches!(parameter.ty, CType::Int { bytes: 4, .. });
    let says_so = name == "n"
        || LENGTHS.iter().any(|ending| name.ends_with(ending))
        || name
            .strip_prefix('n')
            .is_some_and(|rest| rest.trim_matches('_') == array.to_lowercase());
    is_count && says_so
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_lengths() {
        let is = |array, name: &str, bytes| {
            let ty = CType::Int { bytes, character: false, unsigned: true };
            is_length(array, &Parameter { name: name.into(), ty })
        };
        assert!(is("source", "sourceLen", 4) && is("values", "nvalues", 4) && is("buf", "n", 4));
        assert!(!is("values", "level", 4) && !is("values", "count", 8) && !is("a", "b", 4));
    }
}
