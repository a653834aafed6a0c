//! The constant pool of a class.

use rustc_hash::FxHashMap;

use crate::target::Target;

#[derive(Clone, PartialEq, Eq, Hash)]
enum Constant {
    Utf8(String),
    Int(i32),
    Float(u32),
    Long(i64),
    Double(u64),
    Class(u16),
    String(u16),
    NameAndType(u16, u16),
    Field(u16, u16),
    Method(u16, u16),
    Module(u16),
    Package(u16),
}

/// Constants, each once.
pub struct Pool {
    target: Target,
    index: FxHashMap<Constant, u16>,
    bytes: Vec<u8>,
    used: u32,
}

impl Pool {
    /// No constants, of a class for a target.
    pub fn new(target: Target) -> Self {
        Self { target, index: FxHashMap::default(), bytes: Vec::new(), used: 0 }
    }

    /// What its class is to run on.
    pub fn target(&self) -> Target {
        self.target
    }

    fn add(&mut self, constant: Constant) -> u16 {
        if let Some(&index) = self.index.get(&constant) {
            return index;
        }
        let out = &mut self.bytes;
        let mut two = false;
        match &constant {
            Constant::Utf8(text) => {
                let text = modified_utf8(text);
                out.push(1);
                out.extend((text.len() as u16).to_be_bytes());
                out.extend(text);
            }
            Constant::Int(value) => {
                out.push(3);
                out.extend(value.to_be_bytes());
            }
            Constant::Float(bits) => {
                out.push(4);
                out.extend(bits.to_be_bytes());
            }
            Constant::Long(value) => {
                out.push(5);
                out.extend(value.to_be_bytes());
                two = true;
            }
            Constant::Double(bits) => {
                out.push(6);
                out.extend(bits.to_be_bytes());
                two = true;
            }
            Constant::Class(a) => pair(out, 7, &[*a]),
            Constant::String(a) => pair(out, 8, &[*a]),
            Constant::Field(a, b) => pair(out, 9, &[*a, *b]),
            Constant::Method(a, b) => pair(out, 10, &[*a, *b]),
            Constant::NameAndType(a, b) => pair(out, 12, &[*a, *b]),
            Constant::Module(a) => pair(out, 19, &[*a]),
            Constant::Package(a) => pair(out, 20, &[*a]),
        }
        // Index 0 is none.
        let index = self.used as u16 + 1;
        self.used += 1 + u32::from(two);
        self.index.insert(constant, index);
        index
    }

    /// A name or other text.
    pub fn utf8(&mut self, text: &str) -> u16 {
        self.add(Constant::Utf8(text.into()))
    }

    /// A number.
    pub fn int(&mut self, value: i32) -> u16 {
        self.add(Constant::Int(value))
    }

    /// A number, by its bits.
    pub fn float(&mut self, bits: u32) -> u16 {
        self.add(Constant::Float(bits))
    }

    /// A number.
    pub fn long(&mut self, value: i64) -> u16 {
        self.add(Constant::Long(value))
    }

    /// A number, by its bits.
    pub fn double(&mut self, bits: u64) -> u16 {
        self.add(Constant::Double(bits))
    }

    /// A class, by its name with slashes.
    pub fn class(&mut self, name: &str) -> u16 {
        let name = self.utf8(name);
        self.add(Constant::Class(name))
    }

    /// A module, by its name with dots.
    pub fn module(&mut self, name: &str) -> u16 {
        let name = self.utf8(name);
        self.add(Constant::Module(name))
    }

    /// A package, by its name with slashes.
    pub fn package(&mut self, name: &str) -> u16 {
        let name = self.utf8(name);
        self.add(Constant::Package(name))
    }

    /// A string.
    pub fn string(&mut self, text: &str) -> u16 {
        let text = self.utf8(text);
        self.add(Constant::String(text))
    }

    fn name_and_type(&mut self, name: &str, descriptor: &str) -> u16 {
        let (name, descriptor) = (self.utf8(name), self.utf8(descriptor));
        self.add(Constant::NameAndType(name, descriptor))
    }

    /// A field.
    pub fn field(&mut self, class: &str, name: &str, descriptor: &str) -> u16 {
        let (class, name) = (self.class(class), self.name_and_type(name, descriptor));
        self.add(Constant::Field(class, name))
    }

    /// A method, or what stands for it where the target's Java lacks it.
    pub fn method(&mut self, class: &str, name: &str, descriptor: &str) -> u16 {
        let class = self.target.class_of(class, name);
        let (class, name) = (self.class(class), self.name_and_type(name, descriptor));
        self.add(Constant::Method(class, name))
    }

    /// A constant as people write it.
    pub fn text(&self, index: u16) -> String {
        let at = |wanted: u16| self.index.iter().find(|(_, at)| **at == wanted).map(|(c, _)| c);
        match at(index) {
            None => format!("#{index}"),
            Some(Constant::Utf8(text)) => text.clone(),
            Some(Constant::Int(value)) => value.to_string(),
            Some(Constant::Float(bits)) => f32::from_bits(*bits).to_string(),
            Some(Constant::Long(value)) => value.to_string(),
            Some(Constant::Double(bits)) => f64::from_bits(*bits).to_string(),
            Some(
                Constant::Class(name)
                | Constant::String(name)
                | Constant::Module(name)
                | Constant::Package(name),
            ) => self.text(*name),
            Some(Constant::NameAndType(name, descriptor)) => {
                format!("{}{}", self.text(*name), self.text(*descriptor))
            }
            Some(Constant::Field(class, member) | Constant::Method(class, member)) => {
                let class = self.text(*class);
                format!("{}.{}", class.rsplit('/').next().unwrap_or(&class), self.text(*member))
            }
        }
    }

    /// Its bytes in the class file, the count first. None if there are too many.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        let count = u16::try_from(self.used + 1).ok()?;
        let mut out = count.to_be_bytes().to_vec();
        out.extend(&self.bytes);
        Some(out)
    }
}

fn pair(out: &mut Vec<u8>, tag: u8, indexes: &[u16]) {
    out.push(tag);
    for index in indexes {
        out.extend(index.to_be_bytes());
    }
}

/// The form of text in class files; longer than 65,535 bytes it may not be.
fn modified_utf8(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for unit in text.encode_utf16() {
        match unit {
            0x1..=0x7f => out.push(unit as u8),
            0 | 0x80..=0x7ff => out.extend([0xc0 | (unit >> 6) as u8, 0x80 | (unit & 0x3f) as u8]),
            _ => out.extend([
                0xe0 | (unit >> 12) as u8,
                0x80 | (unit >> 6 & 0x3f) as u8,
                0x80 | (unit & 0x3f) as u8,
            ]),
        }
        if out.len() > 65_000 {
            break;
        }
    }
    out
}
