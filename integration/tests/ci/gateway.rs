//! The token API behind a real controller, Traefik, with the shipped Gateway and the shipped Ingress.
//! Each passes TLS through, so the client checks Keyferry's own certificate.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::network_namespace::NetworkNamespace;
use keyferry_integration::parts::Part;
use keyferry_integration::pki::TestCa;
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::relay::Relay;
use keyferry_integration::runner::{
    BoxedSuite, Fixture, Needed, NotStarted, Suite, TestError, TestResult,
};
use keyferry_integration::traefik::{
    GATEWAY_CONTROLLER, INGRESS_CONTROLLER, PLAIN_PORT, TLS_PORT, Traefik,
};
use keyferry_integration::wait::until;
use keyferry_integration::world::{Broker, BrokerSpec, claims, exchange_at, shipped};
use serde_json::{Value, json};

use super::passthrough::token_api_alone_is_served;
use super::stage::Stage;

/// The host of the stage's `api.publicURL`.
const API_HOST: &str = "keyferry-api.keyferry.test";
/// The host of the published documents.
const DISCOVERY_HOST: &str = "keyferry.keyferry.test";
/// A second host of the token API, to which an Ingress leads.
const INGRESS_HOST: &str = "keyferry-ingress.keyferry.test";
/// A host of no object.
const UNKNOWN_HOST: &str = "other.keyferry.test";
const NAMESPACE: &str = "keyferry-system";
/// Long enough for a new certificate, the controller's delay of 2 s, and a busy machine.
const ROUTED_LIMIT: Duration = Duration::from_secs(60);
/// The default of `api.limits.connectionsPerAddress`.
const DEFAULT_CONNECTIONS: usize = 256;
const CONNECTIONS: usize = 300;

pub(crate) struct GatewayStage {
    traefik: Traefik,
    /// What the controller takes for Keyferry's Pod: its token API, and its published documents.
    api: Relay,
    discovery: Relay,
    folder: PathBuf,
    network: NetworkNamespace,
    stage: Stage,
}

impl Fixture for GatewayStage {
    fn log_tails(&self) -> String {
        self.stage.log_tails() + &self.traefik.log_tail()
    }
}

/// Builds the controller, which takes minutes the first time.
pub(crate) fn suite() -> BoxedSuite {
    Suite::new(GatewayStage::start)
        .only_on_request()
        .needs([Needed::Part(Part::Traefik)])
        // Tests compare how often Keyferry was reached.
        .concurrent_tests(1)
        .test(
            "a_hosted_runner_comes_through_a_gateway",
            a_hosted_runner_comes_through_a_gateway,
        )
        .test(
            "a_hosted_runner_comes_through_an_ingress",
            a_hosted_runner_comes_through_an_ingress,
        )
        .test(
            "all_callers_have_the_address_of_the_gateway",
            all_callers_have_the_address_of_the_gateway,
        )
        .boxed()
}

impl GatewayStage {
    async fn start() -> Result<Self, NotStarted> {
        let stage = Stage::by_file().await?;
        Self::install(stage).await.map_err(NotStarted::failed)
    }

    async fn install(stage: Stage) -> Result<Self, TestError> {
        let folder = stage.ground.folder().join("gateway");
        std::fs::create_dir_all(&folder)?;
        let network = NetworkNamespace::start(&folder).await?;
        name_hosts(stage.ground.ca(), &stage.broker)?;
        let api = pod_address(&network, &stage.broker.api_url())?;
        let discovery = pod_address(&network, &stage.broker.discovery_url())?;
        install_kinds(&stage).await?;
        put_endpoints(&stage.hub, "keyferry", api.address()).await?;
        put_endpoints(&stage.hub, "keyferry-discovery", discovery.address()).await?;
        let traefik = Traefik::start(stage.ground.parts(), &stage.hub, &network, &folder).await?;
        Ok(Self {
            traefik,
            api,
            discovery,
            folder,
            network,
            stage,
        })
    }

    /// Applies an object of `examples/install` with these edits, each where the text occurs so often.
    async fn apply_edited(&self, path: &str, edits: &[(&str, &str, usize)]) -> TestResult {
        let mut text = std::fs::read_to_string(shipped("examples/install").join(path))?;
        for (from, to, count) in edits {
            assert_eq!(text.matches(from).count(), *count, "{path}: {from}");
            text = text.replace(from, to);
        }
        let file = self.folder.join("applied.yaml");
        std::fs::write(&file, text)?;
        Ok(apply_manifests(&self.stage.hub, &[&file]).await?)
    }

    /// The guide's edit of the Gateway, and no other: the class is named as in the file.
    async fn expose_by_gateway(&self, http: &reqwest::Client) -> TestResult {
        let edits = [("keyferry-api.example.com", API_HOST, 2)];
        self.apply_edited("expose-api-gateway/gateway.yaml", &edits)
            .await?;
        until_answered(http, &format!("https://{API_HOST}/healthz")).await
    }

    /// A client that trusts Keyferry's CA alone and finds all hosts at the controller.
    fn client(&self) -> Result<reqwest::Client, TestError> {
        let ca = self.stage.ground.ca().cert_pem();
        let ca = reqwest::Certificate::from_pem(ca.as_bytes())?;
        Ok(self.at_controller().tls_certs_only([ca]).build()?)
    }

    /// A client that believes every certificate.
    fn believing_client(&self) -> Result<reqwest::Client, TestError> {
        let builder = self.at_controller().tls_danger_accept_invalid_certs(true);
        Ok(builder.build()?)
    }

    fn at_controller(&self) -> reqwest::ClientBuilder {
        let address = SocketAddr::from((self.network.address(), 0));
        [API_HOST, DISCOVERY_HOST, INGRESS_HOST, UNKNOWN_HOST]
            .iter()
            .fold(reqwest::Client::builder().no_proxy(), |builder, host| {
                builder.resolve(host, address)
            })
    }

    /// How often the controller has connected to Keyferry.
    fn reached(&self) -> u64 {
        self.api.accepted() + self.discovery.accepted()
    }

    /// Exchanges a job's token end to end, and looks for both tokens in the controller's log.
    async fn exchange_job_token(&self, http: &reqwest::Client, host: &str) -> TestResult {
        let url = format!("https://{host}");
        let [_, _, gitlab] = self.stage.shapes()?;
        let token = self.stage.job(&gitlab, host)?;
        let exchanged = exchange_at(http, &url, &token, "tenant-a/prod").await?;
        let issued = exchanged.token()?;
        let sub = claims(&issued)?["sub"].clone();
        assert_eq!(sub, "system:serviceaccount:tenant-a:reconciler");
        let record = self.stage.broker.audit_of(&exchanged.request_id)?;
        assert_eq!(record["callerTokenId"], host);
        let log = self.traefik.log()?;
        assert!(log.contains(host), "the log has no configuration");
        for secret in [token.as_str(), issued.as_str(), "tenant-a%2Fprod", "eyJ"] {
            assert!(!log.contains(secret), "the controller's log has a token");
        }
        Ok(())
    }

    /// Whatever these addresses answer, no connection gets as far as Keyferry, and over TLS the
    /// answer is not believed.
    async fn nothing_is_reached(&self, http: &reqwest::Client, urls: &[String]) -> TestResult {
        let believing = self.believing_client()?;
        let before = self.reached();
        for url in urls {
            let checked = http.get(url).send().await;
            let is_tls = url.starts_with("https:");
            assert!(!is_tls || checked.is_err(), "{url}: {checked:?}");
            if let Ok(response) = believing.get(url).send().await {
                assert_eq!(response.status(), 404, "{url}");
                assert!(!response.headers().contains_key("x-request-id"), "{url}");
            }
        }
        assert_eq!(self.reached(), before);
        Ok(())
    }

    /// Opens connections at once, each by a client of its own, and returns those that were answered.
    async fn open_connections(&self, count: usize) -> Result<Vec<reqwest::Client>, TestError> {
        let clients: Result<Vec<_>, _> = (0..count).map(|_| self.client()).collect();
        let open = |client: reqwest::Client| async move {
            let answer = client.get(format!("https://{API_HOST}/healthz")).send();
            // The connection stays with its client once the body is read.
            answer.await.ok()?.text().await.ok().map(|_| client)
        };
        let opened = join_all(clients?.into_iter().map(open)).await;
        Ok(opened.into_iter().flatten().collect())
    }
}

async fn a_hosted_runner_comes_through_a_gateway(at: Arc<GatewayStage>) -> TestResult {
    let http = at.client()?;
    at.expose_by_gateway(&http).await?;
    // A client that knows the origin alone finds the endpoint below it.
    let url = format!("https://{API_HOST}");
    let metadata = http.get(format!("{url}/.well-known/oauth-authorization-server"));
    let metadata: Value = metadata.send().await?.json().await?;
    assert_eq!(metadata["token_endpoint"], format!("{url}/v1/token"));
    at.exchange_job_token(&http, API_HOST).await?;
    token_api_alone_is_served(&http, &url).await?;

    // Other names, no name, and what is not TLS reach nothing: not the documents either, although
    // the controller knows their Service.
    let address = at.network.address();
    at.nothing_is_reached(
        &http,
        &[
            format!("https://{DISCOVERY_HOST}/openid/v1/jwks"),
            format!("https://{UNKNOWN_HOST}/healthz"),
            format!("https://{address}/healthz"),
            format!("http://{API_HOST}:{TLS_PORT}/v1/token"),
            format!("http://{API_HOST}:{PLAIN_PORT}/v1/token"),
        ],
    )
    .await?;

    // Beside a Gateway for the documents, each name leads to its own listener.
    let edits = [("keyferry.example.com", DISCOVERY_HOST, 2)];
    at.apply_edited("expose-gateway/gateway.yaml", &edits)
        .await?;
    let documents = format!("https://{DISCOVERY_HOST}");
    until_answered(&http, &format!("{documents}/openid/v1/jwks")).await?;
    let token = http.post(format!("{documents}/v1/token")).send().await?;
    assert_eq!(token.status(), 404);
    token_api_alone_is_served(&http, &url).await
}

async fn a_hosted_runner_comes_through_an_ingress(at: Arc<GatewayStage>) -> TestResult {
    let http = at.client()?;
    let edits = [
        ("keyferry.example.com", INGRESS_HOST, 1),
        ("name: keyferry-discovery", "name: keyferry", 2),
    ];
    at.apply_edited("expose-ingress/ingress.yaml", &edits)
        .await?;
    let url = format!("https://{INGRESS_HOST}");
    until_answered(&http, &format!("{url}/healthz")).await?;
    at.exchange_job_token(&http, INGRESS_HOST).await?;
    token_api_alone_is_served(&http, &url).await?;

    // An Ingress opens its host for plain HTTP too. The controller has read such a request before
    // Keyferry refuses its bytes, and that is why the guide closes this port.
    let before = at.api.accepted();
    let plain = http.get(format!("http://{INGRESS_HOST}:{PLAIN_PORT}/healthz"));
    let plain = plain.send().await?;
    assert!(!plain.status().is_success(), "{}", plain.status());
    assert!(!plain.headers().contains_key("x-request-id"));
    assert_ne!(
        at.api.accepted(),
        before,
        "the guide's warning is out of date"
    );
    Ok(())
}

async fn all_callers_have_the_address_of_the_gateway(at: Arc<GatewayStage>) -> TestResult {
    let http = at.client()?;
    at.expose_by_gateway(&http).await?;
    let addresses = BTreeSet::from([IpAddr::V4(at.network.address())]);
    assert_eq!(at.api.client_addresses(), addresses);

    // As the guide asks, without limits per address. The controller has none of its own.
    let opened = at.open_connections(CONNECTIONS).await?;
    assert_eq!(opened.len(), CONNECTIONS);
    at.exchange_job_token(&http, API_HOST).await?;
    drop(opened);

    // With the default limits, a crowd shuts everybody out.
    let Stage { ground, hub, .. } = &at.stage;
    let spec = BrokerSpec::of_hub("limited", hub)
        .alone()
        .with_usual_limits();
    let limited = ground.start_broker(hub, spec).await?;
    name_hosts(ground.ca(), &limited)?;
    let pod = pod_address(&at.network, &limited.api_url())?;
    put_endpoints(hub, "keyferry", pod.address()).await?;
    let routed = async || {
        let answer = at
            .client()?
            .get(format!("https://{API_HOST}/healthz"))
            .send();
        Ok(answer.await.is_ok() && pod.accepted() > 0)
    };
    until("the limited server is reached", ROUTED_LIMIT, routed).await?;
    let opened = at.open_connections(CONNECTIONS).await?;
    let count = opened.len();
    assert!((1..=DEFAULT_CONNECTIONS).contains(&count), "{count}");
    put_endpoints(hub, "keyferry", at.api.address()).await
}

/// Gives a Keyferry a certificate for these hosts, as the guide asks. It reads the files again.
fn name_hosts(ca: &TestCa, broker: &Broker) -> TestResult {
    let hosts = [API_HOST, DISCOVERY_HOST, INGRESS_HOST].map(str::to_owned);
    let serving = ca.serving("public-hosts", &hosts)?;
    let (certificate, key) = broker.certificate();
    std::fs::copy(&serving.key_path, key)?;
    std::fs::copy(&serving.cert_path, certificate)?;
    Ok(())
}

/// An address that an EndpointSlice may name, in front of a listener on loopback, which it may not.
fn pod_address(network: &NetworkNamespace, url: &str) -> Result<Relay, TestError> {
    let port = url.rsplit(':').next().unwrap_or_default().parse()?;
    let listener = std::net::TcpListener::bind((network.host_address(), 0))?;
    listener.set_nonblocking(true)?;
    Ok(Relay::listening(listener, port)?)
}

/// Installs the standard channel of the Gateway API, Keyferry's Services, and both classes under the
/// name that the examples have.
async fn install_kinds(stage: &Stage) -> TestResult {
    let hub = &stage.hub;
    let library = stage
        .ground
        .parts()
        .library(Part::Traefik, "sigs.k8s.io/gateway-api");
    let kinds = library.await?.join("config/crd/standard");
    let services = shipped("examples/install/base/services.yaml");
    apply_manifests(hub, &[&kinds, &services]).await?;
    let admin = hub.admin();
    let group = "/apis/gateway.networking.k8s.io/v1";
    for kind in ["gatewayclasses", "gateways", "tlsroutes"] {
        let path = format!("{group}/{kind}");
        // At first the apiserver answers 404, then 429.
        let served = async || Ok(admin.get(&path).await.is_ok());
        until(&path, ROUTED_LIMIT, served).await?;
    }
    let class = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
        "metadata": { "name": "example" }, "spec": { "controllerName": GATEWAY_CONTROLLER },
    });
    admin
        .apply(&format!("{group}/gatewayclasses/example"), &class)
        .await?;
    let class = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
        "metadata": { "name": "example" }, "spec": { "controller": INGRESS_CONTROLLER },
    });
    let path = "/apis/networking.k8s.io/v1/ingressclasses/example";
    admin.apply(path, &class).await?;
    Ok(())
}

/// Writes what a Pod of a Service would have.
async fn put_endpoints(hub: &ControlPlane, service: &str, address: SocketAddr) -> TestResult {
    let labels = json!({
        "kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": "keyferry.test",
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "name": format!("{service}-pod"), "namespace": NAMESPACE, "labels": labels },
        "endpoints": [{ "addresses": [address.ip()], "conditions": { "ready": true } }],
        "ports": [{ "name": "https", "port": address.port(), "protocol": "TCP" }],
    });
    let path =
        format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices/{service}-pod");
    hub.admin().apply(&path, &slice).await?;
    Ok(())
}

/// Waits until a path is answered with 200 and a certificate that the client trusts.
async fn until_answered(http: &reqwest::Client, url: &str) -> TestResult {
    let answered = async || {
        let answer = http.get(url).send().await;
        Ok(answer.is_ok_and(|answer| answer.status() == 200))
    };
    until(url, ROUTED_LIMIT, answered).await
}
