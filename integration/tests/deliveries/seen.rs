//! The parts of an access that people see: Events, `kubectl wait` and `kubectl get`.

use std::sync::Arc;

use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::on_hub::OnHub;
use serde_json::{Value, json};

use super::tenant::{EVERY_SHAPE, Tenant};

fn secret() -> Value {
    json!([{ "name": "s", "type": "KubeConfigSecret" }])
}

pub(crate) async fn what_became_of_an_access_is_told_once(world: Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(&world, "told", &["HTTP"]).await?;
    tenant.put_access("apps", secret()).await?;
    tenant
        .until("apps", "Authorized", "False", "TargetNotGranted")
        .await?;
    let refused = events_about_access(&tenant, "apps").await?;
    assert_eq!(
        refused,
        [("Warning".to_owned(), "TargetNotGranted".to_owned())]
    );
    tenant.put_target(&EVERY_SHAPE, &json!({})).await?;
    tenant.until_ready("apps").await?;
    // Checks that find nothing new: each is requested, and the status shows that it happened.
    for round in 0..3 {
        let asked = format!("round-{round}");
        let ask = json!({ "metadata": { "annotations": { "keyferry.dev/requestedAt": asked } } });
        world
            .hub
            .admin()
            .patch(&tenant.access("apps"), &ask)
            .await?;
        world
            .until(&tenant.access("apps"), "handled", |access| {
                access["status"]["lastHandledReconcileAt"] == asked.as_str()
            })
            .await?;
    }
    let mut events = events_about_access(&tenant, "apps").await?;
    events.sort();
    let all = [("Normal", "Ready"), ("Warning", "TargetNotGranted")]
        .map(|(kind, reason)| (kind.to_owned(), reason.to_owned()));
    // Between the two, the target's CA may have to be read first, and the hub may not have seen the
    // new pair yet. Events report these states as well.
    events.retain(|(_, reason)| reason != "TargetNotReady" && reason != "MintForbidden");
    assert_eq!(events, all);
    Ok(())
}

/// The type and reason of each Event about an access. An Event follows its status, so it may be
/// missing for a moment.
async fn events_about_access(
    tenant: &Tenant,
    access: &str,
) -> Result<Vec<(String, String)>, TestError> {
    let path = format!("/apis/events.k8s.io/v1/namespaces/{}/events", tenant.name);
    let of_access = |list: &Value| {
        let all = list["items"].as_array().cloned().unwrap_or_default();
        let ours = all.into_iter().filter(|event| {
            event["regarding"]["kind"] == "TargetAccess" && event["regarding"]["name"] == access
        });
        let text =
            |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
        ours.map(|event| (text(&event, "type"), text(&event, "reason")))
            .collect::<Vec<_>>()
    };
    Ok(of_access(
        &tenant
            .world
            .until(&path, "with an Event", |list| !of_access(list).is_empty())
            .await?,
    ))
}

pub(crate) async fn kubectl_waits_for_it_and_lists_it(world: Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(&world, "waited", &EVERY_SHAPE).await?;
    tenant.put_access("apps", secret()).await?;
    let kubectl = async |args: &[&str]| -> Result<String, TestError> {
        let output = world.hub.kubectl(args).await?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(format!(
                "kubectl {args:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            )
            .into()),
        }
    };
    kubectl(&[
        "wait",
        "--for=condition=Ready",
        "--timeout=45s",
        "-n",
        "waited",
        "tga/apps",
    ])
    .await?;
    kubectl(&[
        "wait",
        "--for=condition=Ready",
        "--timeout=45s",
        "tgt/waited",
    ])
    .await?;
    // No target trusts the audience of this tenant. Ready covers Keyferry's own work only, so the
    // row must show more.
    tenant
        .until("apps", "TargetAuthenticates", "False", "ProbeRefused")
        .await?;
    let expires = world.hub.admin().get(&tenant.access("apps")).await?["status"]["exposureUntil"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let listed = kubectl(&["get", "tga", "-n", "waited"]).await?;
    let (head, row) = listed.split_once('\n').ok_or("no row")?;
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
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[..4], ["apps", "True", "waited", "False"], "{listed}");
    assert!(
        cells[4].ends_with('s') || cells[4].ends_with('m'),
        "{listed}"
    );
    assert_eq!(cells[5], expires, "{listed}");
    assert!(
        row.contains("delivered, but the target refuses the token (401)"),
        "{listed}"
    );
    // The target sums its accesses up.
    kubectl(&[
        "wait",
        "--for=condition=TargetAuthenticates=false",
        "--timeout=45s",
        "tgt/waited",
    ])
    .await?;
    let targets = kubectl(&["get", "tgt", "waited"]).await?;
    for cell in [
        "READY",
        "TARGET-OK",
        "ASKED",
        "declared; 0 of 1 accesses accepted by the target",
    ] {
        assert!(targets.contains(cell), "{cell}: {targets}");
    }
    // A requested check asks at once, and the status says when.
    let asked_at = async || -> Result<Value, TestError> {
        let access = world.hub.admin().get(&tenant.access("apps")).await?;
        Ok(access["status"]["lastProbeTime"].clone())
    };
    let before = asked_at().await?;
    let annotation = json!({ "metadata": { "annotations": { "keyferry.dev/requestedAt": "1" } } });
    world
        .hub
        .admin()
        .patch(&tenant.access("apps"), &annotation)
        .await?;
    let path = tenant.access("apps");
    tenant
        .world
        .until(&path, "with a later probe", |access| {
            access["status"]["lastHandledReconcileAt"] == "1"
                && access["status"]["lastProbeTime"] != before
        })
        .await?;
    let all = kubectl(&["get", "keyferry", "-n", "waited"]).await?;
    assert!(all.contains("targetaccess.keyferry.dev/apps"), "{all}");
    // Waiting for a refused access fails, and the access says why.
    tenant.put_target(&["HTTP"], &json!({})).await?;
    kubectl(&[
        "wait",
        "--for=condition=Ready=false",
        "--timeout=45s",
        "-n",
        "waited",
        "tga/apps",
    ])
    .await?;
    Ok(())
}
