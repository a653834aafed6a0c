//! What the module writer knows of the kernel that it writes for: addresses of functions, offsets of
//! fields, and the two words by which the loader recognises its own modules.

use std::collections::BTreeMap;

use fettle_btf::Btf;

use crate::error::{Error, Result};
use crate::orc;

/// Where a kernel's symbols and memory are read.
pub trait Source {
    /// The address of a symbol of the kernel itself. The first of several.
    fn symbol(&self, name: &str) -> Option<u64>;

    /// Reads memory of the kernel.
    ///
    /// # Errors
    ///
    /// When there is none at that address.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<()>;
}

/// Names that other kernels gave to what the core needs. One whose code is not preempted has nothing that holds RCU
/// off, and needs nothing: there `__fentry__` stands for it, which only returns.
const RENAMED: [(&str, &str); 6] = [
    ("text_poke_queue", "smp_text_poke_batch_add"),
    ("text_poke_finish", "smp_text_poke_batch_finish"),
    ("__mutex_init", "mutex_init_generic"),
    ("vmalloc", "vmalloc_noprof"),
    ("__rcu_read_lock", "__fentry__"),
    ("__rcu_read_unlock", "__fentry__"),
];

/// Fields that the core reads, in the order of `struct facts` in `runtime/kmod/kmod.h`.
const FIELDS: [(&str, &str); 15] = [
    ("task_struct", "tasks"),
    ("task_struct", "thread_node"),
    ("task_struct", "signal"),
    ("task_struct", "stack"),
    ("task_struct", "stack_refcount"),
    ("task_struct", "on_cpu"),
    ("task_struct", "thread.sp"),
    ("task_struct", "start_time"),
    ("task_struct", "nvcsw"),
    ("task_struct", "nivcsw"),
    ("signal_struct", "thread_head"),
    ("unwind_state", "error"),
    ("module", "klp"),
    ("die_args", "regs"),
    ("pt_regs", "ip"),
];

/// Tracepoints that virtual time is kept by, in the order of `struct facts`: switches, then begins and ends of
/// interrupts. A kernel need not have all.
pub const TRACEPOINTS: [&str; 15] = [
    "sched_switch",
    "irq_handler_entry",
    "irq_handler_exit",
    "local_timer_entry",
    "local_timer_exit",
    "reschedule_entry",
    "reschedule_exit",
    "call_function_entry",
    "call_function_exit",
    "call_function_single_entry",
    "call_function_single_exit",
    "irq_work_entry",
    "irq_work_exit",
    SOFT_INTERRUPT[0],
    SOFT_INTERRUPT[1],
];

/// Where all of the kernel is preempted these are threads' work, which the switches between those divide.
const SOFT_INTERRUPT: [&str; 2] = ["softirq_entry", "softirq_exit"];
const ALL_IS_PREEMPTED: &str = " preempt_rt ";

/// Most bytes of `struct unwind_state` and of `struct mutex`, for which the core has room.
const UNWIND_STATE: u32 = 128 * 8;
const MUTEX: u32 = 32 * 8;

/// Where functions of the control file lie in `struct proc_ops`, and which ones they are.
pub const OPERATIONS: [(&str, &str); 5] = [
    ("proc_open", "control_open"),
    ("proc_read", "control_read"),
    ("proc_write", "control_write"),
    ("proc_lseek", "default_llseek"),
    ("proc_release", "control_release"),
];

/// `struct module`, as far as the loader wants it filled in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModuleLayout {
    /// Its size.
    pub size: u32,
    /// Where the name lies.
    pub name: u32,
    /// Where the address of the function lies that is called when it is loaded.
    pub init: u32,
    /// The same for when it goes.
    pub exit: u32,
}

/// Everything about one running kernel that a module for it needs.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// As `uname -r` says.
    pub release: String,
    /// What the loader compares with its own.
    pub vermagic: String,
    /// Checksum of `module_layout`, by which the loader knows that `struct module` is its own.
    pub layout_checksum: u32,
    /// Layout of `struct module`.
    pub module: ModuleLayout,
    /// Size of `struct proc_ops`, and offsets of [`OPERATIONS`].
    pub operations: (u32, [u32; 5]),
    /// Offsets of [`FIELDS`].
    pub fields: [u64; 15],
    /// Addresses of [`TRACEPOINTS`], 0 where the kernel has none.
    pub tracepoints: [u64; 15],
    /// How ORC rows are packed.
    pub orc: orc::Format,
    /// Offset of the running task's address in a processor's own memory.
    pub current: u64,
    /// Addresses of what the core and copies refer to, by name.
    pub symbols: BTreeMap<String, u64>,
}

impl Kernel {
    /// Finds out about a kernel; `needed` are names that the core refers to.
    ///
    /// # Errors
    ///
    /// When something is not there, or not as expected.
    pub fn find<'a>(
        release: &str,
        source: &dyn Source,
        btf: &Btf,
        needed: impl Iterator<Item = &'a str>,
    ) -> Result<Kernel> {
        let offset = |of: &str, path: &str| btf.field(of, path).map(|field| field.offset);
        let mut fields = [0; 15];
        for (value, (of, path)) in fields.iter_mut().zip(FIELDS) {
            *value = u64::from(offset(of, path)?);
        }
        for (name, most) in [("unwind_state", UNWIND_STATE), ("mutex", MUTEX)] {
            let size = btf.struct_size(name)?;
            if size > most {
                let what = format!(
                    "this kernel's struct {name} has {size} bytes, {most} at most are supported"
                );
                return Err(Error::Unfit(what));
            }
        }
        if btf.struct_size("bug_entry")? != 12 {
            return Err(Error::Unfit("this kernel's table of bugs is not supported".to_string()));
        }
        let mut operations = [0; 5];
        for (value, (name, _)) in operations.iter_mut().zip(OPERATIONS) {
            *value = offset("proc_ops", name)?;
        }
        let mut symbols = BTreeMap::new();
        for name in needed.chain(["__fentry__", "default_llseek"]) {
            symbols.insert(name.to_string(), find(source, name)?);
        }
        let vermagic = text(source, find(source, "vermagic")?)?;
        let tracepoints = TRACEPOINTS.map(|name| {
            let is_thread = SOFT_INTERRUPT.contains(&name) && vermagic.contains(ALL_IS_PREEMPTED);
            let found = (!is_thread).then(|| source.symbol(&format!("__tracepoint_{name}")));
            found.flatten().unwrap_or_default()
        });
        Ok(Kernel {
            release: release.to_string(),
            vermagic,
            layout_checksum: checksum(source, "module_layout")?,
            module: ModuleLayout {
                size: btf.struct_size("module")?,
                name: offset("module", "name")?,
                init: offset("module", "init")?,
                exit: offset("module", "exit")?,
            },
            operations: (btf.struct_size("proc_ops")?, operations),
            fields,
            tracepoints,
            orc: orc::Format::find(btf)?,
            current: current(source, btf)?,
            symbols,
        })
    }
}

/// The address of a symbol, under one of its names.
fn find(source: &dyn Source, name: &str) -> Result<u64> {
    let newer =
        RENAMED.iter().find(|(old, _)| *old == name).and_then(|(_, new)| source.symbol(new));
    source.symbol(name).or(newer).ok_or_else(|| Error::NoSymbol(name.to_string()))
}

fn current(source: &dyn Source, btf: &Btf) -> Result<u64> {
    if let Some(own) = source.symbol("pcpu_hot") {
        return Ok(own + u64::from(btf.field("pcpu_hot", "current_task")?.offset));
    }
    find(source, "current_task")
}

fn text(source: &dyn Source, at: u64) -> Result<String> {
    let mut bytes = [0; 128];
    source.read(at, &mut bytes)?;
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    match std::str::from_utf8(text) {
        Ok(text) if !text.is_empty() && text.len() < bytes.len() => Ok(text.to_string()),
        _ => Err(Error::Unfit("the kernel's vermagic is not readable".to_string())),
    }
}

/// An entry of the kernel's table of exports: three distances of four bytes.
const EXPORT: u64 = 12;

/// The checksum that the kernel keeps of an export: at the same place in one table as the export in another.
fn checksum(source: &dyn Source, name: &str) -> Result<u32> {
    let wanted = find(source, name)?;
    for kind in ["", "_gpl"] {
        let begin = find(source, &format!("__start___ksymtab{kind}"))?;
        let end = find(source, &format!("__stop___ksymtab{kind}"))?;
        let sums = find(source, &format!("__start___kcrctab{kind}"))?;
        let mut table = vec![0; end.saturating_sub(begin).min(1 << 22) as usize];
        source.read(begin, &mut table)?;
        for (index, entry) in table.chunks_exact(EXPORT as usize).enumerate() {
            let at = begin + EXPORT * index as u64;
            let distance = i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
            if at.wrapping_add_signed(i64::from(distance)) == wanted {
                let mut sum = [0; 4];
                source.read(sums + 4 * index as u64, &mut sum)?;
                return Ok(u32::from_le_bytes(sum));
            }
        }
    }
    Err(Error::NoSymbol(format!("__crc_{name}")))
}
