//! Keys of JSON outputs that have another word since: what reads them goes on to find them.

use serde_json::Value;

/// A key as it is called now, and as it was called first.
const KEYS: [(&str, &str); 12] = [
    ("forked_children", "heirs"),
    ("got_slots", "slots"),
    ("left_unmodified", "left_alone"),
    ("longest_pause_ms", "longest_stop_ms"),
    ("mirror_overflows", "shadow_overflows"),
    ("osr_entries", "midway"),
    ("pauses_ms", "stops_ms"),
    ("samples", "looks"),
    ("text_bytes", "new_code_bytes"),
    ("undo_pauses_ms", "undo_stops_ms"),
    ("unmatched_exits", "orphan_exits"),
    ("unwound_frames", "left_frames"),
];

/// The same output, with each key that was renamed by its old name, too.
pub(crate) fn with_old_keys(mut value: Value) -> Value {
    add(&mut value);
    value
}

fn add(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(add);
            for (now, before) in KEYS {
                if let Some(same) = members.get(now).cloned() {
                    members.entry(before).or_insert(same);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(add),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn old_keys_stay_beside_new_ones_at_any_depth() {
        let value = json!({ "installed": [{ "osr_entries": 2, "other": 1 }], "pauses_ms": [0.5] });
        let expected = json!({
            "installed": [{ "osr_entries": 2, "midway": 2, "other": 1 }],
            "pauses_ms": [0.5], "stops_ms": [0.5],
        });
        assert_eq!(with_old_keys(value), expected);
    }
}
