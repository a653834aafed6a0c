//! What a recording ends with: all tables but the calls.

use serde::{Deserialize, Serialize};

use fettle_types::FunctionIndex;

use crate::call_writer::WrittenCalls;
use crate::events::WrittenEvents;
use crate::manifest::Manifest;
use crate::tables::{
    Counter, Function, Mapping, Module, Parameter, Process, Skipped, Thread, Total, UserValue,
};

/// Everything that is known when a recording ends, besides the records. Take
/// `..Finish::default()` for what a mode does not have.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Finish {
    /// The manifest as it should be at the end. The fields whose documentation says so are set
    /// by the writer.
    pub manifest: Manifest,
    /// Executables and libraries.
    pub modules: Vec<Module>,
    /// Where they lay.
    pub mappings: Vec<Mapping>,
    /// Probed functions.
    pub functions: Vec<Function>,
    /// What is recorded of calls' arguments.
    pub parameters: Vec<Parameter>,
    /// Functions left unmodified.
    pub skipped: Vec<Skipped>,
    /// Processes.
    pub processes: Vec<Process>,
    /// Threads.
    pub threads: Vec<Thread>,
    /// Calls and time per thread and function.
    pub totals: Vec<Total>,
    /// Block and edge counts.
    pub counters: Vec<Counter>,
    /// What the user probe counted.
    pub user_values: Vec<UserValue>,
    /// Calls that had not ended when the recording did, in any order. They become rows marked
    /// [`crate::Call::OPEN`].
    pub open_calls: Vec<OpenCall>,
    /// What a [`crate::CallWriter`] wrote into the folder: calls that were finished elsewhere. With
    /// them there are no others.
    #[serde(skip)]
    pub calls: Option<WrittenCalls>,
    /// What an [`crate::EventWriter`] wrote into the folder.
    #[serde(skip)]
    pub events: WrittenEvents,
}

/// A call that had not ended when the recording did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCall {
    /// [`Thread::index`].
    pub thread: u32,
    /// [`Function::id`].
    pub function: FunctionIndex,
    /// Time-stamp counter at entry, all 64 bits.
    pub start_tsc: u64,
    /// Time-stamp counter when the recording ended, all 64 bits.
    pub end_tsc: u64,
}
