#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use keyferry_api::config::{InputProof, InputScope};
use keyferry_api::name::Namespace;
use keyferry_api::service_account::{ServiceAccountIdentity, Uid};
use keyferry_hub::ports::{HubError, HubObjects, ServingSecrets};
use keyferry_hub::testing::{Failing, FakeObjects, account_of};
use keyferry_keys::testing::client_certificates::{TestAuthority, URI, valid};
use keyferry_platform::random::SystemRandomness;
use keyferry_platform::testing::FakeClock;
use parking_lot::Mutex;
use serde_json::json;

use super::*;

const MAX_STALE: Duration = Duration::from_secs(300);

/// Secrets with CAs in memory.
#[derive(Default)]
struct Secrets {
    pem: Mutex<BTreeMap<ObjectName, Option<String>>>,
    away: Mutex<Option<HubError>>,
}

impl ServingSecrets for Secrets {
    fn read<'a>(&'a self, name: &'a ObjectName) -> BoxFuture<'a, Result<ServingSecret, HubError>> {
        Box::pin(async move {
            if let Some(error) = self.away.lock().clone() {
                return Err(error);
            }
            let pem = self.pem.lock().get(name).cloned();
            let pem = pem.ok_or_else(|| HubError::NotFound("none".to_owned()))?;
            Ok(ServingSecret {
                version: format!("{:?}", pem.as_ref().map(String::len)),
                uid: "u".to_owned(),
                kind: "Opaque".to_owned(),
                certificate: None,
                key: None,
                authority: pem.map(String::into_bytes),
            })
        })
    }

    fn wait_for_change<'a>(&'a self, _: &'a ObjectName, _: Option<&'a str>) -> BoxFuture<'a, ()> {
        Box::pin(std::future::pending())
    }
}

struct Stage {
    secrets: Arc<Secrets>,
    objects: Arc<FakeObjects>,
    clock: Arc<FakeClock>,
    metrics: Metrics,
    callers: TestAuthority,
    hub: TestAuthority,
}

fn name() -> ObjectName {
    ObjectName::new("callers-ca").unwrap()
}

impl Stage {
    fn new() -> Self {
        let clock = FakeClock::start();
        let now = clock.now().wall;
        let stage = Self {
            secrets: Arc::default(),
            objects: Arc::default(),
            clock,
            metrics: Metrics::default(),
            callers: TestAuthority::new("callers", now, |_| {}),
            hub: TestAuthority::new("hub clients", now, |_| {}),
        };
        stage.holds(Some(stage.callers.pem()));
        stage.hub_accepts(Some(stage.hub.pem()));
        stage
    }

    fn holds(&self, pem: Option<&str>) {
        let pem = pem.map(str::to_owned);
        self.secrets.pem.lock().insert(name(), pem);
    }

    fn hub_accepts(&self, pem: Option<&str>) {
        let data = pem.map_or(json!({}), |pem| json!({ "client-ca-file": pem }));
        self.objects
            .put_foreign(HUB_CLIENT_CA, json!({ "metadata": {}, "data": data }));
    }

    async fn start(&self, allow_hub_client_ca: bool) -> Result<CallerTrust, CallerTrustError> {
        let rule = CallerCertificate {
            rule: ClientCertificateRule {
                authority_secret: name(),
                uri: URI.to_owned(),
                allow_hub_client_ca,
            },
            service_account: ServiceAccountIdentity {
                account: account_of("tenant-a", "reconciler"),
                uid: Uid::new("u").unwrap(),
            },
        };
        self.start_with(CertificateRules {
            callers: vec![rule],
            inputs: Arc::default(),
        })
        .await
    }

    async fn start_with(&self, rules: CertificateRules) -> Result<CallerTrust, CallerTrustError> {
        let access = CertificateSecrets {
            namespace: Namespace::new("keyferry-system").unwrap(),
            secrets: Arc::<Secrets>::clone(&self.secrets),
            objects: Arc::<FakeObjects>::clone(&self.objects) as Arc<dyn HubObjects>,
            random: Arc::new(SystemRandomness::default()),
        };
        let clock = Arc::<FakeClock>::clone(&self.clock);
        CallerTrust::start(rules, access, MAX_STALE, clock, self.metrics.clone()).await
    }

    async fn refused(&self) -> String {
        let error = self.start(false).await.err().unwrap().to_string();
        assert!(error.starts_with("CallerAuthorityInvalid: "), "{error}");
        assert!(error.contains("; fix: "), "{error}");
        error
    }

    fn events(&self) -> usize {
        self.objects.all("/events/").len()
    }
}

fn authority(trust: &CallerTrust) -> Option<i64> {
    let current = trust.reader().current();
    let authority = current.callers.rules()[0].authority.as_ref();
    authority.map(|authority| authority.earliest_expiry())
}

#[tokio::test]
async fn a_start_needs_a_good_ca_that_is_not_the_hubs() {
    let stage = Stage::new();
    assert!(authority(&stage.start(false).await.unwrap()).is_some());

    stage.hub_accepts(Some(stage.callers.pem()));
    let error = stage.refused().await;
    assert!(
        error.contains("users of the hub's own apiserver"),
        "{error}"
    );
    assert!(stage.start(true).await.is_ok(), "the rule allows it");
    let both = format!("{}{}", stage.hub.pem(), stage.callers.pem());
    stage.hub_accepts(Some(&both));
    stage.refused().await;
    stage.hub_accepts(None);
    assert!(
        stage.start(false).await.is_ok(),
        "a hub without a client CA"
    );
    stage.hub_accepts(Some(
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ));
    assert!(stage.refused().await.contains("other than certificates"));
    stage.objects.put_foreign(
        HUB_CLIENT_CA,
        json!({ "metadata": {}, "data": { "requestheader-client-ca-file": stage.callers.pem() } }),
    );
    assert!(stage.refused().await.contains("users of the hub's"));

    stage.hub_accepts(Some(stage.hub.pem()));
    stage.holds(None);
    assert!(stage.refused().await.contains("it has no ca.crt"));
    stage.holds(Some("text"));
    assert!(stage.refused().await.contains("ca.crt is not PEM"));
    stage.secrets.pem.lock().clear();
    assert!(stage.refused().await.contains("it does not exist"));
}

#[tokio::test]
async fn a_start_without_the_hubs_own_ca_is_refused() {
    let stage = Stage {
        objects: Arc::default(),
        ..Stage::new()
    };
    assert!(stage.refused().await.contains("is not known"));
    assert!(stage.start(true).await.is_ok());
}

#[tokio::test]
async fn a_new_ca_is_used_and_a_bad_one_keeps_the_old() {
    let stage = Stage::new();
    let trust = stage.start(false).await.unwrap();
    let (reader, first) = (trust.reader(), authority(&trust));
    let version = reader.current().version;

    trust.reload_secret(&name()).await;
    assert_eq!(reader.current().version, version, "nothing changed");

    stage.holds(Some("text"));
    trust.reload_secret(&name()).await;
    trust.reload_secret(&name()).await;
    assert_eq!((authority(&trust), stage.events()), (first, 1));
    let failures = "keyferry_caller_authority_reloads_total{result=\"failure\"} 1";
    assert!(stage.metrics.exposition().contains(failures));

    let now = stage.clock.now().wall;
    let next = TestAuthority::new("next", now, |params| valid(params, now, -60, 3600));
    stage.holds(Some(next.pem()));
    trust.reload_secret(&name()).await;
    let end = now.as_second() + 3600;
    assert_eq!(authority(&trust), Some(end));
    assert_ne!(reader.current().version, version);
    let exposition = stage.metrics.exposition();
    for sample in [
        "keyferry_caller_authority_reloads_total{result=\"success\"} 1".to_owned(),
        format!("keyferry_caller_authority_not_after_timestamp_seconds{{listener=\"api\"}} {end}"),
    ] {
        assert!(exposition.contains(&sample), "{sample}:\n{exposition}");
    }
}

#[tokio::test]
async fn a_refused_read_withdraws_the_ca_at_once() {
    let refusals = [
        HubError::Forbidden("no right".into()),
        HubError::Unauthenticated("expired".to_owned()),
    ];
    for refusal in refusals {
        let stage = Stage::new();
        let trust = stage.start(false).await.unwrap();
        let first = authority(&trust);
        *stage.secrets.away.lock() = Some(refusal);
        trust.reload_secret(&name()).await;
        trust.reload_secret(&name()).await;
        assert_eq!((authority(&trust), stage.events()), (None, 1));
        let failures = "keyferry_caller_authority_reloads_total{result=\"failure\"} 1";
        assert!(stage.metrics.exposition().contains(failures));
        assert!(trust.last_read(&name()).is_polled());
        *stage.secrets.away.lock() = None;
        trust.reload_secret(&name()).await;
        assert_eq!(authority(&trust), first);
    }

    let stage = Stage::new();
    let trust = stage.start(false).await.unwrap();
    let forbidden = Failing::Forbidden("get", "extension-apiserver-authentication");
    stage.objects.fail(Some(forbidden));
    trust.reload_secret(&name()).await;
    assert_eq!((authority(&trust), stage.events()), (None, 1));
}

#[tokio::test]
async fn a_ca_of_which_nothing_is_known_stays_for_a_limited_time() {
    let silent: [fn(&Stage); 4] = [
        |stage| *stage.secrets.away.lock() = Some(HubError::Unreachable("away".to_owned())),
        |stage| *stage.secrets.away.lock() = Some(HubError::TooLarge),
        |stage| stage.objects.delete_foreign(HUB_CLIENT_CA),
        |stage| {
            // The content is bad besides, which alone would keep the CA without a limit.
            stage.holds(Some("text"));
            stage.hub_accepts(Some(
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            ));
        },
    ];
    for silent in silent {
        let stage = Stage::new();
        let trust = stage.start(false).await.unwrap();
        let first = authority(&trust);
        silent(&stage);
        trust.reload_secret(&name()).await;
        stage.clock.advance(MAX_STALE - Duration::from_secs(1));
        trust.reload_secret(&name()).await;
        assert_eq!((authority(&trust), stage.events()), (first, 0));
        assert!(trust.last_read(&name()).is_polled());
        stage.clock.advance(Duration::from_secs(1));
        trust.reload_secret(&name()).await;
        trust.reload_secret(&name()).await;
        assert_eq!((authority(&trust), stage.events()), (None, 1));

        *stage.secrets.away.lock() = None;
        stage.holds(Some(stage.callers.pem()));
        stage.hub_accepts(Some(stage.hub.pem()));
        trust.reload_secret(&name()).await;
        assert_eq!(authority(&trust), first);
        assert!(!trust.last_read(&name()).is_polled());
    }
}

#[tokio::test]
async fn a_ca_that_left_the_secret_is_withdrawn_without_the_hubs_client_ca() {
    let stage = Stage::new();
    let now = stage.clock.now().wall;
    let next = TestAuthority::new("next", now, |params| valid(params, now, -60, 3600));
    let end = now.as_second() + 3600;
    let both = format!("{}{}", stage.callers.pem(), next.pem());
    stage.holds(Some(&both));
    let trust = stage.start(false).await.unwrap();
    let all = trust.reader().current();
    stage.objects.delete_foreign(HUB_CLIENT_CA);

    trust.reload_secret(&name()).await;
    assert_eq!(
        trust.reader().current().version,
        all.version,
        "both are there"
    );
    stage.holds(Some(stage.callers.pem()));
    trust.reload_secret(&name()).await;
    let kept = authority(&trust);
    assert!(kept.is_some_and(|kept| kept > end), "only one has left");
    stage.holds(Some(next.pem()));
    trust.reload_secret(&name()).await;
    assert_eq!(
        authority(&trust),
        None,
        "the new one is not compared, and so not used"
    );
    stage.hub_accepts(Some(stage.hub.pem()));
    trust.reload_secret(&name()).await;
    assert_eq!(authority(&trust), Some(end));
}

#[tokio::test]
async fn a_ca_that_becomes_the_hubs_is_withdrawn_behind_a_bad_secret() {
    let stage = Stage::new();
    let trust = stage.start(false).await.unwrap();
    stage.holds(Some("text"));
    stage.hub_accepts(Some(stage.callers.pem()));
    trust.reload_secret(&name()).await;
    assert_eq!(authority(&trust), None);
}

#[tokio::test]
async fn a_deleted_secret_withdraws_its_ca_until_it_is_back() {
    let stage = Stage::new();
    let trust = stage.start(false).await.unwrap();
    let first = authority(&trust);
    stage.secrets.pem.lock().clear();
    trust.reload_secret(&name()).await;
    assert_eq!(authority(&trust), None);
    stage.holds(Some("text"));
    trust.reload_secret(&name()).await;
    assert_eq!(authority(&trust), None, "a bad one brings nothing back");
    stage.holds(Some(stage.callers.pem()));
    trust.reload_secret(&name()).await;
    assert_eq!(authority(&trust), first);
}

#[tokio::test]
async fn a_ca_that_becomes_the_hubs_is_withdrawn() {
    let stage = Stage::new();
    let trust = stage.start(false).await.unwrap();
    let first = authority(&trust);
    // Another CA that is the hub's keeps the old one, which is not.
    stage.holds(Some(stage.hub.pem()));
    trust.reload_secret(&name()).await;
    assert_eq!((authority(&trust), stage.events()), (first, 1));
    stage.holds(Some(stage.callers.pem()));
    stage.hub_accepts(Some(stage.callers.pem()));
    trust.reload_secret(&name()).await;
    assert_eq!(authority(&trust), None);
    stage.hub_accepts(Some(stage.hub.pem()));
    trust.reload_secret(&name()).await;
    assert_eq!(authority(&trust), first);
}

#[tokio::test(start_paused = true)]
async fn the_reload_signal_reads_again() {
    let stage = Stage::new();
    let trust = stage.start(false).await.unwrap();
    let reader = trust.reader();
    let (order, signal) = keyferry_platform::reload_signal::channel();
    let (_list, inputs) = watch::channel(InputCredentials::default());
    let task = tokio::spawn(trust.run_trust_reload(inputs, signal));
    stage.secrets.pem.lock().clear();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let is_used = || reader.current().callers.rules()[0].authority.is_some();
    assert!(is_used(), "not read yet");
    order.send_reload();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!is_used());
    task.abort();
}

/// A credential for inputs with a certificate under the CA of the stage.
fn credential(uri: &str, allow_hub_client_ca: bool) -> Arc<InputCredential> {
    Arc::new(InputCredential {
        name: ObjectName::new("prod").unwrap(),
        scope: InputScope::Admin,
        proof: InputProof::Certificate(ClientCertificateRule {
            authority_secret: name(),
            uri: uri.to_owned(),
            allow_hub_client_ca,
        }),
    })
}

#[tokio::test(start_paused = true)]
async fn a_changed_list_of_credentials_is_used_without_a_restart() {
    let stage = Stage::new();
    let first: InputCredentials = [credential("a:first", false)].into();
    let trust = stage
        .start_with(CertificateRules {
            callers: Vec::new(),
            inputs: Arc::clone(&first),
        })
        .await
        .unwrap();
    let reader = trust.reader();
    let uris = || -> Vec<(String, bool)> {
        let current = reader.current();
        let rules = current.inputs.rules().iter();
        rules
            .map(|rule| (rule.uri.clone(), rule.authority.is_some()))
            .collect()
    };
    assert_eq!(uris(), [("a:first".to_owned(), true)]);
    assert!(reader.current().callers.rules().is_empty());
    let (list, inputs) = watch::channel(first);
    let task = tokio::spawn(trust.run_trust_reload(inputs, ReloadSignal::never()));
    list.send([credential("a:second", false)].into()).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(uris(), [("a:second".to_owned(), true)]);
    // A Secret that was not named at the start is not watched.
    let mut elsewhere = credential("a:third", false);
    if let InputProof::Certificate(rule) = &mut Arc::make_mut(&mut elsewhere).proof {
        rule.authority_secret = ObjectName::new("another-ca").unwrap();
    }
    list.send([elsewhere].into()).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(uris(), [("a:third".to_owned(), false)]);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_new_credential_may_forbid_the_ca_that_another_allowed() {
    let stage = Stage::new();
    stage.hub_accepts(Some(stage.callers.pem()));
    let first: InputCredentials = [credential("a:first", true)].into();
    let rules = |inputs: &InputCredentials| CertificateRules {
        callers: Vec::new(),
        inputs: Arc::clone(inputs),
    };
    let trust = stage.start_with(rules(&first)).await.unwrap();
    let reader = trust.reader();
    let used = || reader.current().inputs.rules()[0].authority.is_some();
    assert!(used());
    let (list, inputs) = watch::channel(first);
    let task = tokio::spawn(trust.run_trust_reload(inputs, ReloadSignal::never()));
    let strict: InputCredentials = [credential("a:first", false)].into();
    list.send(Arc::clone(&strict)).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!used());
    // Once the CA is no longer the hub's, the next look accepts it.
    stage.hub_accepts(Some(stage.hub.pem()));
    list.send(strict).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(used());
    task.abort();
    stage.hub_accepts(Some(stage.callers.pem()));
    let error = stage.start_with(rules(&[credential("a:first", false)].into()));
    assert!(error.await.is_err());
}

#[tokio::test]
async fn the_rules_refuse_chains_over_the_hubs_client_ca() {
    let stage = Stage::new();
    let keys = |authority: &TestAuthority| AuthorityKeys::from_pem(authority.pem().as_bytes());
    let trust = stage.start(false).await.unwrap();
    let refused = || {
        trust.reader().current().callers.rules()[0]
            .refused_keys
            .clone()
    };
    assert_eq!(refused().as_deref(), keys(&stage.hub).as_ref());
    let now = stage.clock.now().wall;
    for content in [Some(stage.callers.pem()), Some("text")] {
        // Also behind bad content, which keeps the CA that was read before.
        stage.holds(content);
        let next = TestAuthority::new("next hub clients", now, |_| {});
        stage.hub_accepts(Some(next.pem()));
        trust.reload_secret(&name()).await;
        assert_eq!(refused().as_deref(), keys(&next).as_ref());
    }
    stage.objects.delete_foreign(HUB_CLIENT_CA);
    trust.reload_secret(&name()).await;
    assert!(refused().is_some(), "the last that was read");

    stage.holds(Some(stage.callers.pem()));
    let allowed = stage.start(true).await.unwrap();
    assert_eq!(
        allowed.reader().current().callers.rules()[0].refused_keys,
        None
    );
}
