//! From [`crate::syntax`] to [`Program`]: names are looked up, types compared, limits kept.
//!
//! A schema is a file with the files it uses, each once. Its own rules are tried before theirs.

use std::collections::HashMap;

use crate::diagnostic::{Diagnostic, Report, Severity, Source, Span, suggest};
use crate::event::{Catalog, EventId, EventType, Field, FieldType, Strings};
use crate::parser::parse;
use crate::program::{
    After, Answered, Bind, ContextTransfer, Expr, Handoff, Key, KeyId, Lane, LaneId, Mark, Part,
    Program, Rule, Schema, SectionEnd, Seed, Traffic, Transfer, When, split,
};
use crate::state::{NewState, State, Wait};
use crate::syntax::{
    self, Action, Binary, Class, Declaration, DeclaredField, ExprKind, File, Name, Role, Unary,
};

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

/// What an expression may be compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    /// A number, with its smallest and largest value if they are known.
    Number(Option<(i128, i128)>),
    Bool,
    Text,
}

impl Type {
    fn of(ty: FieldType) -> Type {
        match ty {
            FieldType::Bool => Type::Bool,
            FieldType::Text => Type::Text,
            _ => Type::Number(Some(ty.range())),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Type::Number(_) => "a number",
            Type::Bool => "a truth value",
            Type::Text => "a text",
        }
    }

    fn like(self, other: Type) -> bool {
        self.name() == other.name()
    }
}

/// Where expressions are read: the file, the event, and what was derived so far.
struct Context<'a> {
    file: usize,
    event: &'a EventType,
    derived: Vec<(String, Type)>,
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

    fn rule(
        &mut self,
        file: usize,
        rule: &syntax::Rule,
        event: EventId,
        names: &mut Names,
    ) -> Checked<Rule> {
        let Some(declared) = self.catalog.get(event).cloned() else { return Err(Failed) };
        let mut context = Context { file, event: &declared, derived: Vec::new() };
        let filter = match &rule.filter {
            None => None,
            Some(filter) => Some(self.typed(filter, Type::Bool, "a filter is", &context)?),
        };
        let (tests, filter) = filter.map_or_else(Default::default, split);
        let mut made = Rule {
            event,
            tests: tests.into(),
            filter,
            locals: Vec::new(),
            keys: Vec::new(),
            marks: Vec::new(),
            binds: Vec::new(),
            lends: Vec::new(),
            drops: Vec::new(),
            handoffs: Vec::new(),
            transfers: Vec::new(),
            settles: Vec::new(),
            seed: None,
            choice: None,
            end: false,
            notes: false,
            stops: false,
            simple: false,
            values: false,
        };
        // One wrong statement does not hide the next.
        let mut result = Ok(());
        for statement in &rule.statements {
            let done = self.statement(statement, &mut context, names, &mut made);
            result = result.and(done);
            let passed = made.transfers.len() + made.handoffs.len() + made.lends.len();
            let parts = made.binds.len() + made.drops.len() + made.marks.len() + passed;
            if parts.max(made.locals.len()) > STATEMENTS_MAX {
                let message =
                    format!("a rule has at most {STATEMENTS_MAX} bindings and derived fields");
                return self.error(file, statement.span, message);
            }
        }
        // Actors first: see `Run::touch`. A hand-off's giving side is found again by its place.
        let mut order: Vec<usize> = (0..made.binds.len()).collect();
        order.sort_by_key(|n| !made.binds[*n].actor);
        made.binds = order.iter().map(|n| made.binds[*n].clone()).collect();
        for handoff in &mut made.handoffs {
            handoff.from = order.iter().position(|n| *n == handoff.from).unwrap_or(handoff.from);
        }
        made.notes = made.binds.iter().any(|bind| bind.role == Role::Note);
        made.stops = made.binds.iter().any(|bind| bind.role == Role::Stop);
        let only_binds = made.only_binds();
        let usual = |bind: &Bind| matches!(bind.role, Role::Start | Role::Basic | Role::Stop);
        let valued = |seed: &Seed| seed.label.is_some() || seed.queued.is_some();
        let valued = made.seed.as_ref().is_some_and(valued);
        made.simple = only_binds && made.binds.iter().all(usual) && !valued && sort_keys(&mut made);
        made.values = valued || !made.transfers.is_empty() || made.choice.is_some();
        result.map(|()| made)
    }

    fn statement(
        &mut self,
        statement: &syntax::Statement,
        context: &mut Context<'_>,
        names: &mut Names,
        made: &mut Rule,
    ) -> Checked<()> {
        let file = context.file;
        match &statement.what {
            Action::Let(name, value) => self.derive(name, value, context, made)?,
            Action::Bind { role, lane, after, change, when } => match self
                .find(lane, context, names)?
            {
                (LaneId::Timeline(timeline), key) => {
                    let after =
                        after.as_ref().map(|events| self.after(file, events)).transpose()?;
                    self.change(change, &names.timelines[timeline], true, file)?;
                    let key = made.key(LaneId::Timeline(timeline), key);
                    let mut made_bind = bind(*role, timeline, key, names, (after, *change));
                    made_bind.when = self.when(when, context, names, made)?;
                    made.binds.push(made_bind);
                }
                (LaneId::Stream(stream), key) => {
                    let plain = after.is_none() && change.of_actor().is_none();
                    if !matches!(role, Role::Start | Role::Stop) || !plain {
                        let help = "streams have `send`, `receive`, `start` and `stop`".to_string();
                        let message = format!("`{}` is a stream", lane.name.text);
                        return self.error_with(file, lane.name.span, message, Some(help));
                    }
                    let key = made.key(LaneId::Stream(stream), key);
                    let when = self.when(when, context, names, made)?;
                    made.transfers.push(Transfer { key, what: Traffic::Reset { when } });
                }
            },
            Action::Mark { set, lane, when } => {
                let (_, key, when) = self.conditional(lane, when, context, names, made)?;
                made.marks.push(Mark { key, set: *set, when });
            }
            Action::ContextTransfer { from, to, when } => {
                let (_, from) = self.timeline(from, context, names, made)?;
                let (timeline, to, when) = self.conditional(to, when, context, names, made)?;
                let actor = names.timelines[timeline].actor;
                made.lends.push(ContextTransfer { from, timeline, actor, to, when });
            }
            Action::Drop { settled, lane, when } => {
                let (timeline, key, when) = self.conditional(lane, when, context, names, made)?;
                made.drops.push(SectionEnd { timeline, key, settled: *settled, when });
            }
            Action::Handoff { from, start, to, change, when } => {
                let (from, from_key) = self.timeline(from, context, names, made)?;
                let (timeline, key, when) = self.conditional(to, when, context, names, made)?;
                self.change(change, &names.timelines[timeline], false, file)?;
                let nothing = (None, syntax::Change::default());
                made.binds.push(bind(Role::Basic, from, from_key, names, nothing));
                let from = made.binds.len() - 1;
                let (actor, start) = (names.timelines[timeline].actor, *start);
                let change = change.of_actor();
                made.handoffs.push(Handoff { from, timeline, actor, key, start, change, when });
            }
            Action::Send { lane, bytes, at, when } => {
                let (key, bytes, at) =
                    self.transfer(lane, (bytes, at.as_ref()), context, names, made)?;
                let when = self.when(when, context, names, made)?;
                made.transfers.push(Transfer { key, what: Traffic::Send { bytes, at, when } });
            }
            Action::Receive { lane, bytes, at, answers } => {
                let (key, bytes, at) =
                    self.transfer(lane, (bytes, at.as_ref()), context, names, made)?;
                let answers = answers.as_ref();
                let answers = answers.map(|lane| self.stream(lane, context, names, made));
                let what = Traffic::Receive { bytes, at, answers: answers.transpose()? };
                made.transfers.push(Transfer { key, what });
            }
            Action::Seed { class, queued } => {
                let seed = (class.as_ref(), queued.as_ref());
                made.seed = Some(self.seed(seed, statement.span, context, names)?);
            }
            Action::Choice { likely, candidates } => {
                let number = Type::Number(None);
                let likely =
                    self.typed(likely, number, "how likely a choice is right is", context)?;
                let what = "how many a choice was among is";
                made.choice = Some((likely, self.typed(candidates, number, what, context)?));
            }
            Action::Answered { set, when } => {
                let when = self.when(when, context, names, made)?;
                made.settles.push(Answered { set: *set, when });
            }
            Action::End => made.end = true,
        }
        Ok(())
    }

    /// A field that is derived from others.
    fn derive(
        &mut self,
        name: &Name,
        value: &syntax::Expr,
        context: &mut Context<'_>,
        made: &mut Rule,
    ) -> Checked<()> {
        let taken = context.event.fields.iter().any(|field| field.name == name.text)
            || context.derived.iter().any(|(derived, _)| *derived == name.text);
        if taken {
            let message = format!("there is a field `{}` already", name.text);
            return self.error(context.file, name.span, message);
        }
        let (value, ty) = self.expr(value, context)?;
        made.locals.push(value);
        context.derived.push((name.text.clone(), ty));
        Ok(())
    }

    /// What a request is called that an event begins, and how long it lay there before.
    fn seed(
        &mut self,
        (class, queued): (Option<&Class>, Option<&syntax::Expr>),
        span: Span,
        context: &Context<'_>,
        names: &mut Names,
    ) -> Checked<Seed> {
        let own = match class {
            Some(Class::Text(text)) => text,
            _ => &context.event.name,
        };
        let label = match class {
            Some(Class::Field(name)) => {
                let kind = ExprKind::Name(name.text.clone());
                let expr = syntax::Expr { kind, span: name.span };
                Some(self.typed(&expr, Type::Text, "what a seed is called is", context)?)
            }
            _ => None,
        };
        let what = "the time that a request was queued is";
        let queued =
            queued.map(|expr| self.typed(expr, Type::Number(None), what, context)).transpose()?;
        Ok(Seed { class: self.class(own, names, context.file, span)?, label, queued })
    }

    /// A timeline, the place of its key's values, and the marks that a statement depends on.
    fn conditional(
        &mut self,
        lane: &syntax::Lane,
        when: &[syntax::When],
        context: &Context<'_>,
        names: &Names,
        made: &mut Rule,
    ) -> Checked<(usize, KeyId, Vec<When>)> {
        let (timeline, key) = self.timeline(lane, context, names, made)?;
        Ok((timeline, key, self.when(when, context, names, made)?))
    }

    /// What a statement depends on.
    fn when(
        &mut self,
        when: &[syntax::When],
        context: &Context<'_>,
        names: &Names,
        made: &mut Rule,
    ) -> Checked<Vec<When>> {
        when.iter()
            .map(|syntax::When { lane, settled, there }| {
                let (_, key) = self.timeline(lane, context, names, made)?;
                Ok(When { key, settled: *settled, there: *there })
            })
            .collect()
    }

    /// A stream and the values of its key.
    fn stream(
        &mut self,
        lane: &syntax::Lane,
        context: &Context<'_>,
        names: &Names,
        made: &mut Rule,
    ) -> Checked<KeyId> {
        if let (stream @ LaneId::Stream(_), key) = self.find(lane, context, names)? {
            return Ok(made.key(stream, key));
        }
        let message = format!("`{}` is a timeline, not a stream", lane.name.text);
        self.error(context.file, lane.name.span, message)
    }

    /// A stream, and which of its bytes.
    fn transfer(
        &mut self,
        lane: &syntax::Lane,
        (bytes, at): (&syntax::Expr, Option<&syntax::Expr>),
        context: &Context<'_>,
        names: &Names,
        made: &mut Rule,
    ) -> Checked<(KeyId, Expr, Option<Expr>)> {
        let key = self.stream(lane, context, names, made)?;
        let number = Type::Number(None);
        let bytes = self.typed(bytes, number, "the number of bytes is", context)?;
        let at = at.map(|at| self.typed(at, number, "an offset is", context)).transpose()?;
        Ok((key, bytes, at))
    }

    fn class(&mut self, class: &str, names: &mut Names, file: usize, span: Span) -> Checked<u16> {
        if let Some(known) = names.classes.iter().position(|name| name == class) {
            return Ok(known as u16);
        }
        if names.classes.len() == LANES_MAX {
            return self.error(file, span, format!("more than {LANES_MAX} kinds of seeds"));
        }
        names.classes.push(class.into());
        Ok((names.classes.len() - 1) as u16)
    }

    fn after(&mut self, file: usize, names: &[Name]) -> Checked<After> {
        let mut after = After::default();
        for name in names {
            if name.text == "nothing" {
                after.nothing = true;
            } else {
                after.events.push(self.event_named(file, name, &[]).ok_or(Failed)?);
            }
        }
        Ok(after)
    }

    /// Whether what a statement says of a timeline can be said. Of one that is no actor it can only
    /// say what was waited for, if it `touches` it.
    fn change(
        &mut self,
        change: &syntax::Change,
        lane: &Lane,
        touches: bool,
        file: usize,
    ) -> Checked<()> {
        let queued = change.is == Some(NewState::State(State::Queued))
            || change.expects == Some(State::Queued);
        if lane.actor && queued {
            return self.never_queued(file, change.span);
        }
        let only_actors = change.is.is_some() || change.was.is_some();
        if lane.actor || !(only_actors || (change.expects.is_some() && !touches)) {
            return Ok(());
        }
        let message = format!("`{}` is a timeline; only actors run and wait", lane.name);
        let help = Some(format!("declare it as `actor {}(…)` if it does", lane.name));
        self.error_with(file, change.span, message, help)
    }

    fn never_queued<T>(&mut self, file: usize, span: Span) -> Checked<T> {
        let help = Some("a timeline that it takes work from may expect `queued`".to_string());
        let message = "what is queued has not come to an actor yet".to_string();
        self.error_with(file, span, message, help)
    }

    fn timeline(
        &mut self,
        lane: &syntax::Lane,
        context: &Context<'_>,
        names: &Names,
        made: &mut Rule,
    ) -> Checked<(usize, KeyId)> {
        match self.find(lane, context, names)? {
            (LaneId::Timeline(timeline), key) => {
                Ok((timeline, made.key(LaneId::Timeline(timeline), key)))
            }
            (LaneId::Stream(_), _) => {
                let message = format!("`{}` is a stream, not a timeline", lane.name.text);
                let help = Some("use `send` and `receive`".into());
                self.error_with(context.file, lane.name.span, message, help)
            }
        }
    }

    fn find(
        &mut self,
        lane: &syntax::Lane,
        context: &Context<'_>,
        names: &Names,
    ) -> Checked<(LaneId, Key)> {
        let Some(found) = names.lanes.get(&lane.name.text).copied() else {
            let help = suggest(&lane.name.text, names.lanes.keys().map(String::as_str));
            let message = format!("there is no timeline or stream `{}`", lane.name.text);
            return self.error_with(context.file, lane.name.span, message, help);
        };
        let declared = match found {
            LaneId::Timeline(n) => &names.timelines[n],
            LaneId::Stream(n) => &names.streams[n],
        };
        if declared.key.len() != lane.key.len() {
            let fields: Vec<&str> = declared.key.iter().map(|field| field.name.as_str()).collect();
            let help = Some(format!("its key is ({})", fields.join(", ")));
            let message = format!(
                "`{}` has a key of {}, not of {}",
                lane.name.text,
                declared.key.len(),
                lane.key.len()
            );
            return self.error_with(context.file, lane.name.span, message, help);
        }
        let mut parts = Vec::new();
        for (field, value) in declared.key.iter().zip(&lane.key) {
            let what = format!("field `{}` of the key is", field.name);
            let (compiled, ty) = self.expr(value, context)?;
            self.same(ty, Type::of(field.ty), &what, value.span, context.file)?;
            let (least, most) = field.ty.range();
            let fits = match ty {
                Type::Number(Some((low, high))) => low >= least && high <= most,
                Type::Number(None) => false,
                Type::Bool | Type::Text => true,
            };
            let range = (!fits).then_some((least, most));
            parts.push(Part { value: compiled, bits: field.ty.bits(), range });
        }
        Ok((found, Key::new(parts)))
    }

    fn same(
        &mut self,
        found: Type,
        expected: Type,
        what: &str,
        span: Span,
        file: usize,
    ) -> Checked<()> {
        match found.like(expected) {
            true => Ok(()),
            false => {
                let message = format!("{what} {}, and this is {}", expected.name(), found.name());
                self.error(file, span, message)
            }
        }
    }

    fn typed(
        &mut self,
        expr: &syntax::Expr,
        expected: Type,
        what: &str,
        context: &Context<'_>,
    ) -> Checked<Expr> {
        let (compiled, ty) = self.expr(expr, context)?;
        self.same(ty, expected, what, expr.span, context.file)?;
        Ok(compiled)
    }

    fn expr(&mut self, expr: &syntax::Expr, context: &Context<'_>) -> Checked<(Expr, Type)> {
        self.exprs += 1;
        if self.exprs > EXPRS_MAX {
            return self.error(
                context.file,
                expr.span,
                "the expressions of this schema are too many",
            );
        }
        Ok(match &expr.kind {
            ExprKind::Number(number) => {
                let value = i128::from(*number);
                (Expr::Constant(value), Type::Number(Some((value, value))))
            }
            ExprKind::Bool(value) => (Expr::Constant(i128::from(*value)), Type::Bool),
            ExprKind::Text(text) => {
                (Expr::Constant(i128::from(self.strings.code(text))), Type::Text)
            }
            ExprKind::Name(name) => return self.value_named(name, expr.span, context),
            ExprKind::Unary(operator, operand) => {
                let (ty, what) = match operator {
                    Unary::Minus => (Type::Number(None), "what is negated is"),
                    Unary::Not => (Type::Bool, "behind `not` stands"),
                };
                let operand = self.typed(operand, ty, what, context)?;
                (Expr::Unary(*operator, Box::new(operand)), ty)
            }
            ExprKind::Binary(operator, left, right) => {
                return self.binary(*operator, left, right, context);
            }
            ExprKind::In(value, among) => {
                let (value, ty) = self.expr(value, context)?;
                let mut values = Vec::new();
                for other in among {
                    values.push(self.typed(other, ty, "what is looked for is", context)?);
                }
                (Expr::In(Box::new(value), values.into()), Type::Bool)
            }
        })
    }

    fn value_named(
        &mut self,
        name: &str,
        span: Span,
        context: &Context<'_>,
    ) -> Checked<(Expr, Type)> {
        if let Some(column) = context.event.fields.iter().position(|field| field.name == name) {
            let ty = context.event.fields[column].ty;
            return Ok((Expr::Column { column, signed: ty.signed() }, Type::of(ty)));
        }
        if let Some(n) = context.derived.iter().position(|(derived, _)| derived == name) {
            return Ok((Expr::Local(n), context.derived[n].1));
        }
        let fields = context.event.fields.iter().map(|field| field.name.as_str());
        let derived = context.derived.iter().map(|(name, _)| name.as_str());
        let help = suggest(name, fields.clone().chain(derived)).or_else(|| {
            let fields: Vec<&str> = fields.collect();
            (!fields.is_empty()).then(|| format!("its fields are {}", fields.join(", ")))
        });
        let message = format!("event `{}` has no field `{name}`", context.event.name);
        self.error_with(context.file, span, message, help)
    }

    fn binary(
        &mut self,
        operator: Binary,
        left: &syntax::Expr,
        right: &syntax::Expr,
        context: &Context<'_>,
    ) -> Checked<(Expr, Type)> {
        let number = Type::Number(None);
        let (a, b, ty) = match operator {
            Binary::Or | Binary::And => {
                let a = self.typed(left, Type::Bool, "`and` and `or` stand beside", context)?;
                let b = self.typed(right, Type::Bool, "`and` and `or` stand beside", context)?;
                (a, b, Type::Bool)
            }
            Binary::Equal | Binary::Unequal => {
                let (a, ty) = self.expr(left, context)?;
                (a, self.typed(right, ty, "the left side is", context)?, Type::Bool)
            }
            _ => {
                let a = self.typed(left, number, "the left side has to be", context)?;
                let b = self.typed(right, number, "the right side has to be", context)?;
                let compares = matches!(
                    operator,
                    Binary::Less | Binary::LessEqual | Binary::Greater | Binary::GreaterEqual
                );
                (a, b, if compares { Type::Bool } else { number })
            }
        };
        Ok((Expr::Binary(operator, Box::new((a, b))), ty))
    }
}

/// Gives each binding of a rule that has nothing else the key of its own place; `false` if two have
/// the same key.
fn sort_keys(rule: &mut Rule) -> bool {
    if rule.keys.len() != rule.binds.len() {
        return false;
    }
    rule.keys = rule.binds.iter().map(|bind| rule.keys[bind.key].clone()).collect();
    rule.binds.iter_mut().zip(0..).for_each(|(bind, n)| bind.key = n);
    true
}

fn bind(
    role: Role,
    timeline: usize,
    key: KeyId,
    names: &Names,
    (after, change): (Option<After>, syntax::Change),
) -> Bind {
    let Lane { actor, implicit, expects, .. } = names.timelines[timeline];
    let between = change.expects.unwrap_or(expects);
    let change = if actor { change.of_actor() } else { None };
    Bind { timeline, actor, implicit, between, key, role, after, change, when: Vec::new() }
}
