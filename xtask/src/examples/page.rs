//! Pages with examples: what stands in a Markdown file, and what of it is run.
//!
//! Each `console` block is run, line by line, in the order of the page. Comments of the page say
//! what a reader need not see:
//!
//! ```text
//! <!-- quick -->                 the page takes seconds: CI runs it
//! <!-- needs: root lua5.4 -->    privileges and Debian packages
//! <!-- setup                     a script that is run first, up to the line with -->
//! <!-- file: NAME -->            the next block is the file NAME
//! <!-- status: 1 -->             the last command of the next block ends so
//! <!-- not run: REASON -->       the next block is not run
//! ```

use anyhow::{Result, bail};

/// The status of a command that may end with 0 or 1.
pub const ANY_STATUS: i32 = -1;

/// A page.
#[derive(Debug, Default)]
pub struct Page {
    /// Its path from the root, or the command whose help it is.
    pub name: String,
    /// Whether it takes seconds.
    pub quick: bool,
    /// `root`, and Debian packages.
    pub needs: Vec<String>,
    /// What is run first.
    pub setup: String,
    /// What is shown, in order.
    pub steps: Vec<Step>,
    /// Blocks that are not run, with the reason.
    pub not_run: Vec<String>,
}

/// A piece of a page that the runner uses.
#[derive(Debug)]
pub enum Step {
    /// The text is a file.
    File { name: String, text: String },
    /// A command, with what the page says that it prints.
    Example(Example),
}

/// A command of a page.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Example {
    /// Line of the page, from 0, that the command begins on.
    pub line: usize,
    /// Lines of the page that the command takes.
    pub lines: usize,
    /// As a shell takes it.
    pub command: String,
    /// What it prints.
    pub output: Vec<String>,
    /// How it ends.
    pub status: i32,
}

impl Page {
    /// The commands.
    pub fn examples(&self) -> impl Iterator<Item = &Example> {
        self.steps.iter().filter_map(|step| match step {
            Step::Example(example) => Some(example),
            Step::File { .. } => None,
        })
    }

    /// Takes a page apart.
    pub fn parse(name: &str, text: &str) -> Result<Page> {
        let mut page = Page { name: name.into(), ..Page::default() };
        let mut next = Next::default();
        let lines: Vec<&str> = text.lines().collect();
        let mut at = 0;
        while let Some(line) = lines.get(at) {
            at += 1;
            if let Some(language) = line.strip_prefix("```") {
                let body = lines[at..].iter().take_while(|line| **line != "```").count();
                page.block(std::mem::take(&mut next), language, at, &lines[at..at + body])?;
                at += body + 1;
            } else if *line == "<!-- setup" {
                let body = lines[at..].iter().take_while(|line| **line != "-->").count();
                page.setup.push_str(&lines[at..at + body].join("\n"));
                page.setup.push('\n');
                at += body + 1;
            } else if let Some(comment) = line.strip_prefix("<!-- ") {
                let Some(comment) = comment.strip_suffix(" -->") else { continue };
                page.comment(comment, &mut next)?;
            }
        }
        Ok(page)
    }

    fn comment(&mut self, comment: &str, next: &mut Next) -> Result<()> {
        match comment.split_once(": ") {
            None if comment == "quick" => self.quick = true,
            Some(("needs", what)) => self.needs.extend(what.split(' ').map(String::from)),
            Some(("file", name)) => next.file = Some(name.into()),
            Some(("status", status)) => next.status = status.parse()?,
            Some(("not run", why)) => next.not_run = Some(why.into()),
            // A remark for those who edit the page.
            _ => {}
        }
        Ok(())
    }

    fn block(&mut self, next: Next, language: &str, first: usize, body: &[&str]) -> Result<()> {
        if let Some(name) = next.file {
            let text = body.iter().flat_map(|line| [*line, "\n"]).collect();
            self.steps.push(Step::File { name, text });
        } else if let Some(why) = next.not_run {
            self.not_run.push(why);
        } else if language == "console" {
            let mut examples = examples(first, body);
            let Some(last) = examples.last_mut() else {
                bail!("{}:{first}: a console block without a line that begins with $", self.name);
            };
            last.status = next.status;
            self.steps.extend(examples.into_iter().map(Step::Example));
        }
        Ok(())
    }
}

/// What comments say of the block after them.
#[derive(Default)]
struct Next {
    file: Option<String>,
    status: i32,
    not_run: Option<String>,
}

/// The commands of a block. A command goes on where its line ends in a backslash.
fn examples(first: usize, body: &[&str]) -> Vec<Example> {
    let mut found: Vec<Example> = Vec::new();
    let mut goes_on = false;
    for (number, line) in body.iter().enumerate() {
        match (line.strip_prefix("$ "), found.last_mut()) {
            (_, Some(last)) if goes_on => {
                last.command.push('\n');
                last.command.push_str(line);
                last.lines += 1;
                goes_on = line.ends_with('\\');
            }
            (Some(command), _) => {
                goes_on = command.ends_with('\\');
                let command = command.to_owned();
                found.push(Example {
                    line: first + number,
                    lines: 1,
                    command,
                    ..Example::default()
                });
            }
            (None, Some(last)) => last.output.push((*line).into()),
            (None, None) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_taken_apart() {
        let fence = "```";
        let text = format!(
            "# A\n<!-- quick -->\n<!-- needs: root lua5.4 -->\n<!-- setup\ncd a\n-->\n\
             <!-- file: b.c -->\n{fence}c\nint b;\n{fence}\n<!-- not run: slow -->\n\
             {fence}console\n$ sleep 9\n{fence}\n<!-- status: 3 -->\n\
             {fence}console\n$ echo a \\\n  b\na b\n$ exit 3\n{fence}\n"
        );
        let page = Page::parse("a.md", &text).unwrap();
        assert!(page.quick);
        assert_eq!(page.needs, ["root", "lua5.4"]);
        assert_eq!(page.setup, "cd a\n");
        assert_eq!(page.not_run, ["slow"]);
        let found: Vec<_> = page.examples().cloned().collect();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].command.as_str(), found[0].lines), ("echo a \\\n  b", 2));
        assert_eq!(found[0].output, ["a b"]);
        assert_eq!((found[1].command.as_str(), found[1].status), ("exit 3", 3));
        assert!(matches!(&page.steps[0], Step::File { text, .. } if text == "int b;\n"));
    }
}
