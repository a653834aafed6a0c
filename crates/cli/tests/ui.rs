//! The page of `fettle ui`, in a real browser: it draws, it zooms down to one call, links lead
//! back, and nothing complains.

mod browser;

use std::io::{BufRead, BufReader};
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

/// A trace of a little program that is served, and a browser.
struct Bed {
    page: Browser,
    served: Served,
    folder: tempfile::TempDir,
}

impl Bed {
    /// `None`, and it is said why, if there is no browser.
    fn new() -> Option<Bed> {
        let found = browser::executable().inspect_err(|why| eprintln!("skipped: {why}"));
        let chromium = found.ok()?;
        let folder = tempfile::tempdir().unwrap();
        let served = Served::start(&record(folder.path()));
        let page = Browser::start(chromium, folder.path()).unwrap();
        Some(Bed { page, served, folder })
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

/// Records a little program with every kind of call.
fn record(folder: &Path) -> std::path::PathBuf {
    let (source, program) = (folder.join("prog.c"), folder.join("prog"));
    let trace = folder.join("prog.fettle");
    std::fs::write(&source, PROGRAM).unwrap();
    let built = Command::new("cc").arg("-O1").arg(&source).arg("-o").arg(&program).status();
    assert!(built.unwrap().success());
    let mut record = Command::new(env!("CARGO_BIN_EXE_fettle"));
    record.args(["record", "--quiet", "--output"]).arg(&trace).arg("--").arg(&program);
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

#[test]
fn the_page_draws_zooms_and_leads_back() {
    let Some(Bed { folder: _folder, served, mut page }) = Bed::new() else { return };
    page.open(&served.url).unwrap();
    page.until("document.documentElement.dataset.ready === 'true'").unwrap();

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
    for letter in ["l", "e", "a", "f"] {
        page.key(letter).unwrap();
    }
    page.until("document.querySelectorAll('#matches li .name').length === 1").unwrap();
    page.key("Enter").unwrap();
    page.until("document.querySelector('#details .name')?.innerText === 'leaf_of_all'").unwrap();
    page.until("/call=0\\.\\d+\\.\\d+/.test(location.hash) && location.hash.includes('t=')")
        .unwrap();
    page.until(&format!("/: (\\d{{1,2}}) calls?, \\1 drawn by themselves/.test({label})")).unwrap();
    let called_by = page.value("document.getElementById('details').innerText").unwrap();
    assert!(called_by.as_str().unwrap().contains("walks_leaves"), "{called_by}");

    // A link leads back: same time, same call.
    let link = page.value("location.href").unwrap();
    let told = page.value("document.getElementById('details').innerText").unwrap();
    page.open(link.as_str().unwrap()).unwrap();
    page.until("document.documentElement.dataset.ready === 'true'").unwrap();
    page.until("document.querySelector('#details .name')?.innerText === 'leaf_of_all'").unwrap();
    assert_eq!(page.value("location.href").unwrap(), link);
    assert_eq!(page.value("document.getElementById('details').innerText").unwrap(), told);

    // The other views.
    page.value("document.getElementById('tab-durations').click()").unwrap();
    page.until("document.querySelectorAll('#durations tbody tr').length === 200").unwrap();
    page.until("document.querySelector('#durations canvas') !== null").unwrap();
    page.value("document.getElementById('tab-flame').click()").unwrap();
    page.until("/frames/.test(document.querySelector('#flame canvas')?.ariaLabel ?? '')").unwrap();

    assert_eq!(page.errors, [] as [String; 0]);
}

#[test]
fn without_the_token_the_page_says_what_to_do() {
    let Some(Bed { folder: _folder, served, mut page }) = Bed::new() else { return };
    let (address, _) = served.url.split_once('#').unwrap();
    page.open(address).unwrap();
    page.until("document.getElementById('notice').innerText.includes('fettle ui')").unwrap();
    assert_eq!(page.value("document.getElementById('main').hidden").unwrap(), true);
}
