//! Values into text for people, JSON for programs, and pages for looking.

mod flame;
mod histogram;
mod page;
mod table;
mod text;
mod units;

pub use flame::{FlameGraph, flame_html, flame_svg};
pub use histogram::{histogram_html, histogram_svg, histogram_text};
pub use page::html as page_html;
pub use table::{BOLD, Column, DIM, Table, WARN, column, may_go, paint, shortened};
pub use text::{
    arguments_text, blocks_text, diff_text, focus_text, report_text, threads_text, tree_text,
    user_text,
};
pub use units::{count, duration, percent, plural};

pub use crate::names::one_line;

use serde::Serialize;

/// What text is written for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terminal {
    /// Columns; `None` where lines may be as long as they like (a file, a pipe).
    pub width: Option<usize>,
    /// Whether colours are shown.
    pub colour: bool,
}

/// Any of this crate's values as JSON: one object with a `version`, and a line's end.
pub fn json<T: Serialize>(value: &T) -> crate::Result<String> {
    let mut text = serde_json::to_string_pretty(value).map_err(std::io::Error::from)?;
    text.push('\n');
    Ok(text)
}

/// Text as XML or HTML content or attribute. Characters that XML has no way to say are replaced.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
