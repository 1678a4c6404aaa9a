//! keyferry-labels: protects the labels by which targets select namespaces.

use std::sync::Arc;

use keyferry_core::admission_policy;
use keyferry_integration::runner::TestResult;
use serde_json::{Value, json};

use super::people;
use super::stage::{ADMISSION, Stage, must_be_denied, must_pass};

const POLICY: &str = "keyferry-labels";
const GUARDED: &str = "access.keyferry.dev/team";

pub(super) async fn table(stage: Arc<Stage>) -> TestResult {
    for hub in &stage.hubs {
        let namespaces = json!({
            "apiGroups": [""], "resources": ["namespaces", "namespaces/status", "namespaces/finalize"],
            "verbs": ["get", "create", "update", "patch"],
        });
        let editor =
            people::with_cluster_rules(hub, "namespace-editor", json!([namespaces])).await?;
        let verb = json!({ "apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["labelled"], "verbs": ["label-access"] });
        let labeller =
            people::with_cluster_rules(hub, "labeller", json!([namespaces, verb])).await?;
        let path = "/api/v1/namespaces";

        // Checks what Keyferry sees.
        let keyferry = people::keyferry(hub).await?;
        let found = [
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
        ]
        .map(|kind| format!("{ADMISSION}/{kind}/{POLICY}"));
        admission_policy::LABELS_POLICY.compare_with_shipped(
            &keyferry.get(&found[0]).await?,
            &keyferry.get(&found[1]).await?,
            &admission_policy::HubSite::of_shipped_manifests(),
        )?;

        must_be_denied(
            "creation",
            editor
                .create(path, &namespace("mine", json!({ GUARDED: "a" })))
                .await,
            POLICY,
        )?;
        let mut unnamed = namespace("", json!({ GUARDED: "a" }));
        unnamed["metadata"]["generateName"] = json!("mine-");
        must_be_denied(
            "a generated name",
            editor.create(path, &unnamed).await,
            POLICY,
        )?;
        must_be_denied(
            "another name",
            labeller
                .create(path, &namespace("mine", json!({ GUARDED: "a" })))
                .await,
            POLICY,
        )?;
        must_be_denied(
            "a generated name",
            labeller.create(path, &unnamed).await,
            POLICY,
        )?;
        must_pass(
            "creation with other labels",
            editor
                .create(
                    path,
                    &namespace("mine", json!({ "team": "a", "keyferry.dev/x": "y" })),
                )
                .await,
        )?;
        must_pass(
            "creation by the verb",
            labeller
                .create(path, &namespace("labelled", json!({ GUARDED: "a" })))
                .await,
        )?;
        must_pass(
            "no labels",
            editor.create(path, &namespace("plain", Value::Null)).await,
        )?;

        for (name, labels) in [
            ("mine", json!({ GUARDED: "a" })),
            ("plain", json!({ GUARDED: "" })),
            ("labelled", json!({ GUARDED: "b" })),
            ("labelled", json!({ GUARDED: null })),
        ] {
            let change = json!({ "metadata": { "labels": labels } });
            let there = format!("{path}/{name}");
            for way in ["", "?dryRun=All", "/status"] {
                must_be_denied(
                    &format!("{name}{way} {change} on {}", hub.name()),
                    editor.patch(&format!("{there}{way}"), &change).await,
                    POLICY,
                )?;
            }
            let mut whole = editor.get(&there).await?;
            match &labels[GUARDED] {
                Value::Null => drop(
                    whole["metadata"]["labels"]
                        .as_object_mut()
                        .and_then(|labels| labels.remove(GUARDED)),
                ),
                value => whole["metadata"]["labels"][GUARDED] = value.clone(),
            }
            for way in ["", "/status", "/finalize"] {
                must_be_denied(
                    &format!("PUT of {name}{way} on {}", hub.name()),
                    editor.replace(&format!("{there}{way}"), &whole).await,
                    POLICY,
                )?;
            }
            let object = namespace(
                name,
                if labels[GUARDED].is_null() {
                    json!({})
                } else {
                    labels.clone()
                },
            );
            if !labels[GUARDED].is_null() {
                must_be_denied("apply", editor.apply(&there, &object).await, POLICY)?;
            }
        }
        let other = json!({ "metadata": { "labels": { "team": "b" } } });
        must_pass(
            "another label",
            editor.patch(&format!("{path}/labelled"), &other).await,
        )?;
        must_pass(
            "removal by the verb",
            labeller
                .patch(
                    &format!("{path}/labelled"),
                    &json!({ "metadata": { "labels": { GUARDED: null } } }),
                )
                .await,
        )?;
        must_pass(
            "deletion",
            hub.admin().delete(&format!("{path}/plain")).await,
        )?;
    }
    Ok(())
}

fn namespace(name: &str, labels: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } })
}
