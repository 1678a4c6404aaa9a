//! An access that is deleted while its token is cached.

use std::sync::Arc;

use keyferry_integration::runner::TestResult;
use keyferry_integration::world::{caller_token, token_requests};

use super::stage::{NOT_GRANTED, Stage, owner_and_deployer, reason, two_targets};

pub(crate) async fn an_access_is_removed_while_its_token_is_held(stage: Arc<Stage>) -> TestResult {
    let (hub, namespace) = (stage.hub(), "removed");
    owner_and_deployer(hub, namespace).await?;
    let broker = stage
        .start_broker(hub, two_targets(&stage, namespace, hub, namespace))
        .await?;
    let own = caller_token(hub, namespace, "owner").await?;
    let delegate = caller_token(hub, namespace, "deployer").await?;
    for access in ["removed/held", "removed/fresh"] {
        broker.exchange_in_time(&own, access).await?;
        assert_eq!(broker.exchange(&delegate, access).await?.status, 200);
    }
    // One access is deleted, and the other one's target no longer allows it.
    broker
        .reconfigure(|targets, accesses| {
            accesses.retain(|access| access.name != "held");
            targets
                .iter_mut()
                .filter(|target| target.name == "fresh")
                .for_each(|target| target.allow.clear());
        })
        .await?;
    let minted = token_requests(hub, namespace)?;
    for name in ["held", "fresh"] {
        for token in [&own, &delegate] {
            let answer = broker.exchange(token, &format!("removed/{name}")).await?;
            assert_eq!((answer.status, answer.body.as_str()), (400, NOT_GRANTED));
            assert_eq!(reason(&broker, &answer)?, "TargetNotGranted");
            let document = broker.kubeconfig_of(token, namespace, name).await?;
            assert_eq!(document.status, 403, "{}", document.body);
            assert_eq!(reason(&broker, &document)?, "TargetNotGranted");
        }
    }
    assert_eq!(
        token_requests(hub, namespace)?,
        minted,
        "nothing is minted for what is not allowed"
    );
    Ok(())
}
