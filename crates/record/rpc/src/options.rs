//! What stands behind `--fettle_opt=`.

use std::path::PathBuf;

use crate::error::{Error, Result};

/// The language of the stubs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Go, by protoc-gen-go-grpc.
    Go,
    /// Python, by grpc_python_plugin or grpcio-tools.
    Python,
    /// C++, by grpc_cpp_plugin.
    Cpp,
    /// Java, by protoc-gen-grpc-java.
    Java,
    /// Rust, by tonic-prost-build in a build script ([`crate::tonic`]).
    Rust,
}

impl Language {
    /// Its name in options and files of hooks.
    pub fn name(self) -> &'static str {
        match self {
            Language::Go => "go",
            Language::Python => "python",
            Language::Cpp => "cpp",
            Language::Java => "java",
            Language::Rust => "rust",
        }
    }
}

/// What stubs record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// One event for each call.
    #[default]
    Performance,
    /// An event for each hook besides.
    Cflow,
    /// For each method a histogram of durations, and a count of calls that failed.
    Scalar,
}

impl Mode {
    /// Its name, which is also that of its constants in the languages' libraries.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Performance => "performance",
            Mode::Cflow => "cflow",
            Mode::Scalar => "scalar",
        }
    }
}

/// How a call's server knows which call it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Id {
    /// Nothing is added to what is sent. An id that comes in with a call is taken over all the same.
    #[default]
    None,
    /// The header `traceparent` of the W3C is sent with each call.
    Traceparent,
}

impl Id {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Id::None => "none",
            Id::Traceparent => "traceparent",
        }
    }
}

/// All options.
#[derive(Clone, Debug)]
pub struct Options {
    /// `lang=`.
    pub language: Language,
    /// `mode=`.
    pub mode: Mode,
    /// `id=`.
    pub id: Id,
    /// `hooks=`: a file with code of one's own.
    pub hooks: Option<PathBuf>,
    /// `generator=`: the language's own plugin, if it is not to be found by its usual name.
    pub generator: Option<PathBuf>,
    /// All others: they are the language's own.
    pub others: Vec<String>,
}

impl Options {
    /// Reads what the compiler passes on.
    pub fn read(parameter: &str) -> Result<Options> {
        let bad = |option: &str, problem: String| {
            Err(Error::Option { option: option.to_owned(), problem })
        };
        let mut language = None;
        let mut options = Options {
            language: Language::Go,
            mode: Mode::default(),
            id: Id::default(),
            hooks: None,
            generator: None,
            others: Vec::new(),
        };
        for option in parameter.split(',').map(str::trim).filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let known = |choices: &str| format!("there is no {value:?}; choose from {choices}");
            match name {
                "lang" => {
                    language = Some(match value {
                        "go" => Language::Go,
                        "python" => Language::Python,
                        "cpp" | "c++" => Language::Cpp,
                        "java" => Language::Java,
                        "rust" => Language::Rust,
                        _ => return bad(option, known("go, python, cpp, java")),
                    });
                }
                "mode" => {
                    options.mode = match value {
                        "performance" => Mode::Performance,
                        "cflow" => Mode::Cflow,
                        "scalar" => Mode::Scalar,
                        _ => return bad(option, known("performance, cflow, scalar")),
                    };
                }
                "id" => {
                    options.id = match value {
                        "none" => Id::None,
                        "traceparent" => Id::Traceparent,
                        _ => return bad(option, known("none, traceparent")),
                    };
                }
                "hooks" if !value.is_empty() => options.hooks = Some(value.into()),
                "generator" if !value.is_empty() => options.generator = Some(value.into()),
                "hooks" | "generator" => return bad(option, "it needs a file".to_owned()),
                _ => options.others.push(option.to_owned()),
            }
        }
        let Some(language) = language else {
            let problem = "it is missing; choose from go, python, cpp, java".to_owned();
            return bad("lang", problem);
        };
        options.language = language;
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_others_passed_on() {
        let options = Options::read("lang=go,mode=cflow, id=traceparent,paths=source_relative,");
        let options = options.unwrap();
        assert_eq!((options.language, options.mode), (Language::Go, Mode::Cflow));
        assert_eq!(
            (options.id, &options.others[..]),
            (Id::Traceparent, &["paths=source_relative".to_owned()][..])
        );
    }

    #[test]
    fn wrong_options_are_named() {
        let message = |text: &str| Options::read(text).unwrap_err().to_string();
        assert!(message("").contains("choose from go, python, cpp, java"));
        assert!(message("lang=go,mode=fast").contains("mode=fast"));
        assert!(message("lang=go,hooks=").contains("needs a file"));
    }
}
