//! What `fettle census` is asked for.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use fettle_census::tally::By;

/// Arguments of `fettle census`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    fettle census linux --only kernel --only mm\n  \
    fettle census src --by function --candidates\n  \
    fettle census linux --smp --only kernel --hunks\n  \
    fettle census v1.0 v2.0 HEAD --svg trend.svg\n  \
    fettle census --diff HEAD~1 HEAD\n\n\
    A source is a folder, or a revision of the Git repository in the present folder (--repo: of another\n\
    one); A..B is each commit of the first parents' line between the two. Of a revision nothing is checked\n\
    out, and contents that several revisions share are read once.\n\n\
    Exit status: 0 done; 1 a file was skipped, or --diff found what --fail-on names; 2 error.")]
pub struct Args {
    /// Folders or Git revisions
    #[arg(required = true, value_name = "SOURCE")]
    pub sources: Vec<String>,
    /// The Git repository that revisions are of
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub repo: PathBuf,
    /// What counts: linux, freebsd, netbsd, xv6, pthread, cpp, rust, or a file; otherwise all but xv6
    #[arg(long, value_name = "SET|FILE")]
    pub kinds: Vec<String>,
    /// Only these folders and files; `*` stands for anything but `/`
    #[arg(long, value_name = "PATH")]
    pub only: Vec<String>,
    /// Not these
    #[arg(long, value_name = "PATH")]
    pub except: Vec<String>,
    /// A name that the preprocessor knows
    #[arg(short = 'D', long, value_name = "NAME[=VALUE]")]
    pub define: Vec<String>,
    /// A name that it does not know
    #[arg(short = 'U', long, value_name = "NAME")]
    pub undefine: Vec<String>,
    /// It knows no other names than those, and those that a file defines itself
    #[arg(long)]
    pub closed: bool,
    /// Compare the build with this name to the one without
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub conditional: Vec<String>,
    /// The same as --conditional CONFIG_SMP --conditional __SMP__
    #[arg(long)]
    pub smp: bool,
    /// A row for each of these
    #[arg(long, value_enum, default_value_t = Rows::Subsystem)]
    pub by: Rows,
    /// How many folders deep a subsystem is
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub depth: usize,
    /// List functions that may leave with a lock held
    #[arg(long)]
    pub candidates: bool,
    /// List every operation, with its line
    #[arg(long)]
    pub sites: bool,
    /// List where the builds differ
    #[arg(long)]
    pub hunks: bool,
    /// Most rows of a table, 0 for all
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
    /// Show what changed from the first source to the second
    #[arg(long)]
    pub diff: bool,
    /// What makes the status of --diff 1
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "candidates",
        requires = "diff"
    )]
    pub fail_on: Vec<FailOn>,
    /// Write a picture of the kinds over the sources
    #[arg(long, value_name = "FILE", conflicts_with = "diff")]
    pub svg: Option<PathBuf>,
    /// Print the census as one JSON object
    #[arg(long)]
    pub json: bool,
    /// No colours
    #[arg(long)]
    pub no_color: bool,
}

/// What rows are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Rows {
    /// Folders
    Subsystem,
    /// Files
    File,
    /// Functions and macros
    Function,
}

/// What a difference is refused for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// A function may leave with a lock held, and did not before
    Candidates,
    /// Locks nest deeper in a function that took some before
    Deeper,
    /// The number of operations changed
    Changes,
    /// Nothing
    Never,
}

impl Args {
    /// What rows are sums over.
    pub fn by(&self) -> By {
        match self.by {
            Rows::Subsystem => By::Subsystem(self.depth.max(1)),
            Rows::File => By::File,
            Rows::Function => By::Function,
        }
    }

    /// Whether two builds are compared.
    pub fn has_builds(&self) -> bool {
        self.smp || !self.conditional.is_empty()
    }

    /// Most rows of a table.
    pub fn rows(&self) -> usize {
        if self.top == 0 { usize::MAX } else { self.top }
    }
}
