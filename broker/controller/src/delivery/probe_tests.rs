//! Tests of deliveries against a small hub that mints, with fake objects, targets and audit log.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use keyferry_api::config::{self, ReducedObject};
use keyferry_api::name::AccessName;
use keyferry_core::access_status::TargetIdentity;
use keyferry_core::audit::AuditRecord;
use keyferry_core::client_certificate::CountedRequest;
use keyferry_core::delivery::{FluxObject, ObjectBody, ReadObject};
use keyferry_hub::admission_policy::{AdmissionPolicyWriter, Standing};
use keyferry_hub::leadership::LeadershipWriter;
use keyferry_hub::object_store::{Collection, ObjectStore};
use keyferry_hub::ports::{HubError, HubFacts, HubObjects};
use keyferry_hub::targets::{Readiness, TargetState, TargetWriter};
use keyferry_issuer::client_key::SystemClientKeys;
use keyferry_issuer::testing::{FakeClock, SmallWorld};
use keyferry_platform::audit_sink::{AuditSink, Recording};
use keyferry_platform::policy_store::PolicyWriter;
use keyferry_platform::target_connection::TargetAddress;
use keyferry_platform::target_probe::{ProbeAnswer, TargetProbe};
use secrecy::SecretString;
use serde_json::{Value, json};

use super::{CredentialSources, Deliveries};
use crate::context::Context;

/// Stands in for the target, the hub and the audit log, and counts their calls.
#[derive(Default)]
struct Fakes {
    recorded: Mutex<Vec<&'static str>>,
    audit_fails: AtomicBool,
    created: AtomicUsize,
    asked: AtomicUsize,
    /// The username that the target reports for the token; without one, it does not answer.
    known_as: Mutex<Option<&'static str>>,
    conditions: Mutex<Vec<Value>>,
}

impl Fakes {
    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl AuditSink for Fakes {
    fn record(&self, record: &AuditRecord) -> Recording {
        self.recorded.lock().unwrap().push(record.route);
        if self.audit_fails.load(Ordering::SeqCst) {
            Recording::failed()
        } else {
            Recording::written()
        }
    }
}

impl TargetProbe for Fakes {
    fn try_token<'a>(
        &'a self,
        _: &'a TargetAddress,
        _: &'a SecretString,
    ) -> BoxFuture<'a, ProbeAnswer> {
        assert!(
            self.recorded.lock().unwrap().contains(&"probe"),
            "a token leaves that nobody has recorded"
        );
        self.asked.fetch_add(1, Ordering::SeqCst);
        let answer = match *self.known_as.lock().unwrap() {
            None => ProbeAnswer::Unanswered("it did not answer in time".into()),
            Some(name) => ProbeAnswer::Accepted(TargetIdentity {
                username: name.to_owned(),
                uid: String::new(),
                groups: Vec::new(),
            }),
        };
        Box::pin(async { answer })
    }
}

impl HubFacts for Fakes {
    fn api_audiences(&self) -> BoxFuture<'_, Result<Vec<String>, HubError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn own_username(&self) -> BoxFuture<'_, Result<String, HubError>> {
        Box::pin(async { Ok("keyferry".to_owned()) })
    }
}

impl HubObjects for Fakes {
    fn get<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Option<ReadObject>, HubError>> {
        Box::pin(async { Ok(None) })
    }

    fn is_used_by_flux<'a>(
        &'a self,
        _: &'a str,
        _: &'a (dyn Fn(&FluxObject) -> bool + Send + Sync),
    ) -> BoxFuture<'a, Result<bool, HubError>> {
        Box::pin(async { Ok(false) })
    }

    fn certificate_request_times<'a>(
        &'a self,
        _: &'a str,
        _: usize,
        _: &'a (dyn Fn(&CountedRequest) -> Option<Timestamp> + Send + Sync),
    ) -> BoxFuture<'a, Result<Vec<Timestamp>, HubError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn create<'a>(
        &'a self,
        _: &'a str,
        _: &'a ObjectBody,
    ) -> BoxFuture<'a, Result<String, HubError>> {
        self.created.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok("1".to_owned()) })
    }

    fn replace<'a>(
        &'a self,
        _: &'a str,
        _: &'a ObjectBody,
    ) -> BoxFuture<'a, Result<String, HubError>> {
        Box::pin(async { Ok("2".to_owned()) })
    }

    fn delete<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        Box::pin(async { Ok(()) })
    }

    fn create_plain<'a>(&'a self, _: &'a str, _: &'a Value) -> BoxFuture<'a, Result<(), HubError>> {
        Box::pin(async { Ok(()) })
    }

    fn replace_plain<'a>(
        &'a self,
        _: &'a str,
        _: &'a Value,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        Box::pin(async { Ok(()) })
    }

    fn patch<'a>(
        &'a self,
        _: &'a str,
        change: &'a Value,
    ) -> BoxFuture<'a, Result<ReducedObject, HubError>> {
        self.conditions.lock().unwrap().extend(
            change
                .pointer("/status/conditions")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default(),
        );
        Box::pin(async { Ok(ReducedObject::of(&Value::Null)) })
    }

    fn apply_status<'a>(&'a self, _: &'a str, _: &'a Value) -> BoxFuture<'a, Result<(), HubError>> {
        Box::pin(async { Ok(()) })
    }
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    let namespace = (kind == "TargetAccess").then_some("tenant-a");
    json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": kind, "spec": spec,
        "metadata": {
            "name": name, "namespace": namespace, "uid": format!("uid-{name}"), "generation": 1, "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
    })
}

/// Two accesses of one target, and one of its role, each with a Secret.
async fn start_deliveries() -> (SmallWorld, Arc<Fakes>, Deliveries) {
    let small = SmallWorld::start().await;
    let text = "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nobjects: CustomResources\nhubName: hub\n\
                publicURL: https://keyferry.example.test\ndiscovery: {tls: {certFile: a, keyFile: b}}\napi: {tls: {certFile: a, keyFile: b}}\n";
    let store = Arc::new(ObjectStore::new(config::read(text).unwrap().server));
    let allow = json!([{ "namespaces": ["tenant-a"], "serviceAccounts": ["reconciler"], "deliveries": ["KubeConfigSecret"] }]);
    let target = json!({ "address": "https://prod.example.test", "audience": "https://prod.example.test", "allow": allow });
    let access = json!({
        "targetClusterRef": { "name": "prod" }, "serviceAccountName": "reconciler", "deletionPolicy": "Immediate",
        "deliveries": [{ "name": "secret", "type": "KubeConfigSecret" }],
    });
    let role =
        json!({ "sameAs": "prod", "role": "view", "audience": "view", "allow": target["allow"] });
    let mut access_of_role = access.clone();
    access_of_role["targetClusterRef"]["name"] = json!("prod-view");
    store.list(
        Collection::TargetClusters,
        &[("prod", &target), ("prod-view", &role)]
            .map(|(name, spec)| object("TargetCluster", name, spec)),
    );
    store.list(
        Collection::TargetAccesses,
        &[
            ("one", &access),
            ("two", &access),
            ("role", &access_of_role),
        ]
        .map(|(name, spec)| object("TargetAccess", name, spec)),
    );
    let policy = store.assemble_policy().policy;
    assert_eq!((policy.targets.len(), policy.accesses.len()), (2, 3));
    let (admission_policy, leadership, targets) = (
        AdmissionPolicyWriter::for_author_policy(),
        LeadershipWriter::default(),
        TargetWriter::default(),
    );
    admission_policy.set_state(Standing::Active);
    leadership.set(Some(Duration::from_secs(1_000_000)));
    let states = policy.targets.iter().map(|(name, target)| {
        let state = TargetState {
            generation: target.generation,
            readiness: Readiness::Ready(None),
            client_certificate: false,
        };
        (name.clone(), state)
    });
    targets.replace(states.collect::<HashMap<_, _>>());
    let fakes = Arc::new(Fakes::default());
    let context = Context {
        policy: PolicyWriter::new(policy).reader(),
        store,
        live: Arc::clone(&small.live),
        published: small.publisher.reader(),
        targets: targets.reader(),
        author_policy: admission_policy.reader(),
        probe: Arc::<Fakes>::clone(&fakes),
        metrics: small.metrics.clone(),
        leadership: leadership.reader(),
        ..Context::empty(
            Arc::<FakeClock>::clone(&small.clock),
            Arc::<Fakes>::clone(&fakes),
        )
    };
    let credentials = CredentialSources {
        mint: small.mint.clone(),
        client_keys: Arc::new(SystemClientKeys),
        facts: Arc::<Fakes>::clone(&fakes),
        audit: Arc::<Fakes>::clone(&fakes),
        activation_delay: Duration::from_secs(90),
    };
    let deliveries = Deliveries::new(Arc::new(context), credentials);
    (small, fakes, deliveries)
}

fn named(text: &str) -> AccessName {
    AccessName::parse(text).unwrap()
}

#[tokio::test]
async fn a_token_is_recorded_before_it_goes_to_a_target() {
    let (_world, seen, deliveries) = start_deliveries().await;
    seen.audit_fails.store(true, Ordering::SeqCst);
    deliveries.reconcile(&named("tenant-a/one")).await;
    assert_eq!(
        (seen.asked(), seen.created.load(Ordering::SeqCst)),
        (0, 0),
        "what cannot be recorded stays here"
    );
    seen.audit_fails.store(false, Ordering::SeqCst);
    deliveries.reconcile(&named("tenant-a/one")).await;
    assert_eq!((seen.asked(), seen.created.load(Ordering::SeqCst)), (1, 1));
    assert!(
        seen.recorded
            .lock()
            .unwrap()
            .ends_with(&["probe", "delivery"])
    );
}

#[tokio::test]
async fn the_silence_of_a_target_is_waited_for_once() {
    let (world, seen, deliveries) = start_deliveries().await;
    let (one, two) = (named("tenant-a/one"), named("tenant-a/two"));
    deliveries.reconcile(&one).await;
    deliveries.reconcile(&two).await;
    assert_eq!(
        (seen.asked(), seen.created.load(Ordering::SeqCst)),
        (1, 2),
        "the second goes by what the first has found"
    );
    world.clock.advance(Duration::from_secs(61));
    deliveries.reconcile(&two).await;
    deliveries.reconcile(&one).await;
    assert_eq!(seen.asked(), 2, "one asks again for all");
}

#[tokio::test]
async fn a_target_that_knows_the_token_by_a_name_of_its_own_is_told_of() {
    for (name, status, reason) in [
        (
            "hub:system:serviceaccount:tenant-a:reconciler",
            "True",
            "Ready",
        ),
        (
            "system:serviceaccount:tenant-a:reconciler",
            "False",
            "IdentityUnexpected",
        ),
        (
            "other:system:serviceaccount:tenant-a:reconciler",
            "False",
            "IdentityUnexpected",
        ),
    ] {
        let (_world, seen, deliveries) = start_deliveries().await;
        *seen.known_as.lock().unwrap() = Some(name);
        deliveries.reconcile(&named("tenant-a/one")).await;
        let conditions = seen.conditions.lock().unwrap();
        let found = conditions
            .iter()
            .rev()
            .find(|condition| condition["type"] == "TargetAuthenticates")
            .cloned()
            .unwrap();
        assert_eq!(
            (&found["status"], &found["reason"]),
            (&json!(status), &json!(reason)),
            "{name}: {found}"
        );
    }
}

#[tokio::test]
async fn a_role_with_the_rights_of_its_account_gets_nothing_delivered() {
    for (name, status, reason, written) in [
        (
            "hub:view:system:serviceaccount:tenant-a:reconciler",
            "True",
            "Ready",
            1,
        ),
        (
            "hub:system:serviceaccount:tenant-a:reconciler",
            "False",
            "RoleNotMapped",
            0,
        ),
    ] {
        let (_world, seen, deliveries) = start_deliveries().await;
        *seen.known_as.lock().unwrap() = Some(name);
        deliveries.reconcile(&named("tenant-a/role")).await;
        assert_eq!(seen.created.load(Ordering::SeqCst), written, "{name}");
        let conditions = seen.conditions.lock().unwrap();
        for kind in ["Ready", "TargetAuthenticates"] {
            let newest = conditions
                .iter()
                .rev()
                .find(|condition| condition["type"] == kind)
                .unwrap();
            assert_eq!(
                (&newest["status"], &newest["reason"]),
                (&json!(status), &json!(reason)),
                "{name}: {newest}"
            );
        }
    }
}
