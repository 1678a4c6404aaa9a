//! Tests which replica writes and checks authors, and what happens when the leader stops.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::process::Signal;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::until;
use keyferry_integration::world::BrokerSpec;
use keyferry_integration::world::on_hub::OnHub;
use keyferry_integration::world::shipped;
use serde_json::{Value, json};

use super::tenant::{EVERY_SHAPE, Tenant};

const PAIRING: &str = "/apis/keyferry.dev/v1alpha1/audiencepairings/keyferry";
/// The hub's issuer, which is also its own audience.
const ISSUER: &str = "https://hub.keyferry.test";
pub(crate) const LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/keyferry-system/leases/keyferry";

pub(crate) async fn without_the_author_policy_no_token_is_written(world: Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(&world, "unchecked", &EVERY_SHAPE).await?;
    let binding =
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/keyferry-author";
    world.hub.admin().delete(binding).await?;
    until_logged(&world, "no token is written to an object").await?;
    let both = json!([{ "name": "s", "type": "KubeConfigSecret" }, { "name": "m", "type": "FluxConfigMap" }]);
    tenant.put_access("apps", both).await?;
    tenant
        .until("apps", "Delivered", "False", "AuthorUnchecked")
        .await?;
    assert!(
        world
            .is_there("/api/v1/namespaces/unchecked/configmaps/apps")
            .await?,
        "what holds no token goes on"
    );
    assert!(!world.is_there(&tenant.secret("apps-kubeconfig")).await?);
    assert_eq!(tenant.written()?, 0);
    let manifest = shipped("examples/admission-policies/author.yaml")
        .display()
        .to_string();
    let applied = world
        .hub
        .kubectl(&[
            "apply",
            "--server-side",
            "--force-conflicts",
            "-f",
            &manifest,
        ])
        .await?;
    assert!(applied.status.success(), "{applied:?}");
    tenant.until_ready("apps").await?;
    Ok(())
}

/// Without the admission policies nothing is withheld, but a target's status reports that others
/// may mint for its audience or have themselves selected.
pub(crate) async fn without_its_admission_policies_a_target_says_so(
    world: Arc<OnHub>,
) -> TestResult {
    let mut spec = world.target_spec(1);
    spec["audience"] = json!("https://unpaired.keyferry.test");
    spec["allow"] = json!([{ "namespaceSelector": { "matchLabels": { "access.keyferry.dev/team": "a" } }, "serviceAccounts": ["reconciler"] }]);
    world.put_target("unpaired", &spec).await?;
    world
        .until_target("unpaired", "Ready", "True", "Ready")
        .await?;
    for admission_policy in ["keyferry-pairing", "keyferry-labels"] {
        let binding = format!(
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/{admission_policy}"
        );
        world.hub.admin().delete(&binding).await?;
    }
    world
        .until_target(
            "unpaired",
            "PairingUnprotected",
            "True",
            "PairingUnprotected",
        )
        .await?;
    world
        .until_target("unpaired", "LabelsUnprotected", "True", "LabelsUnprotected")
        .await?;
    world
        .until_target("unpaired", "Ready", "True", "Ready")
        .await?;
    for file in ["pairing-binding", "labels"] {
        let manifest = shipped("examples/admission-policies")
            .join(format!("{file}.yaml"))
            .display()
            .to_string();
        let applied = world
            .hub
            .kubectl(&[
                "apply",
                "--server-side",
                "--force-conflicts",
                "-f",
                &manifest,
            ])
            .await?;
        assert!(applied.status.success(), "{applied:?}");
    }
    let path = "/apis/keyferry.dev/v1alpha1/targetclusters/unpaired";
    world
        .until(path, "protected again", |object| {
            !object["status"].to_string().contains("Unprotected")
        })
        .await?;
    Ok(())
}

/// A TargetCluster has the hub's own audience, and no admission policy prevents it. The hub keeps
/// working and the status reports what is missing. A target that is kept only by a foreign
/// finalizer no longer reserves its audience.
pub(crate) async fn one_target_cannot_shut_the_hub(world: Arc<OnHub>) -> TestResult {
    let hub = &world.hub;
    let tenant = Tenant::new(&world, "greedy", &EVERY_SHAPE).await?;
    world
        .until_target("greedy", "Ready", "True", "Ready")
        .await?;
    let mut spec = world.target_spec(1);
    spec["audience"] = json!(ISSUER);
    spec["allow"] = json!([{ "namespaces": [tenant.name], "serviceAccounts": ["reconciler"] }]);
    world.put_target("the-hubs", &spec).await?;
    world
        .until_target("the-hubs", "Ready", "False", "AudienceIsHubs")
        .await?;
    let listed = async || -> Result<Vec<String>, TestError> {
        let object = hub.admin().get(PAIRING).await?;
        Ok(object["pairs"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(audience, _)| audience.clone())
            .collect())
    };
    // The object that was created later is listed, so the leader has checked since.
    spec["audience"] = json!("https://kept.keyferry.test");
    world.put_target("kept-by-another", &spec).await?;
    world
        .until(PAIRING, "with the later target", |object| {
            object["pairs"].get("https://kept.keyferry.test").is_some()
        })
        .await?;
    assert!(
        !listed().await?.contains(&ISSUER.to_owned()),
        "{:?}",
        listed().await?
    );
    for audiences in [&[] as &[&str], &[ISSUER], &["keyferry.dev"]] {
        hub.token_request(&tenant.name, "reconciler", audiences, 600)
            .await?;
    }
    // A finalizer that is not Keyferry's.
    let path = "/apis/keyferry.dev/v1alpha1/targetclusters/kept-by-another";
    hub.admin()
        .patch(
            path,
            &json!({ "metadata": { "finalizers": ["example.com/stays"] } }),
        )
        .await?;
    hub.admin().delete(path).await?;
    world
        .until(PAIRING, "without it", |object| {
            object["pairs"].get("https://kept.keyferry.test").is_none()
        })
        .await?;
    assert!(world.is_there(path).await?);
    hub.admin()
        .patch(path, &json!({ "metadata": { "finalizers": null } }))
        .await?;
    // The policies are installed as shipped, so they do not know this hub's audience.
    let said = world
        .until_target(
            "greedy",
            "AdmissionPolicyIncomplete",
            "True",
            "AdmissionPolicyIncomplete",
        )
        .await?;
    for name in ["keyferry-pairing", "keyferry-audience", "keyferry-self"] {
        let wanted = format!("hubAudiences of the ValidatingAdmissionPolicy {name} lacks {ISSUER}");
        assert!(
            said["status"].to_string().contains(&wanted),
            "{wanted}: {}",
            said["status"]
        );
    }
    hub.admin()
        .delete("/apis/keyferry.dev/v1alpha1/targetclusters/the-hubs")
        .await?;
    let kubeconfig = hub.admin_kubeconfig().display().to_string();
    let printed = world
        .ground
        .binary()
        .run(&["admission-policies", "--kubeconfig", &kubeconfig], &[])
        .await?;
    assert!(printed.status.success(), "{printed:?}");
    let file = world.ground.folder().join("admission-policies.yaml");
    std::fs::write(&file, &printed.stdout)?;
    let applied = hub
        .kubectl(&[
            "apply",
            "--server-side",
            "--force-conflicts",
            "-f",
            &file.display().to_string(),
        ])
        .await?;
    assert!(applied.status.success(), "{applied:?}");
    let path = "/apis/keyferry.dev/v1alpha1/targetclusters/greedy";
    world
        .until(path, "complete", |object| {
            !object["status"]
                .to_string()
                .contains("AdmissionPolicyIncomplete")
        })
        .await?;
    // The status names each one that is deleted.
    let binding =
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/keyferry-retarget";
    hub.admin().delete(binding).await?;
    world
        .until(path, "incomplete", |object| {
            object["status"]
                .to_string()
                .contains("there is no ValidatingAdmissionPolicyBinding keyferry-retarget")
        })
        .await?;
    let applied = hub
        .kubectl(&[
            "apply",
            "--server-side",
            "--force-conflicts",
            "-f",
            &file.display().to_string(),
        ])
        .await?;
    assert!(applied.status.success(), "{applied:?}");
    Ok(())
}

/// The leader is stopped for longer than its Lease while an access is deleted. When it continues,
/// it writes nothing back.
pub(crate) async fn a_leader_that_wakes_too_late_writes_nothing(world: Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(&world, "late", &EVERY_SHAPE).await?;
    let secret = |policy: &str| json!({ "deliveries": [{ "name": "s", "type": "KubeConfigSecret" }], "deletionPolicy": policy });
    tenant.put_access_with("gone", secret("Immediate")).await?;
    tenant.put_access_with("stays", secret("Drain")).await?;
    tenant.until_ready("gone").await?;
    tenant.until_ready("stays").await?;
    let first = holder(&world).await?;
    let spec =
        BrokerSpec::of_hub("second", &world.hub).with_server_lines("objects: CustomResources\n");
    let second = world.ground.start_installed(&world.hub, spec).await?;
    assert_eq!(holder(&world).await?, first, "the first one leads");
    world.broker.process().signal(Signal::Suspend).await?;
    // The stopped leader still has work pending: one access that it has seen is deleted, another is
    // changed.
    world.hub.admin().delete(&tenant.access("gone")).await?;
    let limit = Instant::now() + Duration::from_secs(75);
    while holder(&world).await? == first {
        assert!(Instant::now() < limit, "nobody took the Lease over");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    world.until_gone(&tenant.access("gone")).await?;
    world.until_gone(&tenant.secret("gone-kubeconfig")).await?;
    tenant.put_access_with("new", secret("Drain")).await?;
    tenant.until_ready("new").await?;
    let by_second = second
        .audit()?
        .iter()
        .filter(|record| record["route"] == "delivery")
        .count();
    assert!(by_second >= 1, "the second one writes now");
    let before = tenant.written()?;
    world.broker.process().signal(Signal::Continue).await?;
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(!world.is_there(&tenant.access("gone")).await?);
    assert!(
        !world.is_there(&tenant.secret("gone-kubeconfig")).await?,
        "nothing comes back"
    );
    assert_eq!(tenant.written()?, before, "the late one wrote nothing");
    // The other replica stops and gives the Lease back, so the first one leads when it looks again,
    // which it does every 10 s. A Lease that is not given back lasts for 30 s more.
    second.into_process().stop().await?;
    let limit = Instant::now() + Duration::from_secs(20);
    while !holder(&world).await.is_ok_and(|now| now == first) {
        assert!(
            Instant::now() < limit,
            "the first one did not take the Lease again"
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

/// Returns the name of the leader. After a leader has given the Lease back there is none, which is an
/// error: it is not another leader.
pub(crate) async fn holder(world: &OnHub) -> Result<String, TestError> {
    let lease: Value = world.hub.admin().get(LEASE).await?;
    Ok(lease["spec"]["holderIdentity"]
        .as_str()
        .ok_or("the Lease has no holder")?
        .to_owned())
}

async fn until_logged(world: &OnHub, text: &str) -> TestResult {
    until(
        &format!("the log has {text:?}"),
        Duration::from_secs(45),
        || async { Ok(world.broker.log()?.contains(text)) },
    )
    .await
}
