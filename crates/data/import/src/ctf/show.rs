//! Values of slots as text.

use super::plan::{Column, Kind};
use super::reader::Event;
use crate::value::Value;

/// How long a text of an array may become.
const TEXT_MAX: usize = 4096;

/// The value of an event's column of a place. Texts that have to be made are put into `scratch`.
pub fn show<'a>(
    event: &'a Event<'_>,
    column: &Column,
    place: usize,
    scratch: &'a mut String,
) -> Value<'a> {
    let raw = event.values.get(place).copied().unwrap_or(0);
    match &column.kind {
        Kind::Unsigned => Value::Unsigned(raw),
        Kind::Signed => Value::Signed(raw as i64),
        Kind::Float32 => Value::Float(f64::from(f32::from_bits(raw as u32))),
        Kind::Float64 => Value::Float(f64::from_bits(raw)),
        _ => {
            scratch.clear();
            write(event, column, raw, scratch);
            Value::Text(scratch)
        }
    }
}

/// Bytes that a value names.
fn bytes<'a>(event: &'a Event<'_>, raw: u64) -> &'a [u8] {
    let (place, length) = ((raw >> 32) as usize, raw as u32 as usize);
    event.bytes.get(place..place + length).unwrap_or_default()
}

fn write(event: &Event<'_>, column: &Column, raw: u64, out: &mut String) {
    match &column.kind {
        Kind::Unsigned => out.push_str(&raw.to_string()),
        Kind::Signed => out.push_str(&(raw as i64).to_string()),
        Kind::Float32 => out.push_str(&f32::from_bits(raw as u32).to_string()),
        Kind::Float64 => out.push_str(&f64::from_bits(raw).to_string()),
        Kind::Text => {
            let bytes = bytes(event, raw);
            // Of an array of letters, what follows a zero is nothing.
            let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
            out.push_str(&String::from_utf8_lossy(text));
        }
        Kind::Blob => {
            for byte in bytes(event, raw).iter().take(TEXT_MAX / 2) {
                out.push_str(&format!("{byte:02x}"));
            }
        }
        Kind::Label { signed, labels } => {
            let value = if *signed { i128::from(raw as i64) } else { i128::from(raw) };
            let holds = |(from, to): &(i128, i128)| (*from..=*to).contains(&value);
            match labels.iter().find(|(_, ranges)| ranges.iter().any(holds)) {
                Some((name, _)) => out.push_str(name),
                None => out.push_str(&value.to_string()),
            }
        }
        Kind::Array(columns) => {
            let (place, count) = ((raw >> 32) as usize, raw as u32 as usize);
            let width = columns.len();
            out.push('[');
            for n in 0..count {
                if n > 0 {
                    out.push_str(", ");
                }
                if out.len() > TEXT_MAX {
                    out.push('…');
                    break;
                }
                let from = place + n * width;
                let values = event.elements.get(from..from + width).unwrap_or_default();
                let shown = columns.iter().zip(values).filter(|(column, _)| !column.hidden);
                let single = columns.len() == 1;
                if !single {
                    out.push('{');
                }
                for (n, (column, raw)) in shown.enumerate() {
                    if n > 0 {
                        out.push_str(", ");
                    }
                    if !single {
                        out.push_str(&column.name);
                        out.push('=');
                    }
                    write(event, column, *raw, out);
                }
                if !single {
                    out.push('}');
                }
            }
            out.push(']');
        }
    }
}
