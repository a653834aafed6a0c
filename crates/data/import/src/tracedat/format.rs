//! The kernel's own descriptions of its tracepoints' fields.

/// A kind of event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFormat {
    pub id: u16,
    pub name: String,
    pub system: String,
    /// Fields that all events have, and its own.
    pub common: Vec<FieldFormat>,
    pub fields: Vec<FieldFormat>,
}

/// A field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldFormat {
    pub name: String,
    pub offset: usize,
    pub size: usize,
    pub signed: bool,
    pub kind: FieldKind,
}

/// What its bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldKind {
    #[default]
    Number,
    /// Letters, of which a zero is the last.
    Letters,
    /// Numbers of so many bytes each.
    Numbers(usize),
    /// Place and length of letters elsewhere in the event, from its beginning or from this field's end.
    Elsewhere { letters: bool, relative: bool },
}

/// Reads a description.
pub fn parse(text: &str, system: &str) -> Option<EventFormat> {
    let mut format = EventFormat { system: system.to_owned(), ..EventFormat::default() };
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("name:") {
            format.name = name.trim().to_owned();
        } else if let Some(id) = line.strip_prefix("ID:") {
            format.id = id.trim().parse().ok()?;
        } else if line.starts_with("print fmt:") {
            break;
        } else if let Some(field) = field(line) {
            match field.name.starts_with("common_") {
                true => format.common.push(field),
                false => format.fields.push(field),
            }
        }
    }
    (!format.name.is_empty()).then_some(format)
}

/// `field:unsigned char common_flags; offset:2; size:1; signed:0;`, apart by tabs.
pub fn field(line: &str) -> Option<FieldFormat> {
    let mut parts = line.split(';').map(str::trim);
    let declaration = parts.next()?.strip_prefix("field:")?.trim();
    let mut field = FieldFormat::default();
    for part in parts {
        let Some((key, value)) = part.split_once(':') else { continue };
        match key {
            "offset" => field.offset = value.parse().ok()?,
            "size" => field.size = value.parse().ok()?,
            "signed" => field.signed = value == "1",
            _ => {}
        }
    }
    let (declared, name) = declaration.rsplit_once([' ', '*'])?;
    let (name, counted) = match name.split_once('[') {
        Some((name, _)) => (name, true),
        None => (name, false),
    };
    field.name = name.to_owned();
    let letters = declared.contains("char");
    field.kind = if declared.starts_with("__data_loc") || declared.starts_with("__rel_loc") {
        FieldKind::Elsewhere { letters, relative: declared.starts_with("__rel_loc") }
    } else if counted && letters {
        FieldKind::Letters
    } else if counted {
        let wide = declared.contains("long") || declared.contains("64") || declared.contains('*');
        let narrow = declared.contains("short") || declared.contains("16");
        FieldKind::Numbers(match (wide, narrow) {
            (true, _) => 8,
            (_, true) => 2,
            _ if declared.contains("u8") || declared.contains("__u8") => 1,
            _ => 4,
        })
    } else {
        FieldKind::Number
    };
    Some(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_of_the_kernel() {
        let text = "name: sched_switch\nID: 17\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:__data_loc char[] path;\toffset:24;\tsize:4;\tsigned:0;\n\tfield:unsigned long args[6];\toffset:28;\tsize:48;\tsigned:0;\n\tfield:const char * s;\toffset:76;\tsize:8;\tsigned:0;\n\nprint fmt: \"x\"";
        let format = parse(text, "sched").unwrap();
        assert_eq!((format.id, format.common.len()), (17, 1));
        let kinds: Vec<_> = format.fields.iter().map(|f| (f.name.as_str(), f.kind)).collect();
        let elsewhere = FieldKind::Elsewhere { letters: true, relative: false };
        assert_eq!(
            kinds,
            [
                ("prev_comm", FieldKind::Letters),
                ("path", elsewhere),
                ("args", FieldKind::Numbers(8)),
                ("s", FieldKind::Number)
            ]
        );
        assert_eq!(parse("ID: 5", ""), None);
    }
}
