//! Bodies of HTTP, whose ends are those of calls.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tonic::client::GrpcService;
use tonic::codegen::StdError;
use tonic::{Code, Status};

use crate::call::{Call, Ended};

/// The status in headers or trailers.
pub(crate) fn status_of(headers: &http::HeaderMap) -> Option<Code> {
    headers.get("grpc-status").map(|status| Code::from_bytes(status.as_bytes()))
}

/// What a client sends its requests by, with the calls that they belong to.
#[derive(Clone, Debug)]
pub struct Traced<T>(T);

impl<T> Traced<T> {
    /// Around a channel, or anything that tonic takes for one.
    pub fn new(inner: T) -> Traced<T> {
        Traced(inner)
    }
}

impl<T> tower_service::Service<http::Request<tonic::body::Body>> for Traced<T>
where
    T: GrpcService<tonic::body::Body>,
    T::ResponseBody: Body<Data = Bytes> + Send + 'static,
    <T::ResponseBody as Body>::Error: Into<StdError>,
{
    type Response = http::Response<TracedBody<T::ResponseBody>>;
    type Error = T::Error;
    type Future = TracedFuture<T::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let call = request.extensions().get::<Call>().cloned().unwrap_or(Call(None));
        TracedFuture { inner: self.0.call(request), call }
    }
}

pin_project! {
    /// The future of a response.
    #[derive(Debug)]
    pub struct TracedFuture<F> {
        #[pin]
        inner: F,
        call: Call,
    }
}

impl<F, B, E> Future for TracedFuture<F>
where
    F: Future<Output = Result<http::Response<B>, E>>,
{
    type Output = Result<http::Response<TracedBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.inner.poll(cx))?;
        // The stub is given a status in the headers, and the status of a call with one answer. It ends such calls.
        let streams = this.call.0.as_ref().is_some_and(|inner| inner.method.flags & 4 != 0);
        let call = match status_of(response.headers()) {
            None if streams => this.call.clone(),
            _ => Call(None),
        };
        Poll::Ready(Ok(response.map(|body| TracedBody { inner: body, end: End(call, Ended::Dropped) })))
    }
}

/// Ends a call that is not over when this is dropped.
#[derive(Debug)]
struct End(Call, Ended);

impl Drop for End {
    fn drop(&mut self) {
        self.0.end(Code::Cancelled, self.1);
    }
}

pin_project! {
    /// The body of a response at its client.
    #[derive(Debug)]
    pub struct TracedBody<B> {
        #[pin]
        inner: B,
        end: End,
    }
}

impl<B: Default> Default for TracedBody<B> {
    fn default() -> Self {
        TracedBody { inner: B::default(), end: End(Call(None), Ended::Dropped) }
    }
}

impl<B> Body for TracedBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<StdError>,
{
    type Data = Bytes;
    // What the stream would make of the error.
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.project();
        let call = &this.end.0;
        let frame = match ready!(this.inner.poll_frame(cx)) {
            Some(Ok(frame)) => {
                let status = frame.trailers_ref().and_then(status_of);
                if let Some(status) = status {
                    call.end(status, Ended::Finished);
                }
                Some(Ok(frame))
            }
            Some(Err(error)) => {
                let status = Status::from_error(error.into());
                call.end(status.code(), Ended::Finished);
                Some(Err(status))
            }
            None => None,
        };
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

pin_project! {
    /// The body of a response at its server, in which a handler's stream runs.
    #[derive(Debug)]
    pub struct Answers<B> {
        #[pin]
        inner: B,
        end: End,
    }
}

impl<B> Answers<B> {
    pub(crate) fn new(inner: B, call: Call) -> Answers<B> {
        Answers { inner, end: End(call, Ended::Left) }
    }
}

impl<B: Body<Data = Bytes>> Body for Answers<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let call = &this.end.0;
        let frame = ready!(call.serve_now(|| this.inner.poll_frame(cx)));
        if let Some(Ok(frame)) = &frame
            && let Some(status) = frame.trailers_ref().and_then(status_of)
        {
            call.end(status, Ended::Finished);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
