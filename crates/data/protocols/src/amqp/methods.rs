//! The methods of AMQP 0-9-1: what they are called, and what answers them.

use crate::fields::Fields;

/// A method.
pub struct Method {
    pub class: u16,
    pub number: u16,
    pub name: &'static str,
    pub talk: Talk,
}

/// What a method is in a conversation.
#[derive(Clone, Copy)]
pub enum Talk {
    /// No question, nor an answer to one that is reported.
    Nothing,
    /// A question, which the method of its class with this number answers. In front of its bits are so many texts,
    /// behind a number that says nothing where there is one; the bit, if any, says that it is not answered. The first
    /// text says what is asked for.
    Asks { reply: u16, numbered: bool, texts: u8, no_wait: Option<u8> },
    /// What answers.
    Answers,
    /// A message comes with it.
    Message,
    /// Messages are confirmed, acknowledged, refused.
    Acknowledges,
}

/// The answer of `basic.get` that has a message.
pub const GET_OK: u16 = 71;

const fn of(class: u16, number: u16, name: &'static str, talk: Talk) -> Method {
    Method { class, number, name, talk }
}

/// A question without texts before its bits.
const fn bare(reply: u16) -> Talk {
    Talk::Asks { reply, numbered: false, texts: 0, no_wait: None }
}

/// A question about something with a name, behind a number that says nothing.
const fn about(reply: u16, texts: u8, no_wait: Option<u8>) -> Talk {
    Talk::Asks { reply, numbered: true, texts, no_wait }
}

const METHODS: [Method; 63] = [
    of(10, 10, "connection.start", Talk::Nothing),
    of(10, 11, "connection.start-ok", Talk::Nothing),
    of(10, 20, "connection.secure", Talk::Nothing),
    of(10, 21, "connection.secure-ok", Talk::Nothing),
    of(10, 30, "connection.tune", Talk::Nothing),
    of(10, 31, "connection.tune-ok", Talk::Nothing),
    of(
        10,
        40,
        "connection.open",
        Talk::Asks { reply: 41, numbered: false, texts: 1, no_wait: None },
    ),
    of(10, 41, "connection.open-ok", Talk::Answers),
    of(10, 50, "connection.close", about(51, 1, None)),
    of(10, 51, "connection.close-ok", Talk::Answers),
    of(10, 60, "connection.blocked", Talk::Nothing),
    of(10, 61, "connection.unblocked", Talk::Nothing),
    of(10, 70, "connection.update-secret", bare(71)),
    of(10, 71, "connection.update-secret-ok", Talk::Answers),
    of(20, 10, "channel.open", bare(11)),
    of(20, 11, "channel.open-ok", Talk::Answers),
    of(20, 20, "channel.flow", bare(21)),
    of(20, 21, "channel.flow-ok", Talk::Answers),
    of(20, 40, "channel.close", about(41, 1, None)),
    of(20, 41, "channel.close-ok", Talk::Answers),
    of(40, 10, "exchange.declare", about(11, 2, Some(4))),
    of(40, 11, "exchange.declare-ok", Talk::Answers),
    of(40, 20, "exchange.delete", about(21, 1, Some(1))),
    of(40, 21, "exchange.delete-ok", Talk::Answers),
    of(40, 30, "exchange.bind", about(31, 3, Some(0))),
    of(40, 31, "exchange.bind-ok", Talk::Answers),
    of(40, 40, "exchange.unbind", about(51, 3, Some(0))),
    of(40, 51, "exchange.unbind-ok", Talk::Answers),
    of(50, 10, "queue.declare", about(11, 1, Some(4))),
    of(50, 11, "queue.declare-ok", Talk::Answers),
    of(50, 20, "queue.bind", about(21, 3, Some(0))),
    of(50, 21, "queue.bind-ok", Talk::Answers),
    of(50, 30, "queue.purge", about(31, 1, Some(0))),
    of(50, 31, "queue.purge-ok", Talk::Answers),
    of(50, 40, "queue.delete", about(41, 1, Some(2))),
    of(50, 41, "queue.delete-ok", Talk::Answers),
    of(50, 50, "queue.unbind", about(51, 3, None)),
    of(50, 51, "queue.unbind-ok", Talk::Answers),
    of(60, 10, "basic.qos", bare(11)),
    of(60, 11, "basic.qos-ok", Talk::Answers),
    of(60, 20, "basic.consume", about(21, 2, Some(3))),
    of(60, 21, "basic.consume-ok", Talk::Answers),
    of(
        60,
        30,
        "basic.cancel",
        Talk::Asks { reply: 31, numbered: false, texts: 1, no_wait: Some(0) },
    ),
    of(60, 31, "basic.cancel-ok", Talk::Answers),
    of(60, 40, "basic.publish", Talk::Message),
    of(60, 50, "basic.return", Talk::Nothing),
    of(60, 60, "basic.deliver", Talk::Message),
    of(60, 70, "basic.get", about(GET_OK, 1, None)),
    of(60, GET_OK, "basic.get-ok", Talk::Answers),
    of(60, 72, "basic.get-empty", Talk::Answers),
    of(60, 80, "basic.ack", Talk::Acknowledges),
    of(60, 90, "basic.reject", Talk::Acknowledges),
    of(60, 110, "basic.recover", bare(111)),
    of(60, 111, "basic.recover-ok", Talk::Answers),
    of(60, 120, "basic.nack", Talk::Acknowledges),
    of(
        85,
        10,
        "confirm.select",
        Talk::Asks { reply: 11, numbered: false, texts: 0, no_wait: Some(0) },
    ),
    of(85, 11, "confirm.select-ok", Talk::Answers),
    of(90, 10, "tx.select", bare(11)),
    of(90, 11, "tx.select-ok", Talk::Answers),
    of(90, 20, "tx.commit", bare(21)),
    of(90, 21, "tx.commit-ok", Talk::Answers),
    of(90, 31, "tx.rollback-ok", Talk::Answers),
    of(90, 30, "tx.rollback", bare(31)),
];

/// The method that a frame begins with, if it is known.
pub fn method(fields: &mut Fields<'_>) -> Option<&'static Method> {
    let (class, number) = (fields.be16()?, fields.be16()?);
    METHODS.iter().find(|method| (method.class, method.number) == (class, number))
}

impl Method {
    /// Whether a server says it, as far as it shows.
    pub fn is_servers(&self) -> bool {
        matches!(self.talk, Talk::Answers)
            || matches!(
                self.name,
                "basic.deliver" | "basic.return" | "connection.start" | "connection.tune"
            )
    }

    /// What a question is about, and whether it is answered, by what stands in it.
    pub fn question<'a>(&self, mut fields: Fields<'a>) -> (&'a [u8], bool) {
        let Talk::Asks { numbered, texts, no_wait, .. } = self.talk else { return (&[], false) };
        let (mut about, mut waits) = (&[][..], true);
        let mut read = || {
            if numbered {
                fields.be16()?;
            }
            for n in 0..texts {
                let text = fields.short_text()?;
                if n == 0 {
                    about = text;
                }
            }
            waits = no_wait.is_none_or(|bit| fields.byte().is_none_or(|bits| bits >> bit & 1 == 0));
            Some(())
        };
        read();
        (about, waits)
    }
}
