//! How many client certificates a tenant can have requested, whatever it creates and deletes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_integration::process::Signal;
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::until;
use keyferry_integration::world::on_hub::{OnHub, RECONCILER, access_path, tenant_with_minter};
use keyferry_integration::world::{BrokerSpec, shipped};
use serde_json::{Value, json};

use super::leader::holder;

const TENANT: &str = "certificates";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const TARGET: &str = "/apis/keyferry.dev/v1alpha1/targetclusters/this-hub";
/// The limit of a namespace within an hour.
const LIMIT: usize = 64;
const WAIT_LIMIT: Duration = Duration::from_secs(75);

/// A request for a certificate, whose key was not kept.
const FALSE_REQUEST: &str =
    include_str!("../../../broker/client/src/admission_policies/trial_request.pem");

/// 70 accesses, new names after their deletion, and another leader: never more than 64 requests.
/// Another user's requests with the same labels and annotations use up none of them.
pub(crate) async fn a_tenants_requests_are_bounded_across_names_and_leaders(
    world: Arc<OnHub>,
) -> TestResult {
    let hub = &world.hub;
    apply_manifests(
        hub,
        &[&shipped(
            "examples/install/client-certificates/requester.yaml",
        )],
    )
    .await?;
    tenant_with_minter(hub, TENANT, &[RECONCILER]).await?;
    let spec = json!({
        "address": hub.url(), "audience": "https://this-hub.keyferry.test", "hub": true,
        "caBundle": hub.ca_pem(),
        "allow": [{
            "namespaces": [TENANT], "serviceAccounts": [RECONCILER],
            "deliveries": ["ClientCertificateSecret"],
        }],
    });
    world.put_target("this-hub", &spec).await?;
    let names = |prefix: &str, count: usize| -> Vec<String> {
        (0..count)
            .map(|number| format!("{prefix}-{number}"))
            .collect()
    };
    create_false_requests(&world).await?;
    let first = names("loop", LIMIT + 6);
    put(&world, &first).await?;
    until_limited(&world, &first).await?;
    let requested = requests(&world).await?;
    assert_eq!(requested.len(), LIMIT);

    // Deleted, and created again under other names.
    for name in &first {
        hub.admin().delete(&access_path(TENANT, name)).await?;
    }
    let second = names("again", 5);
    put(&world, &second).await?;
    until_all_limited(&world, &second).await?;
    assert_eq!(requests(&world).await?, requested);

    // Another leader knows only what the hub has.
    let leader = holder(&world).await?;
    let spec = BrokerSpec::of_hub("next", hub).with_server_lines("objects: CustomResources\n");
    let next = world.ground.start_installed(hub, spec).await?;
    world.broker.process().signal(Signal::Suspend).await?;
    let taken = until("another replica leads", WAIT_LIMIT, || async {
        Ok(holder(&world).await? != leader)
    });
    let outcome = match taken.await {
        Ok(()) => of_the_next_leader(&world, &names("next", 3)).await,
        failed => failed,
    };
    world.broker.process().signal(Signal::Continue).await?;
    next.into_process().stop().await?;
    outcome?;
    assert_eq!(requests(&world).await?, requested);
    hub.admin().delete(TARGET).await?;
    for name in second.iter().chain(&names("next", 3)) {
        hub.admin().delete(&access_path(TENANT, name)).await?;
    }
    until("the first replica leads again", WAIT_LIMIT, || async {
        Ok(holder(&world).await.is_ok_and(|now| now == leader))
    })
    .await
}

/// Creates as many requests as the limit allows, as another user who labels them like Keyferry.
async fn create_false_requests(world: &OnHub) -> TestResult {
    let hour = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() / 3600;
    for number in 0..LIMIT {
        let request = json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {
                "name": format!("false-{number}"),
                "labels": {
                    "app.kubernetes.io/managed-by": "keyferry", "keyferry.dev/namespace": TENANT,
                    "keyferry.dev/requested-in-hour": hour.to_string(),
                },
                "annotations": {
                    "keyferry.dev/access": format!("{TENANT}/loop-0"), "keyferry.dev/delivery": "tls",
                },
            },
            "spec": {
                "request": STANDARD.encode(FALSE_REQUEST), "expirationSeconds": 3600,
                "signerName": "kubernetes.io/kube-apiserver-client",
                "usages": ["client auth", "digital signature"],
            },
        });
        world.hub.admin().create(REQUESTS, &request).await?;
    }
    Ok(())
}

async fn of_the_next_leader(world: &OnHub, names: &[String]) -> TestResult {
    put(world, names).await?;
    until_all_limited(world, names).await
}

async fn put(world: &OnHub, names: &[String]) -> TestResult {
    let deliveries =
        json!({ "deliveries": [{ "name": "tls", "type": "ClientCertificateSecret" }] });
    for name in names {
        world
            .put_access(TENANT, name, "this-hub", &deliveries)
            .await?;
    }
    Ok(())
}

/// The names of the CertificateSigningRequests that Keyferry made for the tenant.
async fn requests(world: &OnHub) -> Result<BTreeSet<String>, TestError> {
    let all = world.hub.admin().get(REQUESTS).await?;
    let access = format!("{TENANT}/");
    let is_theirs = |object: &&Value| {
        let named = object["metadata"]["annotations"]["keyferry.dev/access"].as_str();
        let is_false = object["metadata"]["name"]
            .as_str()
            .is_some_and(|name| name.starts_with("false-"));
        named.is_some_and(|named| named.starts_with(&access)) && !is_false
    };
    let items = all["items"].as_array().into_iter().flatten();
    let names = items.filter(is_theirs);
    Ok(names
        .filter_map(|object| object["metadata"]["name"].as_str().map(str::to_owned))
        .collect())
}

/// How many of the accesses say that the namespace has reached its limit, and how many say nothing
/// yet.
async fn limited(world: &OnHub, names: &[String]) -> Result<(usize, usize), TestError> {
    let (mut reached, mut silent) = (0, 0);
    for name in names {
        let access = world.hub.admin().get(&access_path(TENANT, name)).await?;
        let said = access["status"]["deliveries"].to_string();
        if said.contains("64 certificates of this namespace") {
            reached += 1;
        } else if !said.contains("CertificateSigningRequest") {
            silent += 1;
        }
    }
    Ok((reached, silent))
}

async fn until_limited(world: &OnHub, names: &[String]) -> TestResult {
    let limit = Instant::now() + WAIT_LIMIT;
    loop {
        let found = limited(world, names).await?;
        if found == (names.len() - LIMIT, 0) {
            return Ok(());
        }
        if Instant::now() > limit {
            return Err(format!("limited, silent: {found:?} of {}", names.len()).into());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn until_all_limited(world: &OnHub, names: &[String]) -> TestResult {
    until("every access has reached the limit", WAIT_LIMIT, || async {
        Ok(limited(world, names).await?.0 == names.len())
    })
    .await
}
