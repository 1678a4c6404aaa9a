//! A second real cluster, whose ServiceAccounts are callers.

use std::sync::Arc;

use keyferry_integration::ci_issuer::CiIssuer;
use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::parts::Minor;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{Answer, Ground, claims};
use serde_json::{Value, json};

use super::stage::{AUDIENCE, Stage};

const PATH: &str = "/clusters/foreign";
const UID_CLAIM: &str = "/kubernetes.io/serviceaccount/uid";
/// The answer to every fault of a token.
const SAME: &str = "the subject_token was not accepted";

/// A cluster that publishes its documents on a server of its own, as managed clusters do.
pub(crate) struct ForeignCluster {
    plane: ControlPlane,
    url: String,
    /// The UID of `ci/runner`, which its rule pins.
    uid: String,
}

impl ForeignCluster {
    /// Starts it, and copies its own documents to the server, byte for byte.
    pub(crate) async fn start(
        ground: &Ground,
        server: &CiIssuer,
        minor: Minor,
    ) -> Result<Self, TestError> {
        let url = format!("{}{PATH}", server.documents().url());
        let plane = ground
            .control_plane(ControlPlaneSpec {
                minor,
                issuers: vec![url.clone()],
                jwks_uri: Some(format!("{url}/openid/v1/jwks")),
                ..ControlPlaneSpec::named("foreign")
            })
            .await?;
        let uid = plane
            .create_namespace_with_service_account("ci", "runner")
            .await?;
        for name in ["builder", "stranger"] {
            plane.create_service_account("ci", name).await?;
        }
        for document in ["/.well-known/openid-configuration", "/openid/v1/jwks"] {
            let published = plane.admin().get(document).await?;
            server
                .documents()
                .put(&format!("{PATH}{document}"), &published);
        }
        Ok(Self { plane, url, uid })
    }

    /// Its entry of `externalIssuers`: `runner` by its UID, `builder` by its name alone.
    pub(crate) fn entry(&self, authority: &str) -> String {
        let runner = json!({ "sub": "system:serviceaccount:ci:runner", UID_CLAIM: self.uid });
        let entry = json!({
            "url": self.url, "system": "Kubernetes", "audience": AUDIENCE,
            "certificateAuthority": authority,
            "rules": [
                { "claims": runner },
                { "claims": { "sub": "system:serviceaccount:ci:builder" } },
            ],
            "serviceAccount": { "namespace": "tenant-a", "name": "reconciler" },
        });
        format!("  - {entry}\n")
    }

    async fn token(&self, account: &str, audiences: &[&str]) -> Result<String, TestError> {
        let minted = self.plane.token_request("ci", account, audiences, 3600);
        Ok(minted.await?.token)
    }
}

pub(crate) async fn a_service_account_of_another_cluster_is_a_caller(
    stage: Arc<Stage>,
) -> TestResult {
    let foreign = &stage.foreign;
    let token = foreign.token("runner", &[AUDIENCE]).await?;
    let answer = stage
        .broker
        .exchange_in_time(&token, "tenant-a/prod")
        .await?;
    let issued = claims(&answer.token()?)?;
    assert_eq!(issued["sub"], "system:serviceaccount:tenant-a:reconciler");
    let record = stage.broker.audit_of(&answer.request_id)?;
    assert_eq!(record["callerIssuer"], foreign.url, "{record}");
    assert_eq!(record["callerSubject"], "system:serviceaccount:ci:runner");
    // A mounted token is read often, so one token is exchanged often, on both routes.
    let asserted = stage.assert_identity(&token, "tenant-a/prod").await?;
    assert_eq!(asserted.status, 200, "{}", asserted.body);
    let builder = foreign.token("builder", &[AUDIENCE]).await?;
    let by_name = stage.broker.exchange(&builder, "tenant-a/prod").await?;
    assert_eq!(by_name.status, 200, "{}", by_name.body);

    let refused = async |token: &str| -> Result<(String, Value), TestError> {
        let answer: Answer = stage.broker.exchange(token, "tenant-a/prod").await?;
        assert_eq!(answer.status, 400, "{}", answer.body);
        let record = stage.broker.audit_of(&answer.request_id)?;
        let description = answer.json()?["error_description"].clone();
        Ok((description.as_str().unwrap_or_default().to_owned(), record))
    };
    for audiences in [&["https://x.example.com"][..], &[AUDIENCE, "x"], &[]] {
        let (text, record) = refused(&foreign.token("runner", audiences).await?).await?;
        assert_eq!(text, SAME, "{audiences:?}");
        assert_eq!(record["reason"], "CallerAudienceMismatch", "{audiences:?}");
    }
    let (text, record) = refused(&foreign.token("stranger", &[AUDIENCE]).await?).await?;
    assert_eq!(text, format!("{SAME}: no rule accepts its claim sub"));
    assert_eq!(record["callerClaim"]["name"], "sub", "{record}");
    assert_eq!(
        record["callerClaim"]["value"],
        "system:serviceaccount:ci:stranger"
    );
    // The hub has a ServiceAccount of the same name, which is another one.
    stage
        .hub
        .create_namespace_with_service_account("ci", "runner")
        .await?;
    let hubs = stage.hub.token_request("ci", "runner", &[AUDIENCE], 3600);
    let (text, _) = refused(&hubs.await?.token).await?;
    assert_eq!(text, SAME);

    // A recreated account has another UID, and only the rule without one accepts it.
    for name in ["runner", "builder"] {
        foreign.plane.recreate_service_account("ci", name).await?;
    }
    let (text, record) = refused(&foreign.token("runner", &[AUDIENCE]).await?).await?;
    assert_eq!(
        text,
        format!("{SAME}: no rule accepts its claim {UID_CLAIM}")
    );
    assert_eq!(record["reason"], "CallerClaimsMismatch");
    let rule = record["callerClaim"]["rule"].as_str().unwrap_or_default();
    assert!(rule.ends_with(".rules[0]"), "{record}");
    let builder = foreign.token("builder", &[AUDIENCE]).await?;
    let by_name = stage.broker.exchange(&builder, "tenant-a/prod").await?;
    assert_eq!(by_name.status, 200, "{}", by_name.body);
    Ok(())
}
