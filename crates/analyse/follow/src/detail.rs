//! One request whole: which actors worked for it, what they did, and every event.

use fettle_requests::{Batch, FieldType, LinkKind, Peer, Request, State, Strings};

use crate::JSON_VERSION;
use crate::error::Result;
use crate::named;
use crate::session::{Context, Session};
use crate::view::{Actor, Detail, EventRow, LinkRow, SectionRow, SpanRow, TimesNs};

impl Session<'_> {
    /// Everything about one request; nothing if there is none of that number.
    ///
    /// Reads the trace twice: the request is known when it is complete, and the fields of its
    /// events lie before that.
    pub fn request(&self, schema: usize, id: u64) -> Result<Option<Detail>> {
        let mut found: Option<(Request, Detail)> = None;
        let ran = self.run_for(id, &mut |request, context| {
            if (request.schema, request.id) == (schema, id) {
                found = Some((request.clone(), detail(request, context)));
            }
            found.is_none()
        })?;
        let Some((request, mut detail)) = found else { return Ok(None) };
        detail.problems = ran.problems;
        let used = |event| self.program.schemas().iter().any(|schema| schema.uses(event));
        self.events(
            &used,
            0,
            &mut |place: &mut usize, first, batch, context| {
                while let Some(event) = request.events.get(*place) {
                    let row = event.ordinal.saturating_sub(first) as usize;
                    if row >= batch.len() {
                        return true;
                    }
                    detail.events[*place].fields = fields(batch, row, context);
                    *place += 1;
                }
                false
            },
            |_, _| (),
        )?;
        detail.named = named::spans(&detail.events, detail.request.end_ns);
        detail.named_critical = named::critical(&detail.named);
        Ok(Some(detail))
    }

    /// Calls `with` on each event that the schemas use, with its place among all of them
    /// ([`fettle_requests::RequestEvent::ordinal`]). Names every field: not for many events.
    pub fn for_each_event(&self, with: &mut dyn FnMut(u64, &EventRow)) -> Result<()> {
        let used = |event| self.program.schemas().iter().any(|schema| schema.uses(event));
        self.events(
            &used,
            with,
            &mut |with, first, batch, context| {
                for row in 0..batch.len() {
                    let kind = context.program.catalog().get(batch.kind(row));
                    let event = EventRow {
                        time_ns: batch.time_ns(row),
                        name: kind.map(|kind| kind.name.clone()).unwrap_or_default(),
                        actor: None,
                        fields: fields(batch, row, context),
                        shared: false,
                    };
                    with(first + row as u64, &event);
                }
                true
            },
            |_, _| (),
        )?;
        Ok(())
    }
}

/// Names and values of an event's fields.
fn fields(batch: &Batch, row: usize, context: &Context<'_>) -> Vec<(String, String)> {
    let Some(kind) = context.program.catalog().get(batch.kind(row)) else { return Vec::new() };
    let columns = kind.fields.iter().enumerate();
    let field = |(column, field): (usize, &fettle_requests::Field)| {
        let value = shown(&field.name, field.ty, batch.value(row, column), context.strings);
        (field.name.clone(), value)
    };
    columns.map(field).collect()
}

/// A field's value as it is shown.
pub(crate) fn shown(name: &str, ty: FieldType, value: u64, strings: &Strings) -> String {
    match ty {
        FieldType::Text => strings.of_value(value).to_owned(),
        FieldType::Bool => if value != 0 { "true" } else { "false" }.to_owned(),
        ty if ty.signed() => (value as i64).to_string(),
        _ if name == "address" => format!("{value:#x}"),
        _ => value.to_string(),
    }
}

/// Everything but the fields of events.
fn detail(request: &Request, context: &Context<'_>) -> Detail {
    let program = context.program;
    let schema = program.schemas().get(request.schema);
    // Sections of one actor are one actor.
    let mut keys: Vec<(usize, u128)> = Vec::new();
    let mut actors: Vec<Actor> = Vec::new();
    let mut actor_of: Vec<Option<usize>> = Vec::new();
    let mut sections = Vec::new();
    for section in &request.sections {
        let key = (section.timeline, section.key);
        let actor = section.actor.then(|| {
            keys.iter().position(|known| *known == key).unwrap_or_else(|| {
                keys.push(key);
                actors.push(context.actor(request, key.0, key.1, section.joined_ns));
                keys.len() - 1
            })
        });
        let lane = schema.and_then(|schema| schema.timelines().get(section.timeline));
        actor_of.push(actor);
        sections.push(SectionRow {
            timeline: lane.map(|lane| lane.name.clone()).unwrap_or_default(),
            name: program.describe(request.schema, key.0, key.1, context.strings),
            actor,
            from_ns: section.joined_ns,
            to_ns: section.left_ns,
        });
    }
    let actor_at = |section: u32| actor_of.get(section as usize).copied().flatten();
    let mut spans = Vec::new();
    for span in &request.spans {
        let Some(actor) = actor_at(span.section) else { continue };
        let length_ns = span.to_ns.saturating_sub(span.from_ns);
        add(&mut actors[actor].times_ns, span.state, length_ns);
        spans.push(SpanRow {
            actor,
            state: span.state.name(),
            from_ns: span.from_ns,
            to_ns: span.to_ns,
            shared: span.shared,
        });
    }
    spans.sort_by_key(|span| (span.actor, span.from_ns));
    let link = |link: &fettle_requests::Link| {
        let to_actor = actor_at(link.to)?;
        let (from, from_actor) = match link.from {
            Peer::Section(from) => (actors[actor_at(from)?].name.clone(), actor_at(from)),
            Peer::Outsider { timeline, key, .. } => {
                (context.actor(request, timeline, key, link.from_ns).name, None)
            }
        };
        let kind = match link.kind {
            LinkKind::Handoff => "hand-off",
            LinkKind::Timeline => "timeline",
            LinkKind::Bytes => "bytes",
        };
        let (from_ns, to_ns) = (link.from_ns, link.to_ns);
        Some(LinkRow {
            kind,
            from,
            from_actor,
            from_ns,
            to_actor,
            to_ns,
            certainty: link.certainty.name(),
            likely: link.certainty.likely(),
            candidates: link.certainty.candidates(),
        })
    };
    let links = request.links.iter().filter_map(link).collect();
    let event = |event: &fettle_requests::RequestEvent| EventRow {
        time_ns: event.time_ns,
        name: program.catalog().get(event.kind).map(|kind| kind.name.clone()).unwrap_or_default(),
        actor: event.actor().and_then(actor_at),
        fields: Vec::new(),
        shared: event.shared,
    };
    Detail {
        version: JSON_VERSION,
        schema: schema.map(|schema| schema.name().to_owned()).unwrap_or_default(),
        request: context.row(request),
        events: request.events.iter().map(event).collect(),
        critical: context.critical(request),
        named: Vec::new(),
        named_critical: Vec::new(),
        shared_with: request.shared_with.clone(),
        problems: Vec::new(),
        actors,
        sections,
        spans,
        links,
    }
}

fn add(times: &mut TimesNs, state: State, ns: u64) {
    let mut one = fettle_requests::Times::default();
    one.add(state, ns);
    times.add(one.into());
}
