//! A codec that shows messages to their call.

use bytes::{Buf, BufMut};
use tonic::Status;
use tonic::codec::{BufferSettings, DecodeBuf, Decoder, EncodeBuf, Encoder};

use crate::call::{Call, Hook};

/// A codec, and the call that it reads and writes for.
#[derive(Debug)]
pub struct Codec<C> {
    inner: C,
    call: Call,
}

impl<C> Codec<C> {
    /// A codec of a call.
    pub fn new(inner: C, call: &Call) -> Codec<C> {
        Codec { inner, call: call.clone() }
    }
}

impl<C: tonic::codec::Codec> tonic::codec::Codec for Codec<C> {
    type Encode = C::Encode;
    type Decode = C::Decode;
    type Encoder = Codec<C::Encoder>;
    type Decoder = Codec<C::Decoder>;

    fn encoder(&mut self) -> Self::Encoder {
        Codec { inner: self.inner.encoder(), call: self.call.clone() }
    }

    fn decoder(&mut self) -> Self::Decoder {
        Codec { inner: self.inner.decoder(), call: self.call.clone() }
    }
}

impl<E: Encoder<Item: 'static>> Encoder for Codec<E>
where
    E::Error: Into<Status>,
{
    type Item = E::Item;
    type Error = E::Error;

    fn encode(&mut self, item: Self::Item, to: &mut EncodeBuf<'_>) -> Result<(), Self::Error> {
        if self.call.0.is_none() {
            return self.inner.encode(item, to);
        }
        self.call.message(&item, true);
        let room = to.remaining_mut();
        self.call.hook(Hook::BeforeMarshal);
        let result = self.inner.encode(item, to);
        self.call.hook(Hook::AfterMarshal);
        self.call.bytes(room.saturating_sub(to.remaining_mut()), true);
        result
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.inner.buffer_settings()
    }
}

impl<D: Decoder<Item: 'static>> Decoder for Codec<D> {
    type Item = D::Item;
    type Error = D::Error;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Self::Item>, Self::Error> {
        if self.call.0.is_none() {
            return self.inner.decode(from);
        }
        let length = from.remaining();
        self.call.hook(Hook::BeforeUnmarshal);
        let result = self.inner.decode(from);
        self.call.hook(Hook::AfterUnmarshal);
        if let Ok(Some(message)) = &result {
            self.call.bytes(length - from.remaining(), false);
            self.call.message(message, false);
        }
        result
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.inner.buffer_settings()
    }
}
