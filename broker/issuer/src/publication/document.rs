//! A published document, prebuilt for serving.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;

/// Prebuilt bytes and their strong ETag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The body.
    pub bytes: Bytes,
    /// The quoted ETag, from the SHA-256 of the bytes: the same bytes have the same ETag on every
    /// replica.
    pub etag: String,
    /// `sha256:` and the hex digest of the bytes, as kube-apiserver's metrics name a key set that
    /// it fetched.
    pub sha256: String,
}

impl Document {
    /// Creates a document from its body.
    pub fn new(bytes: Vec<u8>) -> Self {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &bytes);
        let etag = format!("\"{}\"", URL_SAFE_NO_PAD.encode(digest.as_ref()));
        let hex: String = digest
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Self {
            bytes: bytes.into(),
            etag,
            sha256: format!("sha256:{hex}"),
        }
    }
}
