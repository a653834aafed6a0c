//! The bytes of a file, held cheaply.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Immutable bytes that are cheap to clone and may live in any container: a `Vec<u8>`, a static
/// slice, or a memory map that an edge crate made.
#[derive(Clone)]
pub struct Bytes(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl Bytes {
    /// Wraps any container of bytes without copying them.
    pub fn new(container: impl AsRef<[u8]> + Send + Sync + 'static) -> Bytes {
        Bytes(Arc::new(container))
    }
}

// `Bytes` itself must not implement `AsRef<[u8]>`, or this would collide with `From<T> for T`.
impl<T: AsRef<[u8]> + Send + Sync + 'static> From<T> for Bytes {
    fn from(container: T) -> Self {
        Bytes::new(container)
    }
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({} bytes)", self.len())
    }
}
