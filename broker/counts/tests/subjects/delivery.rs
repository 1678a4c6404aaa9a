//! A delivery: a process that has just started reconciles an access without an object, so it mints,
//! checks the token, records it, writes the Secret and reports in the status.

use std::sync::Arc;
use std::time::Duration;

use keyferry_api::config::{self, CertificateSource, Policy};
use keyferry_api::name::AccessName;
use keyferry_controller::context::Context;
use keyferry_controller::delivery::{CredentialSources, Deliveries, Next};
use keyferry_core::kubeconfig::{KubeconfigParts, render_kubeconfig};
use keyferry_hub::admission_policy::{AdmissionPolicyWriter, Standing};
use keyferry_hub::leadership::LeadershipWriter;
use keyferry_hub::object_store::{Collection, Faults, ObjectStore};
use keyferry_hub::targets::{Readiness, TargetState, TargetWriter};
use keyferry_hub::testing::OwnUser;
use keyferry_issuer::client_key::SystemClientKeys;
use keyferry_issuer::testing::{
    CONFIGURATION, FakeClock, FakeObjects, SmallWorld, activation_delay,
};
use keyferry_platform::audit_sink::AuditSink;
use keyferry_platform::clock::Clock;
use keyferry_platform::policy_store::PolicyWriter;
use keyferry_platform::random::SystemRandomness;
use keyferry_platform::testing::SilentTargets;
use secrecy::SecretString;
use serde_json::json;

const ACCESS: &str = "/apis/keyferry.dev/v1alpha1/namespaces/tenant-a/targetaccesses/apps";
const TARGET: &str = "/apis/keyferry.dev/v1alpha1/targetclusters/prod";
const SECRET: &str = "/api/v1/namespaces/tenant-a/secrets/apps-kubeconfig";

/// One access before its first delivery, and the process that delivers it.
pub struct Delivery {
    deliveries: Deliveries,
    objects: Arc<FakeObjects>,
    name: AccessName,
    policy: Arc<Policy>,
}

impl Delivery {
    /// Prepares the access, which delivers a kubeconfig as a Secret and is not probed.
    pub fn new(world: &SmallWorld, audit: Arc<dyn AuditSink>) -> Self {
        let objects = Arc::new(FakeObjects::default());
        put_objects(&objects, &world.clock.now().wall.to_string());
        let store = ObjectStore::new(config::read(CONFIGURATION).unwrap().server);
        store.list(Collection::TargetClusters, &objects.all("/targetclusters/"));
        store.list(Collection::TargetAccesses, &objects.all("/targetaccesses/"));
        let assembled = store.assemble_policy();
        let (targets, faults) = (TargetWriter::default(), Faults::default());
        let state = |target: &config::TargetCluster| TargetState {
            generation: target.generation,
            readiness: Readiness::Ready(match &target.certificate {
                CertificateSource::Inline(pem) => Some(pem.clone().into()),
                _ => None,
            }),
            client_certificate: false,
        };
        let states = assembled.policy.targets.values();
        targets.replace(
            states
                .map(|target| (target.name.clone(), state(target)))
                .collect(),
        );
        let policy = PolicyWriter::new(assembled.policy.clone()).reader();
        faults.replace(assembled);
        let author_policy = AdmissionPolicyWriter::for_author_policy();
        author_policy.set_state(Standing::Active);
        let leadership = LeadershipWriter::default();
        leadership.set(Some(Duration::from_secs(1_000_000_000)));
        let clock = Arc::<FakeClock>::clone(&world.clock);
        let context = Context {
            policy: policy.clone(),
            store: Arc::new(store),
            faults,
            live: Arc::clone(&world.live),
            published: world.publisher.reader(),
            targets: targets.reader(),
            author_policy: author_policy.reader(),
            objects: Arc::<FakeObjects>::clone(&objects),
            probe: Arc::new(SilentTargets),
            leadership: leadership.reader(),
            clock,
            random: Arc::new(SystemRandomness::default()),
            metrics: world.metrics.clone(),
        };
        let credentials = CredentialSources {
            mint: world.new_mint(),
            client_keys: Arc::new(SystemClientKeys),
            facts: Arc::<OwnUser>::default(),
            audit,
            activation_delay: activation_delay(),
        };
        Self {
            deliveries: Deliveries::new(Arc::new(context), credentials),
            objects,
            name: AccessName::parse("tenant-a/apps").unwrap(),
            policy: policy.current(),
        }
    }

    /// Delivers.
    pub async fn deliver(&self) -> Next {
        self.deliveries.reconcile(&self.name).await
    }

    /// Asserts that the Secret is there and the status reports it.
    pub fn assert_delivered(&self) {
        let access = self.objects.object(ACCESS).unwrap();
        let conditions = access["status"]["conditions"].as_array();
        let conditions = conditions.cloned().unwrap_or_default();
        let secret = self.objects.object(SECRET).unwrap_or_default();
        assert!(
            secret["data"]["value"].is_string(),
            "{conditions:?}, {:?}",
            self.objects.calls()
        );
        let is_ready = |condition: &serde_json::Value| {
            condition["type"] == "Ready" && condition["status"] == "True"
        };
        assert!(conditions.iter().any(is_ready), "{conditions:?}");
    }

    /// Writes the kubeconfig of the access alone.
    pub fn render_kubeconfig(&self, token: &SecretString) -> SecretString {
        let target = self.policy.targets.values().next().unwrap();
        render_kubeconfig(&KubeconfigParts {
            target,
            ca_pem: None,
            access: &self.name,
            token,
        })
        .unwrap()
    }
}

fn put_objects(objects: &FakeObjects, created: &str) {
    let allow = json!([{
        "namespaces": ["tenant-a"],
        "serviceAccounts": ["reconciler"],
        "deliveries": ["KubeConfigSecret"],
    }]);
    let address = "https://prod.example.test";
    let target = json!({
        "apiVersion": "keyferry.dev/v1alpha1",
        "kind": "TargetCluster",
        "metadata": { "name": "prod", "generation": 1, "creationTimestamp": created },
        "spec": { "address": address, "audience": address, "allow": allow },
    });
    let access = json!({
        "apiVersion": "keyferry.dev/v1alpha1",
        "kind": "TargetAccess",
        "metadata": {
            "name": "apps",
            "namespace": "tenant-a",
            "generation": 1,
            "creationTimestamp": created,
            // The store in memory shows a new finalizer by its next list alone.
            "finalizers": [config::FINALIZER],
        },
        "spec": {
            "targetClusterRef": { "name": "prod" },
            "serviceAccountName": "reconciler",
            "deliveries": [{ "name": "s", "type": "KubeConfigSecret" }],
            "probe": "Off",
        },
    });
    objects.put_foreign(TARGET, target);
    objects.put_foreign(ACCESS, access);
}
