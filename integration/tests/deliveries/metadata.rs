//! The metadata that tenants write on their objects must not cost the server memory, neither lasting
//! nor at its start, when it reads all of it at once.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use http::{Method, header};
use keyferry_integration::chaos_proxy::{ChaosProxy, Fault, Rule};
use keyferry_integration::wait::until;
use keyferry_integration::world::{
    Access, Broker, BrokerSpec, Subject, Target, caller_token, let_mint,
};

use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::on_hub::{OnHub, RECONCILER, access_path};
use serde_json::json;

use super::lease::{put_to_sleep, wake};
use super::tenant::Tenant;
use super::watch::gone;

const ACCESSES: usize = 40;
const FINALIZERS: usize = 3_600;
/// The memory that the allocator may keep after reading them. A server that kept the finalizers
/// grew by 56 MiB.
const MOST_KIB: u64 = 20 * 1024;

/// How many ServiceAccounts, and how many accesses, a tenant makes as large as the hub takes them.
const LARGE: usize = 30;
/// The finalizers of each ServiceAccount. With their managedFields it has 1.2 MB.
const SHORT_FINALIZERS: usize = 38_000;
/// The finalizers of each access, which are as long as the hub takes them. They are few, because
/// their number decides how long the hub takes for a status: 38,000 took a busy hub more than
/// 90 seconds, and the test then measured the hub.
const LONG_FINALIZERS: usize = 1_800;
/// Everything that a replica lists when it starts.
const WATCHED: [&str; 4] = [
    "/api/v1/serviceaccounts",
    "/api/v1/namespaces",
    "/apis/keyferry.dev/v1alpha1/targetclusters",
    "/apis/keyferry.dev/v1alpha1/targetaccesses",
];
/// The most memory that a replica may ever have taken: at its start, and at a new list. With 110 of
/// each it took 824 MiB before, and takes 67 MiB.
const MAX_PEAK_KIB: u64 = 128 * 1024;

/// A tenant puts 3,600 finalizers on each of 40 accesses.
pub(crate) async fn finalizers_cost_no_memory_that_stays(world: Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(&world, "heavy", &["HTTP"]).await?;
    let names: Vec<String> = (0..ACCESSES)
        .map(|index| format!("heavy-{index}"))
        .collect();
    for name in &names {
        tenant
            .put_access(name, json!([{ "name": "h", "type": "HTTP" }]))
            .await?;
    }
    for name in &names {
        tenant.until_ready(name).await?;
    }
    let before = resident_kib(&world)?;
    with_finalizers(&world, &names, "heavy").await?;
    let after = resident_kib(&world)?;
    eprintln!(
        "{ACCESSES} accesses with {FINALIZERS} finalizers each: {before} KiB before, {after} KiB \
         after"
    );
    assert!(
        after <= before + MOST_KIB,
        "{before} KiB before, {after} KiB after"
    );
    for name in &names {
        world
            .hub
            .admin()
            .patch(
                &access_path("heavy", name),
                &json!({ "metadata": { "finalizers": null } }),
            )
            .await?;
    }
    Ok(())
}

/// Writes the finalizers, and waits until Keyferry has read the last of them. It then answers a
/// request that was written after them.
async fn with_finalizers(world: &OnHub, names: &[String], prefix: &str) -> TestResult {
    let finalizers: Vec<String> = (0..FINALIZERS)
        .map(|index| format!("{prefix}.heavy.example.test/finalizer-{index:04}"))
        .collect();
    for name in names {
        let patch = json!({ "metadata": { "finalizers": finalizers, "annotations": { "keyferry.dev/requestedAt": prefix } } });
        world
            .hub
            .admin()
            .patch(&access_path("heavy", name), &patch)
            .await?;
    }
    for name in names {
        let handled =
            |access: &serde_json::Value| access["status"]["lastHandledReconcileAt"] == prefix;
        world
            .until(&access_path("heavy", name), "handled", handled)
            .await?;
    }
    Ok(())
}

/// A replica starts, and the hub's apiserver restarts, while a tenant has as many and as large
/// objects as the hub takes from `edit`. It leads, so it also writes statuses.
pub(crate) async fn large_objects_cost_no_memory_at_a_start(world: Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(&world, "large", &["HTTP"]).await?;
    put_to_sleep(&world).await?;
    let outcome = started_beside_large_objects(&world, &tenant).await;
    wake(&world).await?;
    outcome
}

async fn started_beside_large_objects(world: &Arc<OnHub>, tenant: &Tenant) -> TestResult {
    create_large_objects(world).await?;
    let proxy = ChaosProxy::in_front_of(&world.hub).await?;
    let spec = BrokerSpec::of_hub("large", &world.hub)
        .with_server_lines("objects: CustomResources\n")
        .through(&proxy.url());
    let broker = world.ground.start_installed(&world.hub, spec).await?;
    // It is ready, so it has listed everything. Statuses are not awaited: this is about memory.
    let caller = caller_token(&world.hub, "large", RECONCILER).await?;
    let last = format!("large/large-{}", LARGE - 1);
    until(
        "the last access is read",
        Duration::from_secs(60),
        async || Ok(broker.exchange(&caller, &last).await?.status == 200),
    )
    .await?;
    let after_start = peak_kib(&broker)?;
    // The pages of one list, and the watch that follows it.
    let of_a_list = count_requests(&proxy);

    world.hub.restart().await?;
    let before = count_requests(&proxy);
    refuse_each_watch_once(&proxy, &gone());
    proxy.cut_all();
    until(
        "everything is listed again",
        Duration::from_secs(100),
        async || {
            let now = count_requests(&proxy);
            Ok((0..WATCHED.len()).all(|index| now[index] >= before[index] + of_a_list[index]))
        },
    )
    .await?;
    tenant
        .put_access("after", json!([{ "name": "h", "type": "HTTP" }]))
        .await?;
    until(
        "a new access is read",
        Duration::from_secs(100),
        async || Ok(broker.exchange(&caller, "large/after").await?.status == 200),
    )
    .await?;
    let after_list = peak_kib(&broker)?;
    eprintln!(
        "{LARGE} ServiceAccounts and as many accesses of 1.2 MB: a peak of {after_start} KiB after \
         the start, {after_list} KiB after they were listed again"
    );
    assert!(after_list <= MAX_PEAK_KIB, "{after_list} KiB");
    broker.into_process().stop().await?;
    a_start_with_a_file_costs_no_memory_either(world).await
}

/// A Keyferry whose objects are in its file lists the same ServiceAccounts and Namespaces.
async fn a_start_with_a_file_costs_no_memory_either(world: &OnHub) -> TestResult {
    let target = Target::of(&world.targets[0], "https://large-file.keyferry.test")
        .allowing("large", &[RECONCILER]);
    let spec = BrokerSpec::of_hub("large-file", &world.hub)
        .alone()
        .with_access(Access::of("large", "file", &target.name, RECONCILER))
        .with_target(target);
    let namespace = spec.namespace().to_owned();
    let keyferry = Subject::ServiceAccount(&namespace, "keyferry");
    let_mint(&world.hub, &namespace, keyferry, "large", &[RECONCILER]).await?;
    let broker = world.ground.start_broker(&world.hub, spec).await?;
    let caller = caller_token(&world.hub, "large", RECONCILER).await?;
    broker.exchange_in_time(&caller, "large/file").await?;
    let peak = peak_kib(&broker)?;
    eprintln!("{LARGE} ServiceAccounts of 1.2 MB, with objects in a file: a peak of {peak} KiB");
    assert!(peak <= MAX_PEAK_KIB, "{peak} KiB");
    broker.into_process().stop().await?;
    Ok(())
}

/// Answers the next watch of each collection with 410. An apiserver that restarted may still have
/// the changes since the last one, so a watch that only goes on would be no new list.
fn refuse_each_watch_once(proxy: &ChaosProxy, gone: &Fault) {
    for collection in WATCHED {
        for query in ["?&watch=true", "?watch=true"] {
            let path = format!("{collection}{query}");
            proxy.add(Rule::on(Method::GET, &path, gone.clone()).times(1));
        }
    }
}

/// The requests so far for each watched collection.
fn count_requests(proxy: &ChaosProxy) -> [u64; 4] {
    let counts = proxy.counts();
    WATCHED.map(|collection| {
        let request = (Method::GET.to_string(), collection.to_owned());
        counts.get(&request).copied().unwrap_or_default()
    })
}

async fn create_large_objects(world: &OnHub) -> TestResult {
    let short: Vec<String> = (0..SHORT_FINALIZERS)
        .map(|index| format!("a/{index:x}"))
        .collect();
    let prefix = format!("{0}.{0}.{0}.{0}", "a".repeat(62));
    let long: Vec<String> = (0..LONG_FINALIZERS)
        .map(|index| format!("{prefix}/{index:063}"))
        .collect();
    let metadata = |index: usize, finalizers: &[String]| {
        json!({
            "name": format!("large-{}", index / 2), "namespace": "large",
            "finalizers": finalizers,
        })
    };
    let object = |index: usize| {
        if index.is_multiple_of(2) {
            let object = json!({
                "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(index, &short),
            });
            return ("/api/v1/namespaces/large/serviceaccounts", object);
        }
        let object = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess",
            "metadata": metadata(index, &long),
            "spec": {
                "targetClusterRef": { "name": "large" }, "serviceAccountName": RECONCILER,
                "deliveries": [{ "name": "h", "type": "HTTP" }],
            },
        });
        (
            "/apis/keyferry.dev/v1alpha1/namespaces/large/targetaccesses",
            object,
        )
    };
    let create = async |index: usize| {
        let (path, object) = object(index);
        let request = world.hub.admin().request(Method::POST, path);
        // Its answer is not parsed: that would take longer than the rest of the test.
        let answer = request
            .header(header::CONTENT_TYPE, "application/json")
            .body(object.to_string())
            .send()
            .await?;
        match answer.status().as_u16() {
            201 => Ok(()),
            status => Err(TestError::from(format!("{path}: {status}"))),
        }
    };
    stream::iter(0..2 * LARGE)
        .map(create)
        .buffer_unordered(8)
        .try_collect()
        .await
}

fn peak_kib(broker: &Broker) -> Result<u64, TestError> {
    memory_kib(broker, "VmHWM:")
}

fn resident_kib(world: &OnHub) -> Result<u64, TestError> {
    memory_kib(&world.broker, "VmRSS:")
}

fn memory_kib(broker: &Broker, line: &str) -> Result<u64, TestError> {
    let id = broker.process().id().ok_or("Keyferry does not run")?;
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status
        .lines()
        .find_map(|found| found.strip_prefix(line))
        .ok_or("no such line")?;
    Ok(line.split_whitespace().next().ok_or("no number")?.parse()?)
}
