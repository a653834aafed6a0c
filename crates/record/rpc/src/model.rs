//! Services as the plugin sees them: methods, their messages, and what of these is recorded.

use crate::error::{Error, Place};

/// A `.proto` file that stubs are made for.
#[derive(Clone, Debug, Default)]
pub struct File {
    /// Its name, as the compiler was given it.
    pub name: String,
    /// Its package; empty if it has none.
    pub package: String,
    /// Its edition, if it has one instead of a syntax.
    pub edition: Option<Edition>,
    /// Its services.
    pub services: Vec<Service>,
}

impl File {
    /// Adds the file's name, if an error is about a generator's text and none of the services.
    pub fn located(&self, error: Error) -> Error {
        let name = self.services.first().map(|service| service.place.file.clone());
        let place = Place { file: name.unwrap_or_default(), ..Place::default() };
        located(&place, "the stub".to_owned(), error)
    }
}

fn located(place: &Place, of: String, error: Error) -> Error {
    match error {
        Error::Unknown { .. } => {
            Error::Service { place: place.clone(), of, error: Box::new(error) }
        }
        error => error,
    }
}

/// The edition of a `.proto` file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edition {
    /// Its number in descriptors: 1000 is 2023.
    pub number: u64,
    /// Where it is declared.
    pub place: Place,
}

impl Edition {
    /// The oldest one that the protocol has a number for: proto2.
    pub const OLDEST: u64 = 998;
    /// More than any of them: the protocol's largest number.
    pub const NEWEST: u64 = 0x7fff_ffff;
}

impl std::fmt::Display for Edition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.number {
            number @ 1000..=1999 => write!(f, "edition {}", number + 1023),
            number => write!(f, "edition number {number}"),
        }
    }
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

    /// Adds where the service, or its method, is described, if an error is about what a generator wrote of it.
    pub fn located(&self, method: Option<&Method>, error: Error) -> Error {
        match method {
            Some(method) => {
                located(&method.place, format!("{}/{}", self.full_name, method.name), error)
            }
            None => located(&self.place, self.full_name.clone(), error),
        }
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
    /// Where it stands.
    pub place: Place,
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
