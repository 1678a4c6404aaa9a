//! The test bench: one access of tenant-a with its deliveries, and every failure around it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use keyferry_api::config;
use keyferry_api::name::AccessName;
use keyferry_core::audit::AuditRecord;
use keyferry_hub::admission_policy::{AdmissionPolicyWriter, Standing};
use keyferry_hub::leadership::LeadershipWriter;
use keyferry_hub::object_store::{Collection, Faults, ObjectStore};
use keyferry_hub::targets::{Readiness, TargetState, TargetWriter};
use keyferry_hub::testing::OwnUser;
use keyferry_issuer::client_key::{ClientKeys, SystemClientKeys};
use keyferry_issuer::testing::{
    CONFIGURATION, FakeClock, FakeObjects, SmallWorld, activation_delay,
};
use keyferry_keys::client_certificate::ClientKey;
use keyferry_platform::audit_sink::{AuditSink, Recording};
use keyferry_platform::policy_store::PolicyWriter;
use keyferry_platform::target_connection::TargetAddress;
use keyferry_platform::target_probe::{ProbeAnswer, TargetProbe};
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use crate::context::Context;
use crate::delivery::{CredentialSources, Deliveries, Next};

/// The path of the access.
pub(super) const ACCESS: &str =
    "/apis/keyferry.dev/v1alpha1/namespaces/tenant-a/targetaccesses/apps";
pub(super) const TARGET: &str = "/apis/keyferry.dev/v1alpha1/targetclusters/prod";
pub(super) const SECRET: &str = "/api/v1/namespaces/tenant-a/secrets/apps-kubeconfig";

/// A hub, an access and its deliveries for tests.
pub(super) struct Bench {
    pub(super) world: SmallWorld,
    pub(super) objects: Arc<FakeObjects>,
    pub(super) audit: Arc<FakeAudit>,
    pub(super) probe: Arc<FakeProbe>,
    pub(super) keys: Arc<KnownKeys>,
    pub(super) facts: Arc<OwnUser>,
    pub(super) policy: Arc<PolicyWriter>,
    pub(super) admission_policy: AdmissionPolicyWriter,
    pub(super) leadership: Arc<LeadershipWriter>,
    store: Arc<ObjectStore>,
    faults: Faults,
    targets: TargetWriter,
}

impl Bench {
    /// Starts a hub with the access, before its first reconciliation.
    pub(super) async fn start() -> Self {
        let world = SmallWorld::start().await;
        let server = config::read(CONFIGURATION).unwrap().server;
        let bench = Self {
            world,
            objects: Arc::default(),
            audit: Arc::default(),
            probe: Arc::default(),
            keys: Arc::default(),
            facts: Arc::default(),
            policy: Arc::new(PolicyWriter::new(config::Policy::default())),
            admission_policy: AdmissionPolicyWriter::for_author_policy(),
            leadership: Arc::default(),
            store: Arc::new(ObjectStore::new(server)),
            faults: Faults::default(),
            targets: TargetWriter::default(),
        };
        bench.admission_policy.set_state(Standing::Active);
        bench
            .leadership
            .set(Some(Duration::from_secs(1_000_000_000)));
        bench
    }

    /// Resets the state to before the first write, on the same hub.
    pub(super) fn begin_with(&mut self, spec: Value) {
        self.objects = Arc::default();
        self.audit = Arc::default();
        self.put_target(&json!({}));
        self.put_access(spec);
    }

    /// Writes the TargetCluster, with further fields of its spec.
    pub(super) fn put_target(&self, further: &Value) {
        let mut spec = json!({
            "address": "https://prod.example.test", "audience": "https://prod.example.test",
            "allow": [{ "namespaces": ["tenant-a"], "serviceAccounts": ["reconciler"], "deliveries": ["HTTP", "KubeConfigSecret", "FluxConfigMap"] }],
        });
        for (field, value) in further.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        self.put(TARGET, "TargetCluster", json!({ "name": "prod" }), spec);
    }

    /// Writes the TargetAccess, with further fields of its spec.
    pub(super) fn put_access(&self, further: Value) {
        let mut spec =
            json!({ "targetClusterRef": { "name": "prod" }, "serviceAccountName": "reconciler" });
        for (field, value) in further.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        self.put(
            ACCESS,
            "TargetAccess",
            json!({ "name": "apps", "namespace": "tenant-a" }),
            spec,
        );
    }

    /// Writes another access of the namespace to the target, created at a time.
    pub(super) fn put_other_access(&self, name: &str, created: &str) {
        let path = ACCESS.replace("/apps", &format!("/{name}"));
        let metadata = json!({
            "name": name, "namespace": "tenant-a", "generation": 1, "creationTimestamp": created,
        });
        let spec =
            json!({ "targetClusterRef": { "name": "prod" }, "serviceAccountName": "reconciler" });
        let object = json!({ "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess", "metadata": metadata, "spec": spec });
        self.objects.put_foreign(&path, object);
    }

    /// Removes another access of the namespace.
    pub(super) fn remove_other_access(&self, name: &str) {
        self.objects
            .delete_foreign(&ACCESS.replace("/apps", &format!("/{name}")));
    }

    fn put(&self, path: &str, kind: &str, mut metadata: Value, spec: Value) {
        if self.objects.object(path).is_some() {
            return self.objects.edit(path, |object| {
                object["spec"] = spec;
                object["metadata"]["generation"] = json!(
                    object["metadata"]["generation"]
                        .as_i64()
                        .unwrap_or_default()
                        + 1
                );
            });
        }
        metadata["generation"] = json!(1);
        metadata["creationTimestamp"] = json!(self.now());
        let object = json!({ "apiVersion": "keyferry.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec });
        self.objects.put_foreign(path, object);
    }

    fn now(&self) -> String {
        use keyferry_platform::clock::Clock;
        self.world.clock.now().wall.to_string()
    }

    /// Deletes the access; its finalizers keep it.
    pub(super) fn delete_access(&self) {
        let now = self.now();
        self.objects.edit(ACCESS, |object| {
            object["metadata"]["deletionTimestamp"] = json!(now)
        });
    }

    /// Deletes the TargetCluster; Keyferry's finalizer keeps it.
    pub(super) fn delete_target(&self) {
        let now = self.now();
        self.objects.edit(TARGET, |object| {
            object["metadata"]["deletionTimestamp"] = json!(now);
            object["metadata"]["finalizers"] = json!([config::FINALIZER]);
        });
    }

    /// Delivers the watch events, and updates the policy from them.
    pub(super) fn watch(&self) {
        self.store.list(
            Collection::TargetClusters,
            &self.objects.all("/targetclusters/"),
        );
        self.store.list(
            Collection::TargetAccesses,
            &self.objects.all("/targetaccesses/"),
        );
        let assembled = self.store.assemble_policy();
        let state = |target: &config::TargetCluster| {
            let readiness = Readiness::Ready(match &target.certificate {
                config::CertificateSource::Inline(pem) => Some(pem.clone().into()),
                _ => None,
            });
            (
                target.name.clone(),
                TargetState {
                    generation: target.generation,
                    readiness,
                    client_certificate: false,
                },
            )
        };
        self.targets
            .replace(assembled.policy.targets.values().map(state).collect());
        self.policy.replace(assembled.policy.clone());
        self.faults.replace(assembled);
    }

    /// Starts a new process, with empty caches.
    pub(super) fn process(&self) -> Deliveries {
        let objects = Arc::<FakeObjects>::clone(&self.objects);
        let context = Context {
            policy: self.policy.reader(),
            store: Arc::clone(&self.store),
            faults: self.faults.clone(),
            live: Arc::clone(&self.world.live),
            published: self.world.publisher.reader(),
            targets: self.targets.reader(),
            author_policy: self.admission_policy.reader(),
            probe: Arc::<FakeProbe>::clone(&self.probe),
            leadership: self.leadership.reader(),
            ..Context::empty(Arc::<FakeClock>::clone(&self.world.clock), objects)
        };
        let credentials = CredentialSources {
            mint: self.world.new_mint(),
            client_keys: Arc::<KnownKeys>::clone(&self.keys),
            facts: Arc::<OwnUser>::clone(&self.facts),
            audit: Arc::<FakeAudit>::clone(&self.audit),
            activation_delay: activation_delay(),
        };
        Deliveries::new(Arc::new(context), credentials)
    }

    /// Delivers the watch events and reconciles the access once.
    pub(super) async fn reconcile_once(&self, process: &Deliveries) -> Next {
        self.watch();
        process
            .reconcile(&AccessName::parse("tenant-a/apps").unwrap())
            .await
    }

    /// Reconciles until no retry is needed, at most eight times.
    pub(super) async fn reconcile_all(&self, process: &Deliveries) -> Next {
        for _ in 0..8 {
            let next = self.reconcile_once(process).await;
            if next != Next::Retry {
                return next;
            }
        }
        Next::Retry
    }

    /// Returns status and reason of a condition of the access.
    pub(super) fn condition(&self, kind: &str) -> (String, String) {
        let access = self.objects.object(ACCESS).unwrap();
        let conditions = access["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let found = conditions
            .into_iter()
            .find(|condition| condition["type"] == kind)
            .unwrap_or_default();
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        (text("status"), text("reason"))
    }

    /// Asserts that the access is ready.
    pub(super) fn assert_ready(&self, when: &str) {
        assert_eq!(
            self.condition("Ready"),
            ("True".to_owned(), "Ready".to_owned()),
            "{when}"
        );
    }

    /// Returns `status.exposureUntil`.
    pub(super) fn exposure(&self) -> Option<jiff::Timestamp> {
        self.objects.object(ACCESS)?["status"]["exposureUntil"]
            .as_str()?
            .parse()
            .ok()
    }

    /// Returns the latest expiry of all tokens that an object ever contained.
    pub(super) fn last_end(&self) -> Option<jiff::Timestamp> {
        self.objects.every_version().iter().filter_map(expiry).max()
    }
}

/// Makes keys, and lets the test sign certificates for them.
#[derive(Default)]
pub(super) struct KnownKeys(Mutex<Vec<String>>);

impl KnownKeys {
    /// The PEM of every key so far, the oldest first.
    pub(super) fn made(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

impl ClientKeys for KnownKeys {
    fn generate(&self) -> Option<ClientKey> {
        let key = SystemClientKeys.generate()?;
        self.0.lock().push(key.to_pem().expose_secret().to_owned());
        Some(key)
    }
}

/// Returns one of Keyferry's annotations of an object.
pub(super) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][format!("keyferry.dev/{key}")].as_str()
}

/// Returns when the token of an object expires, in whole seconds like a status.
pub(super) fn expiry(object: &Value) -> Option<jiff::Timestamp> {
    let end: jiff::Timestamp = annotation(object, "expires-at")?.parse().ok()?;
    jiff::Timestamp::from_second(end.as_second()).ok()
}

/// A spec that delivers a Secret with a token and does not probe the target.
pub(super) fn secret() -> Value {
    json!({ "deliveries": [{ "name": "s", "type": "KubeConfigSecret" }], "probe": "Off" })
}

type AuditHook = Box<dyn Fn() + Send + Sync>;

/// Stores the records, fails, or runs a test's hook between the mint and the write.
#[derive(Default)]
pub(super) struct FakeAudit {
    records: Mutex<Vec<Value>>,
    away: std::sync::atomic::AtomicBool,
    hook: Mutex<Option<AuditHook>>,
}

impl FakeAudit {
    pub(super) fn be_away(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }

    pub(super) fn on_record(&self, hook: Option<AuditHook>) {
        *self.hook.lock() = hook;
    }

    /// Returns how many tokens were recorded as issued.
    pub(super) fn tokens(&self) -> usize {
        self.records
            .lock()
            .iter()
            .filter(|record| record["tokenId"].is_string())
            .count()
    }

    /// Whether a token of this `jti` was recorded.
    pub(super) fn knows(&self, token_id: &str) -> bool {
        self.records
            .lock()
            .iter()
            .any(|record| record["tokenId"] == token_id)
    }
}

impl AuditSink for FakeAudit {
    fn record(&self, record: &AuditRecord) -> Recording {
        if self.away.load(Ordering::SeqCst) {
            return Recording::failed();
        }
        self.records.lock().push(
            serde_json::from_slice(&record.to_json_line().unwrap_or_default()).unwrap_or_default(),
        );
        if let Some(hook) = &*self.hook.lock() {
            hook();
        }
        Recording::written()
    }
}

/// A target that gives the test's answer and counts the probes.
pub(super) struct FakeProbe {
    answer: Mutex<ProbeAnswer>,
    asked: AtomicUsize,
}

impl Default for FakeProbe {
    fn default() -> Self {
        Self {
            answer: Mutex::new(ProbeAnswer::Unanswered("nobody is there".into())),
            asked: AtomicUsize::new(0),
        }
    }
}

impl FakeProbe {
    pub(super) fn set_answer(&self, answer: ProbeAnswer) {
        *self.answer.lock() = answer;
    }

    pub(super) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl TargetProbe for FakeProbe {
    fn try_token<'a>(
        &'a self,
        _: &'a TargetAddress,
        _: &'a SecretString,
    ) -> BoxFuture<'a, ProbeAnswer> {
        Box::pin(async move {
            self.asked.fetch_add(1, Ordering::SeqCst);
            self.answer.lock().clone()
        })
    }
}
