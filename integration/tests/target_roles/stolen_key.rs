//! The hub's signing key in the hands of a thief, who signs what the hub would never mint.

use futures::{StreamExt, TryStreamExt, stream};
use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::runner::TestError;
use keyferry_integration::world::claims;
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

/// A target compares `nbf` and `exp` with the clock, and `iat` with nothing. So a thief would date a
/// token ahead by `iat`, or by numbers that Go and CEL read differently.
async fn dated_ahead(
    hub: &ControlPlane,
    target: &ControlPlane,
    compiled: &Compiled,
    (minted, view): (&str, &str),
) -> Result<(), TestError> {
    const YEARS: i64 = 315_360_000;
    let times =
        |name: &'static str, iat: Value, nbf: Option<Value>, exp: Value| (name, iat, nbf, exp);
    let now = claims(minted)?["iat"].as_i64().unwrap_or_default();
    let (ahead, until) = (json!(now + YEARS), json!(now + YEARS + 600));
    let far = (now + YEARS) as f64;
    for (name, iat, nbf, exp) in [
        times(
            "all three",
            ahead.clone(),
            Some(ahead.clone()),
            until.clone(),
        ),
        times("no nbf", ahead.clone(), None, until.clone()),
        times(
            "nbf is null",
            ahead.clone(),
            Some(Value::Null),
            until.clone(),
        ),
        times("nbf is zero", ahead.clone(), Some(json!(0)), until.clone()),
        times(
            "nbf is a text",
            ahead.clone(),
            Some(json!("0")),
            until.clone(),
        ),
        times("nbf is now", ahead.clone(), Some(json!(now)), until.clone()),
        times(
            "nbf is too large for Go",
            ahead.clone(),
            Some(json!(1e300)),
            json!(far),
        ),
        times(
            "both are too large",
            ahead.clone(),
            Some(json!(1e300)),
            json!(1e300),
        ),
        times(
            "nbf is too small",
            ahead.clone(),
            Some(json!(-1e300)),
            json!(far),
        ),
        times(
            "exp is a fraction",
            ahead,
            Some(json!(now)),
            json!(far + 0.5),
        ),
    ] {
        let token = hub.sign_again(minted, |claims| {
            claims["sub"] = json!("system:serviceaccount:role-b:worker-9");
            claims["aud"] = json!([view]);
            (claims["iat"], claims["exp"]) = (iat.clone(), exp.clone());
            claims["nbf"] = nbf.clone().unwrap_or_default();
            if nbf.is_none()
                && let Some(claims) = claims.as_object_mut()
            {
                claims.remove("nbf");
            }
        });
        let token = token.await?;
        assert_eq!(answered(target, &token).await?, None, "{name}");
        assert_eq!(predicted(compiled, &token), None, "{name}");
    }
    // What the hub itself writes, one second short of the longest.
    let token = hub.sign_again(minted, |claims| {
        claims["sub"] = json!("system:serviceaccount:role-b:worker-9");
        claims["aud"] = json!([view]);
        claims["exp"] = json!(now + LONGEST[1] - 1);
    });
    let token = token.await?;
    let expected = expected_user(Some((1, 9)), Some(1), LONGEST[1] - 1);
    assert!(expected.is_some());
    assert_eq!(answered(target, &token).await?, expected);
    assert_eq!(predicted(compiled, &token), expected);
    Ok(())
}
