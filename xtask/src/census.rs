//! `fettle census` next to tools that know C in other ways: coccinelle, which parses it, finds the same
//! operations in Debian's kernel source, and `unifdef` leaves the same lines.
//!
//! Where coccinelle and the census differ, the reason is one of those that [`Reason`] has, found
//! independently of the census: by the line's own text and the text before it. A difference without a reason is a failure.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{apt, fettle, proc, repo};

/// What to compare.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Which of Debian's kernels: 6.1 or 6.12, which has `guard(…)`
    #[arg(long, default_value = "6.1")]
    pub linux: String,
    /// Folders of the kernel's source
    #[arg(default_values_t = ["kernel".to_string(), "mm".to_string()])]
    pub folders: Vec<String>,
    /// How many files are compared with `unifdef`
    #[arg(long, default_value_t = 1000)]
    pub files: usize,
    /// This binary instead of a fresh release build
    #[arg(long)]
    pub fettle: Option<PathBuf>,
}

/// Kernel source of Debian, `kernel`, `mm` and `fs` of it: unpacked once.
pub fn kernel_source(version: &str) -> Result<PathBuf> {
    kernel_parts(version, "unpacked", &["kernel", "mm", "fs"])
}

/// Parts of the kernel's source, unpacked once into a folder of that name.
pub fn kernel_parts(version: &str, name: &str, parts: &[&str]) -> Result<PathBuf> {
    let source = format!("linux-source-{version}");
    let place = repo::target_folder(&format!("sources/{source}"))?;
    let unpacked = place.join(name);
    if unpacked.is_dir() {
        return Ok(unpacked);
    }
    apt::ensure(&[source.clone(), "xz-utils".into()])?;
    let partial = place.join(format!("{name}.partial"));
    std::fs::create_dir_all(&partial)?;
    let parts = parts.iter().map(|part| format!("{source}/{part}"));
    let mut tar = Command::new("tar");
    tar.args(["--strip-components=1", "-xf"]).arg(format!("/usr/src/{source}.tar.xz")).arg("-C");
    proc::step(tar.arg(&partial).args(parts))?;
    std::fs::rename(&partial, &unpacked)?;
    Ok(unpacked)
}

/// Compares both.
pub fn run(options: &Options) -> Result<bool> {
    apt::ensure(&["coccinelle".into(), "unifdef".into()])?;
    let binary = fettle::binary(options.fettle.as_deref())?;
    let source = kernel_source(&options.linux)?;
    let sites = agrees_with_coccinelle(&binary, &source, &options.folders)?;
    let lines = agrees_with_unifdef(&source, options.files)?;
    Ok(sites && lines)
}

/// Operations that both are asked for, as a regular expression of coccinelle's.
const OPERATIONS: &str = "^((raw_)?spin_(lock|unlock|trylock)(_irq|_irqsave|_irqrestore|_bh|_nested)?\
    |mutex_(lock|unlock|trylock)(_nested|_interruptible|_killable|_io)?\
    |rcu_read_(un)?lock(_bh|_sched|_sched_notrace|_trace)?\
    |(down|up)(_read|_write)?\
    |down_(read|write)_(nested|killable|trylock|interruptible)\
    |(read|write)_(lock|unlock|trylock)(_irq|_irqsave|_irqrestore|_bh)?)$";

/// The same for the census: braces for parentheses.
const KINDS: &str = "set compared\nlanguages c\nkind any\n  other \
    {,raw_}spin_{lock,unlock,trylock}{,_irq,_irqsave,_irqrestore,_bh,_nested} \
    mutex_{lock,unlock,trylock}{,_nested,_interruptible,_killable,_io} \
    rcu_read_{,un}lock{,_bh,_sched,_sched_notrace,_trace} \
    {down,up}{,_read,_write} down_{read,write}_{nested,killable,trylock,interruptible} \
    {read,write}_{lock,unlock,trylock}{,_irq,_irqsave,_irqrestore,_bh}\n";

/// Classes of `guard(CLASS)(lock)` that both are asked for, as a regular expression.
const CLASSES: &str = "^((raw_)?spinlock(_irq|_irqsave|_bh)?|mutex|rcu|cpus_read_lock)$";
/// The same for the census.
const GUARDS: &str = "  class {,raw_}spinlock{,_irq,_irqsave,_bh} mutex rcu cpus_read_lock\n";

/// Where an operation is.
type Place = (String, u64);

/// Why the census has an operation that coccinelle does not have, or the other way round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    /// In the text of a macro, which coccinelle reads only where it can parse it.
    InMacro,
    /// Coccinelle could not parse what is around it: it says which lines.
    NotParsed,
    /// In a branch that is never compiled, as `#if 0` says.
    NeverCompiled,
    /// None is known.
    Unknown,
}

fn agrees_with_coccinelle(binary: &Path, source: &Path, folders: &[String]) -> Result<bool> {
    let work = repo::target_folder("census")?;
    let kinds = work.join("compared.kinds");
    std::fs::write(&kinds, [KINDS, GUARDS].concat())?;
    let mut command = Command::new(binary);
    command.args(["census", ".", "--json", "--sites", "--kinds"]).arg(&kinds);
    command.current_dir(source);
    for folder in folders {
        command.args(["--only", folder]);
    }
    let found: serde_json::Value = serde_json::from_str(&proc::output_of(&mut command)?)?;
    let mut ours: BTreeMap<Place, u64> = BTreeMap::new();
    let mut in_macro = BTreeSet::new();
    for site in found["sources"][0]["sites"].as_array().context("sites")? {
        let place = (
            site["path"].as_str().context("a path")?.into(),
            site["line"].as_u64().context("a line")?,
        );
        if site["in_macro"] == true {
            in_macro.insert(place.clone());
        }
        *ours.entry(place).or_default() += 1;
    }
    let theirs = coccinelle(&work, source, folders)?;
    let mut bad: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();

    let places: BTreeSet<&Place> = ours.keys().chain(theirs.keys()).collect();
    let mut reasons: BTreeMap<Reason, u64> = BTreeMap::new();
    let mut same = 0;
    for place in places {
        let count = |of: &BTreeMap<Place, u64>| of.get(place).copied().unwrap_or(0);
        let (a, b) = (count(&ours), count(&theirs));
        same += a.min(b);
        if a == b {
            continue;
        }
        let reason = match () {
            () if in_macro.contains(place) || is_in_macro(source, place)? => Reason::InMacro,
            () if is_never_compiled(source, place)? => Reason::NeverCompiled,
            () if is_not_parsed(source, place, &mut bad)? => Reason::NotParsed,
            () => Reason::Unknown,
        };
        *reasons.entry(reason).or_default() += a.abs_diff(b);
        if reason == Reason::Unknown {
            println!("{}:{}: {a} by the census, {b} by coccinelle", place.0, place.1);
        }
    }
    println!(
        "coccinelle, {}: {} operations, the census {}; the same {same}; of the others {reasons:?}",
        folders.join(" and "),
        theirs.values().sum::<u64>(),
        ours.values().sum::<u64>(),
    );
    Ok(!reasons.contains_key(&Reason::Unknown))
}

/// What coccinelle finds.
fn coccinelle(work: &Path, source: &Path, folders: &[String]) -> Result<BTreeMap<Place, u64>> {
    let script = work.join("operations.cocci");
    let say = "print(\"SITE %s:%s\" % (p[0].file, p[0].line))\n";
    let text = format!(
        "@r@ identifier f =~ \"{OPERATIONS}\"; position p; @@\nf@p(...)\n@script:python@ p << r.p; @@\n{say}\
         @g@ identifier c =~ \"{CLASSES}\"; position p; @@\nguard@p(c)(...)\n@script:python@ p << g.p; @@\n{say}\
         @s@ iterator name scoped_guard; identifier c =~ \"{CLASSES}\"; position p; statement S; @@\n\
         scoped_guard@p(c, ...) S\n@script:python@ p << s.p; @@\n{say}"
    );
    std::fs::write(&script, text)?;
    let mut found = BTreeMap::new();
    for folder in folders {
        for file in c_files(source, Path::new(folder))? {
            let mut spatch = Command::new("spatch");
            spatch.current_dir(source).arg("--sp-file").arg(&script).arg("--no-includes");
            let said = proc::output_of(spatch.arg(&file))?;
            for place in said.lines().filter_map(|line| line.strip_prefix("SITE ")) {
                let (path, line) = place.rsplit_once(':').context("a place")?;
                *found.entry((path.to_owned(), line.parse()?)).or_default() += 1;
            }
        }
    }
    if found.is_empty() {
        bail!("coccinelle finds nothing at all: its Python may be missing");
    }
    Ok(found)
}

/// Whether the line is among those that coccinelle says it cannot parse. It gives their text, and no number.
fn is_not_parsed(
    source: &Path,
    place: &Place,
    bad: &mut BTreeMap<String, BTreeSet<String>>,
) -> Result<bool> {
    if !bad.contains_key(&place.0) {
        let mut spatch = Command::new("spatch");
        spatch.current_dir(source).args(["--parse-c", "--no-includes"]).arg(&place.0);
        let said = spatch.output().context("starting spatch")?;
        let both = [said.stdout, said.stderr].concat();
        let text = String::from_utf8_lossy(&both).into_owned();
        let lines = text
            .lines()
            .filter_map(|line| {
                line.strip_prefix("bad: ").or_else(|| line.strip_prefix("BAD:!!!!! "))
            })
            .map(|line| line.trim().to_owned());
        bad.insert(place.0.clone(), lines.collect());
    }
    let line = lines_up_to(source, place)?.pop().unwrap_or_default();
    Ok(bad.get(&place.0).is_some_and(|lines| lines.contains(line.trim())))
}

fn c_files(source: &Path, folder: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    let mut folders = vec![source.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "c" || end == "h") {
                files.push(path.strip_prefix(source)?.display().to_string());
            }
        }
    }
    files.sort();
    Ok(files)
}

fn lines_up_to(source: &Path, place: &Place) -> Result<Vec<String>> {
    let text = String::from_utf8_lossy(&std::fs::read(source.join(&place.0))?).into_owned();
    Ok(text.lines().take(place.1 as usize).map(Into::into).collect())
}

/// Whether the line is of a `#define`, by the backslashes before it.
fn is_in_macro(source: &Path, place: &Place) -> Result<bool> {
    let lines = lines_up_to(source, place)?;
    let first = lines.iter().rev().skip(1).take_while(|line| line.ends_with('\\')).count();
    Ok(lines.iter().rev().nth(first).is_some_and(|line| line.trim_start().starts_with("#define")))
}

/// Whether an open `#if 0` is before the line.
fn is_never_compiled(source: &Path, place: &Place) -> Result<bool> {
    let mut open = Vec::new();
    for line in lines_up_to(source, place)? {
        let Some(directive) = line.trim_start().strip_prefix('#') else { continue };
        let directive = directive.trim();
        if directive.starts_with("if") {
            open.push(directive == "if 0");
        } else if directive.starts_with("else") || directive.starts_with("elif") {
            open.pop();
            open.push(false);
        } else if directive.starts_with("endif") {
            open.pop();
        }
    }
    Ok(open.contains(&true))
}

fn agrees_with_unifdef(source: &Path, most: usize) -> Result<bool> {
    let example = fettle::example("fettle-census", "unifdef")?;
    let said = proc::output_of(Command::new(example).arg(source).arg(most.to_string()))?;
    let (differences, found) = said.trim_end().rsplit_once('\n').unwrap_or(("", said.trim_end()));
    println!("{differences}");
    let found: serde_json::Value = serde_json::from_str(found)?;
    println!(
        "unifdef: {} files, {} lines, {} of them dropped (seed {}); {} files have conditions that it leaves \
         open and the census does not, {} differ otherwise",
        found["files"],
        found["lines"],
        found["dropped"],
        found["seed"],
        found["left_open"],
        found["different"],
    );
    Ok(found["different"] == 0)
}
