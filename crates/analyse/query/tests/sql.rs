//! Questions about a trace whose requests are known.

#[path = "../../follow/tests/shop/mod.rs"]
#[allow(dead_code)]
mod shop;

use std::path::Path;

use fettle_follow::{Session, choose};
use fettle_query::{Database, Definition, Error};
use fettle_requests::shipped;
use fettle_tables::render;
use fettle_trace::Trace;
use serde_json::{Value, json};

fn rows(database: &Database, sql: &str) -> Vec<Value> {
    let answer = database.ask(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let schema = answer.schema().clone();
    render::json(&schema, &answer.all().unwrap()).unwrap()
}

fn wrong(database: &Database, sql: &str) -> String {
    match database.ask(sql).and_then(|answer| answer.all()) {
        Err(Error::Question(text)) => text,
        Err(other) => panic!("{sql}: {other:?}"),
        Ok(rows) => panic!("{sql} was answered: {rows:?}"),
    }
}

fn definition(trace: &Trace) -> Definition {
    let sources = choose(trace).unwrap().sources;
    Definition::new(trace.path(), &sources, &shipped).unwrap()
}

fn with_shop_in(folder: &str, requests: u64, with: impl FnOnce(&Trace, &Database)) {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join(folder);
    shop::write(&folder, 8, requests);
    let trace = Trace::open(&folder).unwrap();
    let database = Database::open(&trace, Some(definition(&trace)), None).unwrap();
    with(&trace, &database);
    assert!(database.problems().is_empty(), "{:?}", database.problems());
}

fn with_shop(requests: u64, with: impl FnOnce(&Trace, &Database)) {
    with_shop_in("shop.fettle", requests, with);
}

#[test]
fn questions_get_right_answers() {
    with_shop(300, |trace, database| {
        let sources = choose(trace).unwrap().sources;
        let session = Session::open(trace, &sources, &shipped).unwrap();
        let listed = session.list().unwrap();
        let slowest = listed.iter().max_by_key(|row| row.wall_ns).unwrap();
        let sql = "SELECT id, wall_ns, path FROM requests ORDER BY wall_ns DESC LIMIT 1";
        let path = slowest.path.join(" > ");
        let expected = json!({"id": slowest.id, "wall_ns": slowest.wall_ns, "path": path});
        assert_eq!(rows(database, sql), [expected]);

        // Spans add up to what the requests say.
        let sql = "SELECT count(*) AS wrong FROM requests r JOIN (
                     SELECT schema, request, sum(to_ns - from_ns) AS ns FROM spans
                     WHERE state = 'disk' GROUP BY schema, request
                   ) s ON r.schema = s.schema AND r.id = s.request WHERE r.disk_ns <> s.ns";
        assert_eq!(rows(database, sql), [json!({"wrong": 0})]);

        // Events of requests are the events, with their fields.
        let sql = "SELECT sum(e.bytes) AS bytes, count(DISTINCT re.request) AS requests
                   FROM request_events re JOIN events e ON re.event = e.event
                   WHERE e.kind = 'sent'";
        let expected = json!({"bytes": listed.len() * 1000, "requests": listed.len()});
        assert_eq!(rows(database, sql), [expected]);

        // The trace's own files, by the kind of event.
        let sql = "SELECT count(*) AS n FROM sent WHERE bytes = 200";
        assert_eq!(rows(database, sql)[0]["n"], listed.len() * 5);
        rows(database, "SELECT count(*) AS n FROM threads");
        let sql = "SELECT substr(upper(class), 1, 3) AS c, date_trunc('hour', now()) > now() AS n \
                   FROM requests WHERE regexp_like(path, '^nginx') LIMIT 1";
        assert_eq!(rows(database, sql), [json!({"c": "MES", "n": false})]);
    });
}

#[test]
fn one_can_ask_what_there_is() {
    with_shop(10, |_, database| {
        let shown = rows(database, "SHOW TABLES");
        let names: Vec<&str> = shown.iter().filter_map(|row| row["table_name"].as_str()).collect();
        for name in ["requests", "spans", "request_events", "events", "sent", "threads"] {
            assert!(names.contains(&name), "{names:?} lack {name}");
        }
        for sql in ["DESCRIBE requests", "SHOW COLUMNS FROM requests"] {
            let columns = rows(database, sql);
            assert!(
                columns.iter().any(|row| row["column_name"] == "wall_ns"),
                "{sql}: {columns:?}"
            );
        }
        assert!(!rows(database, "EXPLAIN SELECT * FROM requests").is_empty());
    });
}

#[test]
fn wrong_questions_are_pointed_at() {
    with_shop(10, |_, database| {
        let text = wrong(database, "SELECT id,\n       wal_ns FROM requests");
        assert!(text.contains("line 2, column 8"), "{text}");
        assert!(text.contains("wall_ns"), "no hint: {text}");
        let text = wrong(database, "SELECT duration FROM requests");
        assert!(text.contains("wall_ns") && text.contains("disk_ns"), "columns: {text}");
        let text = wrong(database, "SELECT * FORM requests");
        assert!(text.contains("line 1, column 10"), "{text}");
        let text = wrong(database, "SELECT * FROM request");
        assert!(text.contains("column 15") && text.contains("not found"), "{text}");
        assert!(text.contains("events, ") && text.contains("requests, "), "tables: {text}");
        let text = wrong(database, "SELECT nonsense(id) FROM requests");
        assert!(text.contains("column 8"), "{text}");
        wrong(database, "");
        wrong(database, "SELECT 1; SELECT 2");
    });
}

#[test]
fn nothing_is_written_and_no_other_file_is_read() {
    with_shop(10, |trace, database| {
        let beside = trace.path().join("beside.parquet");
        let threads = trace.path().join("threads.parquet");
        let (beside, threads) = (beside.display(), threads.display());
        for sql in [
            "CREATE TABLE t AS SELECT 1".to_owned(),
            "CREATE VIEW v AS SELECT * FROM requests".to_owned(),
            "DROP TABLE requests".to_owned(),
            format!("CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{threads}'"),
            format!("COPY requests TO '{beside}'"),
            format!("COPY (SELECT * FROM requests) TO '{beside}' STORED AS PARQUET"),
            format!("EXPLAIN ANALYZE COPY requests TO '{beside}'"),
            "INSERT INTO requests SELECT * FROM requests".to_owned(),
            "INSERT INTO threads SELECT * FROM threads".to_owned(),
            "DELETE FROM threads".to_owned(),
            "SET datafusion.execution.batch_size = 1".to_owned(),
            "PREPARE p AS SELECT 1".to_owned(),
        ] {
            let text = wrong(database, &sql);
            assert!(text.contains("is no question"), "{sql}: {text}");
        }
        wrong(database, &format!("SELECT * FROM '{threads}'"));
        wrong(database, &format!("SELECT * FROM read_parquet('{threads}')"));
        assert!(!Path::new(&beside.to_string()).exists());
    });
}

#[test]
fn names_of_folders_mean_themselves() {
    with_shop_in("a b[1]*?%20#.fettle", 10, |_, database| {
        assert_eq!(rows(database, "SELECT count(*) AS n FROM sent"), [json!({"n": 50})]);
    });
}

#[test]
fn a_damaged_file_is_reported_and_hides_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("shop.fettle");
    shop::write(&folder, 8, 20);
    std::fs::write(folder.join("events/sent-999.parquet"), b"PAR1 and nothing more").unwrap();
    let trace = Trace::open(&folder).unwrap();
    let database = Database::open(&trace, Some(definition(&trace)), None).unwrap();
    assert_eq!(rows(&database, "SELECT count(*) AS n FROM sent"), [json!({"n": 100})]);
    assert_eq!(rows(&database, "SELECT count(*) AS n FROM requests"), [json!({"n": 20})]);
    let problems = database.problems();
    assert!(problems.iter().any(|problem| problem.contains("sent-999.parquet")), "{problems:?}");

    // An executor of parts cannot report it as a warning, so it fails.
    let parted = Database::open(&trace, Some(definition(&trace)), Some(2)).unwrap();
    let answer = parted.ask("SELECT count(*) FROM requests").and_then(|answer| answer.all());
    let text = answer.unwrap_err().to_string();
    assert!(text.contains("sent-999.parquet") && text.contains("--parts"), "{text}");
}

#[test]
fn parts_find_what_one_pass_finds() {
    with_shop(120, |trace, one| {
        for parts in [1, 2, 5] {
            let parted = Database::open(trace, Some(definition(trace)), Some(parts)).unwrap();
            for sql in [
                "SELECT * FROM requests ORDER BY schema, id",
                "SELECT * FROM steps ORDER BY schema, request, step",
                "SELECT schema, request, kind, count(*) AS n FROM request_events
                 GROUP BY schema, request, kind ORDER BY schema, request, kind",
            ] {
                let expected = rows(one, sql);
                assert!(expected.len() >= 120, "{sql}");
                assert_eq!(rows(&parted, sql), expected, "{parts} parts: {sql}");
            }
        }
    });
}
