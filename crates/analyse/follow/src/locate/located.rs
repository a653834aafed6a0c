//! What is asked, and what comes out.

use serde::Serialize;

/// What makes a request bad.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocateOptions {
    /// It took longer than this, ns. Without it: longer than three times the median of its class, and farther from the
    /// median than twelve times the distance of that from the first quartile.
    pub slower_than_ns: Option<u64>,
}

/// Where bad requests come from.
#[derive(Clone, Debug, Serialize)]
pub struct Located {
    /// [`crate::JSON_VERSION`].
    pub version: u32,
    /// Requests that were looked at.
    pub requests: u64,
    /// Those whose own answer said that they failed.
    pub failed: u64,
    /// Those that never got an answer, while others of their class did.
    pub unanswered: u64,
    /// Those that took too long.
    pub slow: u64,
    /// From which response time on a request of a class is slow.
    pub limits: Vec<Limit>,
    /// What is found to be at fault, what explains most first; empty if nothing is.
    pub faults: Vec<Fault>,
    /// Bad requests that no fault explains.
    pub unexplained: u64,
    /// All components that go with bad requests more than chance does, the most alike first.
    pub ranking: Vec<Component>,
    /// What could not be read, or not be used, one sentence each.
    pub problems: Vec<String>,
}

/// What is slow in a class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// Its name.
    pub class: String,
    /// Its requests.
    pub requests: u64,
    /// Their median response time.
    pub median_ns: u64,
    /// What takes longer is slow.
    pub slower_than_ns: u64,
    /// How many are.
    pub slow: u64,
}

/// Components that cannot be distinguished: the same requests have them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fault {
    /// What they are, the most specific first.
    pub components: Vec<String>,
    /// How they go with bad requests that earlier faults do not explain.
    pub odds: Odds,
    /// A bad request that has them: the place of its schema, and its number.
    pub example: (usize, u64),
}

/// A component in all requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Component {
    /// What it is.
    pub name: String,
    /// How it goes with bad requests.
    pub odds: Odds,
}

/// How much more often requests with a component are bad.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Odds {
    /// Bad requests with it.
    pub bad_with: u64,
    /// All bad requests.
    pub bad: u64,
    /// Good requests with it.
    pub good_with: u64,
    /// All good requests.
    pub good: u64,
    /// How alike bad requests and those with it are, of 1.
    pub ochiai: f64,
    /// Natural logarithm of the odds ratio.
    pub log_odds: f64,
    /// Its exact 95 % interval; open where nothing bounds it.
    pub interval: (Option<f64>, Option<f64>),
    /// How probable this is by chance, for as many components as there are.
    pub probability: f64,
}
