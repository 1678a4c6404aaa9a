//! Keyferry itself has no right to mint.

use std::sync::Arc;

use keyferry_integration::runner::TestResult;
use keyferry_integration::world::{caller_token, make_tenant};
use serde_json::json;

use super::stage::{NOT_GRANTED, Stage, two_targets};

pub(crate) async fn a_missing_role_binding_is_told_and_heals(stage: Arc<Stage>) -> TestResult {
    let (hub, namespace) = (stage.hub(), "unbound");
    hub.create_namespace_with_service_account(namespace, "owner")
        .await?;
    hub.create_service_account(namespace, "passer-by").await?;
    let broker = stage
        .start_broker(hub, two_targets(&stage, namespace, hub, namespace))
        .await?;
    let own = caller_token(hub, namespace, "owner").await?;
    for answer in [
        broker.exchange(&own, "unbound/held").await?,
        broker.kubeconfig_of(&own, namespace, "held").await?,
    ] {
        assert_eq!(
            (answer.status, &answer.json()?["error"]),
            (503, &json!("target_not_ready")),
            "{}",
            answer.body
        );
        let description = answer.json()?["error_description"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(description.starts_with("MintForbidden"), "{description}");
        assert!(answer.headers.contains_key("retry-after"));
        let record = broker.audit_of(&answer.request_id)?;
        assert_eq!(
            (&record["decision"], &record["reason"]),
            (&json!("failed"), &json!("MintForbidden")),
            "{record}"
        );
    }
    let other = broker
        .exchange(
            &caller_token(hub, namespace, "passer-by").await?,
            "unbound/held",
        )
        .await?;
    assert_eq!(
        (other.status, other.body.as_str()),
        (400, NOT_GRANTED),
        "who may not use it learns nothing of its state"
    );

    make_tenant(hub, namespace, &["owner"]).await?;
    assert_eq!(
        broker.exchange(&own, "unbound/held").await?.status,
        200,
        "a missing right is not remembered"
    );
    Ok(())
}
