//! Class files of a Java compiler in the form that CLDC takes.
//!
//! No compiler of today writes `StackMap`, the attribute by which small devices verify code. The table
//! that compilers write instead says the same as differences from frame to frame: here they are added up.

use crate::target::Target;

/// The class file, or none if it is not one that a compiler made for Java 8.
pub fn preverify(file: &[u8]) -> Option<Vec<u8>> {
    let mut input = Reader { bytes: file, at: 0 };
    if input.u32()? != 0xcafe_babe {
        return None;
    }
    input.take(4)?;
    let mut pool = Constants::read(&mut input)?;
    let mut rest = Vec::new();
    let head = input.take(6)?;
    rest.extend(head);
    let this = u16::from_be_bytes([head[2], head[3]]);
    let interfaces = input.u16()?;
    rest.extend(interfaces.to_be_bytes());
    rest.extend(input.take(usize::from(interfaces) * 2)?);
    for is_method in [false, true] {
        let members = input.u16()?;
        rest.extend(members.to_be_bytes());
        for _ in 0..members {
            let member = input.take(6)?;
            rest.extend(member);
            let access = u16::from_be_bytes([member[0], member[1]]);
            let [name, descriptor] = [2, 4].map(|at| pool.text(&member[at..at + 2]));
            let (name, descriptor) = (name?.to_owned(), descriptor?.to_owned());
            let attributes = input.u16()?;
            rest.extend(attributes.to_be_bytes());
            for _ in 0..attributes {
                let (index, content) = input.attribute()?;
                rest.extend(index);
                let code = if is_method && pool.text(index)? == "Code" {
                    let own = (access & super::ACC_STATIC == 0).then(|| {
                        if name == "<init>" { vec![UNINITIALIZED_THIS] } else { object(this) }
                    });
                    code(content, own, &descriptor, &mut pool)?
                } else {
                    content.to_vec()
                };
                rest.extend((code.len() as u32).to_be_bytes());
                rest.extend(code);
            }
        }
    }
    rest.extend(input.take(file.len() - input.at)?);
    let mut out = file[..4].to_vec();
    out.extend([0, 0]);
    out.extend(Target::Cldc.version().to_be_bytes());
    out.extend(pool.count.to_be_bytes());
    out.extend(pool.bytes);
    out.extend(rest);
    Some(out)
}

const TOP: u8 = 0;
const UNINITIALIZED_THIS: u8 = 6;
const OBJECT: u8 = 7;
const UNINITIALIZED: u8 = 8;

/// A type as it is in frames.
type Verification = Vec<u8>;

fn object(class: u16) -> Verification {
    let [high, low] = class.to_be_bytes();
    vec![OBJECT, high, low]
}

/// A `Code` attribute with `StackMap` in place of the table. `own` is the type of `this`.
fn code(
    content: &[u8],
    own: Option<Verification>,
    descriptor: &str,
    pool: &mut Constants,
) -> Option<Vec<u8>> {
    let mut input = Reader { bytes: content, at: 0 };
    input.take(4)?;
    let length = input.u32()? as usize;
    input.take(length)?;
    let handlers = input.u16()?;
    input.take(usize::from(handlers) * 8)?;
    let mut out = content[..input.at].to_vec();
    let attributes = input.u16()?;
    out.extend(attributes.to_be_bytes());
    for _ in 0..attributes {
        let (index, content) = input.attribute()?;
        out.extend(index);
        let content = if pool.text(index)? == "StackMap" {
            let mut locals: Vec<Verification> = own.iter().cloned().collect();
            locals.extend(parameters(descriptor, pool)?);
            whole_frames(content, locals)?
        } else {
            content.to_vec()
        };
        out.extend((content.len() as u32).to_be_bytes());
        out.extend(content);
    }
    Some(out)
}

/// The types of a method's parameters.
fn parameters(descriptor: &str, pool: &mut Constants) -> Option<Vec<Verification>> {
    let mut rest = descriptor.strip_prefix('(')?;
    let mut types = Vec::new();
    while !rest.starts_with(')') {
        let dimensions = rest.len() - rest.trim_start_matches('[').len();
        let element = rest[dimensions..].chars().next()?;
        let end = match element {
            'L' => rest.find(';')? + 1,
            _ => dimensions + 1,
        };
        let (one, more) = rest.split_at(end);
        types.push(match (dimensions, element) {
            (0, 'L') => object(pool.class(&one[1..one.len() - 1])?),
            (0, 'F') => vec![2],
            (0, 'D') => vec![3],
            (0, 'J') => vec![4],
            (0, _) => vec![1],
            _ => object(pool.class(one)?),
        });
        rest = more;
    }
    Some(types)
}

fn whole_frames(table: &[u8], mut locals: Vec<Verification>) -> Option<Vec<u8>> {
    let mut input = Reader { bytes: table, at: 0 };
    let count = input.u16()?;
    let mut out = count.to_be_bytes().to_vec();
    let mut next = 0_u16;
    for _ in 0..count {
        let kind = input.take(1)?[0];
        let delta = match kind {
            0..=63 => u16::from(kind),
            64..=127 => u16::from(kind) - 64,
            _ => input.u16()?,
        };
        let mut stack = Vec::new();
        match kind {
            0..=63 | 251 => {}
            64..=127 | 247 => stack = input.types(1)?,
            248..=250 => {
                let left = locals.len().checked_sub(usize::from(251 - kind))?;
                locals.truncate(left);
            }
            252..=254 => locals.extend(input.types(u16::from(kind) - 251)?),
            255 => {
                let count = input.u16()?;
                locals = input.types(count)?;
                let count = input.u16()?;
                stack = input.types(count)?;
            }
            _ => return None,
        }
        let at = next.checked_add(delta)?;
        next = at.checked_add(1)?;
        out.extend(at.to_be_bytes());
        for types in [&locals, &stack] {
            out.extend((types.len() as u16).to_be_bytes());
            types.iter().for_each(|each| out.extend(each));
        }
    }
    Some(out)
}

/// Bytes that are read one after the other.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|b| u16::from_be_bytes([b[0], b[1]]))
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// The index of its name, and what is in it.
    fn attribute(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let index = self.take(2)?;
        let length = self.u32()? as usize;
        Some((index, self.take(length)?))
    }

    fn types(&mut self, count: u16) -> Option<Vec<Verification>> {
        let mut types = Vec::new();
        for _ in 0..count {
            let tag = *self.bytes.get(self.at)?;
            let size = if matches!(tag, OBJECT | UNINITIALIZED) { 3 } else { 1 };
            if !(TOP..=UNINITIALIZED).contains(&tag) {
                return None;
            }
            types.push(self.take(size)?.to_vec());
        }
        Some(types)
    }
}

/// The constants of a class file, to which more can be added.
struct Constants {
    count: u16,
    bytes: Vec<u8>,
    texts: Vec<(u16, String)>,
}

impl Constants {
    fn read(input: &mut Reader) -> Option<Self> {
        let count = input.u16()?;
        let mut pool = Self { count, bytes: Vec::new(), texts: Vec::new() };
        let mut index = 1;
        while index < count {
            let tag = input.take(1)?[0];
            pool.bytes.push(tag);
            match tag {
                1 => {
                    let length = input.u16()?;
                    let text = input.take(usize::from(length))?;
                    let text = std::str::from_utf8(text).unwrap_or_default();
                    // Nothing else in a class has this name.
                    let text = if text == "StackMapTable" { "StackMap" } else { text };
                    pool.bytes.extend((text.len() as u16).to_be_bytes());
                    pool.bytes.extend(text.as_bytes());
                    pool.texts.push((index, text.to_owned()));
                }
                3 | 4 | 9..=12 => pool.bytes.extend(input.take(4)?),
                5 | 6 => {
                    pool.bytes.extend(input.take(8)?);
                    index += 1;
                }
                7 | 8 => pool.bytes.extend(input.take(2)?),
                // What stands for code that is made at run time is none of a device's.
                _ => return None,
            }
            index += 1;
        }
        Some(pool)
    }

    /// A text by the two bytes of its index.
    fn text(&self, index: &[u8]) -> Option<&str> {
        let index = u16::from_be_bytes([*index.first()?, *index.get(1)?]);
        self.texts.iter().find(|(at, _)| *at == index).map(|(_, text)| text.as_str())
    }

    /// Adds a class.
    fn class(&mut self, name: &str) -> Option<u16> {
        let text = self.count;
        self.count = self.count.checked_add(2)?;
        self.bytes.push(1);
        self.bytes.extend((name.len() as u16).to_be_bytes());
        self.bytes.extend(name.as_bytes());
        self.bytes.push(7);
        self.bytes.extend(text.to_be_bytes());
        Some(text + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_added_up() {
        // Same, one more local, one on the operand stack, one local less, whole.
        let table = [0, 5, 3, 252, 0, 1, 1, 65, 7, 0, 9, 250, 0, 0, 255, 0, 4, 0, 1, 4, 0, 1, 3];
        let whole = whole_frames(&table, vec![vec![1]]).expect("a table");
        let expected = [
            0, 5, // frames
            0, 3, 0, 1, 1, 0, 0, // at 3
            0, 5, 0, 2, 1, 1, 0, 0, // at 5
            0, 7, 0, 2, 1, 1, 0, 1, 7, 0, 9, // at 7
            0, 8, 0, 1, 1, 0, 0, // at 8
            0, 13, 0, 1, 4, 0, 1, 3, // at 13
        ];
        assert_eq!(whole, expected);
    }

    #[test]
    fn what_is_no_class_file() {
        assert!(preverify(b"").is_none());
        assert!(preverify(&[0xca, 0xfe, 0xba, 0xbe, 0, 0, 0, 52, 0, 9, 18]).is_none());
    }
}
