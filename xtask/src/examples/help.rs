//! Examples in help texts. They name programs and processes that are not there, so each command has
//! a script in `tests/examples/help` that makes them, and says what is not run and why:
//!
//! ```text
//! # instead: 4711 => $(cat pid)     in the command, before it is run
//! # status 1: fettle status         what begins so ends with that status
//! # any status: fettle tune -p      what begins so ends with 0 or 1, as the machine has it
//! # not run: fettle x: REASON       what begins so is not run
//! ```

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::page::{ANY_STATUS, Example, Page, Step};
use crate::{proc, repo};

/// The commands that have examples, each as a page.
pub fn pages(binary: &Path) -> Result<Vec<Page>> {
    let names = commands(&proc::output_of(Command::new(binary).arg("help"))?);
    let mut pages = Vec::new();
    for name in names {
        let help = proc::output_of(Command::new(binary).args([&name, "--help"]))?;
        let examples = examples(&help);
        if !examples.is_empty() {
            pages.push(page(&name, &examples)?);
        }
    }
    Ok(pages)
}

/// The commands that the help lists: indented lines that begin with a word, in each group.
fn commands(help: &str) -> Vec<String> {
    let listed = help.lines().take_while(|line| !line.starts_with("Options:"));
    let names = listed.filter_map(|line| {
        let rest = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '))?;
        let word = rest.split(' ').next()?;
        word.chars().all(|c| c.is_ascii_lowercase()).then(|| word.to_owned())
    });
    names.filter(|name| name != "help").collect()
}

/// The commands below `Examples:`, without what stands behind them.
fn examples(help: &str) -> Vec<String> {
    let below = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    let mut found: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in below.take_while(|line| !line.is_empty()) {
        let indented = line.trim_start();
        let column = line.len() - indented.len();
        let command = indented.split("   ").next().unwrap_or_default().trim_end();
        match found.last_mut() {
            Some(last) if goes_on => *last = format!("{last}\n{command}"),
            _ if column == 2 => found.push(command.into()),
            // The rest of a remark.
            _ => continue,
        }
        goes_on = command.ends_with('\\');
    }
    found
}

fn page(name: &str, examples: &[String]) -> Result<Page> {
    let file = repo::root().join(format!("tests/examples/help/{name}.sh"));
    let setup = std::fs::read_to_string(&file)
        .with_context(|| format!("{}: what the examples of the help need", file.display()))?;
    let mut page = Page { name: format!("fettle {name} --help"), ..Page::default() };
    page.needs =
        directives(&setup, "# needs: ").flat_map(|l| l.split(' ')).map(String::from).collect();
    page.quick = setup.lines().any(|line| line == "# quick");
    for example in examples {
        let begins = |what: &str| example.starts_with(what);
        let not_run = directives(&setup, "# not run: ").filter_map(|line| line.split_once(": "));
        if let Some((_, why)) = not_run.into_iter().find(|(what, _)| begins(what)) {
            page.not_run.push(why.into());
            continue;
        }
        let mut command = example.clone();
        for (from, to) in directives(&setup, "# instead: ").filter_map(|l| l.split_once(" => ")) {
            command = command.replace(from, to);
        }
        let status = match () {
            () if directives(&setup, "# any status: ").any(begins) => ANY_STATUS,
            () => i32::from(directives(&setup, "# status 1: ").any(begins)),
        };
        page.steps.push(Step::Example(Example { command, status, ..Example::default() }));
    }
    page.setup = setup;
    Ok(page)
}

fn directives<'a>(setup: &'a str, sign: &'a str) -> impl Iterator<Item = &'a str> {
    setup.lines().filter_map(move |line| line.strip_prefix(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_found_without_remarks() {
        let help = "Usage\n\nExamples:\n  fettle a                  the newest\n  fettle b \\\n      \
                    --c\n  fettle d\n                            and more\n\nfettle e\n";
        assert_eq!(examples(help), ["fettle a", "fettle b \\\n--c", "fettle d"]);
    }

    #[test]
    fn commands_are_those_of_all_groups() {
        let help = "Observe:\n  record   Run a\n           b\n\nTune:\n  tune  Lay\n  help  Print\n\nOptions:\n  -h\n";
        assert_eq!(commands(help), ["record", "tune"]);
    }
}
