//! Workloads of a real SPIRE server are callers, with objects in a file and on the hub.

use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::runner::{BoxedSuite, Fixture, NotStarted, Suite, TestError, TestResult};
use keyferry_integration::spire::Spire;
use keyferry_integration::world::{Ground, claims};
use serde_json::json;
use tokio::time::Instant;

use super::stage::{AUDIENCE, Stage};

const RUNNER: &str = "/ns/ci/sa/runner";
/// How long a key that the issuer withdrew is accepted at most, as the guide for CI says.
const READ_WITHIN: Duration = Duration::from_secs(310);

pub(crate) struct SpireStage {
    spire: Spire,
    /// One by file, one with objects on the hub.
    stages: [Stage; 2],
}

impl Fixture for SpireStage {
    fn log_tails(&self) -> String {
        self.stages.each_ref().map(Fixture::log_tails).concat()
    }
}

impl SpireStage {
    async fn start() -> Result<Self, NotStarted> {
        let (first, second) = tokio::try_join!(Ground::start(), Ground::start())?;
        let started = async {
            let parts = first.parts();
            let spire = Spire::start(parts, first.folder(), first.ca()).await?;
            let entry = entry(&spire, first.ca().cert_pem());
            Ok::<_, TestError>((spire, entry))
        };
        let (spire, entry) = started.await.map_err(NotStarted::failed)?;
        let stages = async {
            let by_file = Stage::build_with(first, false, &entry).await?;
            let on_hub = Stage::build_with(second, true, &entry).await?;
            Ok::<_, TestError>([by_file, on_hub])
        };
        let stages = stages.await.map_err(NotStarted::failed)?;
        Ok(Self { spire, stages })
    }
}

/// A JWT-SVID has no `jti`, and a workload gets the same one for half of its life.
fn entry(spire: &Spire, authority: &str) -> String {
    let entry = json!({
        "url": spire.url(), "system": "SPIFFE", "audience": AUDIENCE, "tokenUse": "UntilExpiry",
        "certificateAuthority": authority,
        "rules": [{ "claims": { "sub": format!("spiffe://keyferry.test{RUNNER}") } }],
        "serviceAccount": { "namespace": "tenant-a", "name": "reconciler" },
    });
    format!("  - {entry}\n")
}

/// Builds the server, which takes minutes the first time.
pub(crate) fn suite() -> BoxedSuite {
    Suite::new(SpireStage::start)
        .only_on_request()
        .limit(Duration::from_secs(900))
        .test(
            "a_workload_of_a_real_server_is_a_caller",
            a_workload_of_a_real_server_is_a_caller,
        )
        .test_alone("its_keys_rotate", its_keys_rotate)
        .boxed()
}

async fn a_workload_of_a_real_server_is_a_caller(stage: Arc<SpireStage>) -> TestResult {
    let spire = &stage.spire;
    let svid = spire.mint(RUNNER, AUDIENCE).await?;
    for at in &stage.stages {
        let answer = at.broker.exchange_in_time(&svid, "tenant-a/prod").await?;
        let issued = answer.token()?;
        let sub = claims(&issued)?["sub"].clone();
        assert_eq!(sub, "system:serviceaccount:tenant-a:reconciler");
        let user = at.target.as_bearer(&issued)?;
        let review =
            json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let review = user.create(path, &review).await?;
        let name = &review["status"]["userInfo"]["username"];
        assert_eq!(*name, "hub:system:serviceaccount:tenant-a:reconciler");
        let record = at.broker.audit_of(&answer.request_id)?;
        assert_eq!(record["callerIssuer"], spire.url(), "{record}");
        let caller = format!("spiffe://keyferry.test{RUNNER}");
        assert_eq!(record["callerSubject"], caller, "{record}");
        // It has no jti, so it is used until its end, on both routes.
        let asserted = at.assert_identity(&svid, "tenant-a/prod").await?;
        assert_eq!(asserted.status, 200, "{}", asserted.body);
    }
    for (path, audience, reason) in [
        ("/ns/ci/sa/other", AUDIENCE, "CallerClaimsMismatch"),
        ("/ns/ci/sa/runner/x", AUDIENCE, "CallerClaimsMismatch"),
        (
            RUNNER,
            "https://else.keyferry.test",
            "CallerAudienceMismatch",
        ),
    ] {
        let svid = spire.mint(path, audience).await?;
        for at in &stage.stages {
            let refused = at.broker.exchange(&svid, "tenant-a/prod").await?;
            assert_eq!(refused.status, 400, "{path}: {}", refused.body);
            let record = at.broker.audit_of(&refused.request_id)?;
            assert_eq!(record["reason"], reason, "{path}: {record}");
        }
    }
    Ok(())
}

/// A new key is read when the first SVID by it comes; one that the server revoked is forgotten.
async fn its_keys_rotate(stage: Arc<SpireStage>) -> TestResult {
    let spire = &stage.spire;
    let before = spire.mint(RUNNER, AUDIENCE).await?;
    for at in &stage.stages {
        at.broker.exchange_in_time(&before, "tenant-a/prod").await?;
    }
    let old = spire.rotate().await?;
    let after = spire.mint(RUNNER, AUDIENCE).await?;
    for at in &stage.stages {
        at.broker.exchange_in_time(&after, "tenant-a/prod").await?;
        let kept = at.broker.exchange(&before, "tenant-a/prod").await?;
        assert_eq!(kept.status, 200, "both keys are published: {}", kept.body);
    }
    spire.revoke(&old).await?;
    for at in &stage.stages {
        let limit = Instant::now() + READ_WITHIN;
        loop {
            let answer = at.broker.exchange(&before, "tenant-a/prod").await?;
            if answer.status == 400 {
                let record = at.broker.audit_of(&answer.request_id)?;
                assert_eq!(record["reason"], "CallerRejected", "{record}");
                break;
            }
            assert!(Instant::now() < limit, "{}", answer.body);
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let kept = at.broker.exchange(&after, "tenant-a/prod").await?;
        assert_eq!(kept.status, 200, "{}", kept.body);
    }
    Ok(())
}
