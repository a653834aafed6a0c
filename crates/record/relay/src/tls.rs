//! TLS 1.3 with raw public keys, over sockets on which every wait has an end.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring as provider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, ServerConfig, ServerConnection,
    SignatureScheme, StreamOwned,
};

use crate::error::Result;
use crate::key::{CollectorKey, RecorderKey, same};
use crate::signing::{crypto, public_key, signing_key};

/// How a collector answers.
pub(crate) fn server_config(key: &CollectorKey) -> Result<Arc<ServerConfig>> {
    let signing = signing_key(&key.pkcs8)?;
    let public = CertificateDer::from(public_key(&*signing)?);
    let certified = Arc::new(CertifiedKey::new(vec![public], signing));
    let config = ServerConfig::builder_with_provider(Arc::new(provider::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .map_err(crypto)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified)));
    Ok(Arc::new(config))
}

/// The TLS configuration of a recorder.
pub(crate) fn client_config(key: &RecorderKey) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(provider::default_provider());
    let pinned = Pinned { fingerprint: key.fingerprint, provider: provider.clone() };
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(crypto)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(pinned))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Takes one key and no other.
#[derive(Debug)]
struct Pinned {
    fingerprint: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let found = blake3::hash(end_entity);
        if same(found.as_bytes(), &self.fingerprint) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(rustls::Error::General(
            "it is not the collector of this key: its fingerprint is another".to_owned(),
        ))
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.3 alone is spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let key = SubjectPublicKeyInfoDer::from(cert.as_ref());
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &key, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// A socket on which whatever is done ends in time, however slowly bytes trickle in.
#[derive(Debug)]
pub(crate) struct Timed {
    socket: TcpStream,
    until: Instant,
}

impl Timed {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        // A time-out of zero means none to the system.
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

impl Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(self.left()?)?;
        self.socket.read(bytes).map_err(timed_out)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        self.socket.write(bytes).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// One end of a connection, on which frames are read and written.
pub trait Channel: Read + Write {
    /// Whatever is read and written from now on has to be done within this time.
    fn within(&mut self, time: Duration);
}

impl Channel for StreamOwned<ClientConnection, Timed> {
    fn within(&mut self, time: Duration) {
        self.sock.until = Instant::now() + time;
    }
}

impl Channel for StreamOwned<ServerConnection, Timed> {
    fn within(&mut self, time: Duration) {
        self.sock.until = Instant::now() + time;
    }
}

/// Answers a connection; the handshake has to be done within `time`.
pub(crate) fn accept(
    config: Arc<ServerConfig>,
    socket: TcpStream,
    time: Duration,
) -> io::Result<StreamOwned<ServerConnection, Timed>> {
    socket.set_nodelay(true)?;
    let mut socket = Timed { socket, until: Instant::now() + time };
    let mut connection = ServerConnection::new(config).map_err(io::Error::other)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut socket)?;
    }
    Ok(StreamOwned::new(connection, socket))
}

/// Asks for a connection; the handshake has to be done within `time`.
pub(crate) fn connect(
    config: Arc<ClientConfig>,
    socket: TcpStream,
    time: Duration,
) -> io::Result<StreamOwned<ClientConnection, Timed>> {
    socket.set_nodelay(true)?;
    let mut socket = Timed { socket, until: Instant::now() + time };
    // Keys have no names; the verifier does not look at this one.
    let name = ServerName::try_from("collector").map_err(io::Error::other)?;
    let mut connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut socket)?;
    }
    Ok(StreamOwned::new(connection, socket))
}
