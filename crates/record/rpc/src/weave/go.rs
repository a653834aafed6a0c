//! Go: what protoc-gen-go-grpc writes, from 1.3 on.
//!
//! A client's call goes through `fettle.Invoke` or `fettle.NewStream`, which stand for the connection's own.
//! A server's handlers are wrapped in the table of the service, outside of the program's interceptors.

use std::fmt::Write;

use fettle_abi::rpc::HOOKS;

use super::{Comments, Job, Text};
use crate::error::Result;
use crate::model::{Method, Recorded, Service, What};
use crate::options::{Id, Mode};

/// Who writes the files.
pub const GENERATOR: &str = "protoc-gen-go-grpc";

/// How its comments look.
pub const COMMENTS: Comments = Comments::Slashes;

/// The package of Go that has what stubs call.
const PACKAGE: &str = "fettle.dev/rpc";

/// Weaves a file.
pub fn weave(text: &mut Text, job: &Job<'_>) -> Result<()> {
    // Without methods nothing would use the imports, which Go refuses.
    if let Some((service, _, method)) = job.methods().next() {
        let mut imports = format!("\tfettle \"{PACKAGE}\"\n");
        let code = job.hooks.code(0, &service.full_name, &method.name, "\t");
        imports.push_str(&code.unwrap_or_default());
        text.insert_after("\nimport (\n", &imports)?;
    }
    let mut tables = String::new();
    for service in &job.file.services {
        for (number, method) in service.methods.iter().enumerate() {
            let types = weave_method(text, service, method, job)
                .map_err(|error| service.located(Some(method), error))?;
            // Writing to a text cannot fail.
            let _ = write!(tables, "{}", table(service, number, method, &types, job));
        }
        if let Some(code) = job.hooks.code(1, &service.full_name, "", "\t") {
            let register =
                format!("\ts.RegisterService(&{}_ServiceDesc, srv)\n", camel(&service.name));
            text.insert_after(&register, &code).map_err(|error| service.located(None, error))?;
        }
    }
    text.text.push_str(&tables);
    Ok(())
}

/// The variable that describes a method.
fn variable(service: &Service, method: &Method) -> String {
    format!("fettle_{}_{}", camel(&service.name), camel(&method.name))
}

/// Go's types of the messages of a method.
#[derive(Debug)]
struct Types {
    request: String,
    response: String,
}

fn weave_method(
    text: &mut Text,
    service: &Service,
    method: &Method,
    job: &Job<'_>,
) -> Result<Types> {
    let (of, name) = (camel(&service.name), camel(&method.name));
    let variable = variable(service, method);
    let streams = method.client_streams || method.server_streams;
    let full = match text.find(0, &format!("{of}_{name}_FullMethodName, ")).is_ok() {
        true => format!("{of}_{name}_FullMethodName"),
        false => format!("\"/{}/{}\"", service.full_name, method.name),
    };
    let head = format!("Client) {name}(ctx context.Context");
    let client = text.find(0, &format!("func (c *{}{head}", unexport(&of)))?;
    let types = types(text, client, service, method)?;
    if streams {
        let known = format!("c.cc.NewStream(ctx, &{of}_ServiceDesc.Streams[");
        let at = text.find(client, &known)?;
        text.text.replace_range(
            at..at + "c.cc.NewStream(ctx, ".len(),
            &format!("fettle.NewStream(c.cc, ctx, {variable}, "),
        );
    } else {
        text.replace(
            &format!("c.cc.Invoke(ctx, {full}, "),
            &format!("fettle.Invoke(c.cc, ctx, {variable}, {full}, "),
        )?;
    }
    if streams {
        let handler = format!("_{of}_{name}_Handler,");
        let at = text.find(0, &handler)?;
        text.text.replace_range(
            at..at + handler.len(),
            &format!("fettle.Stream({variable}, _{of}_{name}_Handler),"),
        );
    } else {
        handler(text, &format!("_{of}_{name}_Handler"), &types, &variable, job)?;
    }
    if job.wants_components() {
        let context = if streams { "stream.Context()" } else { "ctx" };
        let call = format!("return srv.({of}Server).{name}(");
        text.replace_all(&call, &format!("defer fettle.Component({context})()\n\t\t{call}"))?;
    }
    Ok(types)
}

/// Puts a call's beginning and what sees its messages into the handler of a method without streams.
fn handler(
    text: &mut Text,
    handler: &str,
    types: &Types,
    variable: &str,
    job: &Job<'_>,
) -> Result<()> {
    let start = text.find(0, &format!("func {handler}(srv "))?;
    let read = format!("\tin := new({})\n\tif err := dec(in); err != nil {{\n", types.request);
    let reads = text.find(start, &read)?;
    let fails = "\t\treturn nil, err\n\t}\n\tif interceptor == nil {\n";
    let fails_at = reads + read.len();
    if !text.text[fails_at..].starts_with(fails) {
        let problem = format!("behind `dec(in)` there should be `{}`", fails.trim());
        return Err(text.unknown(fails_at, problem));
    }
    let reader = match job.mode == Mode::Cflow || job.hooks.moments().next().is_some() {
        true => "\tdec = fettle.Reader(ctx, dec)\n",
        false => "",
    };
    let woven = format!(
        "\tctx = fettle.Serve(ctx, {variable})\n{reader}{read}\t\treturn nil, fettle.Unread(ctx, err)\n\t}}\n\t\
         interceptor = fettle.Read(ctx, interceptor)\n\tif interceptor == nil {{\n"
    );
    text.text.replace_range(reads..fails_at + fails.len(), &woven);
    Ok(())
}

/// Types as the client's method names them.
fn types(text: &Text, client: usize, service: &Service, method: &Method) -> Result<Types> {
    let line_end = text.find(client, "\n")?;
    let line = &text.text[client..line_end];
    let between = |from: &str, to: &str| -> Option<String> {
        let rest = &line[line.find(from)? + from.len()..];
        Some(rest[..rest.find(to)?].to_owned())
    };
    let streams = method.client_streams || method.server_streams;
    let request = match method.client_streams {
        false => between(", in *", ","),
        true => between("StreamingClient[", ","),
    };
    let response = match (streams, method.client_streams) {
        (false, _) => between(") (*", ","),
        (true, true) => between(", ", "]").and_then(|it| it.rsplit(", ").next().map(str::to_owned)),
        (true, false) => between("StreamingClient[", "]"),
    };
    // Files from before the generic streams have a type of their own: what is sent is in its methods.
    let own = format!("{}{}Client) ", unexport(&camel(&service.name)), camel(&method.name));
    let old = |what: &str| -> Option<String> {
        let at = text.find(0, &format!("{own}{what}")).ok()? + own.len();
        let rest = &text.text[at..];
        let rest = &rest[rest.find('*')? + 1..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '.')?;
        Some(rest[..end].to_owned())
    };
    let request = request.or_else(|| old("Send("));
    let response = response.or_else(|| old("Recv(")).or_else(|| old("CloseAndRecv("));
    match (request, response) {
        (Some(request), Some(response)) => Ok(Types { request, response }),
        _ => Err(text.unknown(client, "the types of this method's messages are not to be found")),
    }
}

fn table(
    service: &Service,
    number: usize,
    method: &Method,
    types: &Types,
    job: &Job<'_>,
) -> String {
    let mode = match job.mode {
        Mode::Performance => "Performance",
        Mode::Cflow => "Cflow",
        Mode::Scalar => "Scalar",
    };
    let mut text = format!(
        "\n// {0}/{1}, as it is recorded.\nvar {2} = &fettle.Method{{\n\tService: {3:#x},\n\tNumber: \
         {number},\n\tName: \"{0}/{1}\",\n\tMode: fettle.{mode},\n\tSendsID: {4},\n\tFlags: {5},\n",
        service.full_name,
        method.name,
        variable(service, method),
        service.number(),
        job.id == Id::Traceparent,
        method.flags(),
    );
    for (what, of, kind) in [
        ("Request", &method.request, &types.request),
        ("Response", &method.response, &types.response),
    ] {
        if of.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\t{what}: func(message any, call *fettle.Call, first bool) {{");
        let _ =
            writeln!(text, "\t\tm, ok := message.(*{kind})\n\t\tif !ok {{\n\t\t\treturn\n\t\t}}");
        for field in of.iter().filter(|field| field.what == What::Size) {
            let get = getter(field);
            let _ = writeln!(text, "\t\tcall.Add({}, uint64(len(m.{get}())))", field.word);
        }
        let keys: Vec<&Recorded> = of.iter().filter(|field| field.what != What::Size).collect();
        if !keys.is_empty() {
            text.push_str("\t\tif first {\n");
            for field in keys {
                let get = format!("m.{}()", getter(field));
                let set = match field.what {
                    What::Text => format!("call.Text({}, {get})", field.word),
                    What::Bytes => format!("call.Text({}, string({get}))", field.word),
                    What::Float => format!("call.Float({}, float64({get}))", field.word),
                    _ => format!("call.Value({}, fettle.Word({get}))", field.word),
                };
                let _ = writeln!(text, "\t\t\t{set}");
            }
            text.push_str("\t\t}\n");
        }
        text.push_str("\t},\n");
    }
    let moments: Vec<usize> = job.hooks.moments().collect();
    if !moments.is_empty() {
        text.push_str("\tHooks: map[int]func(call *fettle.Call){\n");
        for hook in moments {
            let code = job.hooks.code(hook, &service.full_name, &method.name, "\t\t\t");
            let code = code.unwrap_or_default();
            let _ = writeln!(text, "\t\t{hook}: func(call *fettle.Call) {{ // {}", HOOKS[hook]);
            let _ = writeln!(text, "{code}\t\t}},");
        }
        text.push_str("\t},\n");
    }
    if let Some(code) = job.hooks.code(2, &service.full_name, &method.name, "\t\t") {
        let _ = writeln!(text, "\tVariables: func() any {{\n{code}\t}},");
    }
    text.push_str("}\n");
    text
}

fn getter(field: &Recorded) -> String {
    format!("Get{}", camel(&field.field))
}

/// Names as protoc-gen-go makes them of `snake_case`.
fn camel(name: &str) -> String {
    let mut out = String::new();
    let bytes: Vec<char> = name.chars().collect();
    let mut at = 0;
    while at < bytes.len() {
        let c = bytes[at];
        let lower_next = bytes.get(at + 1).is_some_and(char::is_ascii_lowercase);
        match c {
            '_' if at == 0 => out.push('X'),
            '_' if lower_next => {}
            c if c.is_ascii_digit() => out.push(c),
            c => {
                out.push(c.to_ascii_uppercase());
                while bytes.get(at + 1).is_some_and(char::is_ascii_lowercase) {
                    at += 1;
                    out.push(bytes[at]);
                }
            }
        }
        at += 1;
    }
    out
}

fn unexport(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map(|c| c.to_ascii_lowercase()).into_iter().chain(chars).collect()
}

#[cfg(test)]
mod tests {
    use super::camel;

    #[test]
    fn names_are_those_of_go() {
        for (name, go) in
            [("id", "Id"), ("user_name", "UserName"), ("a1_b", "A1B"), ("_x", "XX"), ("a_1", "A_1")]
        {
            assert_eq!(camel(name), go);
        }
    }
}
