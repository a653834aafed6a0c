//! What threads did, whatever requests they did it for: every event that names one, and whether it ran,
//! could have run, or waited for what.

use fettle_requests::{Activities, Activity, Source, Strings, compile, shipped};
use fettle_trace::{EventKind, FieldType, Trace};

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
    /// The span that it is the beginning or the end of.
    pub span: Option<SpanCodes>,
}

/// Codes of the texts of a span, as tracing libraries report them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanCodes {
    /// Its name; only its beginning has one.
    pub name: Option<u32>,
    /// What tells it from others.
    pub id: (u32, u32),
}

/// What a pass over all events came to.
#[derive(Debug)]
pub struct ThreadEvents {
    /// Names of the kinds.
    pub kinds: Vec<String>,
    /// Texts by code.
    pub texts: Strings,
    /// What could not be read.
    pub problems: Vec<String>,
}

/// Calls `with` on all events of a trace, whatever their kinds, in order of time.
pub fn for_each_thread_event(
    trace: &Trace,
    with: &mut dyn FnMut(ThreadEvent),
) -> Result<ThreadEvents> {
    let mut texts = Strings::default();
    let (mut stream, damaged) = trace.events(&mut |kind| Some(Columns::of(kind).places()))?;
    let kinds = stream.kinds().map(|kind| kind.name.clone()).collect();
    let columns: Vec<Columns> = stream.kinds().map(Columns::of).collect();
    let mut problems: Vec<String> = damaged.iter().map(ToString::to_string).collect();
    loop {
        match stream.next(u64::MAX, &mut |text| texts.code(text)) {
            Ok(Some(run)) => {
                let kind = run.kind;
                let Columns { thread, span } = columns[kind];
                // Columns come in the order in which they were asked for.
                let first = usize::from(thread.is_some());
                let text = |column: usize, row: usize| run.values(first + column)[row] as u32;
                for (row, time_ns) in run.times_ns().iter().enumerate() {
                    let tid = thread.map_or(0, |_| run.values(0)[row] as u32);
                    let span = span.map(|span| SpanCodes {
                        id: (text(0, row), text(1, row)),
                        name: span.name.map(|_| text(2, row)),
                    });
                    with(ThreadEvent { time_ns: *time_ns, tid, kind, span });
                }
            }
            Ok(None) => return Ok(ThreadEvents { kinds, texts, problems }),
            // The file is given up; the others go on.
            Err(error) => problems.push(error.to_string()),
        }
    }
}

/// Which columns of a kind of events are read.
#[derive(Clone, Copy)]
struct Columns {
    thread: Option<usize>,
    span: Option<SpanColumns>,
}

/// Those of the beginning or the end of a span.
#[derive(Clone, Copy)]
struct SpanColumns {
    trace: usize,
    span: usize,
    name: Option<usize>,
}

impl Columns {
    fn of(kind: &EventKind) -> Columns {
        let text = |field| kind.place(field).filter(|at| kind.fields[*at].ty == FieldType::Text);
        let is_span = kind.name.ends_with("_begin") || kind.name.ends_with("_end");
        let span = text("trace").zip(text("span")).filter(|_| is_span);
        let name = text("name").filter(|_| kind.name.ends_with("_begin"));
        let span = span.map(|(trace, span)| SpanColumns { trace, span, name });
        Columns { thread: kind.place(THREAD), span }
    }

    fn places(self) -> Vec<usize> {
        let span = self.span.map(|span| [Some(span.trace), Some(span.span), span.name]);
        self.thread.into_iter().chain(span.into_iter().flatten().flatten()).collect()
    }
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
    let thread = known.place(THREAD);
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
