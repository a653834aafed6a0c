//! Where a program's time goes, as text.

use std::fmt::Write;

use fettle_report::render::{Table, Terminal, column};

use super::{CallSpent, Spending, SpentOn, Who};
use crate::text::{interval, ratio, skipped, time};

/// All of it, for people: so many kinds of calls that cost most, and, if they are asked for, those of each
/// system.
pub fn spent_text(
    found: &Spending,
    costliest: usize,
    calls: Option<usize>,
    terminal: Terminal,
) -> String {
    let mut out = String::new();
    let Some((native, others)) = found.systems.split_first() else { return out };
    let rounds = if found.rounds == 1 { "1 round" } else { &format!("{} rounds", found.rounds) };
    let _ = writeln!(out, "{}; {rounds}, means of a run\n", found.program);
    steps(native, others, terminal, &mut out);
    for system in others {
        over(native, system, costliest, terminal, &mut out);
    }
    if let Some(most) = calls {
        for system in &found.systems {
            of_program(system, most, terminal, &mut out);
            of_host(system, most, terminal, &mut out);
        }
    }
    skipped(&found.skipped, &mut out);
    out
}

/// A time that may be less than nothing.
fn signed(ns: f64) -> String {
    let sign = if ns < 0.0 { '-' } else { '+' };
    format!("{sign}{}", time(ns.abs()))
}

/// A number with separators.
fn number(count: f64) -> String {
    fettle_report::render::count(count.round() as u64)
}

fn steps(native: &SpentOn, others: &[SpentOn], terminal: Terminal, out: &mut String) {
    let mut columns = vec![column(&native.system)];
    for system in others {
        columns.extend([column(&system.system), column("change")]);
    }
    let mut table = Table::new(&columns, "where the time goes");
    let mut row = |what: &str, of: &dyn Fn(&SpentOn) -> f64| {
        let here = of(native);
        if here == 0.0 && others.iter().all(|system| of(system) == 0.0) {
            return;
        }
        let mut cells = vec![shown(here)];
        for system in others {
            let there = of(system);
            let change = there - here;
            cells
                .extend([shown(there), if change == 0.0 { String::new() } else { signed(change) }]);
        }
        cells.push(what.to_owned());
        table.row(cells);
    };
    for (who, what) in WHO {
        row(what, &|on| on.by(who));
    }
    row("sum of the steps", &SpentOn::sum);
    row("measured, not observed", &|on| on.ns);
    row("what observing takes, measured, which the steps are without", &|on| on.observing_ns);
    let off = |on: &SpentOn| format!("{:+.1} %", on.off() * 100.0);
    let mut cells = vec![off(native)];
    cells.extend(others.iter().flat_map(|system| [off(system), String::new()]));
    cells.push("the steps' sum, over what was measured".to_owned());
    table.row(cells);
    let mut cells = vec![String::new()];
    for found in others.iter().map(|system| system.ratio) {
        cells.push(found.map_or(String::new(), |found| ratio(found.value)));
        cells.push(found.map_or(String::new(), interval));
    }
    cells.push("ratio to native".to_owned());
    table.row(cells);
    table.render(terminal, out);
}

const WHO: [(Who, &str); 5] = [
    (Who::Program, "the program's threads run"),
    (Who::Both, "the program's threads run, and the system's beside them"),
    (Who::System, "the system's threads run"),
    (Who::Ready, "none runs: other programs have the processors"),
    (Who::Blocked, "none runs: all wait"),
];

fn shown(ns: f64) -> String {
    match ns {
        0.0 => String::new(),
        ns if ns < 0.0 => signed(ns),
        ns => time(ns),
    }
}

/// Who runs meanwhile, in a word for each that has at least a hundredth.
fn by(call: &CallSpent) -> String {
    let mut shares: Vec<(Who, f64)> =
        call.by.iter().map(|(who, ns)| (*who, ns / call.ns)).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let word = |who| match who {
        Who::Program => "program",
        Who::Both => "both",
        Who::System => "system",
        Who::Ready => "others",
        Who::Blocked => "none",
    };
    let shares = shares.iter().filter(|(_, share)| *share >= 0.01);
    let shares = shares.map(|(who, share)| format!("{} {:.0} %", word(*who), share * 100.0));
    shares.collect::<Vec<_>>().join(", ")
}

/// What costs most over native.
fn over(native: &SpentOn, system: &SpentOn, most: usize, terminal: Terminal, out: &mut String) {
    let _ = writeln!(out, "\ncostliest on {}, over native:", system.system);
    let columns =
        [column("change"), column("calls"), column("each"), column("native"), column("each")];
    let mut table = Table::new(&columns, "step, and who runs meanwhile");
    for (call, more) in system.over(native).into_iter().take(most).filter(|(_, more)| *more > 0.0) {
        let there = native.call(call.doing);
        let cells = [signed(more)].into_iter().chain(counted(Some(call))).chain(counted(there));
        table.row(cells.chain([format!("{}: {}", call.doing.name(), by(call))]));
    }
    table.render(terminal, out);
}

/// How many, and the time of each; nothing where that is not known.
fn counted(call: Option<&CallSpent>) -> [String; 2] {
    let Some((call, count)) = call.and_then(|call| Some((call, call.count?))) else {
        return [String::new(), String::new()];
    };
    [number(count), if count > 0.0 { time(call.ns / count) } else { String::new() }]
}

fn of_program(system: &SpentOn, most: usize, terminal: Terminal, out: &mut String) {
    let _ = writeln!(out, "\nwhat the program does on {}:", system.system);
    let columns = [column("time"), column("%"), column("calls"), column("each")];
    let mut table = Table::new(&columns, "step, and who runs meanwhile");
    for call in system.calls.iter().take(most) {
        let share = format!("{:.1}", call.ns / system.sum() * 100.0);
        let [count, each] = match call.count {
            Some(_) => counted(Some(call)),
            None => [String::new(), String::new()],
        };
        let what = format!("{}: {}", call.doing.name(), by(call));
        table.row([time(call.ns), share, count, each, what]);
    }
    table.render(terminal, out);
}

fn of_host(system: &SpentOn, most: usize, terminal: Terminal, out: &mut String) {
    if system.host_calls.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "\ncalls of this kernel that {} makes, while its threads run:",
        system.system
    );
    let columns = [column("time"), column("%"), column("calls"), column("each"), column("alone")];
    let mut table = Table::new(&columns, "call");
    let all: f64 = system.host_calls.iter().map(|call| call.running_ns).sum();
    for call in system.host_calls.iter().take(most) {
        let share = format!("{:.1}", call.running_ns / all.max(1.0) * 100.0);
        let each =
            if call.count > 0.0 { time(call.running_ns / call.count) } else { String::new() };
        let cells = [time(call.running_ns), share, number(call.count), each, time(call.alone_ns)];
        table.row(cells.into_iter().chain([call.call.clone()]));
    }
    table.render(terminal, out);
}
