//! keyferry-kept, and the state of a hub whose pairing object or CRD is deleted anyway.

use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::runner::{TestError, TestResult};
use serde_json::json;

use super::people;
use super::stage::{
    ADMISSION, AUDIENCE, KEYFERRY, PAIRING, Stage, admission_policy, apply, define, denied_by,
    mint, must_be_denied, must_pass, until, until_in_force, write_pairing,
};

const POLICY: &str = "keyferry-kept";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub(super) async fn stay(stage: Arc<Stage>) -> TestResult {
    for hub in &stage.hubs {
        for (name, client) in [
            ("cluster-admin", people::cluster_admin(hub).await?),
            ("system:masters", hub.admin().clone()),
        ] {
            for path in [
                PAIRING.to_owned(),
                format!("{CRDS}/audiencepairings.keyferry.dev"),
                format!("{KEYFERRY}/audiencepairings"),
            ] {
                must_be_denied(
                    &format!("{name}: {path}"),
                    client.delete(&path).await,
                    POLICY,
                )?;
                let dry = format!("{path}?dryRun=All");
                must_be_denied(&format!("{name}: {dry}"), client.delete(&dry).await, POLICY)?;
            }
            // Delete all definitions at once as a dry run: this one is among them.
            must_be_denied(
                name,
                client.delete(&format!("{CRDS}?dryRun=All")).await,
                POLICY,
            )?;
            must_pass(
                "another definition",
                client
                    .delete(&format!("{CRDS}/targetaccesses.keyferry.dev?dryRun=All"))
                    .await,
            )?;
        }
        let keyferry = people::keyferry(hub).await?;
        assert_eq!(
            keyferry
                .delete(PAIRING)
                .await
                .err()
                .and_then(|error| error.status()),
            Some(403),
            "on {}",
            hub.name()
        );
    }
    Ok(())
}

/// An admin deletes the binding of keyferry-kept, and then the pairing object.
pub(super) async fn without_the_object(stage: Arc<Stage>) -> TestResult {
    for hub in &stage.hubs {
        hub.create_namespace_with_service_account("closed", "reconciler")
            .await?;
        let label = json!({ "metadata": { "labels": { "access.keyferry.dev/closed": "true" } } });
        hub.admin()
            .patch("/api/v1/namespaces/closed", &label)
            .await?;
        let root = people::cluster_admin(hub).await?;
        must_pass(
            "a closed namespace with the object",
            mint(&root, "closed", "reconciler", &[]).await,
        )?;
        release(hub, PAIRING).await?;
        until("the object is gone", || async {
            mint(&root, "tenant-a", "other", &[AUDIENCE]).await.is_ok()
        })
        .await?;
        must_be_denied(
            "a closed namespace",
            mint(&root, "closed", "reconciler", &[AUDIENCE]).await,
            "keyferry-pairing",
        )?;
        must_be_denied(
            "a closed namespace, its Pods too",
            mint(&root, "closed", "reconciler", &[]).await,
            "keyferry-pairing",
        )?;
        must_pass(
            "the rest of the hub",
            mint(&root, "tenant-a", "other", &[]).await,
        )?;
        // Keyferry's leader creates the object again, and the policy works as before.
        let object = json!({ "apiVersion": "keyferry.dev/v1alpha1", "kind": "AudiencePairing", "metadata": { "name": "keyferry" }, "pairs": {} });
        people::keyferry(hub)
            .await?
            .create(&format!("{KEYFERRY}/audiencepairings"), &object)
            .await?;
        write_pairing(hub, &[]).await?;
        apply(hub, &admission_policy("kept")).await?;
        until_in_force(hub).await?;
        must_pass(
            "a closed namespace again",
            mint(&root, "closed", "reconciler", &[]).await,
        )?;
        hub.admin().delete("/api/v1/namespaces/closed").await?;
    }
    Ok(())
}

/// Shows why no admin may delete the CRD before the bindings, and why an install applies the
/// bindings a minute after the CRD. A running apiserver without the CRD does not enforce the
/// policy, and one that starts without it refuses all requests.
pub(super) async fn without_the_definition(stage: Arc<Stage>) -> TestResult {
    futures::future::try_join_all(stage.hubs.iter().map(|hub| undefined(hub)))
        .await
        .map(drop)
}

async fn undefined(hub: &ControlPlane) -> TestResult {
    let admin = hub.admin();
    release(hub, &format!("{CRDS}/audiencepairings.keyferry.dev")).await?;
    // Its objects are deleted first, and then the policy stops matching. An apiserver that starts
    // in between would still find the kind.
    let definition = format!("{CRDS}/audiencepairings.keyferry.dev");
    until("the definition is gone", || async {
        let status = admin
            .get(&definition)
            .await
            .err()
            .and_then(|error| error.status());
        status == Some(404) && mint(admin, "tenant-a", "other", &[AUDIENCE]).await.is_ok()
    })
    .await?;
    hub.restart().await?;
    let said = mint(admin, "tenant-a", "other", &[])
        .await
        .err()
        .ok_or("a new start let tokens through without the definition")?
        .to_string();
    assert!(
        said.contains(
            "is forbidden: ValidatingAdmissionPolicy 'keyferry-pairing' denied request: failed to \
             configure policy: failed to find resource referenced by paramKind: "
        ),
        "{said}"
    );
    // This fix works even then. The policy alone, without a binding, restricts no request.
    for binding in ["keyferry-pairing", "keyferry-pairing-closed"] {
        admin
            .delete(&format!(
                "{ADMISSION}/validatingadmissionpolicybindings/{binding}"
            ))
            .await?;
    }
    until("tokens again", || async {
        mint(admin, "tenant-a", "other", &[]).await.is_ok()
    })
    .await?;
    // The order of the manifest: the CRD, a minute, the binding. No token request is refused on the
    // way.
    define(hub).await?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    apply(hub, &admission_policy("kept")).await?;
    apply(hub, &admission_policy("pairing-binding")).await?;
    until("the pairs hold", || async {
        let plain = mint(admin, "tenant-a", "other", &[]).await;
        // When the watch of the objects restarts, a request waits for a second at most and then
        // fails with this error.
        let begins = plain.as_ref().is_err_and(|error| {
            error
                .to_string()
                .contains("not yet synced to use for admission")
        });
        assert!(
            plain.is_ok() || begins,
            "a token was refused on {}: {plain:?}",
            hub.name()
        );
        denied_by(
            mint(admin, "tenant-a", "other", &[AUDIENCE]).await,
            "keyferry-pairing",
        )
    })
    .await
}

/// Deletes what keyferry-kept protects, as an admin who intends it.
async fn release(hub: &ControlPlane, path: &str) -> Result<(), TestError> {
    hub.admin()
        .delete(&format!(
            "{ADMISSION}/validatingadmissionpolicybindings/{POLICY}"
        ))
        .await?;
    until("keyferry-kept lets go", || async {
        hub.admin()
            .delete(&format!("{path}?dryRun=All"))
            .await
            .is_ok()
    })
    .await?;
    hub.admin().delete(path).await?;
    Ok(())
}
