//! A file of the size of a large cluster: 16 roles, with 300 accounts each.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::document_server::DocumentServer;
use keyferry_integration::fleet::Fleet;
use keyferry_integration::rest::RestClient;
use keyferry_integration::runner::{TestError, TestResult};
use serde_json::{Value, json};

use super::{answered, compile, object_of, objects_of, predicted, print_trust, user_of};

const ROLES: usize = 16;
const ACCOUNTS: usize = 300;
const TENANT: &str = "crowd";
/// What an allow rule takes at most.
const ACCOUNTS_OF_A_RULE: usize = 64;
const BASE: &str = "https://prod.keyferry.test";
const SAMPLES: usize = 60;
/// For a token that the apiserver has not seen.
const LONGEST_CHECK: Duration = Duration::from_millis(250);

/// The apiserver loads the file, decides each role by its own accounts, and takes a bounded time for
/// it.
pub(super) async fn sixteen_roles_of_300_accounts(
    fleet: Arc<Fleet>,
    target: &'static str,
) -> TestResult {
    let (hub, target) = (fleet.control_plane("hub")?, fleet.control_plane(target)?);
    hub.create_namespace_with_service_account(TENANT, "any")
        .await?;
    let documents = DocumentServer::start(target.ca()).await?;
    let discovery_url = documents.publish(&hub).await?;
    let minted = hub.token_request(TENANT, "any", &[BASE], 600).await?.token;

    // Two roles of a dozen accounts.
    let mut small = objects_of(&target);
    small[0]["spec"]["allow"] = allowed(0);
    let small = print_trust(&fleet, &target, &discovery_url, &small, &[]).await?;
    let small = std::fs::read_to_string(small.path().join("authentication.yaml"))?;
    target.set_authentication_config(&small).await?;
    let before = authentication_times(&hub, &target, &minted).await?;

    let mut objects = vec![object_of(
        &target,
        "prod",
        None,
        json!({ "audience": BASE, "allow": allowed(0) }),
    )];
    objects.extend((0..ROLES).map(|role| {
        let spec = json!({ "audience": audience(role), "allow": allowed(role) });
        object_of(
            &target,
            &format!("prod-{}", name(role)),
            Some(&name(role)),
            spec,
        )
    }));
    let folder = print_trust(&fleet, &target, &discovery_url, &objects, &[]).await?;
    let file = std::fs::read_to_string(folder.path().join("authentication.yaml"))?;
    let started = Instant::now();
    target.set_authentication_config(&file).await?;
    let reload = started.elapsed();
    let compiled = compile(&target, &file)?;

    for role in 0..ROLES {
        let (first, last) = (role * ACCOUNTS, (role + 1) * ACCOUNTS - 1);
        for (account, is_admitted) in [
            (first, true),
            (last, true),
            (last + 1, false),
            ((first + ROLES * ACCOUNTS - 1) % (ROLES * ACCOUNTS), false),
        ] {
            let token = sign(&hub, &minted, &audience(role), account).await?;
            let expected =
                is_admitted.then(|| user_of(Some(&name(role)), TENANT, &account_name(account)));
            let said = answered(&target, &token).await?;
            assert_eq!(said, expected, "{} {account} at the apiserver", name(role));
            assert_eq!(predicted(&compiled, &token), expected, "{account}");
        }
    }
    let after = authentication_times(&hub, &target, &minted).await?;
    eprintln!(
        "{}: {} KiB, loaded after {reload:?}; a new token takes {after:?}, {before:?} with 2 roles",
        target.minor().git_version(),
        file.len() / 1024
    );
    // Generous: each rule is evaluated, and other load on the machine counts too.
    assert!(after < LONGEST_CHECK, "{after:?}, {before:?} with 2 roles");
    Ok(())
}

fn name(role: usize) -> String {
    format!("role-{role:02}")
}

fn audience(role: usize) -> String {
    format!("{BASE}/roles/{}", name(role))
}

fn account_name(account: usize) -> String {
    format!("reconciler-of-application-{account:04}")
}

/// The `allow` of a role: its accounts are those of no other role. The base has those of the first.
fn allowed(role: usize) -> Value {
    let accounts: Vec<String> = (role * ACCOUNTS..(role + 1) * ACCOUNTS)
        .map(account_name)
        .collect();
    let rules = accounts.chunks(ACCOUNTS_OF_A_RULE);
    rules
        .map(|accounts| json!({ "namespaces": [TENANT], "serviceAccounts": accounts }))
        .collect()
}

/// Signs with the hub's key, which spares thousands of ServiceAccounts.
async fn sign(
    hub: &ControlPlane,
    minted: &str,
    audience: &str,
    account: usize,
) -> Result<String, TestError> {
    let token = hub.sign_again(minted, |claims| {
        let name = account_name(account);
        claims["sub"] = json!(format!("system:serviceaccount:{TENANT}:{name}"));
        claims["aud"] = json!([audience]);
    });
    Ok(token.await?)
}

/// The median time of a review of a token that the apiserver has not seen, less that of one that it
/// has.
async fn authentication_times(
    hub: &ControlPlane,
    target: &ControlPlane,
    minted: &str,
) -> Result<Duration, TestError> {
    let (mut new, mut cached) = (Vec::new(), Vec::new());
    let client = RestClient::anonymous(&target.url(), target.ca_pem())?;
    for account in 0..SAMPLES {
        let token = sign(hub, minted, BASE, account).await?;
        for times in [&mut new, &mut cached] {
            let started = Instant::now();
            let request = client.request(Method::GET, "/api").bearer_auth(&token);
            let status = request.send().await?.status();
            times.push(started.elapsed());
            assert_eq!(status, 200, "account {account} of the base");
        }
    }
    new.sort_unstable();
    cached.sort_unstable();
    Ok(new[SAMPLES / 2].saturating_sub(cached[SAMPLES / 2]))
}
