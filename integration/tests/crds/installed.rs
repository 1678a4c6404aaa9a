//! Tests the CRDs as the apiserver and kubectl return them.

use std::sync::Arc;

use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::runner::{TestError, TestResult};
use serde_json::{Value, json};

use super::case;
use super::stage::{NAMESPACE, PLURALS, Stage, condition, established as wait};

const CLUSTERS: &str = "/apis/keyferry.dev/v1alpha1/targetclusters";

pub(super) async fn established(stage: Arc<Stage>) -> TestResult {
    for plane in &stage.planes {
        for plural in PLURALS {
            let found = wait(plane, plural).await?;
            assert_eq!(
                condition(&found, "NamesAccepted"),
                Some("True"),
                "{plural} on {}",
                plane.name()
            );
            assert_eq!(
                condition(&found, "NonStructuralSchema"),
                None,
                "{plural} on {}",
                plane.name()
            );
            assert_eq!(
                found["spec"]["names"]["categories"],
                json!(["keyferry"]),
                "{plural}"
            );
        }
    }
    Ok(())
}

/// `keyferry crds` prints the same objects: applying its output changes nothing where the files are
/// applied.
pub(super) async fn printed(stage: Arc<Stage>) -> TestResult {
    let output = stage.binary.run(&["crds"], &[]).await?;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let file = stage.folder.join("printed.yaml");
    std::fs::write(&file, &output.stdout)?;
    for plane in &stage.planes {
        let said = kubectl_says(
            plane,
            &[
                "diff",
                "--server-side",
                "--force-conflicts",
                "-f",
                &file.display().to_string(),
            ],
        )
        .await?;
        assert_eq!(said.trim(), "", "on {}", plane.name());
    }
    let names = String::from_utf8(output.stdout)?
        .matches("kind: CustomResourceDefinition")
        .count();
    assert_eq!(names, PLURALS.len());
    Ok(())
}

pub(super) async fn kubectl(stage: Arc<Stage>) -> TestResult {
    for plane in &stage.planes {
        let target = named(case::target(), "columns");
        plane.admin().create(CLUSTERS, &target).await?;
        let accesses = format!("/apis/keyferry.dev/v1alpha1/namespaces/{NAMESPACE}/targetaccesses");
        plane
            .admin()
            .create(&accesses, &named(case::access(), "columns"))
            .await?;
        let status = json!({ "status": {
            "conditions": [{ "type": "Ready", "status": "False", "reason": "TargetNotGranted", "message": "the whole text", "lastTransitionTime": "2026-01-02T03:04:05Z" }],
            "exposureUntil": "2026-01-02T04:04:05Z", "summary": "no such grant",
        } });
        plane
            .admin()
            .patch(&format!("{accesses}/columns/status"), &status)
            .await?;
        let table = kubectl_says(plane, &["get", "tga", "-n", NAMESPACE, "columns"]).await?;
        let (head, row) = table.split_once('\n').ok_or("kubectl printed no table")?;
        assert_eq!(
            head.split_whitespace().collect::<Vec<_>>(),
            [
                "NAME",
                "READY",
                "TARGET",
                "TARGET-OK",
                "ASKED",
                "EXPIRES",
                "STATUS",
                "AGE"
            ]
        );
        for cell in [
            "columns",
            "False",
            "prod",
            "2026-01-02T04:04:05Z",
            "no such grant",
        ] {
            assert!(
                row.contains(cell),
                "{cell} is not in {row:?} on {}",
                plane.name()
            );
        }
        let table = kubectl_says(plane, &["get", "tgt", "columns", "-o", "wide"]).await?;
        assert!(table.starts_with("NAME"), "{table}");
        for cell in [
            "READY",
            "ADDRESS",
            "ISSUER",
            "AUDIENCE",
            "https://prod.example.com:6443",
            "Hub",
        ] {
            assert!(
                table.contains(cell),
                "{cell} is not in {table:?} on {}",
                plane.name()
            );
        }
        let all = kubectl_says(plane, &["get", "keyferry", "-A", "-o", "name"]).await?;
        assert!(
            all.contains("targetcluster.keyferry.dev/columns")
                && all.contains("targetaccess.keyferry.dev/columns"),
            "{all}"
        );
        // kstatus reads these conditions; kubectl waits for them.
        let waited = [
            "wait",
            "tga/columns",
            "-n",
            NAMESPACE,
            "--for=condition=Ready=False",
            "--timeout=5s",
        ];
        assert!(
            kubectl_says(plane, &waited)
                .await?
                .contains("condition met")
        );
    }
    Ok(())
}

/// Tests every way of writing an audience. Everything else of a spec may change.
/// Both may be absent, which means Cluster and false.
pub(super) async fn kind_and_hub(stage: Arc<Stage>) -> TestResult {
    let address = "https://prod.example.com:6443";
    let spec = |name: &str, mut spec: Value| {
        spec["audience"] = format!("https://{name}.example.com").into();
        spec
    };
    let made = [
        ("a-cluster", json!({ "address": address })),
        ("an-audience", json!({ "kind": "Audience" })),
        ("a-hub", json!({ "address": address, "hub": true })),
        ("a-role", json!({ "sameAs": "a-cluster", "role": "view" })),
    ];
    let refused = [
        (
            "a-cluster",
            json!({ "kind": "Audience", "address": null }),
            "kind",
        ),
        ("a-cluster", json!({ "hub": true }), "hub"),
        (
            "an-audience",
            json!({ "kind": "Cluster", "address": address }),
            "kind",
        ),
        (
            "an-audience",
            json!({ "kind": null, "address": address }),
            "kind",
        ),
        ("a-hub", json!({ "hub": false }), "hub"),
        ("a-hub", json!({ "hub": null }), "hub"),
        ("a-role", json!({ "sameAs": "a-hub" }), "sameAs"),
        ("a-role", json!({ "role": "edit" }), "sameAs"),
        (
            "a-role",
            json!({ "sameAs": null, "role": null, "address": address }),
            "sameAs",
        ),
        (
            "a-cluster",
            json!({ "sameAs": "a-hub", "role": "view", "address": null }),
            "sameAs",
        ),
    ];
    let same = [
        json!({ "kind": "Cluster", "hub": false }),
        json!({ "kind": null, "hub": null }),
    ];
    for plane in &stage.planes {
        let admin = plane.admin();
        let patch = async |name: &str, spec: &Value| {
            let change = json!({ "spec": spec });
            admin.patch(&format!("{CLUSTERS}/{name}"), &change).await
        };
        for (name, own) in &made {
            let object = json!({
                "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
                "metadata": { "name": name }, "spec": spec(name, own.clone()),
            });
            let created = admin.create(CLUSTERS, &object).await?;
            // A server of the version before refuses fields that it does not know.
            for field in ["kind", "hub", "probe", "sameAs", "role"] {
                assert_eq!(created["spec"].get(field), own.get(field), "{created}");
            }
        }
        for (name, change, field) in &refused {
            let answer = patch(name, change).await;
            let said = answer.err().map(|error| error.to_string());
            assert!(
                said.as_deref()
                    .is_some_and(|said| said.contains(&format!("{field} is immutable"))),
                "{name} {change} on {}: {said:?}",
                plane.name()
            );
        }
        for change in &same {
            patch("a-cluster", change).await?;
        }
    }
    Ok(())
}

pub(super) async fn audience(stage: Arc<Stage>) -> TestResult {
    for plane in &stage.planes {
        let made = plane
            .admin()
            .create(CLUSTERS, &named(case::target(), "lasting"))
            .await?;
        let path = format!("{CLUSTERS}/lasting");
        let mut other = made.clone();
        other["spec"]["audience"] = json!("https://other.example.com");
        let by_put = plane.admin().replace(&path, &other).await;
        let by_patch = plane
            .admin()
            .patch(
                &path,
                &json!({ "spec": { "audience": "https://other.example.com" } }),
            )
            .await;
        let gone = plane
            .admin()
            .patch(&path, &json!({ "spec": { "audience": null } }))
            .await;
        let spec = json!({ "address": "https://prod.example.com:6443", "audience": "https://other.example.com" });
        let object = json!({ "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster", "metadata": { "name": "lasting" }, "spec": spec });
        let by_apply = plane.admin().apply(&path, &object).await;
        for (how, answer) in [
            ("PUT", by_put),
            ("PATCH", by_patch),
            ("PATCH to nothing", gone),
            ("apply", by_apply),
        ] {
            let said = answer
                .err()
                .ok_or(format!("{how} changed the audience on {}", plane.name()))?
                .to_string();
            assert!(
                said.contains("422") && said.contains("spec.audience"),
                "{how} on {}: {said}",
                plane.name()
            );
        }
        plane
            .admin()
            .patch(&path, &json!({ "spec": { "suspend": true } }))
            .await?;
    }
    Ok(())
}

fn named(mut object: Value, name: &str) -> Value {
    object["metadata"]["name"] = json!(name);
    object
}

async fn kubectl_says(plane: &ControlPlane, args: &[&str]) -> Result<String, TestError> {
    let output = plane.kubectl(args).await?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() || args.first() == Some(&"diff") && output.stderr.is_empty() {
        return Ok(said);
    }
    Err(format!(
        "kubectl {}: {said}{}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr)
    )
    .into())
}
