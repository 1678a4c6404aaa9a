//! Loads the serving certificate of a listener from its files into a TLS configuration.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use keyferry_api::config::TlsFiles;
use keyferry_api::reason::Reason;
use keyferry_keys::serving_certificate;
use rustls::server::NoServerSessionStorage;
use rustls::{ServerConfig, SupportedProtocolVersion};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// The largest file that is read. A certificate chain takes a few kilobytes.
const MAX_BYTES: u64 = 1 << 20;

/// A serving certificate cannot be used: what, where, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{reason}: {file}: {problem}; fix: {fix}", reason = Reason::ServingCertificateInvalid, file = file.display())]
pub struct ServingCertificateError {
    file: PathBuf,
    problem: String,
    fix: String,
    absent: bool,
}

impl ServingCertificateError {
    /// The missing file, if that is the only problem: it may exist on another machine.
    pub fn absent(&self) -> Option<&Path> {
        self.absent.then_some(self.file.as_path())
    }
}

/// What a serving certificate must satisfy for its listener.
#[derive(Clone, Debug)]
pub(super) struct Requirements {
    /// The host name that clients use, if known.
    pub(super) host: Option<String>,
    /// The supported TLS versions.
    pub(super) versions: &'static [&'static SupportedProtocolVersion],
}

/// The content of both files.
#[derive(PartialEq, Eq)]
pub(super) struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// A checked certificate that is ready to serve.
pub(super) struct ServingCertificate {
    pub(super) config: Arc<ServerConfig>,
    pub(super) not_after: Timestamp,
}

impl Files {
    /// Reads both files.
    pub(super) fn read(files: &TlsFiles) -> Result<Self, ServingCertificateError> {
        Ok(Self {
            certificate: bytes(&files.certificate)?,
            key: bytes(&files.key)?,
        })
    }
}

impl ServingCertificate {
    /// Checks and loads the content of `files`.
    pub(super) fn of(
        read: &Files,
        files: &TlsFiles,
        requirements: &Requirements,
        now: Timestamp,
    ) -> Result<Self, ServingCertificateError> {
        let in_certificate = |problem: &str, fix: &str| wrong(&files.certificate, problem, fix);
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read.certificate).collect();
        let chain = chain.map_err(|_| {
            in_certificate(
                "it is no PEM text",
                "write the certificate chain as PEM, the listener's own first",
            )
        })?;
        let Some(leaf) = chain.first() else {
            return Err(in_certificate(
                "it holds no certificate",
                "write the certificate chain as PEM, the listener's own first",
            ));
        };
        let not_after = serving_certificate::check(leaf, requirements.host.as_deref(), now)
            .map_err(|error| wrong(&files.certificate, error.to_string(), error.fix()))?;
        // The library's error is dropped, because it may describe the private key.
        let key = PrivateKeyDer::from_pem_slice(&read.key).map_err(|_| {
            wrong(
                &files.key,
                "it holds no private key",
                "write the key of the certificate as PEM, unencrypted",
            )
        })?;
        let builder = ServerConfig::builder_with_provider(Arc::new(
            rustls::crypto::aws_lc_rs::default_provider(),
        ));
        let builder = builder.with_protocol_versions(requirements.versions);
        let builder = builder.map_err(|_| {
            in_certificate(
                "TLS cannot be set up for it",
                "report this as a bug in Keyferry",
            )
        })?;
        let config = builder.with_no_client_auth().with_single_cert(chain, key);
        let mut config = config.map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => wrong(
                &files.key,
                "it is not the key of the certificate",
                "put the certificate and the key of one pair in place together",
            ),
            _ => wrong(
                &files.key,
                "the key or the certificate is of a kind that TLS cannot use",
                "use a key of ECDSA P-256, P-384 or RSA",
            ),
        })?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // A resumed session would rely on checks made when it began. Without tickets, each
        // handshake also takes a tenth less CPU time.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self {
            config: Arc::new(config),
            not_after,
        })
    }
}

fn wrong(
    file: &Path,
    problem: impl Into<String>,
    fix: impl Into<String>,
) -> ServingCertificateError {
    ServingCertificateError {
        file: file.to_owned(),
        problem: problem.into(),
        fix: fix.into(),
        absent: false,
    }
}

fn bytes(path: &Path) -> Result<Vec<u8>, ServingCertificateError> {
    let unread = |error: &std::io::Error| ServingCertificateError {
        absent: error.kind() == ErrorKind::NotFound,
        ..wrong(
            path,
            format!("it cannot be read: {error}"),
            "mount the file there, readable for Keyferry's user",
        )
    };
    let metadata = std::fs::metadata(path).map_err(|error| unread(&error))?;
    // Anything else, such as a named pipe, could block the start for ever.
    if !metadata.is_file() {
        return Err(wrong(path, "it is not a regular file", "name a file"));
    }
    if metadata.len() > MAX_BYTES {
        return Err(wrong(
            path,
            "it is larger than 1 MiB",
            "name the file with the certificate or key and nothing else",
        ));
    }
    std::fs::read(path).map_err(|error| unread(&error))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use keyferry_api::config::TlsFiles;
    use keyferry_hub::clock::{Clock, SystemClock};
    use keyferry_testing::Authority;
    use secrecy::ExposeSecret;

    use super::{Files, Requirements, ServingCertificate};

    #[test]
    fn each_fault_is_named_with_its_file_and_its_fix() {
        let folder = tempfile::tempdir().unwrap();
        let files = TlsFiles {
            certificate: folder.path().join("tls.crt"),
            key: folder.path().join("tls.key"),
        };
        let authority = Authority::new("test CA").unwrap();
        let (one, other) = (
            authority.server_identity(&["localhost"]).unwrap(),
            authority.server_identity(&["localhost"]).unwrap(),
        );
        let (certificate, key) = (one.certificate_pem.as_str(), one.key_pem.expose_secret());
        let check = |certificate: &str, key: &str, host: Option<&str>, later: Duration| {
            std::fs::write(&files.certificate, certificate).unwrap();
            std::fs::write(&files.key, key).unwrap();
            let requirements = Requirements {
                host: host.map(str::to_owned),
                versions: rustls::ALL_VERSIONS,
            };
            let now = SystemClock::start().now().wall + later;
            let checked = Files::read(&files)
                .and_then(|read| ServingCertificate::of(&read, &files, &requirements, now));
            checked.map(|_| ()).map_err(|error| error.to_string())
        };
        let today = Duration::ZERO;
        assert_eq!(check(certificate, key, Some("localhost"), today), Ok(()));
        let long = Duration::from_secs(3600 * 24 * 366 * 5000);
        let cases = [
            (
                check("", key, None, today),
                "tls.crt: it holds no certificate",
            ),
            (
                check("-----BEGIN CERTIFICATE-----\n!", key, None, today),
                "tls.crt: it is no PEM text",
            ),
            (
                check(certificate, "", None, today),
                "tls.key: it holds no private key",
            ),
            (
                check(certificate, certificate, None, today),
                "tls.key: it holds no private key",
            ),
            (
                check(certificate, other.key_pem.expose_secret(), None, today),
                "tls.key: it is not the key of the certificate",
            ),
            (
                check(certificate, key, Some("keyferry.example.com"), today),
                "tls.crt: the certificate is not for keyferry.example.com, but for localhost",
            ),
            (
                check(certificate, key, None, long),
                "tls.crt: the certificate expired at",
            ),
            (
                check(&"x".repeat(2 << 20), key, None, today),
                "tls.crt: it is larger than 1 MiB",
            ),
        ];
        for (outcome, wanted) in cases {
            let text = outcome.unwrap_err();
            assert!(
                text.starts_with("ServingCertificateInvalid: ")
                    && text.contains(wanted)
                    && text.contains("; fix: "),
                "{wanted}: {text}"
            );
        }
        let nowhere = TlsFiles {
            certificate: folder.path().to_owned(),
            key: files.key.clone(),
        };
        let error = Files::read(&nowhere).err().unwrap();
        assert!(
            error.to_string().contains("it is not a regular file") && error.absent().is_none(),
            "{error}"
        );
        let absent = TlsFiles {
            certificate: folder.path().join("absent"),
            key: files.key.clone(),
        };
        assert_eq!(
            Files::read(&absent).err().unwrap().absent(),
            Some(absent.certificate.as_path())
        );
    }
}
