//! Forges tokens that kube-apiserver would never mint, signed with its own key: expired tokens, or
//! those of a stolen key.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::Value;

use super::{ControlPlane, ControlPlaneError};

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
        sign_again(token, &pem, edit).ok_or(ControlPlaneError::Forge)
    }
}

fn sign_again(token: &str, key_pem: &str, edit: impl FnOnce(&mut Value)) -> Option<String> {
    let (header, rest) = token.split_once('.')?;
    let (claims, _) = rest.split_once('.')?;
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
