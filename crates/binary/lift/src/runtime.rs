//! Runtimes that know where their code is.
//!
//! A language's runtime looks return addresses up in tables of its own: for its garbage collector, its
//! exceptions, its compiled code. Code whose frames it finds so has to stay where the tables say. Which code
//! that is, symbols say where there are any. In a stripped file what the code does shows it: see
//! [`links_frame`].

use fettle_image::{Image, LinkAddr};
use fettle_isa::Insn;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use crate::function::SkipReason;
use crate::range_code::RangeCode;

/// Whether these bytes are among an image's constants: what shows a runtime where symbols are gone.
pub fn has_constant(image: &Image, bytes: &[u8]) -> bool {
    memchr::memmem::find(constants(image), bytes).is_some()
}

/// Whether a text of C is among them: one that ends with a zero, as it does not where Rust, and so we
/// ourselves, have it.
pub fn has_c_text(image: &Image, text: &[u8]) -> bool {
    let constants = constants(image);
    let mut found = memchr::memmem::find_iter(constants, text);
    found.any(|at| constants.get(at + text.len()) == Some(&0))
}

fn constants(image: &Image) -> &[u8] {
    let section = image.section(".rodata");
    let bytes = section.and_then(|s| image.read(s.start, usize::try_from(s.size).ok()?));
    bytes.unwrap_or_default()
}

/// Runtimes that are known.
enum Known {
    /// None.
    None,
    /// OCaml's native code, with symbols (plugins always have some): all of it and its runtime.
    Ocaml,
    /// The same without symbols: there is no telling what is whose.
    OcamlStripped,
    /// V8's embedded builtins, by name.
    V8,
    /// What Mono has compiled ahead of time: it asks which of its own tables' entries called.
    Mono,
    /// Valgrind's tools: what programs under them call in place of their own `strlen` and the like is
    /// translated with the program. Nothing distinguishes it from the rest.
    Valgrind,
}

/// The functions of an image that have to stay where they are for a runtime, with where that shows.
pub(crate) fn kept<'a>(
    image: &Image,
    functions: impl Iterator<Item = (Option<&'a str>, &'a RangeCode)>,
) -> Vec<Option<(SkipReason, LinkAddr)>> {
    let known = Known::of(image);
    let mut kept: Vec<Option<(SkipReason, LinkAddr)>> = Vec::new();
    let mut before: Option<&RangeCode> = None;
    for (name, code) in functions {
        let by_name = known.keeps(name).map(|reason| (reason, code.range.start));
        let linked = links_frame(image, code).map(|at| (SkipReason::FramesByAddress, at));
        // It is not known where the function before it ends: what lies between them is the runtime's.
        if let Some(failure) = linked
            && let Some(last) = kept.last_mut()
            && before.is_some_and(|before| before.reaches_for_all_we_know(code.range.start))
        {
            last.get_or_insert(failure);
        }
        let failure = by_name.or(linked);
        kept.push(failure);
        before = Some(code);
    }
    kept
}

impl Known {
    fn of(image: &Image) -> Known {
        let of_symbol = |name: &str| match name {
            // Programs, plugins, the runtime as a library.
            "caml_frametable"
            | "caml_startup__code_begin"
            | "caml_plugin_header"
            | "caml_init_frame_descriptors" => Some(Known::Ocaml),
            "mono_aot_file_info" => Some(Known::Mono),
            _ => name.starts_with("Builtins_").then_some(Known::V8),
        };
        if let Some(known) = image.symbols().iter().find_map(|s| of_symbol(&s.name)) {
            return known;
        }
        // Variables of the environment: what every OCaml runtime reads its settings from, and what
        // tells Valgrind's tools that they were started by its launcher.
        if has_c_text(image, b"CAMLRUNPARAM") {
            Known::OcamlStripped
        } else if has_c_text(image, b"VALGRIND_LAUNCHER") {
            Known::Valgrind
        } else {
            Known::None
        }
    }

    fn keeps(&self, name: Option<&str>) -> Option<SkipReason> {
        let by_address = match self {
            Known::None => false,
            Known::Ocaml => name.is_none_or(|n| n.starts_with("caml")),
            Known::OcamlStripped | Known::Mono => true,
            Known::V8 => name.is_some_and(|n| n.starts_with("Builtins_")),
            Known::Valgrind => return Some(SkipReason::Translator),
        };
        by_address.then_some(SkipReason::FramesByAddress)
    }
}

/// Where a function links its frame into a chain, if it does: it pushes what a word of the runtime's memory
/// holds and then puts its stack pointer there, such as V8's entries from C++:
///
/// ```text
/// push 0x108(%r13)
/// mov  %rsp, 0x108(%r13)
/// call …
/// pop  0x108(%r13)
/// ```
///
/// A runtime that follows that chain, as they do when something is thrown, finds the return address of the call
/// in the frame, and looks up which function it is in and where that one handles exceptions. No compiler of C
/// makes such code: it keeps no stack pointer in memory.
fn links_frame(image: &Image, code: &RangeCode) -> Option<LinkAddr> {
    let bytes = |insn: &Insn| image.read(LinkAddr(insn.ip()), insn.len());
    let full = |insn: &Insn| Some(insn.full(bytes(insn)?));
    let stored = code.insns.iter().filter(|insn| bytes(insn).is_some_and(may_store_stack_pointer));
    let stored = stored.filter_map(|insn| Some((insn, full(insn)?)));
    // Nearly no function has any.
    for (insn, store) in stored.filter(|(_, store)| stores_stack_pointer(store)) {
        let linked = |push: Instruction| {
            push.mnemonic() == Mnemonic::Push
                && push.op0_kind() == OpKind::Memory
                && same_word(&push, &store)
        };
        let before = code.insns.iter().filter(|push| bytes(push).is_some_and(may_push_memory));
        if before.filter_map(full).any(linked) {
            return Some(LinkAddr(insn.ip()));
        }
    }
    None
}

/// `mov %rsp,MEMORY` has these first bytes: `48 89` or `49 89` and more, perhaps behind a segment's prefix.
fn may_store_stack_pointer(bytes: &[u8]) -> bool {
    let bytes = match bytes {
        [0x64 | 0x65, rest @ ..] => rest,
        _ => bytes,
    };
    // The register is number 4 without an extension; the other operand is no register.
    matches!(bytes, [rex, 0x89, modrm, ..] if rex & 0xfc == 0x48 && modrm & 0x38 == 0x20 && modrm >> 6 != 3)
}

/// `push MEMORY`: `ff /6`, perhaps behind a prefix or two.
fn may_push_memory(bytes: &[u8]) -> bool {
    let prefixes = bytes.iter().take_while(|b| matches!(b, 0x40..=0x4f | 0x64 | 0x65)).count();
    matches!(bytes[prefixes..], [0xff, modrm, ..] if modrm & 0x38 == 0x30 && modrm >> 6 != 3)
}

fn stores_stack_pointer(store: &Instruction) -> bool {
    store.mnemonic() == Mnemonic::Mov
        && store.op0_kind() == OpKind::Memory
        && store.op1_kind() == OpKind::Register
        && store.op1_register() == Register::RSP
        && ![Register::RSP, Register::RBP].contains(&store.memory_base())
}

fn same_word(a: &Instruction, b: &Instruction) -> bool {
    let word = |i: &Instruction| {
        let address = (i.memory_base(), i.memory_index(), i.memory_index_scale());
        (address, i.memory_displacement64(), i.memory_segment())
    };
    word(a) == word(b)
}
