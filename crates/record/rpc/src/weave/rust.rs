//! Rust: what tonic-prost-build writes, of one package.
//!
//! The channel of a client is wrapped, so that the trailers of its answers are seen; its codec, so that messages
//! are; and its calls, so that their futures are. A server's handlers are wrapped where their path is matched.

use std::fmt::Write;

use fettle_abi::rpc::HOOKS;

use super::{Comments, Job, Text};
use crate::error::{Error, Result};
use crate::model::{Method, Recorded, Service, What};
use crate::options::{Id, Mode};

/// Who writes the files.
pub const GENERATOR: &str = "tonic-prost-build";

/// How its comments look.
pub const COMMENTS: Comments = Comments::Slashes;

/// Weaves a file. Its package may have clients, servers, or both.
pub fn weave(text: &mut Text, job: &Job<'_>) -> Result<()> {
    for (service, _, method) in job.methods() {
        if let Some(field) = method.recorded().find(|field| field.in_oneof) {
            let problem = format!(
                "field {} of a message of {}/{} is in a oneof, and prost has no member of that name: it cannot be \
                 recorded in Rust",
                field.field, service.full_name, method.name
            );
            return Err(Error::Description { place: service.place.clone(), problem });
        }
    }
    for service in &job.file.services {
        let snake = snake(&service.name);
        let mut types = vec![None; service.methods.len()];
        let client = format!("pub mod {snake}_client {{\n");
        if text.find(0, &client).is_ok() {
            clients(text, &client, service, &mut types)
                .map_err(|error| service.located(None, error))?;
        }
        let server = format!("pub mod {snake}_server {{\n");
        if text.find(0, &server).is_ok() {
            servers(text, &server, service, &mut types)
                .map_err(|error| service.located(None, error))?;
        }
        text.text.push_str(&tables(service, &types, job));
    }
    if let Some(code) = job.hooks.code(0, "", "", "") {
        text.text.push_str(&code);
    }
    Ok(())
}

/// Names of modules, functions and fields, as prost makes them.
fn snake(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    let mut out = String::new();
    for (at, c) in chars.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| chars[before]);
        let after_lower = before.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let before_lower = chars.get(at + 1).is_some_and(char::is_ascii_lowercase);
        let word = after_lower || before.is_some_and(|b| b.is_ascii_uppercase()) && before_lower;
        if c.is_ascii_uppercase() && word {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

/// The method's variable, from within a module of the file.
fn variable(service: &Service, method: &Method) -> String {
    format!("super::fettle_{}::{}", snake(&service.name), snake(&method.name).to_uppercase())
}

/// Rust's types of the messages of a method.
type Types = Option<(String, String)>;

/// Text between two others, behind a place.
fn between(text: &str, from: &str, to: &str) -> Option<String> {
    let rest = &text[text.find(from)? + from.len()..];
    Some(rest[..rest.find(to)?].trim().to_owned())
}

fn clients(text: &mut Text, module: &str, service: &Service, types: &mut [Types]) -> Result<()> {
    let mut at = text.find(0, module)?;
    for (known, by) in [
        ("inner: tonic::client::Grpc<T>,", "inner: tonic::client::Grpc<fettle_tonic::Traced<T>>,"),
        (
            "tonic::client::Grpc::new(inner)",
            "tonic::client::Grpc::new(fettle_tonic::Traced::new(inner))",
        ),
        (
            "tonic::client::Grpc::with_origin(inner, origin)",
            "tonic::client::Grpc::with_origin(fettle_tonic::Traced::new(inner), origin)",
        ),
    ] {
        at = put(text, at, known, by)?;
    }
    for (method, types) in service.methods.iter().zip(types) {
        let begin = text.find(at, &format!("pub async fn {}(", snake(&method.name)))?;
        let known = "let codec = tonic_prost::ProstCodec::default();";
        let codec = text.find(begin, known)?;
        let head = &text.text[begin..codec];
        let request = between(head, "IntoRequest<", ">,")
            .or_else(|| between(head, "IntoStreamingRequest<Message = ", ">,"));
        let response = between(head, "tonic::codec::Streaming<", ">")
            .or_else(|| between(head, "tonic::Response<", ">"));
        let (Some(request), Some(response)) = (request, response) else {
            return Err(
                text.unknown(begin, "the types of this method's messages are not to be found")
            );
        };
        *types = Some((request, response));
        let variable = variable(service, method);
        let by = format!(
            "let fettle_call = fettle_tonic::client(&{variable});\n            let codec = \
             fettle_tonic::Codec::new(tonic_prost::ProstCodec::default(), &fettle_call);"
        );
        let after = put(text, begin, known, &by)?;
        let (kind, wait) = match (method.client_streams, method.server_streams) {
            (false, false) => ("unary", "answered"),
            (false, true) => ("server_streaming", "answers"),
            (true, false) => ("client_streaming", "answered"),
            (true, true) => ("streaming", "answers"),
        };
        let known = format!("self.inner.{kind}(req, path, codec).await");
        let by = format!(
            "fettle_call.header(req.metadata_mut());\n            \
             req.extensions_mut().insert(fettle_call.clone());\n            \
             fettle_tonic::{wait}(&fettle_call, self.inner.{kind}(req, path, codec)).await"
        );
        at = put(text, after, &known, &by)?;
    }
    Ok(())
}

fn servers(text: &mut Text, module: &str, service: &Service, types: &mut [Types]) -> Result<()> {
    let mut at = text.find(0, module)?;
    for (method, types) in service.methods.iter().zip(types) {
        let path = format!("\"/{}/{}\" => {{\n", service.full_name, method.name);
        let begin = text.find(at, &path)?;
        let known = "let codec = tonic_prost::ProstCodec::default();";
        let codec = text.find(begin, known)?;
        let head = &text.text[begin..codec];
        let request = between(head, "Service<", ">");
        let response = between(head, "type Response = ", ";");
        let (Some(request), Some(response)) = (request, response) else {
            return Err(
                text.unknown(begin, "the types of this method's messages are not to be found")
            );
        };
        types.get_or_insert((request, response));
        let by = format!(
            "let fettle_call = fettle_tonic::server(&{}, req.headers());\n                        let codec = \
             fettle_tonic::Codec::new(tonic_prost::ProstCodec::default(), &fettle_call);",
            variable(service, method)
        );
        let after = put(text, begin, known, &by)?;
        let kind = match (method.client_streams, method.server_streams) {
            (false, false) => "unary",
            (false, true) => "server_streaming",
            (true, false) => "client_streaming",
            (true, true) => "streaming",
        };
        let known = format!("let res = grpc.{kind}(method, req).await;");
        let by = format!(
            "let res = fettle_tonic::served(&fettle_call, grpc.{kind}(method, req)).await;"
        );
        at = put(text, after, &known, &by)?;
    }
    Ok(())
}

/// Replaces what stands next behind a place; gives where it ends then.
fn put(text: &mut Text, from: usize, known: &str, by: &str) -> Result<usize> {
    let at = text.find(from, known)?;
    text.text.replace_range(at..at + known.len(), by);
    Ok(at + by.len())
}

fn tables(service: &Service, types: &[Types], job: &Job<'_>) -> String {
    let mut text = format!(
        "/// What Fettle records of the service.\n#[allow(dead_code, clippy::all)]\nmod fettle_{} {{\n",
        snake(&service.name)
    );
    for (number, (method, types)) in service.methods.iter().zip(types).enumerate() {
        if let Some(types) = types {
            text.push_str(&table(service, number, method, types, job));
        }
    }
    text.push_str("}\n");
    text
}

fn table(
    service: &Service,
    number: usize,
    method: &Method,
    types: &(String, String),
    job: &Job<'_>,
) -> String {
    let name = snake(&method.name);
    let full = format!("{}/{}", service.full_name, method.name);
    let mut text = String::new();
    let mut taken = |what: &str, of: &[Recorded], kind: &str| {
        if of.is_empty() {
            return "None".to_owned();
        }
        text.push_str(&take(&format!("{name}_{what}"), of, kind));
        format!("Some({name}_{what})")
    };
    let request = taken("request", &method.request, &types.0);
    let response = taken("response", &method.response, &types.1);
    let (mode, sum) = match job.mode {
        Mode::Performance => ("Performance", "None".to_owned()),
        Mode::Cflow => ("Cflow", "None".to_owned()),
        Mode::Scalar => {
            text.push_str(&sums(&name, &full));
            ("Scalar", format!("Some({name}_sum)"))
        }
    };
    let moments: Vec<usize> = job.hooks.moments().collect();
    let mut hook = "None".to_owned();
    // Writing to a text cannot fail.
    if !moments.is_empty() {
        hook = format!("Some({name}_hook)");
        let _ = writeln!(text, "    fn {name}_hook(number: usize, call: &fettle_tonic::Call) {{");
        let _ = writeln!(text, "        let _ = call;\n        match number {{");
        for moment in moments {
            let code = job.hooks.code(moment, &service.full_name, &method.name, "                ");
            let code = code.unwrap_or_default();
            let _ = writeln!(
                text,
                "            // {}\n            {moment} => {{\n{code}            }}",
                HOOKS[moment]
            );
        }
        text.push_str("            _ => {}\n        }\n    }\n");
    }
    let mut variables = "None".to_owned();
    if let Some(code) = job.hooks.code(2, &service.full_name, &method.name, "        ") {
        variables = format!("Some({name}_variables)");
        let any = "Box<dyn std::any::Any + Send + Sync>";
        let _ = writeln!(text, "    fn {name}_variables() -> {any} {{\n{code}    }}");
    }
    let _ = writeln!(
        text,
        "    /// {full}, as it is recorded.\n    pub static {}: fettle_tonic::Method = fettle_tonic::Method {{\n\
         \x20       service: {:#x},\n        number: {number},\n        name: \"{full}\",\n        \
         mode: fettle_tonic::Mode::{mode},\n        sends_id: {},\n        flags: {},\n        \
         request: {request},\n        response: {response},\n        sum: {sum},\n        hook: {hook},\n        \
         variables: {variables},\n    }};",
        name.to_uppercase(),
        service.number(),
        job.id == Id::Traceparent,
        method.flags(),
    );
    text
}

/// The function that takes what is marked from a message.
fn take(name: &str, of: &[Recorded], kind: &str) -> String {
    let mut text = format!(
        "    fn {name}(message: &dyn std::any::Any, call: &fettle_tonic::Call, first: bool) {{\n        \
         let Some(m) = message.downcast_ref::<{kind}>() else {{ return }};\n"
    );
    for field in of.iter().filter(|field| field.what == What::Size) {
        // Writing to a text cannot fail.
        let _ = writeln!(
            text,
            "        call.add({}, fettle_tonic::Size::size(&m.{}));",
            field.word,
            member(field)
        );
    }
    text.push_str("        if first {\n");
    for field in of.iter().filter(|field| field.what != What::Size) {
        let _ = writeln!(text, "            call.key({}, &m.{});", field.word, member(field));
    }
    text.push_str("        }\n    }\n");
    text
}

/// The sensors of a method in the mode `scalar`, and what adds to them.
fn sums(name: &str, full: &str) -> String {
    let minor = fettle_abi::rpc::service_number(full);
    let upper = name.to_uppercase();
    let mut text = String::new();
    for (side, end) in ["client", "server"].into_iter().enumerate() {
        let sensor = format!("{}.{end}", full.replace('/', "."));
        let sensor = &sensor[sensor.len().saturating_sub(56)..];
        let end = end.to_uppercase();
        // Writing to a text cannot fail.
        let _ = writeln!(
            text,
            "    static {upper}_{end}_NS: fettle_tonic::Histogram =\n        \
             fettle_tonic::Sensor::histogram(\"{sensor}.ns\", 17, {minor}).instance({side}).open();\n    \
             static {upper}_{end}_FAILED: fettle_tonic::Scalar =\n        \
             fettle_tonic::Sensor::scalar(\"{sensor}.failed\", 17, {minor}).instance({}).open();",
            2 + side
        );
    }
    let _ = writeln!(
        text,
        "    fn {name}_sum(server: bool, ns: u64, failed: bool) {{\n        \
         let (times, fails) = match server {{\n            \
         true => (&{upper}_SERVER_NS, &{upper}_SERVER_FAILED),\n            \
         false => (&{upper}_CLIENT_NS, &{upper}_CLIENT_FAILED),\n        }};\n        \
         times.record(ns);\n        fails.add(i64::from(failed));\n    }}"
    );
    text
}

/// The member of prost's struct for a field.
fn member(field: &Recorded) -> String {
    let words = [
        "as", "break", "const", "continue", "else", "enum", "extern", "false", "fn", "for", "if",
        "impl", "in", "let", "loop", "match", "mod", "move", "mut", "pub", "ref", "return",
        "static", "struct", "trait", "true", "type", "unsafe", "use", "where", "while", "async",
        "await", "dyn", "abstract", "become", "box", "do", "final", "macro", "override", "priv",
        "typeof", "unsized", "virtual", "yield", "try", "gen",
    ];
    let name = snake(&field.field);
    match name.as_str() {
        "self" | "super" | "crate" => format!("{name}_"),
        word if words.contains(&word) => format!("r#{name}"),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::snake;

    #[test]
    fn names_are_those_of_prost() {
        for (name, rust) in [
            ("Shop", "shop"),
            ("ServerStream", "server_stream"),
            ("HTTPGet", "http_get"),
            ("user_name", "user_name"),
        ] {
            assert_eq!(snake(name), rust);
        }
    }
}
