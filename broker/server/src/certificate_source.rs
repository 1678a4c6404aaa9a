//! Reads the serving certificate of a listener from its files, or from its Secret on the hub.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::condition::Finding;
use keyferry_api::config::{TlsFiles, TlsSource};
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_hub::event;
use keyferry_hub::ports::{HubError, HubObjects, ServingSecret, ServingSecrets};
use keyferry_hub::random::Random;
use keyferry_hub::regular_file::{self, FileError};
use secrecy::{ExposeSecret, SecretSlice};

use super::serving_certificate::ServingCertificateError;

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

/// Where the Secrets with serving certificates are, and how their faults are reported.
#[derive(Clone)]
pub struct CertificateSecrets {
    /// Keyferry's namespace.
    pub namespace: Namespace,
    /// Reads and watches them.
    pub secrets: Arc<dyn ServingSecrets>,
    /// Writes Events about them.
    pub objects: Arc<dyn HubObjects>,
    /// Draws the names of Events.
    pub random: Arc<dyn Random>,
}

/// The source of one listener's certificate.
#[derive(Clone)]
pub(super) enum CertificateSource {
    Files {
        files: TlsFiles,
        events: Option<PodEvents>,
    },
    Secret {
        name: ObjectName,
        access: CertificateSecrets,
    },
}

/// A certificate and its key as read, unchecked.
pub(super) struct CertificateContent {
    /// Where the certificate is, for messages.
    pub(super) certificate_at: String,
    /// Where the key is, for messages.
    pub(super) key_at: String,
    pub(super) certificate: Vec<u8>,
    pub(super) key: SecretSlice<u8>,
    /// `ca.crt` of the same Secret, or beside the certificate's file. Clients may be told to trust
    /// it.
    pub(super) authority: Option<Vec<u8>>,
}

/// What a source gave.
pub(super) struct CertificateRead {
    pub(super) content: Result<CertificateContent, ServingCertificateError>,
    /// The Secret, if the source is one and could be read.
    pub(super) secret: Option<ReadSecret>,
}

/// What is known of a Secret beside the certificate.
pub(super) struct ReadSecret {
    pub(super) version: String,
    pub(super) uid: String,
}

impl CertificateContent {
    /// Whether both have the same certificate and key.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.certificate == other.certificate
            && self.key.expose_secret() == other.key.expose_secret()
    }
}

impl CertificateSource {
    /// The source that the configuration names. Without access to the hub, a Secret is an error.
    pub(super) fn of(
        source: &TlsSource,
        access: &CertificateAccess,
    ) -> Result<Self, ServingCertificateError> {
        match (source, &access.secrets) {
            (TlsSource::Files(files), _) => Ok(Self::Files {
                files: files.clone(),
                events: access.events.clone(),
            }),
            (TlsSource::Secret(name), Some(access)) => Ok(Self::Secret {
                name: name.clone(),
                access: access.clone(),
            }),
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

    /// Reads the certificate and the key.
    pub(super) async fn read(&self) -> CertificateRead {
        match self {
            Self::Files { files, .. } => CertificateRead {
                content: of_files(files),
                secret: None,
            },
            Self::Secret { name, access } => {
                let at = format!("Secret {}/{name}", access.namespace);
                match access.secrets.read(name).await {
                    Ok(mut secret) => CertificateRead {
                        secret: Some(ReadSecret {
                            version: std::mem::take(&mut secret.version),
                            uid: std::mem::take(&mut secret.uid),
                        }),
                        content: of_secret(secret, &at),
                    },
                    Err(error) => CertificateRead {
                        content: Err(unread(at, &error)),
                        secret: None,
                    },
                }
            }
        }
    }

    /// Waits until the source may have changed since `version`, that of the Secret as last read.
    pub(super) async fn changed(&self, version: Option<&str>) {
        match self {
            Self::Files { .. } => tokio::time::sleep(FILE_INTERVAL).await,
            Self::Secret { name, access } => access.secrets.changed(name, version).await,
        }
    }

    /// Writes an Event about the Secret, or about the process's own Pod if the certificate is in
    /// files: that is where people look for the cause of its state.
    pub(super) async fn report(
        &self,
        secret: Option<&ReadSecret>,
        finding: &Finding,
        now: Timestamp,
    ) {
        match (self, secret) {
            (Self::Secret { name, access }, Some(secret)) => {
                let about = event::Subject::secret(&access.namespace, name, &secret.uid);
                event::write(&access.objects, &*access.random, &about, finding, now).await;
            }
            (
                Self::Files {
                    events: Some(events),
                    ..
                },
                _,
            ) => {
                let Pod {
                    namespace,
                    name,
                    uid,
                } = &events.pod;
                let about = event::Subject::pod(namespace, name, uid);
                event::write(&events.objects, &*events.random, &about, finding, now).await;
            }
            _ => {}
        }
    }
}

fn of_files(files: &TlsFiles) -> Result<CertificateContent, ServingCertificateError> {
    Ok(CertificateContent {
        certificate: bytes(&files.certificate)?,
        key: SecretSlice::from(bytes(&files.key)?),
        // Keyferry does not need it, so a missing or unreadable one is no failure.
        authority: regular_file::read(&files.certificate.with_file_name("ca.crt"), MAX_BYTES).ok(),
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

fn unread(at: String, error: &HubError) -> ServingCertificateError {
    match error {
        HubError::NotFound(_) => ServingCertificateError::new(
            at,
            "it does not exist",
            "create it, of type kubernetes.io/tls, in Keyferry's namespace",
        )
        .absent(),
        HubError::Forbidden(_) => ServingCertificateError::new(
            at,
            error.to_string(),
            "allow Keyferry's account to get and watch this Secret by name",
        )
        .unread(),
        _ => ServingCertificateError::new(
            at,
            format!("it could not be read: {error}"),
            "wait until the hub answers; or mount the Secret and name its files, which need no hub",
        )
        .unread(),
    }
}

fn bytes(path: &Path) -> Result<Vec<u8>, ServingCertificateError> {
    let wrong = |problem: String, fix: &str| {
        ServingCertificateError::new(path.display().to_string(), problem, fix)
    };
    regular_file::read(path, MAX_BYTES).map_err(|error| match error {
        FileError::System(error) => {
            let absent = error.kind() == ErrorKind::NotFound;
            let error = wrong(
                format!("it cannot be read: {error}"),
                "mount the file there, readable for Keyferry's user",
            );
            if absent {
                error.absent()
            } else {
                error.unread()
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
    use keyferry_hub::ports::{HubError, ServingSecret};
    use secrecy::SecretSlice;

    use super::{of_secret, unread};

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
        assert!(unread(at(), &HubError::NotFound(String::new())).is_absent());
        let away = unread(at(), &HubError::Unreachable("refused".to_owned()));
        assert!(!away.is_absent() && away.is_unread(), "{away}");
    }
}
