//! `cargo xtask papers`: the headline results of the papers that Fettle continues, measured again.
//!
//! Each paper is a module that says which of its tables and figures there are, what stands in them, and
//! how the same is measured here. What has no counterpart yet stands in the list with its reason; what
//! has lost against the paper or a peer stands there, too.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::{fettle, repo};

mod application_kernel;
mod cibyl;
mod loads;
mod lopi;
mod page;
mod paper;
mod positioning;
mod request_tracking;
mod smp_port;
mod sources;
mod table;

use paper::Paper;
use sources::Sources;

/// What to measure again.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Only these papers: lopi, positioning, requests, application-kernel, smp-port, cibyl
    names: Vec<String>,
    /// Few rounds: a first look, not a figure
    #[arg(long)]
    quick: bool,
    /// Take what benchmarks have left in target/ where they have run before, instead of measuring that again
    #[arg(long, conflicts_with = "quick")]
    reuse: bool,
    /// This binary instead of a fresh release build
    #[arg(long)]
    fettle: Option<PathBuf>,
    /// Where the pages go [default: docs/papers]
    #[arg(long)]
    output: Option<PathBuf>,
}

const PAPERS: [Paper; 6] = [
    lopi::PAPER,
    positioning::PAPER,
    request_tracking::PAPER,
    application_kernel::PAPER,
    smp_port::PAPER,
    cibyl::PAPER,
];

/// Measures, writes the pages, and says where anything could not be measured.
pub fn run(options: &Options) -> Result<bool> {
    let wanted = |paper: &&Paper| {
        options.names.is_empty() || options.names.iter().any(|name| name == paper.name)
    };
    if let Some(unknown) =
        options.names.iter().find(|name| PAPERS.iter().all(|paper| paper.name != **name))
    {
        let known: Vec<&str> = PAPERS.iter().map(|paper| paper.name).collect();
        bail!("no paper is called {unknown}; there are {}", known.join(", "));
    }
    let sources =
        Sources::new(fettle::binary(options.fettle.as_deref())?, options.quick, options.reuse)?;
    let folder = options.output.clone().unwrap_or_else(|| repo::root().join("docs/papers"));
    std::fs::create_dir_all(&folder)?;
    let mut whole = true;
    for paper in PAPERS.iter().filter(wanted) {
        println!("== {}", paper.title);
        let (mut tables, mut missed) = (Vec::new(), Vec::new());
        for table in (paper.tables)(&sources) {
            match table {
                Ok(table) => {
                    print!("{}", table.as_text());
                    tables.push(table);
                }
                Err(error) => {
                    println!("not measured: {error:#}");
                    missed.push(format!("{error:#}"));
                    whole = false;
                }
            }
        }
        page::write(&folder, paper, &tables, &missed, &sources)?;
    }
    println!("pages: {}", folder.display());
    Ok(whole)
}
