//! Unmatched patterns: what the user has asked for by patterns, until something matches it. What nothing
//! has matched at the end is reported.

use std::path::Path;

use fettle_image::Image;
use fettle_rewrite::Plan;

use crate::select::{Names, Pattern, Selection, names_file};

/// Patterns that nothing has matched so far.
#[derive(Clone, Debug, Default)]
pub struct Unmatched {
    libraries: Vec<String>,
    /// Each with the option that it was given by.
    functions: Vec<(&'static str, Pattern)>,
    /// Whether any file's functions are known.
    files: bool,
}

impl Unmatched {
    /// Patterns for libraries, and for functions.
    pub fn new(libraries: &[String], Selection { only, skip, .. }: &Selection) -> Unmatched {
        let only = only.iter().map(|pattern| ("--only", pattern.clone()));
        let skip = skip.iter().map(|pattern| ("--skip", pattern.clone()));
        Unmatched {
            libraries: libraries.to_vec(),
            functions: only.chain(skip).collect(),
            files: false,
        }
    }

    /// A library is there.
    pub fn meets_library(&mut self, path: &Path) {
        self.libraries.retain(|pattern| !names_file(pattern, path));
    }

    /// Functions of a file are there, probed or not.
    pub fn meets_functions(&mut self, image: &Image, plan: &Plan) {
        self.files = true;
        let probed = plan.functions.iter().map(|f| (f.entry, &f.name));
        let all = probed.chain(plan.skipped.iter().map(|f| (f.entry, &f.name)));
        for (entry, name) in all {
            if self.functions.is_empty() {
                break;
            }
            let names = Names::of(image, entry, name.as_deref());
            self.functions.retain(|(_, pattern)| !names.match_pattern(pattern));
        }
    }

    /// What to report in the end. Where no file was recorded, the reason was reported already.
    pub fn notes(self) -> Vec<String> {
        let libraries = self.libraries.iter();
        let libraries =
            libraries.map(|p| format!("--lib '{p}' matches no library that was loaded"));
        let functions = self.functions.iter().filter(|_| self.files).map(|(option, pattern)| {
            format!("{option} '{pattern}' matches no function of the files that were recorded")
        });
        libraries.chain(functions).collect()
    }
}
