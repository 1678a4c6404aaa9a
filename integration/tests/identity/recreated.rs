//! A ServiceAccount that was deleted and created again, tested at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use keyferry_integration::chaos_proxy::{ChaosProxy, Fault, Rule};
use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::runner::TestResult;
use keyferry_integration::wait::until;
use keyferry_integration::world::caller_token;

use super::stage::{Stage, handed_out, owner_and_deployer, reason, two_targets};

pub(crate) async fn is_another(
    stage: &Stage,
    hub: &Arc<ControlPlane>,
    namespace: &str,
) -> TestResult {
    owner_and_deployer(hub, namespace).await?;
    let broker = stage
        .start_broker(hub, two_targets(stage, namespace, hub, namespace))
        .await?;
    let [held, fresh] = ["held", "fresh"].map(|name| format!("{namespace}/{name}"));
    let old_caller = caller_token(hub, namespace, "owner").await?;
    let delegate = caller_token(hub, namespace, "deployer").await?;
    let old_uid = handed_out(&broker.exchange_in_time(&old_caller, &held).await?)?;
    assert_eq!(
        handed_out(&broker.exchange_in_time(&delegate, &held).await?)?,
        old_uid
    );

    let new_uid = Some(hub.recreate_service_account(namespace, "owner").await?);
    let at = Instant::now();
    assert_ne!(new_uid, old_uid);
    // Test at once, where no token is cached: whatever the watch has seen by now, the old caller
    // gets no token.
    let answer = broker.exchange(&old_caller, &fresh).await?;
    assert_eq!(handed_out(&answer)?, None);
    let reason_at_once = reason(&broker, &answer)?;
    assert!(
        ["CallerIdentityChanged", "ServiceAccountChanged"].contains(&reason_at_once.as_str()),
        "{reason_at_once}"
    );

    // The new ServiceAccount is served under its own UID, as soon as both watches, the hub's and
    // Keyferry's, have reported it.
    let (new_caller, served) = loop {
        let new_caller = caller_token(hub, namespace, "owner").await?;
        let answer = broker.exchange(&new_caller, &held).await?;
        if let Some(uid) = handed_out(&answer)? {
            break (new_caller, Some(uid));
        }
        let reason = reason(&broker, &answer)?;
        assert!(
            ["CallerIdentityChanged", "CallerRejected"].contains(&reason.as_str()),
            "{reason}"
        );
        assert!(
            at.elapsed() < Duration::from_secs(5),
            "not served after five seconds: {reason}"
        );
    };
    assert_eq!(served, new_uid);

    // From here on, Keyferry has seen that the account is another one. The cached tokens of the old
    // account must not be issued, for as long as the hub accepts the old caller's token and longer.
    let mut reasons = Vec::new();
    while at.elapsed() < Duration::from_secs(13) {
        for access in [&held, &fresh] {
            let answer = broker.exchange(&old_caller, access).await?;
            assert_eq!(
                handed_out(&answer)?,
                None,
                "the old caller after {:?}",
                at.elapsed()
            );
            reasons.push(reason(&broker, &answer)?);
            assert_eq!(
                handed_out(&broker.exchange(&delegate, access).await?)?,
                new_uid,
                "the delegate after {:?}",
                at.elapsed()
            );
            assert_eq!(
                handed_out(&broker.exchange(&new_caller, access).await?)?,
                new_uid
            );
        }
        let document = broker.kubeconfig_of(&old_caller, namespace, "held").await?;
        assert_eq!(document.status, 401, "{}", document.body);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(
        reasons.first().map(String::as_str),
        Some("CallerIdentityChanged"),
        "the hub itself accepts the token that long"
    );
    reasons.dedup();
    assert!(
        reasons
            .iter()
            .all(|reason| ["CallerIdentityChanged", "CallerRejected"].contains(&reason.as_str())),
        "{reasons:?}"
    );
    Ok(())
}

/// The watch is blocked, so Keyferry does not know of the change. It must check the minted token
/// against the request.
pub(crate) async fn behind_a_late_watch(
    stage: &Stage,
    hub: &Arc<ControlPlane>,
    namespace: &str,
) -> TestResult {
    owner_and_deployer(hub, namespace).await?;
    let proxy = ChaosProxy::in_front_of(hub).await?;
    let spec = two_targets(stage, namespace, hub, namespace).through(&proxy.url());
    let broker = stage.start_broker(hub, spec).await?;
    let access = format!("{namespace}/fresh");
    let old_caller = caller_token(hub, namespace, "owner").await?;
    let delegate = caller_token(hub, namespace, "deployer").await?;
    broker
        .exchange_in_time(&old_caller, &format!("{namespace}/held"))
        .await?;

    let watches = proxy.count(&Method::GET, "/api/v1/serviceaccounts");
    proxy.add(Rule::on(
        Method::GET,
        "/api/v1/serviceaccounts",
        Fault::Delay(Duration::from_secs(120)),
    ));
    proxy.cut_all();
    until(
        "the watch starts again",
        Duration::from_secs(20),
        || async { Ok(proxy.count(&Method::GET, "/api/v1/serviceaccounts") > watches) },
    )
    .await?;
    let new_uid = hub.recreate_service_account(namespace, "owner").await?;
    let new_caller = caller_token(hub, namespace, "owner").await?;

    let asked = proxy.count(&Method::POST, "/serviceaccounts/owner/token");
    for (who, token, expected) in [
        ("the old caller", &old_caller, "ServiceAccountChanged"),
        ("a delegate", &delegate, "ServiceAccountChanged"),
        ("the new caller", &new_caller, "CallerIdentityChanged"),
    ] {
        let answer = broker.exchange(token, &access).await?;
        assert_eq!(handed_out(&answer)?, None, "{who}");
        assert_eq!(reason(&broker, &answer)?, expected, "{who}");
        assert!(!answer.body.contains(&new_uid), "{}", answer.body);
    }
    assert!(
        proxy.count(&Method::POST, "/serviceaccounts/owner/token") > asked,
        "the hub was asked, so the UIDs were compared"
    );
    Ok(())
}
