//! Tests of both servers with the clients that the broker really uses.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod faults;
mod hub;
mod impersonation;
mod target;
mod watching;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::config::{KubeConfigOptions, Kubeconfig};
use secrecy::{ExposeSecret, SecretString};

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// Limits every wait of a test to 20 s.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .expect("nothing came within 20 s")
}

async fn hub() -> EmbeddedHub {
    EmbeddedHub::start(HubOptions::default()).await.unwrap()
}

async fn client_of(kubeconfig: &SecretString) -> kube::Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig.expose_secret()).unwrap();
    let mut config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .unwrap();
    config.default_retry = false;
    kube::Client::try_from(config).unwrap()
}

async fn broker(hub: &EmbeddedHub) -> kube::Client {
    client_of(&hub.kubeconfig()).await
}

/// A plain HTTPS client that trusts one CA.
fn https(ca_pem: &str) -> reqwest::Client {
    let roots = reqwest::Certificate::from_pem_bundle(ca_pem.as_bytes()).unwrap();
    reqwest::Client::builder()
        .tls_certs_only(roots)
        .no_proxy()
        .timeout(Duration::from_secs(20))
        .build()
        .unwrap()
}

fn code_of<T: std::fmt::Debug>(answer: Result<T, kube::Error>) -> u16 {
    match answer.unwrap_err() {
        kube::Error::Api(status) => status.code,
        other => panic!("no Status but {other:?}"),
    }
}

/// A clock that stands still until a test moves it.
struct Hands(Arc<AtomicI64>);

impl Hands {
    fn at_now() -> Self {
        #[allow(
            clippy::disallowed_methods,
            reason = "clients of these tests judge certificates by the machine's clock"
        )]
        let now = Timestamp::now();
        Self(Arc::new(AtomicI64::new(now.as_second())))
    }

    fn clock(&self) -> Clock {
        let seconds = Arc::clone(&self.0);
        Arc::new(move || Timestamp::from_second(seconds.load(Ordering::SeqCst)).unwrap())
    }

    fn forward(&self, by: SignedDuration) {
        self.0.fetch_add(by.as_secs(), Ordering::SeqCst);
    }
}

/// Header and claims of a token, unverified.
fn opened(token: &str) -> BTreeMap<&'static str, serde_json::Value> {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let part = |n| {
        let part = token.split('.').nth(n).unwrap();
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
    };
    BTreeMap::from([("header", part(0)), ("claims", part(1))])
}
