//! The C header has the layouts and constants of `fettle_abi`, and compiles without a warning as
//! C99 and as C++11.

mod common;

use std::fmt::Write;
use std::mem::offset_of;

use fettle_abi::ring::{Policy, RingCursors};
use fettle_abi::sensor::*;

/// What both languages call by name.
const CONSTANTS: &[(&str, u64)] = &[
    ("FETTLE_MAGIC", fettle_abi::MAGIC),
    ("FETTLE_VERSION", VERSION as u64),
    ("FETTLE_VERSION_MIN", VERSION_MIN as u64),
    ("FETTLE_SLOTS", SLOTS as u64),
    ("FETTLE_SLOTS_MAX", SLOTS_MAX as u64),
    ("FETTLE_NAME_BYTES", NAME_BYTES as u64),
    ("FETTLE_DEFAULT_SLOTS", DEFAULT_SLOTS as u64),
    ("FETTLE_DEFAULT_CELL_LOG2", DEFAULT_CELL_LOG2 as u64),
    ("FETTLE_DEFAULT_RING_LOG2", DEFAULT_RING_LOG2 as u64),
    ("FETTLE_WAIT_LIMIT_NS", WAIT_LIMIT_NS),
    ("FETTLE_MAKING_LIMIT_NS", MAKING_LIMIT_NS),
    ("FETTLE_LIST_RING", LIST_RING as u64),
    ("FETTLE_SUB_BITS", SUB_BITS as u64),
    ("FETTLE_BUCKETS", BUCKETS as u64),
    ("FETTLE_KIND_SCALAR", Kind::Scalar as u64),
    ("FETTLE_KIND_LIST", Kind::List as u64),
    ("FETTLE_KIND_HISTOGRAM", Kind::Histogram as u64),
    ("FETTLE_KIND_KNOB", Kind::Knob as u64),
    ("FETTLE_KNOB_UNOPENED", KNOB_UNOPENED as u64),
    ("FETTLE_DROP", Policy::Drop as u64),
    ("FETTLE_OVERWRITE", Policy::Overwrite as u64),
    ("FETTLE_WAIT", Policy::Wait as u64),
    ("FETTLE_MARK_WORDS", Mark::WORDS_SHIFT as u64),
    ("FETTLE_MARK_EVENT", Mark::EVENT_SHIFT as u64),
    ("FETTLE_MARK_LAP", Mark::LAP_SHIFT as u64),
    ("FETTLE_MARK_THREAD", Mark::THREAD_SHIFT as u64),
    ("FETTLE_MARK_CLAIMED", Mark::CLAIMED_SHIFT as u64),
];

#[test]
fn layouts_are_equal() {
    let mut claims: Vec<(String, u64)> = Vec::new();
    macro_rules! structure {
        ($c:literal, $rust:ty, $($field:ident),*) => {
            claims.push((format!("sizeof(struct {})", $c), size_of::<$rust>() as u64));
            $(claims.push((
                format!("offsetof(struct {}, {})", $c, stringify!($field)),
                offset_of!($rust, $field) as u64,
            ));)*
        };
    }
    structure!(
        "fettle_head",
        Head,
        magic,
        version,
        version_min,
        kind,
        policy,
        major,
        minor,
        instance,
        pid,
        start_time,
        tsc_at_open,
        monotonic_ns_at_open,
        realtime_ns_at_open,
        slots,
        cell_log2,
        ring_log2,
        name,
        level,
        lost_opening,
        consumer_beat,
        lost_reported,
        owners
    );
    structure!(
        "fettle_cursors",
        RingCursors,
        reserved,
        limit,
        lost,
        policy,
        capacity_log2,
        consumed,
        consumer_beat
    );
    structure!("fettle_list_slot", ListSlot, cursors, settled, missed);
    structure!("fettle_scalar_slot", ScalarSlot, sum);
    structure!("fettle_histogram_slot", HistogramSlot, sum, buckets);
    structure!(
        "fettle_knob_slot",
        KnobSlot,
        value,
        default_value,
        least,
        greatest,
        resting,
        held,
        sets
    );
    claims.extend(CONSTANTS.iter().map(|&(name, value)| (name.to_string(), value)));
    let mut source = String::from(
        "#include \"fettle_knob.h\"\n#include <stdio.h>\n\
         #define CLAIM(what, value) if ((uint64_t)(what) != UINT64_C(value)) \
         { printf(\"%s is %llu in C, %s in Rust\\n\", #what, (unsigned long long)(what), #value); \
         wrong = 1; }\n\
         FETTLE_LIST(list, \"a\", 1, 2, FETTLE_WAIT);\n\
         FETTLE_SHARED_LIST(shared, \"b\", 1, 2, FETTLE_DROP);\n\
         FETTLE_SCALAR(scalar, \"c\", 1, 2);\nFETTLE_HISTOGRAM(histogram, \"d\", 1, 2);\n\
         FETTLE_KNOB(knob, \"e\", 1, 2, -1, -5, 3);\nFETTLE_EXTERN(other);\nFETTLE_EXTERN_KNOB(dial);\n\
         int main(void) {\n    int wrong = 0, i = -1;\n    const uint64_t words[] = {1, 2};\n\
         FETTLE_COMMIT(list, 1);\n    FETTLE_COMMIT(list, 1, i);\n\
         FETTLE_COMMIT(list, 1, i, 2);\n    FETTLE_COMMIT(list, 1, i, 2, 3);\n\
         FETTLE_COMMIT(list, 1, i, 2, 3, 4);\n    FETTLE_COMMIT(list, 1, i, 2, 3, 4, 5);\n\
         FETTLE_COMMIT(shared, 1, i, 2, 3, 4, 5, 6);\n\
         FETTLE_COMMIT_WORDS(list, 1, words, 2);\n    FETTLE_ADD(scalar, i);\n\
         FETTLE_SET(scalar, i);\n    FETTLE_RECORD(histogram, i);\n\
         if (FETTLE_VALUE(knob) != -1 || ((uintptr_t)&knob.page & 4095) != 0) wrong = 1;\n",
    );
    for (what, value) in &claims {
        writeln!(source, "    CLAIM({what}, {value})").unwrap();
    }
    for bucket in 0..BUCKETS {
        let floor = bucket_floor(bucket);
        writeln!(source, "    CLAIM(fettle_bucket(UINT64_C({floor})), {bucket})").unwrap();
    }
    source.push_str("    return wrong;\n}\n");

    let bench = common::Bench::new();
    let file = bench.folder.path().join("layouts.c");
    std::fs::write(&file, source).unwrap();
    for compiler in [
        &["cc", "-std=c99", "-O0"][..],
        &["cc", "-std=c99", "-O3"],
        &["cc", "-std=gnu17", "-fPIC", "-O2"],
        &["c++", "-xc++", "-std=c++11", "-O2"],
        &["c++", "-xc++", "-std=c++20", "-O2"],
    ] {
        let program = bench.folder.path().join("layouts");
        common::compile_as(compiler, &file, &program);
        let output = std::process::Command::new(&program).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}
