//! Modules read back, as the kernel's loader would read them.

use fettle_kernel_live::elf::{R_X86_64_32S, R_X86_64_64, R_X86_64_PC32};
use fettle_kernel_live::kernel::{Kernel, ModuleLayout};
use fettle_kernel_live::module::{self, Counter, MOST_PER_CPU, Module};
use fettle_kernel_live::{Core, Error};
use fettle_kernel_plan::{
    Bug, EntryPatch, Exception, Function, JumpLabel, OrcRow, Origin, Part, Plan, Reference,
    StaticCall, Target, Value,
};
use object::read::elf::ElfFile64;
use object::{
    Object as _, ObjectSection as _, ObjectSymbol as _, RelocationFlags, RelocationTarget,
};

/// Where the kernel's text is in these tests.
const TEXT: u64 = 0xffff_ffff_8100_0000;
const FENTRY: u64 = TEXT + 0x100;

fn kernel(core: &Core) -> Kernel {
    let needed = core.needed().filter(|name| !module::DEFINED.contains(name));
    let names = needed.chain(["__fentry__", "default_llseek"]);
    let mut symbols: std::collections::BTreeMap<_, _> =
        names.enumerate().map(|(i, name)| (name.to_string(), TEXT + 0x1000 + i as u64)).collect();
    symbols.insert("__fentry__".to_string(), FENTRY);
    Kernel {
        release: "6.1.0-56-amd64".to_string(),
        vermagic: "6.1.0-56-amd64 SMP preempt mod_unload modversions ".to_string(),
        layout_checksum: 0x1234_5678,
        module: ModuleLayout { size: 960, name: 24, init: 376, exit: 832 },
        operations: (96, [8, 16, 32, 40, 48]),
        fields: std::array::from_fn(|i| 8 * i as u64),
        tracepoints: [0; 15],
        orc: fettle_kernel_live::orc::Format::OLD,
        current: 0x1fb80,
        symbols,
    }
}

/// Two functions. The second one lies first in the original, and has a cold part.
fn plan() -> Plan {
    let hot = |function: u32, text: &[u8]| Part {
        function,
        text: text.to_vec(),
        align: 16,
        fentry: Some(0),
        orc: vec![OrcRow { at: 0, entry: [8, 0, 0, 0, 5, 0] }],
        ..Part::default()
    };
    // nop; incq %gs:0; call ...; ret
    let mut first = hot(0, b"\x0f\x1f\x44\0\0\x65\x48\xff\x04\x25\0\0\0\0\xe8\0\0\0\0\xc3");
    first.references = vec![
        Reference { at: 10, value: Value::Counter(0) },
        Reference {
            at: 15,
            value: Value::Relative { target: Target::Kernel(TEXT + 0x4000), tail: 0 },
        },
    ];
    first.origins = vec![
        Origin { at: 5, original: TEXT + 0x2005 },
        Origin { at: 14, original: TEXT + 0x2005 },
        Origin { at: 19, original: TEXT + 0x200a },
    ];
    first.exceptions = vec![Exception { at: 14, fixup: Target::Kernel(TEXT + 0x2009), data: 3 }];
    first.bugs = vec![Bug { at: 14, file: TEXT + 0x9000, line: 77, flags: 5 }];
    // nop; nop of a static key; jmp to the cold part
    let mut second = hot(1, b"\x0f\x1f\x44\0\0\x0f\x1f\x44\0\0\xe9\0\0\0\0");
    second.references = vec![Reference {
        at: 11,
        value: Value::Relative { target: Target::Part { part: 2, offset: 1 }, tail: 0 },
    }];
    second.jump_labels =
        vec![JumpLabel { at: 5, target: Target::Part { part: 2, offset: 0 }, key: TEXT + 0x8001 }];
    second.static_calls = vec![StaticCall { at: 10, key: TEXT + 0x8102 }];
    let cold = Part {
        function: 1,
        text: b"\x90\x65\x48\xff\x05\0\0\0\0\xc3".to_vec(),
        align: 1,
        references: vec![Reference { at: 5, value: Value::Counter(1) }],
        ..Part::default()
    };
    let function = |name: &str, original: u64, entry: u32| Function {
        name: name.to_string(),
        original,
        size: 0x40,
        entry,
        patch: Some(EntryPatch {
            at: original + 5,
            replaced: [0x55, 0x41, 0x54, 0x53, 0x90],
            inside: [1, 3, 4, 0],
            insides: 3,
            to: 5,
        }),
    };
    Plan {
        release: "6.1.0-56-amd64".to_string(),
        functions: vec![
            function("vfs_read", TEXT + 0x2000, 0),
            function("vfs_write", TEXT + 0x1000, 1),
        ],
        parts: vec![first, second, cold],
        modules: Vec::new(),
        counters: 2,
    }
}

fn made(plan: &Plan, per_cpu: u32) -> Result<Module, Error> {
    let core = Core::new();
    module::write(plan, &kernel(&core), &core, per_cpu)
}

/// A relocation with its target as the loader would compute it, sections lying at `place`.
fn relocations(file: &ElfFile64<'_>, section: &str) -> Vec<(u64, u32, String, i64)> {
    let section = file.section_by_name(section).expect("it is there");
    section
        .relocations()
        .map(|(at, relocation)| {
            let RelocationFlags::Elf { r_type, .. } = relocation.flags() else { panic!("ELF") };
            let symbol = match relocation.target() {
                RelocationTarget::Symbol(symbol) => {
                    let symbol = file.symbol_by_index(symbol).expect("it is there");
                    match symbol.section_index() {
                        Some(home) if symbol.name() == Ok("") => {
                            file.section_by_index(home).unwrap().name().unwrap().to_string()
                        }
                        _ => symbol.name().unwrap().to_string(),
                    }
                }
                _ => String::new(),
            };
            (at, r_type.0, symbol, relocation.addend())
        })
        .collect()
}

fn data(file: &ElfFile64<'_>, section: &str) -> Vec<u8> {
    file.section_by_name(section).expect("it is there").data().expect("readable").to_vec()
}

#[test]
fn text_is_the_plans_with_a_call_of_the_tracer() {
    let made = made(&plan(), MOST_PER_CPU).unwrap();
    assert_eq!(made.placed.counters, [Counter::PerCpu(0), Counter::PerCpu(1)]);
    let file: ElfFile64 = ElfFile64::parse(&made.bytes[..]).unwrap();
    let text = data(&file, ".text.fettle");
    assert_eq!(&text[..15], b"\xe8\0\0\0\0\x65\x48\xff\x04\x25\0\0\0\0\xe8");
    assert_eq!(&text[20..32], &[0xcc; 12], "traps up to the next part");
    assert_eq!(&text[32..37], b"\xe8\0\0\0\0");
    let all = relocations(&file, ".text.fettle");
    let tracer = (1, R_X86_64_PC32, "__fentry__".to_string(), -4);
    assert!(all.contains(&tracer), "{all:?}");
    assert!(all.contains(&(10, R_X86_64_32S, ".data..percpu".to_string(), 0)));
    // Relative to nothing: the address itself, less the four bytes.
    let kernel = (15, R_X86_64_PC32, String::new(), (TEXT + 0x4000 - 4) as i64);
    assert!(all.contains(&kernel), "{all:?}");
    let cold = (32 + 11, R_X86_64_PC32, ".text.fettle".to_string(), 47 + 1 - 4);
    assert!(all.contains(&cold), "{all:?}");
    // What the loader relocates has to be zero.
    for (at, kind, _, _) in &all {
        let bytes = if *kind == R_X86_64_64 { 8 } else { 4 };
        assert_eq!(text[*at as usize..*at as usize + bytes], vec![0; bytes]);
    }
}

#[test]
fn new_text_bears_the_names_of_originals() {
    let made = made(&plan(), MOST_PER_CPU).unwrap();
    let file: ElfFile64 = ElfFile64::parse(&made.bytes[..]).unwrap();
    let text = file.section_by_name(".text.fettle").unwrap().index();
    let find = |name: &str| {
        let found = file.symbols().find(|s| s.name() == Ok(name)).expect("it is there");
        assert_eq!(found.section_index(), Some(text));
        (found.address(), found.size())
    };
    assert_eq!(find("vfs_read"), (0, 20));
    assert_eq!(find("vfs_write"), (32, 15));
    assert_eq!(find("vfs_write.cold"), (47, 10));
    // Everything is defined: the loader looks nothing up, so it checks no export.
    let undefined: Vec<_> =
        file.symbols().filter(|s| s.is_undefined() && s.name() != Ok("")).collect();
    assert!(undefined.is_empty(), "{undefined:?}");
}

#[test]
fn jumps_come_by_address() {
    let made = made(&plan(), MOST_PER_CPU).unwrap();
    let file: ElfFile64 = ElfFile64::parse(&made.bytes[..]).unwrap();
    let patches = data(&file, ".data.patches");
    let at = |index: usize| u64::from_le_bytes(patches[24 * index..][..8].try_into().unwrap());
    assert_eq!((at(0), at(1)), (TEXT + 0x1005, TEXT + 0x2005));
    assert_eq!(&patches[16..24], &[0x55, 0x41, 0x54, 0x53, 0x90, 3, 0, 0]);
    let targets = relocations(&file, ".data.patches");
    let text = || ".text.fettle".to_string();
    assert_eq!(targets, [(8, R_X86_64_64, text(), 32 + 5), (32, R_X86_64_64, text(), 5)]);
    let origins = data(&file, ".rodata.origins");
    let row = |index: usize| origins[8 * index..8 * index + 8].to_vec();
    assert_eq!(row(0), [5, 0, 0, 0, 0x05, 0x20, 0, 0x81]);
    assert_eq!(row(2), [19, 0, 0, 0, 0x0a, 0x20, 0, 0x81]);
    let facts = data(&file, ".rodata.facts");
    let fact = |index: usize| u64::from_le_bytes(facts[8 * index..][..8].try_into().unwrap());
    let amounts = kernel(&Core::new()).fields.len();
    assert_eq!([0, 1, 2, 3].map(|index| fact(amounts + index)), [2, 3, 2, 0]);
}

#[test]
fn tables_are_the_loaders() {
    let made = made(&plan(), MOST_PER_CPU).unwrap();
    let file: ElfFile64 = ElfFile64::parse(&made.bytes[..]).unwrap();
    let text = || ".text.fettle".to_string();
    assert_eq!(
        relocations(&file, "__mcount_loc"),
        [(0, R_X86_64_64, text(), 0), (8, R_X86_64_64, text(), 32)]
    );
    let exceptions = relocations(&file, "__ex_table");
    assert_eq!(exceptions[0], (0, R_X86_64_PC32, text(), 14));
    assert_eq!(exceptions[1], (4, R_X86_64_PC32, String::new(), (TEXT + 0x2009) as i64));
    assert_eq!(data(&file, "__ex_table")[8..], [3, 0, 0, 0]);
    let labels = relocations(&file, "__jump_table");
    assert_eq!((labels[0].0, labels[0].3), (0, 32 + 5));
    assert_eq!((labels[1].0, labels[1].3), (4, 47));
    assert_eq!((labels[2].0, labels[2].3), (8, (TEXT + 0x8001) as i64), "flags stay");
    assert_eq!(data(&file, "__jump_table").len(), 16);
    assert_eq!(data(&file, ".static_call_sites").len(), 8);
    assert_eq!(data(&file, "__bug_table")[8..], [77, 0, 5, 0]);
    let rows = data(&file, ".orc_unwind").len() / 6;
    assert_eq!(rows, data(&file, ".orc_unwind_ip").len() / 4);
    assert_eq!(rows, relocations(&file, ".orc_unwind_ip").len());
    // The core has rows of its own: by them threads that wait in it are walked.
    let own = relocations(&file, ".orc_unwind_ip").iter().filter(|r| r.2 == ".text").count();
    assert!(own > 20, "{own}");
}

#[test]
fn the_loader_finds_the_module() {
    let made = made(&plan(), MOST_PER_CPU).unwrap();
    let file: ElfFile64 = ElfFile64::parse(&made.bytes[..]).unwrap();
    let this = data(&file, ".gnu.linkonce.this_module");
    assert_eq!(this.len(), 960);
    assert_eq!(&this[24..38], b"fettle_kernel\0");
    let functions = relocations(&file, ".gnu.linkonce.this_module");
    assert_eq!((functions[0].0, functions[0].2.as_str()), (376, "init_module"));
    assert_eq!((functions[1].0, functions[1].2.as_str()), (832, "cleanup_module"));
    let about = data(&file, ".modinfo");
    let about: Vec<_> = about.split(|byte| *byte == 0).collect();
    assert!(about.contains(&&b"license=Dual MIT/GPL"[..]));
    assert!(about.contains(&&b"vermagic=6.1.0-56-amd64 SMP preempt mod_unload modversions "[..]));
    let versions = data(&file, "__versions");
    assert_eq!(versions[..4], 0x1234_5678u32.to_le_bytes());
    let operations = relocations(&file, ".rodata.control");
    assert_eq!(operations.len(), 5);
    assert_eq!((operations[0].0, operations[0].2.as_str()), (8, "control_open"));
}

#[test]
fn counters_without_room_are_locked() {
    // The second one is not a single increment that can be locked, so it takes the only room.
    let made = made(&plan(), 1).unwrap();
    assert_eq!(made.placed.counters, [Counter::Shared(0), Counter::PerCpu(0)]);
    let file: ElfFile64 = ElfFile64::parse(&made.bytes[..]).unwrap();
    let text = data(&file, ".text.fettle");
    assert_eq!(text[5..10], [0xf0, 0x48, 0xff, 0x04, 0x25]);
    let all = relocations(&file, ".text.fettle");
    assert!(all.contains(&(10, R_X86_64_32S, ".bss.counters".to_string(), 0)), "{all:?}");
    let error = self::made(&plan(), 0).unwrap_err().to_string();
    assert!(error.contains("name fewer functions"), "{error}");
}

#[test]
fn contradictions_are_refused() {
    type Change = fn(&mut Plan);
    let broken = |change: Change| {
        let mut plan = plan();
        change(&mut plan);
        made(&plan, MOST_PER_CPU).err().map_or("none".to_string(), |error| error.to_string())
    };
    let cases: [(Change, &str); 9] = [
        (|p| p.parts[0].text[15] = 1, "not zero"),
        (|p| p.parts[0].fentry = Some(5), "no fentry nop"),
        (|p| p.parts[1].references[0].at = 12, "not zero"),
        (|p| p.parts[0].align = 3, "power of two"),
        (|p| p.parts[2].function = 9, "no function"),
        (|p| p.parts[0].origins.swap(0, 2), "not in order"),
        (|p| p.parts[0].origins[0].original = 5, "not in the kernel's text"),
        (|p| p.functions[0].patch.as_mut().unwrap().to = 500, "leads nowhere"),
        (|p| p.counters = 1, "no such counter"),
    ];
    for (change, reason) in cases {
        let error = broken(change);
        assert!(error.contains(reason), "{error} for {reason}");
    }
}

/// The layout that the core and the writer share stands in the core's header.
#[test]
fn facts_are_in_the_cores_order() {
    let header = include_str!("../../../../runtime/kmod/kmod.h");
    let body = header.split_once("struct facts {").unwrap().1.split_once("};").unwrap().0;
    let fields: Vec<_> =
        body.split([',', ';']).map(|part| part.trim().trim_start_matches("u64").trim()).collect();
    let expected = [
        "task_tasks",
        "task_thread_node",
        "task_signal",
        "task_stack",
        "task_stack_refcount",
        "task_on_cpu",
        "task_sp",
        "task_start_time",
        "task_nvcsw",
        "task_nivcsw",
        "signal_thread_head",
        "unwind_error",
        "module_klp",
        "die_regs",
        "regs_ip",
        "patches",
        "origins",
        "cpu_counters",
        "shared_counters",
    ];
    assert_eq!(fields[..expected.len()], expected);
}
