//! Functions that no compiler wrote: random blocks, jumps, loops, tables and calls, which end and keep to the
//! calling convention, as assembly.

use std::fmt::Write;

use super::Random;

/// Registers that a call may change. r10 and r11 hold addresses, which no result may depend on.
const SCRATCH: [&str; 7] = ["rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9"];
/// Registers that a function gives back as they were.
const SAVED: [&str; 5] = ["rbx", "rbp", "r12", "r13", "r14"];
const CONDITIONS: [&str; 16] =
    ["o", "no", "b", "ae", "e", "ne", "be", "a", "s", "ns", "p", "np", "l", "ge", "le", "g"];

/// So many functions of two numbers, `f0` and on; each calls only those before it.
pub fn assembly(random: &mut Random, count: usize) -> String {
    let mut text = String::from("    .section .note.GNU-stack, \"\", @progbits\n");
    for number in 0..count {
        Writer::new(random, number, &mut text).function();
    }
    text
}

struct Writer<'a> {
    random: &'a mut Random,
    number: usize,
    text: &'a mut String,
    /// Saved registers that it uses, in the order in which they are pushed.
    pushed: Vec<&'static str>,
    blocks: usize,
    /// It calls nothing, so what lies below the stack pointer is its own.
    is_leaf: bool,
    tables: Vec<Vec<usize>>,
}

impl<'a> Writer<'a> {
    fn new(random: &'a mut Random, number: usize, text: &'a mut String) -> Writer<'a> {
        let saved = random.below(SAVED.len() + 1);
        let is_leaf = number == 0 || random.below(3) == 0;
        let blocks = 1 + random.below(12);
        // The last counts loops.
        let pushed = SAVED[..saved].iter().copied().chain(["r15"]).collect();
        Writer { random, number, text, pushed, blocks, is_leaf, tables: Vec::new() }
    }

    fn line(&mut self, line: &str) {
        writeln!(self.text, "    {line}").unwrap();
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.random.below(all.len())]
    }

    fn register(&mut self) -> &'static str {
        let saved = self.pushed.len() - 1;
        match self.random.below(SCRATCH.len() + saved) {
            n if n < SCRATCH.len() => SCRATCH[n],
            n => self.pushed[n - SCRATCH.len()],
        }
    }

    /// The lower half of a register.
    fn half(register: &str) -> String {
        match register.strip_prefix('r') {
            Some(rest) if rest.starts_with(|c: char| c.is_ascii_digit()) => format!("{register}d"),
            Some(rest) => format!("e{rest}"),
            None => unreachable!("all of them begin so"),
        }
    }

    fn function(mut self) {
        let name = format!("f{}", self.number);
        writeln!(self.text, "    .text\n    .globl {name}\n    .type {name}, @function").unwrap();
        writeln!(self.text, "    .p2align 4\n{name}:\n    .cfi_startproc").unwrap();
        for register in self.pushed.clone() {
            self.line(&format!("push %{register}\n    .cfi_adjust_cfa_offset 8"));
            self.line(&format!(".cfi_rel_offset %{register}, 0"));
        }
        // The stack is aligned where calls are made.
        let room = if self.pushed.len().is_multiple_of(2) { 8 } else { 16 };
        self.line(&format!("sub ${room}, %rsp\n    .cfi_adjust_cfa_offset {room}"));
        self.fresh("rdi", true);
        for block in 0..self.blocks {
            writeln!(self.text, ".L{}_{block}:", self.number).unwrap();
            self.block(block);
        }
        writeln!(self.text, ".L{}_{}:", self.number, self.blocks).unwrap();
        self.line(&format!("add ${room}, %rsp\n    .cfi_adjust_cfa_offset -{room}"));
        for register in self.pushed.clone().into_iter().rev() {
            self.line(&format!("pop %{register}\n    .cfi_adjust_cfa_offset -8"));
            self.line(&format!(".cfi_restore %{register}"));
        }
        if self.number > 0 && self.random.below(4) == 0 {
            let callee = self.random.below(self.number);
            self.line(&format!("mov %rax, %rdi\n    jmp f{callee}"));
        } else {
            self.line("ret");
        }
        writeln!(self.text, "    .cfi_endproc\n    .size {name}, . - {name}").unwrap();
        for (index, table) in std::mem::take(&mut self.tables).into_iter().enumerate() {
            let start = format!(".T{}_{index}", self.number);
            self.line(&format!(".section .rodata\n    .p2align 2\n{start}:"));
            for to in table {
                self.line(&format!(".long .L{}_{to} - {start}", self.number));
            }
        }
    }

    /// Gives every register a value that follows from one, before its first use and after calls. Calls leave
    /// saved registers as they are.
    fn fresh(&mut self, from: &str, also_saved: bool) {
        let saved = if also_saved { self.pushed.len() - 1 } else { 0 };
        let all = SCRATCH.iter().copied().chain(self.pushed.clone().into_iter().take(saved));
        for (n, register) in all.enumerate().filter(|(_, register)| *register != from) {
            self.line(&format!("lea {}(%{from}), %{register}", n * 77));
        }
        if self.is_leaf && also_saved {
            for slot in 1..=4 {
                self.line(&format!("mov %rdi, -{}(%rsp)", slot * 8));
            }
        }
    }

    fn block(&mut self, block: usize) {
        let loops = self.random.below(4) == 0;
        if loops {
            let rounds = 1 + self.random.below(5);
            self.line(&format!("mov ${rounds}, %r15d\n.B{}_{block}:", self.number));
        }
        for _ in 0..self.random.below(6) {
            self.step();
        }
        if loops {
            self.line(&format!("sub $1, %r15d\n    jnz .B{}_{block}", self.number));
        }
        self.end(block);
    }

    fn step(&mut self) {
        let (a, b, c) = (self.register(), self.register(), self.register());
        // No address in the text: what might be one keeps the function there from being patched.
        let number = (1 << 24) + self.random.below(1 << 20);
        let condition = self.one_of(&CONDITIONS);
        match self.random.below(if self.is_leaf { 13 } else { 14 }) {
            0 => self.line(&format!("add %{a}, %{b}")),
            1 => self.line(&format!("sub ${number}, %{a}")),
            2 => self.line(&format!("imul ${number}, %{a}, %{b}")),
            3 => self.line(&format!("lea {number}(%{a}, %{b}, 4), %{c}")),
            4 => self.line(&format!("xor %{a}, %{b}\n    rol $7, %{b}")),
            // Flags live over what leaves them alone.
            5 => {
                self.line(&format!("cmp %{a}, %{b}\n    mov %{c}, %{a}\n    not %{a}"));
                self.line(&format!("cmov{condition} %{b}, %{c}"));
            }
            6 => self.line(&format!("add %{a}, %{b}\n    lea 1(%{c}), %{c}\n    adc $5, %{c}")),
            7 => {
                self.line(&format!("test %{a}, %{b}\n    set{condition} %al"));
            }
            8 => {
                let (low, other) = (Writer::half(a), Writer::half(b));
                self.line(&format!("sub %{low}, %{other}\n    sbb %{a}, %{a}"));
            }
            9 => {
                let skip = format!(".J{}_{}", self.number, self.text.len());
                self.line(&format!("jrcxz {skip}\n    add ${number}, %{a}\n{skip}:"));
            }
            10 => {
                self.line(&format!("cvtsi2sdq %{a}, %xmm0\n    addsd %xmm0, %xmm0"));
                self.line(&format!("movq %xmm0, %{b}"));
            }
            11 if self.is_leaf => {
                let slot = 8 * (1 + self.random.below(4));
                self.line(&format!("xchg %{a}, -{slot}(%rsp)"));
            }
            11 => self.line(&format!("mov %{a}, (%rsp)\n    add (%rsp), %{b}")),
            12 => self.line(&format!("bswap %{a}\n    stc\n    rcr $3, %{b}")),
            _ => {
                let callee = self.random.below(self.number);
                self.line(&format!("call f{callee}"));
                self.fresh("rax", false);
            }
        }
    }

    /// The way to another block, all of which come later.
    fn end(&mut self, block: usize) {
        let later = |random: &mut Random, blocks: usize| block + 1 + random.below(blocks - block);
        let (to, other) = (later(self.random, self.blocks), later(self.random, self.blocks));
        let (a, b) = (self.register(), self.register());
        let number = self.number;
        match self.random.below(6) {
            0 => self.line(&format!("jmp .L{number}_{to}")),
            1 | 2 => {
                let condition = self.one_of(&CONDITIONS);
                self.line(&format!("cmp %{a}, %{b}\n    j{condition} .L{number}_{to}"));
            }
            // Two branches by the same flags.
            3 => {
                self.line(&format!(
                    "test %{a}, %{b}\n    js .L{number}_{to}\n    jp .L{number}_{other}"
                ));
            }
            4 => {
                let cases = 2 + self.random.below(6);
                let table = (0..cases).map(|_| later(self.random, self.blocks)).collect();
                let (index, start) = (Writer::half(a), format!(".T{number}_{}", self.tables.len()));
                self.line(&format!("and $7, %{index}\n    cmp ${}, %{index}", cases - 1));
                self.line(&format!("ja .L{number}_{to}\n    lea {start}(%rip), %r10"));
                self.line(&format!("movslq (%r10, %{a}, 4), %r11\n    add %r10, %r11"));
                self.line("jmp *%r11");
                self.tables.push(table);
            }
            _ => {}
        }
    }
}
