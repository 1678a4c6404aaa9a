//! An apiserver has just started, and its admission policy lacks the kind of its parameter.

use std::sync::Arc;

use http::{Method, StatusCode, header};
use keyferry_integration::chaos_proxy::{Fault, Rule};
use keyferry_integration::runner::TestResult;
use keyferry_integration::world::World;
use serde_json::json;

use super::setup::{ACCOUNT, Behind, GRANTED_WITHIN, token_path};

pub(super) async fn spares_known_callers(world: Arc<World>) -> TestResult {
    let behind = Behind::start(&world, world.hub(), "not-ready", 300, &["warm", "cold"]).await?;
    let caller = behind.fresh_caller().await?;
    behind
        .until_granted(&caller, "warm", GRANTED_WITHIN)
        .await?;
    // The answer of kube-apiserver 1.37, which admission_policies::kept compares with a real one.
    let message = format!(
        "serviceaccounts \"{ACCOUNT}\" is forbidden: ValidatingAdmissionPolicy 'keyferry-pairing' \
         denied request: failed to configure policy: failed to find resource referenced by \
         paramKind: 'keyferry.dev/v1alpha1, Kind=AudiencePairing'"
    );
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid",
        "code": 422, "message": message,
    });
    let refused = Fault::Status {
        status: StatusCode::UNPROCESSABLE_ENTITY,
        headers: Vec::new(),
        body: status.to_string().into_bytes(),
    };
    let rule = behind
        .proxy
        .add(Rule::on(Method::POST, &token_path(ACCOUNT), refused));

    let cold = behind.exchange(&caller, "cold").await?;
    assert_eq!(cold.status, 503, "{}", cold.body);
    assert!(
        cold.headers.contains_key(header::RETRY_AFTER),
        "callers try again"
    );
    let body = cold.json()?;
    assert_eq!(body["error"], "target_not_ready");
    let description = body["error_description"].as_str().unwrap_or_default();
    assert!(
        description.starts_with("HubPolicyNotReady: ") && description.contains("up to 30 s"),
        "{description}"
    );
    let record = behind.broker.audit_of(&cold.request_id)?;
    assert_eq!(record["reason"], "HubPolicyNotReady", "{record}");
    // A caller that was never seen gets the cached token too.
    let other = behind.fresh_caller().await?;
    for caller in [&caller, &other] {
        let warm = behind.exchange(caller, "warm").await?;
        assert_eq!(warm.status, 200, "{}", warm.body);
        let record = behind.broker.audit_of(&warm.request_id)?;
        assert_eq!(record["cache"], "hit", "{record}");
    }

    behind.proxy.remove(rule);
    behind
        .until_granted(&caller, "cold", GRANTED_WITHIN)
        .await?;
    Ok(())
}
