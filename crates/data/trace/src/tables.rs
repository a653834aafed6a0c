//! The tables other than the calls: plain structs, one Parquet file each.

use std::fs::File;

use parquet::basic::LogicalType;
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::reader::RowGroupReader;
use parquet::file::writer::SerializedRowGroupWriter;
use parquet::schema::types::TypePtr;
use serde::{Deserialize, Serialize};

use fettle_types::{FunctionIndex, ModuleIndex};

use crate::column::{Cell, Encoded, Table, field, read_column, write_column};

/// Defines a struct and how its rows lie in a Parquet file: one column per field, same names.
macro_rules! table {
    ($(#[$meta:meta])* $name:ident in $file:literal {
        $($(#[$field_meta:meta])* $field:ident: $type:ty,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl Table for $name {
            const FILE: &'static str = $file;

            fn fields() -> Vec<TypePtr> {
                vec![$(field::<$type>(stringify!($field)),)*]
            }

            fn write_columns(
                rows: &[Self],
                group: &mut SerializedRowGroupWriter<'_, File>,
            ) -> Encoded<()> {
                $(write_column::<$type>(group, rows.iter().map(|row| row.$field.store()))?;)*
                Ok(())
            }

            fn read_columns(group: &dyn RowGroupReader, out: &mut Vec<Self>) -> Encoded<()> {
                // Columns arrive one after another: the first makes the rows, each fills in.
                let first = out.len();
                let rows = crate::column::rows_of(group.metadata())?;
                $({
                    let mut at = first;
                    read_column::<$type>(group, stringify!($field), |cell| {
                        if at == out.len() {
                            out.push(Self::default());
                        }
                        out[at].$field = cell;
                        at += 1;
                    })?;
                })*
                debug_assert_eq!(out.len() - first, rows);
                Ok(())
            }
        }
    };
}

table! {
    /// An executable or library that was seen.
    Module in "modules.parquet" {
        /// Number that other tables use.
        id: ModuleIndex,
        /// Its file, as the program knew it.
        path: String,
        /// Build identifier in hexadecimal digits, if the file has one.
        build_id: Option<String>,
        /// Functions found in it.
        functions_seen: u64,
        /// Functions that were probed.
        functions_probed: u64,
        /// Functions that were left unmodified; see [`Skipped`].
        functions_skipped: u64,
    }
}

table! {
    /// Where a module lay in a process.
    Mapping in "mappings.parquet" {
        /// [`Module::id`].
        module: ModuleIndex,
        /// Process.
        pid: u32,
        /// What is added to the module's link-time addresses.
        base: u64,
    }
}

table! {
    /// A function that was probed.
    Function in "functions.parquet" {
        /// Number that other tables use: `fettle_abi::record::FunctionId::index`, from 0.
        id: FunctionIndex,
        /// [`Module::id`].
        module: ModuleIndex,
        /// Symbol name, as the linker knew it.
        name: String,
        /// The name as its author wrote it, if it differs and could be demangled.
        demangled: Option<String>,
        /// Link-time address in its module.
        address: u64,
        /// Size in bytes.
        size: u64,
        /// Source file, if known.
        file: Option<String>,
        /// Line of its definition, if known.
        line: Option<u32>,
    }
}

table! {
    /// An argument or result of a function that is recorded.
    Parameter in "parameters.parquet" {
        /// [`Function::id`].
        function: FunctionIndex,
        /// Place among the arguments, from 0; -1 for the result.
        index: i32,
        /// Its name, or empty.
        name: String,
        /// What its bits mean.
        kind: ParameterType,
    }
}

table! {
    /// A value that a call was given or gave back.
    Argument in "arguments.parquet" {
        /// [`Thread::index`].
        thread: u32,
        /// [`Function::id`].
        function: FunctionIndex,
        /// When the call began, nanoseconds of trace time: the same as its row among the calls.
        start_ns: u64,
        /// [`Parameter::index`].
        index: i32,
        /// An integer or pointer. Numbers from 2^63 on are stored less 2^64.
        integer: Option<i64>,
        /// A floating-point number.
        float: Option<f64>,
        /// The text that a pointer leads to, 64 bytes of it at most.
        text: Option<String>,
        /// The text is longer.
        cut: bool,
    }
}

table! {
    /// A function that was left unmodified.
    Skipped in "skipped.parquet" {
        /// [`Module::id`].
        module: ModuleIndex,
        /// Link-time address in its module.
        address: u64,
        /// Symbol name, or empty.
        name: String,
        /// Why, in the same words for all functions with this reason.
        reason: String,
        /// What exactly, in this function.
        detail: String,
    }
}

table! {
    /// A process that was probed.
    Process in "processes.parquet" {
        /// Kernel's process id.
        pid: u32,
        /// Kernel's id of the process that made it; `None` for the first.
        parent: Option<u32>,
        /// Program and arguments.
        command: String,
        /// When it was first seen, nanoseconds of trace time.
        start_ns: u64,
        /// When it ended, nanoseconds of trace time.
        end_ns: u64,
        /// Exit status, if it exited.
        exit_code: Option<i32>,
        /// Signal number, if one ended it.
        exit_signal: Option<i32>,
    }
}

impl Process {
    /// The program's name without its folders. Servers that say what each process does instead of
    /// their command line begin with it, too: `nginx: worker process`.
    pub fn program(&self) -> &str {
        let program = self.command.split(' ').next().unwrap_or_default();
        let name = program.rsplit('/').next().unwrap_or_default();
        name.strip_suffix(':').unwrap_or(name)
    }
}

table! {
    /// A thread that was probed.
    Thread in "threads.parquet" {
        /// Number that other tables and the spools use, from 0.
        index: u32,
        /// Kernel's id of its process.
        pid: u32,
        /// Kernel's id of the thread.
        tid: u32,
        /// Its name, or empty.
        name: String,
        /// When it was first seen, nanoseconds of trace time.
        start_ns: u64,
        /// When it ended, nanoseconds of trace time.
        end_ns: u64,
        /// CPU time it used in nanoseconds, if known.
        cpu_ns: Option<u64>,
        /// Records that found its ring full.
        lost: u64,
        /// Records stored (set by the writer).
        records: u64,
    }
}

table! {
    /// Calls and time of one function in one thread: exact even when records were lost. In the
    /// mode "sampled" the calls are exact and the times estimated from the timed calls.
    Total in "totals.parquet" {
        /// [`Thread::index`].
        thread: u32,
        /// [`Function::id`].
        function: FunctionIndex,
        /// Calls that ended.
        calls: u64,
        /// Nanoseconds from entry to exit, callees included; nested activations count each.
        total_ns: u64,
        /// Nanoseconds outside probed callees.
        self_ns: u64,
        /// Of `total_ns`, what the thread ran on a processor; `None` if not known (set by the
        /// writer).
        cpu_total_ns: Option<u64>,
        /// Of `self_ns`, what the thread ran on a processor; `None` if not known (set by the
        /// writer).
        cpu_self_ns: Option<u64>,
        /// Calls of probed functions that these calls made; `None` if they were not counted.
        child_calls: Option<u64>,
        /// Calls of probed functions below these calls, however deep, counted for each activation
        /// around them; `None` if they were not counted.
        calls_below: Option<u64>,
        /// How often the function was left, by returning or by a jump to another function: not by
        /// what was thrown, a `longjmp` or the end of the thread. `None` if that was not counted.
        exits: Option<u64>,
    }
}

table! {
    /// A time that a thread was switched out. Only in traces whose recording got these events:
    /// [`crate::Manifest::switches`].
    Switch in "switches.parquet" {
        /// [`Thread::index`].
        thread: u32,
        /// When it stopped running, nanoseconds of trace time.
        off_ns: u64,
        /// When it ran again, nanoseconds of trace time.
        on_ns: u64,
        /// Whether it could have gone on: others were given its processor. Otherwise it waited
        /// for something, or was stopped.
        preempted: bool,
    }
}

table! {
    /// What the user probe counted for one function in one thread.
    UserValue in "own.parquet" {
        /// [`Thread::index`].
        thread: u32,
        /// [`Function::id`].
        function: FunctionIndex,
        /// Place among `Manifest::user_fields`.
        field: u32,
        /// The value.
        value: u64,
    }
}

table! {
    /// Executions of one basic block or control-flow edge.
    Counter in "counters.parquet" {
        /// [`Thread::index`], or `None` for a sum over threads.
        thread: Option<u32>,
        /// [`Function::id`].
        function: FunctionIndex,
        /// Block or edge.
        kind: CounterKind,
        /// Link-time address of the block, or of the block the edge leaves.
        from_address: u64,
        /// Link-time address of the block the edge enters; `None` for blocks.
        to_address: Option<u64>,
        /// Executions.
        count: u64,
    }
}

/// What the bits of a [`Parameter`] mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ParameterType {
    /// Signed integer of 1 byte.
    I8,
    /// Signed integer of 2 bytes.
    I16,
    /// Signed integer of 4 bytes.
    I32,
    /// Signed integer of 8 bytes.
    #[default]
    I64,
    /// Unsigned integer of 1 byte.
    U8,
    /// Unsigned integer of 2 bytes.
    U16,
    /// Unsigned integer of 4 bytes.
    U32,
    /// Unsigned integer of 8 bytes.
    U64,
    /// An address.
    Pointer,
    /// The address of a text that ends with a zero byte.
    Text,
    /// Floating-point number of 4 bytes.
    F32,
    /// Floating-point number of 8 bytes.
    F64,
}

impl ParameterType {
    const NAMES: [(ParameterType, &'static str); 12] = [
        (ParameterType::I8, "i8"),
        (ParameterType::I16, "i16"),
        (ParameterType::I32, "i32"),
        (ParameterType::I64, "i64"),
        (ParameterType::U8, "u8"),
        (ParameterType::U16, "u16"),
        (ParameterType::U32, "u32"),
        (ParameterType::U64, "u64"),
        (ParameterType::Pointer, "pointer"),
        (ParameterType::Text, "text"),
        (ParameterType::F32, "f32"),
        (ParameterType::F64, "f64"),
    ];

    /// The word stored in the table.
    pub fn name(self) -> &'static str {
        let found = ParameterType::NAMES.iter().find(|(kind, _)| *kind == self);
        found.map_or("", |(_, name)| name)
    }

    pub(crate) fn from_name(name: &[u8]) -> Option<ParameterType> {
        let found = ParameterType::NAMES.iter().find(|(_, n)| n.as_bytes() == name);
        found.map(|(kind, _)| *kind)
    }
}

/// What a [`Counter`] counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum CounterKind {
    /// Executions of a basic block.
    #[default]
    Block,
    /// Passages over a control-flow edge.
    Edge,
}

impl CounterKind {
    /// The word stored in the table.
    pub fn name(self) -> &'static str {
        match self {
            CounterKind::Block => "block",
            CounterKind::Edge => "edge",
        }
    }

    pub(crate) fn from_name(name: &[u8]) -> Option<CounterKind> {
        match name {
            b"block" => Some(CounterKind::Block),
            b"edge" => Some(CounterKind::Edge),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Process;

    #[test]
    fn a_process_is_called_by_its_program() {
        let called = |command: &str| {
            let process = Process { command: command.into(), ..Process::default() };
            process.program().to_owned()
        };
        assert_eq!(called("/usr/sbin/nginx -g a/b"), "nginx");
        assert_eq!(called("nginx: worker process"), "nginx");
        assert_eq!(called("postgres: main: checkpointer "), "postgres");
        assert_eq!(called("./a:b:c"), "a:b:c");
        assert_eq!(called(""), "");
    }
}

/// Types with a word for each of their values.
macro_rules! word_cell {
    ($($rust:ty;)*) => { $(
        impl Cell for $rust {
            type Stored = ByteArrayType;
            fn annotation() -> Option<LogicalType> {
                Some(LogicalType::String)
            }
            fn store(&self) -> Option<ByteArray> {
                Some(ByteArray::from(self.name()))
            }
            fn load(stored: Option<&ByteArray>) -> Option<Self> {
                <$rust>::from_name(stored?.data())
            }
        }
    )* };
}

word_cell! {
    CounterKind;
    ParameterType;
}
