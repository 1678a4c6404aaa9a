//! Reloads the targets' CA certificates every half minute and after each change of the targets.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::config::{CertificateSource, Generation, Policy, TargetCluster};
use keyferry_api::name::{ObjectName, TrustBundleName};
use keyferry_api::reason::Reason;
use keyferry_hub::ports::{CertificateSecrets, HubError, TrustBundleError};
use keyferry_hub::targets::{Readiness, TargetState, TargetWriter};
use keyferry_keys::ca_bundle::CaBundle;
use keyferry_platform::clock::Clock;
use keyferry_platform::policy_store::PolicyReader;
use keyferry_platform::reload_signal::ReloadSignal;

const REFRESH_INTERVAL: Duration = Duration::from_secs(30);

/// Follows the targets until the task is dropped.
pub async fn run_target_certificate_refresh(
    policy: PolicyReader,
    secrets: Arc<dyn CertificateSecrets>,
    targets: TargetWriter,
    clock: Arc<dyn Clock>,
    mut reload_signal: ReloadSignal,
) {
    let mut changes = policy.changes();
    loop {
        let resolved = target_generations(&policy.current());
        resolve_readiness(&policy, &*secrets, &targets, &*clock).await;
        let again = tokio::time::sleep(REFRESH_INTERVAL);
        tokio::pin!(again);
        loop {
            tokio::select! {
                () = &mut again => break,
                () = reload_signal.received() => break,
                changed = changes.changed() => if changed.is_err() { return },
            }
            // Tenants can change the policy as often as they like, so Secrets are reloaded only for
            // a change of the targets.
            if target_generations(&policy.current()) != resolved {
                break;
            }
        }
    }
}

fn target_generations(policy: &Policy) -> Vec<(ObjectName, Generation)> {
    policy
        .targets
        .values()
        .map(|target| (target.name.clone(), target.generation))
        .collect()
}

/// Determines each target's readiness. A bad certificate affects only its own target.
pub async fn resolve_readiness(
    policy: &PolicyReader,
    secrets: &dyn CertificateSecrets,
    targets: &TargetWriter,
    clock: &dyn Clock,
) {
    let policy = policy.current();
    let reader = targets.reader();
    let mut read: HashMap<&ObjectName, Option<CertificateState>> = HashMap::new();
    let mut states = HashMap::new();
    for target in policy.targets.values() {
        let before = reader
            .last_state(&target.name)
            .filter(|state| state.generation == target.generation);
        let plain = |readiness| CertificateState {
            readiness,
            client_certificate: false,
        };
        let CertificateState {
            readiness,
            client_certificate,
        } = match &target.certificate {
            CertificateSource::System => plain(Readiness::Ready(None)),
            CertificateSource::Inline(pem) => plain(parse_bundle(pem.as_bytes(), clock.now().wall)),
            CertificateSource::TrustBundle(name) => {
                match read_trust_bundle(secrets, name, clock.now().wall).await {
                    Ok(readiness) => plain(readiness),
                    Err(_) => unreachable_hub(before.as_ref()),
                }
            }
            CertificateSource::Secret(name) => {
                let known = match read.get(name) {
                    Some(known) => known.clone(),
                    None => read_secret(secrets, name, clock.now().wall).await.ok(),
                };
                read.insert(name, known.clone());
                // Each target falls back to its own state, not to that of another with the same
                // Secret.
                known.unwrap_or_else(|| unreachable_hub(before.as_ref()))
            }
        };
        log_readiness(target, before.as_ref(), &readiness);
        states.insert(
            target.name.clone(),
            TargetState {
                generation: target.generation,
                readiness,
                client_certificate,
            },
        );
    }
    targets.replace(states);
}

/// Keeps the previous state when the hub does not answer.
fn unreachable_hub(before: Option<&TargetState>) -> CertificateState {
    match before {
        Some(state) => CertificateState {
            readiness: state.readiness.clone(),
            client_certificate: state.client_certificate,
        },
        None => CertificateState {
            readiness: Readiness::NotReady {
                reason: Reason::TargetNotReady,
                message: "its CA certificates could not be read: the hub did not answer".to_owned(),
            },
            client_certificate: false,
        },
    }
}

/// The result of reading a Secret.
#[derive(Clone)]
struct CertificateState {
    readiness: Readiness,
    client_certificate: bool,
}

async fn read_secret(
    secrets: &dyn CertificateSecrets,
    name: &ObjectName,
    now: Timestamp,
) -> Result<CertificateState, HubError> {
    let invalid = |message: String| CertificateState {
        readiness: Readiness::NotReady {
            reason: Reason::CertificateAuthorityInvalid,
            message,
        },
        client_certificate: false,
    };
    match secrets.certificate(name).await {
        Ok(entry) => {
            if entry.legacy_key {
                tracing::warn!(secret = %name, "the Secret holds its CA under the legacy key \
                    caFile; rename it to ca.crt");
            }
            if entry.client_certificate {
                tracing::warn!(secret = %name, "the Secret also holds a client certificate or key; \
                    it is ignored and never issued");
            }
            let found = match entry.pem {
                Some(pem) => CertificateState {
                    readiness: parse_bundle(&pem, now),
                    client_certificate: false,
                },
                None => invalid(
                    "the Secret of certSecretRef has no ca.crt; add the target's CA \
                    certificates under that key"
                        .to_owned(),
                ),
            };
            Ok(CertificateState {
                client_certificate: entry.client_certificate,
                ..found
            })
        }
        Err(error) if error.proves_unreachable() => Err(error),
        Err(HubError::NotFound(_)) => Ok(invalid(
            "the Secret of certSecretRef does not exist in Keyferry's namespace; create \
                it there with ca.crt"
                .to_owned(),
        )),
        Err(HubError::Forbidden(_)) => Ok(invalid(
            "Keyferry may not read the Secret of certSecretRef; bind the Role that it \
                ships in its own namespace"
                .to_owned(),
        )),
        Err(_) => Ok(invalid(
            "the Secret of certSecretRef could not be read; its data must be \
            base64"
                .to_owned(),
        )),
    }
}

/// Reads a ClusterTrustBundle. An error means that the hub did not answer.
async fn read_trust_bundle(
    secrets: &dyn CertificateSecrets,
    name: &TrustBundleName,
    now: Timestamp,
) -> Result<Readiness, HubError> {
    let message = match secrets.trust_bundle(name).await {
        Ok(pem) => return Ok(parse_bundle(&pem, now)),
        Err(TrustBundleError::Hub(error)) if error.proves_unreachable() => return Err(error),
        Err(TrustBundleError::Hub(HubError::Forbidden(_))) => {
            "Keyferry may not read the ClusterTrustBundle of clusterTrustBundleRef; bind Kubernetes' \
             ClusterRole system:cluster-trust-bundle-discovery to system:serviceaccounts again"
                .to_owned()
        }
        Err(error) => format!("clusterTrustBundleRef: {error}"),
    };
    Ok(Readiness::NotReady {
        reason: Reason::CertificateAuthorityInvalid,
        message,
    })
}

fn parse_bundle(pem: &[u8], now: Timestamp) -> Readiness {
    match CaBundle::from_pem(pem, now) {
        Ok(bundle) => Readiness::Ready(Some(bundle.to_pem().into())),
        Err(error) => Readiness::NotReady {
            reason: Reason::CertificateAuthorityInvalid,
            message: format!("ca.crt: {error}"),
        },
    }
}

fn log_readiness(target: &TargetCluster, before: Option<&TargetState>, readiness: &Readiness) {
    if before.is_some_and(|state| state.readiness == *readiness) {
        return;
    }
    match readiness {
        Readiness::Ready(Some(_)) => {
            tracing::info!(target_cluster = %target.name, "the target's CA certificates are read")
        }
        // Its client certificates' Secrets get the hub's own CA.
        Readiness::Ready(None) if target.client_certificates.is_some() => {}
        Readiness::Ready(None) => {
            tracing::warn!(target_cluster = %target.name, "the target names no CA: its clients use \
                their own roots");
        }
        Readiness::NotReady { reason, message } => {
            tracing::error!(target_cluster = %target.name, %reason, message, "the target is not ready")
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::BoxFuture;
    use keyferry_api::config::{self, Policy};
    use keyferry_api::name::{ObjectName, TrustBundleName};
    use keyferry_api::reason::Reason;
    use keyferry_hub::ports::{CertificateEntry, CertificateSecrets, HubError, TrustBundleError};
    use keyferry_hub::targets::{Readiness, TargetWriter};
    use keyferry_issuer::testing::FakeClock;
    use keyferry_platform::clock::Clock;
    use keyferry_platform::policy_store::PolicyWriter;
    use keyferry_platform::reload_signal::ReloadSignal;

    use super::{read_trust_bundle, run_target_certificate_refresh};

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl CertificateSecrets for Counted {
        fn certificate<'a>(
            &'a self,
            _: &'a ObjectName,
        ) -> BoxFuture<'a, Result<CertificateEntry, HubError>> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Box::pin(async { Ok(CertificateEntry::default()) })
        }

        fn trust_bundle<'a>(
            &'a self,
            name: &'a TrustBundleName,
        ) -> BoxFuture<'a, Result<Vec<u8>, TrustBundleError>> {
            self.0.fetch_add(1, Ordering::SeqCst);
            let answer = match name.as_str() {
                "unserved" => Err(TrustBundleError::NotServed),
                "away" => Err(HubError::Unreachable("away".to_owned()).into()),
                "text" => Ok(b"text".to_vec()),
                _ => Err(TrustBundleError::Absent(name.clone())),
            };
            Box::pin(async { answer })
        }
    }

    fn policy(address: &str, access: &str) -> Policy {
        let text = format!(
            "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nhubName: hub\npublicURL: https://keyferry.example.com\n\
             discovery: {{tls: {{certFile: a, keyFile: b}}}}\napi: {{tls: {{certFile: a, keyFile: b}}}}\n---\n\
             apiVersion: keyferry.dev/v1alpha1\nkind: TargetCluster\nmetadata: {{name: prod}}\n\
             spec: {{address: {address}, audience: prod, certSecretRef: {{name: ca}}}}\n---\n\
             apiVersion: keyferry.dev/v1alpha1\nkind: TargetAccess\nmetadata: {{name: {access}, namespace: t}}\n\
             spec: {{targetClusterRef: {{name: prod}}, serviceAccountName: s}}\n"
        );
        config::read(&text).unwrap().policy
    }

    #[tokio::test]
    async fn a_trust_bundle_that_gives_no_ca_says_why() {
        let read = async |name: &str| {
            let name = TrustBundleName::new(name).unwrap();
            let now = FakeClock::start().now().wall;
            let readiness = read_trust_bundle(&Counted::default(), &name, now).await;
            readiness.map(|readiness| match readiness {
                Readiness::NotReady { reason, message } => (reason, message),
                Readiness::Ready(_) => panic!("{name} is ready"),
            })
        };
        for (name, wanted) in [
            ("unserved", "the hub serves no ClusterTrustBundles; fix: "),
            ("absent", "the hub has no ClusterTrustBundle absent; fix: "),
            ("text", "is not PEM"),
        ] {
            let (reason, message) = read(name).await.unwrap();
            assert_eq!(reason, Reason::CertificateAuthorityInvalid);
            assert!(message.contains(wanted), "{message}");
        }
        assert!(read("away").await.is_err(), "what was read before stays");
    }

    #[tokio::test]
    async fn a_tenants_change_reads_no_secret() {
        let (writer, secrets) = (
            PolicyWriter::new(policy("https://a", "one")),
            Arc::new(Counted::default()),
        );
        let port: Arc<dyn CertificateSecrets> = Arc::<Counted>::clone(&secrets);
        let task = tokio::spawn(run_target_certificate_refresh(
            writer.reader(),
            port,
            TargetWriter::default(),
            FakeClock::start(),
            ReloadSignal::never(),
        ));
        let counted = async || {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            secrets.0.load(Ordering::SeqCst)
        };
        assert_eq!(counted().await, 1);
        writer.replace(policy("https://a", "two"));
        assert_eq!(counted().await, 1);
        writer.replace(policy("https://b", "two"));
        assert_eq!(counted().await, 2);
        task.abort();
    }
}
