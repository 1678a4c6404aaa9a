//! keyferry-audience: restricts the audiences that a TargetCluster may take.

use std::sync::Arc;

use keyferry_integration::runner::TestResult;
use keyferry_integration::world::{Subject, let_mint};
use serde_json::{Value, json};

use super::people;
use super::stage::{KEYFERRY, PAIRING, Stage, mint, must_be_denied, must_pass, write_pairing};

const POLICY: &str = "keyferry-audience";

pub(super) async fn table(stage: Arc<Stage>) -> TestResult {
    for hub in &stage.hubs {
        let path = format!("{KEYFERRY}/targetclusters");
        let dry = format!("{path}?dryRun=All");
        let own = format!("https://{}.keyferry.test", hub.name());
        let root = people::cluster_admin(hub).await?;
        // These audiences would stop the hub, whichever account writes them.
        for audience in [
            own.as_str(),
            "https://kubernetes.default.svc",
            "api",
            "keyferry.dev",
        ] {
            for (who, client) in [("cluster-admin", &root), ("system:masters", hub.admin())] {
                let what = format!("{audience} by {who} on {}", hub.name());
                must_be_denied(
                    &what,
                    client.create(&dry, &target("greedy", audience)).await,
                    POLICY,
                )?;
                must_be_denied(
                    &what,
                    client
                        .apply(&format!("{path}/greedy"), &target("greedy", audience))
                        .await,
                    POLICY,
                )?;
            }
        }
        must_pass(
            "another audience",
            root.create(&dry, &target("vault", "vault")).await,
        )?;
        // An account that may create and retarget targets may not take an audience that others
        // need.
        let verbs = json!(["get", "create", "update", "patch", "delete", "retarget"]);
        let editing = json!({ "apiGroups": ["keyferry.dev"], "resources": ["targetclusters"], "verbs": verbs });
        let editor = people::with_cluster_rules(hub, "claims-nothing", json!([editing])).await?;
        for audience in ["vault", "sts.amazonaws.com"] {
            must_be_denied(
                audience,
                editor.create(&dry, &target("vault", audience)).await,
                POLICY,
            )?;
        }
        let claiming = json!({
            "apiGroups": ["keyferry.dev"], "resources": ["audiences"], "verbs": ["claim"], "resourceNames": ["https://edge.keyferry.test"],
        });
        let claimer =
            people::with_cluster_rules(hub, "claims-one", json!([editing, claiming])).await?;
        must_pass(
            "the one that it may",
            claimer
                .create(&path, &target("edge", "https://edge.keyferry.test"))
                .await,
        )?;
        must_be_denied(
            "another",
            claimer.create(&dry, &target("vault", "vault")).await,
            POLICY,
        )?;
        // The right is needed only for taking an audience.
        let there = format!("{path}/edge");
        // A target that lost its audience takes it with its next change, once it is free.
        let change = json!({ "spec": { "allow": [] } });
        let lost = |status: &str| {
            json!({ "status": { "conditions": [{
                "type": "AudienceConflict", "status": status, "reason": "AudienceConflict",
                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
                "observedGeneration": 1,
            }] } })
        };
        let status = format!("{there}/status");
        hub.admin().patch(&status, &lost("True")).await?;
        must_be_denied("a promotion", editor.patch(&there, &change).await, POLICY)?;
        let annotated = json!({ "metadata": { "annotations": { "x": "y" } } });
        must_pass("its metadata", editor.patch(&there, &annotated).await)?;
        let dry_change = format!("{there}?dryRun=All");
        must_pass(
            "a promotion with the verb",
            claimer.patch(&dry_change, &change).await,
        )?;
        hub.admin().patch(&status, &lost("False")).await?;
        must_pass("no promotion", editor.patch(&dry_change, &change).await)?;
        must_pass(
            "a change",
            editor
                .patch(&there, &json!({ "spec": { "suspend": true } }))
                .await,
        )?;
        must_pass("its deletion", editor.delete(&there).await)?;
        let platform = people::account(hub, "people", "platform").await?;
        hub.bind_user_to_cluster_role("system:serviceaccount:people:platform", "keyferry-platform")
            .await?;
        must_pass(
            "the platform",
            platform.create(&dry, &target("vault", "vault")).await,
        )?;
    }
    Ok(())
}

/// An AudiencePairing that lists the hub's own audience, by mistake or by a bug, does not stop the
/// hub.
pub(super) async fn a_broken_pairing_spares_the_hub(stage: Arc<Stage>) -> TestResult {
    for hub in &stage.hubs {
        let own = format!("https://{}.keyferry.test", hub.name());
        let mut object = hub.admin().get(PAIRING).await?;
        object["pairs"][&own] = json!([]);
        object["pairs"]["keyferry.dev"] = json!([]);
        object["pairs"]["https://broken.keyferry.test"] = json!([]);
        people::keyferry(hub)
            .await?
            .replace(PAIRING, &object)
            .await?;
        let root = people::cluster_admin(hub).await?;
        // The last of them proves that the policy has seen the object.
        super::stage::until("the object counts", || async {
            super::stage::denied_by(
                mint(
                    &root,
                    "tenant-a",
                    "other",
                    &["https://broken.keyferry.test"],
                )
                .await,
                "keyferry-pairing",
            )
        })
        .await?;
        for audiences in [&[] as &[&str], &[&own], &["keyferry.dev"]] {
            must_pass(
                &format!("{audiences:?} on {}", hub.name()),
                mint(&root, "tenant-a", "other", audiences).await,
            )?;
        }
        let mix = mint(
            &root,
            "tenant-a",
            "other",
            &[&own, "https://broken.keyferry.test"],
        )
        .await;
        must_be_denied("a mix of both", mix, "keyferry-pairing")?;
        write_pairing(hub, &[]).await?;
    }
    Ok(())
}

/// Tests the output and the findings of the command, run by a cluster-admin.
pub(super) async fn the_command_checks_what_it_prints(stage: Arc<Stage>) -> TestResult {
    for hub in &stage.hubs {
        // A tenant with the shipped RoleBinding, and with the ServiceAccount that a
        // controller-manager creates in every namespace.
        hub.create_namespace_with_service_account("tenant-a", "default")
            .await?;
        let_mint(
            hub,
            "default-too",
            Subject::ServiceAccount("keyferry-system", "keyferry"),
            "tenant-a",
            &["default"],
        )
        .await?;
        let kubeconfig = hub.admin_kubeconfig().display().to_string();
        let run = async |arguments: &[&str]| {
            let arguments: Vec<&str> = ["admission-policies", "--kubeconfig", &kubeconfig]
                .iter()
                .chain(arguments)
                .copied()
                .collect();
            let output = stage.binary.run(&arguments, &[]).await?;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            Ok::<_, keyferry_integration::runner::TestError>((
                output.status.code(),
                text(&output.stdout),
                text(&output.stderr),
            ))
        };
        // The suite has inserted the hub's own audience by hand. The check must treat this as
        // equal.
        let (code, found, said) = run(&["--check"]).await?;
        assert_eq!(code, Some(0), "on {}: {found}{said}", hub.name());
        for tried in [
            "refuses a token for keyferry.dev/nobody",
            "refuses a TargetCluster with the hub's own audience",
            "refuses deleting the definition of AudiencePairing",
            "refuses a Secret that the hub fills with a token, by Keyferry",
            "refuses a token with two audiences, by Keyferry",
        ] {
            assert!(found.contains(tried), "{tried} on {}: {found}", hub.name());
        }
        let (code, printed, said) = run(&[]).await?;
        let own = format!("https://{}.keyferry.test", hub.name());
        assert_eq!(code, Some(0), "{said}");
        assert!(
            said.contains(&own) && printed.contains(&format!("['{own}']")),
            "{said}{printed}"
        );
        assert!(
            !printed.contains("kind: AudiencePairing\nmetadata"),
            "it is there already, and Keyferry's"
        );
        let file = hub.folder().join("printed.yaml");
        std::fs::write(&file, &printed)?;
        let before = hub.admin().get(PAIRING).await?;
        super::stage::apply(hub, &file).await?;
        let (code, found, said) = run(&["--check"]).await?;
        assert_eq!(
            code,
            Some(0),
            "after applying it on {}: {found}{said}",
            hub.name()
        );
        assert_eq!(before["pairs"], hub.admin().get(PAIRING).await?["pairs"]);
        // The check names what is wrong.
        let shipped = super::stage::admission_policy("self");
        super::stage::apply(hub, &shipped).await?;
        let binding = format!(
            "{}/validatingadmissionpolicybindings/keyferry-labels",
            super::stage::ADMISSION
        );
        hub.admin().delete(&binding).await?;
        let (code, found, said) = run(&["--check"]).await?;
        assert_eq!(code, Some(1), "{found}");
        assert!(
            found.contains(&format!("lacks {own}"))
                && said.contains("keyferry-labels, keyferry-self\n"),
            "{found}{said}"
        );
        super::stage::restore(hub).await?;
    }
    Ok(())
}

fn target(name: &str, audience: &str) -> Value {
    json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster", "metadata": { "name": name },
        "spec": { "address": "https://prod.example.com:6443", "audience": audience },
    })
}
