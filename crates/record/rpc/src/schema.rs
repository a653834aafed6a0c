//! The schema that is generated beside the stubs, so that none has to be written.

use std::fmt::Write;

use crate::model::File;

/// What every schema of calls says: events of calls, and how they make requests.
const CALLS: &str = "\
event rpc_begin(trace: text, span: text, parent: text, side: text, method: text, optional candidates: i64, optional likely: i64)
event rpc_end(trace: text, span: text, side: text, method: text, status: text, ended: text)

timeline trace(trace: text)
timeline call(trace: text, span: text)
# The call that no other call made: no others begin when it is over.
timeline root(trace: text, span: text)

on rpc_begin where parent == \"\" {
  start trace(trace) after nothing
  start root(trace, span)
  start call(trace, span)
  choice likely among candidates
  seed method
}
on rpc_begin {
  start trace(trace) after nothing
  start call(trace, span)
  choice likely among candidates
  seed method
}
on rpc_end {
  stop call(trace, span)
  stop trace(trace) if root(trace, span)
  stop root(trace, span)
}
";

/// The name of the event with a method's fields.
pub fn fields_event(service: &str, method: &str) -> String {
    let name: String = format!("{service}_{method}")
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    name.chars().take(64).collect()
}

/// The schema of a file's services.
pub fn schema(file: &File) -> String {
    let mut text = format!(
        "# Calls of the services in {}, as protoc-gen-fettle's stubs report them: a request is a call from\n\
         # outside with all calls that are made for it, until it is over.\n{CALLS}",
        file.name
    );
    let methods = file
        .services
        .iter()
        .flat_map(|service| service.methods.iter().map(move |method| (service, method)));
    for (service, method) in methods.filter(|(_, method)| method.recorded().next().is_some()) {
        let name = fields_event(&service.full_name, &method.name);
        // Writing to a text cannot fail.
        let _ =
            write!(text, "\n# Fields of {}/{} that are marked.\n", service.full_name, method.name);
        let _ = write!(text, "event {name}(trace: text, span: text");
        for field in method.recorded() {
            let _ = write!(text, ", {}: {}", field.name, field.what.schema_type());
        }
        let _ = writeln!(text, ")\non {name} {{ basic call(trace, span) }}");
    }
    text
}
