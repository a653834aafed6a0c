//! The catalogue is the schema.

use std::collections::BTreeMap;

use fettle_abi::FieldType;
use fettle_kernel_events::Event;

/// Name and fields of an event.
type Declared = BTreeMap<String, Vec<(String, String)>>;

/// The declarations of `kernel.fettle-schema`, read as what they are: one a line.
fn declared(text: &str) -> Declared {
    let lines = text.lines().filter_map(|line| line.strip_prefix("event "));
    let events = lines.map(|line| {
        let (name, fields) = line.trim_end_matches(')').split_once('(').expect("fields");
        let field = |field: &str| {
            let (name, ty) = field.trim().split_once(": ").expect("a type");
            // Earlier recordings may lack it.
            let name = name.strip_prefix("optional ").unwrap_or(name);
            (name.to_owned(), ty.to_owned())
        };
        // Every event has a processor; the schema names it where it matters.
        let fields = fields.split(',').map(field).filter(|(name, _)| name != "cpu");
        (name.to_owned(), fields.collect())
    });
    events.collect()
}

#[test]
fn recordings_have_the_events_that_the_schema_declares() {
    let path =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../analyse/requests/schemas/kernel.fettle-schema");
    let schema = declared(&std::fs::read_to_string(path).unwrap());
    let owned = |(name, ty): &(&str, FieldType)| ((*name).to_owned(), ty.name().to_owned());
    let ours: Declared = Event::ALL
        .iter()
        .map(|event| (event.name().to_owned(), event.fields().iter().map(owned).collect()))
        .collect();
    assert_eq!(ours.len(), Event::ALL.len());
    for (name, fields) in &schema {
        // Proxy attribution is found when a trace is read.
        let is_recorded = |(field, _): &&(String, String)| {
            !(["sent", "received", "ask", "answer"].contains(&&**name)
                && ["behalf", "likely", "candidates", "home"].contains(&&**field))
        };
        let recorded = fields.iter().filter(is_recorded).cloned().collect();
        assert_eq!(ours.get(name), Some(&recorded), "{name}");
    }
    assert_eq!(ours.len(), schema.len());
}
