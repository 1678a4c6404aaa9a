//! Tests where Keyferry connects: not to the hub's own networks, and to no target at all whose
//! `spec.probe` is Off.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use keyferry_integration::https::HttpsServer;
use keyferry_integration::pki::TestCa;
use keyferry_integration::runner::TestResult;
use keyferry_integration::world::on_hub::OnHub;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::tenant::{EVERY_SHAPE, Tenant};

pub(crate) async fn nothing_is_sent_into_the_hubs_networks(world: Arc<OnHub>) -> TestResult {
    let deliveries = json!([{ "name": "s", "type": "KubeConfigSecret" }]);
    // The last is in the hub's ServiceCIDR, which Keyferry reads there.
    for (name, address) in [
        ("in-a-metadata-service", "https://169.254.169.254"),
        ("behind-nat64", "https://[64:ff9b::a9fe:a9fe]"),
        ("in-a-service", "https://10.96.0.7:6443"),
    ] {
        refused(&world, name, address, &deliveries).await?;
        let start = ["doctor", "tga/apps"];
        refused_by_command(&world, name, start).await?;
    }
    let tenant = Tenant {
        world,
        name: "in-a-service".to_owned(),
    };
    // Deliveries that need no connection continue, and those with `probe: Require` do not.
    tenant.until_ready("apps").await?;
    let start = ["whoami", "secret/apps-kubeconfig"];
    refused_by_command(&tenant.world, "in-a-service", start).await?;
    let required = json!({ "deliveries": deliveries, "probe": "Require" });
    tenant.put_access_with("careful", required).await?;
    tenant
        .until("careful", "Delivered", "False", "TargetAddressRefused")
        .await?;
    Ok(())
}

/// A tenant whose target has this address learns that nothing was sent there.
async fn refused(world: &Arc<OnHub>, name: &str, address: &str, deliveries: &Value) -> TestResult {
    let tenant = Tenant::new(world, name, &EVERY_SHAPE).await?;
    let elsewhere = json!({ "address": address });
    tenant.put_target(&EVERY_SHAPE, &elsewhere).await?;
    tenant.put_access("apps", deliveries.clone()).await?;
    tenant
        .until("apps", "TargetReachable", "False", "TargetAddressRefused")
        .await?;
    Ok(())
}

/// A user who runs a command on such a target learns the same, in spite of their rights on the hub.
async fn refused_by_command(world: &Arc<OnHub>, name: &str, start: [&str; 2]) -> TestResult {
    let path = format!("/apis/keyferry.dev/v1alpha1/targetclusters/{name}");
    let stated = |target: &Value| target["status"]["usernamePrefix"].is_string();
    world.until(&path, "with its settings", stated).await?;
    let hub = world.hub.admin_kubeconfig().display().to_string();
    let args = [&start[..], &["-n", name, "--kubeconfig", &hub]].concat();
    let output = world.ground.binary().run(&args, &[]).await?;
    let said = format!(
        "{}{}",
        String::from_utf8(output.stdout)?,
        String::from_utf8(output.stderr)?
    );
    assert!(!output.status.success(), "{start:?} of {name}: {said}");
    assert!(
        said.contains("TargetAddressRefused") && !said.contains("not all networks"),
        "{start:?} of {name}: {said}"
    );
    Ok(())
}

/// A target, or a server in its place, redirects Keyferry to another address.
pub(crate) async fn a_redirect_of_a_target_is_not_followed(world: Arc<OnHub>) -> TestResult {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let elsewhere = format!("https://{}/", listener.local_addr()?);
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let accepting = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            drop(stream);
        }
    });
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let redirect = move || {
        counted.fetch_add(1, Ordering::SeqCst);
        let location = elsewhere.clone();
        async move { axum::response::Redirect::temporary(&location) }
    };
    let folder = world.ground.folder().join("redirecting");
    std::fs::create_dir_all(&folder)?;
    let ca = TestCa::create("redirecting", &folder)?;
    let routes = axum::Router::new().fallback(redirect);
    let server = HttpsServer::start(&ca.serving("redirecting", &[])?, routes).await?;
    let tenant = Tenant::new(&world, "redirected", &EVERY_SHAPE).await?;
    let target = json!({ "address": server.url(), "caBundle": ca.cert_pem() });
    tenant.put_target(&EVERY_SHAPE, &target).await?;
    let deliveries = json!([{ "name": "s", "type": "KubeConfigSecret" }]);
    tenant.put_access("apps", deliveries).await?;
    tenant
        .until("apps", "TargetReachable", "False", "ProbeUnanswered")
        .await?;
    assert!(asked.load(Ordering::SeqCst) > 0, "the target was asked");
    assert_eq!(count.load(Ordering::SeqCst), 0, "the redirect was followed");
    accepting.abort();
    Ok(())
}

pub(crate) async fn a_target_with_probe_off_is_never_connected_to(world: Arc<OnHub>) -> TestResult {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("https://{}", listener.local_addr()?);
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let accepting = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            drop(stream);
        }
    });
    let tenant = Tenant::new(&world, "pull-only", &EVERY_SHAPE).await?;
    let off = json!({ "address": address, "probe": "Off" });
    tenant.put_target(&EVERY_SHAPE, &off).await?;
    let deliveries = json!([{ "name": "s", "type": "KubeConfigSecret" }]);
    tenant.put_access("apps", deliveries.clone()).await?;
    tenant.until_ready("apps").await?;
    let required = json!({ "deliveries": deliveries, "probe": "Require" });
    tenant.put_access_with("careful", required).await?;
    tenant
        .until("careful", "Delivered", "False", "ProbeUnanswered")
        .await?;
    assert_eq!(count.load(Ordering::SeqCst), 0);
    // The listener would have noticed.
    let on = json!({ "address": address, "probe": "Report" });
    tenant.put_target(&EVERY_SHAPE, &on).await?;
    tenant
        .until("apps", "TargetReachable", "False", "ProbeUnanswered")
        .await?;
    assert!(count.load(Ordering::SeqCst) > 0);
    accepting.abort();
    Ok(())
}
