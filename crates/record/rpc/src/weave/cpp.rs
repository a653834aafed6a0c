//! C++: what grpc_cpp_plugin writes.
//!
//! Blocking calls and the handlers of a synchronous service are functions with a status, and are wrapped. All other
//! calls of a client are made by a channel that follows them (`fettle_rpc::Tap`). Services by completion queues and
//! by reactors are left unmodified: their stubs do not see the end of a call.

use std::fmt::Write;

use fettle_abi::rpc::HOOKS;

use super::{Comments, Job, Text};
use crate::error::Result;
use crate::model::{Method, Recorded, Service, What};
use crate::options::{Id, Mode};

/// Who writes the files.
pub const GENERATOR: &str = "grpc_cpp_plugin";

/// How its comments look.
pub const COMMENTS: Comments = Comments::Slashes;

/// Weaves a file. Only the source has places for it, not the header.
pub fn weave(text: &mut Text, job: &Job<'_>) -> Result<()> {
    if !text.file.ends_with(".cc") {
        return Ok(());
    }
    let mut includes = "#include \"fettle_rpc.h\"\n".to_owned();
    if let Some(code) = job.hooks.code(0, "", "", "") {
        includes.push_str(&code);
    }
    text.insert_after("#include <grpcpp/support/sync_stream.h>\n", &includes)?;
    for service in &job.file.services {
        let mut tables = String::new();
        for (number, method) in service.methods.iter().enumerate() {
            let types = types(text, service, method)
                .and_then(|types| handler(text, service, method).map(|()| types))
                .map_err(|error| service.located(Some(method), error))?;
            tables.push_str(&table(service, number, method, &types, job));
        }
        weave_service(text, service, &tables, job).map_err(|error| service.located(None, error))?;
    }
    Ok(())
}

/// Puts the tables behind the names of a service's methods, and weaves its stub and its constructor.
fn weave_service(text: &mut Text, service: &Service, tables: &str, job: &Job<'_>) -> Result<()> {
    // A service without methods has no names of them, and its stub makes no calls.
    if !service.methods.is_empty() {
        clients(text, service)?;
        let names =
            text.find(0, &format!("static const char* {}_method_names[] = {{", service.name))?;
        let end = text.find(names, "};\n")? + "};\n".len();
        text.text.insert_str(end, tables);
    }
    if let Some(code) = job.hooks.code(1, &service.full_name, "", "  ") {
        let constructor = format!("\n{0}::Service::Service() {{\n", service.name);
        text.insert_after(&constructor, &code)?;
    }
    Ok(())
}

fn variable(service: &str, method: &str) -> String {
    format!("fettle_{service}_{method}")
}

/// C++'s types of the messages of a method.
#[derive(Debug)]
struct Types {
    request: String,
    response: String,
}

fn types(text: &Text, service: &Service, method: &Method) -> Result<Types> {
    let raw = if method.client_streams || method.server_streams { "Raw(" } else { "(" };
    let head = format!("{}::Stub::{}{raw}", service.name, method.name);
    let at = text.find(0, &head)?;
    let end = text.find(at, "\n}\n")?;
    let body = &text.text[at..end];
    let between = |from: &str, to: &str| -> Option<String> {
        let rest = &body[body.find(from)? + from.len()..];
        Some(rest[..rest.find(to)?].trim().to_owned())
    };
    let factory = || {
        let inside = between("Factory<", ">::Create")?;
        let parts: Vec<String> = inside.split(',').map(|part| part.trim().to_owned()).collect();
        Some(parts)
    };
    let (request, response) = match (method.client_streams, method.server_streams) {
        (false, false) => (between(", const ", "& request"), between("& request, ", "* response")),
        (false, true) => {
            (between(", const ", "& request"), factory().and_then(|it| it.into_iter().next()))
        }
        (true, false) => {
            (factory().and_then(|it| it.into_iter().next()), between("* context, ", "* response"))
        }
        (true, true) => match factory().as_deref() {
            Some([request, response]) => (Some(request.clone()), Some(response.clone())),
            _ => (None, None),
        },
    };
    match (request, response) {
        (Some(request), Some(response)) => Ok(Types { request, response }),
        _ => Err(text.unknown(at, "the types of this method's messages are not to be found")),
    }
}

/// Wraps a method of the service where its handler calls it.
fn handler(text: &mut Text, service: &Service, method: &Method) -> Result<()> {
    let (arguments, request, response) = match (method.client_streams, method.server_streams) {
        (false, false) => ("ctx, req, resp", "req", "resp"),
        (false, true) => ("ctx, req, writer", "req", "nullptr"),
        (true, false) => ("ctx, reader, resp", "nullptr", "resp"),
        (true, true) => ("ctx, stream", "nullptr", "nullptr"),
    };
    let name = &method.name;
    let call = format!("return service->{name}({arguments});");
    // Methods of different services may have one name: it is the one behind its service's constructor.
    let constructor = text.find(0, &format!("\n{}::Service::Service() {{\n", service.name))?;
    let at = text.find(constructor, &call)?;
    let variable = variable(&service.name, name);
    let by = format!(
        "return ::fettle_rpc::handle({variable}, ctx, {request}, {response}, [&] {{ {call} }});"
    );
    text.text.replace_range(at..at + call.len(), &by);
    Ok(())
}

/// Wraps blocking calls of a service's stub, and has a channel follow all others.
fn clients(text: &mut Text, service: &Service) -> Result<()> {
    let stub = format!("{}::Stub::", service.name);
    let mut out = String::with_capacity(text.text.len());
    // The method of the stub that a line is in, and how it has the message.
    let mut of: Option<(String, &str)> = None;
    let mut woven = 0;
    for line in text.text.split_inclusive('\n') {
        if line.starts_with("::grpc::") || line.starts_with("void ") {
            of = line.find(&stub).and_then(|at| {
                let rest = &line[at + stub.len()..];
                let name = rest.strip_prefix("async::").unwrap_or(rest);
                let name = name.split('(').next()?;
                let name = ["PrepareAsync", "Async"]
                    .iter()
                    .find_map(|begin| name.strip_prefix(begin)?.strip_suffix("Raw"))
                    .or_else(|| name.strip_suffix("Raw"))
                    .unwrap_or(name);
                let known = |method: &&Method| {
                    method.name == name || rest.starts_with(&format!("{}(", method.name))
                };
                let method = service.methods.iter().find(known)?;
                let message = match () {
                    () if method.client_streams => "",
                    () if line.contains("& request") => ", &request",
                    () => ", request",
                };
                Some((variable(&service.name, &method.name), message))
            });
        }
        let Some((variable, message)) = &of else {
            out.push_str(line);
            continue;
        };
        let call = line.trim_end().strip_prefix("  return ::grpc::internal::BlockingUnaryCall<");
        if let Some(call) = call {
            let call = call.strip_suffix(';').unwrap_or(call);
            let _ = writeln!(
                out,
                "  return ::fettle_rpc::unary({variable}, context, request, response, [&] {{ return \
                 ::grpc::internal::BlockingUnaryCall<{call}; }});"
            );
            woven += 1;
            continue;
        }
        let channel = ["stub_->channel_.get(), ", "channel_.get(), "];
        match channel.iter().find(|channel| line.contains(*channel)) {
            Some(channel) => {
                let inner = channel.trim_end_matches(", ");
                let by = format!("::fettle_rpc::Tap({inner}, {variable}{message}).get(), ");
                out.push_str(&line.replacen(channel, &by, 1));
                woven += 1;
            }
            None => out.push_str(line),
        }
    }
    // A blocking call or a stream each, a callback, and what completion queues have.
    if woven < 3 * service.methods.len() {
        let at = text.find(0, &stub)?;
        let problem = format!(
            "the stub of {} should make {} calls or more by its channel; {woven} are to be found",
            service.name,
            3 * service.methods.len()
        );
        return Err(text.unknown(at, problem));
    }
    text.text = out;
    Ok(())
}

fn table(
    service: &Service,
    number: usize,
    method: &Method,
    types: &Types,
    job: &Job<'_>,
) -> String {
    let variable = variable(&service.name, &method.name);
    let full = format!("{}/{}", service.full_name, method.name);
    let mut text = format!("\n// {full}, as it is recorded.\nnamespace {{\n");
    taken_fields(method, types, &variable, &mut text);
    let mut sum = "nullptr".to_owned();
    if job.mode == Mode::Scalar {
        sum = format!("{variable}_sum");
        text.push_str(&sums(&variable, &full));
    }
    let (hook, variables) = own_code(service, method, job, &variable, &mut text);
    let taken = |what: &str, of: &[Recorded]| match of.is_empty() {
        true => "nullptr".to_owned(),
        false => format!("{variable}_{what}"),
    };
    let _ = writeln!(
        text,
        "const ::fettle_rpc::Method {variable} = {{\n    {:#x}, {number}, \"{full}\", {}, \
         ::fettle_rpc::Mode::{}, {},\n    {}, {},\n    {variable}_request_size, \
         {variable}_response_size, {sum}, {hook}, {variables}}};\n}}  // namespace",
        service.number(),
        method.flags(),
        job.mode.name().to_uppercase(),
        job.id == Id::Traceparent,
        taken("request", &method.request),
        taken("response", &method.response),
    );
    text
}

/// Writes the functions that take what is marked from messages.
fn taken_fields(method: &Method, types: &Types, variable: &str, text: &mut String) {
    for (what, of, kind) in [
        ("request", &method.request, &types.request),
        ("response", &method.response, &types.response),
    ] {
        // Writing to a text cannot fail.
        let _ = writeln!(
            text,
            "size_t {variable}_{what}_size(const void* message) {{\n  return static_cast<const {kind}*>\
             (message)->ByteSizeLong();\n}}"
        );
        if of.is_empty() {
            continue;
        }
        let _ = writeln!(
            text,
            "void {variable}_{what}(const void* message, ::fettle_rpc::Call& call, bool first) {{\n  \
             const auto& m = *static_cast<const {kind}*>(message);"
        );
        for field in of.iter().filter(|field| field.what == What::Size) {
            let _ = writeln!(text, "  call.add({}, m.{}().size());", field.word, accessor(field));
        }
        let keys: Vec<&Recorded> = of.iter().filter(|field| field.what != What::Size).collect();
        if keys.is_empty() {
            text.push_str("  (void)first;\n");
        } else {
            text.push_str("  if (!first) return;\n");
        }
        for field in keys {
            let get = format!("m.{}()", accessor(field));
            let set = match field.what {
                What::Text | What::Bytes => format!("call.text({}, {get})", field.word),
                What::Float => format!("call.number({}, {get})", field.word),
                _ => format!("call.value({}, static_cast<uint64_t>({get}))", field.word),
            };
            let _ = writeln!(text, "  {set};");
        }
        text.push_str("}\n");
    }
}

/// Writes the functions with code of one's own; gives what the table says of hooks and variables.
fn own_code(
    service: &Service,
    method: &Method,
    job: &Job<'_>,
    variable: &str,
    text: &mut String,
) -> (String, String) {
    let moments: Vec<usize> = job.hooks.moments().collect();
    let mut hook = "nullptr".to_owned();
    if !moments.is_empty() {
        hook = format!("{variable}_hook");
        let _ = writeln!(
            text,
            "void {hook}(int number, ::fettle_rpc::Call& call) {{\n  (void)call;\n  switch (number) {{"
        );
        for moment in moments {
            let code = job.hooks.code(moment, &service.full_name, &method.name, "      ");
            let code = code.unwrap_or_default();
            let _ = writeln!(
                text,
                "    case {moment}: {{  // {}\n{code}      break;\n    }}",
                HOOKS[moment]
            );
        }
        text.push_str("  }\n}\n");
    }
    let mut variables = "nullptr".to_owned();
    if let Some(code) = job.hooks.code(2, &service.full_name, &method.name, "  ") {
        variables = format!("{variable}_variables");
        let _ = writeln!(text, "std::shared_ptr<void> {variables}() {{\n{code}}}");
    }
    (hook, variables)
}

/// The sensors of a method in the mode `scalar`, and what adds to them.
fn sums(variable: &str, full: &str) -> String {
    let minor = fettle_abi::rpc::service_number(full);
    let mut text = String::new();
    for (side, end) in ["client", "server"].into_iter().enumerate() {
        let name = format!("{}.{end}", full.replace('/', "."));
        let name = &name[name.len().saturating_sub(56)..];
        let _ = writeln!(
            text,
            "FETTLE_DEFINE({variable}_{end}_ns, \"{name}.ns\", 17, {minor}, {side}, FETTLE_KIND_HISTOGRAM, 0, \
             FETTLE_DEFAULT_SLOTS, 0, 0);\nFETTLE_DEFINE({variable}_{end}_failed, \"{name}.failed\", 17, {minor}, \
             {}, FETTLE_KIND_SCALAR, 0, FETTLE_DEFAULT_SLOTS, 0, 0);",
            2 + side,
        );
    }
    let _ = writeln!(
        text,
        "void {variable}_sum(bool server, uint64_t ns, bool failed) {{\n  if (server) {{\n    \
         FETTLE_RECORD({variable}_server_ns, ns);\n    if (failed) FETTLE_ADD({variable}_server_failed, 1);\n  }} \
         else {{\n    FETTLE_RECORD({variable}_client_ns, ns);\n    if (failed) \
         FETTLE_ADD({variable}_client_failed, 1);\n  }}\n}}"
    );
    text
}

/// protoc's name of a field's accessor: in lower case, and with an underscore if it is a word of C++.
fn accessor(field: &Recorded) -> String {
    let name = field.field.to_lowercase();
    let words = [
        "and",
        "asm",
        "auto",
        "bool",
        "break",
        "case",
        "catch",
        "char",
        "class",
        "const",
        "continue",
        "default",
        "delete",
        "do",
        "double",
        "else",
        "enum",
        "explicit",
        "export",
        "extern",
        "false",
        "float",
        "for",
        "friend",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "mutable",
        "namespace",
        "new",
        "not",
        "operator",
        "or",
        "private",
        "protected",
        "public",
        "register",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "template",
        "this",
        "throw",
        "true",
        "try",
        "typedef",
        "typeid",
        "typename",
        "union",
        "unsigned",
        "using",
        "virtual",
        "void",
        "volatile",
        "while",
        "xor",
    ];
    if words.contains(&name.as_str()) { format!("{name}_") } else { name }
}
