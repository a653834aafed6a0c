//! Lifting and emitting as text: each file of `filetests` is assembly, followed by what is made of it.
//!
//! The first line says what is wanted: `# lift` shows each function's blocks, ways out and jump
//! tables, or why it is left unmodified; `# emit MODE` shows the rewritten text with probes of that mode
//! (`# emit MODE reversed`: with its blocks in the opposite order) as well. Functions are those of the
//! macro `function`. `FETTLE_BLESS=1 cargo test -p fettle-rewrite --test filetests` writes the expectations
//! anew; read the difference before you commit it.

mod common;

use std::fmt::Write;
use std::path::Path;

use fettle_code::{Mode, Probing};
use fettle_image::{Image, LinkAddr};
use fettle_isa::{Flow, Insn};
use fettle_lift::function::{Block, Exit, Function};
use fettle_lift::{Chunk, Lifted, Placement};
use fettle_rewrite::plan::{PlanFixup, PlanFixupKind};
use fettle_rewrite::{Plan, PlanOptions};
use iced_x86::{Decoder, DecoderOptions, Formatter, NasmFormatter};

/// Begins a function with a symbol that has a size, as compilers write it.
const PRELUDE: &str = "
    .macro function name
    .text
    .globl \\name
    .type \\name, @function
    .p2align 4
    \\name:
    .endm
    .macro done name
    .size \\name, . - \\name
    .endm
";

/// What stands in front of each line of an expectation.
const MARK: &str = "#>";

#[test]
fn all_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests");
    let bless = std::env::var_os("FETTLE_BLESS").is_some();
    let mut files: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|e| e == "s"));
    files.sort();
    assert!(!files.is_empty());
    let mut wrong = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let source = text.split(MARK).next().unwrap();
        let mut found = source.to_string();
        for line in shown(source).lines() {
            found.push_str(format!("{MARK} {line}").trim_end());
            found.push('\n');
        }
        if bless {
            std::fs::write(&file, found).unwrap();
        } else if found != text {
            wrong.push(format!("{}:\n{found}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "not as expected; what was found:\n{}", wrong.join("\n"));
}

/// What is made of a file.
fn shown(source: &str) -> String {
    let wanted: Vec<&str> =
        source.lines().next().unwrap().trim_start_matches('#').split_whitespace().collect();
    let image = common::assembled(&[PRELUDE, source].concat(), &["-shared", "-Wl,--build-id=none"]);
    let lifted = fettle_lift::lift(&image);
    let mut out = String::new();
    for function in &lifted.functions {
        show_function(&image, function, &mut out);
    }
    for skipped in &lifted.skipped {
        let name = skipped.name.as_deref().unwrap_or("?");
        writeln!(out, "{name} is left unmodified: {}", skipped.reason.describe()).unwrap();
    }
    if let ["emit", mode, rest @ ..] = &wanted[..] {
        let mode = Mode::ALL.into_iter().find(|m| m.name() == *mode).expect("a mode");
        show_emitted(&image, &lifted, mode, rest == &["reversed"][..], &mut out);
    }
    out
}

/// The name of a block of a function: the entry block of all is `b0` when it comes first.
fn block_name(function: &Function, at: LinkAddr) -> Option<String> {
    function.block_at(at).map(|id| format!("b{}", id.0))
}

/// How an address is called that a function's code leads to.
fn place_name(image: &Image, function: &Function, at: LinkAddr) -> String {
    if let Some(name) = block_name(function, at) {
        return name;
    }
    if let Some(i) = function.tables.iter().position(|table| table.start == at) {
        return format!("table {i}");
    }
    match image.symbols_at(at).first() {
        Some(symbol) => symbol.name.clone(),
        None => "elsewhere".to_string(),
    }
}

fn show_function(image: &Image, function: &Function, out: &mut String) {
    writeln!(out, "{}: {} blocks", function.name.as_deref().unwrap_or("?"), function.blocks.len())
        .unwrap();
    for (i, block) in function.blocks.iter().enumerate() {
        writeln!(out, "  b{i}:{}", if block.landing_pad { " landing pad" } else { "" }).unwrap();
        for (n, insn) in function.block_insns(block).iter().enumerate() {
            let index = block.insns.start as usize + n;
            writeln!(out, "    {}", instruction(image, function, insn, function.flow(index)))
                .unwrap();
        }
        writeln!(out, "    {}", ways_out(image, function, block)).unwrap();
    }
    for (i, table) in function.tables.iter().enumerate() {
        let entries: Vec<String> = table
            .entries
            .iter()
            .map(|entry| entry.map_or("null".into(), |to| place_name(image, function, to)))
            .collect();
        let kind = match table.kind {
            fettle_lift::TableKind::Relative { .. } => "distances",
            fettle_lift::TableKind::Absolute => "addresses",
        };
        let bound = if table.is_bounded() { "bounded" } else { "without a bound" };
        let movable = if table.movable { "can be copied" } else { "stays in place" };
        writeln!(out, "  table {i}: {kind}, {bound}, {movable}: {}", entries.join(" ")).unwrap();
    }
}

fn ways_out(image: &Image, function: &Function, block: &Block) -> String {
    let mut ways: Vec<String> = block.succs.iter().map(|succ| format!("b{}", succ.0)).collect();
    match block.exit {
        Some(Exit::Return) => ways.push("return".into()),
        Some(Exit::TailJump(to)) => {
            ways.push(format!("tail call of {}", place_name(image, function, to)));
        }
        Some(Exit::TailBranch(to)) => {
            ways.push(format!("conditional tail call of {}", place_name(image, function, to)));
        }
        Some(Exit::TailIndirect) => ways.push("indirect tail call".into()),
        None => {}
    }
    if ways.is_empty() { "-> nowhere".into() } else { format!("-> {}", ways.join(", ")) }
}

/// An instruction with the names of what it leads to.
fn instruction(image: &Image, function: &Function, insn: &Insn, flow: Flow) -> String {
    let decoded = decode(image.read(LinkAddr(insn.ip()), insn.len()).unwrap(), insn.ip());
    let text = format(&decoded);
    let mnemonic = text.split(' ').next().unwrap().to_string();
    let target = match flow {
        Flow::Jump(to) | Flow::Branch(to) | Flow::Call(to) => Some(LinkAddr(to)),
        _ => None,
    };
    match target {
        Some(to) => format!("{mnemonic} {}", place_name(image, function, to)),
        None if decoded.is_ip_rel_memory_operand() => {
            let at = LinkAddr(decoded.ip_rel_memory_address());
            let operands = text.split_once('[').map_or("", |(before, _)| before);
            format!("{operands}[{}]", place_name(image, function, at))
        }
        None => text,
    }
}

fn decode(bytes: &[u8], ip: u64) -> iced_x86::Instruction {
    Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode()
}

fn format(instruction: &iced_x86::Instruction) -> String {
    let mut formatter = NasmFormatter::new();
    formatter.options_mut().set_rip_relative_addresses(true);
    let mut text = String::new();
    formatter.format(instruction, &mut text);
    text
}

fn show_emitted(image: &Image, lifted: &Lifted, mode: Mode, reversed: bool, out: &mut String) {
    let placement = reversed.then(|| reverse(lifted));
    let options =
        PlanOptions { placement: placement.as_ref(), ..PlanOptions::new(Probing::new(mode)) };
    let plan = fettle_rewrite::plan(image, lifted, options);
    for chunk in &plan.chunks {
        let planned = &plan.functions[chunk.function as usize];
        let function = lifted.functions.iter().find(|f| f.entry == planned.entry).unwrap();
        writeln!(out, "rewritten {}:", planned.name.as_deref().unwrap_or("?")).unwrap();
        let code = &plan.text[..chunk.end as usize];
        let mut at = chunk.start as usize;
        while at < code.len() {
            let decoded = decode(&code[at..], at as u64);
            let end = at + decoded.len();
            let fixup = plan.fixups.iter().find(|f| (at..end).contains(&(f.at as usize)));
            let mut line = format(&decoded);
            if let Some(fixup) = fixup {
                line = named(image, function, &plan, fixup, &line);
            } else if decoded.near_branch_target() != 0 {
                let distance = decoded.near_branch_target() as i64 - i64::from(chunk.start);
                line = format!("{} +{distance:#x}", line.split(' ').next().unwrap());
            }
            writeln!(out, "  {:4x}  {line}", at - chunk.start as usize).unwrap();
            at = end;
        }
    }
}

/// A line with what its field is to be filled in with.
fn named(image: &Image, function: &Function, plan: &Plan, fixup: &PlanFixup, line: &str) -> String {
    let what = match fixup.kind {
        PlanFixupKind::Original { to, .. } => {
            format!("original {}", place_name(image, function, to))
        }
        PlanFixupKind::New(at) => {
            let name = plan.function_at(at).and_then(|f| plan.functions[f].name.clone());
            format!("rewritten {}", name.as_deref().unwrap_or("agent"))
        }
        PlanFixupKind::Table(n) | PlanFixupKind::TableAddress(n) => format!("copy of table {n}"),
        PlanFixupKind::Accumulator(field) => format!("accumulator +{field}"),
        PlanFixupKind::Counter(n) => format!("counter {n}"),
        PlanFixupKind::IdHigh => "identifier, upper half".into(),
        PlanFixupKind::IdLow => "identifier, lower half".into(),
        PlanFixupKind::Number => "number".into(),
        PlanFixupKind::RingMask => "ring mask".into(),
    };
    // The field itself says nothing yet.
    let text = line.split([' ', '[']).next().unwrap_or(line);
    let operands = line.split_once('[').map_or("", |(before, _)| before.trim_start_matches(text));
    format!("{} <{what}>", format!("{text}{operands}").trim_end())
}

/// Every function's blocks in the opposite order, the entry first.
fn reverse(lifted: &Lifted) -> Placement {
    let chunk = |function: &Function| {
        let entry = function.entry_block();
        let all = (0..function.blocks.len() as u32).rev().map(fettle_lift::BlockId);
        let blocks = [entry].into_iter().chain(all.filter(|block| *block != entry)).collect();
        Chunk { function: function.entry, blocks, align: 16 }
    };
    Placement::new(lifted.functions.iter().map(chunk).collect())
}
