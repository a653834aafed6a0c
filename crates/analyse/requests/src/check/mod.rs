//! From [`crate::syntax`] to [`Program`]: names are looked up, types compared, limits kept.
//!
//! A schema is a file with the files it uses, each once. Its own rules are tried before theirs.

mod expressions;
mod statements;

use std::collections::HashMap;

use crate::diagnostic::{Diagnostic, Report, Severity, Source, Span, suggest};
use crate::event::{Catalog, EventId, EventType, Field, FieldType, Strings};
use crate::parser::parse;
use crate::program::{Lane, LaneId, Program, Schema};
use crate::state::{State, Wait};
use crate::syntax::{self, Declaration, DeclaredField, File, Name};

/// Longest text of a file.
const TEXT_MAX: usize = 1 << 20;

/// Most files of a schema.
const FILES_MAX: usize = 256;

/// Most fields of an event, and of a key.
const PARTS_MAX: usize = 16;

/// Most bindings, marks and the like of a rule, and most of its derived fields.
const STATEMENTS_MAX: usize = 32;

/// Most bits of a key.
const KEY_BITS_MAX: u32 = 128;

/// Most parts of expressions in all rules: what is left when rules for many events are multiplied.
const EXPRS_MAX: usize = 1 << 18;

/// Most timelines, streams or classes of a schema.
const LANES_MAX: usize = 4096;

/// Checks schemas and makes a program of them. `library` finds the files they use.
///
/// # Errors
///
/// All that is wrong, up to a number that people read.
pub fn compile(
    sources: &[Source],
    library: &dyn Fn(&str) -> Option<String>,
) -> Result<Program, Report> {
    let mut checker = Checker::default();
    let mut schemas = Vec::new();
    for source in sources {
        schemas.extend(checker.schema(source, library));
    }
    let Checker { catalog, strings, report, .. } = checker;
    if report.has_errors() {
        return Err(report);
    }
    for schema in &mut schemas {
        // Stable: the order in which rules are tried stays.
        schema.rules.sort_by_key(|rule| rule.event);
        let events = 0..catalog.events().len();
        let bound = |event: usize| schema.rules.partition_point(|rule| rule.event.index() < event);
        schema.by_event = events.map(|e| (bound(e) as u32, bound(e + 1) as u32)).collect();
    }
    Ok(Program { catalog, strings, schemas, warnings: report })
}

#[derive(Default)]
struct Checker {
    catalog: Catalog,
    strings: Strings,
    report: Report,
    /// Where events were declared first.
    declared: HashMap<String, (usize, Span)>,
    exprs: usize,
}

/// The names of one schema.
#[derive(Default)]
struct Names {
    timelines: Vec<Lane>,
    streams: Vec<Lane>,
    lanes: HashMap<String, LaneId>,
    classes: Vec<String>,
}

/// An error was reported.
struct Failed;

type Checked<T> = Result<T, Failed>;

impl Checker {
    fn say(&mut self, file: usize, span: Span, severity: Severity, what: (String, Option<String>)) {
        let (message, help) = what;
        self.report.add(Diagnostic { severity, file, span, message, help });
    }

    fn error<T>(&mut self, file: usize, span: Span, message: impl Into<String>) -> Checked<T> {
        self.error_with(file, span, message, None)
    }

    fn error_with<T>(
        &mut self,
        file: usize,
        span: Span,
        message: impl Into<String>,
        help: Option<String>,
    ) -> Checked<T> {
        self.say(file, span, Severity::Error, (message.into(), help));
        Err(Failed)
    }

    fn schema(
        &mut self,
        source: &Source,
        library: &dyn Fn(&str) -> Option<String>,
    ) -> Option<Schema> {
        let files = self.files(source, library);
        let mut names = Names::default();
        for (file, content) in &files {
            for event in &content.events {
                let _ = self.event(*file, event);
            }
            for lane in &content.timelines {
                let _ = self.lane(*file, &lane.declaration, Some(lane), &mut names);
            }
            for stream in &content.streams {
                let _ = self.lane(*file, stream, None, &mut names);
            }
        }
        let mut rules = Vec::new();
        let events = self.catalog.events().len();
        for (file, content) in &files {
            // Events that a rule of this file takes whatever their fields say.
            let mut taken = vec![false; events];
            for rule in &content.rules {
                for name in &rule.events {
                    if self.report.full() {
                        return None;
                    }
                    let Some(event) = self.event_named(*file, name, &taken) else { continue };
                    let Ok(compiled) = self.rule(*file, rule, event, &mut names) else { continue };
                    taken[event.index()] |= rule.filter.is_none();
                    rules.push(compiled);
                }
            }
        }
        if !rules.is_empty() && rules.iter().all(|rule| rule.seed.is_none()) {
            let message = "no rule of this schema has a `seed`: no request begins".into();
            let file = files.first().map_or(0, |(file, _)| *file);
            self.say(file, Span::default(), Severity::Warning, (message, None));
        }
        let Names { timelines, streams, classes, .. } = names;
        let name = source.name.clone();
        Some(Schema { name, timelines, streams, classes, rules, by_event: Vec::new() })
    }

    /// The file and those it uses, its own first.
    fn files(
        &mut self,
        source: &Source,
        library: &dyn Fn(&str) -> Option<String>,
    ) -> Vec<(usize, File)> {
        let mut files = vec![self.file(source.clone())];
        let mut seen: Vec<String> = vec![source.name.clone()];
        let mut next = 0;
        while next < files.len() {
            let (user, used) = (files[next].0, files[next].1.uses.clone());
            next += 1;
            for name in used {
                if seen.contains(&name.text) || files.len() >= FILES_MAX {
                    continue;
                }
                seen.push(name.text.clone());
                match library(&name.text) {
                    Some(text) => files.push(self.file(Source::new(name.text, text))),
                    None => {
                        let known = crate::shipped::SCHEMAS.iter().map(|(name, _)| *name);
                        let help = suggest(&name.text, known);
                        let message = format!("there is no schema `{}`", name.text);
                        let _ = self.error_with::<()>(user, name.span, message, help);
                    }
                }
            }
        }
        files
    }

    fn file(&mut self, source: Source) -> (usize, File) {
        let file = self.report.files.len();
        let text = source.text.clone();
        self.report.files.push(source);
        if text.len() > TEXT_MAX {
            let message = format!("a schema has at most {TEXT_MAX} bytes");
            let _ = self.error::<()>(file, Span::default(), message);
            return (file, File::default());
        }
        let (content, complaints) = parse(&text);
        for complaint in complaints {
            let what = (complaint.message, complaint.help);
            self.say(file, complaint.span, Severity::Error, what);
        }
        (file, content)
    }

    /// Where something was said first, for the help of a second one.
    fn place(&self, (file, span): (usize, Span)) -> String {
        let (line, column) = self.report.position(file, span.start);
        let name = self.report.files.get(file).map_or("", |file| &file.name);
        format!("the other is at {name}:{line}:{column}")
    }

    fn fields(&mut self, file: usize, declaration: &Declaration) -> Checked<Vec<Field>> {
        let mut fields: Vec<Field> = Vec::new();
        for DeclaredField { name, ty, optional } in &declaration.fields {
            if fields.len() == PARTS_MAX {
                return self.error(file, name.span, format!("more than {PARTS_MAX} fields"));
            }
            if fields.iter().any(|field| field.name == name.text) {
                return self.error(file, name.span, format!("a second field `{}`", name.text));
            }
            let Some(ty) = FieldType::from_name(&ty.text) else {
                let names = FieldType::ALL.map(|(name, _)| name);
                let help = suggest(&ty.text, names)
                    .unwrap_or_else(|| format!("types are {}", names.join(", ")));
                let message = format!("there is no type `{}`", ty.text);
                return self.error_with(file, ty.span, message, Some(help));
            };
            if !optional && fields.last().is_some_and(|field| field.optional) {
                let message = format!("`{}` stands behind an optional field", name.text);
                let help = Some("optional fields come last".into());
                return self.error_with(file, name.span, message, help);
            }
            fields.push(Field { name: name.text.clone(), ty, optional: *optional });
        }
        Ok(fields)
    }

    fn event(&mut self, file: usize, declaration: &Declaration) -> Checked<()> {
        let fields = self.fields(file, declaration)?;
        let name = &declaration.name;
        let event = EventType { name: name.text.clone(), fields };
        if let Some(known) = self.catalog.find(&name.text) {
            if self.catalog.get(known) == Some(&event) {
                return Ok(());
            }
            let help = self.declared.get(&name.text).map(|place| self.place(*place));
            let message = format!("event `{}` is declared twice, with other fields", name.text);
            return self.error_with(file, name.span, message, help);
        }
        if self.catalog.events().len() == Catalog::MAX {
            return self.error(file, name.span, format!("more than {} events", Catalog::MAX));
        }
        self.catalog.add(event);
        self.declared.insert(name.text.clone(), (file, name.span));
        Ok(())
    }

    fn lane(
        &mut self,
        file: usize,
        declaration: &Declaration,
        timeline: Option<&syntax::Timeline>,
        names: &mut Names,
    ) -> Checked<()> {
        let key = self.fields(file, declaration)?;
        let name = &declaration.name;
        if let Some(field) = key.iter().find(|field| field.optional) {
            let message = format!("`{}` is part of a key, which no key can lack", field.name);
            return self.error(file, name.span, message);
        }
        let bits: u32 = key.iter().map(|field| field.ty.bits()).sum();
        if bits > KEY_BITS_MAX {
            let message = format!("this key has {bits} bits; {KEY_BITS_MAX} are possible");
            return self.error(file, name.span, message);
        }
        if key.is_empty() {
            let message = "a key needs a field".to_string();
            let help = Some(format!("such as `{}(tid: u32)`", name.text));
            return self.error_with(file, name.span, message, help);
        }
        if names.lanes.contains_key(&name.text) {
            let message = format!("a second timeline or stream `{}`", name.text);
            return self.error(file, name.span, message);
        }
        let actor = timeline.is_some_and(|timeline| timeline.actor);
        let implicit = timeline.is_some_and(|timeline| timeline.implicit);
        let expects = timeline.and_then(|timeline| timeline.expects);
        if actor && expects == Some(State::Queued) {
            return self.never_queued(file, name.span);
        }
        let expects = expects.unwrap_or(State::Waiting(Wait::default()));
        let lane = Lane { name: name.text.clone(), key, actor, implicit, expects };
        let (list, found): (_, fn(usize) -> LaneId) = match timeline {
            Some(_) => (&mut names.timelines, LaneId::Timeline),
            None => (&mut names.streams, LaneId::Stream),
        };
        if list.len() == LANES_MAX {
            return self.error(file, name.span, format!("more than {LANES_MAX} of them"));
        }
        names.lanes.insert(name.text.clone(), found(list.len()));
        list.push(lane);
        Ok(())
    }

    fn event_named(&mut self, file: usize, name: &Name, taken: &[bool]) -> Option<EventId> {
        let Some(event) = self.catalog.find(&name.text) else {
            let names: Vec<&str> = self.catalog.events().iter().map(|e| e.name.as_str()).collect();
            let help = suggest(&name.text, names);
            let message = format!("there is no event `{}`", name.text);
            let _ = self.error_with::<()>(file, name.span, message, help);
            return None;
        };
        if taken.get(event.index()) == Some(&true) {
            let message = format!("this rule is never reached for `{}`", name.text);
            let help = "a rule above takes all of them; the first that matches is used";
            self.say(file, name.span, Severity::Warning, (message, Some(help.into())));
        }
        Some(event)
    }
}
