//! Two machines whose clocks differ by a line that is known, and what is merged of their traces.

mod bed;

use std::path::Path;

use bed::{Bed, CLIENT, SERVER};
use fettle_merge::{Error, Merge, merge};
use fettle_trace::{FieldType, TASKS_OF_A_MACHINE, Trace};

const US: u64 = 1000;
const MS: u64 = 1000 * US;

/// The web machine's clock at a true time.
fn web_ns(true_ns: u64) -> u64 {
    true_ns
}

/// The database machine's time: 3.2 s behind, 50 ppm too fast.
fn db_ns(true_ns: u64) -> u64 {
    true_ns - 3_200_000_000 + true_ns / 20_000
}

/// Some 20 s of questions and answers over one connection; `late_ns` is what the database's clock is
/// off besides, for its second half.
fn traces(folder: &Path, late_ns: u64) -> [Trace; 2] {
    let mut web = Bed::new(folder, "web", 100, 1_700_000_000_000_000_000);
    let mut db = Bed::new(folder, "db", 100, 1_700_000_003_000_000_000);
    let begin_ns = 4_000 * MS;
    let (there, back) = ((CLIENT, SERVER), (SERVER, CLIENT));
    web.returned(web_ns(begin_ns));
    db.returned(db_ns(begin_ns));
    web.event(web.connect, web_ns(begin_ns + 200 * US), there, &[3, 0]);
    db.event(db.accept, db_ns(begin_ns + 150 * US), back, &[4]);
    for n in 0..2000 {
        let now_ns = begin_ns + MS + n * 10 * MS;
        let db_ns = |ns| db_ns(ns) + if n < 1000 { 0 } else { late_ns };
        // Delays vary; the shortest is 30 µs, and calls take some microseconds to return.
        let delay = |k: u64| 30 * US + (n * 2 + k).wrapping_mul(0x9e37_79b9) % (700 * US);
        web.returned(web_ns(now_ns));
        let sent_ns = now_ns + 5 * US;
        web.event(web.sent, web_ns(sent_ns + 20 * US), there, &[100]);
        let received_ns = sent_ns + delay(0);
        // In two parts.
        db.event(db.received, db_ns(received_ns + 2 * US), back, &[60]);
        db.event(db.received, db_ns(received_ns + 4 * US), back, &[40]);
        let answered_ns = received_ns + 12 * US;
        db.event(db.sent, db_ns(answered_ns + 9 * US), back, &[1000]);
        let got_ns = answered_ns + delay(1);
        web.event(web.received, web_ns(got_ns + 3 * US), there, &[1000]);
    }
    // What a machine has of its own may be called the same on the other.
    for (bed, time_ns) in [(&mut web, web_ns(30_000 * MS)), (&mut db, db_ns(30_000 * MS))] {
        let own = ("127.0.0.1:6379", "127.0.0.1:50000");
        bed.event(bed.sent, time_ns, own, &[1]);
    }
    [web.finish(), db.finish()]
}

fn merged(traces: &[Trace], offsets_ns: &[i64], output: &Path) -> Result<Trace, Error> {
    let merge_ = Merge { traces, offsets_ns, output: output.to_owned() };
    merge(&merge_, &|| false)?;
    Ok(Trace::open(output).unwrap())
}

/// Events of a kind: time, and the values of its fields.
fn events(trace: &Trace, name: &str) -> Vec<(u64, Vec<u64>, Vec<String>)> {
    let mut texts: Vec<String> = Vec::new();
    let (mut stream, damaged) = trace
        .events(&mut |kind| (kind.name == name).then(|| (0..kind.fields.len()).collect()))
        .unwrap();
    assert!(damaged.is_empty());
    let kind = stream.kinds().next().unwrap().clone();
    let mut rows = Vec::new();
    loop {
        let run = stream.next(u64::MAX, &mut |text| {
            texts.push(text.to_owned());
            texts.len() as u32 - 1
        });
        let Some(run) = run.unwrap() else { return rows };
        for (row, ns) in run.times_ns().iter().enumerate() {
            let values: Vec<u64> = (0..kind.fields.len()).map(|n| run.values(n)[row]).collect();
            let named = kind.fields.iter().zip(&values).filter(|(f, _)| f.ty == FieldType::Text);
            let named = named.map(|(_, code)| texts[*code as usize].clone()).collect();
            rows.push((*ns, values, named));
        }
    }
}

#[test]
fn clocks_are_found_and_numbers_kept_apart() {
    let folder = tempfile::tempdir().unwrap();
    let traces = traces(folder.path(), 0);
    let both = merged(&traces, &[], &folder.path().join("both.fettle")).unwrap();
    let manifest = both.manifest();
    let names: Vec<&str> = manifest.machines.iter().map(|machine| machine.name.as_str()).collect();
    assert_eq!(names, ["web", "db"]);
    let db = &manifest.machines[1].traces[0];
    assert_eq!((db.aligned_by.as_str(), db.messages), ("messages", 6000));
    assert!((db.drift_ppm + 50.0).abs() < 5.0, "{db:?}");
    let uncertainty_ns = db.uncertainty_ns.unwrap();
    assert!(uncertainty_ns < 100 * US, "{db:?}");

    // Nothing is received before its sending began, and all times are true within what is said.
    let (sent, received) = (events(&both, "sent"), events(&both, "received"));
    assert_eq!((sent.len(), received.len()), (4002, 6000));
    let first = |rows: &[(u64, Vec<u64>, Vec<String>)], local: &str| -> Vec<u64> {
        rows.iter().filter(|(.., ends)| ends[0] == local).map(|(ns, ..)| *ns).collect()
    };
    let (asked, heard) = (first(&sent, CLIENT), first(&received, SERVER));
    let (answered, got) = (first(&sent, SERVER), first(&received, CLIENT));
    let before = events(&both, "pipe_read");
    let web: Vec<u64> = before.iter().filter(|(_, v, _)| v[2] == 100).map(|(ns, ..)| *ns).collect();
    for n in 0..2000 {
        let true_ns = 4_001 * MS + n as u64 * 10 * MS;
        assert_eq!(web[n + 1], true_ns);
        assert!(heard[2 * n] >= web[n + 1], "{n}");
        // Of an answer, the call before it returned 3 µs before it was sent.
        assert!(got[n] >= heard[2 * n + 1], "{n}");
        let delay = 30 * US + (n as u64 * 2).wrapping_mul(0x9e37_79b9) % (700 * US);
        let expected = true_ns + 5 * US + delay + 2 * US;
        assert!(heard[2 * n].abs_diff(expected) <= uncertainty_ns + 1, "{n}: {db:?}");
        assert!(asked[n] < answered[n]);
    }

    // Processes, threads, sockets and own addresses are their machine's.
    let pids: Vec<u32> = both.processes().unwrap().iter().map(|process| process.pid).collect();
    assert_eq!(pids, [100, TASKS_OF_A_MACHINE + 100]);
    let threads: Vec<String> = both.threads().unwrap().into_iter().map(|t| t.name).collect();
    assert_eq!(threads, ["web:server", "db:server"]);
    let of = |local: &str| {
        let row =
            sent.iter().find(|(.., ends)| ends[0] == local).unwrap_or_else(|| panic!("{local}"));
        (row.1[1], row.1[3] >> 56, row.1[3] & 0xff)
    };
    let db_pid = u64::from(TASKS_OF_A_MACHINE) + 100;
    assert_eq!((of(CLIENT), of(SERVER)), ((100, 0, 77), (db_pid, 1, 77)));
    assert_eq!((of("web/127.0.0.1:6379").0, of("db/127.0.0.1:6379").0), (100, db_pid));

    // The other way round it is the same line, turned.
    let turned = [traces[1].clone(), traces[0].clone()];
    let turned = merged(&turned, &[], &folder.path().join("turned.fettle")).unwrap();
    let web = &turned.manifest().machines[1].traces[0];
    assert!((web.drift_ppm - 50.0).abs() < 5.0, "{web:?}");
    let there_and_back = web.offset_ns + db.offset_ns;
    assert!(there_and_back.abs() < 2 * MS as i64, "{there_and_back}");

    // What was merged is not merged again.
    let again = merged(&[both, traces[0].clone()], &[], &folder.path().join("x.fettle"));
    assert!(matches!(again, Err(Error::Merged { .. })), "{again:?}");
}

#[test]
fn what_cannot_be_aligned_is_refused_unless_the_user_knows() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("both.fettle");
    // A clock that jumps by 20 ms between two halves.
    let jumping = traces(folder.path(), 20 * MS);
    let error = merged(&jumping, &[], &output).unwrap_err();
    let Error::Contradiction { by_ns, .. } = error else { panic!("{error}") };
    assert!((19 * MS..20 * MS).contains(&by_ns), "{by_ns}");
    assert!(!output.exists());

    // A machine that it never exchanged messages with.
    let mut alone = Bed::new(folder.path(), "alone", 5, 1_700_000_010_000_000_000);
    alone.event(alone.sent, 5 * MS, ("10.0.0.9:1", "10.0.0.8:2"), &[1]);
    let pair = [jumping[0].clone(), alone.finish()];
    let error = merged(&pair, &[], &output).unwrap_err();
    assert!(matches!(error, Error::NoMessages { .. }), "{error}");
    assert!(error.to_string().contains("--offset"), "{error}");
    // The wall's clocks are 10 s apart, and half a second more by what the user says.
    let given = merged(&pair, &[500_000_000], &output).unwrap();
    let last = events(&given, "sent").into_iter().find(|(.., ends)| ends[0] == "10.0.0.9:1");
    assert_eq!(last.unwrap().0, 10_505 * MS);

    let twice = [jumping[0].clone(), jumping[0].clone()];
    let other = folder.path().join("twice.fettle");
    assert!(matches!(merged(&twice, &[], &other), Err(Error::Twice { .. })));
    assert!(matches!(merged(&twice[..1], &[], &other), Err(Error::Few)));
}

#[test]
fn what_is_hostile_or_damaged_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("both.fettle");
    let [web, db] = traces(folder.path(), 0);
    let mut hostile = Bed::new(folder.path(), "hostile", u32::MAX, 1_700_000_010_000_000_000);
    hostile.returned(MS);
    let error = merged(&[web.clone(), hostile.finish()], &[0], &output).unwrap_err();
    assert!(matches!(error, Error::Number { number: 0xffff_ffff, .. }), "{error}");
    assert!(!output.exists(), "nothing is left of it");

    // A file that is cut.
    let file = db.path().join("events/received-0000.parquet");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let error = merged(&[web, db], &[0], &output).unwrap_err();
    assert!(error.to_string().contains("received-0000"), "{error}");
    assert!(!output.exists());
}
