//! Two traces as bytes say, damaged as bytes say, and merged. Whatever they say: no panic, an error
//! leaves nothing behind, and what was merged can be read.

use std::fs;
use std::path::Path;

use fettle_merge::{Merge, merge};
use fettle_trace::{KindId, Trace};

use super::bed::{Bed, CLIENT, SERVER};

/// Makes, damages and merges traces in a folder, which is emptied. Says how far it came.
pub fn merge_what_they_say(folder: &Path, bytes: &[u8]) -> &'static str {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).expect("a folder");
    let Some((head, rest)) = bytes.split_first_chunk::<12>() else { return "nothing" };
    let [mode, start, shift, pid, offset @ ..] = *head;
    let offset_ns = i64::from_le_bytes(offset);
    // The first trace is of usual times, so that some can be aligned.
    let started_ns = 1_700_000_000_000_000_000 ^ u64::from(start) << (shift & 63);
    let mut beds = [
        Bed::new(folder, "web", 100, 1_700_000_000_000_000_000),
        Bed::new(folder, "db", if mode & 8 == 0 { 7 } else { 1 << (pid & 31) }, started_ns),
    ];
    if mode & 1 != 0 {
        opened(&mut beds);
    }
    let (reported, patches) =
        rest.split_at(if mode & 2 == 0 { rest.len() } else { rest.len() / 2 });
    let mut now_ns = 1 << 32;
    for event in reported.as_chunks::<8>().0 {
        notify(&mut beds, &mut now_ns, *event);
    }
    let names = beds.each_ref().map(|bed| bed.folder.clone());
    drop(beds.map(Bed::finish));
    damage(&names[1], patches);
    let traces: Result<Vec<Trace>, _> = names.iter().map(|name| Trace::open(name)).collect();
    let Ok(traces) = traces else { return "refused" };
    let output = folder.join("both.fettle");
    let offsets_ns: &[i64] = if mode & 4 == 0 { &[] } else { &[offset_ns] };
    let wanted = Merge { traces: &traces, offsets_ns, output: output.clone() };
    match merge(&wanted, &|| false) {
        Err(_) => {
            assert!(!output.exists(), "an error leaves nothing behind");
            "not merged"
        }
        Ok(_) => {
            let both = Trace::open(&output).expect("what was merged is a trace");
            let every =
                &mut |kind: &fettle_trace::EventKind| Some((0..kind.fields.len()).collect());
            let (mut stream, damaged) = both.events(every).expect("its events");
            assert!(damaged.is_empty());
            while stream.next(u64::MAX, &mut |_| 0).expect("a run").is_some() {}
            "merged"
        }
    }
}

/// A connection with a message each way.
fn opened([web, db]: &mut [Bed; 2]) {
    let (there, back) = ((CLIENT, SERVER), (SERVER, CLIENT));
    web.event(web.connect, 1000, there, &[3, 0]);
    db.event(db.accept, 2000, back, &[4]);
    web.event(web.sent, 3000, there, &[10]);
    db.event(db.received, 4000, back, &[10]);
    db.event(db.sent, 5000, back, &[20]);
    web.event(web.received, 6000, there, &[20]);
}

/// One event: whose, which, how much later, between which ends, and its numbers.
fn notify(beds: &mut [Bed; 2], now_ns: &mut u64, event: [u8; 8]) {
    const ENDS: [&str; 8] =
        [CLIENT, SERVER, "127.0.0.1:80", "[::1]:80", "unix:/x", "", "web/x", "10.0.0.1"];
    let [which, later, shift, local, remote, number, more, task] = event;
    let bed = &mut beds[usize::from(which & 1)];
    *now_ns = now_ns.wrapping_add(u64::from(later) << (shift & 63));
    let number = (i64::from(number.cast_signed()) << (more & 63)) as u64;
    let ends = (ENDS[usize::from(local) % 8], ENDS[usize::from(remote) % 8]);
    if task >= 0xf8 {
        bed.pid = 1 << (task & 31);
    }
    let kinds: [(KindId, &[u64]); 4] = [
        (bed.connect, &[3, number]),
        (bed.accept, &[number]),
        (bed.sent, &[number]),
        (bed.received, &[number]),
    ];
    match kinds.get(usize::from(which >> 1) % 5) {
        Some((kind, more)) => bed.event(*kind, *now_ns, ends, more),
        None => bed.returned(*now_ns),
    }
}

/// Patches a file of the trace: a byte for which file, then position and byte.
fn damage(folder: &Path, patches: &[u8]) {
    let Some((which, patches)) = patches.split_first() else { return };
    let mut files = Vec::new();
    for folder in [folder.to_owned(), folder.join("events")] {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        files.extend(entries.map(|entry| entry.path()).filter(|path| path.is_file()));
    }
    files.sort();
    let Some(file) = files.get(usize::from(*which) % files.len().max(1)) else { return };
    let mut bytes = fs::read(file).expect("a file of the trace");
    for [high, low, byte] in patches.as_chunks::<3>().0 {
        let at = usize::from(*high & 0x7f) << 8 | usize::from(*low);
        // The index of everything is at the end.
        let at = if high & 0x80 != 0 { bytes.len().wrapping_sub(1 + at) } else { at };
        if let Some(to) = bytes.get_mut(at) {
            *to = *byte;
        }
    }
    fs::write(file, bytes).expect("written");
}
