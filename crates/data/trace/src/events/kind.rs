//! Kinds of events, and what is counted of them.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::events::FieldType;

/// A named and typed field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventField {
    /// Its name.
    pub name: String,
    /// What it holds.
    #[serde(rename = "type", with = "type_name")]
    pub ty: FieldType,
}

impl EventField {
    /// A field from its parts.
    pub fn new(name: impl Into<String>, ty: FieldType) -> EventField {
        EventField { name: name.into(), ty }
    }
}

/// A kind of event in a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventKind {
    /// Its name.
    pub name: String,
    /// Its fields: `cpu`, and those that were declared.
    pub fields: Vec<EventField>,
    /// Events of it.
    pub rows: u64,
}

impl EventKind {
    /// A kind with the fields that were declared, and no events yet.
    pub fn declared(name: impl Into<String>, fields: &[EventField]) -> EventKind {
        EventKind { name: name.into(), fields: with_cpu(fields), rows: 0 }
    }

    /// The place of a field.
    pub fn place(&self, field: &str) -> Option<usize> {
        self.fields.iter().position(|known| known.name == field)
    }

    /// The places of fields in this order; nothing if one of them is missing.
    pub fn places(&self, fields: &[&str]) -> Option<Vec<usize>> {
        fields.iter().map(|field| self.place(field)).collect()
    }
}

/// Events that found no room, of one processor's ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuLoss {
    /// The processor.
    pub cpu: u32,
    /// How many were lost.
    pub lost: u64,
}

/// What the manifest says of events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Events {
    /// The kinds, by name.
    pub kinds: Vec<EventKind>,
    /// What was lost, by processor; those that lost nothing are listed with 0 if that is known.
    pub lost: Vec<CpuLoss>,
}

impl Events {
    /// Events of all kinds.
    pub fn rows(&self) -> u64 {
        self.kinds.iter().fold(0, |sum, kind| sum.saturating_add(kind.rows))
    }

    /// Events lost by all processors.
    pub fn lost(&self) -> u64 {
        self.lost.iter().fold(0, |sum, cpu| sum.saturating_add(cpu.lost))
    }
}

/// The folder of events within a trace.
pub(crate) const FOLDER: &str = "events";

/// The column of times.
pub(crate) const TIME: &str = "time_ns";

/// The column of processors.
pub(crate) const CPU: &str = "cpu";

/// Most characters of a name.
pub(crate) const NAME_MAX: usize = 64;

/// Most fields of a kind.
pub(crate) const FIELDS_MAX: usize = 64;

/// A name that is good for a file and for a schema.
pub(crate) fn good_name(name: &str) -> bool {
    let mut chars = name.chars();
    let first = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    first && name.len() <= NAME_MAX && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Refuses what cannot be a kind of event.
pub(crate) fn check_kind(name: &str, fields: &[EventField]) -> Result<()> {
    let bad = |problem: String| Err(Error::Event { kind: name.to_owned(), problem });
    if !good_name(name) {
        return bad("a name is up to 64 letters, digits and `_`, no digit first".into());
    }
    if fields.len() > FIELDS_MAX {
        return bad(format!("{} fields are more than {FIELDS_MAX}", fields.len()));
    }
    for (n, field) in fields.iter().enumerate() {
        if !good_name(&field.name) {
            return bad(format!("a field cannot be called {:?}", field.name));
        }
        if field.name == TIME || field.name == CPU {
            return bad(format!("every event has `{}`: it is not declared", field.name));
        }
        if fields[..n].iter().any(|earlier| earlier.name == field.name) {
            return bad(format!("two fields are called {}", field.name));
        }
    }
    Ok(())
}

/// The type of `cpu`.
pub(crate) const CPU_TYPE: FieldType = FieldType::U32;

/// The fields with `cpu` in front, as readers see them.
pub(super) fn with_cpu(fields: &[EventField]) -> Vec<EventField> {
    let cpu = EventField::new(CPU, CPU_TYPE);
    std::iter::once(cpu).chain(fields.iter().cloned()).collect()
}

/// A type in a manifest: its name.
mod type_name {
    use fettle_abi::FieldType;
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    pub fn serialize<S: Serializer>(ty: &FieldType, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(ty.name())
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<FieldType, D::Error> {
        let name = String::deserialize(from)?;
        let unknown = || D::Error::custom(format_args!("there is no type {name}"));
        FieldType::from_name(&name).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_cannot_be_are_refused() {
        let field = |name: &str| EventField::new(name, FieldType::U32);
        assert!(check_kind("switch_in", &[field("tid")]).is_ok());
        for name in ["", "../x", "a-b", "1st", "ä", &"x".repeat(65)] {
            assert!(check_kind(name, &[]).is_err(), "{name:?}");
        }
        for fields in [vec![field("cpu")], vec![field("time_ns")], vec![field("a"), field("a")]] {
            assert!(check_kind("e", &fields).is_err(), "{fields:?}");
        }
    }

    #[test]
    fn types_have_their_names_in_manifests() {
        for (name, ty) in FieldType::ALL {
            let field = EventField::new("f", ty);
            let json = serde_json::json!({ "name": "f", "type": name });
            assert_eq!(serde_json::to_value(&field).unwrap(), json);
            assert_eq!(serde_json::from_value::<EventField>(json).unwrap(), field);
        }
        let json = serde_json::json!({ "name": "f", "type": "u9" });
        let refused = serde_json::from_value::<EventField>(json).unwrap_err();
        assert!(refused.to_string().contains("there is no type u9"), "{refused}");
    }
}
