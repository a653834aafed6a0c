//! A collector's key pair: what it signs with, shows, and is recognised by.

use std::sync::Arc;

use rustls::crypto::ring as provider;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::SigningKey;

use crate::error::{Error, Result};

pub(crate) fn crypto(error: impl ToString) -> Error {
    Error::Crypto(error.to_string())
}

/// The key pair with which a collector signs.
pub(crate) fn signing_key(pkcs8: &[u8]) -> Result<Arc<dyn SigningKey>> {
    let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pkcs8.to_vec()));
    provider::default_provider().key_provider.load_private_key(der).map_err(crypto)
}

/// The public key of a key pair, as TLS shows it.
pub(crate) fn public_key(key: &dyn SigningKey) -> Result<Vec<u8>> {
    let public = key.public_key().ok_or_else(|| crypto("a key without a public part"))?;
    Ok(public.as_ref().to_vec())
}

/// Hash of a collector's public key.
pub(crate) fn fingerprint(pkcs8: &[u8]) -> Result<[u8; 32]> {
    Ok(*blake3::hash(&public_key(&*signing_key(pkcs8)?)?).as_bytes())
}
