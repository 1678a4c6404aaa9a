//! What is evaluated: every shipped file with the tokens of its own vectors, signed.

use keyferry_integration::auth_configs::{self, VectorSigner};
use serde_json::Value;

use crate::Outcome;

/// 2026-09-21, the only clock here.
pub const NOW: i64 = 1_790_000_000;

/// See the module.
pub struct Work {
    /// The files.
    pub files: Vec<File>,
    /// The body of every issuer's `jwks_uri`.
    pub keys: Value,
}

/// One file.
pub struct File {
    /// As a target reads it.
    pub config: String,
    /// Issuers, and where their documents are.
    pub issuers: Vec<(String, Option<String>)>,
    /// The tokens.
    pub tokens: Vec<String>,
}

impl Work {
    /// Signs all tokens.
    pub fn read() -> Outcome<Self> {
        let signer = VectorSigner::new()?;
        let certificate = rcgen::generate_simple_self_signed(["authority.test".to_owned()])?
            .cert
            .pem();
        let file = |file: auth_configs::AuthConfig| -> Outcome<File> {
            let tokens = file
                .vectors
                .cases
                .iter()
                .map(|case| signer.token(&file.vectors, case, NOW));
            Ok(File {
                config: file.with_certificate(&certificate),
                issuers: file
                    .issuers()
                    .into_iter()
                    .zip(file.discovery_urls()?)
                    .collect(),
                tokens: tokens.collect::<Result<_, _>>()?,
            })
        };
        let files = auth_configs::all()?
            .into_iter()
            .map(file)
            .collect::<Outcome<_>>()?;
        Ok(Self {
            files,
            keys: signer.key_set(),
        })
    }

    /// How many tokens there are.
    pub fn tokens(&self) -> usize {
        self.files.iter().map(|file| file.tokens.len()).sum()
    }
}
