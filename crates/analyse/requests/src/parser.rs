//! From tokens to [`File`], by recursive descent. `docs/user/schemas.md` has the grammar; each function
//! here is one of its rules.
//!
//! After an error the parser goes on at the next word that begins an item, so one slip does not
//! hide the others. Nesting is limited, everything else takes one step per token.

use crate::diagnostic::{Span, suggest};
use crate::lexer::{Kind, Token, tokens};
use crate::state::{NewState, State};
use crate::syntax::{
    Action, Binary, Change, Class, Declaration, DeclaredField, Expr, ExprKind, File, Lane, Name,
    Role, Rule, Statement, Timeline, Unary, When,
};

/// Words that begin items.
const ITEMS: [&str; 6] = ["use", "event", "timeline", "actor", "stream", "on"];
/// Words that begin statements.
const STATEMENTS: [&str; 18] = [
    "let", "start", "stop", "basic", "join", "note", "handoff", "lend", "drop", "send", "receive",
    "mark", "unmark", "settle", "unsettle", "seed", "choice", "end",
];
/// Words with a meaning inside expressions or around them.
const OPERATORS: [&str; 8] = ["where", "and", "or", "not", "in", "true", "false", "settled"];
/// Deepest nesting of expressions, and longest chain of operators: trees are deeper than 1,000 then, and
/// functions that walk them recurse.
const DEPTH_MAX: usize = 32;

/// What is wrong, where, and what to do about it.
pub(crate) struct Complaint {
    pub span: Span,
    pub message: String,
    pub help: Option<String>,
}

/// An error was reported; what was being read is given up.
struct Failed;
type Parsed<T> = Result<T, Failed>;

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    complaints: Vec<Complaint>,
}

/// Reads a file as far as it can be read.
pub(crate) fn parse(text: &str) -> (File, Vec<Complaint>) {
    let mut complaints = Vec::new();
    let mut complain = |span, message| complaints.push(Complaint { span, message, help: None });
    let tokens = tokens(text, &mut complain);
    let mut parser = Parser { tokens, at: 0, depth: 0, complaints };
    let mut file = File::default();
    while parser.peek() != &Kind::End {
        let before = parser.at;
        if parser.item(&mut file).is_err() {
            parser.at = parser.at.max(before + 1).min(parser.tokens.len() - 1);
            while parser.peek() != &Kind::End && !ITEMS.contains(&parser.word()) {
                parser.at += 1;
            }
        }
    }
    (file, parser.complaints)
}

impl Parser {
    fn peek(&self) -> &Kind {
        &self.tokens[self.at].kind
    }

    fn span(&self) -> Span {
        self.tokens[self.at].span
    }

    /// From a place to the token that was just read.
    fn since(&self, start: Span) -> Span {
        let last = self.tokens[self.at.saturating_sub(1)].span;
        Span { start: start.start, end: last.end.max(start.end) }
    }

    /// The word that comes next, or nothing.
    fn word(&self) -> &str {
        match self.peek() {
            Kind::Word(word) => word,
            _ => "",
        }
    }

    fn next(&mut self) {
        // The last token is the end, which is never passed.
        self.at = (self.at + 1).min(self.tokens.len() - 1);
    }

    fn accept_word(&mut self, word: &str) -> bool {
        let found = self.word() == word;
        if found {
            self.next();
        }
        found
    }

    fn accept(&mut self, sign: &'static str) -> bool {
        let found = self.peek() == &Kind::Sign(sign);
        if found {
            self.next();
        }
        found
    }

    fn fail<T>(&mut self, span: Span, message: String, help: Option<String>) -> Parsed<T> {
        self.complaints.push(Complaint { span, message, help });
        Err(Failed)
    }

    /// Says what should stand where something else does.
    fn expected<T>(&mut self, what: &str) -> Parsed<T> {
        self.expected_one_of(what, &[])
    }

    fn expected_one_of<T>(&mut self, what: &str, words: &[&str]) -> Parsed<T> {
        let found = match self.peek() {
            Kind::Word(word) => format!("`{word}`"),
            Kind::Number(number) => format!("`{number}`"),
            Kind::Text(_) => "a text".into(),
            Kind::Sign(sign) => format!("`{sign}`"),
            Kind::End => "the end of the file".into(),
        };
        let help = suggest(self.word(), words.iter().copied());
        self.fail(self.span(), format!("expected {what}, found {found}"), help)
    }

    fn sign(&mut self, sign: &'static str, behind: &str) -> Parsed<()> {
        match self.accept(sign) {
            true => Ok(()),
            false => self.expected(&format!("`{sign}` {behind}")),
        }
    }

    fn name(&mut self, what: &str) -> Parsed<Name> {
        let span = self.span();
        let Kind::Word(text) = self.peek().clone() else { return self.expected(what) };
        let reserved = [&ITEMS[..], &STATEMENTS, &OPERATORS].concat();
        if reserved.contains(&text.as_str()) {
            let help = Some(format!("`{text}` is a word of the language; choose another name"));
            return self.fail(span, format!("expected {what}, found `{text}`"), help);
        }
        self.next();
        Ok(Name { text, span })
    }

    /// Things with commas between them up to a closing parenthesis; a last comma is allowed.
    fn list<T>(&mut self, mut one: impl FnMut(&mut Parser) -> Parsed<T>) -> Parsed<Vec<T>> {
        self.sign("(", "before a list")?;
        let mut all = Vec::new();
        while !self.accept(")") {
            all.push(one(self)?);
            if !self.accept(",") && self.peek() != &Kind::Sign(")") {
                return self.expected("`,` or `)`");
            }
        }
        Ok(all)
    }

    fn item(&mut self, file: &mut File) -> Parsed<()> {
        let word = self.word().to_owned();
        match word.as_str() {
            "use" => {
                self.next();
                file.uses.push(self.name("the name of a schema")?);
            }
            "event" => {
                self.next();
                file.events.push(self.declaration("the name of an event")?);
            }
            "stream" => {
                self.next();
                file.streams.push(self.declaration("the name of a stream")?);
            }
            "timeline" | "actor" => {
                self.next();
                let declaration = self.declaration("the name of a timeline")?;
                let implicit = self.accept_word("implicit");
                let actor = word == "actor";
                let expects = self.change()?.expects;
                file.timelines.push(Timeline { declaration, actor, implicit, expects });
            }
            "on" => {
                self.next();
                file.rules.push(self.rule()?);
            }
            word if STATEMENTS.contains(&word) => {
                let help = Some("statements stand in braces: `on EVENT { … }`".into());
                return self.fail(self.span(), format!("`{word}` stands outside of a rule"), help);
            }
            _ => {
                return self
                    .expected_one_of("one of use, event, timeline, actor, stream, on", &ITEMS);
            }
        }
        Ok(())
    }

    fn declaration(&mut self, what: &str) -> Parsed<Declaration> {
        let name = self.name(what)?;
        let fields = self.list(|parser| {
            let mut name = parser.name("the name of a field")?;
            // Fields may be called so, too.
            let optional = name.text == "optional" && parser.peek() != &Kind::Sign(":");
            if optional {
                name = parser.name("the name of a field")?;
            }
            parser.sign(":", "and a type behind the field's name")?;
            Ok(DeclaredField { name, ty: parser.name("a type")?, optional })
        })?;
        Ok(Declaration { name, fields })
    }

    fn names(&mut self, what: &str) -> Parsed<Vec<Name>> {
        let mut names = vec![self.name(what)?];
        while self.accept(",") {
            names.push(self.name(what)?);
        }
        Ok(names)
    }

    fn rule(&mut self) -> Parsed<Rule> {
        let events = self.names("the name of an event")?;
        let filter = if self.accept_word("where") { Some(self.expr()?) } else { None };
        self.sign("{", "before the statements of a rule")?;
        let mut statements = Vec::new();
        while !self.accept("}") {
            let start = self.span();
            let what = self.action()?;
            statements.push(Statement { what, span: self.since(start) });
            self.accept(";");
        }
        Ok(Rule { events, filter, statements })
    }

    fn action(&mut self) -> Parsed<Action> {
        let word = self.word().to_owned();
        let role = match word.as_str() {
            "start" => Some(Role::Start),
            "stop" => Some(Role::Stop),
            "basic" => Some(Role::Basic),
            "join" => Some(Role::Join),
            "note" => Some(Role::Note),
            "let" | "handoff" | "lend" | "drop" | "send" | "receive" | "mark" | "unmark"
            | "settle" | "unsettle" | "seed" | "choice" | "end" => None,
            _ => return self.expected_one_of("a statement or `}`", &STATEMENTS),
        };
        self.next();
        if let Some(role) = role {
            let lane = self.lane()?;
            let after = match role == Role::Start && self.accept_word("after") {
                true => Some(self.names("the name of an event")?),
                false => None,
            };
            let change = self.change()?;
            return Ok(Action::Bind { role, lane, after, change, when: self.when()? });
        }
        match word.as_str() {
            "let" => {
                let name = self.name("the name of a derived field")?;
                self.sign("=", "and an expression")?;
                Ok(Action::Let(name, self.expr()?))
            }
            "handoff" => {
                let from = self.lane()?;
                self.sign("->", "between the two timelines of a hand-off")?;
                let start = self.accept_word("start");
                let to = self.lane()?;
                let change = self.change()?;
                Ok(Action::Handoff { from, start, to, change, when: self.when()? })
            }
            "lend" => {
                let from = self.lane()?;
                self.sign("->", "between who lends and who borrows")?;
                Ok(Action::ContextTransfer { from, to: self.lane()?, when: self.when()? })
            }
            "drop" => {
                let settled = self.accept_word("settled");
                Ok(Action::Drop { settled, lane: self.lane()?, when: self.when()? })
            }
            "seed" => self.seed(),
            "choice" => {
                let likely = self.expr()?;
                if !self.accept_word("among") {
                    return self.expected_one_of("`among` and how many there were", &["among"]);
                }
                Ok(Action::Choice { likely, candidates: self.expr()? })
            }
            "settle" | "unsettle" => {
                Ok(Action::Answered { set: word == "settle", when: self.when()? })
            }
            "end" => Ok(Action::End),
            "mark" | "unmark" => {
                let lane = self.lane()?;
                Ok(Action::Mark { set: word == "mark", lane, when: self.when()? })
            }
            _ => {
                let lane = self.lane()?;
                if !self.accept_word("bytes") {
                    return self.expected_one_of("`bytes` and their number", &["bytes"]);
                }
                let bytes = self.expr()?;
                let at = if self.accept_word("at") { Some(self.expr()?) } else { None };
                if word == "send" {
                    return Ok(Action::Send { lane, bytes, at, when: self.when()? });
                }
                let answers = self.accept_word("answers");
                let answers = if answers { Some(self.lane()?) } else { None };
                Ok(Action::Receive { lane, bytes, at, answers })
            }
        }
    }

    fn class(&mut self) -> Parsed<Option<Class>> {
        Ok(match self.peek().clone() {
            Kind::Text(class) => {
                self.next();
                Some(Class::Text(class))
            }
            // A field, unless it is what comes next.
            Kind::Word(word) if word != "queued" && !STATEMENTS.contains(&word.as_str()) => {
                Some(Class::Field(self.name("a text, a field or the next statement")?))
            }
            _ => None,
        })
    }

    fn seed(&mut self) -> Parsed<Action> {
        let class = self.class()?;
        let queued = if self.accept_word("queued") { Some(self.expr()?) } else { None };
        Ok(Action::Seed { class, queued })
    }

    fn lane(&mut self) -> Parsed<Lane> {
        let name = self.name("the name of a timeline or stream")?;
        Ok(Lane { name, key: self.list(Parser::expr)? })
    }

    fn when(&mut self) -> Parsed<Vec<When>> {
        let mut all = Vec::new();
        loop {
            let there = self.accept_word("if");
            if !there && !self.accept_word("unless") {
                return Ok(all);
            }
            let settled = self.accept_word("settled");
            all.push(When { lane: self.lane()?, settled, there });
            if matches!(self.peek(), Kind::Word(word) if word == "and" || word == "or") {
                let help = "write `if` or `unless` before each: all of them have to hold";
                let message = "conditions stand one behind the other".into();
                return self.fail(self.span(), message, Some(help.into()));
            }
        }
    }

    fn change(&mut self) -> Parsed<Change> {
        let start = self.span();
        let mut change = Change::default();
        let names = State::ALL.map(State::name);
        let waits = &names[State::FIRST_WAIT..];
        if self.accept_word("was") {
            let Some(State::Waiting(wait)) = State::from_name(self.word()) else {
                return self.expected_one_of(&format!("one of {}", waits.join(", ")), waits);
            };
            change.was = Some(wait);
            self.next();
        }
        if self.accept_word("is") {
            let state = match self.word() {
                "blocked" => Some(NewState::Blocked),
                word => State::from_name(word).map(NewState::State),
            };
            if state.is_none() {
                let all = [&names[..], &["blocked"]].concat();
                return self.expected_one_of(&format!("one of {}", all.join(", ")), &all);
            }
            change.is = state;
            self.next();
        }
        if self.accept_word("expects") {
            let expected = State::from_name(self.word());
            let expected = expected.filter(|state| state.index() >= State::Queued.index());
            let names = &names[State::Queued.index()..];
            if expected.is_none() {
                return self.expected_one_of(&format!("one of {}", names.join(", ")), names);
            }
            change.expects = expected;
            self.next();
        }
        change.span = self.since(start);
        Ok(change)
    }

    fn expr(&mut self) -> Parsed<Expr> {
        self.binary(0)
    }

    /// Operands with operators between them that bind tighter than `floor`.
    fn binary(&mut self, floor: u8) -> Parsed<Expr> {
        self.depth += 1;
        let expr = match self.depth > DEPTH_MAX {
            true => self.fail(self.span(), "this is nested too deeply".into(), None),
            false => self.operands(floor),
        };
        self.depth -= 1;
        expr
    }

    /// One more operator in a row: the tree is as deep as the row is long.
    fn lengthen(&mut self, chain: &mut usize) -> Parsed<()> {
        *chain += 1;
        if *chain <= DEPTH_MAX {
            return Ok(());
        }
        let help = Some("`in (…)` compares with many values".into());
        self.fail(self.span(), "this expression is too long".into(), help)
    }

    fn operands(&mut self, floor: u8) -> Parsed<Expr> {
        let start = self.span();
        let mut left = self.unary()?;
        let mut chain = 0;
        loop {
            if floor < Binary::COMPARISON && self.accept_word("in") {
                self.lengthen(&mut chain)?;
                let values = self.list(Parser::expr)?;
                let kind = ExprKind::In(Box::new(left), values);
                left = Expr { kind, span: self.since(start) };
                continue;
            }
            let sign = match self.peek() {
                Kind::Sign(sign) => *sign,
                Kind::Word(word) => word.as_str(),
                _ => return Ok(left),
            };
            let Some((_, tightness, operator)) =
                Binary::ALL.into_iter().find(|(s, tightness, _)| *s == sign && *tightness > floor)
            else {
                return Ok(left);
            };
            self.lengthen(&mut chain)?;
            if tightness == Binary::COMPARISON && is_comparison(&left) {
                let help = Some("join two comparisons with `and`".into());
                return self.fail(self.span(), "comparisons cannot be chained".into(), help);
            }
            self.next();
            let right = self.binary(tightness)?;
            let kind = ExprKind::Binary(operator, Box::new(left), Box::new(right));
            left = Expr { kind, span: self.since(start) };
        }
    }

    fn unary(&mut self) -> Parsed<Expr> {
        let start = self.span();
        let (operator, floor) = match self.peek() {
            Kind::Sign("-") => (Unary::Minus, 10),
            // `not a == b` is what it reads like.
            Kind::Word(word) if word == "not" => (Unary::Not, 3),
            _ => return self.primary(),
        };
        self.next();
        let operand = self.binary(floor)?;
        Ok(Expr { kind: ExprKind::Unary(operator, Box::new(operand)), span: self.since(start) })
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let span = self.span();
        let kind = match self.peek().clone() {
            Kind::Number(number) => ExprKind::Number(number),
            Kind::Text(text) => ExprKind::Text(text),
            Kind::Word(word) if word == "true" || word == "false" => ExprKind::Bool(word == "true"),
            Kind::Word(_) => {
                let name = self.name("a value")?;
                return Ok(Expr { kind: ExprKind::Name(name.text), span });
            }
            Kind::Sign("(") => {
                self.next();
                let inner = self.expr()?;
                self.sign(")", "behind the expression")?;
                // The parentheses are part of the place: so `(a < b) == c` is not a chain.
                return Ok(Expr { span: self.since(span), ..inner });
            }
            _ => return self.expected("a value"),
        };
        self.next();
        Ok(Expr { kind, span })
    }
}

fn is_comparison(expr: &Expr) -> bool {
    let ExprKind::Binary(operator, left, _) = &expr.kind else { return false };
    // In parentheses the whole begins before its left operand.
    let chained = left.span.start == expr.span.start;
    let found = Binary::ALL.into_iter().find(|(_, _, o)| o == operator);
    chained && found.is_some_and(|(_, tightness, _)| tightness == Binary::COMPARISON)
}
