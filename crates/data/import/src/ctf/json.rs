//! The metadata of CTF 2: a sequence of JSON texts, each behind a record separator.

use std::collections::HashMap;
use std::rc::Rc;

use serde_json::Value;

use super::model::{
    Choice, Clock, Count, Event, Integer, Model, Path, Ranges, Role, Scope, Stream, Type,
};
use super::tsdl::Problem;

type Parsed<T> = Result<T, Problem>;

/// How deep types may be within types.
const DEPTH_MAX: usize = 64;

/// Reads metadata.
pub fn parse(text: &str) -> Parsed<Model> {
    let mut reader = Reader { model: Model::default(), aliases: HashMap::new(), at: 0 };
    for fragment in text.split('\u{1e}') {
        reader.at = fragment.as_ptr() as usize - text.as_ptr() as usize;
        if fragment.trim().is_empty() {
            continue;
        }
        let value: Value = serde_json::from_str(fragment)
            .map_err(|error| (reader.at, format!("this is no JSON: {error}")))?;
        reader.fragment(&value)?;
    }
    Ok(reader.model)
}

struct Reader {
    model: Model,
    aliases: HashMap<String, Rc<Type>>,
    /// Where the fragment begins.
    at: usize,
}

impl Reader {
    fn error<T>(&self, problem: impl Into<String>) -> Parsed<T> {
        Err((self.at, problem.into()))
    }

    fn fragment(&mut self, value: &Value) -> Parsed<()> {
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let number = |key: &str| value[key].as_u64().unwrap_or(0);
        let class = |reader: &Reader, key: &str| match &value[key] {
            Value::Null => Ok(None),
            class => reader.class(class, 0).map(Some),
        };
        match value["type"].as_str().unwrap_or_default() {
            "preamble" if value["version"].as_u64() != Some(2) => {
                self.error("only version 2 is known")
            }
            "preamble" => Ok(()),
            "trace-class" => {
                self.model.packet_header = class(self, "packet-header-field-class")?;
                if let Some(env) = value["environment"].as_object() {
                    for (key, value) in env {
                        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                        self.model.env.insert(key.clone(), value);
                    }
                }
                Ok(())
            }
            "clock-class" => {
                let offset = &value["offset-from-origin"];
                let clock = Clock {
                    frequency: value["frequency"].as_u64().unwrap_or(1_000_000_000).max(1),
                    offset_s: offset["seconds"].as_i64().unwrap_or(0),
                    offset: offset["cycles"].as_i64().unwrap_or(0),
                };
                let name = text("id").or_else(|| text("name")).unwrap_or_default();
                self.model.clocks.insert(name, clock);
                Ok(())
            }
            "field-class-alias" => {
                let of = self.class(&value["field-class"], 0)?;
                self.aliases.insert(text("name").unwrap_or_default(), of);
                Ok(())
            }
            "data-stream-class" => {
                let stream = Stream {
                    packet_context: class(self, "packet-context-field-class")?,
                    event_header: class(self, "event-record-header-field-class")?,
                    event_context: class(self, "event-record-common-context-field-class")?,
                    clock: text("default-clock-class-id")
                        .or_else(|| text("default-clock-class-name")),
                    ..Stream::default()
                };
                self.model.streams.insert(number("id"), stream);
                Ok(())
            }
            "event-record-class" => {
                let event = Event {
                    name: text("name").unwrap_or_default(),
                    context: class(self, "specific-context-field-class")?,
                    payload: class(self, "payload-field-class")?,
                };
                let Some(stream) = self.model.streams.get_mut(&number("data-stream-class-id"))
                else {
                    return self.error("the event is of a stream that was not declared");
                };
                stream.events.insert(number("id"), event);
                Ok(())
            }
            other => self.error(format!("there is no fragment of type {other:?}")),
        }
    }

    fn class(&self, value: &Value, depth: usize) -> Parsed<Rc<Type>> {
        if depth > DEPTH_MAX {
            return self.error("types are too deep within types");
        }
        if let Some(name) = value.as_str() {
            return match self.aliases.get(name) {
                Some(of) => Ok(Rc::clone(of)),
                None => self.error(format!("there is no type {name:?}")),
            };
        }
        let within = |value: &Value| self.class(value, depth + 1);
        let kind = value["type"].as_str().unwrap_or_default();
        let length = || Count::Static(value["length"].as_u64().unwrap_or(0));
        let counted = || Ok(Count::Field(self.path(&value["length-field-location"])?));
        let element = || within(&value["element-field-class"]);
        let least = self.align(value, "minimum-alignment", 1)?;
        Ok(Rc::new(match kind {
            "fixed-length-unsigned-integer"
            | "fixed-length-bit-array"
            | "fixed-length-bit-map"
            | "fixed-length-boolean" => self.integer(value, false)?,
            "fixed-length-signed-integer" => self.integer(value, true)?,
            "variable-length-unsigned-integer" => self.varint(value, false),
            "variable-length-signed-integer" => self.varint(value, true),
            "fixed-length-floating-point-number" => {
                let size = value["length"].as_u64().unwrap_or(0) as u32;
                if size != 32 && size != 64 {
                    return self.error("a floating-point number has 32 or 64 bits");
                }
                let align = self.align(value, "alignment", 1)?;
                Type::Float { size, align, little: little(value) }
            }
            "null-terminated-string" => Type::Text,
            "static-length-string" => Type::Bytes { count: length(), text: true },
            "dynamic-length-string" => Type::Bytes { count: counted()?, text: true },
            "static-length-blob" => Type::Bytes { count: length(), text: false },
            "dynamic-length-blob" => Type::Bytes { count: counted()?, text: false },
            "static-length-array" => {
                Type::Array { element: element()?, count: length(), align: least }
            }
            "dynamic-length-array" => {
                Type::Array { element: element()?, count: counted()?, align: least }
            }
            "structure" => {
                let mut fields = Vec::new();
                for member in value["member-classes"].as_array().into_iter().flatten() {
                    let name = member["name"].as_str().unwrap_or_default().to_owned();
                    fields.push((name, within(&member["field-class"])?));
                }
                Type::structure(fields, least)
            }
            "optional" => Type::Optional {
                selector: self.path(&value["selector-field-location"])?,
                // Without ranges the selector is true or false.
                ranges: ranges(&value["selector-field-ranges"])
                    .unwrap_or_else(|| vec![(i128::MIN, -1), (1, i128::MAX)]),
                of: within(&value["field-class"])?,
            },
            "variant" => {
                let mut options = Vec::new();
                for option in value["options"].as_array().into_iter().flatten() {
                    options.push(Choice {
                        name: option["name"].as_str().unwrap_or_default().to_owned(),
                        ranges: Some(ranges(&option["selector-field-ranges"]).unwrap_or_default()),
                        of: within(&option["field-class"])?,
                    });
                }
                Type::Variant { selector: self.path(&value["selector-field-location"])?, options }
            }
            other => return self.error(format!("there is no field class {other:?}")),
        }))
    }

    fn align(&self, value: &Value, key: &str, otherwise: u32) -> Parsed<u32> {
        let align = value[key].as_u64().unwrap_or(otherwise.into());
        match u32::try_from(align).ok().filter(|n| n.is_power_of_two() && *n <= 1 << 16) {
            Some(align) => Ok(align),
            None => self.error("an alignment is a power of two"),
        }
    }

    fn integer(&self, value: &Value, signed: bool) -> Parsed<Type> {
        let size = value["length"].as_u64().unwrap_or(0);
        if !(1..=64).contains(&size) {
            return self.error("an integer has 1 to 64 bits");
        }
        Ok(Type::Integer(Integer {
            size: size as u32,
            align: self.align(value, "alignment", 1)?,
            signed,
            little: little(value),
            letter: false,
            labels: labels(value),
            clock: None,
            roles: roles(value),
        }))
    }

    fn varint(&self, value: &Value, signed: bool) -> Type {
        Type::Integer(Integer {
            size: 0,
            align: 8,
            signed,
            little: true,
            letter: false,
            labels: labels(value),
            clock: None,
            roles: roles(value),
        })
    }

    fn path(&self, value: &Value) -> Parsed<Path> {
        let (origin, path) = match value {
            // As drafts had it: the origin is the first of the path.
            Value::Array(all) => (all.first().and_then(Value::as_str), all.get(1..)),
            value => (value["origin"].as_str(), value["path"].as_array().map(|path| &path[..])),
        };
        let scope = match origin {
            Some("packet-header") => Some(Scope::PacketHeader),
            Some("packet-context") => Some(Scope::PacketContext),
            Some("event-record-header") => Some(Scope::EventHeader),
            Some("event-record-common-context") => Some(Scope::StreamEventContext),
            Some("event-record-specific-context") => Some(Scope::EventContext),
            Some("event-record-payload") => Some(Scope::Payload),
            Some(other) => return self.error(format!("there is no origin {other:?}")),
            None => None,
        };
        let names = path.unwrap_or_default().iter().filter_map(Value::as_str).map(str::to_owned);
        Ok(Path { scope, names: names.collect() })
    }
}

fn little(value: &Value) -> bool {
    value["byte-order"].as_str() != Some("big-endian")
}

fn ranges(value: &Value) -> Option<Ranges> {
    let end = |value: &Value| {
        let signed = value.as_i64().map(i128::from);
        signed.or_else(|| value.as_u64().map(i128::from))
    };
    let range = |range: &Value| Some((end(&range[0])?, end(&range[1])?));
    value.as_array()?.iter().map(range).collect()
}

fn labels(value: &Value) -> Vec<(String, Ranges)> {
    let Some(mappings) = value["mappings"].as_object() else { return Vec::new() };
    let label = |(name, of): (&String, &Value)| Some((name.clone(), ranges(of)?));
    mappings.iter().filter_map(label).collect()
}

fn roles(value: &Value) -> Vec<Role> {
    let role = |role: &Value| {
        Some(match role.as_str()? {
            "packet-magic-number" => Role::Magic,
            "data-stream-class-id" => Role::Stream,
            "event-record-class-id" => Role::Class,
            "default-clock-timestamp" => Role::Time,
            "packet-end-default-clock-timestamp" => Role::End,
            "packet-total-length" => Role::PacketSize,
            "packet-content-length" => Role::ContentSize,
            "discarded-event-record-counter-snapshot" => Role::Discarded,
            "packet-sequence-number" => Role::Sequence,
            _ => return None,
        })
    };
    value["roles"].as_array().into_iter().flatten().filter_map(role).collect()
}
