//! Calls in order of time, against a sort of all of them.

mod drawing;

use fettle_abi::record::{CallRecord, FunctionId};
use fettle_trace::{Finish, Moment, Trace, TraceWriter, What};
use fettle_types::FunctionIndex;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % limit
    }
}

/// Records of random nested calls, in order of their ends, and their entries and exits.
fn thread(seed: u64, thread: u32, calls: usize, records: &mut Vec<u8>) -> Vec<Moment> {
    let mut random = Random(seed);
    let mut time_ns = random.below(1000);
    let mut moments = Vec::new();
    let mut open: Vec<(u64, FunctionIndex)> = Vec::new();
    let mut begun = 0;
    while begun < calls || !open.is_empty() {
        // The outermost call stays until the end; deep chains and flat stretches take turns.
        let deep = if begun % 5000 < 200 { 150 } else { 8 };
        let begins =
            begun < calls && (open.len() < 2 || random.below(deep) > open.len() as u64 / 2);
        let (depth, now) = (open.len(), time_ns);
        let what = if begins {
            let function = FunctionIndex(random.below(6) as u32);
            open.push((now, function));
            begun += 1;
            What::Call { function, depth: depth as u16 }
        } else {
            let (start, function) = open.pop().unwrap();
            let id = FunctionId::from_index(function.get()).unwrap();
            let record = CallRecord::new(id, drawing::TSC + start, now - start);
            records.extend(record.start_and_id_high.to_le_bytes());
            records.extend(record.ticks_and_id_low.to_le_bytes());
            What::CallEnd { function, depth: depth as u16 - 1 }
        };
        moments.push(Moment { time_ns, thread, what });
        // Some calls begin and end within one tick of the clock.
        time_ns += random.below(4);
    }
    moments
}

#[test]
fn begins_and_ends_come_in_order_of_time() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t.fettle");
    let mut writer = TraceWriter::create(&folder, &drawing::manifest()).unwrap();
    let mut expected = Vec::new();
    // More than a window, just a window, and little; the threads' times overlap.
    for (index, calls) in [60_000, 16_384, 100, 1].into_iter().enumerate() {
        let mut records = Vec::new();
        let moments = thread(3 + index as u64, index as u32, calls, &mut records);
        writer.spool_append(index as u32, &records).unwrap();
        expected.push(moments);
    }
    let finish = Finish { ..drawing::finish(&[&[], &[], &[], &[]]) };
    writer.finish(finish, &mut |_, _| {}).unwrap();

    let trace = Trace::open(&folder).unwrap();
    let (mut moments, damaged) = trace.moments(true, false).unwrap();
    assert!(damaged.is_empty(), "{damaged:?}");
    let mut found: Vec<Vec<Moment>> = vec![Vec::new(); expected.len()];
    let mut last_ns = 0;
    while let Some(moment) = moments.pull().unwrap() {
        assert!(moment.time_ns >= last_ns);
        last_ns = moment.time_ns;
        found[moment.thread as usize].push(moment);
    }
    for (found, expected) in found.iter().zip(&expected) {
        // What begins or ends within a tick may be given in another order, and then as nested where it
        // followed, as the rows say. So: nested, and the same begins and ends.
        let mut open = Vec::new();
        for moment in found {
            match moment.what {
                What::Call { function, depth } => {
                    assert_eq!(usize::from(depth), open.len());
                    open.push(function);
                }
                What::CallEnd { function, .. } => assert_eq!(open.pop(), Some(function)),
                _ => unreachable!(),
            }
        }
        assert!(open.is_empty());
        let key = |moment: &Moment| match moment.what {
            What::Call { function, .. } => (moment.time_ns, true, function),
            What::CallEnd { function, .. } => (moment.time_ns, false, function),
            _ => unreachable!(),
        };
        let sorted = |moments: &[Moment]| {
            let mut keys: Vec<_> = moments.iter().map(key).collect();
            keys.sort();
            keys
        };
        assert!(sorted(found) == sorted(expected));
    }
}
