//! The page of `fettle ui` by axe's rules: names for what can be used, contrast, structure. axe comes from npm
//! when the test runs; without it nothing is tested.

#[allow(dead_code)] // Other tests use more of it.
mod browser;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use browser::Browser;

/// The rules, of one version: another one may know more.
const AXE: &str = "axe-core@4.14.1";

/// The text of axe, or why there is none.
fn axe(folder: &Path) -> Result<String, String> {
    let mut npm = Command::new("npm");
    npm.args(["pack", "--silent", AXE]).current_dir(folder).stdin(Stdio::null());
    let packed = npm.output().map_err(|error| format!("npm: {error}"))?;
    let file = String::from_utf8_lossy(&packed.stdout).trim().to_owned();
    if !packed.status.success() {
        return Err(format!("npm cannot get {AXE}: {}", String::from_utf8_lossy(&packed.stderr)));
    }
    let unpacked = Command::new("tar").arg("xzf").arg(&file).current_dir(folder).status();
    match unpacked {
        Ok(status) if status.success() => {}
        other => return Err(format!("tar xzf {file}: {other:?}")),
    }
    std::fs::read_to_string(folder.join("package/axe.min.js")).map_err(|error| error.to_string())
}

/// What violates rules: each rule with the first places that do.
const VIOLATIONS: &str =
    "axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) =>
    violations.map(({ id, help, nodes }) =>
        `${id}: ${help}: ` + nodes.slice(0, 3).map((node) => node.target.join(' ')).join(', ')))";

const PROGRAM: &str = "
#include <pthread.h>
#include <unistd.h>
volatile int sum;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
__attribute__((noinline)) int leaf(int n) { sum += n; return sum; }
static void *waits(void *x) {
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    return x;
}
int main(void) {
    pthread_t thread;
    pthread_mutex_lock(&lock);
    pthread_create(&thread, 0, waits, 0);
    for (int i = 0; i < 1000; i++) leaf(i);
    usleep(200000);
    pthread_mutex_unlock(&lock);
    pthread_join(thread, 0);
    return 0;
}
";

#[test]
fn every_tab_of_the_page_keeps_the_rules() {
    let folder = tempfile::tempdir().unwrap();
    let found = browser::executable().and_then(|chromium| Ok((chromium, axe(folder.path())?)));
    let (chromium, axe) = match found {
        Ok(found) => found,
        Err(why) => return eprintln!("skipped 1 test: {why}"),
    };
    let (source, program) = (folder.path().join("a.c"), folder.path().join("a"));
    std::fs::write(&source, PROGRAM).unwrap();
    assert!(
        Command::new("cc")
            .arg("-O1")
            .arg(&source)
            .arg("-o")
            .arg(&program)
            .status()
            .unwrap()
            .success()
    );
    let mut page = Browser::start(chromium, folder.path()).unwrap();
    let mut violations = Vec::new();
    let recorders =
        [["record", "-q", "-o"].as_slice(), &["locks", "-q", "-o", "/dev/null", "--trace"]];
    for (n, recorder) in recorders.into_iter().enumerate() {
        let trace = folder.path().join(format!("{n}.fettle"));
        let fettle = || Command::new(env!("CARGO_BIN_EXE_fettle"));
        let recorded = fettle().args(recorder).arg(&trace).arg("--").arg(&program).output();
        assert!(recorded.unwrap().status.success());
        let mut ui = fettle();
        ui.args(["ui", "--no-open"]).arg(&trace).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut served = ui.spawn().unwrap();
        let mut url = String::new();
        BufReader::new(served.stdout.take().unwrap()).read_line(&mut url).unwrap();
        violations.extend(of_page(&mut page, url.trim(), &axe));
        let _ = served.kill();
        let _ = served.wait();
    }
    assert_eq!(violations, [] as [String; 0]);
}

/// What violates rules in any tab of a page.
fn of_page(page: &mut Browser, url: &str, axe: &str) -> Vec<String> {
    page.open(url).unwrap();
    page.until("document.documentElement.dataset.ready === 'true'").unwrap();
    page.value(&format!("{axe}; true")).unwrap();
    let kept = page.value("axe.run(document).then(({ passes }) => passes.length)").unwrap();
    assert!(kept.as_u64() > Some(10), "only {kept} rules have anything to look at");
    let tabs = "[...document.querySelectorAll('[role=tab]')].filter((tab) => !tab.hidden).map((tab) => tab.id)";
    let tabs = page.value(tabs).unwrap();
    assert!(!tabs.as_array().unwrap().is_empty(), "the page has tabs");
    let mut violations = Vec::new();
    for tab in tabs.as_array().unwrap() {
        let tab = tab.as_str().unwrap();
        page.value(&format!("document.getElementById('{tab}').click()")).unwrap();
        let found = page.value(VIOLATIONS).unwrap();
        violations.extend(found.as_array().unwrap().iter().map(|what| format!("{tab}: {what}")));
    }
    violations
}
