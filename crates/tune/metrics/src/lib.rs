//! A port that Prometheus reads metrics from.
//!
//! The port is of the loopback interface, which all users of the machine reach, so a reader shows a
//! token: `authorization: { credentials_file: … }` in Prometheus' configuration.
#![forbid(unsafe_code)]

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

const TOKEN_BYTES: usize = 16;

/// Names and values that tell metrics of one name apart.
pub type Labels = Vec<(String, String)>;
/// A counter of seconds and other amounts that are not whole.
pub type AmountCounter = Counter<f64, std::sync::atomic::AtomicU64>;
/// A gauge of seconds, ratios and other amounts that are not whole.
pub type AmountGauge = Gauge<f64, std::sync::atomic::AtomicU64>;

/// Labels from names and values.
pub fn labels<const N: usize>(pairs: [(&str, &str); N]) -> Labels {
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

/// An address and port that only this machine reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub struct LocalAddress(SocketAddr);

/// Why a text is no such address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not understood.
    #[error("{0:?} is no address: 127.0.0.1:9817, [::1]:9817, or a port alone")]
    Unknown(String),
    /// Others could read it.
    #[error("{0}: the address must be of this machine alone (127.0.0.1 or [::1])")]
    NotLocal(SocketAddr),
}

impl FromStr for LocalAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<LocalAddress, AddressError> {
        let port = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        let text = text.strip_prefix("localhost:").unwrap_or(text);
        let address = text.parse().or_else(|_| text.parse().map(port));
        let address = address.map_err(|_| AddressError::Unknown(text.to_owned()))?;
        match address.ip().is_loopback() {
            true => Ok(LocalAddress(address)),
            false => Err(AddressError::NotLocal(address)),
        }
    }
}

impl TryFrom<String> for LocalAddress {
    type Error = AddressError;

    fn try_from(text: String) -> Result<LocalAddress, AddressError> {
        text.parse()
    }
}

impl std::fmt::Display for LocalAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl LocalAddress {
    /// Takes the port; port 0 is any that is free, which the listener knows.
    ///
    /// # Errors
    ///
    /// When the port is taken.
    pub fn listen(self) -> io::Result<TcpListener> {
        TcpListener::bind(self.0)
    }
}

/// What a reader is shown, and the token that it needs.
struct Page {
    text: Box<dyn Fn() -> String + Send + Sync>,
    token: String,
}

/// Answers `/metrics` with what `text` makes, in a thread of its own and as long as this process lives. The
/// token is written to a file that only its owner can read.
///
/// # Errors
///
/// When the file cannot be written, or there is no thread to be had.
pub fn serve(
    listener: TcpListener,
    token_file: &Path,
    text: impl Fn() -> String + Send + Sync + 'static,
) -> io::Result<()> {
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    listener.set_nonblocking(true)?;
    // One that is there may be readable for others.
    let _ = std::fs::remove_file(token_file);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(token_file)?;
    file.write_all(token.as_bytes())?;
    let page = Arc::new(Page { text: Box::new(text), token });
    let router = Router::new().route("/metrics", get(answer)).with_state(page);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            axum::serve(listener, router).await
        })
    })?;
    Ok(())
}

async fn answer(Shared(page): Shared<Arc<Page>>, headers: HeaderMap) -> impl IntoResponse {
    const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let shown = shown.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    if !is_same(shown.trim(), &page.token) {
        return (StatusCode::UNAUTHORIZED, [(header::CONTENT_TYPE, "text/plain")], String::new());
    }
    (StatusCode::OK, [(header::CONTENT_TYPE, TYPE)], (page.text)())
}

/// Compares in a time that does not depend on where they differ.
fn is_same(shown: &str, token: &str) -> bool {
    let pairs = shown.bytes().zip(token.bytes());
    shown.len() == token.len() && pairs.fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_of_this_machine() {
        let shown = |text: &str| text.parse::<LocalAddress>().map(|address| address.to_string());
        assert_eq!(shown("9817"), Ok("127.0.0.1:9817".to_owned()));
        assert_eq!(shown("localhost:9817"), Ok("127.0.0.1:9817".to_owned()));
        assert_eq!(shown("[::1]:9817"), Ok("[::1]:9817".to_owned()));
        assert!(shown("0.0.0.0:9817").unwrap_err().to_string().contains("this machine alone"));
        for wrong in ["", "x", "127.0.0.1", "127.0.0.1:99999", "example.org:80"] {
            assert!(shown(wrong).unwrap_err().to_string().contains("no address"), "{wrong}");
        }
    }
}
