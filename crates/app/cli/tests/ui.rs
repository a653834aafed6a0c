//! The page of `fettle ui`, in a real browser: it draws, it zooms down to one call, links restore the
//! view, and nothing complains.

mod browser;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use browser::Browser;

/// `fettle ui` on a trace.
struct Served {
    child: Child,
    url: String,
}

impl Served {
    fn start(trace: &Path) -> Served {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fettle"));
        command.args(["ui", "--no-open"]).arg(trace);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Served { child, url: url.trim().to_owned() }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A browser, and a folder for it and a trace.
struct Bed {
    page: Browser,
    folder: tempfile::TempDir,
}

impl Bed {
    /// `None`, and it is said why, if there is no browser.
    fn new() -> Option<Bed> {
        let found = browser::executable().inspect_err(|why| eprintln!("skipped: {why}"));
        let chromium = found.ok()?;
        let folder = tempfile::tempdir().unwrap();
        let page = Browser::start(chromium, folder.path()).unwrap();
        Some(Bed { page, folder })
    }
}

const PROGRAM: &str = "
#include <unistd.h>
volatile int sum;
__attribute__((noinline)) int leaf_of_all(int n) { sum += n; return sum; }
__attribute__((noinline)) int walks_leaves(int n) {
    for (int i = 0; i < n; i++) leaf_of_all(i);
    return sum;
}
__attribute__((noinline)) void waits_a_while(void) { usleep(20000); }
int main(void) {
    for (int i = 0; i < 200; i++) walks_leaves(100);
    waits_a_while();
    return 0;
}
";

/// A program that works for each byte that it is given, until there are no more.
const STEPS: &str = "
#include <stdio.h>
volatile int sum;
__attribute__((noinline)) int leaf_of_all(int n) { sum += n; return sum; }
__attribute__((noinline)) int takes_a_step(int n) {
    for (int i = 0; i < n; i++) leaf_of_all(i);
    return sum;
}
int main(void) {
    while (getchar() != EOF) takes_a_step(20000);
    return 0;
}
";

/// How to record a little program, and the trace that it makes.
fn recording(folder: &Path, program: &str) -> (Command, std::path::PathBuf) {
    let (source, executable) = (folder.join("prog.c"), folder.join("prog"));
    let trace = folder.join("prog.fettle");
    std::fs::write(&source, program).unwrap();
    let built = Command::new("cc").arg("-O1").arg(&source).arg("-o").arg(&executable).status();
    assert!(built.unwrap().success());
    let mut record = Command::new(env!("CARGO_BIN_EXE_fettle"));
    record.args(["record", "--quiet", "--output"]).arg(&trace).arg("--").arg(&executable);
    (record, trace)
}

/// Records a little program with every kind of call.
fn record(folder: &Path) -> std::path::PathBuf {
    let (mut record, trace) = recording(folder, PROGRAM);
    let recorded = record.output().unwrap();
    assert!(recorded.status.success(), "{recorded:?}");
    trace
}

/// Pixels of a canvas that are not of the colour that most are.
const DRAWN: &str = "(() => {
    const canvas = document.getElementById('timeline');
    const { data } = canvas.getContext('2d').getImageData(0, 30, canvas.width, canvas.height - 30);
    const pixels = new Uint32Array(data.buffer);
    const counts = new Map();
    for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) ?? 0) + 1);
    return pixels.length - Math.max(...counts.values());
})()";

/// The page is there and shows something.
const READY: &str = "document.documentElement.dataset.ready === 'true'";

/// Opens the page of a trace, and waits until it shows something.
fn open(page: &mut Browser, trace: &Path) -> Served {
    let served = Served::start(trace);
    page.open(&served.url).unwrap();
    page.until(READY).unwrap();
    served
}

#[test]
fn counts_have_a_table_and_no_timeline() {
    let Some(Bed { mut page, folder }) = Bed::new() else { return };
    let (mut record, trace) = recording(folder.path(), PROGRAM);
    // The options of a mode come before the program.
    let arguments: Vec<_> = record.get_args().map(ToOwned::to_owned).collect();
    record = Command::new(env!("CARGO_BIN_EXE_fettle"));
    record.arg(&arguments[0]).args(["--mode", "count"]).args(&arguments[1..]);
    assert!(record.status().unwrap().success());
    let _served = open(&mut page, &trace);
    page.until("document.querySelectorAll('#functions tbody tr').length >= 4").unwrap();
    let table = page.value("document.getElementById('functions').innerText").unwrap();
    let table = table.as_str().unwrap();
    assert!(table.contains("leaf_of_all") && table.contains("20,000"), "{table}");
    assert!(!table.contains("Self") && !table.contains("Total"), "{table}");
    assert_eq!(page.value("document.getElementById('upper').offsetHeight").unwrap(), 0);
}

#[test]
fn the_page_draws_zooms_and_leads_back() {
    let Some(Bed { mut page, folder }) = Bed::new() else { return };
    let _served = open(&mut page, &record(folder.path()));

    // Everything is drawn, counted and said.
    page.until(&format!("{DRAWN} > 2000")).unwrap();
    page.until("document.querySelectorAll('#functions tbody tr').length >= 4").unwrap();
    let table = page.value("document.getElementById('functions').innerText").unwrap();
    let table = table.as_str().unwrap();
    assert!(table.contains("leaf_of_all") && table.contains("20,000"), "{table}");
    let losses = page.value("document.getElementById('losses').innerText").unwrap();
    assert_eq!(losses, "nothing lost");
    // The token does not stay where it could be seen or copied.
    assert_eq!(page.value("location.hash.includes('token')").unwrap(), false);
    let label = "document.getElementById('timeline').getAttribute('aria-label')";
    page.until(&format!("/[1-9][\\d,]* calls/.test({label})")).unwrap();

    // From everything down to single calls, by the search.
    page.key("/").unwrap();
    page.keys("leaf").unwrap();
    page.until("document.querySelectorAll('#matches li .name').length === 1").unwrap();
    page.key("Enter").unwrap();
    page.until("document.querySelector('#details .name')?.innerText === 'leaf_of_all'").unwrap();
    page.until("/call=0\\.\\d+\\.\\d+/.test(location.hash) && location.hash.includes('t=')")
        .unwrap();
    page.until(&format!("/: (\\d{{1,2}}) calls?, \\1 drawn by themselves/.test({label})")).unwrap();
    let called_by = page.value("document.getElementById('details').innerText").unwrap();
    assert!(called_by.as_str().unwrap().contains("walks_leaves"), "{called_by}");

    // A link restores the view: same time, same call.
    let link = page.value("location.href").unwrap();
    let reported = page.value("document.getElementById('details').innerText").unwrap();
    page.open(link.as_str().unwrap()).unwrap();
    page.until(READY).unwrap();
    page.until("document.querySelector('#details .name')?.innerText === 'leaf_of_all'").unwrap();
    assert_eq!(page.value("location.href").unwrap(), link);
    assert_eq!(page.value("document.getElementById('details').innerText").unwrap(), reported);

    // The other views.
    page.value("document.getElementById('tab-durations').click()").unwrap();
    page.until("document.querySelectorAll('#durations tbody tr').length === 200").unwrap();
    page.until("document.querySelector('#durations canvas') !== null").unwrap();
    page.value("document.getElementById('tab-flame').click()").unwrap();
    page.until("/frames/.test(document.querySelector('#flame canvas')?.ariaLabel ?? '')").unwrap();

    assert_eq!(page.errors, [] as [String; 0]);
}

/// A thread that has a lock for most of the time, and one that waits for it.
const LOCKS: &str = "
#include <pthread.h>
#include <unistd.h>
static pthread_mutex_t accounts = PTHREAD_MUTEX_INITIALIZER;
static void *keeps_it(void *x) {
    for (int i = 0; i < 20; i++) {
        pthread_mutex_lock(&accounts);
        usleep(20000);
        pthread_mutex_unlock(&accounts);
        usleep(1000);
    }
    return x;
}
static void *waits_for_it(void *x) {
    for (int i = 0; i < 10; i++) {
        pthread_mutex_lock(&accounts);
        pthread_mutex_unlock(&accounts);
        usleep(5000);
    }
    return x;
}
int main(void) {
    pthread_t a, b;
    pthread_create(&a, 0, keeps_it, 0);
    pthread_create(&b, 0, waits_for_it, 0);
    pthread_join(a, 0);
    pthread_join(b, 0);
    return 0;
}
";

#[test]
fn locks_have_a_tab() {
    let Some(Bed { mut page, folder }) = Bed::new() else { return };
    let (source, program) = (folder.path().join("locks.c"), folder.path().join("locks"));
    let trace = folder.path().join("locks.fettle");
    std::fs::write(&source, LOCKS).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-pthread"]).arg(&source).arg("-o").arg(&program);
    assert!(compiler.status().unwrap().success());
    let mut locks = Command::new(env!("CARGO_BIN_EXE_fettle"));
    locks.args(["locks", "-q", "-o", "/dev/null", "--trace"]).arg(&trace).arg("--").arg(&program);
    assert!(locks.status().unwrap().success());

    let _served = open(&mut page, &trace);
    page.until("document.querySelectorAll('#locks tr.class').length >= 1").unwrap();
    let table = page.value("document.querySelector('#locks table').innerText").unwrap();
    let table = table.as_str().unwrap();
    for part in ["accounts (mutex)", "lock in keeps_it", "lock in waits_for_it"] {
        assert!(table.contains(part), "{part} in {table}");
    }
    let most = "[...document.querySelectorAll('.matrix td')].sort((a, b) =>
        Number(b.dataset.shade) - Number(a.dataset.shade))[0].title";
    let most = page.value(most).unwrap();
    let most = most.as_str().unwrap();
    assert!(most.starts_with("waits_for_it") && most.contains("for keeps_it"), "{most}");
    // The flame graph is charged to either end.
    let first = "document.querySelectorAll('.flame-graph .flame')[1].textContent";
    page.until(&format!("{first}.startsWith('held in keeps_it')")).unwrap();
    let choose =
        "(choice => { choice.value = 'waiter'; choice.dispatchEvent(new Event('change')); })
        (document.querySelector('.locks select'))";
    page.value(choose).unwrap();
    page.until(&format!("{first}.startsWith('waited in waits_for_it')")).unwrap();
    let found = page.value("document.querySelector('.locks-right').innerText").unwrap();
    assert!(found.as_str().unwrap().contains("clock_nanosleep, with accounts"), "{found}");
    assert_eq!(page.errors, [] as [String; 0]);
}

/// What is listed where: the number of rows, the first of them, and the column that sorts.
fn listed(tab: &str) -> String {
    format!(
        "(list => [list.querySelectorAll('tbody tr').length, list.querySelector('tbody tr')?.innerText,
            list.querySelector('[aria-sort]')?.innerText, list.querySelector('[aria-sort]')?.ariaSort].join('|'))
        (document.getElementById('{tab}'))"
    )
}

/// The width of what is brushed in the plot of a view.
fn brushed(tab: &str) -> String {
    format!("document.querySelector('#{tab} .u-select').getBoundingClientRect().width")
}

/// A link restores the same list.
fn leads_back(page: &mut Browser, tab: &str) {
    let (link, reported) =
        (page.value("location.href").unwrap(), page.value(&listed(tab)).unwrap());
    page.open(link.as_str().unwrap()).unwrap();
    page.until(READY).unwrap();
    page.until(&format!("{} === {reported}", listed(tab))).unwrap();
    assert_eq!(page.value("location.href").unwrap(), link);
}

#[test]
fn a_link_leads_back_to_chosen_and_sorted_calls() {
    let Some(Bed { mut page, folder }) = Bed::new() else { return };
    let _served = open(&mut page, &record(folder.path()));
    page.until("document.querySelectorAll('#functions tbody tr').length >= 4").unwrap();
    page.key("/").unwrap();
    page.keys("lea").unwrap();
    page.value("[...document.querySelectorAll('#functions th button')].at(-2).click()").unwrap();
    page.until("location.hash === '#search=lea&functions=name.up'").unwrap();
    leads_back(&mut page, "functions");
    assert_eq!(page.value("document.getElementById('search').value").unwrap(), "lea");
    assert_eq!(page.value("document.getElementById('matches').hidden").unwrap(), true);

    page.value("document.querySelector('#functions tbody tr').click()").unwrap();
    page.value("document.getElementById('tab-durations').click()").unwrap();
    page.until("document.querySelectorAll('#durations tbody tr').length === 200").unwrap();
    page.until("document.querySelector('#durations .u-over') !== null").unwrap();
    page.drag("#durations .u-over", 0.0, 0.4).unwrap();
    page.until("/lasted=\\d+-\\d+/.test(location.hash)").unwrap();
    page.until("document.querySelector('#durations .more').innerText.includes('between')").unwrap();
    leads_back(&mut page, "durations");
    page.until(&format!("{} > 50", brushed("durations"))).unwrap();
    // What was chosen of one function's calls is not of another's.
    page.value("document.getElementById('tab-functions').click()").unwrap();
    page.value("document.querySelector('#functions tbody tr:last-child').click()").unwrap();
    page.until("location.hash.includes('function=') && !location.hash.includes('lasted')").unwrap();
    assert_eq!(page.errors, [] as [String; 0]);
}

/// A trace of files that were open for 1, 2, 4 ms and so on, up to 512 ms, and again.
fn open_files(folder: &Path, files: u32) -> std::path::PathBuf {
    let (text, trace) = (folder.join("files.strace"), folder.join("files.fettle"));
    let mut lines = String::new();
    for file in 0..files {
        let (begin, open) = (f64::from(file), 0.001 * f64::from(1 << (file % 10)));
        let call = |at: f64, call: &str| format!("100 {:.6} {call} <0.000010>\n", 1.7e9 + at);
        let path = format!("3</data/{file}>");
        lines += &call(begin, &format!("openat(AT_FDCWD, \"/data/{file}\", O_RDONLY) = {path}"));
        lines += &call(begin + open, &format!("close({path}) = 0"));
    }
    std::fs::write(&text, lines).unwrap();
    let mut import = Command::new(env!("CARGO_BIN_EXE_fettle"));
    let imported = import.arg("import").arg(&text).arg("-o").arg(&trace).output().unwrap();
    assert!(trace.is_dir(), "{imported:?}");
    trace
}

#[test]
fn a_link_leads_back_to_chosen_and_sorted_requests() {
    let Some(Bed { mut page, folder }) = Bed::new() else { return };
    let _served = open(&mut page, &open_files(folder.path(), 10));
    let rows = "document.querySelectorAll('#requests .requests-left tbody tr').length";
    page.until(&format!("{rows} === 10")).unwrap();

    // The shorter half, the latest first, and of these what has a 1 in its number.
    page.until("document.querySelector('#requests .u-over') !== null").unwrap();
    page.drag("#requests .u-over", 0.01, 0.5).unwrap();
    page.until(&format!("{rows} === 5")).unwrap();
    page.value("document.querySelectorAll('#requests th button')[1].click()").unwrap();
    page.value("document.querySelectorAll('#requests th button')[1].click()").unwrap();
    page.until("/^#took=\\d+-\\d+&order=begin.down$/.test(location.hash)").unwrap();
    leads_back(&mut page, "requests");
    page.until(&format!("{} > 50", brushed("requests"))).unwrap();

    page.value("document.querySelector('#requests input').focus()").unwrap();
    page.keys("#3").unwrap();
    page.until(&format!("{rows} === 1 && location.hash.includes('find=%233')")).unwrap();
    leads_back(&mut page, "requests");
    assert_eq!(page.value("document.querySelector('#requests input').value").unwrap(), "#3");
    assert_eq!(page.errors, [] as [String; 0]);
}

#[test]
fn back_leads_to_the_view_before() {
    let Some(Bed { mut page, folder }) = Bed::new() else { return };
    let _served = open(&mut page, &open_files(folder.path(), 10));
    page.until("document.querySelectorAll('#requests .requests-left tbody tr').length === 10")
        .unwrap();
    page.value("document.querySelector('#requests .requests-left tbody tr').click()").unwrap();
    page.until("/^#request=0.[0-9]+$/.test(location.hash)").unwrap();
    page.value("document.getElementById('tab-communication').click()").unwrap();
    page.until("location.hash.includes('tab=communication')").unwrap();
    page.value("document.getElementById('tab-requests').click()").unwrap();
    page.value("document.querySelector('#requests input').focus()").unwrap();
    page.key("9").unwrap();
    page.until("location.hash.includes('find=9')").unwrap();

    // What was typed was no step, and stands in the address that one leaves.
    page.value("history.back()").unwrap();
    page.until("location.hash.includes('tab=communication')").unwrap();
    page.until("!document.getElementById('communication').hidden").unwrap();
    page.value("history.back()").unwrap();
    page.until("/^#request=0.[0-9]+$/.test(location.hash)").unwrap();
    page.until("document.querySelector('.whole h2') !== null").unwrap();
    page.until("document.querySelectorAll('#requests .requests-left tbody tr').length === 10")
        .unwrap();
    page.value("history.back()").unwrap();
    page.until("location.hash === '' && document.querySelector('.whole') === null").unwrap();
    page.value("history.go(3)").unwrap();
    page.until("document.querySelectorAll('#requests .requests-left tbody tr').length === 1")
        .unwrap();
    assert_eq!(page.value("document.querySelector('#requests input').value").unwrap(), "9");

    // Moving and zooming is no step.
    let _served = open(&mut page, &record(folder.path()));
    let steps = page.value("history.length").unwrap();
    for key in ["w", "d"] {
        page.key(key).unwrap();
        page.until("location.hash.includes('t=')").unwrap();
    }
    let settled = "new Promise(done => setTimeout(() => done(location.hash), 600))";
    let view = page.value(settled).unwrap();
    assert_eq!(page.value("history.length").unwrap(), steps);
    page.value("document.getElementById('tab-flame').click()").unwrap();
    page.until("location.hash.includes('tab=flame')").unwrap();
    page.value("history.back()").unwrap();
    page.until(&format!("location.hash === {view}")).unwrap();
    page.until("!document.getElementById('functions').hidden").unwrap();
    assert_eq!(page.errors, [] as [String; 0]);
}

#[test]
fn requests_are_chosen_compared_and_found_by_keys() {
    let Some(Bed { mut page, folder }) = Bed::new() else { return };
    let _served = open(&mut page, &open_files(folder.path(), 400));
    let rows = "document.querySelectorAll('#requests .requests-left tbody tr').length";
    page.until(&format!("{rows} === 150")).unwrap();
    // What they took stands beside them, and why they are called alike.
    page.until("document.querySelectorAll('.classes tbody tr').length === 1").unwrap();
    page.until("document.querySelectorAll('.over-time .line').length === 3").unwrap();
    let here = "document.activeElement?.dataset.id";
    let row = |n: u32| {
        format!("document.querySelectorAll('#requests .requests-left tbody tr')[{n}]?.dataset.id")
    };
    for (key, n) in [("j", 0), ("j", 1), ("ArrowDown", 2), ("k", 1), ("ArrowUp", 0), ("j", 1)] {
        page.key(key).unwrap();
        page.until(&format!("{here} === {}", row(n))).unwrap();
    }
    page.key("Enter").unwrap();
    page.until("/^#request=0.[0-9]+$/.test(location.hash)").unwrap();
    page.key("j").unwrap();
    page.key("c").unwrap();
    page.until(&format!("location.hash.includes('beside=' + {})", row(2))).unwrap();
    page.until("document.querySelectorAll('.whole').length === 2").unwrap();
    // The same with Shift and a click; no text is selected by that.
    page.shift_click("#requests .requests-left tbody tr:nth-child(6) td:last-child").unwrap();
    page.until(&format!("location.hash.includes('beside=' + {})", row(5))).unwrap();
    page.until(&format!("{here} === {}", row(5))).unwrap();
    assert_eq!(page.value("getSelection().toString()").unwrap(), "");
    page.key("Escape").unwrap();
    page.until("/^#request=0.[0-9]+$/.test(location.hash)").unwrap();
    page.key("Escape").unwrap();
    page.until("document.querySelector('.whole') === null").unwrap();

    // Going beyond what is listed loads more, until all are.
    let last = "document.querySelector('#requests .requests-left tbody tr:last-child')";
    page.value(&format!("{last}.focus()")).unwrap();
    page.key("j").unwrap();
    page.until(&format!("{rows} === 400 && {here} === {}", row(150))).unwrap();
    assert_eq!(
        page.value("document.querySelector('#requests .more button')").unwrap(),
        serde_json::Value::Null
    );

    page.key("/").unwrap();
    page.keys("#398").unwrap();
    page.key("Enter").unwrap();
    page.until(&format!("{rows} === 1 && {here} === '0.398'")).unwrap();
    page.key("?").unwrap();
    page.until("document.getElementById('help').innerText.includes('the list of requests')")
        .unwrap();
    assert_eq!(page.errors, [] as [String; 0]);
}

/// A trace of six processes: a client asks two servers, these two others, and these a store.
fn talk(folder: &Path) -> std::path::PathBuf {
    let (text, trace) = (folder.join("talk.strace"), folder.join("talk.fettle"));
    let mut lines = String::new();
    let mut at = 0;
    let mut call = |pid: u32, call: String| {
        at += 1;
        lines += &format!("{pid} {}.{at:06} {call} <0.000001>\n", 1_700_000_000);
    };
    for pid in 1..=6 {
        call(pid, format!("execve(\"/bin/server-{pid}\", [\"x\"], NULL) = 0"));
    }
    for (asks, answers) in [(1, 2), (1, 3), (2, 4), (2, 5), (3, 5), (4, 6), (5, 6), (4, 5)] {
        let (one, other) = (format!("10.0.0.{asks}:{answers}00"), format!("10.0.0.{answers}:80"));
        let (from, to) = (format!("3<TCP:[{one}->{other}]>"), format!("4<TCP:[{other}->{one}]>"));
        call(asks, format!("sendto({from}, \"a\", 1, 0, NULL, 0) = 1"));
        call(answers, format!("recvfrom({to}, \"a\", 9, 0, NULL, NULL) = 1"));
        call(answers, format!("sendto({to}, \"bc\", 2, 0, NULL, 0) = 2"));
        call(asks, format!("recvfrom({from}, \"bc\", 9, 0, NULL, NULL) = 2"));
    }
    std::fs::write(&text, lines).unwrap();
    let mut import = Command::new(env!("CARGO_BIN_EXE_fettle"));
    let imported = import.arg("import").arg(&text).arg("-o").arg(&trace).output().unwrap();
    assert!(trace.is_dir(), "{imported:?}");
    trace
}

/// Whether boxes of the graph lie upon each other, and whether lines pass nodes that are not theirs.
const GRAPH: &str = "(() => {
    const box = element => element.getBoundingClientRect();
    const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
    const nodes = [...document.querySelectorAll('.graph .node rect')].map(box);
    const boxes = [...nodes, ...[...document.querySelectorAll('.graph .label rect')].map(box)];
    const clear = boxes.every((a, at) => boxes.slice(at + 1).every(b => apart(a, b)));
    const lines = [...document.querySelectorAll('.graph .edge path:first-child')];
    const inside = (point, { left, right, top, bottom }) =>
        point.x > left + 2 && point.x < right - 2 && point.y > top + 2 && point.y < bottom - 2;
    const passes = lines.some(line => {
        for (let part = 0; part <= 1; part += 0.05) {
            const point = line.getPointAtLength(part * line.getTotalLength()).matrixTransform(line.getScreenCTM());
            if (nodes.some(node => inside(point, node))) return true;
        }
        return false;
    });
    return { nodes: nodes.length, columns: new Set(nodes.map(({ left }) => Math.round(left))).size,
        labels: boxes.length - nodes.length, lines: lines.length, clear, passes };
})()";

/// The place of the middle of what is drawn at a time in a row of the first thread, in the page.
fn place_of(row: u32, part: f64) -> String {
    // The head of the thread, and the rows before it.
    let y = format!("26 + 27 + {row} * 18 + 9");
    format!(
        "(({{ x, y, width }}) => [x + width * {part}, y + {y}])\
         (document.getElementById('timeline').getBoundingClientRect())"
    )
}

#[test]
fn events_alone_have_timelines_down_to_one_of_them() {
    let Some(Bed { mut page, folder }) = Bed::new() else { return };
    let served = Served::start(&open_files(folder.path(), 10));
    // The first millisecond and a half, in which a file is opened and closed.
    page.open(&format!("{}&t=0-1500000", served.url)).unwrap();
    page.until(READY).unwrap();
    page.until("document.querySelectorAll('#requests .requests-left tbody tr').length === 10")
        .unwrap();
    page.until("/20 events/.test(document.getElementById('facts').innerText)").unwrap();
    page.until("document.getElementById('timeline').clientHeight > 150").unwrap();

    page.click_at(&place_of(0, 0.0067)).unwrap();
    page.until("/call=0.65536.0/.test(location.hash)").unwrap();
    let details = "document.getElementById('details').innerText";
    for says in ["open", "/data/0", "fd"] {
        page.until(&format!("{details}.includes('{says}')")).unwrap();
    }
    page.until(&format!("/Of the request\\s+#0/i.test({details})")).unwrap();
    // And the one behind it.
    page.value("[...document.querySelectorAll('#details button')].find(b => b.innerText === 'Behind').click()")
        .unwrap();
    page.until("/call=0.65536.1/.test(location.hash)").unwrap();
    page.until(&format!("{details}.includes('close')")).unwrap();
    // Kinds of events are found like functions, and keys go from one to the next.
    page.value("document.getElementById('search').focus()").unwrap();
    page.keys("open").unwrap();
    page.until("document.getElementById('matches').innerText.includes('event')").unwrap();
    page.key("Enter").unwrap();
    page.until("/function=event.open/.test(location.hash)").unwrap();
    page.key("n").unwrap();
    page.until("/call=0.65536.2/.test(location.hash)").unwrap();
    leads_back(&mut page, "requests");
    page.until(&format!("{details}.includes('open')")).unwrap();
    assert_eq!(page.errors, [] as [String; 0]);
}

#[test]
fn threads_are_filtered_found_and_pinned() {
    let Some(Bed { mut page, folder }) = Bed::new() else { return };
    let _served = open(&mut page, &talk(folder.path()));
    let bar = "document.getElementById('lanes').innerText";
    page.until(&format!("{bar}.includes('6 threads of 6 processes')")).unwrap();
    page.value("document.querySelector('#lanes input').focus()").unwrap();
    page.keys("server-3").unwrap();
    page.until(&format!("{bar}.includes('1 of 6 threads')")).unwrap();
    page.until("location.hash.includes('lanes=server-3')").unwrap();
    leads_back(&mut page, "requests");
    page.until(&format!("{bar}.includes('1 of 6 threads')")).unwrap();
    // What is found has a row, whatever hides it.
    page.value("document.getElementById('search').focus()").unwrap();
    page.keys("server-5").unwrap();
    page.until("document.getElementById('matches').innerText.includes('process')").unwrap();
    page.key("Enter").unwrap();
    page.until("!location.hash.includes('lanes')").unwrap();
    // The mark at the end of the first thread's row.
    page.value("document.getElementById('scroll').scrollTop = 0").unwrap();
    page.until("!location.hash.includes('scroll')").unwrap();
    page.click_at(
        "(({ right, y }) => [right - 22, y + 26 + 11])\
         (document.getElementById('timeline').getBoundingClientRect())",
    )
    .unwrap();
    page.until("location.hash.includes('pinned=0')").unwrap();
    page.value("[...document.querySelectorAll('#lanes button')].find(b => b.innerText === 'Unpin all').click()")
        .unwrap();
    page.until("!location.hash.includes('pinned')").unwrap();
    assert_eq!(page.errors, [] as [String; 0]);
}

/// Spans of a tracing library have their names, in the timelines and in requests.
#[test]
fn imported_spans_are_drawn_by_their_names() {
    let Some(Bed { mut page, folder }) = Bed::new() else { return };
    let (text, trace) = (folder.path().join("spans.json"), folder.path().join("spans.fettle"));
    let span = |id: u32, parent: &str, service: &str, name: &str, from: u32, took: u32| {
        format!(
            r#"{{"traceId":"t","id":"{id}",{parent}"name":"{name}","timestamp":{from},"duration":{took},"localEndpoint":{{"serviceName":"{service}"}}}}"#
        )
    };
    let spans = [
        span(1, "", "shop", "GET /order", 1_000_000, 900),
        span(2, r#""parentId":"1","#, "stock", "check", 1_000_100, 500),
        span(3, r#""parentId":"1","#, "stock", "reserve", 1_000_700, 100),
    ];
    std::fs::write(&text, format!("[{}]", spans.join(","))).unwrap();
    let mut import = Command::new(env!("CARGO_BIN_EXE_fettle"));
    let imported = import.arg("import").arg(&text).arg("-o").arg(&trace).output().unwrap();
    assert!(imported.status.success(), "{imported:?}");
    let _served = open(&mut page, &trace);
    page.until("document.getElementById('lanes').innerText.includes('2 threads of 2 processes')")
        .unwrap();
    page.value("document.getElementById('search').focus()").unwrap();
    page.keys("reserve").unwrap();
    page.until("document.getElementById('matches').innerText.includes('to its end')").unwrap();
    page.key("Escape").unwrap();
    page.until("document.querySelector('.requests-left tbody tr') !== null").unwrap();
    page.value("document.querySelector('.requests-left tbody tr').click()").unwrap();
    page.until("document.querySelectorAll('.spans ol li').length === 3").unwrap();
    // The critical path: the first one until, between and behind what it asked.
    page.until("document.querySelectorAll('.spans b').length === 5").unwrap();
    page.until("/stock: check/.test(document.querySelector('.critical').innerText)").unwrap();
    let row = page.value("document.querySelector('.requests-left tbody tr').innerText").unwrap();
    assert!(row.as_str().unwrap().contains("shop → stock"), "{row}");
    assert_eq!(page.errors, [] as [String; 0]);
}

#[test]
fn a_waterfall_is_zoomed_with_the_keys_of_the_timelines() {
    let Some(Bed { mut page, folder }) = Bed::new() else { return };
    let _served = open(&mut page, &open_files(folder.path(), 10));
    page.until("document.querySelectorAll('#requests .requests-left tbody tr').length === 10")
        .unwrap();
    page.value("document.querySelector('#requests .requests-left tbody tr').click()").unwrap();
    page.until("document.querySelector('.waterfall canvas') !== null").unwrap();
    page.drag(".waterfall canvas", 0.6, 0.6).unwrap();
    page.key("w").unwrap();
    page.until("/&part=\\d+-\\d+/.test(location.hash) && !/[#&]t=/.test(location.hash)").unwrap();
    let before = page.value("location.hash").unwrap();
    page.key("d").unwrap();
    page.until(&format!("location.hash !== {before}")).unwrap();
    leads_back(&mut page, "requests");
    page.drag(".waterfall canvas", 0.6, 0.6).unwrap();
    page.key("0").unwrap();
    page.until("!location.hash.includes('part')").unwrap();
    // The help describes what is there.
    page.key("?").unwrap();
    page.until("document.getElementById('help').innerText.includes('waterfall')").unwrap();
    page.until("document.getElementById('last-tab').innerText === '3'").unwrap();
    assert_eq!(page.errors, [] as [String; 0]);
}

#[test]
fn who_talks_with_whom_is_drawn_so_that_it_can_be_read() {
    let Some(Bed { mut page, folder }) = Bed::new() else { return };
    let _served = open(&mut page, &talk(folder.path()));
    page.value("document.getElementById('tab-communication').click()").unwrap();
    page.until("document.querySelectorAll('.graph .node').length === 6").unwrap();
    let drawn = page.value(GRAPH).unwrap();
    let wanted = serde_json::json!({
        "nodes": 6, "columns": 4, "labels": 8, "lines": 8, "clear": true, "passes": false });
    assert_eq!(drawn, wanted);
    let first = "document.querySelector('#communication td').innerText";
    assert!(page.value(first).unwrap().as_str().unwrap().contains('→'));

    // Little room: still the same, nothing next to the page, and requests below their list.
    let small = serde_json::json!({
        "width": 600, "height": 800, "deviceScaleFactor": 1, "mobile": false });
    page.call("Emulation.setDeviceMetricsOverride", small).unwrap();
    page.until("document.querySelector('.graph svg').getBoundingClientRect().width <= 600")
        .unwrap();
    let mut drawn = page.value(GRAPH).unwrap();
    // A line without a label shows what it would say when it is pointed at.
    assert!(drawn["labels"].as_u64() >= Some(6), "{drawn}");
    drawn["labels"] = wanted["labels"].clone();
    assert_eq!(drawn, wanted);
    assert_eq!(page.value("document.documentElement.scrollWidth").unwrap(), 600);
    page.value("document.getElementById('tab-requests').click()").unwrap();
    page.until("document.querySelector('#requests .requests-left tbody tr') !== null").unwrap();
    let place =
        |what: &str| format!("document.querySelector('.requests-{what}').getBoundingClientRect()");
    page.until(&format!("{}.bottom <= {}.top", place("left"), place("right"))).unwrap();
    page.until("document.querySelector('#requests input').offsetWidth >= 150").unwrap();
    assert_eq!(page.errors, [] as [String; 0]);
}

#[test]
fn without_the_token_the_page_says_what_to_do() {
    let Some(Bed { mut page, folder }) = Bed::new() else { return };
    let served = Served::start(&record(folder.path()));
    let (address, _) = served.url.split_once('#').unwrap();
    page.open(address).unwrap();
    page.until("document.getElementById('notice').innerText.includes('fettle ui')").unwrap();
    assert_eq!(page.value("document.getElementById('main').hidden").unwrap(), true);
}

#[test]
fn a_recording_grows_while_it_is_looked_at() {
    let Some(Bed { mut page, folder }) = Bed::new() else { return };
    let (mut record, trace) = recording(folder.path(), STEPS);
    let mut recorder = record.stdin(Stdio::piped()).spawn().unwrap();
    let mut steps = recorder.stdin.take().unwrap();
    let mut step = || {
        steps.write_all(b"x").unwrap();
        steps.flush().unwrap();
    };
    step();
    while !trace.join("spool").is_dir() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let _served = open(&mut page, &trace);
    page.until("!document.getElementById('live').hidden").unwrap();
    let facts = "document.getElementById('facts').innerText.replaceAll(',', '')";
    page.until(&format!("/2000[1-9] calls/.test({facts})")).unwrap();

    // It grows by itself, and the whole stays in view.
    step();
    page.until(&format!("/4000[1-9] calls/.test({facts})")).unwrap();
    assert_eq!(page.value("location.hash.includes('t=')").unwrap(), false);
    page.until(&format!("{DRAWN} > 500")).unwrap();

    // A user who looks at a part of it keeps that.
    page.value("document.getElementById('timeline').focus()").unwrap();
    page.key("w").unwrap();
    page.until("location.hash.includes('t=')").unwrap();
    let view = page.value("/t=[0-9-]+/.exec(location.hash)[0]").unwrap();
    step();
    page.until(&format!("/6000[1-9] calls/.test({facts})")).unwrap();
    assert_eq!(page.value("/t=[0-9-]+/.exec(location.hash)[0]").unwrap(), view);

    // It ends, and is the trace that any reader sees.
    drop(steps);
    assert!(recorder.wait().unwrap().success());
    page.until("document.getElementById('live').hidden").unwrap();
    page.until("document.getElementById('losses').innerText === 'nothing lost'").unwrap();
    page.until("/60,000/.test(document.getElementById('functions').innerText)").unwrap();
    assert_eq!(page.errors, [] as [String; 0]);
}

/// A real program's layout, and a measurement of it: the page shows the same figures.
#[test]
fn layouts_of_hot_code_are_shown() {
    let Some(Bed { mut page, folder }) = Bed::new() else { return };
    let trace = folder.path().join("edges.fettle");
    let mut record = Command::new(env!("CARGO_BIN_EXE_fettle"));
    record.args(["record", "--quiet", "--mode", "edges", "--output"]).arg(&trace);
    record.args(["--", "gzip", "-9", "-c", "/bin/bash"]).stdout(Stdio::null());
    assert!(record.status().unwrap().success());
    let mut layout = Command::new(env!("CARGO_BIN_EXE_fettle"));
    let output = layout.args(["layout", "--json"]).arg(&trace).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut reported: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    reported["pid"] = 4711.into();
    reported["kept"] = true.into();
    reported["measured"] = serde_json::json!({
        "ratio": 0.875, "low": 0.85, "high": 0.9, "ratios": [0.86, 0.87, 0.9],
        "old_ns": 2e6, "new_ns": 1.75e6, "stops_ms": [0.5, 1.25],
    });
    let file = folder.path().join("tuned.json");
    std::fs::write(&file, reported.to_string()).unwrap();

    let _served = open(&mut page, &file);
    let text = page.value("document.getElementById('layouts').innerText").unwrap();
    let text = text.as_str().unwrap();
    for part in [
        "−12.5 %",
        "2.00 ms, with rewritten text 1.75 ms",
        "1.25 ms",
        "The rewritten text stays",
        "ext-TSP",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let module = &reported["modules"][0];
    let cells = page.value("document.querySelectorAll('.cache-map .set').length").unwrap();
    let sets = module["cache_before"]["sets"].as_array().unwrap().len();
    assert_eq!(cells, 2 * sets);
    let rounds = page.value("document.querySelectorAll('.rounds .round').length").unwrap();
    assert_eq!(rounds, 3);
    let rows = page.value("document.querySelectorAll('table.group tbody tr').length").unwrap();
    assert_eq!(rows, module["functions"].as_array().unwrap().len().min(30));
    assert_eq!(page.value("document.getElementById('main').hidden").unwrap(), true);
    assert_eq!(page.errors, [] as [String; 0]);

    // What was reverted is no headline, whatever its figure.
    reported["kept"] = false.into();
    reported["measured"]["verdict"] = "undecided".into();
    std::fs::write(&file, reported.to_string()).unwrap();
    let _served = open(&mut page, &file);
    let headline = page.value("document.querySelector('.measured .big').innerText").unwrap();
    assert_eq!(headline, "reverted: undecided");

    // What is no such file is refused in a line.
    std::fs::write(&file, "{\"version\": 1}").unwrap();
    let mut ui = Command::new(env!("CARGO_BIN_EXE_fettle"));
    let refused = ui.args(["ui", "--no-open"]).arg(&file).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let says = String::from_utf8_lossy(&refused.stderr);
    assert!(says.contains("tuned.json") && says.contains("tune --json"), "{says}");
}
