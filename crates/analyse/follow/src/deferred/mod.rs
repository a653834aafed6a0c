//! Deferred attribution: what later events say of earlier ones. Events wait here until it is known: a
//! send that is reported after the receive ([`causal`]), the question for which a proxy has sent
//! something ([`proxy_attribution`]).

pub(crate) mod causal;

mod asker;
mod certain;
mod contexts;
mod event_loops;
mod multiplexed;
mod opened;
mod orphans;
mod pools;
mod proxy_attribution;
mod tasks;
mod trace_ids;

use fettle_requests::{Batch, EventId, Program, Strings};

use causal::Causal;
use proxy_attribution::ProxyAttribution;

pub(crate) use proxy_attribution::ByTraceId;

/// Events whose time has not come.
pub(crate) struct Deferred {
    causal: Causal,
    proxy_attribution: ProxyAttribution,
}

impl Deferred {
    /// For the events of a program, of which those are read that are `wanted`.
    pub fn new(program: &Program, wanted: &dyn Fn(EventId) -> bool) -> Deferred {
        let causal = Causal::new(program.catalog());
        Deferred { causal, proxy_attribution: ProxyAttribution::new(program, wanted) }
    }

    /// Whether it has to see events of a kind, and whether it may move them to an earlier time.
    pub fn looks_at(&self, event: EventId) -> (bool, bool) {
        let (is_seen, may_move) = self.causal.looks_at(event);
        (is_seen || self.proxy_attribution.looks_at(event), may_move)
    }

    /// Whether it needs events of a kind that schemas do nothing with.
    pub fn needs(&self, event: EventId) -> bool {
        self.proxy_attribution.needs(event)
    }

    /// Of how many questions their bytes said whose they are.
    pub fn by_trace_id(&self) -> ByTraceId {
        self.proxy_attribution.by_trace_id()
    }

    /// Where the next events go, in order of time.
    pub fn input(&mut self) -> &mut Batch {
        self.causal.held()
    }

    /// Replaces `out` by the events that need not wait any longer: all, if no more will come.
    pub fn release(&mut self, all: bool, strings: &Strings, out: &mut Batch) {
        self.causal.release(all, out);
        self.proxy_attribution.pass(out, strings.find(""), all);
    }

    /// As [`Deferred::release`], where it is known that nothing before `now_ns` will come any more.
    pub fn release_before(&mut self, now_ns: u64, strings: &Strings, out: &mut Batch) {
        self.causal.release_before(now_ns, out);
        self.proxy_attribution.pass(out, strings.find(""), false);
    }
}
