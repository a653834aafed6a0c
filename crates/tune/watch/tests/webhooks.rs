//! A watcher whose receivers answer, never answer, answer for ever, or are not there; and its metrics.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use fettle_watch::journal::{self, Line, Sent};
use fettle_watch::webhook::{Message, QUEUE_MAX, Webhooks};
use fettle_watch::{Notice, Url, Watcher, WatcherOptions, parse};
use tempfile::TempDir;

/// What is done with a connection.
type Does = Box<dyn FnMut(TcpStream) + Send>;

fn receiver(mut does: Does) -> Url {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook?a=b", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            does(stream);
        }
    });
    url.parse().unwrap()
}

/// Answers with these statuses, one after the other and the last one for ever; hands on what it is sent.
fn answering(mut statuses: Vec<u16>) -> (Url, Receiver<String>) {
    let (sender, requests) = mpsc::channel();
    let url = receiver(Box::new(move |mut stream| {
        let status = if statuses.len() > 1 { statuses.remove(0) } else { statuses[0] };
        let _ = sender.send(request(&mut stream));
        let _ = write!(stream, "HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n");
    }));
    (url, requests)
}

/// A request with the body that it announces.
fn request(stream: &mut TcpStream) -> String {
    let (mut text, mut bytes) = (String::new(), [0; 65536]);
    loop {
        let n = stream.read(&mut bytes).unwrap();
        text.push_str(std::str::from_utf8(&bytes[..n]).unwrap());
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            if n == 0 || body.len() >= length.unwrap().parse::<usize>().unwrap() {
                return text;
            }
        }
    }
}

fn silent() -> Url {
    receiver(Box::new(std::mem::forget))
}

fn endless() -> Url {
    receiver(Box::new(|mut stream| while stream.write_all(&[b'x'; 4096]).is_ok() {}))
}

fn absent() -> Url {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    format!("http://{free}/").parse().unwrap()
}

/// Messages that `webhooks` has news of, as soon as there are so many.
fn wait(webhooks: &mut Webhooks, many: usize) -> Vec<Sent> {
    let (begun, mut all) = (Instant::now(), Vec::new());
    while all.len() < many {
        assert!(begun.elapsed() < Duration::from_secs(60), "{all:?}");
        std::thread::sleep(Duration::from_millis(5));
        all.extend(webhooks.poll());
    }
    all
}

fn message(number: u64) -> Message {
    serde_json::from_value(serde_json::json!({
        "version": 1, "at_ms": number, "host": "here", "rule": "r", "program": "app",
        "process": { "pid": 7, "start": 1 }, "finding": { "kind": "unread", "bytes": 3 },
        "since_ns": 5, "evidence": null, "done": [],
    }))
    .unwrap()
}

#[test]
fn what_fails_is_sent_again_and_in_order() {
    let (url, requests) = answering(vec![503, 429, 204]);
    let (mut webhooks, begun) = (Webhooks::default(), Instant::now());
    webhooks.send(&url, &message(1)).unwrap();
    webhooks.send(&url, &message(2)).unwrap();
    let sent = wait(&mut webhooks, 2);
    let facts: Vec<_> = sent.iter().map(|sent| (sent.at_ms, sent.attempts, sent.status)).collect();
    assert_eq!(facts, [(1, 3, Some(204)), (2, 1, Some(204))]);
    // A quarter of a second, then one.
    assert!(begun.elapsed() >= Duration::from_millis(1250), "{:?}", begun.elapsed());
    let requests: Vec<String> = requests.try_iter().collect();
    assert_eq!(requests.len(), 4);
    assert!(requests[0].starts_with("POST /hook?a=b HTTP/1.1\r\nHost: 127.0.0.1:"), "{requests:?}");
    assert!(requests[3].contains("\"at_ms\":2"), "{requests:?}");
}

#[test]
fn what_fails_again_and_again_is_dropped() {
    let mut webhooks = Webhooks::default();
    webhooks.send(&absent(), &message(1)).unwrap();
    let (refusing, requests) = answering(vec![404]);
    webhooks.send(&refusing, &message(2)).unwrap();
    let sent = wait(&mut webhooks, 2);
    // The one that is refused is not tried again, and not held up by the other.
    assert_eq!((sent[0].at_ms, sent[0].attempts), (2, 1), "{sent:?}");
    assert_eq!(requests.try_iter().count(), 1);
    assert_eq!((sent[1].at_ms, sent[1].attempts), (1, 4), "{sent:?}");
    assert!(sent[1].error.as_ref().unwrap().contains("cannot be reached"), "{sent:?}");
}

#[test]
fn a_receiver_that_never_answers_holds_up_nobody() {
    let (silent, (answering, _requests)) = (silent(), answering(vec![200]));
    let mut webhooks = Webhooks::default();
    let (begun, many) = (Instant::now(), 4 * QUEUE_MAX as u64);
    let dropped = (0..many).filter(|n| webhooks.send(&silent, &message(*n)).is_err()).count();
    webhooks.send(&answering, &message(many)).unwrap();
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?} for {many} messages");
    // One may be with the receiver already.
    let waiting = webhooks.length().load(Ordering::Relaxed) - 1;
    assert!(waiting == QUEUE_MAX || waiting == QUEUE_MAX + 1, "{waiting}");
    assert_eq!(dropped + waiting, many as usize);
    assert_eq!(wait(&mut webhooks, 1)[0].at_ms, many);
    // Nor does it hold up the end.
    let begun = Instant::now();
    let left = webhooks.finish(Duration::from_millis(100));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(left.len(), waiting);
    assert!(left[0].error.as_ref().unwrap().contains("the watcher ended"), "{left:?}");
}

/// A process that computes without progress, until this is dropped.
struct Spinning(Child);

impl Spinning {
    fn new() -> (Spinning, String) {
        let child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let spinning = Spinning(child);
        let exe = format!("/proc/{}/exe", spinning.0.id());
        let program = std::fs::read_link(exe).unwrap();
        let name = program.file_name().unwrap().to_str().unwrap().to_owned();
        (spinning, name)
    }
}

impl Drop for Spinning {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a watcher over a process that spins until `ended`; returns all that it said.
fn watched(
    state: &Path,
    actions: &str,
    act: bool,
    mut ended: impl FnMut(&Notice) -> bool + Send,
) -> Vec<Notice> {
    let (spinning, program) = Spinning::new();
    let text = format!(
        "rule r {{ process of {program:?} spins exactly 20ms without progress -> {actions} }}"
    );
    let options = WatcherOptions {
        pids: vec![spinning.0.id().to_string().parse().unwrap()],
        act,
        tick: Duration::from_millis(1),
        // No rule here holds knobs.
        fettle: "/bin/false".into(),
        state: state.to_owned(),
        record: None,
        metrics: Some("127.0.0.1:0".parse().unwrap()),
    };
    let rules = parse::parse("r", &text).unwrap_or_else(|report| panic!("{report}"));
    let mut watcher = Watcher::new(rules, options).unwrap();
    let (stop, mut notices) = (AtomicBool::new(false), Vec::new());
    let guard = Instant::now();
    watcher
        .run(&stop, |notice| {
            let is_late = guard.elapsed() > Duration::from_secs(60);
            stop.fetch_or(ended(&notice) || is_late, Ordering::Relaxed);
            notices.push(notice);
        })
        .unwrap();
    notices
}

/// What a reader of metrics is shown, with or without the token.
fn scrape(address: SocketAddr, token: Option<&str>) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let token =
        token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{token}\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn amount(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse().unwrap()
}

#[test]
fn a_finding_is_told_whatever_other_receivers_do() {
    let folder = TempDir::new().unwrap();
    let (answering, requests) = answering(vec![204]);
    let (silent, endless, absent) = (silent(), endless(), absent());
    let actions = format!(
        "webhook \"{silent}\", webhook \"{endless}\", webhook \"{absent}\", webhook \"{answering}\", \
         keep evidence, log at most 5 in 1m"
    );
    let mut metrics: Option<(SocketAddr, PathBuf)> = None;
    let (mut before, mut after) = (String::new(), String::new());
    let notices = watched(folder.path(), &actions, true, |notice| match notice {
        Notice::Metrics { address, token_file } => {
            assert!(scrape(*address, None).starts_with("HTTP/1.1 401"));
            let mode = std::fs::metadata(token_file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let token = std::fs::read_to_string(token_file).unwrap();
            before = scrape(*address, Some(&token));
            metrics = Some((*address, token_file.clone()));
            false
        }
        Notice::Sent(sent) if sent.status.is_some() => {
            let (address, token_file) = metrics.as_ref().unwrap();
            let token = std::fs::read_to_string(token_file).unwrap();
            after = scrape(*address, Some(&token));
            true
        }
        _ => false,
    });

    let request = requests.try_recv().unwrap();
    let message: Message = serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(message.rule, "r");
    assert_eq!(serde_json::to_value(&message.finding).unwrap()["kind"], "spins");
    assert!(Path::new(message.evidence.as_ref().unwrap()).join("finding.json").exists());
    assert_eq!(message.done.len(), 2, "{message:?}");
    assert!(message.done.iter().all(|done| done.error.is_none()), "{message:?}");

    assert_eq!(amount(&before, "fettle_watch_findings_total{rule=\"r\"}"), 0.0);
    assert_eq!(amount(&before, "fettle_watch_budget_left{rule=\"r\"}"), 5.0);
    assert_eq!(amount(&after, "fettle_watch_findings_total{rule=\"r\"}"), 1.0);
    assert_eq!(amount(&after, "fettle_watch_budget_left{rule=\"r\"}"), 4.0);
    assert!(amount(&after, "fettle_watch_looks_total") > 1.0, "{after}");
    let of_webhooks = "fettle_watch_actions_total{rule=\"r\",action=\"webhook\",result=\"done\"}";
    assert_eq!(amount(&after, of_webhooks), 4.0);
    assert_eq!(amount(&after, "fettle_watch_webhook_queue"), 3.0);
    assert_eq!(amount(&after, "fettle_watch_webhooks_total{result=\"taken\"}"), 1.0);
    assert!(amount(&after, "fettle_watch_processor_time_seconds_total") > 0.0, "{after}");

    // The others are in the journal, dropped, though none was waited for.
    let said = notices.iter().filter(|notice| matches!(notice, Notice::Sent(_))).count();
    let lines = journal::read(&folder.path().join("journal.jsonl")).unwrap();
    assert!(matches!(&lines[0], Line::Found(entry) if entry.done.len() == 6), "{lines:?}");
    let sent = lines.iter().filter_map(|line| match line {
        Line::Sent(sent) => Some(sent),
        Line::Found(_) | Line::GivenBack(_) | Line::Ended(_) => None,
    });
    let sent: Vec<&Sent> = sent.collect();
    assert_eq!((said, sent.len()), (4, 4), "{lines:?}");
    for url in [&silent, &endless, &absent] {
        let of_it = sent.iter().find(|sent| sent.webhook == *url).unwrap();
        assert!(of_it.error.is_some(), "{of_it:?}");
    }
}

#[test]
fn what_is_over_the_budget_or_only_tried_is_not_sent() {
    let folder = TempDir::new().unwrap();
    let (url, requests) = answering(vec![204]);
    let found = |notice: &Notice| matches!(notice, Notice::Found(_));
    let spent = format!("webhook \"{url}\" at most 0 in 1m");
    let notices = watched(folder.path(), &spent, true, found);
    let why = notices.iter().find_map(|notice| match notice {
        Notice::Found(entry) => entry.done[0].error.clone(),
        _ => None,
    });
    assert!(why.as_ref().unwrap().contains("which is its budget"), "{notices:?}");

    let notices = watched(folder.path(), &format!("webhook \"{url}\""), false, found);
    let would = notices.iter().find_map(|notice| match notice {
        Notice::WouldSend { webhook, message } => Some((webhook, message)),
        _ => None,
    });
    let (webhook, message) = would.unwrap();
    assert_eq!((webhook, message.rule.as_str()), (&url, "r"));
    assert_eq!(requests.try_iter().count(), 0);
}
