//! What a recorder that knows the secret sends to a collector, from bytes. The sister in
//! `cargo test` is `crates/record/relay/tests/fuzz_one_second.rs`.
#![no_main]

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use fettle_relay::frame::{Head, Kind, VERSION};
use fettle_relay::{Arrivals, Arriving, Channel, CollectorKey, Counts, Hub, Limits, Stream, serve};
use libfuzzer_sys::fuzz_target;

struct Memory<'a>(&'a [u8]);

impl Read for Memory<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Write for Memory<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Channel for Memory<'_> {
    fn within(&mut self, _: Duration) {}
}

struct Nothing;

impl Arrivals for Nothing {
    fn begin(&self, folder: &Path, _: &[u8]) -> Result<Box<dyn Arriving>, String> {
        self.reopen(folder)
    }

    fn reopen(&self, _: &Path) -> Result<Box<dyn Arriving>, String> {
        Ok(Box::new(Nothing))
    }

    fn file_of(&self, stream: Stream) -> String {
        format!("{}-{:?}", stream.thread, stream.content)
    }
}

impl Arriving for Nothing {
    fn checkpoint(&mut self, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn finish(self: Box<Self>, _: &[u8], _: &Counts) -> Result<Vec<u8>, String> {
        Ok(Vec::new())
    }
}

static KEYS: LazyLock<(PathBuf, CollectorKey, Vec<u8>)> = LazyLock::new(|| {
    let root = std::env::temp_dir().join(format!("fettle-fuzz-relay-{}", std::process::id()));
    let (key, recorder, _) = CollectorKey::open_or_make(&root.join("keys")).unwrap();
    let line = recorder.line();
    let digits = &line[line.len() - 64..];
    let byte = |n: usize| u8::from_str_radix(&digits[2 * n..2 * n + 2], 16).unwrap();
    (root, key, (0..32).map(byte).collect())
});

fuzz_target!(|data: &[u8]| {
    let (root, key, secret) = &*KEYS;
    let traces = root.join("traces");
    let _ = std::fs::remove_dir_all(&traces);
    let hub = Hub::open(&traces, key, Box::new(Nothing), Limits::default(), Box::new(|_| {}));
    let hub = hub.unwrap();
    // Two conversations of one session: the second goes on where the first one ended.
    let (first, second) = data.split_at(data.len() / 2);
    for part in [first, second] {
        let hello = [secret.as_slice(), &[7; 16], b"fuzz"].concat();
        let head = Head { number: VERSION, ..Head::new(Kind::Hello, hello.len()) };
        let bytes = [&head.encode()[..], &hello, part].concat();
        let _ = serve(&mut Memory(&bytes), "fuzz", &hub, Box::new(|| {}));
    }
});
