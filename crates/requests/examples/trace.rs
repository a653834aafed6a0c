//! Follows the calls of one function through a trace of `fettle record`.
//!
//! `cargo run --release -p fettle-requests --example trace TRACE FUNCTION`
//!
//! Shows how rows of a trace become events: each call two, each time off a processor two. Each call
//! of the function is a request, with what is called below it in the same thread. (A call of it
//! within itself ends the request early: the schema below does not count.)

use std::path::Path;

use fettle_requests::{
    Batch, Engine, EventId, Options, Request, Source, State, Strings, compile, shipped,
};
use fettle_trace::{Call, Trace};

const SCHEMA: &str = r#"
use kernel
use probes
use threads

on call where function == "FUNCTION" { start thread(tid) after nothing  seed }
on call { basic thread(tid) }
on call_end where function == "FUNCTION" { stop thread(tid) }
on call_end { basic thread(tid) }
"#;

/// The two events of each call of a thread, in their order. Rows stand in order of ends; those that
/// begin or end at the same time are told apart by their depth.
fn nest(mut calls: Vec<Call>, mut event: impl FnMut(bool, u64, &Call)) {
    calls.sort_by_key(|call| (call.start_ns, call.depth));
    let mut open: Vec<Call> = Vec::new();
    let close = |open: &mut Vec<Call>, depth: u16, event: &mut dyn FnMut(bool, u64, &Call)| {
        while let Some(call) = open.pop_if(|call| call.depth >= depth) {
            event(false, call.end_ns(), &call);
        }
    };
    for call in calls {
        close(&mut open, call.depth, &mut event);
        event(true, call.start_ns, &call);
        open.push(call);
    }
    close(&mut open, 0, &mut event);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, path, function] = args.as_slice() else { return Err("TRACE and FUNCTION".into()) };
    let trace = Trace::open(Path::new(path))?;
    let text = SCHEMA.replace("FUNCTION", &function.escape_default().to_string());
    let program = compile(&[Source::new("trace", text)], &shipped)?;

    let find = |name: &str| program.catalog().find(name).ok_or("not declared");
    let (call, call_end) = (find("call")?, find("call_end")?);
    let (out, back) = (find("switch_out")?, find("switch_in")?);
    let mut strings: Strings = program.strings().clone();
    let names: Vec<u64> = trace
        .functions()?
        .iter()
        .map(|f| u64::from(strings.code(f.demangled.as_ref().unwrap_or(&f.name))))
        .collect();
    let threads = trace.threads()?;

    let mut batch = Batch::new(program.catalog());
    let mut push = |time, event: EventId, fields: &[u64]| batch.push(time, event, fields);
    for thread in &threads {
        let (pid, tid) = (u64::from(thread.pid), u64::from(thread.tid));
        let mut calls = Vec::new();
        trace.for_each_call(thread.index, |call| calls.push(*call))?;
        nest(calls, |begins, time_ns, row| {
            let name = names.get(row.function as usize).copied().unwrap_or(u64::MAX);
            let event = if begins { call } else { call_end };
            push(time_ns, event, &[pid, tid, name, u64::from(row.depth)]);
        });
    }
    trace.for_each_switch(|rows| {
        for row in rows {
            let Some(thread) = threads.get(row.thread as usize) else { continue };
            let tid = u64::from(thread.tid);
            push(row.off_ns, out, &[tid, 0, u64::from(row.preempted)]);
            push(row.on_ns, back, &[tid, 0]);
        }
    })?;
    batch.sort();

    let mut requests: Vec<Request> = Vec::new();
    let mut engine = Engine::new(program, Options { events_max: usize::MAX, ..Options::default() });
    let mut keep = |request: &Request| requests.push(request.clone());
    engine.feed(&batch, &mut keep);
    engine.finish(&mut keep);
    println!("{} events, {} requests", batch.len(), requests.len());
    requests.sort_by_key(|request| std::cmp::Reverse(request.wall_ns()));
    for request in requests.iter().take(5) {
        let first = request.sections.first().ok_or("a request without a section")?;
        let place = engine.program().describe(0, first.timeline, first.key, &strings);
        println!(
            "{place}: {:.3} ms, {} events",
            request.wall_ns() as f64 / 1e6,
            request.events.len()
        );
        let times = request.times();
        for state in State::ALL.into_iter().filter(|state| times.get(*state) > 0) {
            println!("  {:<9} {:>10.3} ms", state.name(), times.get(state) as f64 / 1e6);
        }
    }
    println!("{:?}\n{:?}", engine.counts(), engine.schema_counts(0));
    Ok(())
}
