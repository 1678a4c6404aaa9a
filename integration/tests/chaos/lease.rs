//! The Lease is taken from a leader that works and does not notice, so that two replicas lead.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::chaos_proxy::{Fault, Rule};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::{until, until_object};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::stage::Stage;
use crate::deliveries::killed::{check_secret, recorded_tokens, whole};
use crate::deliveries::leader::holder;
use crate::deliveries::lease::free;
use crate::deliveries::tenant::Tenant;

const ACCESSES: usize = 24;
const TENANT: &str = "two-leaders";
/// Long enough that the second leader starts while the first one works.
const EACH_CALL: Duration = Duration::from_millis(600);
const LIMIT: Duration = Duration::from_secs(100);

pub(super) async fn two_leaders_never_write_over_each_other(stage: Arc<Stage>) -> TestResult {
    let world = &stage.world;
    let tenant = Tenant::new(world, TENANT, &["KubeConfigSecret"]).await?;
    let first = holder(world).await?;
    let (let_go, hold) = watch::channel(false);
    let rules = [
        Rule::on_any("/leases/keyferry", Fault::Hold(hold)),
        Rule::on_any(&format!("/namespaces/{TENANT}/"), Fault::Delay(EACH_CALL)),
    ]
    .map(|rule| stage.proxy.add(rule));
    let deliveries = json!([{ "name": "s", "type": "KubeConfigSecret" }]);
    for number in 0..ACCESSES {
        let spec = json!({ "deliveries": deliveries, "probe": "Off" });
        tenant.put_access_with(&format!("a{number}"), spec).await?;
    }
    until("the first leader writes", LIMIT, || async {
        Ok(whole(&tenant).await? > 0)
    })
    .await?;
    free(world).await?;
    let second = stage.start_replica("second", |spec| spec).await?;
    until("the second one leads", LIMIT, || async {
        Ok(holder(world).await.is_ok_and(|now| now != first))
    })
    .await?;
    let mut delivered = Vec::new();
    for number in 0..ACCESSES {
        delivered.push(until_delivered(&tenant, &format!("a{number}")).await?);
    }
    let by_first = world.broker.audit()?;
    let by_second = second.audit()?;
    let recorded = recorded_tokens(&[by_first.clone(), by_second.clone()].concat());
    for (access, secret) in &delivered {
        check_secret(&tenant, secret, access, &recorded).await?;
    }
    assert_eq!(whole(&tenant).await?, ACCESSES);
    let written = [&by_first, &by_second].map(|records| count_deliveries(records));
    eprintln!("tokens recorded by the first and the second leader: {written:?}");
    assert!(written.iter().all(|count| *count > 0), "{written:?}");
    each_secret_was_written_once(&tenant)?;
    let_go.send_replace(true);
    for rule in rules {
        stage.proxy.remove(rule);
    }
    second.into_process().stop().await?;
    free(world).await
}

/// Waits until the status is about the token that is in the Secret. Returns both.
async fn until_delivered(tenant: &Tenant, name: &str) -> Result<(Value, Value), TestError> {
    let hub = tenant.world.hub.admin();
    let path = tenant.secret(&format!("{name}-kubeconfig"));
    let secret = until_object(hub, &path, "written", LIMIT, |_| true).await?;
    let id = &secret["metadata"]["annotations"]["keyferry.dev/token-id"];
    let access = until_object(hub, &tenant.access(name), "delivered", LIMIT, |access| {
        access["status"]["deliveries"][0]["tokenID"] == *id
    })
    .await?;
    Ok((access, secret))
}

fn count_deliveries(records: &[Value]) -> usize {
    let prefix = format!("{TENANT}/");
    let of_tenant = |record: &&Value| {
        record["route"] == "delivery"
            && record["tokenId"].is_string()
            && record["access"]
                .as_str()
                .is_some_and(|access| access.starts_with(&prefix))
    };
    records.iter().filter(of_tenant).count()
}

/// The hub's audit log has one successful write of each Secret: its creation.
fn each_secret_was_written_once(tenant: &Tenant) -> TestResult {
    let mut writes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for event in tenant.world.hub.audit_events()? {
        let object = &event["objectRef"];
        let verb = event["verb"].as_str().unwrap_or_default();
        let code = event["responseStatus"]["code"].as_u64().unwrap_or_default();
        let is_write = ["create", "update", "patch", "delete"].contains(&verb);
        if object["resource"] == "secrets"
            && object["namespace"] == TENANT
            && is_write
            && (200..300).contains(&code)
        {
            let name = object["name"].as_str().unwrap_or_default().to_owned();
            writes.entry(name).or_default().push(verb.to_owned());
        }
    }
    assert_eq!(writes.len(), ACCESSES, "{writes:?}");
    assert!(
        writes.values().all(|verbs| verbs == &["create"]),
        "{writes:?}"
    );
    Ok(())
}
