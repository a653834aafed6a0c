//! A connection that can be cut: everything goes through us, until it does not.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::Result;

/// Passes connections on to a port.
pub struct Proxy {
    /// Its own port.
    pub port: u16,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// Passes all that comes on to a port of this machine.
    pub fn to(server: u16) -> Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let open = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&open);
        // Ends with the chore.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    if let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) {
                        thread::spawn(move || pump(from, to));
                    }
                }
                if let Ok(mut kept) = kept.lock() {
                    kept.extend([client, server]);
                }
            }
        });
        Ok(Proxy { port, open })
    }

    /// Cuts all connections there are.
    pub fn cut(&self) {
        if let Ok(mut open) = self.open.lock() {
            // One that is over already is cut all the same.
            open.drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        }
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = [0; 1 << 14];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..n]).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        drop(stream.shutdown(Shutdown::Both));
    }
}
