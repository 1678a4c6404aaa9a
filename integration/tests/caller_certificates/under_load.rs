//! Replaces the server's and the callers' certificates and their CAs while callers exchange tokens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use keyferry_integration::pki::TestCa;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{
    AUDIENCE_A, Access, Broker, BrokerSpec, Target, World, make_tenant, put_secret,
};
use parking_lot::Mutex;
use reqwest::Client;
use tokio::task::JoinSet;

use super::caller::{URI, authority, grant, rule, uid};

const LOADS: usize = 4;
const SOON: Duration = Duration::from_secs(30);
const NAMESPACE: &str = "loaded";
const FORM: &str = "grant_type=client_credentials&audience=loaded%2Fa";

/// The certificate that all callers present, and the results of their requests.
struct Load {
    url: String,
    trusted: Vec<u8>,
    /// The certificate and the key, and which one it is.
    presented: Mutex<(u64, String)>,
    answered: AtomicU64,
    /// The exchanges with the present certificate, by all callers.
    with_present: AtomicU64,
    failed: Mutex<Vec<String>>,
    stop: AtomicBool,
}

impl Load {
    fn client(&self, pem: &str) -> Result<Client, TestError> {
        let trusted = reqwest::Certificate::from_pem_bundle(&self.trusted)?;
        Ok(Client::builder()
            .no_proxy()
            .tls_certs_only(trusted)
            .identity(reqwest::Identity::from_pem(pem.as_bytes())?)
            .build()?)
    }

    /// One connection lives as long as its certificate, and each round opens another one.
    async fn exchange_on(self: Arc<Self>) -> Result<(), TestError> {
        let mut present = self.presented.lock().clone();
        let mut kept = self.client(&present.1)?;
        while !self.stop.load(Ordering::Relaxed) {
            let now = self.presented.lock().clone();
            if now.0 != present.0 {
                present = now;
                kept = self.client(&present.1)?;
            }
            for client in [&kept, &self.client(&present.1)?] {
                let answer = client
                    .post(&self.url)
                    .header("content-type", "application/x-www-form-urlencoded")
                    .body(FORM)
                    .send()
                    .await;
                match answer {
                    Ok(answer) if answer.status() == 200 => {
                        answer.bytes().await?;
                        self.answered.fetch_add(1, Ordering::Relaxed);
                        if self.presented.lock().0 == present.0 {
                            self.with_present.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    other => self.failed.lock().push(format!("{other:?}")),
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    fn presents(&self, pem: String) {
        let mut presented = self.presented.lock();
        *presented = (presented.0 + 1, pem);
        self.with_present.store(0, Ordering::Relaxed);
    }

    /// Waits until the callers have exchanged more tokens with their current certificate.
    async fn goes_on(&self) -> TestResult {
        self.with_present.store(0, Ordering::Relaxed);
        let limit = Instant::now() + SOON;
        while self.with_present.load(Ordering::Relaxed) < 8 * LOADS as u64 {
            if Instant::now() > limit {
                return Err(format!("the load stands still: {:?}", self.failed.lock()).into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

/// Puts a serving certificate into the Secret, and waits until it was loaded.
async fn serve(
    world: &World,
    broker: &Broker,
    secret: &str,
    ca: &TestCa,
    name: &str,
) -> TestResult {
    let reloads = "keyferry_serving_certificate_reloads_total{listener=\"api\",result=\"success\"}";
    let before = broker.metric(reloads).await?;
    let certified = ca.serving(name, &[])?;
    let pair = [
        ("tls.crt", certified.cert_pem.as_str()),
        ("tls.key", certified.key_pem.as_str()),
    ];
    put_tls_secret(world, secret, &pair).await?;
    let limit = Instant::now() + SOON;
    while broker.metric(reloads).await? <= before {
        if Instant::now() > limit {
            return Err("the serving certificate was not reloaded".into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn put_tls_secret(world: &World, name: &str, data: &[(&str, &str)]) -> TestResult {
    let data: serde_json::Map<_, _> = data
        .iter()
        .map(|(key, text)| ((*key).to_owned(), serde_json::json!(text)))
        .collect();
    let secret = serde_json::json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": { "name": name }, "stringData": data,
    });
    let path = format!("/api/v1/namespaces/keyferry-system/secrets/{name}");
    world.hub().admin().apply(&path, &secret).await?;
    Ok(())
}

pub(crate) async fn rotations_fail_no_exchange(world: Arc<World>) -> TestResult {
    let (hub, callers_ca, serving) = (world.hub(), "loaded-callers-ca", "loaded-api-tls");
    let (old_ca, folder) = (world.ca(), world.fleet().folder().join("loaded-next-ca"));
    std::fs::create_dir_all(&folder)?;
    let new_ca = TestCa::create("the next serving CA", &folder)?;
    let (first, second) = (authority("first callers"), authority("second callers"));
    put_secret(hub, callers_ca, &[("ca.crt", first.pem())]).await?;
    let certified = old_ca.serving(serving, &[])?;
    let pair = [
        ("tls.crt", certified.cert_pem.as_str()),
        ("tls.key", certified.key_pem.as_str()),
    ];
    put_tls_secret(&world, serving, &pair).await?;
    for secret in [callers_ca, serving] {
        grant(&world, secret).await?;
    }
    make_tenant(hub, NAMESPACE, &["owner"]).await?;
    let account = [NAMESPACE, "owner"];
    let uid = uid(hub, account).await?;
    let spec = BrokerSpec::of_hub("loaded", hub)
        .with_args(&["--api-tls-secret", serving])
        .with_api_lines(&rule(callers_ca, account, &uid, ""))
        .with_target(
            Target::of(world.target_a(), AUDIENCE_A)
                .named("a")
                .allowing(NAMESPACE, &["owner"]),
        )
        .with_access(Access::of(NAMESPACE, "a", "a", "owner"));
    let broker = world.start_broker(hub, spec).await?;
    let load = Arc::new(Load {
        url: format!("{}/v1/token", broker.api_url()),
        trusted: format!("{}{}", old_ca.cert_pem(), new_ca.cert_pem()).into_bytes(),
        presented: Mutex::new((0, first.issue(URI, |_| {}).to_pem())),
        answered: AtomicU64::new(0),
        with_present: AtomicU64::new(0),
        failed: Mutex::default(),
        stop: AtomicBool::new(false),
    });
    let mut loads = JoinSet::new();
    for _ in 0..LOADS {
        loads.spawn(Arc::clone(&load).exchange_on());
    }
    load.goes_on().await?;

    // The server's certificate, and then its CA.
    for round in 0..3 {
        let name = format!("{serving}-{round}");
        let ca = if round < 2 { old_ca } else { &new_ca };
        serve(&world, &broker, serving, ca, &name).await?;
        load.goes_on().await?;
    }
    // The callers' certificate, and then their CA.
    load.presents(first.issue(URI, |_| {}).to_pem());
    load.goes_on().await?;
    let both = format!("{}{}", first.pem(), second.pem());
    put_secret(hub, callers_ca, &[("ca.crt", &both)]).await?;
    let new = second.issue(URI, |_| {});
    until_exchanged(&load, &new.to_pem()).await?;
    load.presents(new.to_pem());
    load.goes_on().await?;
    put_secret(hub, callers_ca, &[("ca.crt", second.pem())]).await?;
    let old = first.issue(URI, |_| {});
    let reloads = "keyferry_caller_authority_reloads_total{result=\"success\"}";
    let limit = Instant::now() + SOON;
    while broker.metric(reloads).await? < 1.5 {
        assert!(Instant::now() < limit, "the CA was not reloaded");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    load.goes_on().await?;
    load.stop.store(true, Ordering::Relaxed);
    while let Some(ended) = loads.join_next().await {
        ended??;
    }
    assert_eq!(*load.failed.lock(), Vec::<String>::new());
    eprintln!(
        "{} exchanges during rotations of both sides' certificates and CAs, 0 failed",
        load.answered.load(Ordering::Relaxed)
    );
    let status = status_of(&load, &old.to_pem()).await?;
    assert_eq!(status, 400, "the first CA is gone");
    Ok(())
}

async fn until_exchanged(load: &Load, pem: &str) -> TestResult {
    let limit = Instant::now() + SOON;
    loop {
        let status = status_of(load, pem).await?;
        if status == 200 {
            return Ok(());
        }
        if Instant::now() > limit {
            return Err(format!("a certificate of the next CA still gets {status}").into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn status_of(load: &Load, pem: &str) -> Result<u16, TestError> {
    let answer = load
        .client(pem)?
        .post(&load.url)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(FORM)
        .send()
        .await?;
    Ok(answer.status().as_u16())
}
