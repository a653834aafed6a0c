//! What the numbers in events of calls mean: names files.

use std::collections::HashMap;
use std::path::Path;

use fettle_abi::rpc;
use serde_json::Value as Json;

use crate::error::{Error, Result};
use crate::spans::values;

/// Version of names files.
const VERSION: u64 = 1;

/// What a field of a method holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Unsigned,
    /// A number that may be negative.
    Signed,
    /// A number with a fraction.
    Float,
    /// The first bytes of a text.
    Text,
}

/// A field that is marked.
#[derive(Clone, Debug)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub kind: Kind,
    /// Its first word.
    pub word: usize,
}

/// A method of a service.
#[derive(Clone, Debug)]
pub struct Method {
    /// `service/method`.
    pub name: String,
    /// The event with its fields.
    pub event: String,
    /// Its fields that are marked.
    pub fields: Vec<Named>,
}

/// What numbers in events mean.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Methods by the numbers of service and method.
    pub methods: HashMap<(u32, u16), Method>,
    /// Places of methods in their services, by `service/method`.
    places: HashMap<String, u16>,
}

impl Names {
    /// Adds those of a file.
    pub fn read(&mut self, path: &Path) -> Result<()> {
        let (files, _) = values(path)?;
        let bad = |problem: &str| Err(Error::at_line(path, 1, problem));
        for file in &files {
            if file["fettle_calls"].as_u64() != Some(VERSION) {
                return bad("it is no names file of this version (fettle_calls: 1)");
            }
            for service in file["services"].as_array().into_iter().flatten() {
                let Some(name) = service["name"].as_str() else {
                    return bad("a service has no name");
                };
                let number = rpc::service_number(name);
                let methods = service["methods"].as_array().into_iter().flatten();
                for (place, method) in methods.enumerate().take(1 << 16) {
                    let Some(method) = method_of(name, method) else {
                        return bad("a method, or a field of it, is not as it should be");
                    };
                    self.places.insert(method.name.clone(), place as u16);
                    self.methods.insert((number, place as u16), method);
                }
            }
        }
        Ok(())
    }
}

impl Names {
    /// The numbers of the method that a path of HTTP/2 names, such as `/shop.v1.Shop/Buy`.
    pub fn method_at(&self, path: &str) -> Option<(u32, u16)> {
        let (service, _) = path.strip_prefix('/')?.split_once('/')?;
        let number = rpc::service_number(service);
        let name = path.get(1..)?;
        let place = *self.places.get(name)?;
        Some((number, place))
    }
}

fn method_of(service: &str, method: &Json) -> Option<Method> {
    let name = method["name"].as_str()?;
    let mut fields = Vec::new();
    // A cell has room for fewer.
    for field in method["fields"].as_array().into_iter().flatten().take(rpc::FIELD_WORDS) {
        let kind = match field["type"].as_str()? {
            "u64" => Kind::Unsigned,
            "i64" => Kind::Signed,
            "f64" => Kind::Float,
            "text" => Kind::Text,
            _ => return None,
        };
        let word = usize::try_from(field["word"].as_u64()?).ok()?;
        fields.push(Named { name: field["name"].as_str()?.to_owned(), kind, word });
    }
    let event: String = format!("{service}_{name}")
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .take(64)
        .collect();
    Some(Method { name: format!("{service}/{name}"), event, fields })
}
