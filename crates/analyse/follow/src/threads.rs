//! What threads did, whatever requests they did it for: every event that names one, and whether it ran,
//! could have run, or waited for what.

use fettle_requests::{Activities, Activity, Source, Strings, compile, shipped};
use fettle_trace::{EventKind, Trace};

use crate::detail::shown;
use crate::error::Result;
use crate::feed::Feed;
use crate::names::Names;

/// The field that says which thread an event is of.
const THREAD: &str = "tid";

/// An event of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadEvent {
    /// When, nanoseconds of trace time.
    pub time_ns: u64,
    /// The thread; 0 where the event does not say.
    pub tid: u32,
    /// Place of its kind in [`ThreadEvents::kinds`].
    pub kind: usize,
}

/// What a pass over all events came to.
#[derive(Debug)]
pub struct ThreadEvents {
    /// Names of the kinds.
    pub kinds: Vec<String>,
    /// What could not be read.
    pub problems: Vec<String>,
}

/// Calls `with` on all events of a trace, whatever their kinds, in order of time.
pub fn for_each_thread_event(
    trace: &Trace,
    with: &mut dyn FnMut(ThreadEvent),
) -> Result<ThreadEvents> {
    let (mut stream, damaged) =
        trace.events(&mut |kind| Some(place(kind, THREAD).into_iter().collect()))?;
    let kinds = stream.kinds().map(|kind| kind.name.clone()).collect();
    let naming: Vec<bool> = stream.kinds().map(|kind| place(kind, THREAD).is_some()).collect();
    let mut problems: Vec<String> = damaged.iter().map(ToString::to_string).collect();
    loop {
        match stream.next(u64::MAX, &mut |_| 0) {
            Ok(Some(run)) => {
                let kind = run.kind;
                for (row, time_ns) in run.times_ns().iter().enumerate() {
                    let tid = if naming[kind] { run.values(0)[row] as u32 } else { 0 };
                    with(ThreadEvent { time_ns: *time_ns, tid, kind });
                }
            }
            Ok(None) => return Ok(ThreadEvents { kinds, problems }),
            // The file is given up; the others go on.
            Err(error) => problems.push(error.to_string()),
        }
    }
}

fn place(kind: &EventKind, field: &str) -> Option<usize> {
    kind.fields.iter().position(|known| known.name == field)
}

/// Names and values of the fields of one event: of those of this kind, thread and time, that which
/// has so many before it. Nothing if there is none.
pub fn event_fields(
    trace: &Trace,
    kind: &str,
    tid: u32,
    time_ns: u64,
    before: usize,
) -> Result<Option<Vec<(String, String)>>> {
    let (mut stream, _) = trace
        .events(&mut |known| (known.name == kind).then(|| (0..known.fields.len()).collect()))?;
    let Some(known) = stream.kinds().next().cloned() else { return Ok(None) };
    let thread = place(&known, THREAD);
    let (mut strings, mut left) = (Strings::default(), before);
    while let Some(run) = stream.next(time_ns, &mut |text| strings.code(text))? {
        let times = run.times_ns();
        let first = times.partition_point(|ns| *ns < time_ns);
        for row in first..times.len() {
            if thread.map_or(0, |place| run.values(place)[row] as u32) != tid {
                continue;
            }
            if left > 0 {
                left -= 1;
                continue;
            }
            let values = (0..known.fields.len()).map(|place| run.values(place)[row]);
            let fields = known.fields.iter().zip(values);
            let named = |(field, value): (&fettle_trace::EventField, u64)| {
                (field.name.clone(), shown(&field.name, field.ty, value, &strings))
            };
            return Ok(Some(fields.map(named).collect()));
        }
    }
    Ok(None)
}

/// Calls `with` on what becomes of threads, in order of time: when, the thread, and what. What waits
/// are for is what the schema `threads` says.
pub fn for_each_thread_doing(
    trace: &Trace,
    with: &mut dyn FnMut(u64, u32, Activity),
) -> Result<Vec<String>> {
    let source = Source::new("threads", shipped("threads").unwrap_or_default());
    let program = compile(&[source], &shipped)?;
    let (kinds, _) = trace.event_kinds()?;
    let catalog = program.catalog();
    // Switches that only probes report are drawn as such.
    let recorded: Vec<_> = kinds.iter().filter_map(|kind| catalog.find(&kind.name)).collect();
    let used = |event| program.schemas()[0].uses(event) && recorded.contains(&event);
    let mut feed = Feed::open(trace, &program, &used)?;
    let mut activities = Activities::new(program.clone(), feed.switches());
    let mut batch = fettle_requests::Batch::new(catalog);
    let mut names = Names::default();
    while feed.next(&mut batch, &mut names)? {
        for row in 0..batch.len() {
            activities.take(&batch, row, &mut |_, key, doing| {
                with(batch.time_ns(row), key as u32, doing);
            });
        }
    }
    Ok(feed.problems().to_vec())
}
