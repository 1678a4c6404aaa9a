//! A private Sigstore with its own Fulcio and Rekor, and keyless signatures by it.

use std::process::Stdio;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::parts::{Part, Parts};
use crate::runner::TestError;

/// The signature of an artifact by an account of an OIDC issuer.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct KeylessSignature<'a> {
    /// The artifact, as `sha256:<hex>`.
    pub digest: &'a str,
    /// The `iss` of the id-token that Fulcio accepted.
    pub issuer: &'a str,
    /// The identity in the certificate, which is a URI.
    pub subject: &'a str,
}

/// What one private Sigstore signed. Another one has other keys.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PrivateSigstore {
    trusted_root: Value,
    bundles: Vec<Value>,
}

impl PrivateSigstore {
    /// Sets up a Sigstore with new keys, and makes these signatures.
    ///
    /// # Errors
    /// The part is missing, or the signer failed.
    pub async fn sign(
        parts: &Parts,
        signatures: &[KeylessSignature<'_>],
    ) -> Result<Self, TestError> {
        let mut signer = Command::new(parts.locate(Part::KeylessSigner).await?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut input = signer.stdin.take().ok_or("the signer has no input")?;
        input.write_all(&serde_json::to_vec(signatures)?).await?;
        drop(input);
        let output = signer.wait_with_output().await?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(said.into());
        }
        let made: Self = serde_json::from_slice(&output.stdout)?;
        if made.bundles.len() != signatures.len() {
            return Err("the signer did not make every signature".into());
        }
        Ok(made)
    }

    /// The content of `trusted_root.json`.
    pub fn trusted_root(&self) -> String {
        self.trusted_root.to_string()
    }

    /// The bundles in the order of the signatures, as `cosign sign` attaches them.
    pub fn bundles(&self) -> impl Iterator<Item = String> {
        self.bundles.iter().map(Value::to_string)
    }
}
