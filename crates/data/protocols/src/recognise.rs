//! Which protocol a connection speaks, by its first bytes.

use crate::counts::Reason;
use crate::decoder::Decoder;
use crate::{amqp, fastcgi, http1, http2, kafka, memcached, mqtt, mysql, nats, postgres, resp};

/// The decoder of a connection on which these bytes are the first that are known.
pub fn recognise(bytes: &[u8]) -> Result<Box<dyn Decoder>, Option<Reason>> {
    if http2::begins(bytes) {
        return Ok(Box::<http2::Http2>::default());
    }
    // Before HTTP/1: both have a `CONNECT`.
    if let Some(nats) = nats::recognise(bytes) {
        return Ok(Box::new(nats));
    }
    if http1::begins(bytes) {
        return Ok(Box::<http1::Http1>::default());
    }
    if fastcgi::begins(bytes) {
        return Ok(Box::<fastcgi::FastCgi>::default());
    }
    if let Some(amqp) = amqp::recognise(bytes) {
        return Ok(Box::new(amqp));
    }
    if let Some(mqtt) = mqtt::recognise(bytes) {
        return Ok(Box::new(mqtt));
    }
    if resp::begins(bytes) {
        return Ok(Box::<resp::Resp>::default());
    }
    if memcached::text_begins(bytes) {
        return Ok(Box::<memcached::Text>::default());
    }
    if memcached::binary_begins(bytes) {
        return Ok(Box::<memcached::Binary>::default());
    }
    // Before PostgreSQL, whose version may look like a request for metadata.
    if let Some(kafka) = kafka::recognise(bytes) {
        return Ok(Box::new(kafka));
    }
    if kafka::may_begin(bytes) {
        return Err(None);
    }
    if let Some(mysql) = mysql::recognise(bytes) {
        return Ok(Box::new(mysql));
    }
    if let Some(postgres) = postgres::recognise(bytes) {
        return Ok(Box::new(postgres));
    }
    match bytes {
        // A handshake, of any version in use.
        [0x16, 3, 0..=4, ..] => Err(Some(Reason::Tls)),
        _ => Err(None),
    }
}

/// Whether the bytes, which are all that one call has brought, may be the beginning of what the next one goes on
/// with: heads that are read alone.
pub fn may_begin(bytes: &[u8]) -> bool {
    bytes.len() == mysql::HEAD || mqtt::may_begin(bytes) || kafka::may_begin(bytes)
}
