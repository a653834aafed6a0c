//! Which functions get probes: the arguments that `record` and `instrument` share.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use fettle_record::{Pattern, Selection};

/// A choice of functions.
#[derive(Debug, Args)]
pub struct SelectArgs {
    /// Only functions that match: a name with * and ?, an address, or a range of addresses as
    /// 0x1000-0x2000 (may be repeated)
    #[arg(long, value_name = "PATTERN")]
    only: Vec<Pattern>,
    /// No function that matches (may be repeated)
    #[arg(long, value_name = "PATTERN")]
    skip: Vec<Pattern>,
    /// Patterns from a file, one a line: `only PATTERN` or `skip PATTERN`
    #[arg(long, value_name = "FILE")]
    select: Option<PathBuf>,
    /// No function of fewer bytes of code
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    min_size: u64,
}

impl SelectArgs {
    /// The choice, with the patterns of the file.
    pub fn selection(&self) -> anyhow::Result<Selection> {
        let mut selection =
            Selection { only: self.only.clone(), skip: self.skip.clone(), min_size: self.min_size };
        if let Some(file) = &self.select {
            read_selection(file, &mut selection)?;
        }
        Ok(selection)
    }
}

fn read_selection(file: &Path, selection: &mut Selection) -> anyhow::Result<()> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let place = || format!("{}:{}", file.display(), number + 1);
        let (patterns, pattern) = match line.split_once(char::is_whitespace) {
            Some(("only", pattern)) => (&mut selection.only, pattern),
            Some(("skip", pattern)) => (&mut selection.skip, pattern),
            _ => bail!("{}: expected `only PATTERN` or `skip PATTERN`, not `{line}`", place()),
        };
        patterns.push(pattern.trim().parse().with_context(place)?);
    }
    Ok(())
}
