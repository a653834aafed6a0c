//! `protoc-gen-fettle`: stubs of gRPC services that report their calls to a sensor.
//!
//! ```text
//! CodeGeneratorRequest ── request ──> model ──┬── schema, names ── files beside the stubs
//!                            │                v
//!                            └─ generator ─> weave ── the language's own stubs, with events in them
//! ```
//!
//! gRPC's generated files have no insertion points. So the plugin runs the language's own generator and puts
//! calls of `runtime/rpc` into its text, at places that it knows. What it does not know it refuses, with file
//! and line. A program that uses the stubs is compiled unchanged.
//!
//! `docs/internals/rpc.md` has the hooks and how each language's calls end.
#![forbid(unsafe_code)]

mod error;
mod generator;
mod hooks;
mod model;
mod names;
mod options;
mod request;
mod schema;
pub mod tonic;
mod weave;
mod wire;

use std::path::Path;

pub use error::{Error, Place, Result};
pub use hooks::Hooks;
pub use model::{Edition, File, Method, Recorded, Service, What};
pub use options::{Id, Language, Mode, Options};
pub use request::{OPTION, Request, model, read};

use generator::{Abilities, Generator, Made};
use weave::{Job, Text};

/// Answers the compiler's request. What goes wrong is in the response, as the protocol wants it.
pub fn respond(request: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match made(request) {
        Ok(made) => {
            made.abilities.put(&mut out);
            for (name, content) in made.files {
                let mut file = Vec::new();
                wire::put_bytes(&mut file, 1, name.as_bytes());
                wire::put_bytes(&mut file, 15, content.as_bytes());
                wire::put_bytes(&mut out, 15, &file);
            }
        }
        Err(error) => {
            // Else a compiler would say, in place of the error, that a file's edition is not supported.
            Abilities::all().put(&mut out);
            wire::put_bytes(&mut out, 1, error.to_string().as_bytes());
        }
    }
    out
}

fn made(bytes: &[u8]) -> Result<Made> {
    let request = read(bytes)?;
    let options = Options::read(&request.parameter)?;
    let files = model(&request)?;
    let hooks = hooks_of(&options)?;
    let generator = generator_of(&options)?;
    let mut all = Made { files: Vec::new(), abilities: Abilities::all() };
    for file in files.iter().filter(|file| !file.services.is_empty()) {
        let made = generator.run(bytes, file, &options.others.join(","))?;
        let job = Job { file, mode: options.mode, id: options.id, hooks: &hooks };
        let folder = made.files.first().map(|(name, _)| folder_of(name)).unwrap_or_default();
        all.abilities.limit(made.abilities);
        for (name, content) in made.files {
            let content = woven(options.language, &name, content, &job)?;
            all.files.push((name, content));
        }
        let stem = file.name.strip_suffix(".proto").unwrap_or(&file.name);
        let stem = format!("{folder}{}", stem.rsplit('/').next().unwrap_or(stem));
        all.files.push((format!("{stem}.fettle-calls"), names::names(file)));
        all.files.push((format!("{stem}.fettle-schema"), schema::schema(file)));
    }
    Ok(all)
}

/// The folder that a generated file is in, with a slash at its end.
fn folder_of(name: &str) -> String {
    name.rfind('/').map(|at| name[..=at].to_owned()).unwrap_or_default()
}

fn hooks_of(options: &Options) -> Result<Hooks> {
    let Some(path) = &options.hooks else { return Ok(Hooks::default()) };
    let text = std::fs::read_to_string(path).map_err(|error| Error::Option {
        option: format!("hooks={}", path.display()),
        problem: error.to_string(),
    })?;
    Hooks::read(&path.display().to_string(), &text, options.language.name())
}

fn generator_of(options: &Options) -> Result<Generator> {
    let named = options.generator.as_deref().map(Path::new);
    match options.language {
        Language::Go => Generator::choose(named, &[weave::go::GENERATOR], false),
        Language::Python => Generator::choose(named, &[weave::python::GENERATOR], true),
        Language::Cpp => Generator::choose(named, &[weave::cpp::GENERATOR], false),
        Language::Java => Generator::choose(named, &[weave::java::GENERATOR], false),
        Language::Rust => Err(Error::Option {
            option: "lang=rust".to_owned(),
            problem: "tonic's stubs are made by build.rs: call fettle_rpc::tonic::weave there"
                .to_owned(),
        }),
    }
}

fn woven(language: Language, name: &str, content: String, job: &Job<'_>) -> Result<String> {
    let (generator, comments, weave): (_, _, fn(&mut Text, &Job<'_>) -> Result<()>) = match language
    {
        Language::Go => (weave::go::GENERATOR, weave::go::COMMENTS, weave::go::weave),
        Language::Python => {
            (weave::python::GENERATOR, weave::python::COMMENTS, weave::python::weave)
        }
        Language::Cpp => (weave::cpp::GENERATOR, weave::cpp::COMMENTS, weave::cpp::weave),
        Language::Java => (weave::java::GENERATOR, weave::java::COMMENTS, weave::java::weave),
        Language::Rust => (weave::rust::GENERATOR, weave::rust::COMMENTS, weave::rust::weave),
    };
    let mut text = Text { generator, comments, file: name.to_owned(), text: content };
    weave(&mut text, job).map_err(|error| job.file.located(error))?;
    Ok(text.text)
}

/// Reads a request as the plugin would and forgets it: for fuzzing.
pub fn read_request(bytes: &[u8]) {
    if let Ok(request) = read(bytes)
        && let Ok(files) = model(&request)
    {
        for file in &files {
            drop((names::names(file), schema::schema(file)));
        }
    }
    drop(generator::response("fuzz", bytes));
    drop(Options::read(&String::from_utf8_lossy(bytes)));
}
