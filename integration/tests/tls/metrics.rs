//! The metrics listener: TLS from a Secret, and readers that a real hub reviews.

use std::sync::Arc;

use keyferry_integration::control_plane::Whom;
use keyferry_integration::http_client::plain_client;
use keyferry_integration::ports::free_port;
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::until;
use keyferry_integration::world::{BrokerSpec, shipped};
use serde_json::json;

use super::stage::{SOON, Stage, s_client};

const NAMESPACE: &str = "monitoring";

pub(super) async fn only_permitted_readers(stage: Arc<Stage>) -> TestResult {
    let hub = stage.hub();
    let certified = stage.ground().ca().serving("metrics", &[])?;
    stage
        .put(
            "keyferry-metrics-tls",
            "kubernetes.io/tls",
            &certified.cert_pem,
            &certified.key_pem,
        )
        .await?;
    apply_manifests(hub, &[&shipped("examples/in-cluster/metrics-reader.yaml")]).await?;
    for account in ["scraper", "other"] {
        hub.create_namespace_with_service_account(NAMESPACE, account)
            .await?;
    }
    let scraper = format!("system:serviceaccount:{NAMESPACE}:scraper");
    hub.bind_user_to_cluster_role(&scraper, "keyferry-metrics-reader")
        .await?;
    let rule = json!({ "nonResourceURLs": ["/metrics"], "verbs": ["get"] });
    hub.until_it_counts(Whom::User(&scraper), "", &rule).await?;

    let address = format!("127.0.0.1:{}", free_port()?);
    let spec = BrokerSpec::of_hub("metrics", hub).with_args(&[
        "--metrics-https-addr",
        &address,
        "--metrics-tls-secret",
        "keyferry-metrics-tls",
    ]);
    let broker = stage.ground().start_broker(hub, spec).await?;
    let url = format!("https://{address}/metrics");
    let read = async |token: Option<&str>| -> Result<(u16, String), TestError> {
        let mut request = broker.http().get(&url);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    };
    let minted = async |account: &str, audiences: &[&str]| {
        hub.token_request(NAMESPACE, account, audiences, 600)
            .await
            .map(|minted| minted.token)
    };
    let of_scraper = minted("scraper", &[]).await?;
    let (status, text) = read(Some(&of_scraper)).await?;
    assert!(
        status == 200 && text.contains("keyferry_build_info") && text.ends_with("# EOF\n"),
        "{status}: {text}"
    );
    let (status, text) = read(Some(&minted("other", &[]).await?)).await?;
    assert!(
        status == 403 && text.contains("MetricsForbidden"),
        "{status}: {text}"
    );
    // A token for Keyferry's token API is not a credential of the hub.
    let of_caller = minted("scraper", &["keyferry.dev"]).await?;
    for token in [None, Some("no.such.token"), Some(of_caller.as_str())] {
        let (status, text) = read(token).await?;
        assert!(
            status == 401 && !text.contains("keyferry_"),
            "{status}: {text}"
        );
    }
    let answer = broker
        .http()
        .post(&url)
        .bearer_auth(&of_scraper)
        .send()
        .await?;
    assert_eq!(answer.status(), 405);
    let beside_health = format!("{}/metrics", broker.health_url());
    let answer = plain_client()?.get(&beside_health).send().await?;
    assert_eq!(answer.status(), 404, "no longer on the plain port");

    let old = s_client(
        &format!("https://{address}"),
        broker.ca_path(),
        &["-tls1_2"],
    )
    .await?;
    assert!(!old.status.success(), "TLS 1.2 is refused");

    // A reader that loses its right is refused once the cached answer has expired.
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let list = hub.admin().get(bindings).await?;
    let binding = list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|binding| binding["roleRef"]["name"] == "keyferry-metrics-reader")
        .and_then(|binding| binding["metadata"]["name"].as_str())
        .ok_or("no binding")?;
    hub.admin().delete(&format!("{bindings}/{binding}")).await?;
    until("the scraper is refused", SOON, || async {
        Ok(read(Some(&of_scraper)).await?.0 == 403)
    })
    .await
}
