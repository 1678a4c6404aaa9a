//! Measures the resident memory of a separate `keyferry serve` process: idle, and for each cached
//! token.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use keyferry_testing::HubOptions;

use crate::harness::server_process::ServerProcess;
use crate::harness::stage::{self, Ground};
use crate::harness::{Outcome, policy, process};

/// Each namespace reaches `TARGETS * GENERATIONS` cached tokens and one more, which is within its
/// limit of 1,000.
const NAMESPACES: usize = 5;
const TARGETS: usize = 100;
/// The number of times that each namespace's ServiceAccount is recreated. Each time adds another
/// hundred tokens for the same few objects of the file. Otherwise the memory that the allocator
/// keeps after reading a large file would count as memory of the tokens.
const GENERATIONS: usize = 9;
/// The first generations do not count, because they add connections, buffers, the check of each
/// audience and the allocator's holes.
const UNCOUNTED: usize = 2;
/// The number of concurrent requests while the cache is filled.
const AT_ONCE: usize = 16;
/// How long a process is idle after its start or its work before its memory is read.
const REST: Duration = Duration::from_secs(2);
/// How long the broker may take to see a recreated ServiceAccount.
const SEEN: Duration = Duration::from_secs(10);

/// Measured memory in KiB and bytes.
pub struct Memory {
    /// After the start, with one target and one access.
    pub idle_kib: Option<u64>,
    /// After the start, with the policy of `objects` objects.
    pub idle_with_policy_kib: Option<u64>,
    /// The number of objects in that policy.
    pub objects: usize,
    /// The tokens that were added between the two measurements.
    pub tokens: usize,
    /// The bytes of one such token.
    pub token_bytes: usize,
    /// The bytes of resident memory for each token, including the token itself.
    pub bytes_per_token: Option<f64>,
}

/// Starts the shipped binary twice.
pub async fn measure() -> Outcome<Memory> {
    let idle_kib = idle().await?;
    let ground = Ground::prepare(HubOptions::default()).await?;
    let names = |what: &str, count: usize| {
        (0..count)
            .map(|index| format!("{what}-{index}"))
            .collect::<Vec<String>>()
    };
    let (namespaces, targets) = (names("tenant", NAMESPACES), names("target", TARGETS));
    let mut objects: String = targets
        .iter()
        .map(|target| policy::target(target, "1h", &namespaces, &["reconciler".to_owned()]))
        .collect();
    for namespace in &namespaces {
        ground.hub.add_service_account(namespace, "reconciler");
        objects.extend(
            targets
                .iter()
                .map(|target| policy::access(namespace, target, target, "reconciler", &[])),
        );
    }
    let ports = ground.configure(&objects)?;
    let keyferry = ServerProcess::start_keyferry(&ground, ports).await?;
    tokio::time::sleep(REST).await;
    let idle_with_policy_kib = process::resident_kib(keyferry.id());
    let (client, url) = (
        ground.client()?,
        format!("https://127.0.0.1:{}/v1/token", ports.api),
    );
    let token_bytes = token_bytes(
        &client,
        &url,
        ground.form("tenant-0", "reconciler", "target-0")?,
    )
    .await?;
    for _ in 0..UNCOUNTED {
        hold_a_generation(&ground, &client, &url, &namespaces, &targets).await?;
    }
    tokio::time::sleep(REST).await;
    let (before, minted) = (
        process::resident_kib(keyferry.id()),
        ground.hub.token_requests(),
    );
    for _ in UNCOUNTED..GENERATIONS {
        hold_a_generation(&ground, &client, &url, &namespaces, &targets).await?;
    }
    tokio::time::sleep(REST).await;
    let after = process::resident_kib(keyferry.id());
    let tokens = (GENERATIONS - UNCOUNTED) * NAMESPACES * TARGETS;
    if ground.hub.token_requests() - minted != tokens as u64 {
        return Err("some tokens were not minted, so they cannot be weighed".into());
    }
    let bytes_per_token = before
        .zip(after)
        .map(|(before, after)| after.saturating_sub(before) as f64 * 1024.0 / tokens as f64);
    let objects = TARGETS + NAMESPACES * TARGETS;
    Ok(Memory {
        idle_kib,
        idle_with_policy_kib,
        objects,
        tokens,
        token_bytes,
        bytes_per_token,
    })
}

/// Recreates every ServiceAccount, and fetches a token of each for each target.
async fn hold_a_generation(
    ground: &Ground,
    client: &reqwest::Client,
    url: &str,
    namespaces: &[String],
    targets: &[String],
) -> Outcome<()> {
    let mut forms = Vec::new();
    for namespace in namespaces {
        ground.hub.recreate_service_account(namespace, "reconciler");
        let of_namespace = forms_of(ground, namespace, targets)?;
        let first = of_namespace.first().ok_or("there are no targets")?;
        // Until the broker's watch has reported the change, the caller is not the live
        // ServiceAccount.
        let seen = async {
            while stage::exchange(client, url, first.clone()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(SEEN, seen)
            .await
            .map_err(|_| "the broker did not see a ServiceAccount that was recreated")?;
        forms.extend(of_namespace);
    }
    ask_all(client, url, forms).await
}

async fn idle() -> Outcome<Option<u64>> {
    let ground = Ground::prepare(HubOptions::default()).await?;
    let (_, objects) = ground.add_one_access();
    let ports = ground.configure(&objects)?;
    let keyferry = ServerProcess::start_keyferry(&ground, ports).await?;
    tokio::time::sleep(REST).await;
    Ok(process::resident_kib(keyferry.id()))
}

/// Uses one caller token for each namespace, so that callers need little memory compared with the
/// minted tokens.
fn forms_of(ground: &Ground, namespace: &str, targets: &[String]) -> Outcome<Vec<String>> {
    let one = ground.form(namespace, "reconciler", "ACCESS")?;
    Ok(targets
        .iter()
        .map(|target| one.replace("ACCESS", target))
        .collect())
}

async fn ask_all(client: &reqwest::Client, url: &str, forms: Vec<String>) -> Outcome<()> {
    let asks = stream::iter(forms).map(|form| stage::exchange(client, url, form));
    asks.buffer_unordered(AT_ONCE).try_collect().await
}

async fn token_bytes(client: &reqwest::Client, url: &str, form: String) -> Outcome<usize> {
    let request = client
        .post(url)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(form);
    let answer: serde_json::Value = serde_json::from_str(&request.send().await?.text().await?)?;
    let token = answer
        .get("access_token")
        .and_then(serde_json::Value::as_str);
    Ok(token.ok_or("an exchange gave no token")?.len())
}
