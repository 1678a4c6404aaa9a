//! The CAs of `api.clientCertificates` and of `inputs.credentials`: read from their Secrets at the
//! start and after each change. Which Secrets these are is fixed at the start, because each has a
//! watch; which credentials for inputs they are for changes with the configuration file.
//!
//! A Secret whose content is bad keeps the CA that was read before. A Secret that was deleted, and
//! a CA that turns out to be the hub's own client CA, are no longer accepted.

mod error;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::condition::Finding;
use keyferry_api::config::{CallerCertificate, ClientCertificateRule, InputCredential};
use keyferry_api::name::ObjectName;
use keyferry_api::reason::Reason;
use keyferry_hub::clock::Clock;
use keyferry_hub::config_file::InputCredentials;
use keyferry_hub::event;
use keyferry_hub::metrics::Metrics;
use keyferry_hub::ports::ServingSecret;
use keyferry_hub::reload_signal::ReloadSignal;
use keyferry_keys::caller_certificate::{
    AuthorityKeys, CallerAuthority, CallerCertificateRule, CallerCertificateRules,
};
use parking_lot::RwLock;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::error::SourceState;
use crate::http::listener::CertificateSecrets;

pub use self::error::CallerTrustError;

/// Where kube-apiserver publishes the CAs of its clients and of its front proxies (kubernetes
/// pkg/controlplane/controller/clusterauthenticationtrust).
const HUB_CLIENT_CA: &str =
    "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
/// The least time between two reads of a Secret, however often it changes.
const PAUSE: Duration = Duration::from_millis(500);
/// The pause after a read that failed: the watch would report the same change again at once.
const AFTER_UNREAD: Duration = Duration::from_secs(10);

/// The rules with their CAs at one time.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    /// Another number for every change, so that nothing decided by an earlier state is used.
    pub(crate) version: u64,
    /// The callers of tokens.
    pub(crate) callers: CallerCertificateRules,
    /// The readers of fleet inputs.
    pub(crate) inputs: CallerCertificateRules<Arc<InputCredential>>,
}

/// The rules of a configuration.
#[derive(Clone, Default)]
pub struct CertificateRules {
    /// Those for callers of tokens.
    pub callers: Vec<CallerCertificate>,
    /// The credentials for fleet inputs, of which some have a client certificate.
    pub inputs: InputCredentials,
}

/// Reads the current rules; clones share them. The default has no rules.
#[derive(Clone, Debug, Default)]
pub struct TrustReader(Arc<RwLock<Arc<Trust>>>);

impl TrustReader {
    #[cfg(test)]
    pub(crate) fn replace(&self, callers: Vec<CallerCertificateRule>) {
        self.set(
            CallerCertificateRules::new(callers),
            CallerCertificateRules::default(),
        );
    }

    #[cfg(test)]
    pub(crate) fn replace_inputs(&self, inputs: Vec<CallerCertificateRule<Arc<InputCredential>>>) {
        let callers = self.current().callers.clone();
        self.set(callers, CallerCertificateRules::new(inputs));
    }

    fn set(
        &self,
        callers: CallerCertificateRules,
        inputs: CallerCertificateRules<Arc<InputCredential>>,
    ) {
        let mut current = self.0.write();
        let version = current.version + 1;
        *current = Arc::new(Trust {
            version,
            callers,
            inputs,
        });
    }

    pub(crate) fn current(&self) -> Arc<Trust> {
        Arc::clone(&self.0.read())
    }
}

/// The CAs of a server's rules, and their reloads.
pub struct CallerTrust {
    callers: Vec<CallerCertificate>,
    inputs: RwLock<InputCredentials>,
    access: CertificateSecrets,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    trust: TrustReader,
    reads: RwLock<BTreeMap<ObjectName, LastRead>>,
}

/// What was read of a Secret last, so that each change is used and reported once.
#[derive(Clone, Default)]
struct LastRead {
    /// The version of the Secret; `None` if there was none.
    version: Option<String>,
    /// `ca.crt` as it was used.
    pem: Vec<u8>,
    authority: Option<Arc<CallerAuthority>>,
    /// Whether the CA was compared with the hub's client CAs, and is none of them.
    is_not_hubs: bool,
    error: Option<CallerTrustError>,
}

/// A Secret with a CA that may be used.
struct GoodSecret {
    version: String,
    pem: Vec<u8>,
    authority: CallerAuthority,
    is_not_hubs: bool,
}

/// A Secret whose CA may not be used.
struct BadSecret {
    /// The version and the UID, if the Secret could be read.
    read: Option<(String, String)>,
    /// The keys of the hub's client CAs, if the CA has one of them.
    hub_keys: Option<AuthorityKeys>,
    error: CallerTrustError,
}

impl CallerTrust {
    /// Reads and checks the CA of every rule.
    ///
    /// # Errors
    /// [`CallerTrustError`] for the first CA that cannot be used.
    pub async fn start(
        rules: CertificateRules,
        access: CertificateSecrets,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
    ) -> Result<Self, CallerTrustError> {
        let CertificateRules { callers, inputs } = rules;
        let trust = Self {
            callers,
            inputs: RwLock::new(inputs),
            access,
            clock,
            metrics,
            trust: TrustReader::default(),
            reads: RwLock::default(),
        };
        for secret in trust.secrets() {
            let good = trust.read(&secret).await.map_err(|bad| bad.error)?;
            trust.reads.write().insert(secret, good.into());
        }
        trust.publish();
        Ok(trust)
    }

    /// Reads the rules with their current CAs.
    pub fn reader(&self) -> TrustReader {
        self.trust.clone()
    }

    /// Reloads the CAs until the task is dropped, and uses each list of credentials for inputs.
    pub async fn follow(
        self,
        inputs: watch::Receiver<InputCredentials>,
        reload_signal: ReloadSignal,
    ) {
        let trust = Arc::new(self);
        let mut secrets = JoinSet::new();
        for secret in trust.secrets() {
            let (inputs, reload_signal) = (inputs.clone(), reload_signal.clone());
            secrets.spawn(Arc::clone(&trust).follow_one(secret, inputs, reload_signal));
        }
        // None of them ends, so the end of one is a panic; it must not go unnoticed.
        let _ = secrets.join_next().await;
    }

    async fn follow_one(
        self: Arc<Self>,
        secret: ObjectName,
        mut inputs: watch::Receiver<InputCredentials>,
        mut reload_signal: ReloadSignal,
    ) {
        let mut is_listed = true;
        loop {
            let version = self.last(&secret).version;
            tokio::select! {
                () = self.access.secrets.changed(&secret, version.as_deref()) => {}
                () = reload_signal.ordered() => {}
                changed = inputs.changed(), if is_listed => {
                    is_listed = changed.is_ok();
                    let listed = inputs.borrow_and_update().clone();
                    *self.inputs.write() = listed;
                    // The Secret is read below too: a new rule may forbid the CA that it has.
                    self.publish();
                }
            }
            let pause = self.reload(&secret).await;
            tokio::time::sleep(pause).await;
        }
    }

    fn secrets(&self) -> BTreeSet<ObjectName> {
        let inputs = self.inputs.read();
        let callers = self.callers.iter().map(|caller| &caller.rule);
        let inputs = inputs.iter().filter_map(|one| one.certificate());
        let names = callers.chain(inputs).map(|rule| &rule.authority_secret);
        names.cloned().collect()
    }

    /// Whether every rule with this Secret may have the hub's own client CA.
    fn may_be_hubs(&self, secret: &ObjectName) -> bool {
        let inputs = self.inputs.read();
        let callers = self.callers.iter().map(|caller| &caller.rule);
        let mut rules = callers.chain(inputs.iter().filter_map(|one| one.certificate()));
        rules.all(|rule| rule.authority_secret != *secret || rule.allow_hub_client_ca)
    }

    fn last(&self, secret: &ObjectName) -> LastRead {
        self.reads.read().get(secret).cloned().unwrap_or_default()
    }

    /// Reads a Secret again, and returns how long to wait before the next time.
    async fn reload(&self, secret: &ObjectName) -> Duration {
        let last = self.last(secret);
        match self.read(secret).await {
            Ok(good) => {
                let is_used = last.authority.is_some()
                    && last.pem == good.pem
                    && last.is_not_hubs == good.is_not_hubs;
                self.reads.write().insert(secret.clone(), good.into());
                if !is_used {
                    self.publish();
                    self.metrics.caller_authority_reloaded(true);
                    tracing::info!(%secret, "the CA of client certificates was reloaded");
                }
                PAUSE
            }
            // Nothing is known of the Secret, so nothing has changed.
            Err(bad) if bad.error.state() == SourceState::Unread => {
                tracing::debug!(error = %bad.error, "a CA of client certificates could not be read again");
                AFTER_UNREAD
            }
            Err(bad) => {
                self.failed(secret, last, bad).await;
                PAUSE
            }
        }
    }

    /// Decides what is left of the earlier CA, and reports the failure once.
    async fn failed(&self, secret: &ObjectName, last: LastRead, bad: BadSecret) {
        let BadSecret {
            read,
            hub_keys,
            error,
        } = bad;
        let is_new = last.error.as_ref() != Some(&error);
        let had_one = last.authority.is_some();
        let is_hubs = |authority: &CallerAuthority| {
            hub_keys
                .as_ref()
                .is_some_and(|keys| authority.has_any_key_of(keys))
        };
        let authority = last
            .authority
            .filter(|authority| error.state() == SourceState::Wrong && !is_hubs(authority));
        let withdrawn = had_one && authority.is_none();
        self.reads.write().insert(
            secret.clone(),
            LastRead {
                version: read.as_ref().map(|(version, _)| version.clone()),
                pem: last.pem,
                authority,
                is_not_hubs: last.is_not_hubs,
                error: Some(error.clone()),
            },
        );
        if withdrawn {
            self.publish();
        }
        if !is_new && !withdrawn {
            return;
        }
        self.metrics.caller_authority_reloaded(false);
        if withdrawn {
            tracing::error!(reason = %Reason::CallerAuthorityInvalid, %error,
                "the CA of client certificates was withdrawn; its certificates are refused");
        } else {
            tracing::error!(reason = %Reason::CallerAuthorityInvalid, %error,
                "the changed CA of client certificates cannot be used; the old one stays");
        }
        if let Some((_, uid)) = read {
            let about = event::Subject::secret(&self.access.namespace, secret, &uid);
            let finding = Finding::not(Reason::CallerAuthorityInvalid, error.message());
            let now = self.clock.now().wall;
            event::write(
                &self.access.objects,
                &*self.access.random,
                &about,
                &finding,
                now,
            )
            .await;
        }
    }

    /// Makes what was read last the current rules.
    fn publish(&self) {
        let read = self.reads.read();
        let authority = |rule: &ClientCertificateRule| {
            let last = read.get(&rule.authority_secret)?;
            let may_be_used = rule.allow_hub_client_ca || last.is_not_hubs;
            last.authority.clone().filter(|_| may_be_used)
        };
        let callers = self.callers.iter().map(|caller| CallerCertificateRule {
            uri: caller.rule.uri.clone(),
            identity: caller.service_account.clone(),
            authority: authority(&caller.rule),
        });
        let listed = self.inputs.read();
        let inputs = listed.iter().filter_map(|credential| {
            let rule = credential.certificate()?;
            Some(CallerCertificateRule {
                uri: rule.uri.clone(),
                identity: Arc::clone(credential),
                authority: authority(rule),
            })
        });
        let callers = CallerCertificateRules::new(callers.collect());
        let inputs = CallerCertificateRules::new(inputs.collect());
        let ends = read
            .values()
            .filter_map(|last| Some(last.authority.as_ref()?.earliest_expiry()));
        if let Some(end) = ends.min() {
            self.metrics.caller_authority(end);
        }
        self.trust.set(callers, inputs);
    }

    async fn read(&self, name: &ObjectName) -> Result<GoodSecret, BadSecret> {
        let place = format!("Secret {}/{name}", self.access.namespace);
        let secret = match self.access.secrets.read(name).await {
            Ok(secret) => secret,
            Err(error) => {
                return Err(BadSecret {
                    read: None,
                    hub_keys: None,
                    error: CallerTrustError::unread_secret(place, &error),
                });
            }
        };
        let ServingSecret {
            version,
            uid,
            authority: pem,
            ..
        } = secret;
        let (error, hub_keys) = match self.check(name, place, pem).await {
            Ok((pem, authority, is_not_hubs)) => {
                return Ok(GoodSecret {
                    version,
                    pem,
                    authority,
                    is_not_hubs,
                });
            }
            Err(bad) => bad,
        };
        Err(BadSecret {
            read: Some((version, uid)),
            hub_keys,
            error,
        })
    }

    async fn check(
        &self,
        secret: &ObjectName,
        place: String,
        pem: Option<Vec<u8>>,
    ) -> Result<(Vec<u8>, CallerAuthority, bool), (CallerTrustError, Option<AuthorityKeys>)> {
        let Some(pem) = pem.filter(|pem| !pem.is_empty()) else {
            return Err((CallerTrustError::no_authority(place), None));
        };
        let now = self.clock.now().wall;
        let authority = CallerAuthority::from_pem(&pem, now)
            .map_err(|error| (CallerTrustError::bad_authority(&place, &error), None))?;
        if self.may_be_hubs(secret) {
            return Ok((pem, authority, false));
        }
        let keys = self.hub_keys().await.map_err(|error| (error, None))?;
        if authority.has_any_key_of(&keys) {
            return Err((CallerTrustError::is_hubs(place), Some(keys)));
        }
        Ok((pem, authority, true))
    }

    /// The keys of the CAs whose client certificates the hub's apiserver accepts.
    async fn hub_keys(&self) -> Result<AuthorityKeys, CallerTrustError> {
        let object = match self.access.objects.get(HUB_CLIENT_CA).await {
            Ok(Some(object)) => object,
            Ok(None) => return Err(CallerTrustError::hub_says_nothing()),
            Err(error) => return Err(CallerTrustError::unread_hub_ca(&error)),
        };
        let mut pem = String::new();
        for entry in ["client-ca-file", "requestheader-client-ca-file"] {
            if let Some(text) = object.value()["data"][entry].as_str() {
                pem.push_str(text);
                pem.push('\n');
            }
        }
        AuthorityKeys::from_pem(pem.as_bytes()).ok_or_else(CallerTrustError::bad_hub_ca)
    }
}

impl From<GoodSecret> for LastRead {
    fn from(good: GoodSecret) -> Self {
        Self {
            version: Some(good.version),
            pem: good.pem,
            authority: Some(Arc::new(good.authority)),
            is_not_hubs: good.is_not_hubs,
            error: None,
        }
    }
}

#[cfg(test)]
mod tests;
