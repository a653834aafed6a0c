//! What the compiler asks for: `google.protobuf.compiler.CodeGeneratorRequest`, and the model of it.

use std::collections::HashMap;

use fettle_abi::rpc::FIELD_WORDS;

use crate::error::{Error, Place, Result};
use crate::model::{Edition, File, Method, Recorded, Service, What};
use crate::wire::{Fields, Value, packed};

/// Number of the option `(fettle)` of fields; `fettle.proto` declares it.
pub const OPTION: u32 = 82_118;
/// The standard option `debug_redact` of fields.
const DEBUG_REDACT: u32 = 16;

/// A request of the compiler.
#[derive(Clone, Debug, Default)]
pub struct Request<'a> {
    /// Names of the files that stubs are asked for.
    pub wanted: Vec<String>,
    /// What stands behind `--fettle_out=` or `--fettle_opt=`.
    pub parameter: String,
    /// Descriptions of these and of all that they import, as they came.
    pub files: Vec<&'a [u8]>,
}

/// Reads a request.
pub fn read(bytes: &[u8]) -> Result<Request<'_>> {
    let mut request = Request::default();
    for field in Fields::of(bytes) {
        match field? {
            (1, name) => request.wanted.push(name.text()),
            (2, parameter) => request.parameter = parameter.text(),
            (15, file) => request.files.push(file.bytes()),
            _ => {}
        }
    }
    Ok(request)
}

/// The model of the files that stubs are asked for.
pub fn model(request: &Request<'_>) -> Result<Vec<File>> {
    let mut messages = HashMap::new();
    let mut parsed = Vec::new();
    for file in &request.files {
        let file = RawFile::read(file)?;
        let scope =
            if file.package.is_empty() { String::new() } else { format!(".{}", file.package) };
        for (place, message) in file.messages.iter().enumerate() {
            add_messages(message, &scope, &[4, place as u64], &file, &mut messages, 0)?;
        }
        parsed.push(file);
    }
    let wanted = parsed.iter().filter(|file| request.wanted.contains(&file.name));
    let files: Vec<File> = wanted.map(|file| file.model(&messages)).collect::<Result<_>>()?;
    let mut numbers: HashMap<u32, &str> = HashMap::new();
    for service in files.iter().flat_map(|file| &file.services) {
        if let Some(other) = numbers.insert(service.number(), &service.full_name) {
            let problem = format!(
                "the services {} and {other} have the same number: rename one",
                service.full_name
            );
            return Err(Error::Description { place: service.place.clone(), problem });
        }
    }
    Ok(files)
}

/// What is recorded of a message's fields, without their words.
type Marked = Vec<Recorded>;

/// A file as it came.
#[derive(Debug, Default)]
struct RawFile<'a> {
    name: String,
    package: String,
    edition: Option<u64>,
    messages: Vec<&'a [u8]>,
    services: Vec<&'a [u8]>,
    places: HashMap<Vec<u64>, (u64, u64)>,
}

impl<'a> RawFile<'a> {
    fn read(bytes: &'a [u8]) -> Result<RawFile<'a>> {
        let mut file = RawFile::default();
        for field in Fields::of(bytes) {
            match field? {
                (1, name) => file.name = name.text(),
                (2, package) => file.package = package.text(),
                (4, message) => file.messages.push(message.bytes()),
                (6, service) => file.services.push(service.bytes()),
                (14, edition) => file.edition = Some(edition.number()),
                (9, info) => file.read_places(info.bytes())?,
                _ => {}
            }
        }
        Ok(file)
    }

    fn read_places(&mut self, info: &[u8]) -> Result<()> {
        for location in Fields::of(info) {
            let (1, location) = location? else { continue };
            let (mut path, mut span) = (Vec::new(), Vec::new());
            for field in Fields::of(location.bytes()) {
                match field? {
                    (1, value) => path.extend(packed(value)?),
                    (2, value) => span.extend(packed(value)?),
                    _ => {}
                }
            }
            if let [line, column, ..] = span[..] {
                // An option that is set again further down: the first place is enough.
                let place = (line.saturating_add(1), column.saturating_add(1));
                self.places.entry(path).or_insert(place);
            }
        }
        Ok(())
    }

    /// The place of a part of the file, or of what it is a part of.
    fn place(&self, path: &[u64]) -> Place {
        let known = (1..=path.len()).rev().find_map(|length| self.places.get(&path[..length]));
        let (line, column) = known.copied().unwrap_or_default();
        Place { file: self.name.clone(), line, column }
    }

    fn model(&self, messages: &HashMap<String, Marked>) -> Result<File> {
        let mut services = Vec::new();
        for (number, service) in self.services.iter().enumerate() {
            services.push(self.service(number as u64, service, messages)?);
        }
        // Compilers name the place of an edition as that of the syntax.
        let edition = self.edition.map(|number| Edition { number, place: self.place(&[12]) });
        Ok(File { name: self.name.clone(), package: self.package.clone(), edition, services })
    }

    fn service(
        &self,
        number: u64,
        bytes: &[u8],
        messages: &HashMap<String, Marked>,
    ) -> Result<Service> {
        let mut service = Service { place: self.place(&[6, number]), ..Service::default() };
        for field in Fields::of(bytes) {
            match field? {
                (1, name) => service.name = name.text(),
                (2, method) => {
                    let place = self.place(&[6, number, 2, service.methods.len() as u64]);
                    service.methods.push(method_of(method.bytes(), place, messages)?);
                }
                _ => {}
            }
        }
        service.full_name = match self.package.as_str() {
            "" => service.name.clone(),
            package => format!("{package}.{}", service.name),
        };
        if service.methods.len() > usize::from(u16::MAX) {
            let problem = format!("{} has more than 65,535 methods", service.full_name);
            return Err(Error::Description { place: service.place, problem });
        }
        Ok(service)
    }
}

fn method_of(bytes: &[u8], place: Place, messages: &HashMap<String, Marked>) -> Result<Method> {
    let mut method = Method { place: place.clone(), ..Method::default() };
    let (mut input, mut output) = (String::new(), String::new());
    for field in Fields::of(bytes) {
        match field? {
            (1, name) => method.name = name.text(),
            (2, name) => input = name.text(),
            (3, name) => output = name.text(),
            (5, streams) => method.client_streams = streams.number() != 0,
            (6, streams) => method.server_streams = streams.number() != 0,
            _ => {}
        }
    }
    let mut word = 0;
    let empty = Vec::new();
    let request = messages.get(&input).unwrap_or(&empty);
    let mut take = |of: &Marked| -> Vec<Recorded> {
        let recorded = of.iter().map(|marked| {
            let first = word;
            word += marked.what.words();
            // What request and response both have is distinguished.
            let both =
                !std::ptr::eq(of, request) && request.iter().any(|other| other.name == marked.name);
            let name = match both {
                true => format!("answered_{}", marked.name),
                false => marked.name.clone(),
            };
            Recorded { name, word: first, ..marked.clone() }
        });
        recorded.collect()
    };
    method.request = take(request);
    method.response = take(messages.get(&output).unwrap_or(&empty));
    if word > FIELD_WORDS {
        let problem = format!(
            "fields marked (fettle) of {input} and {output} take {word} words of an event, which has \
             {FIELD_WORDS} (a text takes 4, all others 1): mark fewer"
        );
        return Err(Error::Description { place, problem });
    }
    Ok(method)
}

/// Nesting of messages at most; the compiler itself allows less.
const DEPTH_MAX: u32 = 64;

fn add_messages(
    bytes: &[u8],
    scope: &str,
    path: &[u64],
    file: &RawFile<'_>,
    into: &mut HashMap<String, Marked>,
    depth: u32,
) -> Result<()> {
    let mut name = String::new();
    let (mut fields, mut nested) = (Vec::new(), Vec::new());
    for field in Fields::of(bytes) {
        match field? {
            (1, value) => name = value.text(),
            (2, value) => fields.push(value.bytes()),
            (3, value) => nested.push(value.bytes()),
            _ => {}
        }
    }
    if depth == DEPTH_MAX {
        return Err(Error::Wire("messages are nested too deeply"));
    }
    let scope = format!("{scope}.{name}");
    let mut marked = Marked::new();
    for (number, field) in fields.into_iter().enumerate() {
        let path = [path, &[2, number as u64]].concat();
        marked_field(field, &path, file, &mut marked)?;
    }
    for (number, message) in nested.into_iter().enumerate() {
        let path = [path, &[3, number as u64]].concat();
        add_messages(message, &scope, &path, file, into, depth + 1)?;
    }
    into.insert(scope, marked);
    Ok(())
}

/// What a field's options ask for.
#[derive(Debug, Default)]
struct Asked {
    key: bool,
    size: bool,
    redact: bool,
    /// A part of `(fettle)` that this version does not know.
    unknown: Option<u32>,
}

fn asked(options: &[u8]) -> Result<Asked> {
    let mut asked = Asked::default();
    for option in Fields::of(options) {
        match option? {
            (DEBUG_REDACT, value) => asked.redact = value.number() != 0,
            (OPTION, Value::Bytes(message)) => {
                for part in Fields::of(message) {
                    match part? {
                        (1, value) => asked.key = value.number() != 0,
                        (2, value) => asked.size = value.number() != 0,
                        (number, _) => asked.unknown = Some(number),
                    }
                }
            }
            _ => {}
        }
    }
    Ok(asked)
}

fn marked_field(bytes: &[u8], path: &[u64], file: &RawFile<'_>, into: &mut Marked) -> Result<()> {
    let (mut name, mut repeated, mut kind, mut options) = (String::new(), false, 0, Vec::new());
    let (mut in_oneof, mut is_optional) = (false, false);
    for field in Fields::of(bytes) {
        match field? {
            (1, value) => name = value.text(),
            (4, value) => repeated = value.number() == 3,
            (5, value) => kind = value.number(),
            (8, value) => options.extend_from_slice(value.bytes()),
            // A field that is `optional` is alone in a oneof that only the compiler sees.
            (9, _) => in_oneof = true,
            (17, value) => is_optional = value.number() != 0,
            _ => {}
        }
    }
    let asked = asked(&options)?;
    let refuse = |part: &[u64], problem: String| {
        let place = file.place(&[path, &[8, u64::from(OPTION)], part].concat());
        Err(Error::Description { place, problem })
    };
    if let Some(number) = asked.unknown {
        let problem = format!(
            "field {name}: (fettle) has a part with number {number} that this version of \
             protoc-gen-fettle does not know; it knows key and size"
        );
        return refuse(&[u64::from(number)], problem);
    }
    if asked.redact && (asked.key || asked.size) {
        let problem = format!(
            "field {name} is marked debug_redact, so nothing of it may be recorded: remove (fettle) \
             or debug_redact"
        );
        return refuse(&[], problem);
    }
    let recorded = |called, what| Recorded {
        field: name.clone(),
        name: called,
        kind,
        repeated,
        in_oneof: in_oneof && !is_optional,
        what,
        word: 0,
    };
    if asked.key {
        let Some(what) = value_of(kind).filter(|_| !repeated) else {
            let problem = format!(
                "field {name} is a message or repeated: (fettle).key is for numbers and texts; \
                 mark a field of a request or response itself"
            );
            return refuse(&[1], problem);
        };
        into.push(recorded(name.clone(), what));
    }
    if asked.size {
        if !repeated && !matches!(kind, 9 | 12) {
            let problem = format!(
                "field {name} has no size: (fettle).size is for texts, bytes and repeated \
                 fields"
            );
            return refuse(&[2], problem);
        }
        into.push(recorded(format!("{name}_size"), What::Size));
    }
    Ok(())
}

/// What a field of a type is recorded as; nothing if it is a message.
fn value_of(kind: u64) -> Option<What> {
    Some(match kind {
        4 | 6 | 7 | 8 | 13 => What::Unsigned,
        3 | 5 | 14..=18 => What::Signed,
        1 | 2 => What::Float,
        9 => What::Text,
        12 => What::Bytes,
        _ => return None,
    })
}
