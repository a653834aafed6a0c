//! Rules and their statements.

use crate::diagnostic::Span;
use crate::event::EventId;
use crate::program::{
    After, Answered, Bind, ContextTransfer, Expr, Handoff, KeyId, Lane, LaneId, Mark, Rule,
    SectionEnd, Seed, Traffic, Transfer, When, split,
};
use crate::state::{NewState, State};
use crate::syntax::{self, Action, Class, ExprKind, Name, Role};

use super::expressions::{Context, Type};
use super::{Checked, Checker, Failed, LANES_MAX, Names, STATEMENTS_MAX};

impl Checker {
    pub(super) fn rule(
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
    pub(super) fn derive(
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
    pub(super) fn seed(
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
    pub(super) fn when(
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
    pub(super) fn stream(
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

    pub(super) fn never_queued<T>(&mut self, file: usize, span: Span) -> Checked<T> {
        let help = Some("a timeline that it takes work from may expect `queued`".to_string());
        let message = "what is queued has not come to an actor yet".to_string();
        self.error_with(file, span, message, help)
    }

    pub(super) fn timeline(
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
