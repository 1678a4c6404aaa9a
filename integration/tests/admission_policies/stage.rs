//! Two hubs, set up as their admin would: manifests, CRDs, then the admission policies.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use keyferry_core::pairing;
use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::fleet::{Fleet, FleetSpec};
use keyferry_integration::keyferry_process::KeyferryBinary;
use keyferry_integration::parts::Minor;
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::rest::{RestClient, RestError};
use keyferry_integration::runner::{Fixture, NotStarted, TestError, TestResult};
use keyferry_integration::wait;
use keyferry_integration::world::{make_tenant, prepare_hub, shipped};
use serde_json::{Value, json};

use super::people;

/// The API path of policies and their bindings.
pub(super) const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
/// The API path of Keyferry's objects.
pub(super) const KEYFERRY: &str = "/apis/keyferry.dev/v1alpha1";
/// The API path of the only AudiencePairing.
pub(super) const PAIRING: &str = "/apis/keyferry.dev/v1alpha1/audiencepairings/keyferry";
/// The names of the policies without their prefix.
pub(super) const ADMISSION_POLICIES: [&str; 7] = [
    "pairing", "author", "audience", "retarget", "labels", "self", "kept",
];
/// A listed audience, for which `tenant-a/reconciler` and the canary may have tokens.
pub(super) const AUDIENCE: &str = "https://prod.keyferry.test";
/// Another listed audience of the same account.
pub(super) const SECOND: &str = "https://stage.keyferry.test";

/// The audience of a role at the first one's cluster, for which `tenant-a/other` may have tokens.
pub(super) const ROLE: &str = "https://prod.keyferry.test/roles/view";

/// The two hubs, with Keyferry's command line.
pub(super) struct Stage {
    pub(super) hubs: Vec<Arc<ControlPlane>>,
    /// The command line.
    pub(super) binary: KeyferryBinary,
    fleet: Fleet,
}

impl Fixture for Stage {
    fn log_tails(&self) -> String {
        self.fleet.log_tails()
    }
}

impl Stage {
    pub(super) async fn start() -> Result<Self, NotStarted> {
        // As on real hubs, the Node authoriser and NodeRestriction limit what a kubelet may
        // request.
        let extra_args = vec![
            "--authorization-mode=Node".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
        ];
        let new = ControlPlaneSpec {
            controller_manager: true,
            extra_args: extra_args.clone(),
            ..ControlPlaneSpec::named("new")
        };
        let old = ControlPlaneSpec {
            minor: Minor::V1_33,
            extra_args,
            ..ControlPlaneSpec::named("old")
        };
        let fleet = Fleet::start(FleetSpec {
            control_planes: vec![new, old],
        })
        .await?;
        Self::build(fleet).await.map_err(NotStarted::failed)
    }

    async fn build(fleet: Fleet) -> Result<Self, TestError> {
        let hubs: Vec<Arc<ControlPlane>> = fleet.control_planes().cloned().collect();
        futures::future::try_join_all(hubs.iter().map(|hub| prepare(hub))).await?;
        Ok(Self {
            hubs,
            binary: KeyferryBinary::build().await?,
            fleet,
        })
    }
}

async fn prepare(hub: &ControlPlane) -> Result<(), TestError> {
    prepare_hub(hub).await?;
    // The same account name in another namespace, and another name in the same namespace.
    make_tenant(hub, "tenant-b", &["reconciler"]).await?;
    make_tenant(hub, "tenant-a", &["reconciler", "other"]).await?;
    hub.create_namespace_with_service_account("kube-system", "reconciler")
        .await?;
    install(hub).await
}

/// Installs the CRDs, the roles, the pairing and the admission policies, and waits until each is
/// active.
async fn install(hub: &ControlPlane) -> Result<(), TestError> {
    define(hub).await?;
    let mut files = vec![shipped("examples/admission-policies/rights.yaml")];
    for name in ADMISSION_POLICIES {
        files.push(own_audiences_in(hub, name)?);
    }
    files.push(admission_policy("pairing-binding"));
    apply_manifests(hub, &files.iter().map(PathBuf::as_path).collect::<Vec<_>>()).await?;
    // The test does not wait for a minute between the two, so tokens may be refused at first: see
    // the binding's comment.
    until_in_force(hub).await
}

/// Restores the policies as the suite installed them, after a test that changed them.
pub(super) async fn restore(hub: &ControlPlane) -> Result<(), TestError> {
    for name in ADMISSION_POLICIES {
        apply(hub, &own_audiences_in(hub, name)?).await?;
    }
    apply(hub, &admission_policy("pairing-binding")).await?;
    until_in_force(hub).await
}

/// Applies the CRDs, waits until they are served, and writes the pairing.
pub(super) async fn define(hub: &ControlPlane) -> Result<(), TestError> {
    let crds = ["targetclusters", "targetaccesses", "audiencepairings"]
        .map(|plural| shipped("broker/crds").join(format!("{plural}.yaml")));
    apply_manifests(hub, &crds.each_ref().map(PathBuf::as_path)).await?;
    until("the definitions are served", || async {
        hub.admin()
            .get(&format!("{KEYFERRY}/audiencepairings"))
            .await
            .is_ok()
    })
    .await?;
    write_pairing(hub, &[]).await
}

/// A manifest, edited as its comment asks an admin to do.
fn own_audiences_in(hub: &ControlPlane, name: &str) -> Result<PathBuf, TestError> {
    let text = std::fs::read_to_string(admission_policy(name))?;
    let own = format!(
        "['https://{}.keyferry.test', 'https://kubernetes.default.svc',",
        hub.name()
    );
    let edited = text.replace("['https://kubernetes.default.svc',", &own);
    if (edited == text) == text.contains("name: hubAudiences") {
        return Err(format!(
            "examples/admission-policies/{name}.yaml has no list of the hub's audiences that could be edited"
        )
        .into());
    }
    let file = hub.folder().join(format!("{name}.yaml"));
    std::fs::write(&file, edited)?;
    Ok(file)
}

/// Writes the pairing with Keyferry's own account, as its leader does, with further audiences for
/// the same account.
pub(super) async fn write_pairing(hub: &ControlPlane, more: &[String]) -> Result<(), TestError> {
    let pair = json!(["keyferry-system/keyferry-canary", "tenant-a/reconciler"]);
    let of_role = json!(["keyferry-system/keyferry-canary", "tenant-a/other"]);
    let mut pairs = json!({
        AUDIENCE: pair, SECOND: pair, ROLE: of_role, pairing::UNUSABLE_AUDIENCE: [],
    });
    for audience in more {
        let others: Vec<String> = (0..20)
            .map(|number| format!("tenant-{number}/reconciler"))
            .collect();
        pairs[audience] = json!(
            others
                .into_iter()
                .chain(["tenant-a/reconciler".to_owned()])
                .collect::<Vec<_>>()
        );
    }
    let mut object = json!({ "apiVersion": "keyferry.dev/v1alpha1", "kind": "AudiencePairing", "metadata": { "name": "keyferry" }, "pairs": pairs });
    // At the first start, Keyferry has no rights yet: the manifests that follow grant them.
    let admin = hub.admin();
    match admin.get(PAIRING).await {
        Ok(found) => {
            object["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"].clone();
            people::keyferry(hub)
                .await?
                .replace(PAIRING, &object)
                .await?;
        }
        Err(_) => drop(
            admin
                .create(&format!("{KEYFERRY}/audiencepairings"), &object)
                .await?,
        ),
    }
    Ok(())
}

/// Waits until the policies are active, because an apiserver sees a new policy only after a moment.
/// After a restart of the apiserver, `keyferry-pairing` first refuses every token for up to 30 s.
pub(super) async fn until_in_force(hub: &ControlPlane) -> Result<(), TestError> {
    let admin = hub.admin();
    until(
        "the pairing refuses what is not listed, and nothing else",
        || async {
            denied_by(
                mint(admin, "tenant-a", "other", &[AUDIENCE]).await,
                "keyferry-pairing",
            ) && mint(admin, "tenant-a", "reconciler", &[AUDIENCE])
                .await
                .is_ok()
        },
    )
    .await?;
    let unlisted_user = people::account(hub, "tenant-a", "nobody-in-particular").await?;
    hub.bind_user_to_cluster_role(
        "system:serviceaccount:tenant-a:nobody-in-particular",
        "cluster-admin",
    )
    .await?;
    until("pairing holds", || async {
        denied_by(
            mint(&unlisted_user, "tenant-b", "reconciler", &[AUDIENCE]).await,
            "keyferry-pairing",
        )
    })
    .await?;
    let keyferry = people::keyferry(hub).await?;
    until("self holds", || async {
        denied_by(
            mint(&keyferry, "tenant-a", "reconciler", &["a", "b"]).await,
            "keyferry-self",
        )
    })
    .await?;
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/audiencepairings.keyferry.dev?dryRun=All";
    let greedy = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster", "metadata": { "name": "greedy" },
        "spec": { "address": "https://prod.example.com", "audience": "api" },
    });
    let targets = format!("{KEYFERRY}/targetclusters?dryRun=All");
    until("audience holds", || async {
        denied_by(
            unlisted_user.create(&targets, &greedy).await,
            "keyferry-audience",
        )
    })
    .await?;
    until("kept holds", || async {
        denied_by(unlisted_user.delete(crd).await, "keyferry-kept")
    })
    .await
}

/// Repeats a check until it is true, for at most a minute.
pub(super) async fn until<F: Future<Output = bool>>(
    what: &str,
    mut holds: impl FnMut() -> F,
) -> TestResult {
    let minute = Duration::from_secs(60);
    wait::until(what, minute, || {
        let held = holds();
        async { Ok(held.await) }
    })
    .await
}

/// Mints a token with a client.
pub(super) async fn mint(
    client: &RestClient,
    namespace: &str,
    account: &str,
    audiences: &[&str],
) -> Result<Value, RestError> {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
    client.create(&path, &token_request(audiences)).await
}

/// A TokenRequest for these audiences.
pub(super) fn token_request(audiences: &[&str]) -> Value {
    let spec = json!({ "audiences": audiences, "expirationSeconds": 600 });
    json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec })
}

/// Whether the request was refused by this policy, and not by RBAC or another policy.
pub(super) fn denied_by(answer: Result<Value, RestError>, policy: &str) -> bool {
    answer.err().is_some_and(|error| {
        error
            .to_string()
            .contains(&format!("ValidatingAdmissionPolicy '{policy}'"))
    })
}

/// Fails unless this policy refused.
pub(super) fn must_be_denied(
    what: &str,
    answer: Result<Value, RestError>,
    policy: &str,
) -> TestResult {
    match answer {
        Err(error)
            if error
                .to_string()
                .contains(&format!("ValidatingAdmissionPolicy '{policy}'")) =>
        {
            Ok(())
        }
        Err(error) => Err(format!("{what}: not refused by {policy} but: {error}").into()),
        Ok(_) => Err(format!("{what}: went through").into()),
    }
}

/// Fails unless the request succeeded.
pub(super) fn must_pass(what: &str, answer: Result<Value, RestError>) -> Result<Value, TestError> {
    answer.map_err(|error| format!("{what}: {error}").into())
}

/// Checks that the apiserver's own type check of the expressions finds nothing. Only a
/// controller-manager runs that check.
pub(super) async fn type_checks(stage: Arc<Stage>) -> TestResult {
    let hub = stage
        .hubs
        .iter()
        .find(|hub| hub.minor() == Minor::newest())
        .ok_or("there is no hub of the newest minor")?;
    for admission_policy in ADMISSION_POLICIES.into_iter().chain([
        "self-secrets",
        "self-certificates",
        "self-deliveries",
        "self-targets",
    ]) {
        let path = format!("{ADMISSION}/validatingadmissionpolicies/keyferry-{admission_policy}");
        until(&format!("{admission_policy} is checked"), || async {
            hub.admin().get(&path).await.is_ok_and(|found| {
                found["status"]["observedGeneration"] == found["metadata"]["generation"]
            })
        })
        .await?;
        let found = hub.admin().get(&path).await?;
        assert_eq!(
            found["status"]["typeChecking"]["expressionWarnings"],
            Value::Null,
            "{admission_policy}"
        );
        assert_eq!(found["spec"]["failurePolicy"], "Fail", "{admission_policy}");
    }
    Ok(())
}

/// The path of a file of examples/admission-policies.
pub(super) fn admission_policy(name: &str) -> PathBuf {
    shipped("examples/admission-policies").join(format!("{name}.yaml"))
}

/// Applies one manifest.
pub(super) async fn apply(hub: &ControlPlane, file: &Path) -> Result<(), TestError> {
    Ok(apply_manifests(hub, &[file]).await?)
}
