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
    /// What lasted until an event of this kind, and is called what it says.
    Span {
        /// The kind.
        kind: String,
    },
    /// Events of this kind, of a span that is called so.
    OfSpan {
        /// The kind.
        kind: String,
    },
}

impl Label {
    /// The kind of the events that say what is drawn, if events do.
    pub(crate) fn kind(&self) -> Option<&str> {
        match &self.named {
            Named::Event | Named::Lasting => Some(&self.name),
            Named::Span { kind } | Named::OfSpan { kind } => Some(kind),
            Named::Function { .. } | Named::State => None,
        }
    }
}
