//! Asks a target's apiserver whether it accepts a token, and forces it to reload its issuer's keys.

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use keyferry_api::audience::Audience;
use keyferry_api::issuer::Issuer;
use keyferry_platform::address_guard::AddressGuard;
use keyferry_platform::https_probe::HttpsProbe;
use keyferry_platform::target_connection::TargetAddress;
use keyferry_platform::target_probe::{ProbeAnswer, TargetProbe};
use secrecy::SecretString;
use serde_json::json;

/// A target whose keys can be refreshed. Each request uses its own connection, because behind a
/// load balancer the next one may reach another apiserver.
pub struct TargetRefresh {
    target: TargetAddress,
    probe: HttpsProbe,
}

impl TargetRefresh {
    /// Creates a client for this target, which connects only where the guard allows.
    pub fn new(target: TargetAddress, guard: AddressGuard) -> Self {
        Self {
            target,
            probe: HttpsProbe::new(guard),
        }
    }

    /// Asks whether the target accepts this token.
    pub async fn probe_token(&self, token: &SecretString) -> ProbeAnswer {
        self.probe.try_token(&self.target, token).await
    }

    /// Forces a key refresh by sending a token with an unknown key of the issuer. Unless the target
    /// has just read the keys, it reads them again and forgets those that are gone.
    pub async fn refresh_keys(
        &self,
        issuer: &Issuer,
        audience: &Audience,
        now: Timestamp,
    ) -> ProbeAnswer {
        let mut bytes = [0; 256];
        if SystemRandom::new().fill(&mut bytes).is_err() {
            return ProbeAnswer::Unanswered("there is no randomness for a token".into());
        }
        let encode = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let kid = format!(
            "keyferry-key-refresh-{}",
            URL_SAFE_NO_PAD.encode(bytes.first_chunk::<12>().copied().unwrap_or_default())
        );
        let header = encode(json!({ "alg": "RS256", "kid": kid }));
        let second = now.as_second();
        let claims = json!({
            "iss": issuer.as_str(), "aud": [audience.as_str()], "sub": "system:serviceaccount:keyferry:nobody",
            "iat": second, "nbf": second, "exp": second.saturating_add(600),
        });
        // No key signed this token, so it can only cause a key lookup.
        self.probe_token(
            &format!(
                "{header}.{}.{}",
                encode(claims),
                URL_SAFE_NO_PAD.encode(bytes)
            )
            .into(),
        )
        .await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use keyferry_platform::clock::{Clock, SystemClock};
    use keyferry_platform::testing::{CountingListener, ScriptedResolver, strict_guard};
    use keyferry_testing::{Authority, EmbeddedHub, EmbeddedTarget, HubOptions, TargetOptions};
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    async fn start_clusters() -> (EmbeddedHub, EmbeddedTarget, SecretString) {
        let ca = Authority::new("a CA of a test").unwrap();
        let options = HubOptions {
            discovery_ca: Some(ca.clone()),
            ..HubOptions::default()
        };
        let hub = EmbeddedHub::start(options).await.unwrap();
        hub.add_service_account("ci", "deployer");
        let options = TargetOptions {
            discovery_url: Some(hub.discovery_url()),
            allowed_subjects: vec!["system:serviceaccount:ci:deployer".to_owned()],
            ..TargetOptions::new(hub.issuer(), "target-a", "hub:", ca.ca_pem())
        };
        let target = EmbeddedTarget::start(options).await.unwrap();
        let token = hub
            .token(
                "ci",
                "deployer",
                "target-a",
                std::time::Duration::from_secs(3600),
            )
            .unwrap();
        (hub, target, token)
    }

    fn at(
        target: &EmbeddedTarget,
        address: &str,
        name: Option<&str>,
        proxy: Option<String>,
    ) -> TargetRefresh {
        let target = TargetAddress {
            url: address.to_owned(),
            ca_pem: Some(target.ca_pem().as_bytes().to_vec()),
            tls_server_name: name.map(str::to_owned),
            proxy_url: proxy,
        };
        TargetRefresh::new(target, keyferry_platform::testing::loopback_guard())
    }

    /// A proxy that sends every CONNECT to one address and counts them.
    async fn proxy(to: String) -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (to, counted) = (to.clone(), Arc::clone(&counted));
                tokio::spawn(async move {
                    let mut stream = BufReader::new(stream);
                    let (mut first, mut line) = (String::new(), String::new());
                    stream.read_line(&mut first).await.unwrap();
                    while stream.read_line(&mut line).await.unwrap() > 2 {
                        line.clear();
                    }
                    if !first.starts_with("CONNECT ") {
                        return;
                    }
                    counted.fetch_add(1, Ordering::SeqCst);
                    let mut target = TcpStream::connect(to).await.unwrap();
                    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                    drop(copy_bidirectional(&mut stream, &mut target).await);
                });
            }
        });
        (url, count)
    }

    #[tokio::test]
    async fn a_target_behind_another_name_or_a_proxy_refreshes_its_keys_too() {
        let (hub, target, token) = start_clusters().await;
        let (issuer, audience) = (
            Issuer::new(hub.issuer()).unwrap(),
            Audience::new("target-a").unwrap(),
        );
        let (url, proxied) = proxy(target.url().trim_start_matches("https://").to_owned()).await;
        // Only the proxy can reach this address.
        let elsewhere = "https://localhost:1";
        for target in [
            at(&target, target.url(), None, None),
            at(&target, target.url(), Some("localhost"), None),
            at(&target, elsewhere, None, Some(url.clone())),
        ] {
            assert!(matches!(
                target.probe_token(&token).await,
                ProbeAnswer::Accepted(_)
            ));
            assert_eq!(
                target
                    .refresh_keys(&issuer, &audience, SystemClock::start().now().wall)
                    .await,
                ProbeAnswer::Refused
            );
        }
        assert_eq!(proxied.load(Ordering::SeqCst), 2);
        let wrong = at(&target, target.url(), Some("another.example.test"), None);
        assert!(
            matches!(wrong.probe_token(&token).await, ProbeAnswer::Unanswered(_)),
            "its certificate has no such name"
        );
        let both = at(&target, elsewhere, Some("localhost"), Some(url));
        assert!(
            matches!(both.probe_token(&token).await, ProbeAnswer::Unanswered(silence) if silence.text.contains("tlsServerName"))
        );
        assert_eq!(
            proxied.load(Ordering::SeqCst),
            2,
            "and nothing was sent anywhere"
        );
    }

    #[tokio::test]
    async fn nothing_is_sent_to_a_refused_address() {
        let listener = CountingListener::start().await;
        let (issuer, audience) = (
            Issuer::new("https://hub.example").unwrap(),
            Audience::new("target-a").unwrap(),
        );
        let target = TargetAddress {
            url: format!("https://prod.example.test:{}", listener.port),
            ..TargetAddress::default()
        };
        let guard = strict_guard(ScriptedResolver::new(&[&["127.0.0.1"]]));
        let refresh = TargetRefresh::new(target, guard);
        let now = SystemClock::start().now().wall;
        for answer in [
            refresh.probe_token(&"witness".into()).await,
            refresh.refresh_keys(&issuer, &audience, now).await,
        ] {
            assert!(
                matches!(answer, ProbeAnswer::AddressRefused(_)),
                "{answer:?}"
            );
        }
        assert_eq!(listener.count(), 0);
    }
}
