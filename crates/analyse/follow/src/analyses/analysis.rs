//! What an analysis is.

use fettle_requests::Request;

use crate::analyses::found::Found;
use crate::session::Context;

/// A kind of event and the fields of it that an analysis wants, both by name.
pub(crate) type Wanted = (&'static str, &'static [&'static str]);

/// An analysis at work.
pub(crate) trait Analysis {
    /// The events whose handler it has; their places are the handlers' numbers.
    fn events(&self) -> &'static [Wanted] {
        &[]
    }

    /// An event: which of [`Analysis::events`], when, and the wanted fields' values.
    fn event(&mut self, which: usize, time_ns: u64, values: &[u64]) {
        let _ = (which, time_ns, values);
    }

    /// Whether it wants requests.
    fn wants_requests(&self) -> bool {
        false
    }

    /// A request.
    fn request(&mut self, request: &Request, context: &Context<'_>) {
        let _ = (request, context);
    }

    /// What was found.
    fn finish(self: Box<Self>, context: &Context<'_>) -> Found;
}
