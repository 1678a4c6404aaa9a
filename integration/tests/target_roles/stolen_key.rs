//! The hub's signing key in the hands of a thief, who signs what the hub would never mint.

use futures::{StreamExt, TryStreamExt, stream};
use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::runner::TestError;
use keyferry_kube_authn::validate::Compiled;
use serde_json::{Value, json};

use super::{CONCURRENT_REVIEWS, NAMESPACES, TARGETS, answered, is_allowed, predicted, user_of};

/// The longest life of a token at each of [`TARGETS`], in seconds.
const LONGEST: [i64; 3] = [3600, 1200, 1200];
const LIVES: [i64; 5] = [600, 1200, 1201, 3601, 315_360_000];

/// An account, by its place in [`NAMESPACES`] and its number.
type Account = (usize, usize);

/// Signs a token with the hub's key for each account, audience and life. The target's file admits
/// the accounts of the audience for at most its life, as the user of its role. Returns the number
/// of tokens.
pub(super) async fn is_held_to_account_role_and_life(
    hub: &ControlPlane,
    target: &ControlPlane,
    compiled: &Compiled,
) -> Result<usize, TestError> {
    let [(_, _, base), (_, _, view), _] = TARGETS;
    let minted = hub
        .token_request(NAMESPACES[0], "worker-0", &[base], 600)
        .await?;
    let mut cases = Vec::new();
    for (subject, account) in subjects() {
        for (audience, index) in audiences() {
            for life in LIVES {
                let expected = expected_user(account, index, life);
                let token = sign(hub, &minted.token, &subject, &audience, life).await?;
                cases.push((format!("{subject} {audience} {life}"), token, expected));
            }
        }
    }
    let count = cases.len();
    let accepted = cases.iter().filter(|case| case.2.is_some()).count();
    assert!(
        accepted >= 10 && accepted * 5 < count,
        "{accepted} of {count}"
    );
    let asked: Vec<_> = cases
        .iter()
        .map(|(case, token, expected)| async move {
            let said = answered(target, token).await?;
            assert_eq!(said, *expected, "{case} at the apiserver");
            assert_eq!(predicted(compiled, token), *expected, "{case}");
            Ok::<(), TestError>(())
        })
        .collect();
    let asked = stream::iter(asked).buffer_unordered(CONCURRENT_REVIEWS);
    asked.try_collect::<Vec<()>>().await?;
    dated_ahead(hub, target, compiled, (&minted.token, view)).await?;
    Ok(count)
}

/// Accounts of some, all and none of the targets, and users that the hub does not have.
fn subjects() -> Vec<(String, Option<Account>)> {
    let known = [(0, 0), (0, 1), (0, 3), (1, 9)];
    let mut subjects: Vec<_> = known
        .into_iter()
        .map(|(place, account)| {
            let namespace = NAMESPACES[place];
            let subject = format!("system:serviceaccount:{namespace}:worker-{account}");
            (subject, Some((place, account)))
        })
        .collect();
    for stranger in [
        "system:serviceaccount:role-a:worker-00",
        "system:serviceaccount:kube-system:default",
        "system:admin",
        "view:system:serviceaccount:role-b:worker-9",
    ] {
        subjects.push((stranger.to_owned(), None));
    }
    subjects
}

/// Values of `aud`, with the target that takes them.
fn audiences() -> Vec<(Value, Option<usize>)> {
    let [(_, _, base), (_, _, view), (_, _, deploy)] = TARGETS;
    vec![
        (json!([base]), Some(0)),
        (json!([view]), Some(1)),
        (json!([deploy]), Some(2)),
        (json!([base, view]), None),
        (json!([view, base]), None),
        (json!([deploy, view]), None),
        (json!([]), None),
        (json!(view), None),
        (json!([format!("{base}/roles/edit")]), None),
    ]
}

fn expected_user(
    account: Option<Account>,
    index: Option<usize>,
    life: i64,
) -> Option<(String, Vec<String>)> {
    let ((place, number), index) = (account?, index?);
    let is_admitted = is_allowed(index, place, number) && life <= LONGEST[index];
    is_admitted.then(|| {
        let account = format!("worker-{number}");
        user_of(TARGETS[index].1, NAMESPACES[place], &account)
    })
}

/// Signs a token with the hub's key, and claims about groups that no hub makes.
async fn sign(
    hub: &ControlPlane,
    minted: &str,
    subject: &str,
    audience: &Value,
    life: i64,
) -> Result<String, TestError> {
    let token = hub.sign_again(minted, |claims| {
        claims["sub"] = json!(subject);
        claims["aud"] = audience.clone();
        claims["exp"] = json!(claims["iat"].as_i64().unwrap_or_default() + life);
        claims["groups"] = json!(["system:masters"]);
        claims["username"] = json!("kubernetes-admin");
    });
    Ok(token.await?)
}

/// A target has no rule about the clock: its life is counted from `iat`, and only `nbf`, which the
/// hub always writes, is compared with the time. So a thief who leaves out `nbf` can date a token
/// ahead, and it lives as long as the key is published.
async fn dated_ahead(
    hub: &ControlPlane,
    target: &ControlPlane,
    compiled: &Compiled,
    (minted, view): (&str, &str),
) -> Result<(), TestError> {
    let account = (1, 9);
    for (has_nbf, expected) in [
        (true, None),
        (false, expected_user(Some(account), Some(1), 600)),
    ] {
        let token = hub.sign_again(minted, |claims| {
            let ahead = claims["iat"].as_i64().unwrap_or_default() + 315_360_000;
            claims["sub"] = json!("system:serviceaccount:role-b:worker-9");
            claims["aud"] = json!([view]);
            claims["iat"] = json!(ahead);
            claims["exp"] = json!(ahead + 600);
            claims["nbf"] = json!(ahead);
            if !has_nbf && let Some(claims) = claims.as_object_mut() {
                claims.remove("nbf");
            }
        });
        let token = token.await?;
        let said = answered(target, &token).await?;
        assert_eq!(said, expected, "dated ahead, nbf: {has_nbf}");
        assert_eq!(predicted(compiled, &token), expected, "nbf: {has_nbf}");
    }
    Ok(())
}
