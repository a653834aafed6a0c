//! Functions, blocks and statements, as far as braces and a few keywords show them, and the locks that are
//! held in between.
//!
//! Nothing here knows types. A brace behind `name(…)` outside of functions begins one; within it, `if`, loops,
//! `switch`, `goto`, labels and `return` say where control goes. A conditional of the preprocessor whose value
//! is unknown has each of its branches begin with what was before it; what is behind has the braces of the first
//! branch, so `#ifdef A if (x) { #else if (y) { #endif` opens one block.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::conditional::{Branch, Piece};
use crate::held::{State, Taken, join, leave_scope, let_go, take, unite};
use crate::kinds::{Form, Kind, Meaning, Operation};
use crate::site::{Candidate, FileCensus, Function, Leaving, Site, text_of};
use crate::token::{Language, Token, TokenKind};

/// How deep blocks may nest: what is deeper is not looked at more closely.
const DEEPEST: usize = 256;
/// How many tokens of a lock's name count.
const LONGEST_NAME: u32 = 24;

/// What a statement in parentheses or braces belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Control {
    Plain,
    If,
    Else,
    Loop,
    Switch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameKind {
    /// `namespace a {`, `struct b {`: what stands in it stands outside of functions.
    Transparent,
    /// Values of a variable.
    Values,
    Function,
    /// A block in a function.
    Block,
    /// A statement without braces below an `if` or the like.
    Single,
}

#[derive(Debug, Clone)]
struct Frame {
    kind: FrameKind,
    control: Control,
    start: State,
    /// What the branch before this `else` ends with.
    then: State,
    breaks: State,
    parens: u32,
    /// The control whose parentheses are open, and how many were before them.
    head: Option<(Control, u32)>,
}

/// How a statement ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Jump {
    Return(u32),
    Break,
    /// `goto` and `continue`.
    Elsewhere,
}

/// Where the walk is. A branch of the preprocessor goes back to what was before it.
#[derive(Debug, Clone)]
struct Flow {
    frames: Vec<Frame>,
    /// Braces beyond [`DEEPEST`].
    too_deep: u32,
    held: State,
    parens: u32,
    head: Option<(Control, u32)>,
    /// The control whose statement comes next.
    body: Option<Control>,
    /// What the branch before `else` ends with, and what both begin with.
    before_else: Option<(State, State)>,
    jump: Option<Jump>,
    /// Whether a statement begins here.
    begins: bool,
    /// Whether the statement binds a variable.
    binds: bool,
}

/// A declaration outside of functions.
#[derive(Debug, Clone, Default)]
struct Declaration {
    /// The name before the last parentheses that are no attribute's.
    name: Option<usize>,
    fixed: bool,
    values: bool,
    /// A word behind which parentheses may come.
    word: Option<usize>,
    open: Option<usize>,
}

/// What is known of the function that the walk is in.
#[derive(Debug, Default)]
struct Body<'a> {
    name: Option<Token<'a>>,
    index: Option<u32>,
    implementation: bool,
    jumps: FxHashMap<&'a [u8], State>,
    let_go: FxHashSet<Kind>,
    /// What it lets go of without having taken it: its caller has.
    given: Vec<(Kind, (u32, u32))>,
    exits: Vec<(Taken, u32)>,
    taken: u32,
}

pub(crate) struct Structure<'a, 'b> {
    pieces: &'b [Piece<'a>],
    language: Language,
    meanings: &'b FxHashMap<Vec<u8>, Vec<Meaning>>,
    out: &'b mut FileCensus,
    flow: Flow,
    branches: Vec<(Flow, Option<Flow>)>,
    declaration: Declaration,
    body: Body<'a>,
}

impl<'a, 'b> Structure<'a, 'b> {
    pub fn new(
        pieces: &'b [Piece<'a>],
        language: Language,
        meanings: &'b FxHashMap<Vec<u8>, Vec<Meaning>>,
        out: &'b mut FileCensus,
    ) -> Structure<'a, 'b> {
        let flow = Flow {
            frames: Vec::new(),
            too_deep: 0,
            held: None,
            parens: 0,
            head: None,
            body: None,
            before_else: None,
            jump: None,
            begins: true,
            binds: false,
        };
        Structure {
            pieces,
            language,
            meanings,
            out,
            flow,
            branches: Vec::new(),
            declaration: Declaration::default(),
            body: Body::default(),
        }
    }

    pub fn run(mut self) {
        for at in 0..self.pieces.len() {
            match self.pieces.get(at) {
                Some(Piece::Branch(branch)) => self.branch(*branch),
                Some(Piece::Token(token)) if self.in_function() => self.statement(at, *token),
                Some(Piece::Token(token)) => self.outside(at, *token),
                _ => {}
            }
        }
    }

    fn in_function(&self) -> bool {
        let inner = self.flow.frames.last().map(|frame| frame.kind);
        matches!(inner, Some(FrameKind::Function | FrameKind::Block | FrameKind::Single))
    }

    fn branch(&mut self, branch: Branch) {
        match branch {
            Branch::If => {
                if self.branches.len() < DEEPEST {
                    self.branches.push((self.flow.clone(), None));
                }
            }
            Branch::Else => {
                let Some((before, first)) = self.branches.last_mut() else { return };
                let ended = std::mem::replace(&mut self.flow, before.clone());
                match first {
                    None => *first = Some(ended),
                    Some(first) => {
                        let held = first.held.take();
                        first.held = join(&before.held, held, ended.held);
                    }
                }
            }
            Branch::End => {
                let Some((before, Some(mut first))) = self.branches.pop() else { return };
                let held = first.held.take();
                let same_depth = first.frames.len() == self.flow.frames.len();
                first.held = match same_depth {
                    true => join(&before.held, held, self.flow.held.take()),
                    false => held,
                };
                self.flow = first;
            }
        }
    }

    fn token(&self, at: usize) -> Option<Token<'a>> {
        match self.pieces.get(at) {
            Some(Piece::Token(token)) => Some(*token),
            _ => None,
        }
    }

    /// The next token from `at` on, over branches.
    fn next(&self, mut at: usize) -> Option<(usize, Token<'a>)> {
        loop {
            match self.pieces.get(at)? {
                Piece::Token(token) => return Some((at, *token)),
                _ => at += 1,
            }
        }
    }

    fn before(&self, at: usize) -> Option<Token<'a>> {
        (0..at).rev().find_map(|at| self.token(at))
    }

    // Outside of functions.

    fn outside(&mut self, at: usize, token: Token<'a>) {
        let values = self.flow.frames.last().is_some_and(|f| f.kind == FrameKind::Values);
        match token.kind {
            TokenKind::Punctuation => match token.text.first() {
                Some(b'{') => self.open_outside(at),
                Some(b'}') => self.close_outside(),
                _ if values => {}
                Some(b'(') => {
                    if self.flow.parens == 0 && !self.declaration.fixed {
                        self.declaration.open = self.declaration.word;
                    }
                    self.flow.parens += 1;
                }
                Some(b')') => {
                    self.flow.parens = self.flow.parens.saturating_sub(1);
                    if self.flow.parens == 0
                        && let Some(word) = self.declaration.open.take()
                    {
                        self.declaration.name = Some(word);
                    }
                }
                Some(b';') if self.flow.parens == 0 => self.declaration = Declaration::default(),
                Some(b'=') if self.flow.parens == 0 && !self.declaration.fixed => {
                    self.declaration.values = true;
                }
                Some(b':') if self.language == Language::Cpp && self.flow.parens == 0 => {
                    // Members that a constructor begins with.
                    let qualified = self.before(at).is_some_and(|before| before.is(b':'))
                        || self.next(at + 1).is_some_and(|(_, next)| next.is(b':'));
                    self.declaration.fixed |= !qualified && self.declaration.name.is_some();
                }
                _ => {}
            },
            TokenKind::Word if !values && self.flow.parens == 0 => {
                if self.language == Language::Rust {
                    if self.before(at).is_some_and(|before| before.is_word("fn")) {
                        self.declaration.name = Some(at);
                        self.declaration.fixed = true;
                    }
                } else if !self.declaration.fixed && !is_attribute(token.text) {
                    self.declaration.word = Some(at);
                } else {
                    self.declaration.word = None;
                }
            }
            _ => {}
        }
    }

    fn open_outside(&mut self, at: usize) {
        if self.flow.frames.len() >= DEEPEST {
            self.flow.too_deep += 1;
            return;
        }
        let declaration = &self.declaration;
        let fixed = declaration.fixed && self.language == Language::Cpp;
        // `member{value}` before a constructor's body.
        let member = fixed && self.before(at).is_some_and(|before| before.kind == TokenKind::Word);
        let inner = self.flow.frames.last().is_some_and(|f| f.kind == FrameKind::Values);
        let kind = match declaration.name {
            _ if inner || member || self.flow.parens > 0 => FrameKind::Values,
            _ if declaration.values => FrameKind::Values,
            Some(_) => FrameKind::Function,
            None => FrameKind::Transparent,
        };
        if kind == FrameKind::Function {
            let name = declaration.name.and_then(|at| self.function_name(at));
            let implementation = name.is_some_and(|name| self.meanings.contains_key(name.text));
            self.out.function_count += 1;
            self.body = Body { name, implementation, ..Body::default() };
            self.flow.held = Some(Vec::new());
        }
        self.push(kind, Control::Plain);
        if kind != FrameKind::Values {
            self.declaration = Declaration::default();
        }
    }

    /// The name of a function whose head has this word before its parentheses. `SYSCALL_DEFINE1(name, …)`
    /// and its like have it inside.
    fn function_name(&self, at: usize) -> Option<Token<'a>> {
        let name = self.token(at)?;
        let shouted = !name.text.iter().any(u8::is_ascii_lowercase);
        if !shouted || self.language == Language::Rust {
            return Some(name);
        }
        let inner = self.next(at + 1).and_then(|(open, _)| self.next(open + 1));
        Some(inner.map(|(_, token)| token).filter(|t| t.kind == TokenKind::Word).unwrap_or(name))
    }

    fn close_outside(&mut self) {
        if self.flow.too_deep > 0 {
            self.flow.too_deep -= 1;
            return;
        }
        let Some(frame) = self.flow.frames.pop() else {
            self.declaration = Declaration::default();
            return;
        };
        self.flow.parens = frame.parens;
        if frame.kind == FrameKind::Transparent {
            self.declaration = Declaration::default();
        }
    }

    // In functions.

    fn push(&mut self, kind: FrameKind, control: Control) {
        let then = match control {
            Control::Else => self.flow.before_else.take().map(|(then, start)| {
                self.flow.held = start;
                then
            }),
            _ => None,
        };
        self.flow.frames.push(Frame {
            kind,
            control,
            start: self.flow.held.clone(),
            then: then.flatten(),
            breaks: None,
            parens: std::mem::take(&mut self.flow.parens),
            head: self.flow.head.take(),
        });
        self.begin_statement();
    }

    fn begin_statement(&mut self) {
        self.flow.begins = true;
        self.flow.binds = false;
        self.flow.body = None;
    }

    fn depth(&self) -> u32 {
        self.flow.frames.len() as u32
    }

    fn statement(&mut self, at: usize, token: Token<'a>) {
        if let Some(control) = self.flow.body
            && !token.is(b'{')
            && self.flow.frames.len() < DEEPEST
        {
            self.push(FrameKind::Single, control);
        }
        let begins = std::mem::replace(&mut self.flow.begins, false);
        match token.kind {
            TokenKind::Punctuation => self.punctuation(at, token, begins),
            TokenKind::Word => self.word(at, token, begins),
            _ => {}
        }
    }

    fn punctuation(&mut self, at: usize, token: Token<'a>, begins: bool) {
        match token.text.first() {
            Some(b'(' | b'[') => self.flow.parens += 1,
            Some(b')' | b']') => {
                self.flow.parens = self.flow.parens.saturating_sub(1);
                if let Some((control, parens)) = self.flow.head
                    && parens == self.flow.parens
                    && token.is(b')')
                {
                    self.flow.head = None;
                    self.flow.body = Some(control);
                    self.flow.begins = true;
                }
            }
            Some(b'{') => {
                if self.flow.frames.len() >= DEEPEST {
                    self.flow.too_deep += 1;
                    return;
                }
                let control = match (self.flow.body, self.flow.head) {
                    (Some(control), _) => control,
                    (None, Some((control, parens)))
                        if self.language == Language::Rust && parens == self.flow.parens =>
                    {
                        self.flow.head = None;
                        control
                    }
                    // `list_for_each_entry(…) {`
                    _ if !begins && self.before(at).is_some_and(|b| b.is(b')')) => Control::Loop,
                    _ => Control::Plain,
                };
                self.push(FrameKind::Block, control);
            }
            Some(b'}') => self.close(at, token.line),
            Some(b';') if self.flow.parens == 0 => self.end_statement(at),
            Some(b':') => self.flow.begins = self.flow.parens == 0,
            _ => {}
        }
    }

    /// Does what the jump at the end of a statement does.
    fn leave(&mut self) {
        let Some(jump) = self.flow.jump.take() else { return };
        let held = self.flow.held.take();
        match jump {
            Jump::Return(line) => {
                for taken in held.iter().flatten().filter(|t| !t.maybe && t.scope.is_none()) {
                    self.body.exits.push((*taken, line));
                }
            }
            Jump::Break => {
                let outer = self
                    .flow
                    .frames
                    .iter_mut()
                    .rev()
                    .find(|frame| matches!(frame.control, Control::Loop | Control::Switch));
                if let Some(frame) = outer {
                    let breaks = frame.breaks.take();
                    frame.breaks = unite(breaks, &held);
                }
            }
            Jump::Elsewhere => {}
        }
    }

    fn end_statement(&mut self, at: usize) {
        self.leave();
        // What a statement takes without a name for it is let go of at its end.
        let depth = self.depth();
        leave_scope(&mut self.flow.held, depth + 1);
        while self.flow.frames.last().is_some_and(|frame| frame.kind == FrameKind::Single) {
            if !self.finish(at) {
                break;
            }
        }
        self.begin_statement();
        if self.flow.before_else.is_some() {
            self.flow.body = None;
        }
    }

    /// A statement below a control ends here. Whether the control's own statement ends, too: an `else`
    /// goes on with it.
    fn finish(&mut self, at: usize) -> bool {
        let depth = self.depth();
        let Some(frame) = self.flow.frames.pop() else { return false };
        leave_scope(&mut self.flow.held, depth);
        self.flow.parens = frame.parens;
        self.flow.head = frame.head;
        let after = self.flow.held.take();
        let start = frame.start;
        self.flow.held = match frame.control {
            Control::Plain => after,
            Control::If => {
                if self.next(at + 1).is_some_and(|(_, next)| next.is_word("else")) {
                    self.flow.before_else = Some((after, start.clone()));
                    self.flow.held = start;
                    return false;
                }
                after.or(start)
            }
            Control::Else => join(&start, frame.then, after),
            Control::Loop => join(&start, after.or_else(|| start.clone()), frame.breaks),
            Control::Switch => join(&start, after, frame.breaks),
        };
        true
    }

    fn close(&mut self, at: usize, line: u32) {
        if self.flow.too_deep > 0 {
            self.flow.too_deep -= 1;
            return;
        }
        self.leave();
        while self.flow.frames.last().is_some_and(|frame| frame.kind == FrameKind::Single) {
            self.finish(at);
        }
        if self.flow.frames.last().is_some_and(|frame| frame.kind == FrameKind::Function) {
            self.flow.jump = Some(Jump::Return(line));
            leave_scope(&mut self.flow.held, 0);
            self.leave();
            self.end_function(line);
            let parens = self.flow.frames.pop().map_or(0, |frame| frame.parens);
            self.flow.parens = parens;
            self.flow.head = None;
            self.flow.before_else = None;
            self.begin_statement();
            self.declaration = Declaration::default();
            return;
        }
        let ended = self.finish(at);
        self.begin_statement();
        // `if (a) while (b) { … }`: the `if` ends with the loop.
        let mut ended = ended;
        while ended
            && self.flow.parens == 0
            && self.flow.frames.last().is_some_and(|frame| frame.kind == FrameKind::Single)
        {
            ended = self.finish(at);
            self.begin_statement();
        }
    }

    fn end_function(&mut self, line: u32) {
        // The rest stays: the other branch of a conditional may end the same function.
        let exits = std::mem::take(&mut self.body.exits);
        let body = &self.body;
        let Some(index) = body.index else { return };
        if let Some(function) = self.out.functions.get_mut(index as usize) {
            function.last_line = line;
        }
        let mut seen = FxHashSet::default();
        for (taken, exit) in exits {
            if body.implementation || !seen.insert(taken.id) {
                continue;
            }
            // It was entered with the lock held, let go of it for a while, and leaves as it was entered.
            let same = |lock| same_text(self.pieces, lock, taken.lock);
            if body.given.iter().any(|(kind, lock)| *kind == taken.kind && same(*lock)) {
                continue;
            }
            let leaving = match body.let_go.contains(&taken.kind) {
                true => Leaving::OnOneWay,
                false => Leaving::Always,
            };
            self.out.candidates.push(Candidate {
                kind: taken.kind,
                function: index,
                lock: self.lock_text(taken.lock),
                line: taken.line,
                exit,
                leaving,
            });
        }
    }

    fn word(&mut self, at: usize, token: Token<'a>, begins: bool) {
        let control = match token.text {
            b"if" => Some(Control::If),
            b"while" | b"for" | b"loop" => Some(Control::Loop),
            b"switch" | b"match" => Some(Control::Switch),
            _ => None,
        };
        let rust = self.language == Language::Rust;
        match token.text {
            b"if" | b"while" | b"for" | b"switch" => {
                let control = control.unwrap_or(Control::Plain);
                // Below `else` this `if` is a statement of its own, which the frame for it has.
                self.flow.head = Some((control, self.flow.parens));
            }
            b"loop" | b"match" if rust => {
                self.flow.head = Some((control.unwrap_or(Control::Plain), self.flow.parens));
            }
            b"else" => {
                self.flow.body = Some(Control::Else);
                self.flow.begins = true;
            }
            b"do" => {
                self.flow.body = Some(Control::Plain);
                self.flow.begins = true;
            }
            b"return" => self.flow.jump = Some(Jump::Return(token.line)),
            b"break" => self.flow.jump = Some(Jump::Break),
            b"continue" => self.flow.jump = Some(Jump::Elsewhere),
            b"goto" if !rust => {
                if let Some((_, label)) = self.next(at + 1) {
                    let known = self.body.jumps.remove(label.text).flatten();
                    self.body.jumps.insert(label.text, unite(known, &self.flow.held));
                }
                self.flow.jump = Some(Jump::Elsewhere);
            }
            b"case" | b"default" if begins && !rust => self.case(),
            b"let" => self.flow.binds = true,
            _ => {
                if begins && !rust && self.is_label(at) {
                    let known = self.body.jumps.get(token.text).cloned().flatten();
                    let held = self.flow.held.take();
                    self.flow.held = Some(unite(held, &known).unwrap_or_default());
                    return;
                }
                self.operation(at, token, begins);
            }
        }
    }

    fn is_label(&self, at: usize) -> bool {
        let Some((colon, token)) = self.next(at + 1) else { return false };
        token.is(b':') && !self.next(colon + 1).is_some_and(|(_, next)| next.is(b':'))
    }

    fn case(&mut self) {
        let switch = self.flow.frames.iter().rev().find(|frame| frame.control == Control::Switch);
        let Some(start) = switch.map(|frame| frame.start.clone()) else { return };
        let held = self.flow.held.take();
        self.flow.held = join(&start, start.clone(), held);
    }

    fn operation(&mut self, at: usize, token: Token<'a>, begins: bool) {
        let Some(meanings) = self.meanings.get(token.text) else { return };
        let found = meanings.iter().find_map(|m| Some((*m, self.lock_of(at, m.form)?)));
        let Some((meaning, lock)) = found else { return };
        let index = self.function_index(token.line);
        let mut depth = 0;
        match meaning.operation {
            Operation::Lock | Operation::Try | Operation::Scoped => {
                self.body.taken += 1;
                let scoped = meaning.operation == Operation::Scoped;
                // A method is a statement of its own if what it is called on begins one.
                let receiver = matches!(meaning.form, Form::Method | Form::EmptyMethod);
                let alone = begins || (receiver && self.begins_statement(lock.0 as usize));
                let bound =
                    self.flow.binds || meaning.form == Form::Guard || self.flow.head.is_some();
                let taken = Taken {
                    id: self.body.taken,
                    kind: meaning.kind,
                    lock,
                    line: token.line,
                    maybe: meaning.operation == Operation::Try || !alone,
                    scope: scoped.then(|| self.depth() + u32::from(!bound)),
                };
                depth = take(&mut self.flow.held, taken).min(255) as u8;
            }
            Operation::Unlock => {
                self.body.let_go.insert(meaning.kind);
                let pieces = self.pieces;
                let held = self.flow.held.as_ref();
                if held.is_some_and(|held| held.iter().all(|taken| taken.kind != meaning.kind)) {
                    self.body.given.push((meaning.kind, lock));
                }
                let_go(&mut self.flow.held, meaning.kind, |taken| {
                    same_text(pieces, taken.lock, lock)
                });
            }
            Operation::Other => {}
        }
        self.out.sites.push(Site {
            kind: meaning.kind,
            operation: meaning.operation,
            line: token.line,
            function: index,
            depth,
            implementation: self.body.implementation,
        });
    }

    fn function_index(&mut self, line: u32) -> u32 {
        if let Some(index) = self.body.index {
            return index;
        }
        let name = self.body.name;
        self.out.functions.push(Function {
            name: name.map_or("?".into(), |name| text_of(name.text)),
            line: name.map_or(line, |name| name.line),
            last_line: line,
            is_macro: false,
        });
        let index = self.out.functions.len() as u32 - 1;
        self.body.index = Some(index);
        index
    }

    fn begins_statement(&self, at: usize) -> bool {
        self.before(at).is_none_or(|before| {
            before.is(b';') || before.is(b'{') || before.is(b'}') || before.is(b')')
        })
    }

    /// The tokens that name the lock, if the word at `at` is an operation of this form.
    fn lock_of(&self, at: usize, form: Form) -> Option<(u32, u32)> {
        let (next_at, next) = self.next(at + 1)?;
        let method = self.before(at).is_some_and(|b| b.is(b'.') || b.is(b'>'));
        match form {
            Form::Call if next.is(b'(') && !method => Some(self.argument(next_at)),
            Form::Method | Form::EmptyMethod if next.is(b'(') && method => {
                let empty = self.next(next_at + 1).is_some_and(|(_, token)| token.is(b')'));
                (form == Form::Method || empty).then(|| self.receiver(at))
            }
            Form::Word => Some((at as u32, at as u32)),
            Form::Guard => {
                let mut at = next_at;
                if next.is(b'<') {
                    let mut open = 0_i32;
                    loop {
                        let (here, token) = self.next(at)?;
                        open += i32::from(token.is(b'<')) - i32::from(token.is(b'>'));
                        at = here + 1;
                        if open <= 0 {
                            break;
                        }
                        if token.is(b';') {
                            return None;
                        }
                    }
                }
                let (variable, token) = self.next(at)?;
                let (open, brace) = self.next(variable + 1)?;
                let opens = token.kind == TokenKind::Word && (brace.is(b'(') || brace.is(b'{'));
                opens.then(|| self.argument(open))
            }
            _ => None,
        }
    }

    /// The first argument of a call whose parenthesis is at `open`.
    fn argument(&self, open: usize) -> (u32, u32) {
        let mut depth = 0_u32;
        let start = open as u32 + 1;
        for at in start..start + LONGEST_NAME {
            let Some(token) = self.token(at as usize) else { return (start, at) };
            if depth == 0 && (token.is(b',') || token.is(b')') || token.is(b'}')) {
                return (start, at);
            }
            depth += u32::from(token.is(b'('));
            depth = depth.saturating_sub(u32::from(token.is(b')')));
        }
        (start, start + LONGEST_NAME)
    }

    /// What the method at `at` is called on.
    fn receiver(&self, at: usize) -> (u32, u32) {
        let mut start = at;
        let mut depth = 0_u32;
        for before in (at.saturating_sub(LONGEST_NAME as usize)..at).rev() {
            let Some(token) = self.token(before) else { break };
            let closes = token.is(b')') || token.is(b']');
            let opens = token.is(b'(') || token.is(b'[');
            let joins = [b'.', b'-', b'>', b':'].iter().any(|&byte| token.is(byte));
            let word = token.kind == TokenKind::Word && !token.is_word("return");
            if depth == 0 && (opens || !(closes || joins || word)) {
                break;
            }
            depth += u32::from(closes);
            depth = depth.saturating_sub(u32::from(opens));
            start = before;
        }
        (start as u32, at.saturating_sub(1) as u32)
    }

    fn lock_text(&self, (from, to): (u32, u32)) -> Box<str> {
        let mut text = Vec::new();
        let mut was_word = false;
        for at in from..to {
            let Some(token) = self.token(at as usize) else { break };
            let word = token.kind != TokenKind::Punctuation;
            if word && was_word {
                text.push(b' ');
            }
            was_word = word;
            text.extend_from_slice(token.text);
        }
        text_of(&text)
    }
}

fn same_text(pieces: &[Piece<'_>], one: (u32, u32), other: (u32, u32)) -> bool {
    let tokens = |(from, to): (u32, u32)| {
        pieces.get(from as usize..to.max(from) as usize).unwrap_or_default().iter().map(|piece| {
            match piece {
                Piece::Token(token) => token.text,
                _ => &[],
            }
        })
    };
    tokens(one).eq(tokens(other))
}

/// Words behind which parentheses say something about a function, and are not its own.
fn is_attribute(word: &[u8]) -> bool {
    let word = word.strip_prefix(b"__").unwrap_or(word);
    let word = word.strip_suffix(b"__").unwrap_or(word);
    matches!(
        word,
        b"attribute"
            | b"declspec"
            | b"acquires"
            | b"releases"
            | b"must_hold"
            | b"cond_acquires"
            | b"cond_lock"
            | b"aligned"
            | b"alignas"
            | b"section"
            | b"printf"
            | b"scanf"
            | b"malloc"
            | b"alloc_size"
            | b"assume_aligned"
            | b"nonnull"
            | b"asm"
            | b"noexcept"
            | b"throw"
            | b"requires"
            | b"decltype"
            | b"REGPARM"
            | b"FASTCALL"
            | b"GUARDED_BY"
            | b"EXCLUSIVE_LOCKS_REQUIRED"
            | b"LOCKS_EXCLUDED"
    )
}

#[cfg(test)]
mod tests {
    use crate::file::census;
    use crate::kinds::Kinds;
    use crate::names::Names;
    use crate::site::{FileCensus, Leaving};
    use crate::token::Language;

    fn of(text: &str, language: Language) -> FileCensus {
        let kinds = Kinds::usual().unwrap();
        census(text.as_bytes(), language, &kinds, &Names::default())
    }

    /// Functions with the depth of each site.
    fn drawn(text: &str, language: Language) -> String {
        let census = of(text, language);
        let names = census.functions.iter().enumerate().map(|(at, function)| {
            let sites = census.sites.iter().filter(|site| site.function == at as u32);
            let depths: Vec<_> = sites.map(|site| site.depth.to_string()).collect();
            format!("{}:{}", function.name, depths.join(","))
        });
        names.collect::<Vec<_>>().join(" ")
    }

    /// `function:line left` for each candidate of C.
    fn left(body: &str) -> String {
        let text = format!("int f(int a)\n{{\n{body}\n}}\n");
        let census = of(&text, Language::C);
        let each = census.candidates.iter().map(|candidate| {
            let how = if candidate.leaving == Leaving::Always { "always" } else { "once" };
            format!("{}:{}-{}:{how}", candidate.lock, candidate.line, candidate.exit)
        });
        each.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn functions_have_their_sites() {
        let text = "
            void spin_lock(spinlock_t *lock);
            static struct ops o = { .a = mutex_lock, .b = { 1 } };
            EXPORT_SYMBOL(x)
            static int __init first(int a) __acquires(l) { spin_lock(&l); if (a) { mutex_lock(&m); } }
            SYSCALL_DEFINE2(second, int, a) { spin_unlock(&l); }
            #define third(x) do { spin_lock(x); } while (0)
            #define spin_lock_mine(x) spin_lock(x)
            struct s { int (*f)(int); };
            static inline void spin_lock_irq(spinlock_t *l) { spin_lock(l); }";
        let census = of(text, Language::C);
        let implementation = census.sites.iter().filter(|site| site.implementation).count();
        assert_eq!(implementation, 1, "{census:?}");
        assert_eq!(
            drawn(text, Language::C),
            "third:0 spin_lock_mine:0 first:1,2 second:0 spin_lock_irq:1"
        );
        let text = "namespace a { struct B { B() : x{1}, y(2) { std::lock_guard<std::mutex> g(m); }
            void c() { { std::scoped_lock l(m); } m.lock(); other.lock(1); } }; }
            void A::d(std::unique_lock<std::mutex> &l) { l.unlock(); }";
        assert_eq!(drawn(text, Language::Cpp), "B:1 c:1,1 d:0");
        let text = "impl A { fn one(&self) -> B { let a = self.m.lock(); if x { let b = l.read(); }
            self.m.lock().c = 1; match self.m.lock().d { _ => n.lock(), }; file.read(&mut buffer); } }
            fn two<F: Fn() -> u8>(f: F) where F: Copy { f.m.lock(); f.m.lock(); }";
        assert_eq!(drawn(text, Language::Rust), "one:1,2,2,2,3 two:1,1");
    }

    #[test]
    fn locks_that_stay_held_are_found_on_each_way_out() {
        for (body, expected) in [
            ("spin_lock(&l);\nspin_unlock(&l);", ""),
            ("spin_lock(&l);", "&l:3-4:always"),
            ("spin_lock(&l);\nif (a)\nreturn 1;\nspin_unlock(&l);", "&l:3-5:once"),
            ("spin_lock(&l);\nif (a) {\nspin_unlock(&l);\nreturn 1;\n}\nspin_unlock(&l);", ""),
            ("spin_lock(&l);\nif (a)\ngoto out;\na = 1;\nout:\nspin_unlock(&l);\nreturn a;", ""),
            ("spin_lock(&l);\nif (a)\ngoto out;\nspin_unlock(&l);\nout:\nreturn a;", "&l:3-8:once"),
            (
                "if (a)\nspin_lock(&l);\nelse\nspin_lock(&m);\nif (a)\nspin_unlock(&l);\nelse\nspin_unlock(&m);",
                "",
            ),
            ("if (mutex_lock_interruptible(&l))\nreturn 1;\nmutex_unlock(&l);", ""),
            (
                "for (;;) {\nspin_lock(&l);\nif (a)\nbreak;\nspin_unlock(&l);\n}\nspin_unlock(&l);",
                "",
            ),
            (
                "for (;;) {\nspin_lock(&l);\nif (a)\nbreak;\nspin_unlock(&l);\n}\nreturn 0;",
                "&l:4-9:once",
            ),
            (
                "switch (a) {\ncase 1:\nspin_lock(&l);\nbreak;\ncase 2:\nreturn 1;\n}\nspin_unlock(&l);",
                "",
            ),
            ("spin_unlock(&l);\na = 1;\nspin_lock(&l);", ""),
            ("if (a) {\nspin_lock(&l);\n} else if (b) {\nreturn 2;\n}\nspin_unlock(&l);", ""),
            ("do {\nspin_lock(&l);\n} while (a);\nspin_unlock(&l);", ""),
            (
                "spin_lock(&l);\n#ifdef A\nif (a) {\n#else\nif (b) {\n#endif\nreturn 1;\n}\nspin_unlock(&l);",
                "&l:3-9:once",
            ),
            ("#ifdef A\nspin_lock(&l);\n#endif\n#ifdef A\nspin_unlock(&l);\n#endif", ""),
        ] {
            assert_eq!(left(body), expected, "{body}");
        }
    }
}
