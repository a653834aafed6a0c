//! Kernels made by hand, of a few functions: for tests of this crate and of those above it, which need
//! no guest then.

use std::io::Cursor;

use crate::error::Error;
use crate::image::{Image, Sources};

/// Where the text of a made kernel begins.
pub const TEXT: u64 = 0xffff_ffff_8100_0000;
/// Functions begin at a multiple of this.
const ALIGN: usize = 16;
const TRAP: u8 = 0xcc;
/// A frame with nothing but the return address: eight bytes above the stack pointer.
pub const PLAIN_FRAME: [u8; 6] = [8, 0, 0xf8, 0xff, 0x15, 0];

/// A traceable function: a loop with a branch out of it, a call of itself, and a fault's worth of memory.
pub const FENTRY_EXAMPLE: [u8; 29] = [
    0x0f, 0x1f, 0x44, 0x00, 0x00, // nop
    0x48, 0x85, 0xff, // test rdi, rdi
    0x74, 0x11, // je the return
    0x48, 0x8b, 0x07, // mov rax, [rdi]
    0x48, 0x83, 0xef, 0x01, // sub rdi, 1
    0x75, 0xf7, // jne the mov
    0xe8, 0xe8, 0xff, 0xff, 0xff, // call the begin
    0x31, 0xc0, // xor eax, eax
    0x90, // nop
    0xc3, // ret
    0xcc,
];

/// A kernel that is being made.
#[derive(Clone, Debug, Default)]
pub struct Made {
    text: Vec<u8>,
    symbols: Vec<(u64, char, String)>,
    exceptions: Vec<[u64; 3]>,
    labels: Vec<[u64; 3]>,
    static_calls: Vec<[u64; 2]>,
    bugs: Vec<[u64; 2]>,
    rows: Vec<(u64, [u8; 6])>,
    keys: Vec<u64>,
}

/// What such a kernel shows of itself.
#[derive(Clone, Debug)]
pub struct Files {
    /// As `/proc/kcore`.
    pub core: Vec<u8>,
    /// As `/proc/kallsyms`.
    pub kallsyms: String,
    /// As `/sys/kernel/btf/vmlinux`.
    pub btf: Vec<u8>,
}

impl Files {
    /// The image that is read from them.
    ///
    /// # Errors
    /// As [`Image::read`].
    pub fn image(&self) -> Result<Image, Error> {
        Image::read(Sources {
            release: "6.1-made",
            core: Cursor::new(&self.core),
            kallsyms: &self.kallsyms,
            btf: self.btf.clone(),
            blacklist: "",
        })
    }
}

/// Space for static keys, from the kernel's begin on: text may take as much.
const KEYS: u64 = 1 << 16;
const KEY: u64 = 16;

impl Made {
    /// Where the next function will begin.
    pub fn next(&self) -> u64 {
        TEXT + self.text.len().next_multiple_of(ALIGN) as u64
    }

    /// Appends a function with a frame of nothing but the return address; where it begins.
    pub fn function(&mut self, name: &str, code: &[u8]) -> u64 {
        let start = self.next();
        self.text.resize((start - TEXT) as usize, TRAP);
        self.text.extend_from_slice(code);
        self.symbols.push((start, 't', name.to_string()));
        self.row(start, PLAIN_FRAME);
        start
    }

    /// An unwind row from an address on, behind all that there are.
    pub fn row(&mut self, at: u64, row: [u8; 6]) {
        self.rows.push((at, row));
    }

    /// A fault at an instruction that goes on at a fixup.
    pub fn exception(&mut self, at: u64, fixup: u64, data: u32) {
        self.exceptions.push([at, fixup, data.into()]);
    }

    /// A branch of a new static key, which was true when its kernel was built or not. The branch is the
    /// likely way or not.
    pub fn label(&mut self, at: u64, target: u64, starts_true: bool, likely: bool) {
        let key = TEXT + KEYS + KEY * self.keys.len() as u64;
        self.keys.push(starts_true.into());
        self.labels.push([at, target, key | u64::from(likely)]);
    }

    /// A static call; in a jump's place or not.
    pub fn static_call(&mut self, at: u64, tail: bool) {
        self.static_calls.push([at, TEXT + KEYS + u64::from(tail)]);
    }

    /// A `ud2` that is listed: it only warns, or not.
    pub fn bug(&mut self, at: u64, warns: bool) {
        self.bugs.push([at, warns.into()]);
    }

    /// A variable that holds an address.
    pub fn variable(&mut self, name: &str, value: u64) {
        let at = self.next();
        self.text.resize((at - TEXT) as usize, TRAP);
        self.text.extend_from_slice(&value.to_le_bytes());
        self.symbols.push((at, 'd', name.to_string()));
    }

    /// The kernel's files.
    pub fn files(&self) -> Files {
        let mut memory = self.text.clone();
        memory.resize(KEYS as usize, TRAP);
        let text_end = TEXT + KEYS;
        for key in &self.keys {
            memory.extend_from_slice(&[0; 8]);
            memory.extend_from_slice(&key.to_le_bytes());
        }
        memory.resize(memory.len().max((KEYS + KEY) as usize), 0);
        let mut symbols = self.symbols.clone();
        let mut mark = |at: u64, name: &str| symbols.push((at, 'R', name.to_string()));
        mark(TEXT, "_text");
        mark(TEXT, "_stext");
        mark(text_end, "_etext");
        // The last key is one that no longer changes, if there are several.
        let sealed = text_end + KEY * self.keys.len().saturating_sub(1).max(1) as u64;
        mark(sealed, "__start_ro_after_init");
        mark(text_end + KEY * self.keys.len().max(1) as u64, "__end_ro_after_init");
        let mut tables = TableWriter { memory, symbols };
        tables.write("__ex_table", &self.exceptions, |[insn, fixup, data], at| {
            [near(*insn, at), near(*fixup, at + 4), (*data as u32).to_le_bytes()].concat()
        });
        tables.write("__jump_table", &self.labels, |[code, target, key], at| {
            let key = key.wrapping_sub(at + 8).to_le_bytes();
            [&near(*code, at)[..], &near(*target, at + 4), &key].concat()
        });
        tables.write("static_call_sites", &self.static_calls, |[site, key], at| {
            [near(*site, at), near(*key, at + 4)].concat()
        });
        tables.write("__bug_table", &self.bugs, |[trap, warns], at| {
            let [line, flags] = [7u16.to_le_bytes(), (*warns as u16).to_le_bytes()];
            [&near(*trap, at)[..], &near(TEXT, at + 4), &line, &flags].concat()
        });
        let mut rows = self.rows.clone();
        rows.sort_by_key(|(start, _)| *start);
        tables.write("orc_unwind_ip", &rows, |(start, _), at| near(*start, at).to_vec());
        tables.write("orc_unwind", &rows, |(_, row), _| row.to_vec());
        let TableWriter { memory, mut symbols } = tables;
        symbols.push((TEXT + memory.len() as u64, 'R', "_end".to_string()));
        let line = |(at, kind, name): &(u64, char, String)| format!("{at:016x} {kind} {name}\n");
        Files {
            core: core_file(TEXT, &memory),
            kallsyms: symbols.iter().map(line).collect(),
            btf: types(),
        }
    }
}

/// Tables at the end of a kernel's memory, with the symbols of their bounds.
struct TableWriter {
    memory: Vec<u8>,
    symbols: Vec<(u64, char, String)>,
}

impl TableWriter {
    fn mark(&mut self, name: String) {
        self.symbols.push((TEXT + self.memory.len() as u64, 'R', name));
    }

    fn write<T>(&mut self, name: &str, entries: &[T], bytes: impl Fn(&T, u64) -> Vec<u8>) {
        self.mark(format!("__start_{name}"));
        for entry in entries {
            let at = TEXT + self.memory.len() as u64;
            self.memory.extend(bytes(entry, at));
        }
        self.mark(format!("__stop_{name}"));
    }
}

/// The distance from a field to what it names.
fn near(to: u64, field: u64) -> [u8; 4] {
    (to.wrapping_sub(field) as i32).to_le_bytes()
}

/// A core file of one segment, of memory that begins at `start`.
pub(crate) fn core_file(start: u64, memory: &[u8]) -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01".to_vec();
    file.resize(64 + 56, 0);
    file[16..20].copy_from_slice(&[4, 0, 62, 0]);
    (file[32], file[54], file[56]) = (64, 56, 1);
    let segment = &mut file[64..];
    (segment[0], segment[8]) = (1, 64 + 56);
    segment[16..24].copy_from_slice(&start.to_le_bytes());
    segment[32..40].copy_from_slice(&(memory.len() as u64).to_le_bytes());
    file.extend_from_slice(memory);
    file
}

/// Types of the structures that an image is read by.
fn types() -> Vec<u8> {
    let mut strings = vec![0u8];
    let mut text = |name: &str| {
        let at = strings.len() as u32;
        strings.extend_from_slice(name.as_bytes());
        strings.push(0);
        at
    };
    const STRUCT: u32 = 4 << 24;
    // Type 1: an integer of eight bytes.
    let mut words = vec![text("long"), 1 << 24, 8, 64];
    for (name, size) in [
        ("exception_table_entry", 12),
        ("jump_entry", 16),
        ("static_call_site", 8),
        ("bug_entry", 12),
        ("orc_entry", 6),
    ] {
        words.extend([text(name), STRUCT, size]);
    }
    words.extend([text("static_key"), STRUCT | 1, KEY as u32, text("type"), 1, 64]);
    let length = 4 * words.len() as u32;
    let mut bytes = vec![0x9f, 0xeb, 1, 0];
    for word in [24, 0, length, length, strings.len() as u32] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    bytes.extend_from_slice(&strings);
    bytes
}
