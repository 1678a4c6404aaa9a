//! The CAs of `api.clientCertificates` and of `inputs.credentials`: read from their Secrets at the
//! start and after each change. The list of Secrets is fixed at the start, because each has a
//! watch. The credentials for inputs that use them change with the configuration file.
//!
//! A Secret whose content is bad keeps the CA that was read before. The CA is withdrawn if the Secret
//! was deleted, if the hub refuses the reads, or if it turns out to be the hub's own client CA. While
//! the reads fail otherwise, the CA stays for `maxStaleAuthorization`.

mod error;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::condition::Finding;
use keyferry_api::config::{CallerCertificate, ClientCertificateRule, InputCredential};
use keyferry_api::name::ObjectName;
use keyferry_api::reason::Reason;
use keyferry_hub::event;
use keyferry_hub::ports::ServingSecret;
use keyferry_hub::serving_secret::CertificateSecrets;
use keyferry_keys::caller_certificate::{
    AuthorityKeys, CallerAuthority, CallerCertificateRule, CallerCertificateRules,
};
use keyferry_platform::clock::Clock;
use keyferry_platform::config_file::InputCredentials;
use keyferry_platform::metrics::Metrics;
use keyferry_platform::reload_signal::ReloadSignal;
use parking_lot::RwLock;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::error::SourceState;

pub use self::error::CallerTrustError;

/// Where kube-apiserver publishes the CAs of its clients and of its front proxies (kubernetes
/// pkg/controlplane/controller/clusterauthenticationtrust).
const HUB_CLIENT_CA: &str =
    "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
/// The least time between two reads of a Secret, however often it changes.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(500);
/// The pause after a read that failed: the watch would report the same change again at once, and
/// without one it would end only after minutes.
const AFTER_UNREAD: Duration = Duration::from_secs(10);

/// The rules with their CAs at one time.
#[derive(Debug, Default)]
pub struct Trust {
    /// A new number for every change, so that results of an earlier state are not used.
    pub version: u64,
    /// The callers of tokens.
    pub callers: CallerCertificateRules,
    /// The readers of fleet inputs.
    pub inputs: CallerCertificateRules<Arc<InputCredential>>,
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
    /// Replaces the rules for callers of tokens, and removes those for inputs.
    #[cfg(test)]
    pub fn replace(&self, callers: Vec<CallerCertificateRule>) {
        self.set(
            CallerCertificateRules::new(callers),
            CallerCertificateRules::default(),
        );
    }

    /// Replaces the rules for readers of fleet inputs.
    #[cfg(test)]
    pub fn replace_inputs(&self, inputs: Vec<CallerCertificateRule<Arc<InputCredential>>>) {
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

    /// The current rules.
    pub fn current(&self) -> Arc<Trust> {
        Arc::clone(&self.0.read())
    }
}

/// The CAs of a server's rules, and their reloads.
pub struct CallerTrust {
    callers: Vec<CallerCertificate>,
    inputs: RwLock<InputCredentials>,
    access: CertificateSecrets,
    /// How long a CA stays whose state is unknown.
    max_stale: Duration,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    trust: TrustReader,
    reads: RwLock<BTreeMap<ObjectName, LastRead>>,
}

/// The last read of a Secret, so that each change is used and reported once.
#[derive(Clone, Default)]
struct LastRead {
    /// The version of the Secret; `None` if there was none.
    version: Option<String>,
    /// The UID of the Secret when it could be read.
    uid: Option<String>,
    /// The CA as it is used.
    authority: Option<Arc<CallerAuthority>>,
    /// The keys of the hub's client CAs, as last read: no chain of a caller may contain them.
    /// `None` if the CA was not compared with them, because every rule with the Secret allows them.
    hub_keys: Option<Arc<AuthorityKeys>>,
    error: Option<CallerTrustError>,
    /// Since when, on the monotonic clock, it is unknown whether the CA may still be used.
    unknown_since: Option<Duration>,
}

impl LastRead {
    /// Whether the next read is due after an interval, rather than when the watch reports a change.
    fn is_polled(&self) -> bool {
        let state = self.error.as_ref().map(CallerTrustError::state);
        self.unknown_since.is_some() || state == Some(SourceState::Refused)
    }
}

/// A Secret with a CA that may be used.
struct GoodSecret {
    version: String,
    uid: String,
    authority: CallerAuthority,
    hub_keys: Option<AuthorityKeys>,
}

/// A Secret whose CA may not be used.
struct BadSecret {
    /// The version and the UID, if the Secret could be read.
    read: Option<(String, String)>,
    fault: Fault,
}

/// Why a Secret's CA may not be used.
struct Fault {
    error: CallerTrustError,
    /// The keys of the hub's client CAs, if the CA was compared with them.
    hub_keys: Option<AuthorityKeys>,
    /// The CA in the Secret, if it is good but could not be compared with the hub's client CAs.
    uncompared: Option<CallerAuthority>,
}

impl From<CallerTrustError> for Fault {
    fn from(error: CallerTrustError) -> Self {
        Self {
            error,
            hub_keys: None,
            uncompared: None,
        }
    }
}

impl CallerTrust {
    /// Reads and checks the CA of every rule. A CA whose state is unknown later on stays in use for
    /// `max_stale`.
    ///
    /// # Errors
    /// [`CallerTrustError`] for the first CA that cannot be used.
    pub async fn start(
        rules: CertificateRules,
        access: CertificateSecrets,
        max_stale: Duration,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
    ) -> Result<Self, CallerTrustError> {
        let CertificateRules { callers, inputs } = rules;
        let trust = Self {
            callers,
            inputs: RwLock::new(inputs),
            access,
            max_stale,
            clock,
            metrics,
            trust: TrustReader::default(),
            reads: RwLock::default(),
        };
        for secret in trust.watched_secrets() {
            let good = trust
                .read_secret(&secret)
                .await
                .map_err(|bad| bad.fault.error)?;
            trust.reads.write().insert(secret, good.into());
        }
        trust.publish_rules();
        Ok(trust)
    }

    /// Reads the rules with their current CAs.
    pub fn reader(&self) -> TrustReader {
        self.trust.clone()
    }

    /// Reloads the CAs until the task is dropped, and uses each list of credentials for inputs.
    pub async fn run_trust_reload(
        self,
        inputs: watch::Receiver<InputCredentials>,
        reload_signal: ReloadSignal,
    ) {
        let trust = Arc::new(self);
        let mut secrets = JoinSet::new();
        for secret in trust.watched_secrets() {
            let (inputs, reload_signal) = (inputs.clone(), reload_signal.clone());
            secrets.spawn(Arc::clone(&trust).follow_one(secret, inputs, reload_signal));
        }
        // These tasks never end, so an end means a panic, which must not go unnoticed.
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
            let last = self.last_read(&secret);
            let due = async {
                if last.is_polled() {
                    tokio::time::sleep(AFTER_UNREAD).await;
                } else {
                    let version = last.version.as_deref();
                    self.access.secrets.wait_for_change(&secret, version).await;
                }
            };
            tokio::select! {
                () = due => {}
                () = reload_signal.received() => {}
                changed = inputs.changed(), if is_listed => {
                    is_listed = changed.is_ok();
                    let listed = inputs.borrow_and_update().clone();
                    *self.inputs.write() = listed;
                    // The Secret is read below too: a new rule may forbid the CA that it has.
                    self.publish_rules();
                }
            }
            self.reload_secret(&secret).await;
            tokio::time::sleep(MIN_READ_INTERVAL).await;
        }
    }

    fn watched_secrets(&self) -> BTreeSet<ObjectName> {
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

    fn last_read(&self, secret: &ObjectName) -> LastRead {
        self.reads.read().get(secret).cloned().unwrap_or_default()
    }

    /// Reads a Secret again, and uses or withdraws its CA.
    async fn reload_secret(&self, secret: &ObjectName) {
        let last = self.last_read(secret);
        match self.read_secret(secret).await {
            Ok(good) => {
                let is_used = last.authority.as_deref() == Some(&good.authority)
                    && last.hub_keys.as_deref() == good.hub_keys.as_ref();
                self.reads.write().insert(secret.clone(), good.into());
                if !is_used {
                    self.publish_rules();
                    self.metrics.caller_authority_reloaded(true);
                    tracing::info!(%secret, "the CA of client certificates was reloaded");
                }
            }
            Err(bad) => self.handle_failed_read(secret, last, bad).await,
        }
    }

    /// Decides whether the earlier CA stays in use, and reports the failure once.
    async fn handle_failed_read(&self, secret: &ObjectName, last: LastRead, bad: BadSecret) {
        let BadSecret { read, fault } = bad;
        let now = self.clock.now();
        let is_unknown = fault.error.state() == SourceState::Unknown;
        let unknown_since = is_unknown.then(|| last.unknown_since.unwrap_or(now.mono));
        let stale = unknown_since.map_or(Duration::ZERO, |since| now.mono.saturating_sub(since));
        let authority = last
            .authority
            .clone()
            .filter(|_| !is_unknown || stale < self.max_stale)
            .and_then(|authority| fault.remaining_authority(authority));
        let Fault {
            error, hub_keys, ..
        } = fault;
        let hub_keys = hub_keys.map(Arc::new).or_else(|| last.hub_keys.clone());
        let has_other_keys = hub_keys != last.hub_keys;
        let has_less = authority != last.authority;
        let is_new = last.error.as_ref() != Some(&error);
        let begins = is_unknown && last.unknown_since.is_none();
        let (version, uid) = read.map_or((None, last.uid), |(version, uid)| {
            (Some(version), Some(uid))
        });
        let effect = if authority.is_none() {
            "the CA of client certificates was withdrawn; its certificates are refused"
        } else if has_less {
            "certificates were removed from the CA of client certificates; the others stay"
        } else {
            "the changed CA of client certificates cannot be used; the old one stays"
        };
        let reported = if is_unknown && !has_less {
            last.error
        } else {
            Some(error.clone())
        };
        self.reads.write().insert(
            secret.clone(),
            LastRead {
                version,
                uid: uid.clone(),
                authority,
                hub_keys,
                error: reported,
                unknown_since,
            },
        );
        if has_less || has_other_keys {
            self.publish_rules();
        }
        if is_unknown && !has_less {
            if begins {
                tracing::warn!(reason = %Reason::CallerAuthorityInvalid, %error,
                    "a CA of client certificates could not be read again; it stays in use for at \
                     most maxStaleAuthorization");
            }
            return;
        }
        if is_new || has_less {
            self.report_failed_read(secret, uid, &error, effect).await;
        }
    }

    /// Reports a Secret whose CA cannot be used, and what this changes, in the log, the metrics and
    /// an Event about the Secret.
    async fn report_failed_read(
        &self,
        secret: &ObjectName,
        uid: Option<String>,
        error: &CallerTrustError,
        effect: &str,
    ) {
        self.metrics.caller_authority_reloaded(false);
        tracing::error!(reason = %Reason::CallerAuthorityInvalid, %error, "{effect}");
        if let Some(uid) = uid {
            let about = event::Subject::of_secret(&self.access.namespace, secret, &uid);
            let finding = Finding::failed(Reason::CallerAuthorityInvalid, error.message());
            event::write_event(
                &self.access.objects,
                &*self.access.random,
                &about,
                &finding,
                self.clock.now().wall,
            )
            .await;
        }
    }

    /// Makes the current rules from the last reads.
    fn publish_rules(&self) {
        let read = self.reads.read();
        let rule_of = |rule: &ClientCertificateRule| {
            let last = read.get(&rule.authority_secret);
            let hub_keys = last.and_then(|last| last.hub_keys.clone());
            let may_be_used = rule.allow_hub_client_ca || hub_keys.is_some();
            let authority = last.and_then(|last| last.authority.clone());
            (
                authority.filter(|_| may_be_used),
                hub_keys.filter(|_| !rule.allow_hub_client_ca),
            )
        };
        let callers = self.callers.iter().map(|caller| {
            let (authority, refused_keys) = rule_of(&caller.rule);
            CallerCertificateRule {
                uri: caller.rule.uri.clone(),
                identity: caller.service_account.clone(),
                authority,
                refused_keys,
            }
        });
        let listed = self.inputs.read();
        let inputs = listed.iter().filter_map(|credential| {
            let rule = credential.certificate()?;
            let (authority, refused_keys) = rule_of(rule);
            Some(CallerCertificateRule {
                uri: rule.uri.clone(),
                identity: Arc::clone(credential),
                authority,
                refused_keys,
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

    async fn read_secret(&self, name: &ObjectName) -> Result<GoodSecret, BadSecret> {
        let place = format!("Secret {}/{name}", self.access.namespace);
        let secret = self.access.secrets.read(name).await;
        let ServingSecret {
            version,
            uid,
            authority: pem,
            ..
        } = secret.map_err(|error| BadSecret {
            read: None,
            fault: CallerTrustError::unread_secret(place.clone(), &error).into(),
        })?;
        match self.check_authority(name, &place, pem).await {
            Ok((authority, hub_keys)) => Ok(GoodSecret {
                version,
                uid,
                authority,
                hub_keys,
            }),
            Err(fault) => Err(BadSecret {
                read: Some((version, uid)),
                fault,
            }),
        }
    }

    async fn check_authority(
        &self,
        secret: &ObjectName,
        place: &str,
        pem: Option<Vec<u8>>,
    ) -> Result<(CallerAuthority, Option<AuthorityKeys>), Fault> {
        let now = self.clock.now().wall;
        let authority = pem
            .filter(|pem| !pem.is_empty())
            .ok_or_else(|| CallerTrustError::no_authority(place.to_owned()))
            .and_then(|pem| {
                CallerAuthority::from_pem(&pem, now)
                    .map_err(|error| CallerTrustError::bad_authority(place, &error))
            });
        if self.may_be_hubs(secret) {
            return authority
                .map(|authority| (authority, None))
                .map_err(Fault::from);
        }
        // Also if the content is bad: the CA that was read before must still not be the hub's.
        let keys = match self.hub_keys().await {
            Ok(keys) => keys,
            Err(error) => {
                return Err(Fault {
                    uncompared: authority.ok(),
                    ..error.into()
                });
            }
        };
        let compared = authority.and_then(|authority| {
            if authority.has_any_key_of(&keys) {
                return Err(CallerTrustError::is_hubs(place.to_owned()));
            }
            Ok(authority)
        });
        match compared {
            Ok(authority) => Ok((authority, Some(keys))),
            Err(error) => Err(Fault {
                hub_keys: Some(keys),
                ..error.into()
            }),
        }
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

impl Fault {
    /// What of the CA that was in use stays in use.
    fn remaining_authority(&self, authority: Arc<CallerAuthority>) -> Option<Arc<CallerAuthority>> {
        match self.error.state() {
            SourceState::Absent | SourceState::Refused => None,
            SourceState::Wrong => {
                let keys = self.hub_keys.as_ref();
                let is_hubs = keys.is_some_and(|keys| authority.has_any_key_of(keys));
                (!is_hubs).then_some(authority)
            }
            SourceState::Unknown => match &self.uncompared {
                Some(listed) => authority.also_in(listed).map(Arc::new),
                None => Some(authority),
            },
        }
    }
}

impl From<GoodSecret> for LastRead {
    fn from(good: GoodSecret) -> Self {
        Self {
            version: Some(good.version),
            uid: Some(good.uid),
            authority: Some(Arc::new(good.authority)),
            hub_keys: good.hub_keys.map(Arc::new),
            error: None,
            unknown_since: None,
        }
    }
}

#[cfg(test)]
mod tests;
