//! An audit log that accepts no more records.

use std::path::Path;
use std::sync::Arc;

use keyferry_integration::runner::TestResult;
use keyferry_integration::world::{
    ACCOUNT, Access, BrokerSpec, TENANT, Target, World, caller_token,
};

pub(super) async fn a_full_device_stops_hand_outs(world: Arc<World>) -> TestResult {
    let spec = BrokerSpec::of_hub("full-device", world.hub())
        .audited_to(Path::new("/dev/full"))
        .with_target(
            Target::of(world.target_a(), "https://full-device.keyferry.test")
                .allowing(TENANT, &[ACCOUNT]),
        )
        .with_access(Access::of(TENANT, "a", "target-a", ACCOUNT));
    let broker = world.start_broker(world.hub(), spec).await?;
    let caller = caller_token(world.hub(), TENANT, ACCOUNT).await?;
    let metric = "keyferry_requests_total{decision=\"failed\",reason=\"AuditUnavailable\"}";
    for attempt in 1..=3 {
        let answer = broker.exchange(&caller, "tenant-a/a").await?;
        assert_eq!(answer.status, 503, "{}", answer.body);
        assert!(
            answer.body.contains("temporarily_unavailable") && !answer.body.contains("eyJ"),
            "{}",
            answer.body
        );
        let kubeconfig = broker.kubeconfig_of(&caller, TENANT, "a").await?;
        assert!(
            kubeconfig.status == 503 && !kubeconfig.body.contains("eyJ"),
            "{}",
            kubeconfig.body
        );
        assert_eq!(broker.metric(metric).await?, f64::from(attempt * 2));
    }
    assert_eq!(
        broker
            .metric("keyferry_requests_total{decision=\"granted\",reason=\"Ready\"}")
            .await?,
        0.0
    );
    let denied = broker.exchange(&caller, "tenant-a/absent").await?;
    assert_eq!(
        denied.status, 400,
        "a denial issues nothing, so it stands: {}",
        denied.body
    );
    Ok(())
}
