//! Tests what the two tenants get from the fleet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::flux::until_ready;
use keyferry_integration::runner::TestResult;
use keyferry_integration::wait::until_object;
use keyferry_integration::world::shipped;
use serde_json::{Value, json};

use super::fleet::{GitFleet, TENANTS};
use crate::shipped_fleet::{config_map_of, kustomization, settings_are_the_tenants};

const SETTINGS: &str = "/api/v1/namespaces/apps/configmaps/settings";

pub(crate) async fn each_tenant_is_on_its_own_target(fleet: Arc<GitFleet>) -> TestResult {
    for (tenant, target) in TENANTS.iter().zip(&fleet.targets) {
        until_ready(&fleet.hub, &kustomization(tenant, "apps")).await?;
        assert_eq!(
            target.admin().get(SETTINGS).await?["data"],
            json!({ "owner": tenant })
        );
        let events = target.audit_events()?;
        settings_are_the_tenants(&events, "apps", tenant);
        let pings: Vec<&Value> = events
            .iter()
            .filter(|event| event["requestURI"] == "/livez/ping")
            .collect();
        assert!(
            !pings.is_empty()
                && pings
                    .iter()
                    .all(|event| event["responseStatus"]["code"] == 200),
            "{pings:?}"
        );
    }
    // A change is delivered in the same way.
    let changed = config_map_of("tenant-b", "apps", "settings") + "  at: noon\n";
    fleet.apps[1]
        .commit(&[("apps/settings.yaml", &changed)])
        .await?;
    let (admin, minute) = (fleet.targets[1].admin(), Duration::from_secs(60));
    until_object(admin, SETTINGS, "changed", minute, |object| {
        object["data"]["at"] == "noon"
    })
    .await?;
    assert_eq!(
        fleet.targets[0].admin().get(SETTINGS).await?["data"],
        json!({ "owner": "tenant-a" })
    );
    Ok(())
}

/// The hub's CRDs and admission policies accepted every object of the example, and Flux runs with
/// the flags from the repository.
pub(crate) async fn the_platform_repository_holds_all_of_the_hub(
    fleet: Arc<GitFleet>,
) -> TestResult {
    let deployment = fleet
        .hub
        .admin()
        .get("/apis/apps/v1/namespaces/flux-system/deployments/kustomize-controller")
        .await?;
    assert_eq!(
        deployment["spec"]["template"]["spec"]["containers"][0]["args"],
        json!(fleet.flags)
    );
    for flag in [
        "--no-cross-namespace-refs=true",
        "--no-remote-bases=true",
        "--default-service-account=default",
    ] {
        assert!(
            fleet.flags.iter().any(|one| one == flag),
            "{flag} is not in {:?}",
            fleet.flags
        );
    }
    for (tenant, delivery) in TENANTS.iter().zip(["KubeConfigSecret", "FluxConfigMap"]) {
        let target = tenant.replace("tenant", "target");
        let access =
            format!("/apis/keyferry.dev/v1alpha1/namespaces/{tenant}/targetaccesses/{target}");
        let access = until_ready(&fleet.hub, &access).await?;
        assert_eq!(access["spec"]["deliveries"][0]["type"], delivery);
        assert_eq!(
            access["status"]["deliveries"][0]["reason"], "Delivered",
            "{access}"
        );
        let cluster = fleet
            .hub
            .admin()
            .get(&format!(
                "/apis/keyferry.dev/v1alpha1/targetclusters/{target}"
            ))
            .await?;
        assert_eq!(
            cluster["spec"]["allow"][0],
            json!({ "namespaces": [tenant], "serviceAccounts": ["reconciler"], "deliveries": [delivery] })
        );
        assert_eq!(cluster["spec"]["audience"], super::fleet::audience(&target));
    }
    Ok(())
}

/// From the objects that the tenants have to their targets, with the commands that the
/// documentation names.
pub(crate) async fn doctor_and_can_i_say_what_flux_says(fleet: Arc<GitFleet>) -> TestResult {
    let hub = fleet.hub.admin_kubeconfig().display().to_string();
    let ca = fleet.broker.ca_path().display().to_string();
    let url = format!(
        "{}/.well-known/openid-configuration",
        fleet.broker.discovery_url()
    );
    let discovery = [
        "--kubeconfig",
        &hub,
        "--discovery-url",
        &url,
        "--discovery-ca",
        &ca,
    ];
    for tenant in TENANTS {
        until_ready(&fleet.hub, &kustomization(tenant, "apps")).await?;
        let doctor = [
            "doctor",
            "kustomization/apps",
            "-n",
            tenant,
            "--target-namespace",
            "apps",
        ];
        // Flux reconciles again at its interval, and doctor says so while it does.
        let deadline = Instant::now() + Duration::from_secs(60);
        let (output, said) = loop {
            let output = fleet
                .keyferry(&[doctor.as_slice(), &discovery].concat())
                .await?;
            let said = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            if !said.contains("Reconciliation in progress") || Instant::now() > deadline {
                break (output, said);
            }
            until_ready(&fleet.hub, &kustomization(tenant, "apps")).await?;
        };
        assert!(
            output.status.success() && !said.contains("warning"),
            "{tenant}: {said}"
        );
        let apps = shipped(&format!("examples/git-fleet/{tenant}/apps"))
            .display()
            .to_string();
        let can_i = [
            "can-i",
            "apply",
            "-f",
            &apps,
            "--from",
            "kustomization/apps",
            "-n",
            tenant,
        ];
        let output = fleet
            .keyferry(&[can_i.as_slice(), &discovery].concat())
            .await?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{tenant}: {said}");
    }
    Ok(())
}
