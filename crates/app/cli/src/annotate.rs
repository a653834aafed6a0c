//! `fettle annotate`: the instructions of a function, with how often each of its blocks ran.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use fettle_image::{Image, LinkAddr};
use fettle_report::render::{count, one_line};
use fettle_report::{Analysis, BlockRow, BlockView};
use fettle_trace::{Module, Trace};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Formatter as _, Instruction, NasmFormatter,
    SymbolResolver, SymbolResult,
};
use serde_json::json;

use crate::output;

/// No block that a compiler makes is longer; where a file is damaged, decoding ends.
const BLOCK_BYTES_MAX: usize = 1 << 20;

/// Show a function's instructions with how often each block ran: from traces of the modes blocks and edges
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fettle record --mode edges -o run.fettle -- lua5.4 script.lua
  fettle annotate lua_geti run.fettle
  fettle annotate lua_geti run.fettle --json

Instructions are those of the original file, in Intel's syntax. Behind a block stand the blocks that it led to,
and how often, if edges were counted.")]
pub struct AnnotateArgs {
    /// The function: any of its names, or a part that is in no other
    function: String,
    /// Trace folder [default: the newest *.fettle in this folder]
    trace: Option<PathBuf>,
    /// The program or library that the function is of, if it is not where it was recorded
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Leave source lines out
    #[arg(long)]
    no_source: bool,
    /// Write names as the linker knows them
    #[arg(long)]
    no_demangle: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `fettle annotate`: 0, or 1 if parts of the trace could not be read.
pub fn run(args: &AnnotateArgs) -> anyhow::Result<ExitCode> {
    let trace = output::open(&output::chosen(args.trace.as_deref())?)?;
    let analysis = Analysis::read(&trace, !args.no_demangle)?;
    let view = analysis.blocks(&trace, Some(&args.function), usize::MAX)?;
    let module = module_of(&trace, &view)?;
    let path = args.file.clone().unwrap_or_else(|| PathBuf::from(&module.path));
    let image = open(&path, &module)?;
    let annotated = Annotated { image: &image, view: &view, with_source: !args.no_source };
    match args.json {
        true => output::print(&format!("{:#}\n", annotated.json()))?,
        false => output::print(&annotated.text())?,
    }
    output::warned(Ok(analysis.warnings))
}

/// The module of the function whose blocks are shown.
fn module_of(trace: &Trace, view: &BlockView) -> anyhow::Result<Module> {
    let first = view.rows.first().context("the function has no blocks that were counted")?;
    let counters = trace.counters()?;
    let counter = counters.iter().find(|counter| counter.from_address == first.address);
    let functions = trace.functions()?;
    let function = counter.and_then(|counter| functions.iter().find(|f| f.id == counter.function));
    let modules = trace.modules()?;
    let module =
        function.and_then(|function| modules.into_iter().find(|m| m.id == function.module));
    module.context("the trace does not say which file the function is of")
}

/// The file that was recorded; another one of the same name would have other instructions there.
fn open(path: &Path, module: &Module) -> anyhow::Result<Image> {
    let image = fettle_record::modules::open_image(path)
        .with_context(|| format!("{}; --file names the file that was recorded", path.display()))?;
    let hex = |id: &[u8]| id.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    let found = image.build_id().map(hex);
    if found != module.build_id {
        let name = |id: &Option<String>| id.clone().unwrap_or_else(|| "none".to_owned());
        bail!(
            "{} is not the file that was recorded: its build ID is {}, not {}; --file names the right one",
            path.display(),
            name(&found),
            name(&module.build_id)
        );
    }
    Ok(image)
}

/// A function's blocks and where their instructions are.
struct Annotated<'a> {
    image: &'a Image,
    view: &'a BlockView,
    with_source: bool,
}

impl Annotated<'_> {
    /// The instructions of the block at `at`: to the next block, or to where control leaves for good.
    fn instructions(&self, at: usize) -> Vec<Instruction> {
        let begin = self.view.rows[at].address;
        let end = self.view.rows.get(at + 1).map_or(u64::MAX, |row| row.address);
        let limit = end.saturating_sub(begin).min(BLOCK_BYTES_MAX as u64) as usize;
        let Some(section) = self.image.section_at(LinkAddr(begin)) else { return Vec::new() };
        let rest = (section.start.0 + section.size).saturating_sub(begin) as usize;
        let Some(bytes) = self.image.read(LinkAddr(begin), limit.min(rest)) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for instruction in &mut Decoder::with_ip(64, bytes, begin, DecoderOptions::NONE) {
            if instruction.is_invalid() {
                break;
            }
            found.push(instruction);
            let leaves = !matches!(
                instruction.flow_control(),
                FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall
            );
            if leaves {
                break;
            }
        }
        found
    }

    fn formatter(&self) -> NasmFormatter {
        let names: Box<dyn SymbolResolver> = Box::new(Names::of(self.image));
        let mut formatter = NasmFormatter::with_options(Some(names), None);
        formatter.options_mut().set_branch_leading_zeros(false);
        formatter.options_mut().set_space_after_operand_separator(true);
        formatter.options_mut().set_hex_prefix("0x");
        formatter.options_mut().set_hex_suffix("");
        formatter
    }

    fn text(&self) -> String {
        let mut formatter = self.formatter();
        let lines = self.image.lines();
        let heading = &self.view.rows[0];
        let mut out = format!(
            "{} [{}]: {} executions of {} blocks\n\n{:>14}  {:>6}  {:>10}  instruction\n",
            one_line(heading.function.clone()),
            one_line(heading.module.clone()),
            count(self.view.executions),
            count(self.view.blocks),
            "count",
            "%",
            "address"
        );
        let mut last = None;
        for (at, row) in self.view.rows.iter().enumerate() {
            let share = row.count as f64 / self.view.executions.max(1) as f64 * 100.0;
            let mut left = format!("{:>14}  {share:>5.1}%", count(row.count));
            for instruction in self.instructions(at) {
                let line = lines.line(LinkAddr(instruction.ip())).filter(|_| self.with_source);
                if line.is_some() && line != last {
                    let place = line.as_ref().map(|l| format!("{}:{}", l.file, l.line));
                    let _ = writeln!(out, "{:>36}; {}", "", one_line(place.unwrap_or_default()));
                    last = line;
                }
                let mut text = String::new();
                formatter.format(&instruction, &mut text);
                let _ = writeln!(out, "{left}  {:>10x}  {}", instruction.ip(), one_line(text));
                left = format!("{:>22}", "");
            }
            if !row.to.is_empty() {
                let to = |(to, times): &(u64, u64)| format!("{to:x} {}×", count(*times));
                let to: Vec<String> = row.to.iter().map(to).collect();
                let _ = writeln!(out, "{:>36}→ {}", "", to.join(", "));
            }
        }
        out
    }

    fn json(&self) -> serde_json::Value {
        let mut formatter = self.formatter();
        let lines = self.image.lines();
        let mut block = |(at, row): (usize, &BlockRow)| {
            let instructions = self.instructions(at);
            let mut instruction = |instruction: &Instruction| {
                let mut text = String::new();
                formatter.format(instruction, &mut text);
                let line = lines.line(LinkAddr(instruction.ip())).filter(|_| self.with_source);
                json!({
                    "address": instruction.ip(),
                    "text": text,
                    "file": line.as_ref().map(|line| &line.file),
                    "line": line.as_ref().map(|line| line.line),
                })
            };
            json!({
                "address": row.address,
                "count": row.count,
                "to": row.to.iter().map(|(to, times)| json!({ "address": to, "count": times }))
                    .collect::<Vec<_>>(),
                "instructions": instructions.iter().map(&mut instruction).collect::<Vec<_>>(),
            })
        };
        let blocks: Vec<_> = self.view.rows.iter().enumerate().map(&mut block).collect();
        json!({
            "version": self.view.version,
            "function": self.view.rows[0].function,
            "module": self.view.rows[0].module,
            "executions": self.view.executions,
            "blocks": blocks,
        })
    }
}

/// Names of what calls and jumps lead to.
struct Names(HashMap<u64, String>);

impl Names {
    fn of(image: &Image) -> Names {
        let symbols = image.symbols().iter().filter(|symbol| !symbol.name.is_empty());
        let named = symbols.map(|symbol| (symbol.addr.0, symbol.name.clone()));
        let stubs = image.plt().iter();
        let stubs = stubs.map(|entry| (entry.start.0, format!("{}@plt", entry.target)));
        Names(stubs.chain(named).filter(|(address, _)| *address != 0).collect())
    }
}

impl SymbolResolver for Names {
    fn symbol(
        &mut self,
        _instruction: &Instruction,
        _operand: u32,
        _instruction_operand: Option<u32>,
        address: u64,
        _address_size: u32,
    ) -> Option<SymbolResult<'_>> {
        self.0.get(&address).map(|name| SymbolResult::with_str(address, name))
    }
}
