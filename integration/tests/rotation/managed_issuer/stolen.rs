//! An attacker who can read a target's Secret can sign for it. Tests what the targets accept from
//! them.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::runner::{TestError, TestResult};
use serde_json::{Value, json};

use super::stage::{Stage, TARGETS, audience, whoami};

/// A key in the hands of an attacker.
pub(super) struct Stolen {
    kid: String,
    key: EcdsaKeyPair,
}

impl Stolen {
    pub(super) fn from(stored: &Value) -> Result<Self, TestError> {
        let current = &stored["current"];
        let pkcs8 = URL_SAFE_NO_PAD.decode(
            current["privateKey"]
                .as_str()
                .ok_or("the current key has a private half")?,
        )?;
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &pkcs8)
            .map_err(|_| "the key cannot be used")?;
        Ok(Self {
            kid: current["kid"]
                .as_str()
                .ok_or("the current key has a kid")?
                .to_owned(),
            key,
        })
    }

    pub(super) fn sign(
        &self,
        issuer: &str,
        audiences: &[&str],
        account: (&str, &str),
        seconds: u64,
    ) -> Result<String, TestError> {
        let (namespace, name) = account;
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let header = json!({ "alg": "ES256", "kid": self.kid });
        let claims = json!({
            "iss": issuer, "aud": audiences, "iat": now, "nbf": now, "exp": now + seconds, "jti": "stolen",
            "sub": format!("system:serviceaccount:{namespace}:{name}"),
            "kubernetes.io": { "namespace": namespace, "serviceaccount": { "name": name, "uid": "stolen" } },
        });
        let input = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header.to_string()),
            URL_SAFE_NO_PAD.encode(claims.to_string())
        );
        let signature = self
            .key
            .sign(&SystemRandom::new(), input.as_bytes())
            .map_err(|_| "signing")?;
        Ok(format!("{input}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

/// Why a target refuses a token, by its own TokenReview.
pub(super) async fn refusal(plane: &ControlPlane, token: &str) -> Result<String, TestError> {
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token } });
    let status = plane
        .admin()
        .create("/apis/authentication.k8s.io/v1/tokenreviews", &review)
        .await?["status"]
        .take();
    if status["authenticated"] == true {
        return Err(format!(
            "{} accepts it as {}",
            plane.name(),
            status["user"]["username"]
        )
        .into());
    }
    let said = whoami(plane, token)
        .await
        .err()
        .and_then(|error| error.status());
    assert_eq!(said, Some(401));
    Ok(status["error"].as_str().unwrap_or_default().to_owned())
}

pub(super) async fn a_stolen_key_reaches_only_the_allowed_pair(stage: Arc<Stage>) -> TestResult {
    let [a, b] = &stage.targets;
    let (issuer_a, issuer_b) = (stage.issuer(TARGETS[0]), stage.issuer(TARGETS[1]));
    let (audience_a, audience_b) = (audience(TARGETS[0]), audience(TARGETS[1]));
    let stolen = Stolen::from(&stage.stored(TARGETS[0]).await?)?;
    let allowed = ("tenant-a", "reconciler");
    let day = Duration::from_secs(24 * 3600).as_secs();

    let good = stolen.sign(&issuer_a, &[&audience_a], allowed, 600)?;
    let user = whoami(a, &good).await?;
    assert_eq!(
        user["username"], "hub:system:serviceaccount:tenant-a:reconciler",
        "the thief is whom the target allows, and says so"
    );

    let cases = [
        (
            "the target's issuer is unknown elsewhere",
            b,
            stolen.sign(&issuer_a, &[&audience_b], allowed, 600)?,
            "",
        ),
        (
            "another issuer's name",
            b,
            stolen.sign(&issuer_b, &[&audience_b], allowed, 600)?,
            "failed to verify",
        ),
        (
            "another audience",
            a,
            stolen.sign(&issuer_a, &[&audience_b], allowed, 600)?,
            "expected audience",
        ),
        (
            "two audiences",
            a,
            stolen.sign(&issuer_a, &[&audience_a, &audience_b], allowed, 600)?,
            "the token is for several audiences",
        ),
        (
            "another account",
            a,
            stolen.sign(&issuer_a, &[&audience_a], ("tenant-a", "other"), 600)?,
            "may not use this cluster",
        ),
        (
            "another namespace",
            a,
            stolen.sign(
                &issuer_a,
                &[&audience_a],
                ("kube-system", "reconciler"),
                600,
            )?,
            "may not use this cluster",
        ),
        (
            "a long life",
            a,
            stolen.sign(&issuer_a, &[&audience_a], allowed, day)?,
            "lives longer than this cluster allows",
        ),
        (
            "the hub itself",
            &stage.hub,
            stolen.sign(&issuer_a, &[&audience_a], allowed, 600)?,
            "",
        ),
    ];
    for (what, plane, token, cause) in cases {
        let said = refusal(plane, &token)
            .await
            .map_err(|error| format!("{what}: {error}"))?;
        assert!(said.contains(cause), "{what}: {said}");
    }
    Ok(())
}
