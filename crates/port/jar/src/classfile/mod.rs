//! Class files: the constant pool, methods, and their frames.
//!
//! Only what translated code needs. Locals have one type each, and what is live at a branch target
//! is known before code is emitted, so that frames need no inference: the caller that places a label says
//! what holds there.

mod code;
mod listing;
mod pool;
mod preverify;

pub use code::{Call, Code, Label, Type};
pub use pool::Pool;
pub use preverify::preverify;

use crate::op;
use crate::target::Target;

const ACC_PUBLIC: u16 = 0x1;
const ACC_STATIC: u16 = 0x8;
const ACC_FINAL: u16 = 0x10;
const ACC_SUPER: u16 = 0x20;
const ACC_PRIVATE: u16 = 0x2;
const ACC_INTERFACE: u16 = 0x200;
const ACC_ABSTRACT: u16 = 0x400;
const ACC_MODULE: u16 = 0x8000;

/// What a class is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A class that cannot be extended.
    Final,
    /// An interface.
    Interface,
    /// What describes a module, and has no parent.
    Module,
}

/// The file that a class's lines are of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceFile {
    /// Its name, without folders.
    pub name: String,
    /// What is to be added to the lines of methods, which have 16 bits.
    pub first: u32,
}

impl SourceFile {
    /// What stack traces show before the colon: where lines count from another than the first, that
    /// stands there, too.
    fn shown(&self) -> String {
        match self.first {
            0 => self.name.clone(),
            first => format!("{}+{first}", self.name),
        }
    }

    /// A source map (JSR 45), by which debuggers find the lines themselves.
    fn map(&self) -> Option<String> {
        let Self { name, first } = self;
        let from = first.checked_add(1)?;
        (*first > 0)
            .then(|| format!("SMAP\n{name}\nC\n*S C\n*F\n1 {name}\n*L\n{from}#1,65535:1\n*E\n"))
    }
}

/// A class under construction.
pub struct Class {
    /// Its constants.
    pub pool: Pool,
    name: String,
    parent: String,
    source: Option<SourceFile>,
    kind: Kind,
    interfaces: Vec<u16>,
    fields: Vec<u8>,
    field_count: u16,
    attributes: Vec<(u16, Vec<u8>)>,
    methods: Vec<u8>,
    count: u16,
    bytecode: usize,
    calls: Vec<(String, Vec<Call>)>,
    listings: Option<Vec<Listing>>,
}

/// A method as text: its name, and of each instruction where it is, of which one of the program, and what.
pub type Listing = (String, Vec<(usize, Option<u32>, String)>);

impl Class {
    /// A class without methods. Names have slashes.
    pub fn new(target: Target, name: &str, parent: &str) -> Self {
        Self {
            pool: Pool::new(target),
            name: name.into(),
            parent: parent.into(),
            source: None,
            kind: Kind::Final,
            interfaces: Vec::new(),
            fields: Vec::new(),
            field_count: 0,
            attributes: Vec::new(),
            methods: Vec::new(),
            count: 0,
            bytecode: 0,
            calls: Vec::new(),
            listings: None,
        }
    }

    /// An interface without methods, which extends these others.
    pub fn interface(name: &str, parents: &[&str]) -> Self {
        let mut class = Self::new(Target::Java, name, "java/lang/Object");
        class.kind = Kind::Interface;
        class.interfaces = parents.iter().map(|parent| class.pool.class(parent)).collect();
        class
    }

    /// The descriptor of a module, without its attribute.
    pub fn module() -> Self {
        let mut class = Self::new(Target::Java, "module-info", "");
        class.kind = Kind::Module;
        class
    }

    /// The same class; its methods are kept as text.
    pub fn with_listings(mut self) -> Self {
        self.listings = Some(Vec::new());
        self
    }

    /// Its methods as text, if they are kept.
    pub fn listings(&self) -> &[Listing] {
        self.listings.as_deref().unwrap_or_default()
    }

    /// Adds an attribute.
    pub fn attribute(&mut self, name: &str, content: Vec<u8>) {
        let name = self.pool.utf8(name);
        self.attributes.push((name, content));
    }

    /// Adds a field that is set once.
    pub fn final_field(&mut self, name: &str, descriptor: &str) {
        let (name, descriptor) = (self.pool.utf8(name), self.pool.utf8(descriptor));
        for half in [ACC_PRIVATE | ACC_FINAL, name, descriptor, 0] {
            self.fields.extend(half.to_be_bytes());
        }
        self.field_count += 1;
    }

    /// Adds a method without code, with these attributes.
    pub fn abstract_method(
        &mut self,
        name: &str,
        descriptor: &str,
        attributes: &[(&str, Vec<u8>)],
    ) {
        let (name, descriptor) = (self.pool.utf8(name), self.pool.utf8(descriptor));
        let count = attributes.len() as u16;
        for half in [ACC_PUBLIC | ACC_ABSTRACT, name, descriptor, count] {
            self.methods.extend(half.to_be_bytes());
        }
        for (name, content) in attributes {
            self.methods.extend(self.pool.utf8(name).to_be_bytes());
            self.methods.extend((content.len() as u32).to_be_bytes());
            self.methods.extend(content);
        }
        self.count += 1;
    }

    /// Says which file its lines are of.
    pub fn with_source(mut self, source: Option<SourceFile>) -> Self {
        self.source = source;
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of bytecode so far.
    pub fn bytecode(&self) -> usize {
        self.bytecode
    }

    /// The calls that were noted in each method.
    pub fn calls(&self) -> &[(String, Vec<Call>)] {
        &self.calls
    }

    /// Adds a constructor that does what its parent's does.
    pub fn constructor(&mut self) {
        let mut code = Code::new(vec![Type::Object(self.name.clone().into())]);
        code.local(op::ALOAD, 0, 1);
        let parent = self.pool.method(&self.parent, "<init>", "()V");
        code.op_index(op::INVOKESPECIAL, parent, -1);
        code.op(op::RETURN, 0);
        self.method("<init>", "()V", false, code);
    }

    /// Adds a method.
    pub fn method(&mut self, name: &str, descriptor: &str, is_static: bool, mut code: Code) {
        let calls = code.take_calls();
        if let Some(listings) = &mut self.listings {
            listings.push((name.to_owned(), code.listing(&self.pool)));
        }
        if !calls.is_empty() {
            self.calls.push((name.to_owned(), calls));
        }
        let access = ACC_PUBLIC | if is_static { ACC_STATIC } else { 0 };
        let (name, descriptor) = (self.pool.utf8(name), self.pool.utf8(descriptor));
        let attribute = self.pool.utf8("Code");
        self.bytecode += code.len();
        for half in [access, name, descriptor, 1, attribute] {
            self.methods.extend(half.to_be_bytes());
        }
        let body = code.attribute(&mut self.pool);
        self.methods.extend((body.len() as u32).to_be_bytes());
        self.methods.extend(body);
        self.count += 1;
    }

    /// The class file. None if its constants are too many.
    pub fn finish(mut self) -> Option<Vec<u8>> {
        let this = self.pool.class(&self.name);
        let parent = match self.kind {
            Kind::Module => 0,
            Kind::Final | Kind::Interface => self.pool.class(&self.parent),
        };
        let mut attributes = Vec::new();
        let mut count = self.attributes.len() as u16;
        for (name, content) in &self.attributes {
            attributes.extend(name.to_be_bytes());
            attributes.extend((content.len() as u32).to_be_bytes());
            attributes.extend(content);
        }
        if let Some(source) = self.source.take() {
            count += 1;
            let (name, value) = (self.pool.utf8("SourceFile"), self.pool.utf8(&source.shown()));
            attributes.extend(name.to_be_bytes());
            attributes.extend(2_u32.to_be_bytes());
            attributes.extend(value.to_be_bytes());
            if let Some(map) = source.map() {
                count += 1;
                attributes.extend(self.pool.utf8("SourceDebugExtension").to_be_bytes());
                attributes.extend((map.len() as u32).to_be_bytes());
                attributes.extend(map.as_bytes());
            }
        }
        let mut out = Vec::new();
        out.extend(0xcafe_babe_u32.to_be_bytes());
        out.extend(0_u16.to_be_bytes());
        out.extend(self.pool.target().version().to_be_bytes());
        out.extend(self.pool.bytes()?);
        let access = match self.kind {
            Kind::Final => ACC_PUBLIC | ACC_FINAL | ACC_SUPER,
            Kind::Interface => ACC_PUBLIC | ACC_INTERFACE | ACC_ABSTRACT,
            Kind::Module => ACC_MODULE,
        };
        let interfaces = self.interfaces.len() as u16;
        for half in [access, this, parent, interfaces].iter().chain(&self.interfaces) {
            out.extend(half.to_be_bytes());
        }
        out.extend(self.field_count.to_be_bytes());
        out.extend(self.fields);
        out.extend(self.count.to_be_bytes());
        out.extend(self.methods);
        out.extend(count.to_be_bytes());
        out.extend(attributes);
        Some(out)
    }
}
