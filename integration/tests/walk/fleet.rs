//! Tests `keyferry fleet` and `keyferry snapshot` on a hub with objects: as its admin, from a folder,
//! and as a tenant.

use std::path::Path;
use std::time::{Duration, Instant};

use keyferry_integration::rbac::service_account_kubeconfig;
use keyferry_integration::runner::{TestError, TestResult};
use serde_json::Value;

use super::place::{Here, Shell};

/// How long statuses and rights may take.
const LIMIT: Duration = Duration::from_secs(90);

pub(crate) async fn fleet_live_and_from_a_folder(place: Here) -> TestResult {
    let shell = place
        .shell("fleet", &place.world.broker, "tenant-a")
        .await?;
    let live = facts_when(&shell, "keyferry fleet -o json", |facts| {
        target(facts)["health"] == "Ready"
    })
    .await?;
    let prod = target(&live);
    assert_eq!(prod["accepted"]["accepted"], 1, "{prod}");
    assert_eq!(prod["reachable"]["answer"], "yes", "{prod}");
    assert!(prod["certificateAuthority"]["ends"].is_string(), "{prod}");
    assert!(live["runway"]["at"].is_string(), "a Secret holds a token");
    assert!(live["reading"]["user"].is_string(), "{}", live["reading"]);
    assert_eq!(live["keys"]["journalRead"], true, "{}", live["keys"]);

    let written = shell.run("keyferry snapshot folder").await?;
    let said = String::from_utf8_lossy(&written.stdout).into_owned();
    assert!(
        written.status.success() && said.contains("TargetAccesses"),
        "{said}"
    );
    assert_no_secret_is_in(&shell.folder().join("folder"))?;
    let second = shell.run("keyferry snapshot folder").await?;
    assert_eq!(
        second.status.code(),
        Some(1),
        "a full folder is not replaced"
    );
    let of_folder =
        facts_when(&shell, "keyferry fleet --snapshot folder -o json", |_| true).await?;
    for member in [
        "health", "address", "audience", "issuer", "allow", "findings", "cause",
    ] {
        assert_eq!(target(&of_folder)[member], prod[member], "{member}");
    }
    assert_eq!(
        target(&of_folder)["certificateAuthority"],
        prod["certificateAuthority"]
    );
    assert_eq!(of_folder["reading"]["user"], live["reading"]["user"]);
    assert_eq!(
        of_folder["keys"]["keys"][0]["kid"],
        live["keys"]["keys"][0]["kid"]
    );
    a_tenant_sees_its_namespace(&place, &shell).await
}

/// A tenant with the right to list the accesses of its namespace, and nothing else.
async fn a_tenant_sees_its_namespace(place: &Here, shell: &Shell) -> TestResult {
    let prepared = shell
        .run(
            "kubectl create serviceaccount viewer -n tenant-a
             kubectl create role viewer -n tenant-a --verb=list --resource=targetaccesses.keyferry.dev
             kubectl create rolebinding viewer -n tenant-a --role=viewer --serviceaccount=tenant-a:viewer",
        )
        .await?;
    assert!(prepared.status.success(), "{prepared:?}");
    let viewer = service_account_kubeconfig(&place.world.hub, "tenant-a", "viewer", 3600).await?;
    let kubeconfig = viewer.path().display();
    let command = format!("keyferry fleet --kubeconfig {kubeconfig} -n tenant-a -o json");
    let facts = facts_when(shell, &command, |facts| {
        facts["accesses"]
            .as_array()
            .is_some_and(|all| !all.is_empty())
    })
    .await?;
    let names: Vec<&Value> = facts["tenants"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|tenant| &tenant["namespace"])
        .collect();
    assert_eq!(names, ["tenant-a"]);
    assert_eq!(target(&facts)["health"], "Ready", "{}", target(&facts));
    assert!(
        target(&facts)["address"].is_string(),
        "its access states it"
    );
    assert_eq!(
        target(&facts)["allow"],
        serde_json::json!([]),
        "rules are not a tenant's"
    );

    // A rehearsal and the viewer know no more than that.
    let flags = format!("--kubeconfig {kubeconfig} -n tenant-a");
    let command = format!("keyferry rehearse hub-outage {flags} -o json");
    let rehearsal = facts_when(shell, &command, |_| true).await?.to_string();
    let page = first_page_of_viewer(shell, &flags).await?;
    for (said, wanted) in [(&rehearsal, "tenant-a/"), (&page, "One namespace. ")] {
        assert!(
            said.contains(wanted) && !said.contains("tenant-b"),
            "{said}"
        );
    }

    // Without a namespace, both lists are refused, and each says which role allows it.
    let all = shell
        .run(&format!("keyferry fleet --kubeconfig {kubeconfig}"))
        .await?;
    let said = String::from_utf8_lossy(&all.stdout).into_owned();
    assert_eq!(all.status.code(), Some(3), "{said}");
    for wanted in [
        "targetclusters.keyferry.dev: the hub refused",
        "targetaccesses.keyferry.dev: the hub refused",
        "keyferry-platform-admin",
        "show your own namespace with -n",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    Ok(())
}

/// The page that the link of a viewer opens.
async fn first_page_of_viewer(shell: &Shell, flags: &str) -> Result<String, TestError> {
    let command = format!("keyferry dashboard {flags} >viewer.txt 2>&1 & echo $!");
    let viewer = String::from_utf8(shell.run(&command).await?.stdout)?;
    let deadline = Instant::now() + LIMIT;
    let link = loop {
        let said = std::fs::read_to_string(shell.folder().join("viewer.txt"))?;
        match said.lines().find_map(|line| line.strip_prefix("open ")) {
            Some(link) => break link.to_owned(),
            None if Instant::now() > deadline => return Err(said.into()),
            None => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    };
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([]);
    let page = client.build()?.get(link).send().await?.text().await?;
    shell.run(&format!("kill {viewer}")).await?;
    Ok(page)
}

/// Runs a command until its facts are as wanted. Its exit code says how the fleet is, in which other
/// tests work at the same time.
async fn facts_when(
    shell: &Shell,
    command: &str,
    is_wanted: impl Fn(&Value) -> bool,
) -> Result<Value, TestError> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let output = shell.run(command).await?;
        let facts: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        match facts {
            Some(facts) if is_wanted(&facts) => return Ok(facts),
            facts if Instant::now() > deadline => {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                return Err(format!("{command}: {facts:?} {said}").into());
            }
            _ => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    }
}

/// The facts about the target `prod`.
fn target(facts: &Value) -> Value {
    let mut targets = facts["targets"].as_array().into_iter().flatten();
    let prod = targets.find(|target| target["name"] == "prod");
    prod.cloned().unwrap_or_default()
}

fn assert_no_secret_is_in(folder: &Path) -> TestResult {
    for file in [
        "hub/targetclusters.yaml",
        "hub/targetaccesses.yaml",
        "gaps.yaml",
        "keys.json",
    ] {
        let text = std::fs::read_to_string(folder.join(file))?;
        assert!(text.contains("map for an attacker"), "{file}");
        assert!(
            !text.contains("eyJ") && !text.contains("PRIVATE KEY"),
            "{file}"
        );
    }
    Ok(())
}
