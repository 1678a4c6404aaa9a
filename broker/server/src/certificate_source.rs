//! Reads the serving certificates of listeners from their files, or from their Secrets on the hub.

use std::future::ready;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use keyferry_api::condition::Finding;
use keyferry_api::config::{TlsFiles, TlsSource};
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_hub::event;
use keyferry_hub::ports::{HubError, HubObjects, ServingSecret};
use keyferry_hub::serving_secret::CertificateSecrets;
use keyferry_listener::{
    CertificateContent, CertificateRead, CertificateSource, ReadSecret, ServingCertificateError,
};
use keyferry_platform::clock::{Clock, SystemClock};
use keyferry_platform::random::Random;
use keyferry_platform::regular_file::{self, FileError};
use secrecy::{ExposeSecret, SecretSlice};

/// The largest file that is read. A certificate chain takes a few kilobytes.
const MAX_BYTES: u64 = 1 << 20;
/// How often the certificate files are checked for changes.
const FILE_INTERVAL: Duration = Duration::from_secs(30);
/// The type of a Secret with a serving certificate.
const SECRET_TYPE: &str = "kubernetes.io/tls";

/// What a listener needs to read its certificate, and to report a faulty one.
#[derive(Clone, Default)]
pub struct CertificateAccess {
    /// Needed only for a certificate in a Secret.
    pub secrets: Option<CertificateSecrets>,
    /// Reports faults of certificate files. None outside of a Pod.
    pub events: Option<PodEvents>,
}

/// Writes Events about the Pod in which the process runs.
#[derive(Clone)]
pub struct PodEvents {
    /// The Pod.
    pub pod: Pod,
    /// Writes them.
    pub objects: Arc<dyn HubObjects>,
    /// Draws their names.
    pub random: Arc<dyn Random>,
}

/// Identifies the Pod in which the process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its name.
    pub name: ObjectName,
    /// Its UID.
    pub uid: String,
}

/// The files with a certificate and its key.
struct CertificateFiles {
    files: TlsFiles,
    events: Option<PodEvents>,
}

/// The Secret with a certificate and its key.
struct CertificateSecret {
    name: ObjectName,
    access: CertificateSecrets,
}

/// The source that the configuration names. Without access to the hub, a Secret is an error.
pub(crate) fn certificate_source(
    source: &TlsSource,
    access: &CertificateAccess,
) -> Result<Arc<dyn CertificateSource>, ServingCertificateError> {
    match (source, &access.secrets) {
        (TlsSource::Files(files), _) => Ok(Arc::new(CertificateFiles {
            files: files.clone(),
            events: access.events.clone(),
        })),
        (TlsSource::Secret(name), Some(access)) => Ok(Arc::new(CertificateSecret {
            name: name.clone(),
            access: access.clone(),
        })),
        (TlsSource::Secret(name), None) => Err(ServingCertificateError::new(
            format!("Secret {name}"),
            "it cannot be read without the hub",
            "give --kubeconfig FILE",
        )),
        (TlsSource::Unset, _) => Err(ServingCertificateError::new(
            "the configuration".to_owned(),
            "it names no certificate for the listener",
            "set tls.secretName, or tls.certFile and tls.keyFile; or give --tls-secret",
        )),
    }
}

impl CertificateSource for CertificateFiles {
    fn read_certificate(&self) -> BoxFuture<'_, CertificateRead> {
        let read = CertificateRead {
            content: of_files(&self.files),
            secret: None,
            read_at: wall_clock(),
        };
        Box::pin(ready(read))
    }

    fn wait_for_change<'a>(&'a self, _: Option<&'a str>) -> BoxFuture<'a, ()> {
        Box::pin(tokio::time::sleep(FILE_INTERVAL))
    }

    /// Writes an Event about the process's own Pod: that is where people look for the cause of its
    /// state.
    fn report_finding<'a>(
        &'a self,
        _: Option<&'a ReadSecret>,
        finding: &'a Finding,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(PodEvents {
                pod,
                objects,
                random,
            }) = &self.events
            else {
                return;
            };
            let about = event::Subject::of_pod(&pod.namespace, &pod.name, &pod.uid);
            event::write_event(objects, &**random, &about, finding, wall_clock()).await;
        })
    }
}

impl CertificateSource for CertificateSecret {
    fn read_certificate(&self) -> BoxFuture<'_, CertificateRead> {
        Box::pin(async move {
            let at = format!("Secret {}/{}", self.access.namespace, self.name);
            let (content, secret) = match self.access.secrets.read(&self.name).await {
                Ok(mut secret) => {
                    let read = ReadSecret {
                        version: std::mem::take(&mut secret.version),
                        uid: std::mem::take(&mut secret.uid),
                    };
                    (of_secret(secret, &at), Some(read))
                }
                Err(error) => (Err(unread_error(at, &error)), None),
            };
            CertificateRead {
                content,
                secret,
                read_at: wall_clock(),
            }
        })
    }

    fn wait_for_change<'a>(&'a self, version: Option<&'a str>) -> BoxFuture<'a, ()> {
        self.access.secrets.wait_for_change(&self.name, version)
    }

    /// Writes an Event about the Secret.
    fn report_finding<'a>(
        &'a self,
        secret: Option<&'a ReadSecret>,
        finding: &'a Finding,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Self { name, access } = self;
            let Some(secret) = secret else {
                return;
            };
            let about = event::Subject::of_secret(&access.namespace, name, &secret.uid);
            event::write_event(
                &access.objects,
                &*access.random,
                &about,
                finding,
                wall_clock(),
            )
            .await;
        })
    }
}

fn wall_clock() -> Timestamp {
    SystemClock::start().now().wall
}

fn of_files(files: &TlsFiles) -> Result<CertificateContent, ServingCertificateError> {
    Ok(CertificateContent {
        certificate: read_bytes(&files.certificate)?,
        key: SecretSlice::from(read_bytes(&files.key)?),
        // Keyferry does not need it, so a missing or unreadable one is not an error.
        authority: regular_file::read_regular_file(
            &files.certificate.with_file_name("ca.crt"),
            MAX_BYTES,
        )
        .ok(),
        certificate_at: files.certificate.display().to_string(),
        key_at: files.key.display().to_string(),
    })
}

fn of_secret(
    secret: ServingSecret,
    at: &str,
) -> Result<CertificateContent, ServingCertificateError> {
    if secret.kind != SECRET_TYPE {
        return Err(ServingCertificateError::new(
            at.to_owned(),
            format!("its type is {:?}, not {SECRET_TYPE:?}", secret.kind),
            "delete it and create it again with kubectl create secret tls; the type of a Secret \
             cannot be changed",
        ));
    }
    // The hub's validation requires both keys, but not that they have content.
    let missing = |key: &str| {
        ServingCertificateError::new(
            at.to_owned(),
            format!("it has no {key}"),
            format!("add {key} to its data, as cert-manager and kubectl create secret tls do"),
        )
    };
    let certificate = secret.certificate.filter(|bytes| !bytes.is_empty());
    let key = secret.key.filter(|key| !key.expose_secret().is_empty());
    Ok(CertificateContent {
        certificate_at: format!("{at}: tls.crt"),
        key_at: format!("{at}: tls.key"),
        certificate: certificate.ok_or_else(|| missing("tls.crt"))?,
        key: key.ok_or_else(|| missing("tls.key"))?,
        authority: secret.authority,
    })
}

fn unread_error(at: String, error: &HubError) -> ServingCertificateError {
    match error {
        HubError::NotFound(_) => ServingCertificateError::new(
            at,
            "it does not exist",
            "create it, of type kubernetes.io/tls, in Keyferry's namespace",
        )
        .as_absent(),
        HubError::Forbidden(_) => ServingCertificateError::new(
            at,
            error.to_string(),
            "allow Keyferry's account to get and watch this Secret by name",
        )
        .as_unread(),
        _ => ServingCertificateError::new(
            at,
            format!("it could not be read: {error}"),
            "wait until the hub answers; or mount the Secret and name its files, which need no hub",
        )
        .as_unread(),
    }
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, ServingCertificateError> {
    let wrong = |problem: String, fix: &str| {
        ServingCertificateError::new(path.display().to_string(), problem, fix)
    };
    regular_file::read_regular_file(path, MAX_BYTES).map_err(|error| match error {
        FileError::System(error) => {
            let absent = error.kind() == ErrorKind::NotFound;
            let error = wrong(
                format!("it cannot be read: {error}"),
                "mount the file there, readable for Keyferry's user",
            );
            if absent {
                error.as_absent()
            } else {
                error.as_unread()
            }
        }
        FileError::NotRegular => wrong("it is not a regular file".to_owned(), "name a file"),
        FileError::TooLong(_) => wrong(
            "it is larger than 1 MiB".to_owned(),
            "name the file with the certificate or key and nothing else",
        ),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use keyferry_api::config::TlsFiles;
    use keyferry_hub::ports::{HubError, ServingSecret};
    use secrecy::SecretSlice;

    use super::{of_files, of_secret, unread_error};

    fn secret(kind: &str, certificate: Option<&str>, key: Option<&str>) -> ServingSecret {
        ServingSecret {
            version: "1".to_owned(),
            uid: "u".to_owned(),
            kind: kind.to_owned(),
            certificate: certificate.map(|text| text.as_bytes().to_vec()),
            key: key.map(|text| SecretSlice::from(text.as_bytes().to_vec())),
            authority: None,
        }
    }

    #[test]
    fn a_secret_of_another_form_is_named_with_its_fix() {
        let at = "Secret keyferry-system/api-tls";
        for (read, wanted) in [
            (
                secret("Opaque", Some("c"), Some("k")),
                "api-tls: its type is \"Opaque\"",
            ),
            (
                secret("", Some("c"), Some("k")),
                "api-tls: its type is \"\"",
            ),
            (
                secret("kubernetes.io/tls", None, Some("k")),
                "api-tls: it has no tls.crt",
            ),
            (
                secret("kubernetes.io/tls", Some("c"), Some("")),
                "api-tls: it has no tls.key",
            ),
        ] {
            let error = of_secret(read, at).err().unwrap().to_string();
            assert!(
                error.starts_with("ServingCertificateInvalid: Secret keyferry-system/")
                    && error.contains(wanted)
                    && error.contains("; fix: "),
                "{wanted}: {error}"
            );
        }
        let read = of_secret(secret("kubernetes.io/tls", Some("c"), Some("k")), at).unwrap();
        assert_eq!(read.key_at, "Secret keyferry-system/api-tls: tls.key");
    }

    #[test]
    fn only_a_missing_secret_is_absent() {
        let at = || "Secret a/b".to_owned();
        assert!(unread_error(at(), &HubError::NotFound(String::new())).is_absent());
        let away = unread_error(at(), &HubError::Unreachable("refused".to_owned()));
        assert!(!away.is_absent() && away.is_unread(), "{away}");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named_with_its_fix() {
        let folder = tempfile::tempdir().unwrap();
        let files = TlsFiles {
            certificate: folder.path().join("tls.crt"),
            key: folder.path().join("tls.key"),
        };
        let read = |files: &TlsFiles| of_files(files).err().unwrap();
        assert!(read(&files).is_absent());
        std::fs::write(&files.key, "k").unwrap();
        std::fs::write(&files.certificate, "x".repeat(2 << 20)).unwrap();
        let long = read(&files).to_string();
        assert!(
            long.starts_with("ServingCertificateInvalid: ")
                && long.contains("tls.crt: it is larger than 1 MiB; fix: "),
            "{long}"
        );
        let nowhere = TlsFiles {
            certificate: folder.path().to_owned(),
            key: files.key.clone(),
        };
        let error = read(&nowhere);
        assert!(
            error
                .to_string()
                .contains("it is not a regular file; fix: ")
                && !error.is_absent(),
            "{error}"
        );
        std::fs::write(&files.certificate, "c").unwrap();
        let content = of_files(&files).unwrap();
        assert_eq!(
            (content.certificate, content.authority),
            (b"c".to_vec(), None)
        );
        std::fs::write(folder.path().join("ca.crt"), "a").unwrap();
        assert_eq!(of_files(&files).unwrap().authority, Some(b"a".to_vec()));
    }
}
