//! Python: what grpc_python_plugin and grpcio-tools write.
//!
//! A stub's callables and a servicer's methods are wrapped where they are named. The generated class for calls
//! without a stub (`Shop.Buy(request, target)`) is left as it is: gRPC calls it experimental.

use std::fmt::Write;

use fettle_abi::rpc::HOOKS;

use super::{Comments, Job, Text};
use crate::error::Result;
use crate::model::{Method, Recorded, Service, What};
use crate::options::Id;

/// Who writes the files.
pub const GENERATOR: &str = "grpc_python_plugin";

/// How its comments look.
pub const COMMENTS: Comments = Comments::Docstrings;

/// Weaves a file.
pub fn weave(text: &mut Text, job: &Job<'_>) -> Result<()> {
    let mut head = "\nimport fettle_rpc as _fettle\n".to_owned();
    if let Some(code) = job.hooks.code(0, "", "", "") {
        head.push_str(&code);
    }
    let mut tables = String::new();
    for service in &job.file.services {
        for (number, method) in service.methods.iter().enumerate() {
            weave_method(text, service, method)
                .map_err(|error| service.located(Some(method), error))?;
            tables.push_str(&table(service, number, method, job));
        }
        if let Some(code) = job.hooks.code(1, &service.full_name, "", "    ") {
            let register =
                format!("def add_{}Servicer_to_server(servicer, server):\n", service.name);
            text.insert_after(&register, &code).map_err(|error| service.located(None, error))?;
        }
    }
    // Behind the last import, which is the first line that begins so; all of them stand together.
    let imports = text.find(0, "\nimport grpc\n")? + "\nimport grpc\n".len();
    text.text.insert_str(imports, &head[1..]);
    let class = text.find(imports, "\nclass ")?;
    text.text.insert_str(class, &tables);
    Ok(())
}

fn variable(service: &Service, method: &Method) -> String {
    format!("_fettle_{}_{}", service.name, method.name)
}

fn weave_method(text: &mut Text, service: &Service, method: &Method) -> Result<()> {
    let kind = kind(method);
    let variable = variable(service, method);
    let stub = text.find(0, &format!("class {}Stub", service.name))?;
    let known = format!("self.{} = channel.{kind}(", method.name);
    let at = text.find(stub, &known)?;
    let value = at + format!("self.{} = ", method.name).len();
    let end = text.find(at, ")\n")? + 1;
    let end = wrap_codecs(text, at, end, &variable, "client")?;
    text.text.insert_str(end, &format!(", {variable})"));
    text.text.insert_str(value, "_fettle.client(");
    let table = text.find(0, &format!("def add_{}Servicer_to_server", service.name))?;
    let entry = text.find(table, &format!("'{}': grpc.{kind}_rpc_method_handler(", method.name))?;
    let servicer = format!("servicer.{},", method.name);
    let at = text.find(entry, &servicer)?;
    let by = format!("_fettle.server(servicer.{}, {variable}),", method.name);
    text.text.replace_range(at..at + servicer.len(), &by);
    let end = text.find(at, "            ),\n")?;
    wrap_codecs(text, at, end, &variable, "server")?;
    Ok(())
}

/// Wraps what reads and writes messages, between two places; gives where the second is then.
fn wrap_codecs(
    text: &mut Text,
    from: usize,
    to: usize,
    variable: &str,
    side: &str,
) -> Result<usize> {
    let mut end = to;
    let (reads, writes) = match side {
        "client" => ("response_deserializer=", "request_serializer="),
        _ => ("request_deserializer=", "response_serializer="),
    };
    for (known, wrap) in [(reads, "unmarshal"), (writes, "marshal")] {
        let at = text.find(from, known)? + known.len();
        let comma = text.find(at, ",")?;
        if comma >= end {
            return Err(text.unknown(at, format!("`{known}` should be this method's")));
        }
        let codec = text.text[at..comma].to_owned();
        let by = format!("_fettle.{wrap}({codec}, {variable})");
        end += by.len() - codec.len();
        text.text.replace_range(at..comma, &by);
    }
    Ok(end)
}

/// gRPC's name of a kind of method.
fn kind(method: &Method) -> String {
    let word = |streams| if streams { "stream" } else { "unary" };
    format!("{}_{}", word(method.client_streams), word(method.server_streams))
}

fn table(service: &Service, number: usize, method: &Method, job: &Job<'_>) -> String {
    let variable = variable(service, method);
    let mut text = String::new();
    let mut arguments = String::new();
    for (what, of) in [("request", &method.request), ("response", &method.response)] {
        if of.is_empty() {
            continue;
        }
        // Writing to a text cannot fail.
        let _ = writeln!(text, "\n\ndef {variable}_{what}(message, call, first):");
        for field in of.iter().filter(|field| field.what == What::Size) {
            let value = length(field);
            let _ = writeln!(text, "    call.add({}, {value})", field.word);
        }
        let keys: Vec<&Recorded> = of.iter().filter(|field| field.what != What::Size).collect();
        if !keys.is_empty() {
            text.push_str("    if first:\n");
        }
        for field in keys {
            let set = match field.what {
                What::Text | What::Bytes => "text",
                What::Float => "number",
                _ => "value",
            };
            let _ = writeln!(text, "        call.{set}({}, message.{})", field.word, field.field);
        }
        let _ = write!(arguments, ", {what}={variable}_{what}");
    }
    let moments: Vec<usize> = job.hooks.moments().collect();
    for hook in &moments {
        let name = HOOKS[*hook];
        let code = job.hooks.code(*hook, &service.full_name, &method.name, "    ");
        let _ = write!(text, "\n\ndef {variable}_{name}(call):\n{}", code.unwrap_or_default());
    }
    if !moments.is_empty() {
        let pairs = moments.iter().map(|hook| format!("{hook}: {variable}_{}", HOOKS[*hook]));
        let _ = write!(arguments, ", hooks={{{}}}", pairs.collect::<Vec<_>>().join(", "));
    }
    if let Some(code) = job.hooks.code(2, &service.full_name, &method.name, "    ") {
        let _ = write!(text, "\n\ndef {variable}_variables():\n{code}");
        let _ = write!(arguments, ", variables={variable}_variables");
    }
    let _ = write!(
        text,
        "\n\n{variable} = _fettle.Method(\n    {:#x}, {number}, '{}/{}', flags={}, mode='{}', \
         sends_id={}{arguments})\n",
        service.number(),
        service.full_name,
        method.name,
        method.flags(),
        job.mode.name(),
        if job.id == Id::Traceparent { "True" } else { "False" },
    );
    text
}

/// What `len` says of a field; of a text it is the length of its bytes.
fn length(field: &Recorded) -> String {
    format!("_fettle.size(message.{})", field.field)
}
