//! Forges tokens that kube-apiserver would never mint, signed with its own key: expired tokens, or
//! those of a stolen key.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{ControlPlane, ControlPlaneError};
use crate::pki::SigningKey;

impl ControlPlane {
    /// Returns the token (JWS compact form, RFC 7515) with other claims, signed again with the
    /// current signing key.
    pub async fn sign_again(
        &self,
        token: &str,
        edit: impl FnOnce(&mut Value),
    ) -> Result<String, ControlPlaneError> {
        let key = self.signing.lock().await.signing_key.private_path.clone();
        let pem = std::fs::read_to_string(&key)
            .map_err(|source| ControlPlaneError::file(&key, source))?;
        let header = token.split('.').next();
        let forged = header.and_then(|header| sign_claims(token, header, &pem, edit));
        forged.ok_or(ControlPlaneError::Forge)
    }

    /// Returns the token with the same claims, signed with ES256 by another of its keys.
    pub fn sign_with(
        token: &str,
        key: &SigningKey,
        kid: &str,
    ) -> Result<String, ControlPlaneError> {
        let pem = std::fs::read_to_string(&key.private_path)
            .map_err(|source| ControlPlaneError::file(&key.private_path, source))?;
        let header = URL_SAFE_NO_PAD.encode(json!({ "alg": "ES256", "kid": kid }).to_string());
        sign_claims(token, &header, &pem, |_| {}).ok_or(ControlPlaneError::Forge)
    }
}

fn sign_claims(
    token: &str,
    header: &str,
    key_pem: &str,
    edit: impl FnOnce(&mut Value),
) -> Option<String> {
    let claims = token.split('.').nth(1)?;
    let mut claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
    edit(&mut claims);
    let claims = URL_SAFE_NO_PAD.encode(claims.to_string());
    let signed = format!("{header}.{claims}");
    let signature = sign(signed.as_bytes(), &der_of(key_pem)?)?;
    Some(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

/// Signs with RS256 or ES256 (RFC 7518), depending on the key.
fn sign(message: &[u8], pkcs8: &[u8]) -> Option<Vec<u8>> {
    let random = SystemRandom::new();
    if let Ok(key) = RsaKeyPair::from_pkcs8(pkcs8) {
        let mut signature = vec![0; key.public_modulus_len()];
        key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
            .ok()?;
        return Some(signature);
    }
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8).ok()?;
    Some(key.sign(&random, message).ok()?.as_ref().to_vec())
}

fn der_of(pem: &str) -> Option<Vec<u8>> {
    let text: String = pem
        .lines()
        .filter(|line| !line.starts_with("-----"))
        .collect();
    STANDARD.decode(text.trim()).ok()
}
