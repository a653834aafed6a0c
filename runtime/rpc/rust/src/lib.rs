//! What tonic's stubs call that Fettle has woven events into; programs do not use it themselves.
//!
//! A call is followed from its beginning to its one end and reported to the sensor `rpc.calls`. tonic's stream of
//! answers is a type that programs name, and does not show its status to decoders; so the bodies of HTTP are
//! wrapped, below it: their trailers have the status, and their drop is the end of a call that the program or
//! the connection gave up. Messages are seen by the codec.

mod body;
mod call;
mod codec;

pub use body::{Answers, Traced, TracedBody, TracedFuture};
pub use call::{Call, Hook, Key, Method, Mode, Size, Take};
pub use codec::Codec;
pub use fettle::{Histogram, Scalar, Sensor};

use call::Ended;
use tonic::{Code, Response, Status};

/// Begins a call at its client.
pub fn client(method: &'static Method) -> Call {
    Call::client(method)
}

/// Begins a call at its server.
pub fn server(method: &'static Method, headers: &http::HeaderMap) -> Call {
    Call::server(method, headers)
}

/// Ends a call whose future is dropped.
struct Unless<'a>(&'a Call, Ended);

impl Drop for Unless<'_> {
    fn drop(&mut self) {
        self.0.end(Code::Cancelled, self.1);
    }
}

/// Waits for a call with one answer.
///
/// # Errors
///
/// Those of the call.
pub async fn answered<A>(
    call: &Call,
    future: impl Future<Output = Result<Response<A>, Status>>,
) -> Result<Response<A>, Status> {
    let dropped = Unless(call, Ended::Dropped);
    call.hook(Hook::BeforeReplyWait);
    let answer = future.await;
    call.hook(Hook::AfterReplyWait);
    call.end(answer.as_ref().err().map_or(Code::Ok, Status::code), Ended::Finished);
    drop(dropped);
    answer
}

/// Waits for the beginning of a call with a stream of answers.
///
/// # Errors
///
/// Those of the call.
pub async fn answers<A>(
    call: &Call,
    future: impl Future<Output = Result<Response<A>, Status>>,
) -> Result<Response<A>, Status> {
    let dropped = Unless(call, Ended::Dropped);
    call.hook(Hook::BeforeReplyWait);
    let answer = future.await;
    call.hook(Hook::AfterReplyWait);
    if let Err(status) = &answer {
        call.end(status.code(), Ended::Finished);
    }
    // From here on the body ends it.
    std::mem::forget(dropped);
    answer
}

/// Serves a call: its handler runs in the future, and in the body of what the future gives.
pub async fn served(
    call: &Call,
    future: impl Future<Output = http::Response<tonic::body::Body>>,
) -> http::Response<tonic::body::Body> {
    if call.0.is_none() {
        return future.await;
    }
    let left = Unless(call, Ended::Left);
    call.hook(Hook::BeforeComponent);
    let response = call.serve(future).await;
    call.hook(Hook::AfterComponent);
    let status = body::status_of(response.headers());
    std::mem::forget(left);
    if let Some(status) = status {
        call.end(status, Ended::Finished);
        return response;
    }
    response.map(|body| tonic::body::Body::new(Answers::new(body, call.clone())))
}
