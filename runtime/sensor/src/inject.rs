//! Points between the steps of a commit where tests interrupt it. Empty in production.

/// Nothing done but the time taken.
pub(crate) const BEGUN: u32 = 1;
/// Room found, not reserved.
pub(crate) const ROOM: u32 = 2;
/// Reserved, nothing stored.
pub(crate) const RESERVED: u32 = 3;
/// Payload stored, not yet marked.
pub(crate) const STORED: u32 = 4;
/// Committed.
pub(crate) const COMMITTED: u32 = 5;
/// The sensor is made, but not yet on.
pub(crate) const MAKING: u32 = 6;

#[cfg(test)]
thread_local! {
    /// What this thread does at each point.
    pub(crate) static HOOK: std::cell::Cell<fn(u32)> = const { std::cell::Cell::new(|_| ()) };
}

/// Passes a point.
#[inline(always)]
pub(crate) fn point(_number: u32) {
    #[cfg(test)]
    HOOK.get()(_number);
}
