//! A collector and recorders of the tests' own, on the loopback interface.
#![allow(dead_code, reason = "each test uses some of it")]

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use fettle_relay::{
    Arrivals, Arriving, Collector, CollectorKey, Content, Counts, Happening, Hub, Limits, Log,
    RecorderKey, Sender, Stream, To,
};

/// Makes "traces" that consist of what arrived.
pub struct Plain;

struct PlainArriving(PathBuf);

impl Arrivals for Plain {
    fn begin(&self, folder: &Path, begin: &[u8]) -> Result<Box<dyn Arriving>, String> {
        fs::create_dir(folder.join("spool")).map_err(|e| e.to_string())?;
        fs::write(folder.join("begin"), begin).map_err(|e| e.to_string())?;
        self.reopen(folder)
    }

    fn reopen(&self, folder: &Path) -> Result<Box<dyn Arriving>, String> {
        Ok(Box::new(PlainArriving(folder.to_owned())))
    }

    fn file_of(&self, stream: Stream) -> String {
        format!("spool/{}-{:?}", stream.thread, stream.content)
    }
}

impl Arriving for PlainArriving {
    fn checkpoint(&mut self, tables: &[u8]) -> Result<(), String> {
        fs::write(self.0.join("checkpoint"), tables).map_err(|e| e.to_string())
    }

    fn finish(self: Box<Self>, ending: &[u8], dropped: &Counts) -> Result<Vec<u8>, String> {
        fs::write(self.0.join("ending"), ending).map_err(|e| e.to_string())?;
        Ok(format!("dropped {}", dropped.sum()).into_bytes())
    }
}

/// A collector that runs.
pub struct Running {
    pub address: SocketAddr,
    pub folder: PathBuf,
    pub key: RecorderKey,
    pub happened: Arc<Mutex<Vec<Happening>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub fn start(root: &Path, limits: Limits) -> Running {
        Running::start_with(root, limits, Box::new(Plain))
    }

    pub fn start_with(root: &Path, limits: Limits, arrivals: Box<dyn Arrivals>) -> Running {
        let (key, recorder, _) = CollectorKey::open_or_make(&root.join("keys")).unwrap();
        let folder = root.join("traces");
        let happened: Arc<Mutex<Vec<Happening>>> = Arc::default();
        let reported = happened.clone();
        let notify = Box::new(move |happening| reported.lock().unwrap().push(happening));
        let hub = Hub::open(&folder, &key, arrivals, limits, notify).unwrap();
        let collector = Collector::listen("127.0.0.1:0".parse().unwrap(), &key, hub).unwrap();
        let address = collector.address().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let flag = stop.clone();
        let thread = Some(std::thread::spawn(move || collector.run(&flag)));
        Running { address, folder, key: recorder, happened, stop, thread }
    }

    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    /// What was said so far.
    pub fn said(&self) -> String {
        self.happened.lock().unwrap().iter().map(|h| format!("{h}\n")).collect()
    }

    /// Waits until something was said.
    pub fn until_said(&self, text: &str) {
        for _ in 0..6000 {
            if self.said().contains(text) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("never said {text:?}, but:\n{}", self.said());
    }

    pub fn to(&self) -> To {
        To { address: self.address.to_string(), key: self.key.clone() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// A log that lies in `root`.
pub fn log(root: &Path, name: &str, limit: u64) -> Arc<Log> {
    Arc::new(
        Log::create(&root.join(format!("{name}.spool")), name, b"the beginning", limit).unwrap(),
    )
}

pub fn send(to: To, log: &Arc<Log>) -> Sender {
    Sender::start(to, log.clone(), Box::new(|_| {})).unwrap()
}

pub fn calls(thread: u32) -> Stream {
    Stream { content: Content::Calls, thread }
}

/// Records that tell their place.
pub fn records(from: u64, count: u64) -> Vec<u8> {
    (from..from + count).flat_map(|n| [n, !n]).flat_map(u64::to_le_bytes).collect()
}

/// The places of the records in a file.
pub fn places(path: &Path) -> Vec<u64> {
    let bytes = fs::read(path).unwrap();
    let words = bytes.as_chunks::<16>().0;
    words.iter().map(|word| u64::from_le_bytes(word[..8].try_into().unwrap())).collect()
}

/// Forwards bytes to an address until it is asked to cut.
pub struct Proxy {
    pub address: SocketAddr,
    to: Arc<Mutex<SocketAddr>>,
    /// Bytes after which each connection is cut, in the direction of the collector.
    pub cut_after: Arc<AtomicU64>,
    sockets: Arc<Mutex<Vec<TcpStream>>>,
    pub refuse: Arc<AtomicBool>,
    pub cuts: Arc<AtomicU64>,
}

impl Proxy {
    pub fn start(to: SocketAddr, cut_after: u64) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy {
            address: listener.local_addr().unwrap(),
            to: Arc::new(Mutex::new(to)),
            cut_after: Arc::new(AtomicU64::new(cut_after)),
            sockets: Arc::default(),
            refuse: Arc::default(),
            cuts: Arc::default(),
        };
        let (to, cut, sockets) = (proxy.to.clone(), proxy.cut_after.clone(), proxy.sockets.clone());
        let (refuse, cuts) = (proxy.refuse.clone(), proxy.cuts.clone());
        // It ends with the test's process.
        std::thread::spawn(move || {
            for inside in listener.incoming().map_while(Result::ok) {
                if refuse.load(Ordering::Relaxed) {
                    continue;
                }
                let Ok(outside) = TcpStream::connect(*to.lock().unwrap()) else { continue };
                let mut all = sockets.lock().unwrap();
                all.extend([inside.try_clone().unwrap(), outside.try_clone().unwrap()]);
                let pairs = [
                    (
                        inside.try_clone().unwrap(),
                        outside.try_clone().unwrap(),
                        cut.load(Ordering::Relaxed),
                    ),
                    (outside, inside, u64::MAX),
                ];
                for (from, to, most) in pairs {
                    let cuts = cuts.clone();
                    std::thread::spawn(move || pass(from, to, most, &cuts));
                }
            }
        });
        proxy
    }

    pub fn lead_to(&self, to: SocketAddr) {
        *self.to.lock().unwrap() = to;
    }

    /// Cuts all connections and lets none through.
    pub fn shut(&self) {
        self.refuse.store(true, Ordering::Relaxed);
        for socket in self.sockets.lock().unwrap().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    pub fn open(&self) {
        self.refuse.store(false, Ordering::Relaxed);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, most: u64, cuts: &AtomicU64) {
    let mut bytes = vec![0; 1 << 16];
    let mut passed = 0;
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let allowed = (most - passed).min(count as u64) as usize;
        passed += allowed as u64;
        if to.write_all(&bytes[..allowed]).is_err() || passed >= most {
            cuts.fetch_add(u64::from(passed >= most), Ordering::Relaxed);
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
