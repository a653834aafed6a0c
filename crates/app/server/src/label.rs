//! What spans are called.

use fettle_types::FunctionIndex;

/// What a span is called.
#[derive(Debug)]
pub struct Label {
    /// As shown.
    pub name: String,
    /// What the name is of.
    pub named: Named,
}

/// What a name is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// A function with recorded calls.
    Function {
        /// [`fettle_trace::Function::id`].
        id: FunctionIndex,
        /// File name of its module.
        module: String,
        /// Source file and line, if known.
        place: Option<String>,
    },
    /// What a thread did: [`fettle_requests::State`].
    State,
    /// What lasted until an event of this name.
    Lasting,
    /// Events of this name.
    Event,
}
