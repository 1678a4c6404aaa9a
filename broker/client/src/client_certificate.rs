//! The caller's client certificate, as the commands send it to a server instead of a token.

use std::path::PathBuf;

use keyferry_platform::regular_file;
use secrecy::SecretSlice;
use zeroize::Zeroize;

/// The largest file that is read: a chain and a key take a few kilobytes.
const MAX_BYTES: u64 = 64 * 1024;

/// The PEM files of the caller's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificateFiles {
    /// The certificate, and those of the intermediate CAs after it.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// A file of the caller's certificate cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "reading the caller's {content} from {path}: it does not exist, or is no file that you may read"
)]
pub struct ClientCertificateError {
    content: &'static str,
    path: PathBuf,
}

impl ClientCertificateFiles {
    /// Reads both files into one PEM text, as a TLS client takes it.
    ///
    /// # Errors
    /// [`ClientCertificateError`].
    pub(crate) fn read_pem(&self) -> Result<SecretSlice<u8>, ClientCertificateError> {
        let read = |what, path: &PathBuf| {
            regular_file::read_regular_file(path, MAX_BYTES).map_err(|_| ClientCertificateError {
                content: what,
                path: path.clone(),
            })
        };
        let certificate = read("client certificate", &self.certificate)?;
        let mut key = read("client key", &self.key)?;
        // Allocated once, so that no copy of the key is left behind by growth.
        let mut pem = Vec::with_capacity(certificate.len() + key.len() + 1);
        pem.extend_from_slice(&certificate);
        pem.push(b'\n');
        pem.extend_from_slice(&key);
        key.zeroize();
        Ok(pem.into())
    }
}
