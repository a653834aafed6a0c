//! pprof: a sample per chain of callers, with its calls, its time and, if known, its time on a
//! processor.

use std::io::Write;

use fettle_trace::Function;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::stacks::{chain, flat};
use crate::error::Result;
use crate::hash::FastMap;
use crate::report::Analysis;
use crate::tree::NodeId;
use fettle_trace::proto::Message;
use fettle_types::{FunctionIndex, Strings};

/// Field numbers of `profile.proto` that are used here.
mod field {
    pub(super) const SAMPLE_TYPE: u32 = 1;
    pub(super) const SAMPLE: u32 = 2;
    pub(super) const LOCATION: u32 = 4;
    pub(super) const FUNCTION: u32 = 5;
    pub(super) const STRING: u32 = 6;
    pub(super) const TIME_NANOS: u32 = 9;
    pub(super) const DURATION_NANOS: u32 = 10;
    pub(super) const DEFAULT_SAMPLE_TYPE: u32 = 14;
    pub(super) const TYPE_NAME: u32 = 1;
    pub(super) const TYPE_UNIT: u32 = 2;
    pub(super) const SAMPLE_LOCATIONS: u32 = 1;
    pub(super) const SAMPLE_VALUES: u32 = 2;
    pub(super) const LOCATION_ID: u32 = 1;
    pub(super) const LOCATION_ADDRESS: u32 = 3;
    pub(super) const LOCATION_LINE: u32 = 4;
    pub(super) const LINE_FUNCTION: u32 = 1;
    pub(super) const LINE_LINE: u32 = 2;
    pub(super) const FUNCTION_ID: u32 = 1;
    pub(super) const FUNCTION_NAME: u32 = 2;
    pub(super) const FUNCTION_SYMBOL: u32 = 3;
    pub(super) const FUNCTION_FILE: u32 = 4;
    pub(super) const FUNCTION_LINE: u32 = 5;
}

/// What the values of a sample are.
fn write_kinds(kinds: &[(&str, &str)], strings: &mut Strings, message: &mut Message) {
    for (name, unit) in kinds {
        let mut value_type = Message::default();
        value_type.number(field::TYPE_NAME, strings.code(name).into());
        value_type.number(field::TYPE_UNIT, strings.code(unit).into());
        message.message(field::SAMPLE_TYPE, &value_type);
    }
}

/// The functions of a trace without single calls, each a sample of its own with the first `kinds` values.
fn write_flat(
    analysis: &Analysis,
    kinds: usize,
    locations: &mut FastMap<FunctionIndex, u64>,
    message: &mut Message,
) {
    for row in flat(analysis) {
        let next = locations.len() as u64 + 1;
        let location = *locations.entry(row.id).or_insert(next);
        let mut sample = Message::default();
        sample.packed(field::SAMPLE_LOCATIONS, [location]);
        let values = [row.calls, row.self_ns, row.cpu_self_ns.unwrap_or(0)];
        sample.packed(field::SAMPLE_VALUES, values.into_iter().take(kinds));
        message.message(field::SAMPLE, &sample);
    }
}

pub(super) fn write(
    analysis: &Analysis,
    functions: Vec<Function>,
    out: &mut dyn Write,
) -> Result<()> {
    let functions: FastMap<FunctionIndex, Function> =
        functions.into_iter().map(|function| (function.id, function)).collect();
    let mut strings = Strings::default();
    // The first string is always the empty one.
    strings.code("");
    let mut gzip = GzEncoder::new(out, Compression::fast());
    let mut message = Message::default();

    let cpu = analysis.manifest.switches;
    let kinds = [("calls", "count"), ("time", "nanoseconds"), ("cpu", "nanoseconds")];
    let kinds = &kinds[..if cpu { 3 } else { 2 }];
    write_kinds(kinds, &mut strings, &mut message);
    message.number(field::DEFAULT_SAMPLE_TYPE, strings.code("time").into());
    message.number(field::TIME_NANOS, analysis.manifest.start_unix_ns);
    message.number(field::DURATION_NANOS, analysis.manifest.duration_ns);

    // One location per function; numbers from 1, in order of first use.
    let tree = &analysis.profile.tree;
    let mut locations: FastMap<FunctionIndex, u64> = FastMap::default();
    let mut nodes = Vec::new();
    for (id, node) in tree.nodes().iter().enumerate().skip(2) {
        chain(tree, id as NodeId, &mut nodes);
        let stack = nodes.iter().map(|&node| {
            let function = tree.nodes()[node as usize].function;
            let next = locations.len() as u64 + 1;
            *locations.entry(function).or_insert(next)
        });
        let mut sample = Message::default();
        sample.packed(field::SAMPLE_LOCATIONS, stack);
        let values = [node.calls, node.self_ns(), node.cpu_self_ns()];
        sample.packed(field::SAMPLE_VALUES, values.into_iter().take(kinds.len()));
        message.message(field::SAMPLE, &sample);
        if message.0.len() > 1 << 16 {
            gzip.write_all(&message.0)?;
            message.0.clear();
        }
    }

    write_flat(analysis, kinds.len(), &mut locations, &mut message);

    let mut locations: Vec<(FunctionIndex, u64)> = locations.into_iter().collect();
    locations.sort_by_key(|&(_, number)| number);
    for (id, number) in locations {
        let known = functions.get(&id);
        let line = known.and_then(|function| function.line).unwrap_or(0);
        let file = known.and_then(|function| function.file.as_deref()).unwrap_or_default();
        let symbol = known.map(|function| function.name.as_str()).unwrap_or_default();

        let mut function = Message::default();
        function.number(field::FUNCTION_ID, number);
        function.number(field::FUNCTION_NAME, strings.code(&analysis.names.shown(id)).into());
        function.number(field::FUNCTION_SYMBOL, strings.code(symbol).into());
        function.number(field::FUNCTION_FILE, strings.code(file).into());
        function.number(field::FUNCTION_LINE, u64::from(line));
        message.message(field::FUNCTION, &function);

        let mut place = Message::default();
        place.number(field::LINE_FUNCTION, number);
        place.number(field::LINE_LINE, u64::from(line));
        let mut location = Message::default();
        location.number(field::LOCATION_ID, number);
        location.number(field::LOCATION_ADDRESS, known.map_or(0, |function| function.address));
        location.message(field::LOCATION_LINE, &place);
        message.message(field::LOCATION, &location);
    }
    for text in strings.all() {
        message.bytes(field::STRING, text.as_bytes());
    }
    gzip.write_all(&message.0)?;
    gzip.finish()?.flush()?;
    Ok(())
}
