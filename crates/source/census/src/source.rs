//! Where files come from: a folder, or a revision of a Git repository.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::file::census;
use crate::kinds::Kinds;
use crate::lines::{Builds, compare};
use crate::names::Names;
use crate::site::FileCensus;
use crate::token::Language;

/// Larger files are no source code. They are listed as skipped.
const LARGEST: u64 = 64 << 20;
/// How many of Git's blobs are in memory at once.
const BLOBS_AT_ONCE: usize = 512;

/// How to read.
#[derive(Debug, Default)]
pub struct Options {
    /// What counts.
    pub kinds: Kinds,
    /// What is known of the preprocessor's names.
    pub names: Names,
    /// Names to compare builds with and without.
    pub builds: Vec<String>,
    /// Which files, by path in the source. All, if there is no pattern.
    pub only: Vec<Pattern>,
    /// Which files not.
    pub except: Vec<Pattern>,
}

/// A folder, file, or path with `*` for anything but `/`.
#[derive(Debug, Clone)]
pub struct Pattern(String);

impl Pattern {
    /// A pattern from its text.
    pub fn new(text: &str) -> Pattern {
        let text = text.strip_prefix("./").unwrap_or(text);
        Pattern(text.trim_end_matches('/').into())
    }

    /// Whether a path is of it.
    pub fn matches(&self, path: &str) -> bool {
        if self.0.contains('*') {
            return glob(self.0.as_bytes(), path.as_bytes());
        }
        path.strip_prefix(&self.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

fn glob(pattern: &[u8], path: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to go on if what comes does not fit: behind the last star, and how much it stood for.
    let mut again: Option<(usize, usize)> = None;
    while t < path.len() {
        match pattern.get(p) {
            Some(b'*') => {
                again = Some((p + 1, t));
                p += 1;
            }
            Some(byte) if Some(byte) == path.get(t) => {
                p += 1;
                t += 1;
            }
            _ => match again {
                Some((behind, stood)) if path.get(stood) != Some(&b'/') => {
                    again = Some((behind, stood + 1));
                    (p, t) = (behind, stood + 1);
                }
                _ => return false,
            },
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(|&byte| byte == b'*')
}

/// What is known of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Its operations.
    pub census: FileCensus,
    /// Its builds with and without the names that were asked for.
    pub builds: Option<Builds>,
}

/// The census of a source.
#[derive(Debug, Default)]
pub struct Tree {
    /// What was asked for.
    pub name: String,
    /// Files by path.
    pub files: BTreeMap<String, Arc<Counted>>,
    /// Files that were not read, and why.
    pub skipped: Vec<(String, String)>,
}

/// Reads sources. The same contents are read once, in however many revisions they are.
#[derive(Debug)]
pub struct Reader {
    options: Options,
    repository: PathBuf,
    without: Names,
    with: Names,
    blobs: FxHashMap<(String, Language), Arc<Counted>>,
}

impl Reader {
    /// A reader of folders, and of revisions of the repository that holds this folder.
    pub fn new(options: Options, repository: &Path) -> Reader {
        let (mut without, mut with) = (options.names.clone(), options.names.clone());
        for name in &options.builds {
            without.undefine(name.split('=').next().unwrap_or(name));
            with.define(name);
        }
        Reader {
            options,
            repository: repository.into(),
            without,
            with,
            blobs: FxHashMap::default(),
        }
    }

    /// What counts.
    pub fn kinds(&self) -> &Kinds {
        &self.options.kinds
    }

    /// How many different contents of revisions were read.
    pub fn blobs(&self) -> usize {
        self.blobs.len()
    }

    /// What `A..B` stands for, oldest first; another name for itself.
    pub fn expand(&self, name: &str) -> Result<Vec<String>> {
        if !name.contains("..") || Path::new(name).is_dir() {
            return Ok(vec![name.into()]);
        }
        let list =
            ["rev-list", "--reverse", "--first-parent", "--abbrev-commit", "--end-of-options"];
        let out =
            self.git(&[&list[..], &[name]].concat()).map_err(|error| self.missing(name, error))?;
        let text = String::from_utf8_lossy(&out).into_owned();
        Ok(text.lines().map(Into::into).collect())
    }

    /// Takes the census of a folder or revision.
    pub fn read(&mut self, name: &str) -> Result<Tree> {
        let path = Path::new(name);
        let mut tree = match path.is_dir() {
            true => self.folder(path)?,
            false => self.revision(name)?,
        };
        tree.name = name.into();
        tree.skipped.sort();
        Ok(tree)
    }

    fn count(&self, text: &[u8], language: Language) -> Counted {
        let options = &self.options;
        Counted {
            census: census(text, language, &options.kinds, &options.names),
            builds: (!options.builds.is_empty() && language != Language::Rust)
                .then(|| compare(text, language, &self.without, &self.with)),
        }
    }

    fn wanted(&self, path: &str) -> Option<Language> {
        let options = &self.options;
        let language = Language::of(path)?;
        options.kinds.of(language)?;
        let of = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(path));
        let only = options.only.is_empty() || of(&options.only);
        (only && !of(&options.except)).then_some(language)
    }

    fn folder(&self, root: &Path) -> Result<Tree> {
        let mut tree = Tree::default();
        let mut files = Vec::new();
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            let path = root.join(&folder);
            let read = |error| Error::Read { path: path.clone(), error };
            for entry in std::fs::read_dir(&path).map_err(read)? {
                let entry = entry.map_err(read)?;
                let inside = folder.join(entry.file_name());
                let kind = entry.file_type().map_err(read)?;
                if kind.is_dir() && entry.file_name() != ".git" {
                    folders.push(inside);
                } else if kind.is_file() {
                    let name = inside.to_string_lossy().into_owned();
                    if let Some(language) = self.wanted(&name) {
                        files.push((name, inside, language));
                    }
                }
            }
        }
        let counted: Vec<_> = files
            .into_par_iter()
            .map(|(name, inside, language)| {
                let path = root.join(inside);
                let size = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
                let result = match size > LARGEST {
                    true => Err(format!("{size} bytes are no source code")),
                    false => std::fs::read(&path).map_err(|error| error.to_string()),
                };
                (name, result.map(|text| Arc::new(self.count(&text, language))))
            })
            .collect();
        for (name, result) in counted {
            match result {
                Ok(counted) => drop(tree.files.insert(name, counted)),
                Err(why) => tree.skipped.push((name, why)),
            }
        }
        Ok(tree)
    }

    fn revision(&mut self, name: &str) -> Result<Tree> {
        let commit = format!("{name}^{{commit}}");
        let verify = ["rev-parse", "--verify", "--quiet", "--end-of-options", &commit];
        let commit = self.git(&verify).map_err(|error| self.missing(name, error))?;
        let commit = String::from_utf8_lossy(&commit).trim().to_owned();
        let list = self.git(&["ls-tree", "-r", "-z", "-l", "--full-tree", &commit])?;
        let mut tree = Tree::default();
        let mut found = Vec::new();
        let mut missing = Vec::new();
        for entry in list.split(|&byte| byte == 0) {
            let entry = String::from_utf8_lossy(entry);
            let Some((about, path)) = entry.split_once('\t') else { continue };
            let about: Vec<&str> = about.split_whitespace().collect();
            let [mode, "blob", id, size] = about[..] else { continue };
            let Some(language) = self.wanted(path).filter(|_| mode.starts_with("100")) else {
                continue;
            };
            if size.parse().is_ok_and(|size: u64| size > LARGEST) {
                tree.skipped.push((path.into(), format!("{size} bytes are no source code")));
                continue;
            }
            let key = (id.to_owned(), language);
            if !self.blobs.contains_key(&key) {
                missing.push(key.clone());
            }
            found.push((path.to_owned(), key));
        }
        missing.sort();
        missing.dedup();
        if !missing.is_empty() {
            self.read_blobs(&missing)?;
        }
        for (path, key) in found {
            match self.blobs.get(&key) {
                Some(counted) => drop(tree.files.insert(path, Arc::clone(counted))),
                None => tree.skipped.push((path, "the repository does not have it".into())),
            }
        }
        Ok(tree)
    }

    fn read_blobs(&mut self, keys: &[(String, Language)]) -> Result<()> {
        let failed = |what: String| Error::Git { command: "cat-file".into(), what };
        let mut child = Command::new("git")
            .arg("-C")
            .arg(&self.repository)
            .args(["cat-file", "--batch"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (Some(mut stdin), Some(stdout)) = (stdin, stdout) else {
            return Err(failed("its pipes are gone".into()));
        };
        let wanted: String = keys.iter().map(|(id, _)| format!("{id}\n")).collect();
        // From a thread: Git writes while it is still being asked.
        let asking = std::thread::spawn(move || drop(stdin.write_all(wanted.as_bytes())));
        let mut stdout = BufReader::with_capacity(1 << 20, stdout);
        let outcome = keys.chunks(BLOBS_AT_ONCE).try_for_each(|keys| {
            let mut texts = Vec::with_capacity(keys.len());
            for key in keys {
                if let Some(text) =
                    next_blob(&mut stdout).map_err(|error| failed(error.to_string()))?
                {
                    texts.push((key, text));
                }
            }
            let counted: Vec<_> = texts
                .par_iter()
                .map(|(key, text)| ((*key).clone(), Arc::new(self.count(text, key.1))))
                .collect();
            self.blobs.extend(counted);
            Ok(())
        });
        drop(stdout);
        // Both end by themselves when their pipe is closed.
        let _ = asking.join();
        let _ = child.wait();
        outcome
    }

    fn git(&self, arguments: &[&str]) -> Result<Vec<u8>> {
        let command = arguments.first().copied().unwrap_or_default().to_owned();
        let out = Command::new("git").arg("-C").arg(&self.repository).args(arguments).output();
        let out = out.map_err(|error| Error::Git {
            command: command.clone(),
            what: format!("cannot start it: {error}"),
        })?;
        if !out.status.success() {
            let what = String::from_utf8_lossy(&out.stderr).trim().to_owned();
            let what = if what.is_empty() { "no such revision".into() } else { what };
            return Err(Error::Git { command, what });
        }
        Ok(out.stdout)
    }

    fn missing(&self, name: &str, error: Error) -> Error {
        let what = match error {
            Error::Git { what, .. } => what,
            other => other.to_string(),
        };
        let repository = self.repository.clone();
        Error::NoSource { name: name.into(), repository, what }
    }
}

/// The next contents that Git writes, or nothing if it has none under that name.
fn next_blob(from: &mut impl BufRead) -> std::io::Result<Option<Vec<u8>>> {
    let mut head = String::new();
    from.read_line(&mut head)?;
    let Some(size) = head.trim_end().rsplit(' ').next().and_then(|size| size.parse::<u64>().ok())
    else {
        return match head.is_empty() {
            true => Err(std::io::ErrorKind::UnexpectedEof.into()),
            false => Ok(None),
        };
    };
    let mut text = Vec::new();
    from.take(size + 1).read_to_end(&mut text)?;
    if text.len() as u64 != size + 1 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    text.pop();
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_folders_or_have_stars() {
        for (pattern, path, matches) in [
            ("kernel", "kernel/sched/core.c", true),
            ("kernel/", "kernel/a.c", true),
            ("kernel", "kernel2/a.c", false),
            ("fs/*.c", "fs/open.c", true),
            ("fs/*.c", "fs/ext2/super.c", false),
            ("fs/*/*.c", "fs/ext2/super.c", true),
            ("*lock*.c", "spinlock_debug.c", true),
            ("*", "a", true),
            ("*a*b", "xaxxab", true),
            ("a*", "", false),
        ] {
            assert_eq!(Pattern::new(pattern).matches(path), matches, "{pattern} {path}");
        }
    }
}
