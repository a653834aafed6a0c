//! One function as it is in the file, as it is lifted, and what it becomes.

use std::fmt::Write as _;

use crate::classfile::Class;
use crate::emit::Program;
use crate::error::Error;
use crate::image::Image;
use crate::ir::Function;
use crate::options::Options;
use crate::program;
use crate::split;

/// Text about each function of this name; none if there is none that the program can reach.
pub fn explain(image: &Image, name: &str) -> Result<Option<String>, Error> {
    let lifted = program::lift(image, &[]);
    let shared = program::shared(image, &lifted, &Options::default());
    let mut out = String::new();
    for function in lifted.functions.iter().filter(|function| is_named(&shared, function, name)) {
        let method = &shared.methods[&function.entry];
        let mut class =
            Class::new(shared.target, &method.class, "java/lang/Object").with_listings();
        let largest = split::add(&shared, function, &lifted.summaries, &mut class)?.largest;
        // Writing to a string does not fail.
        let _ = writeln!(out, "{name} at {:#x}", function.entry);
        let _ = writeln!(out, "method {}{}", method.name, method.signature.descriptor());
        let _ = writeln!(
            out,
            "{} bytes of bytecode, at most {largest} of {} in one method",
            class.bytecode(),
            split::METHOD_MAX,
        );
        let mut order: Vec<usize> = (0..function.blocks.len()).collect();
        order.sort_by_key(|&id| (function.blocks[id].pc, id));
        for id in order {
            let block = &function.blocks[id];
            let _ = writeln!(out, "\nblock {id}");
            for (pc, step) in &block.steps {
                let _ = writeln!(out, "  {pc:8x}  {:32} {step:?}", mips(image, *pc));
            }
            let _ = writeln!(out, "            {:32} {:?}", "", block.end);
        }
        for (method, lines) in class.listings() {
            let _ = writeln!(out, "\nmethod {method}");
            let mut last = None;
            for (at, pc, text) in lines {
                let left = match pc {
                    Some(pc) if last != Some(*pc) => format!("{pc:8x}  {}", mips(image, *pc)),
                    _ => String::new(),
                };
                last = *pc;
                let _ = writeln!(out, "  {left:42} {at:5}  {text}");
            }
        }
    }
    Ok((!out.is_empty()).then_some(out))
}

/// Whether a function has a name, in the file or in stack traces.
fn is_named(program: &Program, function: &Function, name: &str) -> bool {
    function.name == name || program.methods[&function.entry].name == name
}

/// The text of the instruction at an address.
fn mips(image: &Image, pc: u32) -> String {
    image.word(pc).and_then(|word| image.text(word, pc)).unwrap_or_default()
}
