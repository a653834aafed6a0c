//! From an image to class files.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;
use rustc_hash::FxHashSet;

use crate::blocks;
use crate::classfile::Class;
use crate::convention::Convention;
use crate::coordinates::Coordinates;
use crate::debug::Lines;
use crate::dispatch;
use crate::emit::{Method, Program, Role};
use crate::entries;
use crate::error::Error;
use crate::flow::{self, Liveness, Summaries};
use crate::fold;
use crate::image::Image;
use crate::interface;
use crate::ir::{Callee, End, Function, Stmt};
use crate::jumps;
use crate::landing;
use crate::mips::blocks::Mips;
use crate::module;
use crate::names;
use crate::options::Options;
use crate::replaced;
use crate::riscv::blocks::RiscV;
use crate::split;
use crate::target::Target;
use crate::unwind::{self, Regions};

/// A translated program.
pub struct Translated {
    /// Class files by their path in the jar.
    pub classes: BTreeMap<String, Vec<u8>>,
    /// What the translation did.
    pub summary: Report,
    /// The package, with slashes.
    pub(crate) folder: String,
    /// Whether Java calls it, instead of starting it.
    pub(crate) library: bool,
    /// What it is to run on.
    pub(crate) target: Target,
    /// What it is called in a Maven repository.
    pub(crate) coordinates: Option<Coordinates>,
}

/// What a translation did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Functions that the program can reach.
    pub functions: usize,
    /// Functions that the file has, as far as it says.
    pub in_file: usize,
    /// Functions that are called through pointers.
    pub taken: usize,
    /// Bytes of machine code of the reached functions, as far as the file says how large they are.
    pub code: usize,
    /// Bytes of bytecode.
    pub bytecode: usize,
    /// Bytes of the largest method.
    pub largest_method: usize,
    /// Functions that became several methods.
    pub split: Vec<String>,
    /// What cannot be executed: where, in which function, and why.
    pub problems: Vec<Problem>,
}

/// Something that a program cannot do when it is translated.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Where it is.
    pub address: u32,
    /// The function that it is in.
    pub function: String,
    /// What it is.
    pub reason: String,
}

/// Functions that are reached, with what is known of them.
pub struct Lifted {
    /// The functions in the order of their addresses.
    pub functions: Vec<Function>,
    /// What is known of them.
    pub summaries: Summaries,
    /// Code that exceptions of C++ do something in.
    pub regions: Regions,
}

/// Finds and lifts all functions that the program may reach.
pub fn lift(image: &Image, exported: &[(String, u32)]) -> Lifted {
    let regions = Regions::read(image);
    let mut taken = FxHashSet::from_iter([image.entry]);
    taken.extend(exported.iter().map(|(_, address)| *address));
    let mut exports = image.exports.clone();
    exports.extend(exported.iter().map(|(_, address)| *address));
    let named = !image.functions.is_empty();
    for (_, to) in image.code_pointers() {
        if image.function_at(to).is_some() || !named {
            taken.insert(to);
        }
    }
    let mut functions = find(image, &regions, !exported.is_empty(), &mut taken);
    let summaries = flow::summarise(&functions, &taken, &exports);
    functions.par_iter_mut().for_each(|function| {
        let liveness = Liveness::of(function, &summaries);
        fold::function(function, &liveness);
        prune(function);
    });
    // With less code, less is live.
    let summaries = flow::summarise(&functions, &taken, &exports);
    functions.par_iter_mut().for_each(|function| jumps::by_index(image, function, &summaries));
    Lifted { functions, summaries, regions }
}

/// A function, and what it leads to.
struct Leads {
    function: Function,
    calls: Vec<u32>,
    /// Labels of other functions that it jumps to.
    labels: BTreeSet<u32>,
    /// What may be addresses of functions.
    addresses: Vec<u32>,
}

/// All functions that those lead to whose addresses are taken; more are, by what their code does. What is
/// known is lifted by all processors, then what that leads to.
fn find(
    image: &Image,
    regions: &Regions,
    library: bool,
    taken: &mut FxHashSet<u32>,
) -> Vec<Function> {
    let (mips, riscv) = (Mips::new(image, regions), RiscV::new(image));
    let mut functions: BTreeMap<u32, Function> = BTreeMap::new();
    let mut landings: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    let none = BTreeSet::new();
    let leads = |entry: u32, own: &BTreeSet<u32>| {
        let replaced = replaced::function(image, entry, library);
        let mut function = replaced.unwrap_or_else(|| match image.convention {
            Convention::O32 => blocks::function(image, &mips, entry, own),
            Convention::RiscV => blocks::function(image, &riscv, entry, own),
        });
        prune(&mut function);
        let steps = function.blocks.iter().flat_map(|block| &block.steps);
        let calls = steps.filter_map(|(_, step)| match step {
            Stmt::Call { callee: Callee::Direct(to), .. } if image.is_code(*to) => Some(*to),
            _ => None,
        });
        let calls = calls.collect();
        let (labels, addresses) = (landing::targets(&function), fold::addresses(&function));
        Leads { function, calls, labels, addresses }
    };
    let mut work: BTreeSet<u32> = taken.iter().copied().collect();
    while !work.is_empty() {
        let entries: Vec<u32> = std::mem::take(&mut work).into_iter().collect();
        let found: Vec<Leads> = entries
            .into_par_iter()
            .filter(|entry| !functions.contains_key(entry))
            .map(|entry| leads(entry, landings.get(&entry).unwrap_or(&none)))
            .collect();
        let mut labels = Vec::new();
        for found in found {
            let entry = found.function.entry;
            work.extend(found.calls);
            labels.extend(found.labels.into_iter().map(|label| (entry, label)));
            let addresses = found.addresses.into_iter();
            let new = addresses.filter(|&to| image.function_at(to).is_some() && taken.insert(to));
            work.extend(new);
            functions.insert(entry, found.function);
        }
        // A function that others jump into is lifted again.
        for (from, label) in labels {
            if let Some(around) = image.function_around(label).filter(|&around| around != from)
                && landings.entry(around).or_default().insert(label)
            {
                functions.remove(&around);
                work.insert(around);
            }
        }
    }
    functions.into_values().collect()
}

/// Drops blocks that nothing leads to.
fn prune(function: &mut Function) {
    let mut new_ids = vec![usize::MAX; function.blocks.len()];
    let (mut work, mut order) = (vec![0], Vec::new());
    while let Some(id) = work.pop() {
        if new_ids[id] == usize::MAX {
            new_ids[id] = order.len();
            order.push(id);
            work.extend(function.blocks[id].end.successors());
        }
    }
    let mut blocks: Vec<_> = std::mem::take(&mut function.blocks).into_iter().map(Some).collect();
    function.blocks = order.iter().filter_map(|&id| blocks[id].take()).collect();
    for block in &mut function.blocks {
        match &mut block.end {
            End::Goto(to) => *to = new_ids[*to],
            End::If(_, yes, no) => {
                *yes = new_ids[*yes];
                *no = new_ids[*no];
            }
            End::Invoke { next, pad } => {
                *next = new_ids[*next];
                if let Some(pad) = pad {
                    *pad = new_ids[*pad];
                }
            }
            End::Jump { targets, .. } => targets.iter_mut().for_each(|(_, to)| *to = new_ids[*to]),
            End::Return | End::Nowhere(_) => {}
        }
    }
}

/// Translates a program.
pub fn translate(image: &Image, options: &Options) -> Result<Translated, Error> {
    let exported = options.exported(image)?;
    if image.convention == Convention::RiscV && options.target != Target::Java {
        return Err(Error::JavaOnly);
    }
    let lifted = lift(image, &exported);
    let mut report = Report {
        functions: lifted.functions.len(),
        in_file: image.functions.len(),
        taken: lifted.summaries.values().filter(|s| s.taken).count(),
        code: lifted.functions.iter().filter_map(|f| image.size_of(f.entry)).sum::<u32>() as usize,
        ..Report::default()
    };
    report.problems = problems(image, &lifted);
    let program = shared(image, &lifted, options);
    let mut classes = BTreeMap::new();
    let calls = functions(&program, &lifted, &mut report, &mut classes)?;
    if let Some(table) = unwind::table(&program.regions, &calls) {
        classes.insert(program.class(unwind::TABLE), table);
    }
    let mut targets: Vec<(u32, &Method)> = program
        .methods
        .iter()
        .filter(|(address, _)| lifted.summaries[*address].taken)
        .map(|(address, method)| (*address, method))
        .collect();
    targets.sort_by_key(|(address, _)| *address);
    for class in dispatch::classes(program.target, &program.folder, &targets) {
        finish(class, &mut classes)?;
    }
    finish(entries::code(&program, &exported), &mut classes)?;
    let library = !exported.is_empty();
    if !library {
        finish(entries::main(&program), &mut classes)?;
    }
    if options.target == Target::Cldc {
        finish(entries::midlet(&program), &mut classes)?;
    }
    for class in interface::classes(image, &program, options)? {
        finish(class, &mut classes)?;
    }
    if library && options.target == Target::Java {
        let descriptor = module::of_library(&program.folder, options)?;
        classes.extend(descriptor.map(|bytes| ("module-info.class".to_owned(), bytes)));
    }
    Ok(Translated {
        classes,
        summary: report,
        folder: program.folder,
        library,
        target: options.target,
        coordinates: options.coordinates.clone(),
    })
}

/// Adds the classes with the program's functions, by files. The calls that were noted in each.
fn functions(
    program: &Program,
    lifted: &Lifted,
    report: &mut Report,
    classes: &mut BTreeMap<String, Vec<u8>>,
) -> Result<Vec<unwind::ClassCalls>, Error> {
    // By classes: the functions of one file need not be neighbours.
    let mut by_class: BTreeMap<&str, Vec<&Function>> = BTreeMap::new();
    for function in &lifted.functions {
        by_class.entry(&program.methods[&function.entry].class).or_default().push(function);
    }
    let by_class: Vec<(&str, Vec<&Function>)> = by_class.into_iter().collect();
    let made: Vec<Result<Made, Error>> = by_class
        .into_par_iter()
        .map(|(name, functions)| Made::of(program, lifted, name, &functions))
        .collect();
    let mut calls = Vec::new();
    for made in made {
        let made = made?;
        report.split.extend(made.split);
        report.largest_method = report.largest_method.max(made.largest_method);
        report.bytecode += made.class.bytecode();
        calls.push((made.class.name().to_owned(), made.class.calls().to_vec()));
        finish(made.class, classes)?;
    }
    report.split.sort();
    Ok(calls)
}

/// A class with functions, and what is reported of it.
struct Made {
    class: Class,
    split: Vec<String>,
    largest_method: usize,
}

impl Made {
    fn of(
        program: &Program,
        lifted: &Lifted,
        name: &str,
        functions: &[&Function],
    ) -> Result<Self, Error> {
        let source = names::source(program, functions[0].entry);
        let class = Class::new(program.target, name, "java/lang/Object").with_source(source);
        let mut made = Self { class, split: Vec::new(), largest_method: 0 };
        for function in functions {
            let added = split::add(program, function, &lifted.summaries, &mut made.class)?;
            if added.is_divided {
                made.split.push(function.name.clone());
            }
            made.largest_method = made.largest_method.max(added.largest);
        }
        Ok(made)
    }
}

/// What all methods share.
pub fn shared(image: &Image, lifted: &Lifted, options: &Options) -> Program {
    let regions = lifted.regions.clone();
    let lines = Lines::read(image);
    let folder = options.folder();
    let methods =
        names::methods(&lifted.functions, &lifted.summaries, &lines, &folder, options.target);
    let (big_endian, interruptible) = (image.big_endian, options.interruptible);
    let target = options.target;
    Program {
        methods,
        big_endian,
        regions,
        folder,
        interruptible,
        lines,
        target,
        convention: image.convention,
        high: image.high,
        memory_top: image.memory_top,
    }
}

fn finish(class: Class, classes: &mut BTreeMap<String, Vec<u8>>) -> Result<(), Error> {
    let name = class.name().to_owned();
    let bytes = class
        .finish()
        .ok_or_else(|| Error::Jar(format!("{name} has more constants than a class may have")))?;
    classes.insert(format!("{name}.class"), bytes);
    Ok(())
}

fn problems(image: &Image, lifted: &Lifted) -> Vec<Problem> {
    let mut problems = Vec::new();
    let pointers = image.code_pointers();
    for function in &lifted.functions {
        // A direct call says that there may be a second return; one through a pointer does not.
        let own = |&(at, to): &(u32, u32)| to == function.entry && !image.in_offset_table(at);
        if names::role(&function.name) == Role::SetJump && pointers.iter().any(own) {
            problems.push(Problem {
                address: function.entry,
                function: function.name.clone(),
                reason: "its address is data: after an indirect call no jump returns there".into(),
            });
        }
        for block in &function.blocks {
            let mut add = |address, reason: &str| {
                let (function, reason) = (function.name.clone(), reason.to_owned());
                problems.push(Problem { address, function, reason });
            };
            let calls = block.steps.iter().any(|(_, step)| matches!(step, Stmt::Call { .. }));
            match &block.end {
                // Behind a call that does not return, and where symbols name no code, boards have
                // anything.
                End::Nowhere(pc)
                    if image.convention == Convention::RiscV
                        && (calls || *pc == function.entry) => {}
                End::Nowhere(pc) if image.is_code(*pc) && image.function_at(*pc).is_none() => {
                    let word = image.word(*pc).unwrap_or(0);
                    // What follows a call that does not return.
                    if word != 0 && !image.is_insn(word) {
                        add(*pc, &format!("{word:08x} is no instruction that a program may use"));
                    }
                }
                End::Jump { targets, .. } if targets.is_empty() => {
                    add(block.pc, "a jump through a register, and where to is not known");
                }
                _ => {}
            }
            for (pc, step) in &block.steps {
                if let Stmt::Call { callee: Callee::Direct(to), .. } = step
                    && !image.is_code(*to)
                {
                    add(*pc, &format!("a call of {to:#x}, where no code is"));
                }
            }
        }
    }
    problems
}
