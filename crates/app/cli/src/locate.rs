//! `fettle locate`: where failed and slow requests come from.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use fettle_follow::{LocateOptions, Located, Odds, locate};
use fettle_report::render::{
    BOLD, DIM, Table, Terminal, WARN, column, count, duration, json, may_go, one_line, paint,
    percent, plural,
};
use fettle_types::parse_time;

use crate::output;
use crate::requests::session::{open, sources};

/// Components of a fault, and classes, that are shown at most.
const COMPONENTS_MAX: usize = 6;
const CLASSES_MAX: usize = 8;

/// Find out what failed and slow requests have in common: the process, service, statement or file at fault
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fettle record --kernel --payload -- nginx -g 'daemon off;'
  fettle locate                                   the newest trace in this folder
  fettle locate nginx.fettle --slower-than 50ms
  fettle locate nginx.fettle --json

Exit status: 0 something is at fault; 1 nothing is, or something could not be read; 2 error.")]
pub struct LocateArgs {
    /// Trace folder [default: the newest *.fettle in this folder]
    trace: Option<PathBuf>,
    /// What a request is: a shipped schema's name, or a file [default: what suits the trace]
    #[arg(long, value_name = "NAME|FILE")]
    schema: Vec<String>,
    /// A request that takes longer is slow [default: by class, three times the median, and twelve times as
    /// far from it as the first quartile]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    slower_than: Option<Duration>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    /// No colours
    #[arg(long)]
    no_color: bool,
}

/// Runs `fettle locate`: 0, or 1 if nothing is at fault or something could not be read.
///
/// # Errors
///
/// When there is no trace, or no schema that suits it.
pub fn run(args: &LocateArgs) -> anyhow::Result<ExitCode> {
    let path = output::chosen(args.trace.as_deref())?;
    let trace = output::open(&path)?;
    let (sources, _) = sources(&args.schema, &trace)?;
    let session = open(&trace, &sources, &args.schema)?;
    let slower_than_ns = args.slower_than.map(|time| time.as_nanos() as u64);
    let located = locate(&session, &LocateOptions { slower_than_ns })?;
    let text = match args.json {
        true => json(&located)?,
        false => {
            let names: Vec<&str> = session.program().schemas().iter().map(|s| s.name()).collect();
            let again = format!("fettle requests {}", path.display());
            text(&located, &names, &again, output::terminal(args.no_color))
        }
    };
    output::print(&text)?;
    let nothing = located.faults.is_empty() || !located.problems.is_empty();
    Ok(ExitCode::from(u8::from(nothing)))
}

fn text(located: &Located, schemas: &[&str], again: &str, terminal: Terminal) -> String {
    let mut out = String::new();
    for problem in &located.problems {
        paint(&mut out, &one_line(format!("! {problem}")), WARN, terminal.colour);
        out.push('\n');
    }
    out.push_str(&format!(
        "{}: {} failed, {} not answered, {} slow\n",
        plural(located.requests, "request", "requests"),
        count(located.failed),
        count(located.unanswered),
        count(located.slow),
    ));
    let mut limits: Vec<_> = located.limits.iter().collect();
    limits.sort_by_key(|limit| std::cmp::Reverse((limit.slow, limit.requests)));
    for limit in limits.iter().take(CLASSES_MAX) {
        let line = format!(
            "{} of {} {}: slow from {} on, usual {}\n",
            count(limit.slow),
            count(limit.requests),
            one_line(limit.class.clone()),
            duration(limit.slower_than_ns),
            duration(limit.median_ns),
        );
        paint(&mut out, &line, DIM, terminal.colour);
    }
    if located.faults.is_empty() {
        out.push_str(match located.failed + located.unanswered + located.slow {
            0 => "\nNone: no request failed or was slow.\n",
            _ => "\nNone: no component goes with the bad requests more than chance does.\n",
        });
        return out;
    }
    for (n, fault) in located.faults.iter().enumerate() {
        paint(&mut out, &format!("\nfault {}", n + 1), BOLD, terminal.colour);
        out.push_str(&format!(": {}\n", figures(&fault.odds)));
        for component in fault.components.iter().take(COMPONENTS_MAX) {
            out.push_str(&format!("    {}\n", one_line(component.clone())));
        }
        if fault.components.len() > COMPONENTS_MAX {
            let more = (fault.components.len() - COMPONENTS_MAX) as u64;
            out.push_str(&format!("    … and {} that cannot be distinguished\n", count(more)));
        }
        let (schema, id) = fault.example;
        let which = match schemas.len() {
            0 | 1 => id.to_string(),
            _ => format!("{}:{id}", schemas.get(schema).copied().unwrap_or_default()),
        };
        out.push_str(&format!("  example: {again} --request {which}\n"));
    }
    if located.unexplained > 0 {
        let left = plural(located.unexplained, "bad request has", "bad requests have");
        out.push_str(&format!("\n{left} nothing of these in common.\n"));
    }
    out.push('\n');
    ranking(located, terminal, &mut out);
    out
}

fn ranking(located: &Located, terminal: Terminal, out: &mut String) {
    let columns = [column("alike"), column("of bad"), column("of good"), may_go("odds", 1)];
    let mut table = Table::new(&columns, "component, all requests");
    for component in &located.ranking {
        let Odds { bad_with, bad, good_with, good, ochiai, .. } = component.odds;
        let share = |part: u64, whole: u64| percent(part as f64 / (whole as f64).max(1.0));
        let cells = [
            format!("{ochiai:.2}"),
            share(bad_with, bad),
            share(good_with, good),
            interval(&component.odds),
        ];
        table.row(cells.into_iter().chain([one_line(component.name.clone())]));
    }
    table.render(terminal, out);
}

fn figures(odds: &Odds) -> String {
    let Odds { bad_with, bad, good_with, good, .. } = *odds;
    format!(
        "{} of {} bad, {} of {} good; odds of being bad {} times as high",
        count(bad_with),
        count(bad),
        count(good_with),
        count(good),
        interval(odds),
    )
}

/// The interval of the odds ratio.
fn interval(odds: &Odds) -> String {
    let bound = |log: f64| match log.exp() {
        value if value >= 100.0 => count(value.min(1e15) as u64),
        value => format!("{value:.1}"),
    };
    let low = odds.interval.0.map_or("0".to_owned(), bound);
    match odds.interval.1 {
        Some(high) => format!("{low} to {}", bound(high)),
        None => format!("{low} and more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odds_are_shown_with_their_bounds() {
        let mut odds = Odds {
            bad_with: 20,
            bad: 22,
            good_with: 1,
            good: 900,
            ochiai: 0.9,
            log_odds: 9.0,
            interval: (Some(3.0), Some(8.0)),
            probability: 1e-9,
        };
        assert_eq!(
            figures(&odds),
            "20 of 22 bad, 1 of 900 good; odds of being bad 20.1 to 2,980 times as high"
        );
        odds.interval = (None, None);
        assert_eq!(interval(&odds), "0 and more");
    }
}
