//! Explanations as text.

use std::fmt::Write;

use fettle_report::render::{Table, Terminal, column};

use super::distribution::distribution_text;
use super::steps::{HostCall, Step};
use super::{CallOn, Explained, Why};
use crate::text::{ratio, skipped, time};

/// All of it, for people; with how long calls take each for itself, if that is asked for.
pub fn why_text(why: &Why, distribution: bool, terminal: Terminal) -> String {
    let mut out = String::new();
    for call in &why.calls {
        explained(call, terminal, &mut out);
        if distribution {
            let all = std::iter::once(&call.native).chain(&call.systems);
            let systems: Vec<_> =
                all.map(|on| (on.system.as_str(), &on.distribution[..])).collect();
            distribution_text(&call.name, &systems, terminal, &mut out);
        }
    }
    let held = match why.spread {
        true => "Each system had all processors",
        false => "Each system was held on one processor",
    };
    let _ = writeln!(out, "{held}; times are interquartile means of calls.");
    let _ = writeln!(
        out,
        "Observing cost {} a system call of this kernel, {} a record of one and {} a record of the scheduler; this is \
         subtracted.",
        time(why.call_ns),
        time(why.of_call_ns),
        time(why.record_ns)
    );
    skipped(&why.skipped, &mut out);
    out
}

fn explained(call: &Explained, terminal: Terminal, out: &mut String) {
    let mut names = vec![call.native.system.as_str()];
    names.extend(call.systems.iter().map(|on| on.system.as_str()));
    let columns: Vec<_> = names.iter().map(|name| column(name)).collect();
    let mut table = Table::new(&columns, &call.name);
    let all: Vec<&CallOn> = std::iter::once(&call.native).chain(&call.systems).collect();
    let mut steps: Vec<Step> = all.iter().flat_map(|on| on.steps.iter().map(|s| s.step)).collect();
    steps.sort();
    steps.dedup();
    for step in steps {
        let cells = all.iter().map(|on| {
            let found = on.steps.iter().find(|time| time.step == step);
            found.map_or(String::new(), |found| time(found.ns))
        });
        table.row(cells.chain([name(step).to_owned()]));
    }
    let row = |what: &str, of: &dyn Fn(&CallOn) -> String| {
        all.iter().map(|on| of(on)).chain([what.to_owned()]).collect::<Vec<_>>()
    };
    table.row(row("sum of the steps", &|on| time(on.sum())));
    table.row(row("measured, not observed", &|on| time(on.ns)));
    for (at, what) in [(2, "half take at most"), (4, "99 % take at most")] {
        table.row(row(what, &|on| time(on.quantiles_ns[at])));
    }
    table.row(row("ratio to native", &|on| ratio(on.ns / call.native.ns)));
    table.row(row("system calls of this kernel", &|on| format!("{:.1}", on.host_calls)));
    table.row(row("sum, of the measured difference", &|on| {
        if on.system == call.native.system {
            String::new()
        } else {
            format!("{:+.1} %", on.off(&call.native) * 100.0)
        }
    }));
    table.render(terminal, out);
    out.push('\n');
}

/// A step, in words.
fn name(step: Step) -> &'static str {
    match step {
        Step::Own => "the program's thread, served by its kernel",
        Step::Beside => "the program's thread, and the system beside it",
        Step::Leave => "the program's thread, until it is stopped",
        Step::HandOver => "hand-over: nothing runs until the system does",
        Step::Work => "the system works",
        Step::HostCall(call) => match call {
            HostCall::Read => "the system reads",
            HostCall::Write => "the system writes",
            HostCall::Poll => "the system polls",
            HostCall::Futex => "the system waits at a futex",
            HostCall::Sleep => "the system sleeps",
            HostCall::Child => "the system waits for the program's thread (wait4)",
        },
        Step::ForSystem => "the program's thread, for the system",
        Step::Wait => "nothing runs: the system waits",
        Step::WayBack => "way back: nothing runs until the program's thread does",
        Step::Return => "the program's thread, until the call has ended",
    }
}
