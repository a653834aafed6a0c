//! Java: what protoc-gen-grpc-java writes.
//!
//! Each stub makes its calls by `newCall` of a channel, or has gRPC make them by a channel; both are replaced. The
//! handlers of a service are wrapped where the service is defined, so deferred answers need nothing more.

use std::fmt::Write;

use fettle_abi::rpc::HOOKS;

use super::{Comments, Job, Text};
use crate::error::Result;
use crate::model::{Method, Recorded, Service, What};
use crate::options::{Id, Mode};

/// Who writes the files.
pub const GENERATOR: &str = "protoc-gen-grpc-java";

/// How its comments look.
pub const COMMENTS: Comments = Comments::Stars;

/// Weaves a file, which has one service.
pub fn weave(text: &mut Text, job: &Job<'_>) -> Result<()> {
    let name = text.file.rsplit('/').next().unwrap_or_default().to_owned();
    let of = |service: &&Service| name == format!("{}Grpc.java", service.name);
    let Some(service) = job.file.services.iter().find(of) else {
        return Err(text.unknown(0, "the file's name is none of the services'"));
    };
    let mut tables = String::new();
    for (number, method) in service.methods.iter().enumerate() {
        let types =
            weave_method(text, method).map_err(|error| service.located(Some(method), error))?;
        tables.push_str(&table(service, number, method, &types, job));
    }
    text.insert_after(&format!("SERVICE_NAME = \"{}\";\n", service.full_name), &tables)
        .map_err(|error| service.located(None, error))?;
    if let Some(code) = job.hooks.code(0, &service.full_name, "", "") {
        text.insert_after(
            "import static io.grpc.MethodDescriptor.generateFullMethodName;\n",
            &code,
        )?;
    }
    if let Some(code) = job.hooks.code(1, &service.full_name, "", "    ") {
        let bind = "io.grpc.ServerServiceDefinition bindService(AsyncService service) {\n";
        text.insert_after(bind, &code)?;
    }
    Ok(())
}

fn weave_method(text: &mut Text, method: &Method) -> Result<Types> {
    let getter = mixed(&format!("get_{}_method", method.name));
    let types = types(text, &getter)?;
    stubs(text, &getter, &variable(method))?;
    handler(text, &getter, &variable(method))?;
    Ok(types)
}

fn variable(method: &Method) -> String {
    format!("FETTLE_{}", method.name)
}

/// Names of methods, as gRPC makes them of `snake_case`.
fn mixed(name: &str) -> String {
    let mut out = String::new();
    let mut up = false;
    for c in name.chars() {
        match c {
            '_' => up = true,
            c => {
                out.push(if up { c.to_ascii_uppercase() } else { c });
                up = false;
            }
        }
    }
    out
}

/// Java's types of the messages of a method.
#[derive(Debug)]
struct Types {
    request: String,
    response: String,
}

fn types(text: &Text, getter: &str) -> Result<Types> {
    let end = text.find(0, &format!("> {getter}() {{"))?;
    let begin = text.text[..end].rfind("io.grpc.MethodDescriptor<").unwrap_or(end);
    let inside = text.text[begin..end].trim_start_matches("io.grpc.MethodDescriptor<");
    match inside.split_once(',') {
        Some((request, response)) => {
            Ok(Types { request: request.trim().to_owned(), response: response.trim().to_owned() })
        }
        None => Err(text.unknown(end, "the types of this method's messages are not to be found")),
    }
}

fn stubs(text: &mut Text, getter: &str, variable: &str) -> Result<()> {
    let call = format!("getChannel().newCall({getter}(), getCallOptions())");
    let by = format!(
        "dev.fettle.rpc.Rpc.newCall(getChannel(), {getter}(), getCallOptions(), {variable})"
    );
    text.replace_all(&call, &by)?;
    // Blocking stubs, which a method that takes a stream may not have.
    let call = format!("getChannel(), {getter}(), getCallOptions()");
    let by = format!(
        "dev.fettle.rpc.Rpc.channel(getChannel(), {variable}), {getter}(), getCallOptions()"
    );
    let mut from = 0;
    while let Some(at) = text.in_code(from, &call) {
        from = at + call.len();
        // Those from above.
        if !text.text[..at].ends_with("Rpc.newCall(") {
            text.text.replace_range(at..from, &by);
            from = at + by.len();
        }
    }
    Ok(())
}

fn handler(text: &mut Text, getter: &str, variable: &str) -> Result<()> {
    let begin = format!(".addMethod(\n          {getter}(),\n          ");
    let at = text.find(0, &begin)? + begin.len();
    let calls = "io.grpc.stub.ServerCalls.async";
    if !text.text[at..].starts_with(calls) {
        return Err(text.unknown(at, format!("`{calls}…` should be here")));
    }
    let end = text.find(at, ")))\n")? + ")))".len() - 1;
    text.text.insert_str(end, &format!(", {variable})"));
    text.text.insert_str(at, "dev.fettle.rpc.Rpc.server(");
    Ok(())
}

fn table(
    service: &Service,
    number: usize,
    method: &Method,
    types: &Types,
    job: &Job<'_>,
) -> String {
    let full = format!("{}/{}", service.full_name, method.name);
    let mode = match job.mode {
        Mode::Performance => "PERFORMANCE",
        Mode::Cflow => "CFLOW",
        Mode::Scalar => "SCALAR",
    };
    let mut text = format!(
        "\n  // {full}, as it is recorded.\n  private static final dev.fettle.rpc.Method {} =\n      new \
         dev.fettle.rpc.Method({:#x}, {number}, \"{full}\", {}, dev.fettle.rpc.Mode.{mode}, {},",
        variable(method),
        service.number(),
        method.flags(),
        job.id == Id::Traceparent,
    );
    for (of, kind) in [(&method.request, &types.request), (&method.response, &types.response)] {
        text.push_str(&marked(of, kind));
    }
    let moments: Vec<usize> = job.hooks.moments().collect();
    // Writing to a text cannot fail.
    if moments.is_empty() {
        text.push_str("\n          null,");
    } else {
        text.push_str("\n          number -> {\n            switch (number) {\n");
        for hook in moments {
            let code = job.hooks.code(hook, &service.full_name, &method.name, "                  ");
            let _ = writeln!(
                text,
                "              case {hook}: // {}\n                return call -> {{\n{}                }};",
                HOOKS[hook],
                code.unwrap_or_default(),
            );
        }
        text.push_str(
            "              default:\n                return null;\n            }\n          },",
        );
    }
    match job.hooks.code(2, &service.full_name, &method.name, "            ") {
        Some(code) => {
            let _ = write!(text, "\n          () -> {{\n{code}          }});\n");
        }
        None => text.push_str("\n          null);\n"),
    }
    text
}

/// What takes the fields that are marked from a message.
fn marked(of: &[Recorded], kind: &str) -> String {
    if of.is_empty() {
        return "\n          null,".to_owned();
    }
    let mut text = format!(
        "\n          (message, call, first) -> {{\n            {kind} m = ({kind}) message;\n"
    );
    for field in of.iter().filter(|field| field.what == What::Size) {
        // Writing to a text cannot fail.
        let _ = writeln!(text, "            call.add({}, {});", field.word, size(field));
    }
    text.push_str("            if (first) {\n");
    for field in of.iter().filter(|field| field.what != What::Size) {
        let get = format!("m.get{}()", camel(&field.field));
        let set = match field.what {
            What::Text => format!("call.text({}, {get})", field.word),
            What::Bytes => format!("call.text({}, {get}.toByteArray())", field.word),
            What::Float => format!("call.number({}, {get})", field.word),
            _ => format!("call.value({}, {})", field.word, number(field, &get)),
        };
        let _ = writeln!(text, "              {set};");
    }
    text.push_str("            }\n          },");
    text
}

fn number(field: &Recorded, get: &str) -> String {
    match field.kind {
        // A truth value, an enumeration, and numbers of 32 bits without a sign.
        8 => format!("{get} ? 1 : 0"),
        14 => format!("m.get{}Value()", camel(&field.field)),
        7 | 13 => format!("{get} & 0xffffffffL"),
        _ => get.to_owned(),
    }
}

fn size(field: &Recorded) -> String {
    let name = camel(&field.field);
    match (field.repeated, field.kind) {
        (true, _) => format!("m.get{name}Count()"),
        (false, 9) => format!("m.get{name}Bytes().size()"),
        _ => format!("m.get{name}().size()"),
    }
}

/// Names as protoc makes them of `snake_case`.
fn camel(name: &str) -> String {
    let mut out = String::new();
    let mut up = true;
    for c in name.chars() {
        match c {
            '_' => up = true,
            c if up => {
                out.push(c.to_ascii_uppercase());
                up = false;
            }
            c => {
                out.push(c);
                up = c.is_ascii_digit();
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::camel;

    #[test]
    fn names_are_those_of_java() {
        for (name, java) in
            [("id", "Id"), ("user_name", "UserName"), ("a1b", "A1B"), ("someID", "SomeID")]
        {
            assert_eq!(camel(name), java);
        }
    }
}
