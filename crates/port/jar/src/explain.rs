//! One function as it is in the file, as it is lifted, and what it becomes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fettle_mips::Insn;

use crate::classfile::Class;
use crate::error::Error;
use crate::image::Image;
use crate::options::Options;
use crate::program;
use crate::split;

/// Text about each function of this name; none if there is none that the program can reach.
pub fn explain(image: &Image, name: &str) -> Result<Option<String>, Error> {
    let lifted = program::lift(image, &[]);
    let shared = program::shared(image, &lifted, &Options::default());
    let mut out = String::new();
    for function in lifted.functions.iter().filter(|function| function.name == name) {
        let method = &shared.methods[&function.entry];
        let mut class = Class::new(&method.class, "java/lang/Object");
        let largest = split::add(&shared, function, &lifted.summaries, &mut class)?;
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
            let mut steps: BTreeMap<u32, Vec<String>> = BTreeMap::new();
            for (pc, step) in &block.steps {
                steps.entry(*pc).or_default().push(format!("{step:?}"));
            }
            for (pc, texts) in steps {
                let insn = image.word(pc).and_then(Insn::decode);
                let mips = insn.map(|insn| insn.text(pc)).unwrap_or_default();
                for (index, text) in texts.iter().enumerate() {
                    let mips = if index == 0 { mips.as_str() } else { "" };
                    let _ = writeln!(out, "  {pc:8x}  {mips:32} {text}");
                }
            }
            let _ = writeln!(out, "            {:32} {:?}", "", block.end);
        }
    }
    Ok((!out.is_empty()).then_some(out))
}
