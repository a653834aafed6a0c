//! Requests whose answers name them: by a number, a place, a channel. What is asked under one name is
//! answered in order.

use std::collections::VecDeque;
use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::counts::Reason;
use crate::decoder::Open;

/// Requests without an answer at once. There may be more that never get one.
const OPEN: usize = 1 << 14;

/// The requests of a connection that wait, each with what is known of it.
#[derive(Debug)]
pub struct Exchanges<K, V = ()> {
    numbers: u64,
    open: FxHashMap<K, VecDeque<(u64, V)>>,
    count: usize,
    several: bool,
}

impl<K, V> Default for Exchanges<K, V> {
    fn default() -> Exchanges<K, V> {
        Exchanges { numbers: 0, open: FxHashMap::default(), count: 0, several: false }
    }
}

impl<K: Copy + Eq + Hash, V> Exchanges<K, V> {
    /// The number of a request, which nothing answers.
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers - 1
    }

    /// The number of a request that waits; the reason to give up if there are too many.
    pub fn open(&mut self, name: K, value: V) -> Result<u64, Reason> {
        if self.count >= OPEN {
            return Err(Reason::Quiet);
        }
        let number = self.number();
        self.open.entry(name).or_default().push_back((number, value));
        self.count += 1;
        self.several |= self.count > 1;
        Ok(number)
    }

    /// What is known of the request that waits longest under a name.
    pub fn first(&mut self, name: K) -> Option<&mut V> {
        self.open.get_mut(&name)?.front_mut().map(|(_, value)| value)
    }

    /// The request that is answered.
    pub fn close(&mut self, name: K) -> Option<(u64, V)> {
        let of_name = self.open.get_mut(&name)?;
        let closed = of_name.pop_front();
        if of_name.is_empty() {
            self.open.remove(&name);
        }
        self.count -= usize::from(closed.is_some());
        closed
    }

    /// The names under which requests wait.
    pub fn names(&self) -> impl Iterator<Item = K> {
        self.open.keys().copied()
    }

    /// Whether a request was once asked before another one was answered.
    pub fn had_several(&self) -> bool {
        self.several
    }

    /// Takes out all that wait, in order. `by_server` says of a name whether the server has asked.
    pub fn take(&mut self, protocol: &'static str, by_server: impl Fn(K) -> bool) -> Vec<Open> {
        self.count = 0;
        let mut all = Vec::new();
        for (name, waiting) in self.open.drain() {
            let by_server = by_server(name);
            let open = |(exchange, _)| Open { exchange, protocol, by_server };
            all.extend(waiting.into_iter().map(open));
        }
        all.sort_by_key(|one| one.exchange);
        all
    }
}
