//! A schema as it was written: names are not looked up yet, each knows its place.

use crate::diagnostic::Span;
use crate::state::{self, NewState, State, Wait};

/// A word and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub text: String,
    pub span: Span,
}

/// A file.
#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    pub uses: Vec<Name>,
    pub events: Vec<Declaration>,
    pub timelines: Vec<Timeline>,
    pub streams: Vec<Declaration>,
    pub rules: Vec<Rule>,
}

/// A name with typed fields: an event, or the key of a timeline or stream.
#[derive(Clone, Debug)]
pub(crate) struct Declaration {
    pub name: Name,
    pub fields: Vec<DeclaredField>,
}

/// `NAME: TYPE`, or `optional NAME: TYPE`
#[derive(Clone, Debug)]
pub(crate) struct DeclaredField {
    pub name: Name,
    pub ty: Name,
    pub optional: bool,
}

/// `timeline` or `actor`.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    pub declaration: Declaration,
    pub actor: bool,
    pub implicit: bool,
    pub expects: Option<State>,
}

/// `on … { … }`
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub events: Vec<Name>,
    pub filter: Option<Expr>,
    pub statements: Vec<Statement>,
}

/// A timeline or stream and the values of its key.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub name: Name,
    pub key: Vec<Expr>,
}

/// `was …`, `is …` and `expects …`
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change {
    pub was: Option<Wait>,
    pub is: Option<NewState>,
    /// [`State::Queued`] or what is waited for.
    pub expects: Option<State>,
    pub span: Span,
}

impl Change {
    /// What it says of an actor; `None` if it says nothing.
    pub fn of_actor(&self) -> Option<state::Change> {
        state::Change::new(self.was, self.is, self.expects)
    }
}

/// How an event is bound to a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Start,
    Stop,
    Basic,
    Join,
    Note,
}

/// What a rule does, and where it says so.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub what: Action,
    pub span: Span,
}

/// What a rule does.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Let(Name, Expr),
    Bind { role: Role, lane: Lane, after: Option<Vec<Name>>, change: Change, when: Vec<When> },
    Mark { set: bool, lane: Lane, when: Vec<When> },
    ContextTransfer { from: Lane, to: Lane, when: Vec<When> },
    Drop { settled: bool, lane: Lane, when: Vec<When> },
    Handoff { from: Lane, start: bool, to: Lane, change: Change, when: Vec<When> },
    Send { lane: Lane, bytes: Expr, at: Option<Expr>, when: Vec<When> },
    Receive { lane: Lane, bytes: Expr, at: Option<Expr>, answers: Option<Lane> },
    Answered { set: bool, when: Vec<When> },
    Seed { class: Option<Class>, queued: Option<Expr> },
    Choice { likely: Expr, candidates: Expr },
    End,
}

/// What a seed calls its requests.
#[derive(Clone, Debug)]
pub(crate) enum Class {
    /// Always this.
    Text(String),
    /// What a field says.
    Field(Name),
}

/// What has to be so of a timeline, or not.
#[derive(Clone, Debug)]
pub(crate) struct When {
    pub lane: Lane,
    /// Not that it is marked, or has a request, but that all requests that it has are settled.
    pub settled: bool,
    pub there: bool,
}

/// An expression and its place.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub kind: ExprKind,
    pub span: Span,
}

/// What an expression says.
#[derive(Clone, Debug)]
pub(crate) enum ExprKind {
    Number(u64),
    Text(String),
    Bool(bool),
    Name(String),
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    In(Box<Expr>, Vec<Expr>),
}

/// Operators with one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unary {
    Minus,
    Not,
}

/// Operators with two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Or,
    And,
    Equal,
    Unequal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    BitOr,
    BitXor,
    BitAnd,
    Left,
    Right,
    Add,
    Subtract,
    Multiply,
}

impl Binary {
    /// Its sign, and how tightly it binds: the higher, the tighter.
    pub const ALL: [(&'static str, u8, Binary); 16] = [
        ("or", 1, Binary::Or),
        ("and", 2, Binary::And),
        ("==", 4, Binary::Equal),
        ("!=", 4, Binary::Unequal),
        ("<", 4, Binary::Less),
        ("<=", 4, Binary::LessEqual),
        (">", 4, Binary::Greater),
        (">=", 4, Binary::GreaterEqual),
        ("|", 5, Binary::BitOr),
        ("^", 6, Binary::BitXor),
        ("&", 7, Binary::BitAnd),
        ("<<", 8, Binary::Left),
        (">>", 8, Binary::Right),
        ("+", 9, Binary::Add),
        ("-", 9, Binary::Subtract),
        ("*", 10, Binary::Multiply),
    ];
    /// How tightly comparisons bind: `a < b < c` is refused.
    pub const COMPARISON: u8 = 4;
}
