//! The collector's listener: a socket, and a thread for each connection that is accepted.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::ServerConfig;

use crate::error::{Error, Result};
use crate::event::Happening;
use crate::key::CollectorKey;
use crate::peer::{Hub, serve};
use crate::tls;

/// How often it is checked whether the collector is to end.
const PERIOD: Duration = Duration::from_millis(20);
/// Complaints about the same address are not reported more often than this.
const COMPLAINTS: Duration = Duration::from_secs(10);

/// A collector that listens.
#[derive(Debug)]
pub struct Collector {
    listener: TcpListener,
    config: Arc<ServerConfig>,
    hub: Arc<Hub>,
}

impl Collector {
    /// Listens at an address.
    ///
    /// # Errors
    ///
    /// When it cannot be listened to, or the key is none.
    pub fn listen(address: SocketAddr, key: &CollectorKey, hub: Hub) -> Result<Collector> {
        let failed = |reason| Error::Unreachable { address: address.to_string(), reason };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(Error::Cut)?;
        Ok(Collector { listener, config: tls::server_config(key)?, hub: Arc::new(hub) })
    }

    /// Where it listens.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves recorders until `stop` is set; then their connections are cut, and what has arrived
    /// is whole.
    pub fn run(&self, stop: &AtomicBool) {
        let admission = Arc::new(Admission::default());
        let mut last_tick = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            match self.listener.accept() {
                Ok((socket, from)) => self.admit(socket, from, &admission),
                // No connection, or one that is gone already, or too many open files: all of them
                // pass.
                Err(_) => std::thread::sleep(PERIOD),
            }
            if last_tick.elapsed() > Duration::from_secs(1) {
                last_tick = Instant::now();
                self.hub.tick();
            }
        }
        self.hub.hang_up();
        // What they hold is put right when the next collector opens it; this is for the last word.
        let begin = Instant::now();
        while admission.open() > 0 && begin.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(PERIOD);
        }
    }

    /// Serves a connection in a thread of its own, if there is room for it.
    fn admit(&self, socket: TcpStream, from: SocketAddr, admission: &Arc<Admission>) {
        let address = from.ip();
        let limits = self.hub.limits;
        let (hub, config) = (self.hub.clone(), self.config.clone());
        if let Err(why) = admission.enter(address, limits.connections, limits.per_address) {
            if admission.may_complain(address) {
                hub.notify(Happening::Cut { peer: address.to_string(), why: why.to_owned() });
            }
            return;
        }
        let guard = Entered { admission: admission.clone(), address };
        let serve = move || {
            let entered = guard;
            let peer = from.to_string();
            let result = answer(socket, &peer, &hub, config);
            if let Err(error) = result
                && entered.admission.may_complain(address)
            {
                hub.notify(Happening::Cut { peer, why: error.to_string() });
            }
        };
        // Without a thread it is as if there was no room; the peer will try again.
        let _ = std::thread::Builder::new().name(format!("peer {from}")).spawn(serve);
    }
}

fn answer(socket: TcpStream, peer: &str, hub: &Hub, config: Arc<ServerConfig>) -> Result<()> {
    socket.set_nonblocking(false).map_err(Error::Cut)?;
    let other = socket.try_clone().map_err(Error::Cut)?;
    let mut channel = tls::accept(config, socket, hub.limits.hello).map_err(Error::Cut)?;
    let hang_up = Box::new(move || drop(other.shutdown(Shutdown::Both)));
    serve(&mut channel, peer, hub, hang_up)?;
    channel.conn.send_close_notify();
    let _ = io::Write::flush(&mut channel);
    Ok(())
}

/// Open connections by address.
#[derive(Debug, Default)]
struct Admission {
    inside: Mutex<HashMap<IpAddr, usize>>,
    complained: Mutex<HashMap<IpAddr, (Instant, u32)>>,
}

/// Complaints at once of one address.
const COMPLAINTS_AT_ONCE: u32 = 8;

impl Admission {
    fn open(&self) -> usize {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }

    fn enter(
        &self,
        address: IpAddr,
        all: usize,
        each: usize,
    ) -> std::result::Result<(), &'static str> {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        if inside.values().sum::<usize>() >= all {
            return Err("turned away: there are as many connections as this collector takes");
        }
        let here = inside.entry(address).or_default();
        if *here >= each {
            return Err("turned away: it has as many connections as one address may");
        }
        *here += 1;
        Ok(())
    }

    /// Whether something about this address is worth a line: a few are, of thousands none.
    fn may_complain(&self, address: IpAddr) -> bool {
        let mut complained = self.complained.lock().unwrap_or_else(PoisonError::into_inner);
        complained.retain(|_, (since, _)| since.elapsed() < COMPLAINTS);
        let (_, count) = complained.entry(address).or_insert((Instant::now(), 0));
        *count += 1;
        *count <= COMPLAINTS_AT_ONCE
    }
}

/// A place inside, given back however the thread ends.
struct Entered {
    admission: Arc<Admission>,
    address: IpAddr,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut inside = self.admission.inside.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(here) = inside.get_mut(&self.address) {
            *here -= 1;
            if *here == 0 {
                inside.remove(&self.address);
            }
        }
    }
}
