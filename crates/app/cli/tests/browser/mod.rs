//! A headless Chromium, driven over its DevTools protocol.
//!
//! `--remote-debugging-pipe` speaks the protocol over file descriptors 3 and 4, one message per
//! zero byte. A shell connects them to two named pipes, so neither a WebSocket nor unsafe code is
//! needed.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// How long the page has for anything; the tests time nothing.
const PATIENCE: Duration = Duration::from_secs(90);

/// A browser with one page.
pub struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    session: String,
    last_id: u64,
    /// What the page complained of.
    pub errors: Vec<String>,
}

/// The browser's executable, or why there is none.
pub fn executable() -> Result<&'static str, String> {
    let known = ["chromium", "chromium-browser", "google-chrome"];
    let found = || {
        let path = std::env::var_os("PATH")?;
        known
            .into_iter()
            .find(|name| std::env::split_paths(&path).any(|dir| dir.join(name).is_file()))
    };
    if let Some(name) = found() {
        return Ok(name);
    }
    let mut apt = Command::new("apt-get");
    apt.args(["install", "-y", "--no-install-recommends", "chromium"]).stdin(Stdio::null());
    apt.env("DEBIAN_FRONTEND", "noninteractive");
    match apt.output() {
        Ok(output) if output.status.success() => {
            found().ok_or_else(|| "no chromium on the path".into())
        }
        Ok(output) => Err(format!(
            "chromium cannot be installed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Err(format!("chromium cannot be installed: {error}")),
    }
}

impl Browser {
    /// Starts one whose files lie in `folder`.
    pub fn start(executable: &str, folder: &Path) -> Result<Browser> {
        let (to, from) = (folder.join("to"), folder.join("from"));
        let made = Command::new("mkfifo").args([&to, &from]).status()?;
        anyhow::ensure!(made.success(), "mkfifo: {made}");
        let mut child = Command::new("sh");
        child.arg("-c").arg(
            "exec \"$0\" --headless --remote-debugging-pipe --no-sandbox --disable-gpu \
             --disable-dev-shm-usage --no-first-run --window-size=1280,800 \
             --user-data-dir=\"$3\" about:blank 3<\"$1\" 4>\"$2\"",
        );
        child.arg(executable).args([&to, &from]).arg(folder.join("profile"));
        child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let child = child.spawn().context("starting the browser")?;
        // Both sides open their pipes in the same order.
        let to = File::options().write(true).open(to)?;
        let from = BufReader::new(File::open(from)?);
        let session = String::new();
        let mut browser = Browser { child, to, from, session, last_id: 0, errors: Vec::new() };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach)?;
        browser.session = attached["sessionId"].as_str().context("a session")?.to_owned();
        for domain in ["Runtime.enable", "Log.enable", "Page.enable"] {
            browser.call(domain, json!({}))?;
        }
        Ok(browser)
    }

    /// Calls a method of the protocol and waits for its result.
    pub fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        self.last_id += 1;
        let mut message = json!({ "id": self.last_id, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = serde_json::to_vec(&message)?;
        bytes.push(0);
        self.to.write_all(&bytes)?;
        loop {
            let mut bytes = Vec::new();
            if self.from.read_until(0, &mut bytes)? == 0 {
                bail!("{method}: the browser ended");
            }
            bytes.pop();
            let message: Value = serde_json::from_slice(&bytes)?;
            if message["id"] == self.last_id {
                if let Some(error) = message.get("error") {
                    bail!("{method}: {error}");
                }
                return Ok(message["result"].clone());
            }
            self.note(&message);
        }
    }

    /// Keeps what the page complains of.
    fn note(&mut self, message: &Value) {
        let params = &message["params"];
        let error = match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => params["type"] == "error",
            Some("Log.entryAdded") => params["entry"]["level"] == "error",
            _ => false,
        };
        if error {
            self.errors.push(params.to_string());
        }
    }

    /// Opens a URL.
    pub fn open(&mut self, url: &str) -> Result<()> {
        // A change of what is behind the `#` alone loads nothing.
        self.call("Page.navigate", json!({ "url": "about:blank" }))?;
        self.call("Page.navigate", json!({ "url": url })).map(drop)
    }

    /// The value of an expression in the page.
    pub fn value(&mut self, expression: &str) -> Result<Value> {
        let params =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let result = self.call("Runtime.evaluate", params)?;
        if let Some(exception) = result.get("exceptionDetails") {
            bail!("{expression}: {exception}");
        }
        Ok(result["result"]["value"].clone())
    }

    /// Waits until an expression is true. While a page loads there may be nothing to ask: what is
    /// thrown then counts as not yet.
    pub fn until(&mut self, expression: &str) -> Result<()> {
        let begin = Instant::now();
        loop {
            let found = self.value(expression);
            if matches!(&found, Ok(value) if *value == json!(true)) {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                let page = self.value("document.body?.innerText")?;
                bail!("never came true: {expression}: {found:?}\n{page}\n{:?}", self.errors);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Drags over the middle of what a selector finds, between two parts of its width (0 to 1).
    pub fn drag(&mut self, selector: &str, from: f64, to: f64) -> Result<()> {
        let place = format!(
            "(({{ x, y, width, height }}) => [x, y + height / 2, width])\
             (document.querySelector('{selector}').getBoundingClientRect())"
        );
        let place = self.value(&place)?;
        let number = |at: usize| place[at].as_f64().context("a place");
        let (left, middle, width) = (number(0)?, number(1)?, number(2)?);
        let steps = [
            ("mouseMoved", from),
            ("mousePressed", from),
            ("mouseMoved", (from + to) / 2.0),
            ("mouseMoved", to),
            ("mouseReleased", to),
        ];
        for (kind, part) in steps {
            let button = if part == from && kind == "mouseMoved" { "none" } else { "left" };
            let params = json!({ "type": kind, "x": left + width * part, "y": middle,
                "button": button, "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", params)?;
        }
        Ok(())
    }

    /// Clicks with Shift in the middle of what a selector finds.
    pub fn shift_click(&mut self, selector: &str) -> Result<()> {
        let place = format!(
            "(({{ x, y, width, height }}) => [x + width / 2, y + height / 2])\
             (document.querySelector('{selector}').getBoundingClientRect())"
        );
        self.click(&place, 8)
    }

    /// Clicks at what an expression says: how far from the left and from above.
    pub fn click_at(&mut self, place: &str) -> Result<()> {
        self.click(place, 0)
    }

    fn click(&mut self, place: &str, modifiers: u32) -> Result<()> {
        let place = self.value(place)?;
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let button = if kind == "mouseMoved" { "none" } else { "left" };
            let params = json!({ "type": kind, "x": place[0], "y": place[1], "button": button,
                "modifiers": modifiers, "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", params)?;
        }
        Ok(())
    }

    /// Types a text.
    pub fn keys(&mut self, text: &str) -> Result<()> {
        text.chars().try_for_each(|letter| self.key(letter.encode_utf8(&mut [0; 4])))
    }

    /// Presses and releases a key that makes a character.
    pub fn key(&mut self, key: &str) -> Result<()> {
        for kind in ["keyDown", "keyUp"] {
            let mut params = json!({ "type": kind, "key": key });
            if key.len() == 1 && kind == "keyDown" {
                params["text"] = json!(key);
            }
            if key == "Enter" {
                params["text"] = json!("\r");
                params["windowsVirtualKeyCode"] = json!(13);
            }
            self.call("Input.dispatchKeyEvent", params)?;
        }
        Ok(())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends by itself when asked to; its helpers with it.
        self.session.clear();
        let message = json!({ "id": 0, "method": "Browser.close" }).to_string() + "\0";
        let asked = self.to.write_all(message.as_bytes());
        for _ in 0..100 {
            if asked.is_err() || !matches!(self.child.try_wait(), Ok(None)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
