//! The network between a caller and Keyferry breaks while it answers.

use std::sync::Arc;

use http::Method;
use keyferry_integration::chaos_proxy::{ChaosProxy, Fault, Rule};
use keyferry_integration::http_client::trusting;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::on_hub::RECONCILER;
use keyferry_integration::world::{caller_token, exchange_at};
use serde_json::{Value, json};

use super::stage::{Stage, check_token};
use crate::deliveries::tenant::Tenant;

const TENANT: &str = "lost-answers";

/// A token whose answer is lost has its record, and the next request gets the same token. A request
/// that never arrives has none.
pub(super) async fn an_answer_lost_on_the_way_is_recorded_and_repeated(
    stage: Arc<Stage>,
) -> TestResult {
    let world = &stage.world;
    let tenant = Tenant::new(world, TENANT, &["HTTP"]).await?;
    let http = json!({ "deliveries": [{ "name": "h", "type": "HTTP" }], "probe": "Off" });
    tenant.put_access_with("apps", http).await?;
    tenant.until_ready("apps").await?;
    let (broker, ca) = (&world.broker, world.ground.ca());
    let proxy = ChaosProxy::start(&broker.api_url(), ca.cert_pem(), ca).await?;
    let client = trusting(ca.cert_pem())?;
    let caller = caller_token(&world.hub, TENANT, RECONCILER).await?;
    let access = format!("{TENANT}/apps");
    let url = proxy.url();
    let exchange = || exchange_at(&client, &url, &caller, &access);
    let issued = || Ok::<_, TestError>(issued_tokens(&broker.audit()?));

    proxy.add(Rule::on(Method::POST, "/v1/token", Fault::Drop).times(1));
    assert!(exchange().await.is_err(), "an answer to a lost request");
    assert_eq!(issued()?, [""; 0], "a record of a lost request");
    proxy.add(Rule::on(Method::POST, "/v1/token", Fault::HalfBody).times(1));
    assert!(exchange().await.is_err(), "half an answer is no answer");
    let lost = issued()?;
    assert_eq!(lost.len(), 1, "one record of the lost answer: {lost:?}");
    let token = exchange().await?.token()?;
    let audience = format!("https://{TENANT}.keyferry.test");
    let id = check_token(&token, TENANT, &audience)?;
    assert_eq!(issued()?, [lost[0].clone(), lost[0].clone()]);
    assert_eq!(id, lost[0], "the cached token");
    Ok(())
}

/// The IDs of the tokens that callers of the tenant got, in order.
fn issued_tokens(audit: &[Value]) -> Vec<String> {
    let prefix = format!("{TENANT}/");
    let issued = |record: &Value| {
        let of_tenant = record["access"].as_str()?.starts_with(&prefix);
        let id = record["tokenId"].as_str()?;
        (of_tenant && record["route"] != "delivery").then(|| id.to_owned())
    };
    audit.iter().filter_map(issued).collect()
}
