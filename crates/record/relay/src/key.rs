//! Keys: which collector this is, and which recorders may record to it.
//!
//! A collector has a key pair; TLS shows its raw public key (RFC 7250), with no certificate around
//! it that could expire or name the wrong host. The recorder knows the key's fingerprint and
//! nothing else, so no third party has to be trusted. For the other direction there is a secret,
//! which the recorder sends once the connection is encrypted and the collector known. Fingerprint
//! and secret are one line of text, the *recorder's key*.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::Ed25519KeyPair;

use crate::error::{Error, Result};
use crate::signing::fingerprint;

/// File of the collector's private key, in PKCS #8.
const COLLECTOR: &str = "collector.key";
/// File of the recorder's key, beside it.
pub const RECORDER: &str = "recorder.key";
/// What a recorder's key begins with.
const PREFIX: &str = "fettle-recorder-1";

/// What a recorder has to know.
#[derive(Clone, PartialEq, Eq)]
pub struct RecorderKey {
    /// Hash of the collector's public key.
    pub(crate) fingerprint: [u8; 32],
    /// The secret that only recorders have.
    pub(crate) secret: [u8; 32],
}

impl fmt::Debug for RecorderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecorderKey({}, …)", hex(&self.fingerprint))
    }
}

/// What a collector has to know.
pub struct CollectorKey {
    pub(crate) pkcs8: Vec<u8>,
    pub(crate) secret: [u8; 32],
}

impl fmt::Debug for CollectorKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CollectorKey(…)")
    }
}

/// Random bytes of the system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Error::Crypto("the system gives no random numbers".to_owned()))?;
    Ok(bytes)
}

/// Hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of hexadecimal digits.
pub(crate) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

/// Whether two secrets are the same, in a time that does not depend on where they differ.
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    // Hashes of this library are compared in constant time.
    blake3::hash(a) == blake3::hash(b)
}

impl RecorderKey {
    /// Reads a key file, which other users must not be able to read.
    ///
    /// # Errors
    ///
    /// When it is missing, readable by others, or no key.
    pub fn read(path: &Path) -> Result<RecorderKey> {
        let bad = |problem: String| Error::Unusable { path: path.to_owned(), problem };
        let text = fs::read_to_string(path).map_err(|error| {
            bad(format!("{error}; copy `{RECORDER}` there from the aggregator, where `fettle collect` says its place"))
        })?;
        let mode = fs::metadata(path).map_err(|error| bad(error.to_string()))?.permissions().mode();
        if mode & 0o077 != 0 {
            let text = "others than its owner may read it; `chmod 600` it, and have a new one made if it was seen";
            return Err(bad(text.to_owned()));
        }
        RecorderKey::parse(&text).ok_or_else(|| bad("no key of a recorder".to_owned()))
    }

    /// Reads the line of text.
    pub fn parse(text: &str) -> Option<RecorderKey> {
        let rest = text.trim().strip_prefix(PREFIX)?.strip_prefix(':')?;
        let (fingerprint, secret) = rest.split_once(':')?;
        Some(RecorderKey { fingerprint: unhex(fingerprint)?, secret: unhex(secret)? })
    }

    /// The line of text.
    pub fn line(&self) -> String {
        format!("{PREFIX}:{}:{}", hex(&self.fingerprint), hex(&self.secret))
    }
}

impl CollectorKey {
    /// The keys in a folder of the collector's, made if there are none; and whether they were.
    ///
    /// # Errors
    ///
    /// When they cannot be read or made, or others may read them.
    pub fn open_or_make(folder: &Path) -> Result<(CollectorKey, RecorderKey, bool)> {
        let (own, line) = (folder.join(COLLECTOR), folder.join(RECORDER));
        let made = !own.exists();
        if made {
            let make = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
            make.map_err(Error::file("create", folder))?;
            let pair = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
            let pair = pair.map_err(|_| Error::Crypto("no key pair".to_owned()))?;
            let key = CollectorKey { pkcs8: pair.as_ref().to_vec(), secret: random()? };
            let fingerprint = fingerprint(&key.pkcs8)?;
            let recorder = RecorderKey { fingerprint, secret: key.secret };
            write_secret(&line, format!("{}\n", recorder.line()).as_bytes())?;
            // Written last: if it is there, so is the other.
            write_secret(&own, &key.pkcs8)?;
        }
        let mode = fs::metadata(&own).map_err(Error::file("read", &own))?.permissions().mode();
        if mode & 0o077 != 0 {
            let problem = "others than its owner may read it: remove the folder to have new keys \
                           made, and give the recorders the new one";
            return Err(Error::Unusable { path: own, problem: problem.to_owned() });
        }
        let pkcs8 = fs::read(&own).map_err(Error::file("read", &own))?;
        let recorder = RecorderKey::read(&line)?;
        let key = CollectorKey { pkcs8, secret: recorder.secret };
        if fingerprint(&key.pkcs8)? != recorder.fingerprint {
            let problem = format!("it belongs to another {COLLECTOR} than the one beside it");
            return Err(Error::Unusable { path: line, problem });
        }
        Ok((key, recorder, made))
    }
}

fn write_secret(path: &Path, bytes: &[u8]) -> Result<()> {
    let _ = fs::remove_file(path);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let write = file.and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()));
    write.map_err(Error::file("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_made_once_and_for_their_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let keys = folder.path().join("a/b");
        let (first, recorder, made) = CollectorKey::open_or_make(&keys).unwrap();
        assert!(made);
        let (second, again, made) = CollectorKey::open_or_make(&keys).unwrap();
        assert!(!made && first.pkcs8 == second.pkcs8 && recorder == again);
        for name in [COLLECTOR, RECORDER] {
            let mode = fs::metadata(keys.join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(RecorderKey::parse(&recorder.line()), Some(recorder.clone()));
        assert!(!format!("{recorder:?}").contains(&hex(&recorder.secret)));
        fs::set_permissions(keys.join(RECORDER), fs::Permissions::from_mode(0o644)).unwrap();
        let refused = RecorderKey::read(&keys.join(RECORDER)).unwrap_err().to_string();
        assert!(refused.contains("chmod 600"), "{refused}");
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let good = RecorderKey { fingerprint: [1; 32], secret: [2; 32] }.line();
        assert!(RecorderKey::parse(&good).is_some());
        for bad in
            ["", "fettle-recorder-1", &good[1..], &good[..good.len() - 1], &format!("{good}0")]
        {
            assert!(RecorderKey::parse(bad).is_none(), "{bad}");
        }
        let other = good.replace("02", "+2");
        assert!(RecorderKey::parse(&other).is_none());
    }
}
