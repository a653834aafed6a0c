//! The language of CTF 1.8's metadata: declarations as C has them, with bits and byte orders.

use std::collections::HashMap;
use std::rc::Rc;

use super::lex::{Token, tokens};
use super::model::{
    Choice, Clock, Count, Event, Integer, Model, Path, Ranges, Role, Scope, Stream, Type,
};

/// What is wrong, and at which byte.
pub type Problem = (usize, String);
type Parsed<T> = Result<T, Problem>;

/// How deep types may be within types.
const DEPTH_MAX: usize = 64;

/// Reads metadata.
pub fn parse(text: &str) -> Parsed<Model> {
    let tokens = tokens(text)?;
    let little = native_little(&tokens);
    let mut parser = Parser {
        tokens,
        at: 0,
        little,
        scopes: vec![HashMap::new()],
        depth: 0,
        model: Model::default(),
        end: text.len(),
    };
    parser.builtin();
    while parser.at < parser.tokens.len() {
        parser.top()?;
    }
    Ok(parser.model)
}

/// The byte order that `trace` declares, which types before it need.
fn native_little(tokens: &[(Token, usize)]) -> bool {
    let name = |at: usize, wanted: &str| matches!(tokens.get(at), Some((Token::Name(name), _)) if name == wanted);
    let Some(trace) = (0..tokens.len()).find(|at| name(*at, "trace")) else { return true };
    let order = (trace..tokens.len()).find(|at| name(*at, "byte_order"));
    order.is_none_or(|at| !(name(at + 2, "be") || name(at + 2, "network")))
}

struct Parser {
    tokens: Vec<(Token, usize)>,
    at: usize,
    little: bool,
    /// Named types, `struct NAME` and so on among them.
    scopes: Vec<HashMap<String, Rc<Type>>>,
    depth: usize,
    model: Model,
    end: usize,
}

impl Parser {
    fn builtin(&mut self) {
        let text = Rc::new(Type::Text);
        if let Some(outermost) = self.scopes.first_mut() {
            outermost.insert("string".into(), text);
        }
    }

    fn place(&self) -> usize {
        self.tokens.get(self.at).map_or(self.end, |(_, place)| *place)
    }

    fn error<T>(&self, problem: impl Into<String>) -> Parsed<T> {
        Err((self.place(), problem.into()))
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    fn is(&self, sign: &str) -> bool {
        matches!(self.peek(), Some(Token::Sign(found)) if *found == sign)
    }

    fn takes(&mut self, sign: &str) -> bool {
        let yes = self.is(sign);
        self.at += usize::from(yes);
        yes
    }

    fn expect(&mut self, sign: &str) -> Parsed<()> {
        match self.takes(sign) {
            true => Ok(()),
            false => self.error(format!("`{sign}` is expected here")),
        }
    }

    fn is_name(&self, wanted: &str) -> bool {
        matches!(self.peek(), Some(Token::Name(name)) if name == wanted)
    }

    fn name(&mut self) -> Parsed<String> {
        match self.peek() {
            Some(Token::Name(name)) => {
                let name = name.clone();
                self.at += 1;
                Ok(name)
            }
            _ => self.error("a name is expected here"),
        }
    }

    fn number(&mut self) -> Parsed<i128> {
        let negative = self.takes("-");
        self.takes("+");
        match self.peek() {
            Some(Token::Number(number)) => {
                let number = if negative { -*number } else { *number };
                self.at += 1;
                Ok(number)
            }
            _ => self.error("a number is expected here"),
        }
    }

    /// A declaration at the top.
    fn top(&mut self) -> Parsed<()> {
        if self.takes(";") {
            return Ok(());
        }
        let word = match self.peek() {
            Some(Token::Name(word)) => word.clone(),
            _ => return self.error("a declaration is expected here"),
        };
        match word.as_str() {
            "trace" => self.block(Parser::trace_entry)?,
            "stream" => self.stream()?,
            "event" => self.event()?,
            "clock" => self.clock()?,
            "env" => self.block(Parser::env_entry)?,
            "callsite" => self.block(|parser, _| parser.skip_value())?,
            "typealias" | "typedef" => self.alias()?,
            _ => {
                self.specifier()?;
            }
        }
        self.expect(";")
    }

    /// `word { entry; entry; }`; an entry gets its dotted key.
    fn block(&mut self, entry: fn(&mut Parser, &str) -> Parsed<()>) -> Parsed<()> {
        self.at += 1;
        self.expect("{")?;
        self.scopes.push(HashMap::new());
        while !self.takes("}") {
            if self.is_name("typealias") || self.is_name("typedef") {
                self.alias()?;
            } else if self.declares() {
                self.specifier()?;
            } else {
                let mut key = self.name()?;
                while self.takes(".") {
                    key = format!("{key}.{}", self.name()?);
                }
                if !self.takes(":=") {
                    self.expect("=")?;
                }
                entry(self, &key)?;
            }
            self.expect(";")?;
        }
        self.scopes.pop();
        Ok(())
    }

    /// Whether a type is declared here: `struct NAME {`.
    fn declares(&self) -> bool {
        ["struct", "variant", "enum"].iter().any(|word| self.is_name(word))
    }

    /// Skips a value that is not needed.
    fn skip_value(&mut self) -> Parsed<()> {
        while !self.is(";") {
            if self.at >= self.tokens.len() {
                return self.error("`;` is missing");
            }
            self.at += 1;
        }
        Ok(())
    }

    /// A value as text: a text, a number, or dotted names.
    fn value(&mut self) -> Parsed<String> {
        match self.peek().cloned() {
            Some(Token::Text(text)) => {
                self.at += 1;
                Ok(text)
            }
            Some(Token::Name(_)) => {
                let mut value = self.name()?;
                while self.takes(".") {
                    value = format!("{value}.{}", self.name()?);
                }
                Ok(value)
            }
            _ => Ok(self.number()?.to_string()),
        }
    }

    fn trace_entry(&mut self, key: &str) -> Parsed<()> {
        match key {
            "packet.header" => {
                self.model.packet_header = Some(with_roles(self.specifier()?, packet_role));
                Ok(())
            }
            _ => self.skip_value(),
        }
    }

    fn env_entry(&mut self, key: &str) -> Parsed<()> {
        let value = self.value()?;
        self.model.env.insert(key.to_owned(), value);
        Ok(())
    }

    fn stream(&mut self) -> Parsed<()> {
        self.model.streams.insert(u64::MAX, Stream::default());
        self.block(|parser, key| {
            if key == "id" {
                let id = parser.number()? as u64;
                let stream = parser.model.streams.remove(&u64::MAX).unwrap_or_default();
                parser.model.streams.insert(id, stream.clone());
                // The rest of the block goes to a copy under the number that no stream has.
                parser.model.streams.insert(u64::MAX, stream);
                parser.model.env.insert(STREAM_ID.into(), id.to_string());
                return Ok(());
            }
            if !matches!(key, "packet.context" | "event.header" | "event.context") {
                return parser.skip_value();
            }
            let of = parser.specifier()?;
            let clock = clock_of(&of);
            let stream = parser.model.streams.entry(u64::MAX).or_default();
            match key {
                "packet.context" => stream.packet_context = Some(with_roles(of, packet_role)),
                "event.header" => stream.event_header = Some(with_roles(of, header_role)),
                _ => stream.event_context = Some(of),
            }
            stream.clock = stream.clock.take().or(clock);
            Ok(())
        })?;
        let id = self.model.env.remove(STREAM_ID).and_then(|id| id.parse().ok()).unwrap_or(0);
        let mut stream = self.model.streams.remove(&u64::MAX).unwrap_or_default();
        // Events may have come before.
        if let Some(before) = self.model.streams.remove(&id) {
            stream.events.extend(before.events);
        }
        self.model.streams.insert(id, stream);
        Ok(())
    }

    fn event(&mut self) -> Parsed<()> {
        let mut keys: HashMap<String, i128> = HashMap::new();
        let mut event = Event::default();
        self.at += 1;
        self.expect("{")?;
        while !self.takes("}") {
            let mut key = self.name()?;
            while self.takes(".") {
                key = format!("{key}.{}", self.name()?);
            }
            if !self.takes(":=") {
                self.expect("=")?;
            }
            match key.as_str() {
                "id" | "stream_id" => {
                    let number = self.number()?;
                    keys.insert(key, number);
                }
                "name" => event.name = self.value()?,
                "context" => event.context = Some(self.specifier()?),
                "fields" => event.payload = Some(self.specifier()?),
                _ => self.skip_value()?,
            }
            self.expect(";")?;
        }
        let number = |key: &str| keys.get(key).copied().unwrap_or(0) as u64;
        let stream = self.model.streams.entry(number("stream_id")).or_default();
        stream.events.insert(number("id"), event);
        Ok(())
    }

    fn clock(&mut self) -> Parsed<()> {
        let mut clock = Clock::default();
        let mut name = String::new();
        self.at += 1;
        self.expect("{")?;
        while !self.takes("}") {
            let key = self.name()?;
            self.expect("=")?;
            match key.as_str() {
                "name" => name = self.value()?,
                "freq" => clock.frequency = self.number()?.clamp(1, u64::MAX.into()) as u64,
                "offset_s" => clock.offset_s = self.number()? as i64,
                "offset" => clock.offset = self.number()? as i64,
                _ => self.skip_value()?,
            }
            self.expect(";")?;
        }
        self.model.clocks.insert(name, clock);
        Ok(())
    }

    /// `typealias TYPE := NAME`, or `typedef TYPE NAME`.
    fn alias(&mut self) -> Parsed<()> {
        let alias = self.is_name("typealias");
        self.at += 1;
        let of = self.specifier()?;
        if alias {
            self.expect(":=")?;
            let mut name = self.name()?;
            while let Some(Token::Name(_)) = self.peek() {
                name = format!("{name} {}", self.name()?);
            }
            self.define(name, of);
        } else {
            let (name, of) = self.declarator(of)?;
            self.define(name, of);
        }
        Ok(())
    }

    fn define(&mut self, name: String, of: Rc<Type>) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name, of);
        }
    }

    fn known(&self, name: &str) -> Option<Rc<Type>> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name)).cloned()
    }

    /// A type.
    fn specifier(&mut self) -> Parsed<Rc<Type>> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return self.error("types are too deep within types");
        }
        let of = self.specifier_within();
        self.depth -= 1;
        of
    }

    fn specifier_within(&mut self) -> Parsed<Rc<Type>> {
        while self.is_name("const") {
            self.at += 1;
        }
        let word = self.name()?;
        match word.as_str() {
            "integer" => Ok(Rc::new(Type::Integer(self.integer()?))),
            "floating_point" => self.float(),
            "string" => {
                if self.is("{") {
                    self.attributes()?;
                }
                Ok(Rc::new(Type::Text))
            }
            "struct" => self.structure(),
            "variant" => self.variant(),
            "enum" => self.enumeration(),
            _ => {
                let mut name = word;
                // `unsigned long int`: as long as that is known.
                while let Some(Token::Name(next)) = self.peek() {
                    let longer = format!("{name} {next}");
                    let more = matches!(next.as_str(), "int" | "long" | "short" | "char");
                    if self.known(&longer).is_none() && !more {
                        break;
                    }
                    name = longer;
                    self.at += 1;
                }
                match self.known(&name) {
                    Some(of) => Ok(of),
                    None => {
                        self.at -= 1;
                        self.error(format!("there is no type `{name}`"))
                    }
                }
            }
        }
    }

    /// `{ key = value; }`.
    fn attributes(&mut self) -> Parsed<HashMap<String, String>> {
        let mut attributes = HashMap::new();
        self.expect("{")?;
        while !self.takes("}") {
            let key = self.name()?;
            self.expect("=")?;
            let value = self.value()?;
            attributes.insert(key, value);
            self.expect(";")?;
        }
        Ok(attributes)
    }

    fn order(&self, attributes: &HashMap<String, String>) -> bool {
        match attributes.get("byte_order").map(String::as_str) {
            Some("le") => true,
            Some("be" | "network") => false,
            _ => self.little,
        }
    }

    fn integer(&mut self) -> Parsed<Integer> {
        let attributes = self.attributes()?;
        let number = |key: &str| attributes.get(key).and_then(|value| value.parse::<u32>().ok());
        let text = |key: &str| attributes.get(key).map_or("", String::as_str);
        let size = number("size").unwrap_or(0);
        if !(1..=64).contains(&size) {
            return self.error("an integer has 1 to 64 bits");
        }
        let byte = if size.is_multiple_of(8) { 8 } else { 1 };
        let align = number("align").unwrap_or(byte);
        if !align.is_power_of_two() || align > 1 << 16 {
            return self.error("an alignment is a power of two");
        }
        let clock = text("map")
            .strip_prefix("clock.")
            .map(|rest| rest.strip_suffix(".value").unwrap_or(rest).to_owned());
        Ok(Integer {
            size,
            align,
            signed: matches!(text("signed"), "true" | "TRUE" | "1"),
            little: self.order(&attributes),
            letter: matches!(text("encoding"), "UTF8" | "utf8" | "ASCII" | "ascii"),
            labels: Vec::new(),
            roles: Vec::new(),
            clock,
        })
    }

    fn float(&mut self) -> Parsed<Rc<Type>> {
        let attributes = self.attributes()?;
        let number = |key: &str| attributes.get(key).and_then(|value| value.parse::<u32>().ok());
        let bits = |key: &str| number(key).unwrap_or(0).min(1000);
        let size = bits("exp_dig") + bits("mant_dig");
        let align = number("align").unwrap_or(8);
        if size != 32 && size != 64 || !align.is_power_of_two() {
            return self.error("a floating-point number has 32 or 64 bits");
        }
        Ok(Rc::new(Type::Float { size, align, little: self.order(&attributes) }))
    }

    /// Fields between braces.
    fn fields(&mut self) -> Parsed<Vec<(String, Rc<Type>)>> {
        let mut fields = Vec::new();
        self.expect("{")?;
        self.scopes.push(HashMap::new());
        while !self.takes("}") {
            if self.is_name("typealias") || self.is_name("typedef") {
                self.alias()?;
            } else {
                let of = self.specifier()?;
                if self.is(";") {
                    // Only a type was declared.
                    self.at += 1;
                    continue;
                }
                fields.push(self.declarator(of)?);
            }
            self.expect(";")?;
        }
        self.scopes.pop();
        Ok(fields)
    }

    /// `name`, `name[3]`, `name[length]`.
    fn declarator(&mut self, of: Rc<Type>) -> Parsed<(String, Rc<Type>)> {
        let name = self.name()?;
        let mut counts = Vec::new();
        while self.takes("[") {
            counts.push(match self.peek() {
                Some(Token::Number(_)) => Count::Static(self.number()?.max(0) as u64),
                _ => Count::Field(self.path()?),
            });
            self.expect("]")?;
            if counts.len() > 8 {
                return self.error("too many dimensions");
            }
        }
        let wrap = |element: Rc<Type>, count| match &*element {
            Type::Integer(letter) if letter.letter && letter.size == 8 && letter.align <= 8 => {
                Rc::new(Type::Bytes { count, text: true })
            }
            _ => Rc::new(Type::Array { element, count, align: 1 }),
        };
        Ok((plain(&name), counts.into_iter().rev().fold(of, wrap)))
    }

    fn path(&mut self) -> Parsed<Path> {
        let mut names = vec![self.name()?];
        while self.takes(".") {
            names.push(self.name()?);
        }
        let scopes: [(&[&str], Scope); 7] = [
            (&["trace", "packet", "header"], Scope::PacketHeader),
            (&["stream", "packet", "context"], Scope::PacketContext),
            (&["stream", "event", "header"], Scope::EventHeader),
            (&["stream", "event", "context"], Scope::StreamEventContext),
            (&["event", "context"], Scope::EventContext),
            (&["event", "fields"], Scope::Payload),
            (&["event", "header"], Scope::EventHeader),
        ];
        let found = scopes.iter().find(|(prefix, _)| {
            names.len() > prefix.len() && prefix.iter().zip(&names).all(|(a, b)| a == b)
        });
        let skip = found.map_or(0, |(prefix, _)| prefix.len());
        let names = names.iter().skip(skip).map(|name| plain(name)).collect();
        Ok(Path { scope: found.map(|(_, scope)| *scope), names })
    }

    fn structure(&mut self) -> Parsed<Rc<Type>> {
        let name = self.tag("struct")?;
        if !self.is("{") {
            return self.tagged(name);
        }
        let fields = self.fields()?;
        let mut least = 1;
        if self.is_name("align") {
            self.at += 1;
            self.expect("(")?;
            least = self.number()?.clamp(1, 1 << 16) as u32;
            self.expect(")")?;
            if !least.is_power_of_two() {
                return self.error("an alignment is a power of two");
            }
        }
        let of = Rc::new(Type::structure(fields, least));
        self.define_tagged(name, &of);
        Ok(of)
    }

    /// The name behind `struct`, as which it is known.
    fn tag(&mut self, word: &str) -> Parsed<Option<String>> {
        match self.peek() {
            Some(Token::Name(_)) => Ok(Some(format!("{word} {}", self.name()?))),
            _ => Ok(None),
        }
    }

    fn tagged(&mut self, name: Option<String>) -> Parsed<Rc<Type>> {
        match name.as_deref().and_then(|name| self.known(name)) {
            Some(of) => Ok(of),
            None => self.error(format!("there is no type `{}`", name.unwrap_or_default())),
        }
    }

    fn define_tagged(&mut self, name: Option<String>, of: &Rc<Type>) {
        if let Some(name) = name {
            self.define(name, Rc::clone(of));
        }
    }

    fn variant(&mut self) -> Parsed<Rc<Type>> {
        let name = self.tag("variant")?;
        let mut selector = None;
        if self.takes("<") {
            selector = Some(self.path()?);
            self.expect(">")?;
        }
        if !self.is("{") {
            let of = self.tagged(name)?;
            return match (&*of, selector) {
                (Type::Variant { options, .. }, Some(selector)) => {
                    Ok(Rc::new(Type::Variant { selector, options: options.clone() }))
                }
                _ => Ok(of),
            };
        }
        let choice = |(name, of)| Choice { name, ranges: None, of };
        let options = self.fields()?.into_iter().map(choice).collect();
        let none = Path { scope: None, names: Vec::new() };
        let of = Rc::new(Type::Variant { selector: selector.unwrap_or(none), options });
        self.define_tagged(name, &of);
        Ok(of)
    }

    fn enumeration(&mut self) -> Parsed<Rc<Type>> {
        let name = self.tag("enum")?;
        let mut of = None;
        if self.takes(":") {
            of = Some(self.specifier()?);
        }
        if !self.is("{") {
            return self.tagged(name);
        }
        let of = of.or_else(|| self.known("int"));
        let Some(Type::Integer(base)) = of.as_deref() else {
            return self.error("an enumeration is of integers: `enum : TYPE { … }`");
        };
        let mut integer = base.clone();
        self.expect("{")?;
        let mut next = 0;
        while !self.takes("}") {
            let label = match self.peek().cloned() {
                Some(Token::Text(label)) => {
                    self.at += 1;
                    label
                }
                _ => plain(&self.name()?),
            };
            let (mut from, mut to) = (next, next);
            if self.takes("=") {
                from = self.number()?;
                to = if self.takes("...") { self.number()? } else { from };
            }
            next = to.saturating_add(1);
            let known = integer.labels.iter_mut().find(|(known, _)| *known == label);
            match known {
                Some((_, ranges)) => ranges.push((from, to)),
                None => integer.labels.push((label, Ranges::from([(from, to)]))),
            }
            if !self.takes(",") && !self.is("}") {
                return self.error("`,` or `}` is expected here");
            }
        }
        let of = Rc::new(Type::Integer(integer));
        self.define_tagged(name, &of);
        Ok(of)
    }
}

/// Where a stream's number is kept while its block is read; no name of a language's.
const STREAM_ID: &str = "\0stream";

/// Names are written with `_` in front so that none is a keyword.
fn plain(name: &str) -> String {
    name.strip_prefix('_').filter(|rest| !rest.is_empty()).unwrap_or(name).to_owned()
}

/// Roles by name, of packets' headers and contexts.
fn packet_role(name: &str, _: &Integer) -> Option<Role> {
    Some(match name {
        "magic" => Role::Magic,
        "stream_id" => Role::Stream,
        "timestamp_begin" => Role::Begin,
        "timestamp_end" => Role::End,
        "content_size" => Role::ContentSize,
        "packet_size" => Role::PacketSize,
        "events_discarded" => Role::Discarded,
        "packet_seq_num" => Role::Sequence,
        _ => return None,
    })
}

/// Of events' headers.
fn header_role(name: &str, integer: &Integer) -> Option<Role> {
    match name {
        "id" => Some(Role::Class),
        "timestamp" => Some(Role::Time),
        _ => integer.clock.is_some().then_some(Role::Time),
    }
}

/// How many nested types are visited: a chain of doublings would have exponentially many.
const VISITS_MAX: usize = 1 << 14;

/// The type with roles for its integers, and those of structures and variants in it.
fn with_roles(of: Rc<Type>, role: fn(&str, &Integer) -> Option<Role>) -> Rc<Type> {
    let mut visits = VISITS_MAX;
    roles_within("", &of, role, &mut visits)
}

fn roles_within(
    name: &str,
    of: &Rc<Type>,
    role: fn(&str, &Integer) -> Option<Role>,
    visits: &mut usize,
) -> Rc<Type> {
    if *visits == 0 {
        return Rc::clone(of);
    }
    *visits -= 1;
    Rc::new(match &**of {
        Type::Integer(integer) => {
            let mut integer = integer.clone();
            integer.roles = role(name, &integer).into_iter().collect();
            Type::Integer(integer)
        }
        Type::Struct { fields, align } => {
            let mut made = Vec::new();
            for (name, of) in fields {
                made.push((name.clone(), roles_within(name, of, role, visits)));
            }
            Type::Struct { fields: made, align: *align }
        }
        Type::Variant { selector, options } => {
            let mut made = Vec::new();
            for choice in options {
                let of = roles_within(&choice.name, &choice.of, role, visits);
                made.push(Choice { of, ..choice.clone() });
            }
            Type::Variant { selector: selector.clone(), options: made }
        }
        _ => return Rc::clone(of),
    })
}

/// The clock of the first integer that has one.
fn clock_of(of: &Type) -> Option<String> {
    fn go(of: &Type, visits: &mut usize) -> Option<String> {
        *visits = visits.checked_sub(1)?;
        match of {
            Type::Integer(integer) => integer.clock.clone(),
            Type::Struct { fields, .. } => fields.iter().find_map(|(_, of)| go(of, visits)),
            Type::Variant { options, .. } => options.iter().find_map(|it| go(&it.of, visits)),
            _ => None,
        }
    }
    let mut visits = VISITS_MAX;
    go(of, &mut visits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_understood() {
        let model = parse(
            r#"/* CTF 1.8 */
            typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
            typealias integer { size = 5; align = 1; } := unsigned long int;
            trace { major = 1; minor = 8; byte_order = be;
                packet.header := struct { uint8_t magic; uint8_t _stream_id; uint8_t uuid[16]; }; };
            clock { name = "mono"; freq = 1000; offset_s = 5; offset = 7; };
            struct tagged { uint8_t x; } align(32);
            stream { id = 3;
                event.header := struct { enum : unsigned long int { a = 0 ... 30, b = 31 } id;
                    variant <id> { struct { uint8_t timestamp; } a; uint8_t b; } v; };
                packet.context := struct { struct tagged t; string s; uint8_t list[_t.x]; };
            };
            event { name = "it:happened"; id = 2; stream_id = 3;
                fields := struct { integer { size = 8; encoding = UTF8; } _text[_n]; float f; }; };
            "#
            .replace("float f;", "floating_point { exp_dig = 8; mant_dig = 24; } f;")
            .as_str(),
        )
        .unwrap();
        let stream = &model.streams[&3];
        assert_eq!(model.clocks["mono"], Clock { frequency: 1000, offset_s: 5, offset: 7 });
        assert_eq!(stream.events[&2].name, "it:happened");
        assert_eq!(stream.packet_context.as_ref().unwrap().align(), 32);
        let Type::Struct { fields, .. } = &**model.packet_header.as_ref().unwrap() else {
            panic!()
        };
        let Type::Integer(magic) = &*fields[0].1 else { panic!() };
        assert_eq!((magic.little, &magic.roles[..]), (false, &[Role::Magic][..]));
        assert_eq!(fields[1].0, "stream_id");
        let Type::Struct { fields, .. } = &**stream.events[&2].payload.as_ref().unwrap() else {
            panic!()
        };
        assert!(matches!(&*fields[0].1, Type::Bytes { text: true, count: Count::Field(path) }
            if path.names == ["n"]));
        assert!(matches!(&*fields[1].1, Type::Float { size: 32, little: false, .. }));
    }

    #[test]
    fn mistakes_are_reported_with_their_place() {
        for (text, place) in [
            ("event { name = ", 15),
            ("trace { packet.header := struct { nothing x; }; };", 34),
            ("typealias integer { size = 65; } := x;", 33),
            ("struct { uint8_t", 9),
        ] {
            assert_eq!(parse(text).unwrap_err().0, place, "{text}");
        }
        let deep = format!("struct a {}", "{ struct ".repeat(100_000));
        assert!(parse(&deep).is_err());
        let doubled: String = (1..60)
            .map(|n| format!("struct s{n} {{ struct s{} a; struct s{} b; }};", n - 1, n - 1))
            .collect();
        let text = format!(
            "struct s0 {{ string s; }}; {doubled} stream {{ event.header := struct s59; }};"
        );
        assert!(parse(&text).is_ok());
    }
}
