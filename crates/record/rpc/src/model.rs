//! Services as the plugin sees them: methods, their messages, and what of these is recorded.

use crate::error::Place;

/// A `.proto` file that stubs are made for.
#[derive(Clone, Debug, Default)]
pub struct File {
    /// Its name, as the compiler was given it.
    pub name: String,
    /// Its package; empty if it has none.
    pub package: String,
    /// Its services.
    pub services: Vec<Service>,
}

/// A service.
#[derive(Clone, Debug, Default)]
pub struct Service {
    /// Its name in the file.
    pub name: String,
    /// With the package.
    pub full_name: String,
    /// Its methods; a method's number is its place here.
    pub methods: Vec<Method>,
    /// Where it stands.
    pub place: Place,
}

impl Service {
    /// Its number in events.
    pub fn number(&self) -> u32 {
        fettle_abi::rpc::service_number(&self.full_name)
    }
}

/// A method.
#[derive(Clone, Debug, Default)]
pub struct Method {
    /// Its name.
    pub name: String,
    /// Whether the client sends a stream.
    pub client_streams: bool,
    /// Whether the server sends a stream.
    pub server_streams: bool,
    /// What is recorded of messages of the client.
    pub request: Vec<Recorded>,
    /// What is recorded of messages of the server.
    pub response: Vec<Recorded>,
}

impl Method {
    /// Its flags in events.
    pub fn flags(&self) -> u64 {
        use fettle_abi::rpc::{CLIENT_STREAMS, SERVER_STREAMS};
        (u64::from(self.client_streams) * CLIENT_STREAMS)
            | (u64::from(self.server_streams) * SERVER_STREAMS)
    }

    /// All that is recorded: of requests, then of responses.
    pub fn recorded(&self) -> impl Iterator<Item = &Recorded> {
        self.request.iter().chain(&self.response)
    }
}

/// A field that is recorded with each call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The message's field.
    pub field: String,
    /// How it is called in events.
    pub name: String,
    /// Number of its type in descriptors: 9 is a text.
    pub kind: u64,
    /// Whether it is repeated.
    pub repeated: bool,
    /// Whether it is one of several of which a message has one.
    pub in_oneof: bool,
    /// What of it.
    pub what: What,
    /// Its first word among those of fields.
    pub word: usize,
}

/// What is recorded of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The first message's value: a number without a sign, or a truth value.
    Unsigned,
    /// The first message's value: a number with a sign, or an enumeration's.
    Signed,
    /// The first message's value: a number with a fraction.
    Float,
    /// The first message's value: a text.
    Text,
    /// The first message's value: bytes, up to the first zero, as a text.
    Bytes,
    /// How long it was in all messages together: bytes of a text, or elements.
    Size,
}

impl What {
    /// Words that it takes.
    pub fn words(self) -> usize {
        match self {
            What::Text | What::Bytes => fettle_abi::rpc::TEXT_WORDS,
            _ => 1,
        }
    }

    /// Its name in the names file.
    pub fn name(self) -> &'static str {
        match self {
            What::Unsigned | What::Size => "u64",
            What::Signed => "i64",
            What::Float => "f64",
            What::Text | What::Bytes => "text",
        }
    }

    /// The type that a schema declares: events have no fractions, so these are texts.
    pub fn schema_type(self) -> &'static str {
        match self {
            What::Float => "text",
            other => other.name(),
        }
    }
}
