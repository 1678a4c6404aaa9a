//! A target's apiserver, asked whether it takes a token, and made to read its issuer's keys again.

use std::time::Duration;

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use keyferry_core::audience::Audience;
use keyferry_core::issuer::Issuer;
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

const DEADLINE: Duration = Duration::from_secs(10);

/// What a target makes of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It knows whose it is.
    Accepted,
    /// 401.
    Refused,
    /// It did not answer, or with something else.
    Unknown,
}

/// One target.
pub struct TargetProbe {
    client: reqwest::Client,
    url: String,
}

impl TargetProbe {
    /// The target at `address`, trusted by these CA certificates, or by the system's.
    pub fn new(address: &str, ca_pem: Option<&[u8]>) -> Option<TargetProbe> {
        let mut builder = reqwest::Client::builder()
            .https_only(true)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(DEADLINE)
            // A connection of its own each time: behind a load balancer the next one may reach another apiserver.
            .pool_max_idle_per_host(0);
        if let Some(pem) = ca_pem {
            builder = builder.tls_certs_only(reqwest::Certificate::from_pem_bundle(pem).ok()?);
        }
        let url = format!("{}/apis/authentication.k8s.io/v1/selfsubjectreviews", address.trim_end_matches('/'));
        Some(TargetProbe { client: builder.build().ok()?, url })
    }

    /// Whether the target takes this token.
    pub async fn takes(&self, token: &SecretString) -> Verdict {
        let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
        let request = self.client.post(&self.url).bearer_auth(token.expose_secret()).json(&review);
        match request.send().await.map(|answer| answer.status().as_u16()) {
            // Whoever is forbidden something was known before.
            Ok(200..=299 | 403) => Verdict::Accepted,
            Ok(401) => Verdict::Refused,
            _ => Verdict::Unknown,
        }
    }

    /// Sends a token that names an unknown key of the issuer. Unless the target has read the keys just now, it reads them again, and
    /// forgets those that are no longer there.
    pub async fn poke(&self, issuer: &Issuer, audience: &Audience, now: Timestamp) -> Verdict {
        let mut bytes = [0; 256];
        if SystemRandom::new().fill(&mut bytes).is_err() {
            return Verdict::Unknown;
        }
        let encode = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let kid = format!("keyferry-poke-{}", URL_SAFE_NO_PAD.encode(bytes.first_chunk::<12>().copied().unwrap_or_default()));
        let header = encode(json!({ "alg": "RS256", "kid": kid }));
        let second = now.as_second();
        let claims = json!({
            "iss": issuer.as_str(), "aud": [audience.as_str()], "sub": "system:serviceaccount:keyferry:nobody",
            "iat": second, "nbf": second, "exp": second.saturating_add(600),
        });
        // No key signed it, so it is good for nothing but being looked up.
        self.takes(&format!("{header}.{}.{}", encode(claims), URL_SAFE_NO_PAD.encode(bytes)).into()).await
    }
}
