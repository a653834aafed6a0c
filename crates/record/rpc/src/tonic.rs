//! Stubs of tonic, which are made by a build script: this weaves what `tonic-prost-build` has written.
//!
//! ```no_run
//! let out = std::path::PathBuf::from(std::env::var("OUT_DIR").unwrap());
//! let descriptions = out.join("services.bin");
//! // tonic_prost_build::configure()
//! //     .file_descriptor_set_path(&descriptions)
//! //     .compile_protos(&["shop.proto"], &["."])?;
//! fettle_rpc::tonic::weave(&descriptions, &["shop.proto"], &out, "mode=performance").unwrap();
//! ```
//!
//! The program needs the crate `fettle-tonic` (`runtime/rpc/rust`) besides.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{Error, Result};
use crate::model::File;
use crate::request::Request;
use crate::weave::{self, Job, Text};
use crate::wire::Fields;
use crate::{Hooks, Options, names, request, schema};

/// Weaves the stubs of `protos`, as their descriptions name them, in `out`, and writes their names files and
/// schemas there. `options` are those of protoc-gen-fettle without `lang`.
///
/// # Errors
///
/// What cannot be read or written, options and descriptions that are wrong, and stubs that are not as they should
/// be.
pub fn weave(descriptions: &Path, protos: &[&str], out: &Path, options: &str) -> Result<()> {
    let reported = |path: &Path, error: std::io::Error| Error::Generator {
        generator: path.display().to_string(),
        problem: error.to_string(),
    };
    let options = Options::read(&format!("lang=rust,{options}"))?;
    let hooks = match &options.hooks {
        None => Hooks::default(),
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| reported(path, error))?;
            Hooks::read(&path.display().to_string(), &text, "rust")?
        }
    };
    let set = std::fs::read(descriptions).map_err(|error| reported(descriptions, error))?;
    let mut asked = Request {
        wanted: protos.iter().map(|name| (*name).to_owned()).collect(),
        ..Request::default()
    };
    for file in Fields::of(&set) {
        if let (1, file) = file? {
            asked.files.push(file.bytes());
        }
    }
    let files = request::model(&asked)?;
    let write = |path: &Path, text: String| {
        std::fs::write(path, text).map_err(|error| reported(path, error))
    };
    // prost writes a file for each package.
    let mut packages: BTreeMap<&str, File> = BTreeMap::new();
    for file in files.iter().filter(|file| !file.services.is_empty()) {
        let stem = file.name.rsplit('/').next().unwrap_or(&file.name);
        let stem = stem.strip_suffix(".proto").unwrap_or(stem);
        write(&out.join(format!("{stem}.fettle-calls")), names::names(file))?;
        write(&out.join(format!("{stem}.fettle-schema")), schema::schema(file))?;
        let package = packages.entry(&file.package).or_default();
        package.services.extend(file.services.iter().cloned());
    }
    for (package, file) in &packages {
        let name = format!("{}.rs", if package.is_empty() { "_" } else { package });
        let path = out.join(&name);
        let text = std::fs::read_to_string(&path).map_err(|error| reported(&path, error))?;
        let mut text = Text {
            generator: weave::rust::GENERATOR,
            comments: weave::rust::COMMENTS,
            file: name,
            text,
        };
        let job = Job { file, mode: options.mode, id: options.id, hooks: &hooks };
        weave::rust::weave(&mut text, &job).map_err(|error| file.located(error))?;
        write(&path, text.text)?;
    }
    Ok(())
}
