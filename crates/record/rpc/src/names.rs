//! The names file: which service, method and field the numbers in events mean.
//!
//! `fettle import` reads it beside the events (`crates/data/import/src/calls`).

use serde_json::{Value, json};

use crate::model::File;

/// Version of the format.
pub const VERSION: u32 = 1;

/// The names of a file's services.
pub fn names(file: &File) -> String {
    let services: Vec<Value> = file
        .services
        .iter()
        .map(|service| {
            let methods = service.methods.iter().map(|method| {
                let fields = method.recorded().map(|field| {
                    json!({ "name": field.name, "type": field.what.name(), "word": field.word })
                });
                json!({
                    "name": method.name,
                    "client_streams": method.client_streams,
                    "server_streams": method.server_streams,
                    "fields": fields.collect::<Vec<_>>(),
                })
            });
            json!({
                "name": service.full_name,
                "number": service.number(),
                "methods": methods.collect::<Vec<_>>(),
            })
        })
        .collect();
    let all = json!({ "fettle_calls": VERSION, "source": file.name, "services": services });
    format!("{all:#}\n")
}
