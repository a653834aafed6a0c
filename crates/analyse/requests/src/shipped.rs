//! The schemas that come with Fettle, written in the language that everybody writes theirs in.

/// The file of a schema.
macro_rules! schema {
    ($name:literal) => {
        ($name, include_str!(concat!("../schemas/", $name, ".fettle-schema")))
    };
}

/// Names and texts. `kernel` and `probes` only declare events, which the others use.
pub const SCHEMAS: [(&str, &str); 31] = [
    schema!("amqp"),
    schema!("asked"),
    schema!("asyncio"),
    schema!("block"),
    schema!("calls"),
    schema!("fastcgi"),
    schema!("files"),
    schema!("futex"),
    schema!("grpc"),
    schema!("hosted"),
    schema!("http1"),
    schema!("http2"),
    schema!("kafka"),
    schema!("kernel"),
    schema!("locks"),
    schema!("memcached"),
    schema!("messages"),
    schema!("mqtt"),
    schema!("mysql"),
    schema!("nats"),
    schema!("pipes"),
    schema!("postgres"),
    schema!("probes"),
    schema!("processes"),
    schema!("queues"),
    schema!("redis"),
    schema!("sockets"),
    schema!("spans"),
    schema!("threads"),
    schema!("websocket"),
    schema!("workers"),
];

/// The text of a shipped schema: the library for [`crate::compile`].
pub fn shipped(name: &str) -> Option<String> {
    SCHEMAS.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).into())
}
