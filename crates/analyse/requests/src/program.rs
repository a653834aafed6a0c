//! Checked schemas, as the engine runs them: every name is a number, every key knows its columns.

use crate::diagnostic::Report;
use crate::event::{Catalog, EventId, Field, Strings};
use crate::state::{Change, State};
use crate::syntax::{Binary, Role, Unary};

/// One or more schemas that run over the same events. Made by [`crate::compile`] only, so whatever
/// is in it fits together.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) catalog: Catalog,
    pub(crate) strings: Strings,
    pub(crate) schemas: Vec<Schema>,
    pub(crate) warnings: Report,
}

impl Program {
    /// The events that any of its schemas declares.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The texts in its filters: what a reader of events begins its dictionary with.
    pub fn strings(&self) -> &Strings {
        &self.strings
    }

    /// Its schemas, in the order they were given.
    pub fn schemas(&self) -> &[Schema] {
        &self.schemas
    }

    /// What its author should know though it can run.
    pub fn warnings(&self) -> &Report {
        &self.warnings
    }

    /// The fields of a section's key with their values; texts are codes.
    pub fn key_values(&self, schema: usize, timeline: usize, key: u128) -> Vec<(&Field, i128)> {
        let lane = self.schemas.get(schema).and_then(|schema| schema.timelines.get(timeline));
        let Some(lane) = lane else { return Vec::new() };
        let mut rest = key;
        let mut values: Vec<(&Field, i128)> = Vec::new();
        for field in lane.key.iter().rev() {
            let bits = field.ty.bits();
            let raw = (rest & ((1 << bits) - 1)) as i128;
            rest = rest.checked_shr(bits).unwrap_or(0);
            let (_, most) = field.ty.range();
            values.push((field, if raw > most { raw - (1 << bits) } else { raw }));
        }
        values.reverse();
        values
    }

    /// A section's timeline and key as people write them: `file(pid=7, fd=3)`. Texts are named if
    /// `strings` knows them.
    pub fn describe(&self, schema: usize, timeline: usize, key: u128, strings: &Strings) -> String {
        let lane = self.schemas.get(schema).and_then(|schema| schema.timelines.get(timeline));
        let Some(lane) = lane else { return String::new() };
        let parts: Vec<String> = self
            .key_values(schema, timeline, key)
            .into_iter()
            .map(|(field, value)| {
                let text = (field.ty == crate::FieldType::Text).then(|| strings.text(value as u32));
                match text.flatten() {
                    Some(text) => format!("{}={text:?}", field.name),
                    None => format!("{}={value}", field.name),
                }
            })
            .collect();
        format!("{}({})", lane.name, parts.join(", "))
    }
}

/// One schema.
#[derive(Clone, Debug)]
pub struct Schema {
    pub(crate) name: String,
    pub(crate) timelines: Vec<Lane>,
    pub(crate) streams: Vec<Lane>,
    pub(crate) classes: Vec<String>,
    /// Those of one event stand together, in the order they are tried.
    pub(crate) rules: Vec<Rule>,
    /// For each event of the catalog, its rules: the first, and the one after the last.
    pub(crate) by_event: Vec<(u32, u32)>,
}

impl Schema {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its timelines.
    pub fn timelines(&self) -> &[Lane] {
        &self.timelines
    }

    /// What its seeds call the requests they begin.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Whether requests begin with an event.
    pub fn seeds(&self, event: EventId) -> bool {
        let (first, end) = self.by_event.get(event.index()).copied().unwrap_or_default();
        let rules = self.rules.get(first as usize..end as usize).unwrap_or_default();
        rules.iter().any(|rule| rule.seed.is_some())
    }

    /// Whether it follows bytes by themselves, whatever messages they are.
    pub fn follows_bytes(&self) -> bool {
        !self.streams.is_empty()
    }

    /// Whether it does anything with an event.
    pub fn uses(&self, event: EventId) -> bool {
        self.by_event.get(event.index()).is_some_and(|(first, end)| first < end)
    }
}

/// A timeline or stream.
#[derive(Clone, Debug)]
pub struct Lane {
    /// Its name.
    pub name: String,
    /// What its sections are known by.
    pub key: Vec<Field>,
    /// Whether sections run and wait.
    pub actor: bool,
    /// Whether a BASIC binding opens a section where there is none.
    pub implicit: bool,
    /// What an actor that touches a section waited for since another did.
    pub expects: State,
}

impl Lane {
    /// Bits of a key.
    pub(crate) fn bits(&self) -> u32 {
        self.key.iter().map(|field| field.ty.bits()).sum()
    }
}

/// Which timeline or stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneId {
    /// Place in [`Schema::timelines`].
    Timeline(usize),
    /// Place in [`Schema::streams`].
    Stream(usize),
}

/// Place of a key in [`Rule::keys`].
pub(crate) type KeyId = usize;

/// What one kind of event does if the filter lets it.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub event: EventId,
    /// All have to hold.
    pub tests: Box<[Test]>,
    /// What of the filter cannot be said as tests.
    pub filter: Option<Expr>,
    pub locals: Vec<Expr>,
    /// All keys that it needs, each once: they are made, and looked up, before anything else.
    pub keys: Vec<(LaneId, Key)>,
    pub marks: Vec<Mark>,
    pub binds: Vec<Bind>,
    pub lends: Vec<ContextTransfer>,
    pub drops: Vec<SectionEnd>,
    pub handoffs: Vec<Handoff>,
    pub transfers: Vec<Transfer>,
    pub settles: Vec<Answered>,
    pub seed: Option<Seed>,
    /// How likely the event's requests are chosen rightly, in thousandths, and among how many.
    pub choice: Option<(Expr, Expr)>,
    pub end: bool,
    /// Whether there is a NOTE among the bindings.
    pub notes: bool,
    /// Whether there is a STOP among the bindings.
    pub stops: bool,
    /// Whether there is nothing but START, BASIC and STOP, and a seed: see `Plain` and `Simple`.
    pub simple: bool,
    /// Whether its statements need values besides keys.
    pub values: bool,
}

/// What requests that begin here are called.
#[derive(Clone, Debug)]
pub(crate) struct Seed {
    /// Place in [`Schema::classes`].
    pub class: u16,
    /// A text that says it better.
    pub label: Option<Expr>,
    /// For how many nanoseconds they had been there when they began.
    pub queued: Option<Expr>,
}

impl Rule {
    /// Whether it does no more than to bind timelines, whatever is marked.
    pub(crate) fn only_binds(&self) -> bool {
        self.drops.is_empty()
            && self.marks.is_empty()
            && self.lends.is_empty()
            && self.handoffs.is_empty()
            && self.transfers.is_empty()
            && self.settles.is_empty()
            && self.choice.is_none()
            && !self.end
            && self.binds.iter().all(|bind| bind.when.is_empty())
    }

    /// Takes in a key, unless it has it already.
    pub fn key(&mut self, lane: LaneId, key: Key) -> KeyId {
        let known = self.keys.iter().position(|(l, k)| *l == lane && *k == key);
        known.unwrap_or_else(|| {
            self.keys.push((lane, key));
            self.keys.len() - 1
        })
    }

    /// Whether the filter lets an event. Derived fields are not known yet.
    pub fn takes(&self, columns: &[Vec<u64>], row: usize) -> bool {
        let scope = Scope { columns, row, locals: &[] };
        self.tests.iter().all(|test| test.holds(columns[test.column][row]))
            && self.filter.as_ref().is_none_or(|filter| filter.holds(&scope))
    }
}

/// A comparison of a field with constants: most filters are a few of these, and one shape for all
/// comparisons leaves nothing for the processor to guess.
#[derive(Clone, Debug)]
pub(crate) struct Test {
    pub column: usize,
    /// Turns an unsigned number into a signed one in the same order.
    pub flip: u64,
    pub least: i64,
    pub most: i64,
    /// It has to be one of these, if there are any.
    pub among: Box<[u64]>,
}

impl Test {
    #[inline]
    pub fn within(&self, raw: u64) -> bool {
        let value = (raw ^ self.flip).cast_signed();
        (self.least <= value) & (value <= self.most)
    }

    #[inline]
    pub fn holds(&self, raw: u64) -> bool {
        // All are compared: a loop that ends early is one more thing to foresee.
        let among = self.among.iter().fold(self.among.is_empty(), |any, one| any | (*one == raw));
        self.within(raw) & among
    }
}

/// A binding to a timeline.
#[derive(Clone, Debug)]
pub(crate) struct Bind {
    pub timeline: usize,
    pub actor: bool,
    pub implicit: bool,
    /// What an actor that touches the section waited for since another did.
    pub between: State,
    pub key: KeyId,
    pub role: Role,
    /// For [`Role::Start`]: otherwise it is BASIC.
    pub after: Option<After>,
    pub change: Option<Change>,
    /// All of them have to hold.
    pub when: Vec<When>,
}

/// What has to be so of a timeline, or not.
#[derive(Clone, Debug)]
pub(crate) struct When {
    pub key: KeyId,
    /// Not that it is marked, or has a request, but that all requests that it has are settled.
    pub settled: bool,
    pub there: bool,
}

/// A fact about a key that is noted, or forgotten.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub key: KeyId,
    pub set: bool,
    /// All of them have to hold.
    pub when: Vec<When>,
}

/// The event's requests have what they asked for, or have not after all.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub set: bool,
    /// All of them have to hold.
    pub when: Vec<When>,
}

/// When a START is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct After {
    /// If the section's last event is one of these.
    pub events: Vec<EventId>,
    /// If no section is open.
    pub nothing: bool,
}

/// A section whose requests another one has, too, from here on.
#[derive(Clone, Debug)]
pub(crate) struct ContextTransfer {
    pub from: KeyId,
    pub timeline: usize,
    pub actor: bool,
    pub to: KeyId,
    pub when: Vec<When>,
}

/// A section that ends without the event being its requests'.
#[derive(Clone, Debug)]
pub(crate) struct SectionEnd {
    pub timeline: usize,
    pub key: KeyId,
    /// Only its settled requests leave it, and it ends if that is all of them.
    pub settled: bool,
    pub when: Vec<When>,
}

/// The receiving side of a hand-off.
#[derive(Clone, Debug)]
pub(crate) struct Handoff {
    /// Place of the giving side in [`Rule::binds`].
    pub from: usize,
    pub timeline: usize,
    pub actor: bool,
    pub key: KeyId,
    pub start: bool,
    pub change: Option<Change>,
    pub when: Vec<When>,
}

/// What happens to a stream.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub key: KeyId,
    pub what: Traffic,
}

/// What happens to a stream.
#[derive(Clone, Debug)]
pub(crate) enum Traffic {
    Send {
        bytes: Expr,
        at: Option<Expr>,
        /// All of them have to hold.
        when: Vec<When>,
    },
    Receive {
        bytes: Expr,
        at: Option<Expr>,
        /// The stream that they answer if their sending was not seen.
        answers: Option<KeyId>,
    },
    /// START and STOP: what was in flight is gone.
    Reset {
        /// All of them have to hold.
        when: Vec<When>,
    },
}

/// How a key is made: its parts one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// A field.
    Field { column: usize, mask: u64 },
    /// Two fields of 64 bits together.
    Pair { columns: [usize; 2], masks: [u64; 2], shift: u32 },
    /// Anything.
    Parts(Box<[Part]>),
}

/// A part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub value: Expr,
    pub bits: u32,
    /// What fits, if the value could be something else.
    pub range: Option<(i128, i128)>,
}

/// Values that expressions can name.
pub(crate) struct Scope<'a> {
    pub columns: &'a [Vec<u64>],
    pub row: usize,
    pub locals: &'a [i128],
}

impl Key {
    pub fn new(parts: Vec<Part>) -> Key {
        let field = |part: &Part| match (&part.value, part.range) {
            (Expr::Column { column, .. }, None) => Some((*column, part.mask(), part.bits)),
            _ => None,
        };
        let fields: Option<Vec<_>> = parts.iter().map(field).collect();
        match fields.as_deref() {
            Some([(column, mask, _)]) => Key::Field { column: *column, mask: *mask },
            Some([(first, mask, bits), (second, second_mask, shift)]) if bits + shift <= 64 => {
                Key::Pair {
                    columns: [*first, *second],
                    masks: [*mask, *second_mask],
                    shift: *shift,
                }
            }
            _ => Key::Parts(parts.into()),
        }
    }

    /// The key of an event; `None` if a value does not fit its part.
    pub fn of(&self, scope: &Scope<'_>) -> Option<u128> {
        match self {
            Key::Field { column, mask } => {
                Some(u128::from(scope.columns[*column][scope.row] & mask))
            }
            Key::Pair { columns: [a, b], masks, shift } => {
                let first = scope.columns[*a][scope.row] & masks[0];
                let second = scope.columns[*b][scope.row] & masks[1];
                Some(u128::from(first << shift | second))
            }
            Key::Parts(parts) => {
                parts.iter().try_fold(0, |key, part| Some(key << part.bits | part.of(scope)?))
            }
        }
    }
}

impl Part {
    fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    fn of(&self, scope: &Scope<'_>) -> Option<u128> {
        let value = self.value.of(scope);
        let fits = self.range.is_none_or(|(least, most)| value >= least && value <= most);
        fits.then_some(u128::from(value as u64 & self.mask()))
    }
}

/// An expression. Numbers are computed with 128 bits, so those of events do not overflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expr {
    Constant(i128),
    Column { column: usize, signed: bool },
    Local(usize),
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<(Expr, Expr)>),
    In(Box<Expr>, Box<[Expr]>),
}

impl Expr {
    /// Its value. What is true is 1.
    pub fn of(&self, scope: &Scope<'_>) -> i128 {
        match self {
            Expr::Constant(value) => *value,
            Expr::Column { column, signed } => {
                let raw = scope.columns[*column][scope.row];
                if *signed { i128::from(raw.cast_signed()) } else { i128::from(raw) }
            }
            Expr::Local(n) => scope.locals[*n],
            Expr::Unary(Unary::Minus, operand) => operand.of(scope).wrapping_neg(),
            Expr::Unary(Unary::Not, operand) => i128::from(operand.of(scope) == 0),
            Expr::Binary(operator, operands) => {
                let (left, right) = &**operands;
                let a = left.of(scope);
                match operator {
                    Binary::And if a == 0 => return 0,
                    Binary::Or if a != 0 => return 1,
                    _ => {}
                }
                binary(*operator, a, right.of(scope))
            }
            Expr::In(value, among) => {
                let value = value.of(scope);
                i128::from(among.iter().any(|other| other.of(scope) == value))
            }
        }
    }

    /// Whether it says yes.
    #[inline]
    pub fn holds(&self, scope: &Scope<'_>) -> bool {
        self.of(scope) != 0
    }
}

fn binary(operator: Binary, a: i128, b: i128) -> i128 {
    // Shifts by more than there are bits, or by less than none, leave nothing.
    let shift = u32::try_from(b).ok();
    match operator {
        Binary::Or | Binary::And => i128::from(b != 0),
        Binary::Equal => i128::from(a == b),
        Binary::Unequal => i128::from(a != b),
        Binary::Less => i128::from(a < b),
        Binary::LessEqual => i128::from(a <= b),
        Binary::Greater => i128::from(a > b),
        Binary::GreaterEqual => i128::from(a >= b),
        Binary::BitOr => a | b,
        Binary::BitXor => a ^ b,
        Binary::BitAnd => a & b,
        Binary::Left => shift.and_then(|b| a.checked_shl(b)).unwrap_or(0),
        Binary::Right => shift.and_then(|b| a.checked_shr(b)).unwrap_or(0),
        Binary::Add => a.wrapping_add(b),
        Binary::Subtract => a.wrapping_sub(b),
        Binary::Multiply => a.wrapping_mul(b),
    }
}

/// Splits a filter into tests and what is left.
pub(crate) fn split(filter: Expr) -> (Vec<Test>, Option<Expr>) {
    match filter {
        Expr::Binary(Binary::And, both) => {
            let (mut tests, left) = split(both.0);
            let (more, right) = split(both.1);
            tests.extend(more);
            let rest = match (left, right) {
                (Some(a), Some(b)) => Some(Expr::Binary(Binary::And, Box::new((a, b)))),
                (a, b) => a.or(b),
            };
            (tests, rest)
        }
        other => match test(&other) {
            Some(test) => (vec![test], None),
            None => (Vec::new(), Some(other)),
        },
    }
}

fn test(expr: &Expr) -> Option<Test> {
    let make = |column: usize, signed: bool, least: i128, most: i128| {
        let flip = if signed { 0 } else { 1 << 63 };
        // An unsigned number is moved down by 2^63, as flipping its highest bit does.
        let down = i128::from(flip);
        let (floor, ceiling) = (i128::from(i64::MIN), i128::from(i64::MAX));
        let (least, most) = ((least - down).max(floor), (most - down).min(ceiling));
        match least <= most {
            true => Test { column, flip, least: least as i64, most: most as i64, among: [].into() },
            false => Test { column, flip, least: 1, most: 0, among: [].into() },
        }
    };
    // Constants are numbers of 64 bits at most, so none of these is beyond them.
    let (below, above) = (-(1 << 65), 1 << 65);
    match expr {
        Expr::Column { column, signed } => Some(make(*column, *signed, 1, above)),
        Expr::Unary(Unary::Not, operand) => match **operand {
            Expr::Column { column, signed } => Some(make(column, signed, 0, 0)),
            _ => None,
        },
        Expr::Binary(operator, operands) => {
            let (Expr::Column { column, signed }, Expr::Constant(c)) = &**operands else {
                return None;
            };
            let (least, most) = match operator {
                Binary::Equal => (*c, *c),
                Binary::Less => (below, c - 1),
                Binary::LessEqual => (below, *c),
                Binary::Greater => (c + 1, above),
                Binary::GreaterEqual => (*c, above),
                _ => return None,
            };
            Some(make(*column, *signed, least, most))
        }
        Expr::In(value, among) => {
            let Expr::Column { column, signed } = &**value else { return None };
            let constant = |expr: &Expr| match expr {
                Expr::Constant(c) => Some(*c),
                _ => None,
            };
            let all: Vec<i128> = among.iter().map(constant).collect::<Option<_>>()?;
            // What the field cannot be is compared with nothing.
            let (floor, ceiling) = match signed {
                true => (i128::from(i64::MIN), i128::from(i64::MAX)),
                false => (0, i128::from(u64::MAX)),
            };
            let can_be = |c: &i128| (floor..=ceiling).contains(c);
            let among: Box<[u64]> = all.into_iter().filter(can_be).map(|c| c as u64).collect();
            match among.is_empty() {
                true => Some(make(*column, *signed, above, below)),
                false => Some(Test { among, ..make(*column, *signed, below, above) }),
            }
        }
        _ => None,
    }
}
