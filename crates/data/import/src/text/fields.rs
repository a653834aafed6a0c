//! Fields of tracepoints as text: `key=value key=value`, `key: value, key: value`, or in prose.

use crate::value::{Field, Value, find, number, number_or_text};

/// The fields of an event, by its name and what stands behind it.
pub fn fields<'a>(name: &str, text: &'a str) -> Vec<Field<'a>> {
    let text = text.trim();
    let special = match name {
        "sys_enter" => numbered(text),
        "sys_exit" => returned(text),
        "sched_switch" if text.contains("==>") && !text.contains('=') => None,
        "sched_switch" => switched(text),
        "sched_wakeup" | "sched_waking" | "sched_wakeup_new" => woken(text),
        "block_rq_issue" | "block_rq_complete" => transfer(text),
        _ if name.starts_with("sys_exit_") => {
            let ret = number(text.rsplit(' ').next().unwrap_or(text));
            ret.map(|ret| vec![("ret", ret)])
        }
        _ => None,
    };
    special.or_else(|| switched(text)).unwrap_or_else(|| plain(name, text))
}

fn plain<'a>(name: &str, text: &'a str) -> Vec<Field<'a>> {
    let mut fields = assigned(text);
    if fields.is_empty() {
        fields = listed(text);
    }
    if fields.is_empty() && !text.is_empty() {
        fields.push(("text", Value::Text(text)));
    }
    for (key, value) in &mut fields {
        // Printed in hexadecimal, without saying so.
        if name == "task_newtask"
            && *key == "clone_flags"
            && let Some(Ok(flags)) = text_of(*value, text, key).map(|t| u64::from_str_radix(t, 16))
        {
            *value = Value::Unsigned(flags);
        }
    }
    fields
}

/// The text that a field's value was made of.
fn text_of<'a>(value: Value<'a>, text: &'a str, key: &str) -> Option<&'a str> {
    match value {
        Value::Text(text) => Some(text),
        _ => text.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('=')),
    }
}

fn is_key(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// `key=value` apart by spaces. A value goes on until the next key: names of threads have spaces.
fn assigned(text: &str) -> Vec<Field<'_>> {
    let mut fields: Vec<Field<'_>> = Vec::new();
    let mut open: Option<(&str, usize)> = None;
    let mut end_of_last = 0;
    for word in text.split(' ') {
        let begin = word.as_ptr() as usize - text.as_ptr() as usize;
        if word == "==>" {
            close(&mut fields, open.take(), text, end_of_last);
        } else if let Some((key, _)) = word.split_once('=').filter(|(key, _)| is_key(key)) {
            close(&mut fields, open.take(), text, end_of_last);
            open = Some((key, begin + key.len() + 1));
        } else if fields.is_empty() && open.is_none() && !word.is_empty() {
            // It begins with something else.
            return Vec::new();
        }
        if !word.is_empty() {
            end_of_last = begin + word.len();
        }
    }
    close(&mut fields, open, text, end_of_last);
    fields
}

fn close<'a>(
    fields: &mut Vec<Field<'a>>,
    open: Option<(&'a str, usize)>,
    text: &'a str,
    end: usize,
) {
    if let Some((key, begin)) = open {
        let value = text.get(begin..end.max(begin)).unwrap_or_default().trim();
        fields.push((key, number_or_text(value.trim_end_matches(','))));
    }
}

/// `key: value, key: value`.
fn listed(text: &str) -> Vec<Field<'_>> {
    let mut fields = Vec::new();
    for part in text.split(", ") {
        match part.split_once(": ").filter(|(key, _)| is_key(key)) {
            Some((key, value)) => fields.push((key, quoted(value.trim()))),
            None => return Vec::new(),
        }
    }
    fields
}

/// A number, or a text; of an address with the text that it points to, the text.
fn quoted(value: &str) -> Value<'_> {
    match value.split_once(" \"") {
        Some((address, text)) if number(address).is_some() => {
            Value::Text(text.strip_suffix('"').unwrap_or(text))
        }
        _ => number_or_text(value),
    }
}

/// `NR 0 (3, 7ffd10, 400, 0, 0, 0)`: arguments are hexadecimal.
fn numbered(text: &str) -> Option<Vec<Field<'_>>> {
    let (nr, rest) = text.strip_prefix("NR ")?.split_once(' ')?;
    let mut fields = vec![("NR", number(nr)?)];
    for argument in rest.strip_prefix('(')?.split(')').next()?.split(',') {
        let digits = argument.trim().trim_start_matches("0x");
        fields.push(("", Value::Unsigned(u64::from_str_radix(digits, 16).ok()?)));
    }
    Some(fields)
}

/// `NR 0 = 5`.
fn returned(text: &str) -> Option<Vec<Field<'_>>> {
    let (nr, ret) = text.strip_prefix("NR ")?.split_once(" = ")?;
    Some(vec![("NR", number(nr)?), ("ret", number(ret.trim())?)])
}

/// `bash:12 [120] S ==> swapper/1:0 [120]`, as trace-cmd writes it, or in `key=value`.
fn switched(text: &str) -> Option<Vec<Field<'_>>> {
    let (before, after) = text.split_once(" ==> ")?;
    let task = |text: &'_ str| -> Option<(usize, Value<'static>, usize)> {
        let bracket = text.rfind('[')?;
        let colon = text[..bracket].rfind(':')?;
        Some((colon, number(text[colon + 1..bracket].trim())?, bracket))
    };
    if find(&assigned(text), &["prev_pid"]).is_some() {
        return None;
    }
    let (name_end, previous, bracket) = task(before)?;
    let (next_end, next, _) = task(after)?;
    let state = before[bracket..].split_once(']')?.1.trim();
    Some(vec![
        ("prev_comm", Value::Text(&before[..name_end])),
        ("prev_pid", previous),
        ("prev_state", Value::Text(state)),
        ("next_comm", Value::Text(&after[..next_end])),
        ("next_pid", next),
    ])
}

/// `bash:12 [120] success=1 CPU:001`, as trace-cmd writes it.
fn woken(text: &str) -> Option<Vec<Field<'_>>> {
    if text.starts_with("comm=") {
        return None;
    }
    let bracket = text.find(" [")?;
    let (name, pid) = text[..bracket].rsplit_once(':')?;
    Some(vec![("comm", Value::Text(name)), ("pid", number(pid)?)])
}

/// `8,0 WS 4096 () 2048 + 8 [kworker/1]`; without bytes when it is complete.
fn transfer(text: &str) -> Option<Vec<Field<'_>>> {
    let (device, rest) = text.split_once(' ')?;
    let (major, minor) = device.split_once(',')?;
    let (major, minor): (u64, u64) = (major.parse().ok()?, minor.parse().ok()?);
    let (what, rest) = rest.split_once(' ')?;
    let (before, after) = rest.split_once(") ")?;
    let mut after = after.split(' ');
    let sector = number(after.next()?)?;
    let sectors = after.nth(1).and_then(number).unwrap_or(Value::Unsigned(0));
    let mut fields = vec![
        // As the kernel counts devices.
        ("dev", Value::Unsigned(major << 20 | minor)),
        ("rwbs", Value::Text(what)),
        ("sector", sector),
        ("nr_sector", sectors),
    ];
    if let Some(bytes) = before.split(' ').next().and_then(number) {
        fields.push(("bytes", bytes));
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str, text: &str) -> String {
        let fields = fields(name, text);
        let parts = fields.iter().map(|(key, value)| format!("{key}={value}"));
        parts.collect::<Vec<_>>().join("|")
    }

    #[test]
    fn keys_and_values() {
        let text = "prev_comm=Web Content prev_pid=7 prev_prio=120 prev_state=R+ ==> next_comm=x next_pid=0";
        let wanted =
            "prev_comm=Web Content|prev_pid=7|prev_prio=120|prev_state=R+|next_comm=x|next_pid=0";
        assert_eq!(shown("sched_switch", text), wanted);
        assert_eq!(shown("x", "a=1, b=0x10"), "a=1|b=16");
        assert_eq!(
            shown("task_newtask", "pid=2 comm=x clone_flags=1200011 oom=0"),
            format!("pid=2|comm=x|clone_flags={}|oom=0", 0x120_0011)
        );
        assert_eq!(
            shown("sys_enter_read", "fd: 0x3, buf: 0x7f00, count: 0x400"),
            "fd=3|buf=32512|count=1024"
        );
        assert_eq!(shown("x", "some words"), "text=some words");
        assert_eq!(shown("x", "some words=5"), "text=some words=5");
        assert_eq!(shown("x", ""), "");
    }

    #[test]
    fn prose_of_the_kernel() {
        assert_eq!(shown("sys_enter", "NR 1 (3, 7ffd, a, 0, 0, 0)"), "NR=1|=3|=32765|=10|=0|=0|=0");
        assert_eq!(shown("sys_exit", "NR 1 = -11"), "NR=1|ret=-11");
        assert_eq!(shown("sys_exit_read", "0x5"), "ret=5");
        assert_eq!(
            shown("sched_switch", "a b:1 [120] S ==> swapper/1:0 [120]"),
            "prev_comm=a b|prev_pid=1|prev_state=S|next_comm=swapper/1|next_pid=0"
        );
        assert_eq!(shown("sched_waking", "a:b:12 [120] CPU:001"), "comm=a:b|pid=12");
        assert_eq!(
            shown("block_rq_issue", "8,0 WS 4096 () 2048 + 8 [kworker]"),
            format!("dev={}|rwbs=WS|sector=2048|nr_sector=8|bytes=4096", 8 << 20)
        );
        assert_eq!(
            shown("block_rq_complete", "8,16 R () 99 + 8 [0]"),
            format!("dev={}|rwbs=R|sector=99|nr_sector=8", 8 << 20 | 16)
        );
    }
}
