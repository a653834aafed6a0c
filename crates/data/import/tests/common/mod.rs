//! Importing files, and looking at what came of it.
#![allow(dead_code)] // Not every test needs all of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fettle_import::{Import, Imported, Result, import};
use fettle_trace::Trace;

/// A file of real output.
pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// A trace that was made.
pub struct Made {
    pub imported: Imported,
    pub trace: Trace,
    _folder: tempfile::TempDir,
}

/// Imports files.
pub fn made(inputs: &[PathBuf]) -> Result<Made> {
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("t.fettle");
    let wanted = Import {
        inputs: inputs.to_vec(),
        output: output.clone(),
        format: None,
        without_ids: false,
    };
    let imported = import(&wanted, &|| false)?;
    let trace = Trace::open(&output)?;
    Ok(Made { imported, trace, _folder: folder })
}

/// Imports a text.
pub fn made_of(text: &[u8]) -> Result<Made> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("input");
    std::fs::write(&path, text).expect("written");
    made(&[path])
}

impl Made {
    /// Events by kind.
    pub fn rows(&self) -> BTreeMap<String, u64> {
        let kinds = &self.imported.manifest.events.kinds;
        kinds.iter().map(|kind| (kind.name.clone(), kind.rows)).collect()
    }

    /// Events of a kind, each as its fields' values; texts as they are.
    pub fn events(&self, wanted: &str) -> Vec<Vec<String>> {
        let mut texts: Vec<String> = Vec::new();
        let mut types = Vec::new();
        let (mut stream, damaged) = self
            .trace
            .events(&mut |kind| {
                (kind.name == wanted).then(|| {
                    types = kind.fields.iter().map(|field| field.ty).collect();
                    (0..kind.fields.len()).collect()
                })
            })
            .expect("events");
        assert!(damaged.is_empty());
        let mut found = Vec::new();
        loop {
            let mut code = |text: &str| {
                let known = texts.iter().position(|known| known == text);
                known.unwrap_or_else(|| {
                    texts.push(text.to_owned());
                    texts.len() - 1
                }) as u32
            };
            let Some(run) = stream.next(u64::MAX, &mut code).expect("a run") else { break };
            for row in 0..run.times_ns().len() {
                let value = |n: usize| match types[n] {
                    fettle_trace::FieldType::Text => texts[run.values(n)[row] as usize].clone(),
                    fettle_trace::FieldType::I32 | fettle_trace::FieldType::I64 => {
                        (run.values(n)[row] as i64).to_string()
                    }
                    _ => run.values(n)[row].to_string(),
                };
                found.push((0..types.len()).map(value).collect());
            }
        }
        found
    }
}
