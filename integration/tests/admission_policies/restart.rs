//! Measures how long a restarted apiserver refuses TokenRequests because `keyferry-pairing` cannot
//! find its parameters' kind yet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait;
use serde_json::json;

use super::stage::{ADMISSION, AUDIENCE, Stage, mint, restore, until};

/// Sets how often each hub is restarted.
const RESTARTS: &str = "KEYFERRY_RESTARTS";
/// kube-apiserver refreshes its list of kinds every 30 s. The rest is room for a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

pub(super) async fn measured(stage: Arc<Stage>) -> TestResult {
    let restarts = restarts()?;
    futures::future::try_join_all(stage.hubs.iter().map(|hub| on(hub, restarts)))
        .await
        .map(drop)
}

fn restarts() -> Result<usize, TestError> {
    Ok(match std::env::var(RESTARTS) {
        Ok(number) => number.parse()?,
        Err(_) => 1,
    })
}

/// How long a measurement may take: each restart may have to wait.
pub(super) fn limit() -> Duration {
    let restarts = restarts().unwrap_or(1).try_into().unwrap_or(1);
    Duration::from_secs(300) + LIMIT * restarts
}

/// The policy of the trial below.
const TRIED_POLICY: &str = "keyferry-pairing-tried";
const CONFIG_MAP: &str = "/api/v1/namespaces/keyferry-system/configmaps/keyferry-pairing-tried";

/// The same measurement with the pairs in a ConfigMap, whose kind each apiserver knows from its
/// start, and what such a policy costs (decision 0014).
pub(super) async fn measured_with_a_config_map(stage: Arc<Stage>) -> TestResult {
    let restarts = restarts()?;
    let each = stage
        .hubs
        .iter()
        .map(|hub| with_a_config_map(hub, restarts));
    futures::future::try_join_all(each).await.map(drop)
}

async fn with_a_config_map(hub: &ControlPlane, restarts: usize) -> TestResult {
    for binding in ["keyferry-pairing", "keyferry-pairing-closed"] {
        let path = format!("{ADMISSION}/validatingadmissionpolicybindings/{binding}");
        hub.admin().delete(&path).await?;
    }
    write_pairs(hub, 0).await?;
    let spec = json!({
        "failurePolicy": "Fail", "paramKind": { "apiVersion": "v1", "kind": "ConfigMap" },
        "matchConstraints": { "resourceRules": [{
            "apiGroups": [""], "apiVersions": ["*"], "operations": ["CREATE"],
            "resources": ["serviceaccounts/token"],
        }] },
        "variables": [
            { "name": "audiences", "expression": "object.spec.?audiences.orValue([])" },
            { "name": "pairs", "expression": "params.?data.?pairs.orValue('')" },
            { "name": "account", "expression": "request.namespace + '/' + request.name" },
            { "name": "listed", "expression": "variables.audiences.filter(one, \
                variables.pairs.contains('\\n' + one + '\\n'))" },
        ],
        "validations": [
            { "expression": "size(variables.listed) == 0 || size(variables.audiences) == 1" },
            { "expression": "variables.listed.all(one, variables.pairs.contains('\\n' + one + \
                ' ' + variables.account + '\\n'))" },
        ],
    });
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": TRIED_POLICY }, "spec": spec,
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": TRIED_POLICY },
        "spec": {
            "policyName": TRIED_POLICY, "validationActions": ["Deny"],
            "paramRef": {
                "name": TRIED_POLICY, "namespace": "keyferry-system",
                "parameterNotFoundAction": "Deny",
            },
        },
    });
    let policies = format!("{ADMISSION}/validatingadmissionpolicies/{TRIED_POLICY}");
    let bindings = format!("{ADMISSION}/validatingadmissionpolicybindings/{TRIED_POLICY}");
    hub.admin().apply(&policies, &policy).await?;
    hub.admin().apply(&bindings, &binding).await?;
    until("the policy of the trial holds", || async {
        mint(hub.admin(), "tenant-a", "other", &[AUDIENCE])
            .await
            .is_err()
            && mint(hub.admin(), "tenant-a", "reconciler", &[AUDIENCE])
                .await
                .is_ok()
    })
    .await?;
    on(hub, restarts).await?;
    for kilobytes in [100, 500, 900] {
        write_pairs(hub, kilobytes * 1000).await?;
        cost(hub, kilobytes).await?;
    }
    hub.admin().delete(&bindings).await?;
    hub.admin().delete(&policies).await?;
    hub.admin().delete(CONFIG_MAP).await?;
    restore(hub).await
}

/// Writes one line for an audience and one for each of its pairs, and fills up with others.
async fn write_pairs(hub: &ControlPlane, bytes: usize) -> TestResult {
    let mut pairs = format!("\n{AUDIENCE}\n{AUDIENCE} tenant-a/reconciler\n");
    let mut number = 0;
    while pairs.len() < bytes {
        let audience = format!("https://cluster-{number}.example.com");
        pairs.push_str(&format!(
            "{audience}\n{audience} tenant-{number}/reconciler\n"
        ));
        number += 1;
    }
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": TRIED_POLICY, "namespace": "keyferry-system" },
        "data": { "pairs": pairs },
    });
    hub.admin().apply(CONFIG_MAP, &object).await?;
    Ok(())
}

/// Prints the median time of a TokenRequest, and how many audiences one may have before the
/// expressions exceed their cost limit.
async fn cost(hub: &ControlPlane, kilobytes: usize) -> TestResult {
    let mut times = Vec::new();
    for _ in 0..100 {
        let began = Instant::now();
        mint(hub.admin(), "tenant-a", "reconciler", &[AUDIENCE]).await?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let mut most = 0;
    for count in 1..=64 {
        let audiences: Vec<String> = (0..count)
            .map(|number| format!("https://unlisted-{number}.keyferry.test"))
            .collect();
        let audiences: Vec<&str> = audiences.iter().map(String::as_str).collect();
        if mint(hub.admin(), "tenant-a", "other", &audiences)
            .await
            .is_err()
        {
            break;
        }
        most = count;
    }
    eprintln!(
        "a ConfigMap of {kilobytes} kB on {}: {:.1} ms median, {most} unlisted audiences in a \
         request",
        hub.minor().git_version(),
        times[times.len() / 2].as_secs_f64() * 1000.0
    );
    Ok(())
}

async fn on(hub: &ControlPlane, restarts: usize) -> TestResult {
    let mut refusals = Vec::with_capacity(restarts);
    for _ in 0..restarts {
        hub.restart().await?;
        refusals.push(until_tokens(hub).await?);
    }
    let shown: Vec<String> = refusals
        .iter()
        .map(|refused| format!("{:.1}", refused.as_secs_f64()))
        .collect();
    eprintln!(
        "seconds from /readyz to the first token on {}: {}",
        hub.minor().git_version(),
        shown.join(" ")
    );
    Ok(())
}

/// Waits until the hub mints a token for a listed audience; returns how long it refused.
async fn until_tokens(hub: &ControlPlane) -> Result<Duration, TestError> {
    let (ready, admin) = (Instant::now(), hub.admin());
    wait::until("a token for a listed audience", LIMIT, || async {
        // An account that is not listed gets no token meanwhile.
        if mint(admin, "tenant-a", "other", &[AUDIENCE]).await.is_ok() {
            return Err("an unlisted account got a token".into());
        }
        match mint(admin, "tenant-a", "reconciler", &[AUDIENCE]).await {
            Ok(_) => Ok(true),
            Err(error) => {
                let said = error.to_string();
                let known = [
                    "failed to find resource referenced by paramKind",
                    "not yet synced to use for admission",
                ];
                match known.iter().any(|text| said.contains(text)) {
                    true => Ok(false),
                    false => Err(format!("refused for another reason: {said}").into()),
                }
            }
        }
    })
    .await?;
    Ok(ready.elapsed())
}
