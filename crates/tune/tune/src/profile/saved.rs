//! A profile as it stands in its file.

use std::io::Read;
use std::path::Path;

use fettle_image::LinkAddr;
use fettle_place::Target;
use serde::{Deserialize, Serialize};

/// Larger counts are cut off: sums of them must fit.
const LARGEST: u64 = 1 << 40;
/// Longer files are none that [`Saved::write`] made.
const LONGEST: u64 = 1 << 30;

/// A profile as it is saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// The format: 1.
    pub version: u32,
    /// The counts of each module.
    pub modules: Vec<SavedModule>,
}

/// The counts of a module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedModule {
    /// Its file, as the process called it.
    pub path: String,
    /// Its build id in hexadecimal digits; without one, a hash of its code.
    pub build: String,
    /// The functions that ran.
    pub functions: Vec<SavedFunction>,
}

/// The counts of a function. Addresses are the file's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedFunction {
    /// Where it starts.
    pub entry: u64,
    /// Its name, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A hash of its bytes.
    pub bytes: u64,
    /// A hash of its instructions, wherever they lie. Profiles of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<u64>,
    /// Its pieces of code: start and end of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pieces: Vec<(u64, u64)>,
    /// Blocks: where they start, and how often they ran.
    pub blocks: Vec<(u64, u64)>,
    /// Edges between blocks: from, to, how often.
    pub edges: Vec<(u64, u64, u64)>,
    /// Targets of indirect calls. Profiles of older versions have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<SavedTarget>,
    /// It was not counted, but inferred from samples.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

/// A target of an indirect call. Addresses are the files'.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SavedTarget {
    /// The instruction.
    pub call: u64,
    /// The build of the function's module, if that is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// The function's entry, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    /// How often at least.
    pub count: u64,
}

impl SavedTarget {
    pub(super) fn of(call: LinkAddr, target: &Target, count: u64) -> SavedTarget {
        let (build, to) = match target {
            Target::Here(to) => (None, Some(to.0)),
            Target::Module(build, to) => (Some(build.to_string()), Some(to.0)),
            Target::Unknown => (None, None),
        };
        SavedTarget { call: call.0, build, to, count }
    }

    pub(super) fn target(&self) -> Target {
        match (&self.build, self.to) {
            (None, Some(to)) => Target::Here(LinkAddr(to)),
            (Some(build), Some(to)) => Target::Module(build.as_str().into(), LinkAddr(to)),
            (_, None) => Target::Unknown,
        }
    }
}

impl Saved {
    /// Writes it to a file.
    ///
    /// # Errors
    ///
    /// As text, when the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        let text = serde_json::to_string(self).map_err(|error| error.to_string())?;
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Reads one.
    ///
    /// # Errors
    ///
    /// As text, when the file cannot be read or is something else.
    pub fn read(path: &Path) -> Result<Saved, String> {
        let failed = |what: String| format!("{}: {what}", path.display());
        let mut bytes = Vec::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(LONGEST).read_to_end(&mut bytes))
            .map_err(|error| failed(error.to_string()))?;
        Saved::parse(&bytes).map_err(failed)
    }

    /// Reads one from bytes.
    ///
    /// # Errors
    ///
    /// As text, when they are something else.
    pub fn parse(bytes: &[u8]) -> Result<Saved, String> {
        let saved: Saved = serde_json::from_slice(bytes).map_err(|error| {
            format!("it is no whole profile ({error}); `fettle tune --save` writes them")
        })?;
        match saved.version {
            1 => Ok(saved),
            version => {
                Err(format!("it is a profile of version {version}, which is not known here"))
            }
        }
    }
}

/// A count that fits.
pub(super) fn cut(count: u64) -> u64 {
    count.min(LARGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_profile_is_refused() {
        for text in ["", "{}", "[1]", r#"{"version": 1}"#, r#"{"version": 1, "modules": [3]}"#] {
            let why = Saved::parse(text.as_bytes()).unwrap_err();
            assert!(why.contains("no whole profile"), "{text}: {why}");
        }
        // A profile of a version without targets.
        let old = br#"{"version": 1, "modules": [{"path": "/a", "build": "b", "functions":
            [{"entry": 1, "bytes": 2, "blocks": [[1, 3]], "edges": []}]}]}"#;
        assert!(Saved::parse(old).unwrap().modules[0].functions[0].targets.is_empty());
        let why = Saved::parse(br#"{"version": 7, "modules": []}"#).unwrap_err();
        assert!(why.contains("version 7"), "{why}");
        assert!(Saved::parse(br#"{"version": 1, "modules": []}"#).unwrap().modules.is_empty());
    }
}
