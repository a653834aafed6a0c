//! A kernel of a few functions, and what chance makes of it.
#![allow(dead_code)] // Not every test needs all of it.

use fettle_kernel_image::made::{Files, Made};
use fettle_kernel_lift::KernelFunction;
use fettle_lift::edges::{Edge, EdgeGraph, Place};
use iced_x86::code_asm::*;

/// Code at an address, and where some of its labels came to lie.
fn code(at: u64, write: impl FnOnce(&mut CodeAssembler) -> Vec<CodeLabel>) -> (Vec<u8>, Vec<u64>) {
    let mut asm = CodeAssembler::new(64).unwrap();
    asm.db(&FENTRY).unwrap();
    let labels = write(&mut asm);
    let options = iced_x86::BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
    let done = asm.assemble_options(at, options).unwrap();
    let places = labels.iter().map(|label| done.label_ip(label).unwrap()).collect();
    (done.inner.code_buffer, places)
}

const FENTRY: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];

/// A kernel that has what kernels have: loops, cold parts, faults, static keys and calls, warnings,
/// functions that do not return, and flags that live across blocks.
pub fn kernel() -> Made {
    let mut made = Made::default();
    let looping = looping(&mut made);
    let gives_up = gives_up(&mut made);
    caller(&mut made, looping, gives_up);
    keyed(&mut made);
    tail(&mut made);
    made
}

fn looping(made: &mut Made) -> u64 {
    let looping = made.next();
    let (bytes, _) = code(looping, |a| {
        let (mut again, mut out) = (a.create_label(), a.create_label());
        a.mov(rax, rdi).unwrap();
        a.test(rax, rax).unwrap();
        a.je(out).unwrap();
        a.set_label(&mut again).unwrap();
        a.sub(rax, 1).unwrap();
        // The flags of the subtraction live on in the next block.
        a.jb(out).unwrap();
        a.jne(again).unwrap();
        a.set_label(&mut out).unwrap();
        a.ret().unwrap();
        Vec::new()
    });
    made.function("looping", &bytes)
}

/// A function that saves something, calls `callee`, and looks at what came back; where it begins, and where the call
/// is.
pub fn calls_by(made: &mut Made, name: &str, callee: u64) -> (u64, u64) {
    let at = made.next();
    let (bytes, places) = code(at, |a| {
        let (mut call, mut out) = (a.create_label(), a.create_label());
        a.push(rbx).unwrap();
        a.mov(rbx, rdi).unwrap();
        a.set_label(&mut call).unwrap();
        a.call(callee).unwrap();
        a.test(rax, rax).unwrap();
        a.je(out).unwrap();
        a.add(rax, rbx).unwrap();
        a.set_label(&mut out).unwrap();
        a.pop(rbx).unwrap();
        a.ret().unwrap();
        vec![call]
    });
    (made.function(name, &bytes), places[0])
}

fn gives_up(made: &mut Made) -> u64 {
    let gives_up = made.next();
    let (bytes, _) = code(gives_up, |a| {
        let mut here = a.create_label();
        a.set_label(&mut here).unwrap();
        a.cli().unwrap();
        a.hlt().unwrap();
        a.jmp(here).unwrap();
        Vec::new()
    });
    made.function("gives_up", &bytes)
}

fn caller(made: &mut Made, looping: u64, gives_up: u64) {
    let caller = made.next();
    // The cold part comes right behind it.
    let cold = caller + 64;
    let (bytes, places) = code(caller, |a| {
        let (mut site, mut back, mut fault, mut fixup) =
            (a.create_label(), a.create_label(), a.create_label(), a.create_label());
        // mov rdx, [rip + 0x100]
        a.db(&[0x48, 0x8b, 0x15, 0, 1, 0, 0]).unwrap();
        a.call(looping).unwrap();
        a.test(rax, rax).unwrap();
        a.je(cold).unwrap();
        a.set_label(&mut site).unwrap();
        a.call(looping).unwrap();
        a.set_label(&mut back).unwrap();
        a.xor(ecx, ecx).unwrap();
        a.set_label(&mut fault).unwrap();
        a.mov(rdx, qword_ptr(rdi)).unwrap();
        a.set_label(&mut fixup).unwrap();
        a.add(rax, rdx).unwrap();
        a.ret().unwrap();
        vec![site, back, fault, fixup]
    });
    assert_eq!(made.function("caller", &bytes), caller);
    made.static_call(places[0], false);
    made.exception(places[2], places[3], 5);
    made.function("filler", &[0xc3]);
    assert!(made.next() <= cold);
    while made.next() < cold {
        made.function("filler", &[0xc3]);
    }
    let mut asm = CodeAssembler::new(64).unwrap();
    let mut trap = asm.create_label();
    asm.set_label(&mut trap).unwrap();
    asm.ud2().unwrap();
    asm.nop().unwrap();
    asm.test(rdi, rdi).unwrap();
    asm.jne(places[1]).unwrap();
    asm.call(gives_up).unwrap();
    let bytes = asm.assemble(cold).unwrap();
    assert_eq!(made.function("caller.cold", &bytes), cold);
    made.bug(cold, true);
}

fn keyed(made: &mut Made) {
    let keyed = made.next();
    let (bytes, places) = code(keyed, |a| {
        let (mut label, mut sealed, mut on, mut out) =
            (a.create_label(), a.create_label(), a.create_label(), a.create_label());
        a.set_label(&mut label).unwrap();
        a.db(&FENTRY).unwrap();
        a.mov(eax, 1).unwrap();
        a.set_label(&mut sealed).unwrap();
        a.db(&FENTRY).unwrap();
        a.set_label(&mut out).unwrap();
        a.ret().unwrap();
        a.set_label(&mut on).unwrap();
        a.mov(eax, 2).unwrap();
        a.jmp(out).unwrap();
        vec![label, sealed, on]
    });
    made.function("keyed", &bytes);
    made.label(places[0], places[2], false, false);
    made.label(places[1], places[2], true, false);
}

fn tail(made: &mut Made) {
    let tail = made.next();
    let (bytes, _) = code(tail, |a| {
        a.mov(eax, edi).unwrap();
        a.db(&[0xc3, 0xcc, 0xcc, 0xcc, 0xcc]).unwrap();
        Vec::new()
    });
    made.function("tail", &bytes);
    made.static_call(tail + 7, true);
}

/// How often each edge of a function is taken on walks through it that choose their ways by chance, each
/// way out of a block at least once where that can be.
pub fn walked(function: &KernelFunction, dice: &mut Dice) -> Vec<(Edge, u64)> {
    let graph = EdgeGraph::new(&function.code);
    let mut counts: Vec<u64> = vec![0; graph.edges.len()];
    let starts: Vec<usize> =
        (0..counts.len()).filter(|edge| graph.edges[*edge].from.is_none()).collect();
    let blocks = function.code.blocks.len();
    for _ in 0..64.max(blocks / 2) {
        let mut edge = starts[dice.below(starts.len())];
        let mut left = 20 * blocks + 100;
        let first = counts.clone();
        loop {
            counts[edge] += 1;
            let Some(at) = graph.edges[edge].to else { break };
            let ways: Vec<usize> =
                (0..counts.len()).filter(|way| graph.edges[*way].from == Some(at)).collect();
            left -= 1;
            if ways.is_empty() || left == 0 {
                // A circle without a way out: as if no thread had come.
                counts = first;
                break;
            }
            let fewest = ways.iter().map(|way| counts[*way]).min();
            let fresh: Vec<usize> =
                ways.iter().copied().filter(|way| Some(counts[*way]) == fewest).collect();
            let ways = if dice.below(2) == 0 { fresh } else { ways };
            edge = ways[dice.below(ways.len())];
        }
    }
    graph.edges.into_iter().zip(counts).collect()
}

/// What counters at `places` of a function say that was walked through.
pub fn counted(walked: &[(Edge, u64)], places: &[Place]) -> Vec<(Place, u64)> {
    let sum = |wanted: &dyn Fn(&Edge) -> bool| -> u64 {
        walked.iter().filter(|(edge, _)| wanted(edge)).map(|(_, count)| count).sum()
    };
    let value = |place: &Place| match *place {
        Place::Entry => sum(&|edge| edge.from.is_none() && edge.to == walked[0].0.to),
        Place::Block(block) => sum(&|edge| edge.to == Some(block)),
        Place::Between(from, to) => sum(&|edge| edge.from == Some(from) && edge.to == Some(to)),
        Place::Leaving(from) => sum(&|edge| edge.from == Some(from) && edge.to.is_none()),
    };
    places.iter().map(|place| (*place, value(place))).collect()
}

/// Marsaglia's xorshift64.
pub struct Dice(pub u64);

impl Dice {
    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % n.max(1)
    }

    /// Changes a few bytes.
    pub fn damage(&mut self, bytes: &mut [u8]) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            bytes[at] = [0, 0xff, 0x7f, 0x0f, 0xe9, bytes[at] ^ 1, bytes[at] ^ 0x80][self.below(7)];
        }
    }
}

/// The same kernel with some bytes changed.
pub fn damaged(files: &Files, dice: &mut Dice) -> Files {
    let mut files = files.clone();
    match dice.below(8) {
        0 => dice.damage(&mut files.btf),
        1 => {
            let mut text = files.kallsyms.into_bytes();
            dice.damage(&mut text);
            files.kallsyms = String::from_utf8_lossy(&text).into_owned();
        }
        2 => files.core.truncate(dice.below(files.core.len())),
        // Text, keys and tables: what is between them is filling.
        3..=5 => {
            let end = 0x78 + 0x140;
            dice.damage(&mut files.core[..end]);
        }
        _ => {
            let from = files.core.len() - 400;
            dice.damage(&mut files.core[from..]);
        }
    }
    files
}
