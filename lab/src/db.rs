//! The database in memory: records by key, in buckets.

use crate::cpu;
use crate::lock::{Class, ReaderWriter, Role, Spin};

const BUCKETS: usize = 64;
const IN_BUCKET: usize = 16;
pub const RECORDS: usize = BUCKETS * IN_BUCKET;

struct Bucket {
    lock: Spin,
    records: [u64; IN_BUCKET],
}

const BUCKET: Bucket =
    Bucket { lock: Spin::new(Class::Bucket, Role::Object), records: [0; IN_BUCKET] };
static mut TABLE: [Bucket; BUCKETS] = [BUCKET; BUCKETS];
/// The subsystem's lock: held over a whole kernel call.
pub static SUBSYSTEM: ReaderWriter = ReaderWriter::new(Class::Database, Role::Subsystem);

fn bucket(key: u64) -> &'static mut Bucket {
    // SAFETY: protected by its lock, or by the subsystem's.
    unsafe { &mut (*(&raw mut TABLE))[key as usize % BUCKETS] }
}

/// Looks a record up, with so much work for finding it.
pub fn read(key: u64, work: u64) -> u64 {
    let bucket = bucket(key);
    bucket.lock.with(|| {
        cpu::compute(work);
        bucket.records[key as usize / BUCKETS % IN_BUCKET]
    })
}

/// Adds to a record.
pub fn update(key: u64, by: u64, work: u64) -> u64 {
    let bucket = bucket(key);
    bucket.lock.with(|| {
        let record = &mut bucket.records[key as usize / BUCKETS % IN_BUCKET];
        let old = *record;
        // Between reading and writing, so that a lock that is not there shows.
        cpu::compute(work);
        *record = old + by;
        old + by
    })
}

/// The sum of all records.
pub fn sum() -> u64 {
    (0..RECORDS as u64).map(|key| read(key, 0)).sum()
}
