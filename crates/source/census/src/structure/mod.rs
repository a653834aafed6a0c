//! Functions, blocks and statements, as far as braces and a few keywords show them, and the locks that are
//! held in between.
//!
//! Nothing here knows types. A brace behind `name(…)` outside of functions begins one; within it, `if`, loops,
//! `switch`, `goto`, labels and `return` say where control goes. A conditional of the preprocessor whose value
//! is unknown has each of its branches begin with what was before it; what is behind has the braces of the first
//! branch, so `#ifdef A if (x) { #else if (y) { #endif` opens one block.

mod locks;
mod outside;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::conditional::{Branch, Piece, same_text};
use crate::held::{State, Taken, join, leave_scope, unite};
use crate::kinds::{Kind, Meaning};
use crate::site::{Candidate, FileCensus, Function, Leaving, text_of};
use crate::token::{Language, Token, TokenKind};

/// How deep blocks may nest: what is deeper is not looked at more closely.
const DEEPEST: usize = 256;

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
    fn guards_of_linux_hold_until_the_end_of_their_block() {
        let text = "
            int one(struct mutex *mutex) { guard(mutex)(&a); if (b) { guard(rcu)(); spin_lock(&c); } spin_lock(&d); }
            int two(void) { scoped_guard(spinlock_irqsave, &a) { spin_lock(&b); spin_unlock(&b); } spin_lock(&c); }
            int three(void) { scoped_guard(rcu) call(); scoped_cond_guard(mutex_intr, return -EINTR, &a) { spin_lock(&b); } }";
        let census = of(text, Language::C);
        assert_eq!(census.sites.len(), 11, "{census:?}");
        assert_eq!(drawn(text, Language::C), "one:1,2,3,3 two:1,2,0,1 three:1,1,2");
        let text = "
            #define GUARDED() guard(mutex)(&a)
            #define SCOPED(x) scoped_guard(spinlock_irqsave, x) spin_lock(&b)
            #define ALONE() scoped_guard(rcu)
            #define NONE(x) other(mutex)(x) + guard(mutex, x) + guard(other)(x)";
        assert_eq!(drawn(text, Language::C), "GUARDED:0 SCOPED:0,0 ALONE:0");
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
            ("guard(mutex)(&l);\nif (a)\nreturn 1;\nmutex_lock(&m);", "&m:6-7:always"),
            ("scoped_guard(spinlock_irq, &l)\na = 1;\nspin_lock(&m);", "&m:5-6:always"),
            ("#ifdef A\nspin_lock(&l);\n#endif\n#ifdef A\nspin_unlock(&l);\n#endif", ""),
        ] {
            assert_eq!(left(body), expected, "{body}");
        }
    }
}
