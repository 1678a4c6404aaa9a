//! Polls the Secrets of credentials for fleet inputs, so that a rotated token is accepted and a
//! revoked one refused without a restart.
//!
//! Keyferry may get Secrets of its namespace by name and not list them, so it reads 200 of them
//! every 10 s, in rotation.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use keyferry_api::config::InputCredential;
use keyferry_api::name::ObjectName;
use keyferry_api::reason::Reason;
use keyferry_core::inputs::credential::{CredentialBook, CredentialHashes};
use keyferry_hub::input_credentials::{
    CredentialWriter, InputSecretError, InputSecrets, ReadHashes,
};
use keyferry_platform::clock::Clock;
use keyferry_platform::reload_signal::ReloadSignal;
use tokio::sync::watch;

const READ_INTERVAL: Duration = Duration::from_secs(10);
/// How many Secrets are read in one interval.
const MAX_READS_PER_INTERVAL: usize = 200;
/// How many Secrets are read at once.
const MAX_CONCURRENT_READS: usize = 4;

/// The dependencies of [`run_input_credential_refresh`].
pub struct InputCredentialParts {
    /// The credentials of the configuration file, as last read.
    pub credentials: watch::Receiver<Arc<[Arc<InputCredential>]>>,
    /// Reads their Secrets.
    pub secrets: Arc<dyn InputSecrets>,
    /// Publishes their hashes.
    pub writer: CredentialWriter,
    /// The key under which hashes are found.
    pub hash_key: [u8; 32],
    /// How long hashes count while the hub does not answer.
    pub max_stale: Duration,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Triggers an immediate read of all Secrets.
    pub reload_signal: ReloadSignal,
}

/// A credential with a token, and the Secret with the token's hash.
#[derive(Clone)]
struct TokenCredential {
    credential: Arc<InputCredential>,
    secret: ObjectName,
}

/// The last good read of one Secret.
struct KnownHashes {
    hashes: CredentialHashes,
    read_at: Duration,
}

/// The state between two reads.
struct Credentials {
    parts: InputCredentialParts,
    listed: Vec<TokenCredential>,
    hashes: BTreeMap<ObjectName, KnownHashes>,
    /// The last fault of each credential, so that it is logged once.
    faults: BTreeMap<ObjectName, String>,
    /// Where the next read begins.
    next: usize,
}

/// Follows the Secrets until the task is dropped.
pub async fn run_input_credential_refresh(mut parts: InputCredentialParts) {
    let listed = with_tokens(&parts.credentials.borrow_and_update());
    let mut credentials = Credentials {
        parts,
        listed,
        hashes: BTreeMap::new(),
        faults: BTreeMap::new(),
        next: 0,
    };
    let all = credentials.listed.clone();
    credentials.read_secrets(all).await;
    loop {
        let parts = &mut credentials.parts;
        tokio::select! {
            () = tokio::time::sleep(READ_INTERVAL) => {
                let due = credentials.next_batch();
                credentials.read_secrets(due).await;
            }
            () = parts.reload_signal.received() => {
                let all = credentials.listed.clone();
                credentials.read_secrets(all).await;
            }
            changed = parts.credentials.changed() => {
                if changed.is_err() {
                    return;
                }
                let new = credentials.reload_list();
                credentials.read_secrets(new).await;
            }
        }
    }
}

/// The credentials that have a token. Client certificates are verified without a Secret of their own.
fn with_tokens(credentials: &[Arc<InputCredential>]) -> Vec<TokenCredential> {
    let with_token = |credential: &Arc<InputCredential>| {
        Some(TokenCredential {
            secret: credential.token_secret()?.clone(),
            credential: Arc::clone(credential),
        })
    };
    credentials.iter().filter_map(with_token).collect()
}

impl Credentials {
    /// The credentials to read next.
    fn next_batch(&mut self) -> Vec<TokenCredential> {
        let count = self.listed.len().min(MAX_READS_PER_INTERVAL);
        let start = if self.next < self.listed.len() {
            self.next
        } else {
            0
        };
        self.next = start + count;
        let batch = self.listed.iter().cycle().skip(start).take(count);
        batch.cloned().collect()
    }

    /// Applies a changed list, and returns the credentials whose Secrets were never read.
    fn reload_list(&mut self) -> Vec<TokenCredential> {
        self.listed = with_tokens(&self.parts.credentials.borrow_and_update());
        let is_listed = |secret: &ObjectName| {
            let mut secrets = self.listed.iter().map(|credential| &credential.secret);
            secrets.any(|listed| listed == secret)
        };
        self.hashes.retain(|secret, _| is_listed(secret));
        let new = self
            .listed
            .iter()
            .filter(|credential| !self.hashes.contains_key(&credential.secret));
        new.cloned().collect()
    }

    /// Reads Secrets, and publishes the hashes of all.
    async fn read_secrets(&mut self, credentials: Vec<TokenCredential>) {
        let now = self.parts.clock.now();
        let secrets = &self.parts.secrets;
        let reads: Vec<_> = stream::iter(credentials)
            .map(|credential| async move {
                let read = secrets.read_hashes(&credential.secret, now.wall).await;
                (credential, read)
            })
            .buffer_unordered(MAX_CONCURRENT_READS)
            .collect()
            .await;
        for (credential, read) in reads {
            self.record_read(&credential, read, now.mono);
        }
        self.publish_hashes();
    }

    fn record_read(
        &mut self,
        TokenCredential { credential, secret }: &TokenCredential,
        read: Result<ReadHashes, InputSecretError>,
        now: Duration,
    ) {
        let fault = match read {
            Ok((hashes, fault)) => {
                let read_at = now;
                self.hashes
                    .insert(secret.clone(), KnownHashes { hashes, read_at });
                fault.map(|fault| fault.to_string())
            }
            Err(error) => {
                let away =
                    matches!(&error, InputSecretError::Hub(error) if error.proves_unreachable());
                if !away {
                    self.hashes.remove(secret);
                }
                Some(error.to_string())
            }
        };
        match fault {
            None => drop(self.faults.remove(&credential.name)),
            Some(fault) => {
                let last = self.faults.insert(credential.name.clone(), fault.clone());
                if last.as_ref() != Some(&fault) {
                    tracing::error!(
                        credential = %credential.name,
                        %secret,
                        reason = %Reason::InputCredentialRejected,
                        error = fault,
                        "the Secret of a credential for fleet inputs cannot be used as it is"
                    );
                }
            }
        }
    }

    fn publish_hashes(&mut self) {
        let rounds = self.listed.len().div_ceil(MAX_READS_PER_INTERVAL).max(1);
        let round = READ_INTERVAL * u32::try_from(rounds).unwrap_or(u32::MAX);
        let oldest = self.parts.max_stale + 2 * round;
        let now = self.parts.clock.now().mono;
        self.hashes
            .retain(|_, known| now.saturating_sub(known.read_at) <= oldest);
        let hashes = self.listed.iter().filter_map(|credential| {
            let known = self.hashes.get(&credential.secret)?;
            Some((Arc::clone(&credential.credential), known.hashes.clone()))
        });
        let (book, shared) = CredentialBook::new(&self.parts.hash_key, hashes);
        for name in shared {
            let fault = "another credential has the same token, so it is accepted for neither; \
                         fix: make a new one by keyferry inputs credential rotate";
            let last = self.faults.insert(name.clone(), fault.to_owned());
            if last.as_deref() != Some(fault) {
                tracing::error!(
                    credential = %name,
                    reason = %Reason::InputCredentialRejected,
                    error = fault,
                    "a credential for fleet inputs cannot be used"
                );
            }
        }
        self.parts.writer.replace(book);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use futures::future::BoxFuture;
    use jiff::Timestamp;
    use keyferry_api::config::{InputCredential, InputProof, InputScope};
    use keyferry_api::name::ObjectName;
    use keyferry_core::inputs::credential::{CredentialHashes, InputToken};
    use keyferry_core::inputs::presented::PresentedCredential;
    use keyferry_hub::input_credentials::{
        CredentialReader, CredentialWriter, InputSecretError, InputSecrets, ReadHashes,
    };
    use keyferry_hub::ports::HubError;
    use keyferry_issuer::testing::FakeClock;
    use keyferry_platform::clock::Clock;
    use keyferry_platform::reload_signal::ReloadSignal;
    use parking_lot::Mutex;
    use secrecy::ExposeSecret;
    use tokio::sync::watch;

    use super::{InputCredentialParts, READ_INTERVAL, run_input_credential_refresh};

    /// The Secrets of a hub: hashes by name, or a hub that does not answer.
    #[derive(Default)]
    struct Stored {
        hashes: BTreeMap<String, String>,
        is_away: bool,
    }

    #[derive(Default)]
    struct Secrets(Mutex<Stored>);

    impl InputSecrets for Secrets {
        fn read_hashes<'a>(
            &'a self,
            secret: &'a ObjectName,
            now: Timestamp,
        ) -> BoxFuture<'a, Result<ReadHashes, InputSecretError>> {
            let stored = self.0.lock();
            let hash = stored.hashes.get(secret.as_str()).cloned();
            let is_away = stored.is_away;
            Box::pin(async move {
                if is_away {
                    return Err(HubError::Unreachable("away".to_owned()).into());
                }
                let hash = hash.ok_or(HubError::NotFound("none".to_owned()))?;
                let entry = |key: &str| (key == "sha256").then(|| hash.clone());
                Ok(CredentialHashes::read(entry, now)?)
            })
        }
    }

    fn list(names: &[&str]) -> Arc<[Arc<InputCredential>]> {
        let of = |name: &&str| {
            let name = ObjectName::new(name).unwrap();
            Arc::new(InputCredential {
                proof: InputProof::Token(name.clone()),
                name,
                scope: InputScope::Admin,
            })
        };
        names.iter().map(of).collect()
    }

    fn verifies(reader: &CredentialReader, byte: u8, clock: &FakeClock) -> Option<bool> {
        let token = InputToken::of(&[byte; 32]);
        let header = format!("Bearer {}", token.secret().expose_secret());
        let presented = PresentedCredential::read([header.as_bytes()].into_iter()).unwrap();
        let verified = reader.verify(&presented, clock.now().wall).ok()?;
        Some(verified.is_some())
    }

    #[tokio::test(start_paused = true)]
    async fn a_rotation_and_a_revocation_count_at_the_next_read() {
        let (secrets, clock) = (Arc::new(Secrets::default()), FakeClock::start());
        let hash = |byte: u8| InputToken::of(&[byte; 32]).sha256();
        let put = |name: &str, byte| secrets.0.lock().hashes.insert(name.to_owned(), hash(byte));
        put("a", 1);
        let (sender, credentials) = watch::channel(list(&["a"]));
        let writer = CredentialWriter::default();
        let reader = writer.reader();
        assert_eq!(verifies(&reader, 1, &clock), None, "nothing is read yet");
        let port: Arc<dyn InputSecrets> = Arc::<Secrets>::clone(&secrets);
        let task = tokio::spawn(run_input_credential_refresh(InputCredentialParts {
            credentials,
            secrets: port,
            writer,
            hash_key: [7; 32],
            max_stale: Duration::from_secs(300),
            clock: Arc::<FakeClock>::clone(&clock),
            reload_signal: ReloadSignal::never(),
        }));
        let pass = async |time: Duration| {
            clock.advance(time);
            tokio::time::sleep(time + Duration::from_millis(1)).await;
        };
        pass(Duration::ZERO).await;
        assert_eq!(verifies(&reader, 1, &clock), Some(true));
        put("a", 2);
        pass(READ_INTERVAL).await;
        assert_eq!(verifies(&reader, 1, &clock), Some(false));
        assert_eq!(verifies(&reader, 2, &clock), Some(true));
        // A credential that the configuration file adds counts at once.
        put("b", 3);
        sender.send(list(&["a", "b"])).unwrap();
        pass(Duration::ZERO).await;
        assert_eq!(verifies(&reader, 3, &clock), Some(true));
        // Two credentials with one token: neither is accepted.
        put("b", 2);
        pass(READ_INTERVAL).await;
        assert_eq!(verifies(&reader, 2, &clock), Some(false));
        secrets.0.lock().hashes.remove("b");
        pass(READ_INTERVAL).await;
        assert_eq!(verifies(&reader, 2, &clock), Some(true));
        // Without the hub, hashes count for a while.
        secrets.0.lock().is_away = true;
        pass(Duration::from_secs(60)).await;
        assert_eq!(verifies(&reader, 2, &clock), Some(true));
        pass(Duration::from_secs(400)).await;
        pass(READ_INTERVAL).await;
        assert_eq!(verifies(&reader, 2, &clock), Some(false));
        task.abort();
    }
}
