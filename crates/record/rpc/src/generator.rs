//! The language's own generator, which is run with the same request.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, Result};
use crate::model::{Edition, File};
use crate::wire::{self, Fields, Value};

/// What a generator made.
#[derive(Clone, Debug, Default)]
pub struct Made {
    /// Files by name.
    pub files: Vec<(String, String)>,
    /// What the generator says that it can do.
    pub abilities: Abilities,
}

/// What a plugin says that it can do; nothing, if it says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Abilities {
    /// Its features by bit, the response's number 2.
    features: u64,
    /// The oldest edition and the newest, numbers 3 and 4.
    editions: (u64, u64),
}

impl Abilities {
    /// The bit of fields that are `optional` in proto3.
    const OPTIONAL: u64 = 1;
    /// The bit of editions.
    const EDITIONS: u64 = 2;

    /// All that there is. What a generator cannot do, this crate says itself, with the place.
    pub fn all() -> Abilities {
        Abilities {
            features: Abilities::OPTIONAL | Abilities::EDITIONS,
            editions: (Edition::OLDEST, Edition::NEWEST),
        }
    }

    /// Takes away what a generator cannot do with any file. Its editions were looked at with its file.
    pub fn limit(&mut self, generator: Abilities) {
        self.features &= generator.features | Abilities::EDITIONS;
    }

    /// Adds them to a response.
    pub fn put(self, out: &mut Vec<u8>) {
        wire::put_number(out, 2, self.features);
        wire::put_number(out, 3, self.editions.0);
        wire::put_number(out, 4, self.editions.1);
    }

    fn has(self, edition: &Edition) -> bool {
        self.features & Abilities::EDITIONS != 0
            && (self.editions.0..=self.editions.1).contains(&edition.number)
    }
}

/// Where a generator is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Generator {
    /// A plugin of protoc.
    Plugin(PathBuf),
    /// `python3 -m grpc_tools.protoc`, which has its plugin built in.
    GrpcTools,
}

impl Generator {
    /// The one that was named, or the first of those that are there.
    pub fn choose(named: Option<&Path>, usual: &[&str], tools: bool) -> Result<Generator> {
        match named {
            Some(name) if tools && name == Path::new("grpc_tools") => {
                return Ok(Generator::GrpcTools);
            }
            Some(path) => return Ok(Generator::Plugin(path.to_owned())),
            None => {}
        }
        let folders: Vec<PathBuf> =
            std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
        let there =
            usual.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
        if let Some(path) = there.into_iter().find(|path| path.is_file()) {
            return Ok(Generator::Plugin(path));
        }
        if tools {
            return Ok(Generator::GrpcTools);
        }
        Err(Error::Generator {
            generator: usual.first().unwrap_or(&"").to_string(),
            problem: "it is not in PATH: install it, or say where it is by generator=PATH"
                .to_owned(),
        })
    }

    /// Makes the stubs of one file of a request.
    pub fn run(&self, request: &[u8], file: &File, parameter: &str) -> Result<Made> {
        let made = match self {
            Generator::Plugin(path) => plugin(path, request, &file.name, parameter),
            Generator::GrpcTools => grpc_tools(request, &file.name),
        };
        let Some(edition) = &file.edition else { return made };
        let refused = |problem: String| Error::Description {
            place: edition.place.clone(),
            problem: format!(
                "{problem}. Use a release of the generator that takes {edition}, or write `syntax = \"proto3\";`"
            ),
        };
        match made {
            Ok(made) if !made.abilities.has(edition) => Err(refused(format!(
                "the file is of {edition}, which {} does not take, as it says",
                self.name()
            ))),
            Err(Error::Generator { generator, problem }) => Err(refused(format!(
                "the file is of {edition}, and {generator} failed on it: {problem}"
            ))),
            made => made,
        }
    }

    fn name(&self) -> String {
        match self {
            Generator::Plugin(path) => path.display().to_string(),
            Generator::GrpcTools => GRPC_TOOLS.to_owned(),
        }
    }
}

/// What is run for `generator=grpc_tools`.
const GRPC_TOOLS: &str = "python3 -m grpc_tools.protoc";

fn failed(generator: impl Into<String>, problem: impl ToString) -> Error {
    Error::Generator { generator: generator.into(), problem: problem.to_string() }
}

/// The request for one file, with other options.
fn narrowed(request: &[u8], file: &str, parameter: &str) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    wire::put_bytes(&mut out, 1, file.as_bytes());
    if !parameter.is_empty() {
        wire::put_bytes(&mut out, 2, parameter.as_bytes());
    }
    for field in Fields::of(request) {
        match field? {
            (1 | 2, _) => {}
            (number, Value::Bytes(bytes)) => wire::put_bytes(&mut out, number, bytes),
            (number, Value::Number(value)) => wire::put_number(&mut out, number, value),
        }
    }
    Ok(out)
}

fn plugin(path: &Path, request: &[u8], file: &str, parameter: &str) -> Result<Made> {
    let name = path.display().to_string();
    let request = narrowed(request, file, parameter)?;
    let mut child = Command::new(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(&name, format!("it could not be started: {error}")))?;
    let mut input = child.stdin.take();
    // A plugin reads everything before it writes anything, but need not; so a thread of its own writes.
    let writer = std::thread::spawn(move || {
        if let Some(input) = input.as_mut() {
            // A plugin that does not read says why itself.
            let _ = input.write_all(&request);
        }
    });
    let output = child.wait_with_output().map_err(|error| failed(&name, error))?;
    drop(writer.join());
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(&name, format!("{}: {}", output.status, said.trim())));
    }
    response(&name, &output.stdout)
}

/// Reads a plugin's response.
pub fn response(name: &str, bytes: &[u8]) -> Result<Made> {
    let mut made = Made::default();
    for field in Fields::of(bytes) {
        match field? {
            (1, error) => return Err(failed(name, error.text())),
            (2, value) => made.abilities.features = value.number(),
            (3, value) => made.abilities.editions.0 = value.number(),
            (4, value) => made.abilities.editions.1 = value.number(),
            (15, file) => {
                let (mut title, mut content) = (String::new(), String::new());
                for part in Fields::of(file.bytes()) {
                    match part? {
                        (1, value) => title = value.text(),
                        (2, _) => return Err(failed(name, "it uses insertion points")),
                        (15, value) => content = value.text(),
                        _ => {}
                    }
                }
                // A file without a name goes on with the one before.
                match made.files.last_mut() {
                    Some((_, before)) if title.is_empty() => before.push_str(&content),
                    _ => made.files.push((title, content)),
                }
            }
            _ => {}
        }
    }
    Ok(made)
}

fn grpc_tools(request: &[u8], file: &str) -> Result<Made> {
    let reported = |error: std::io::Error| failed(GRPC_TOOLS, error);
    let folder = tempfile::tempdir().map_err(reported)?;
    let mut set = Vec::new();
    for field in Fields::of(request) {
        if let (15, file) = field? {
            wire::put_bytes(&mut set, 1, file.bytes());
        }
    }
    let descriptions = folder.path().join("set");
    std::fs::write(&descriptions, set).map_err(reported)?;
    let out = folder.path().join("out");
    std::fs::create_dir(&out).map_err(reported)?;
    let output = Command::new("python3")
        .args(["-m", "grpc_tools.protoc"])
        .arg(format!("--descriptor_set_in={}", descriptions.display()))
        .arg(format!("--grpc_python_out={}", out.display()))
        .arg(file)
        .output()
        .map_err(reported)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.trim().lines().last().unwrap_or("").to_owned();
        let problem = format!("{last}; install grpcio-tools, or grpc_python_plugin into PATH");
        return Err(failed(GRPC_TOOLS, problem));
    }
    // Its own compiler has refused already what it cannot do.
    let mut made = Made { files: Vec::new(), abilities: Abilities::all() };
    read_folder(&out, &out, &mut made.files).map_err(reported)?;
    made.files.sort();
    Ok(made)
}

fn read_folder(
    root: &Path,
    folder: &Path,
    into: &mut Vec<(String, String)>,
) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            read_folder(root, &path, into)?;
            continue;
        }
        let mut text = String::new();
        std::fs::File::open(&path)?.read_to_string(&mut text)?;
        let name = path.strip_prefix(root).unwrap_or(&path);
        into.push((name.to_string_lossy().into_owned(), text));
    }
    Ok(())
}
