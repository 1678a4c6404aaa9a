//! The evaluated input: every shipped file with the signed tokens of its own vectors.

use keyferry_integration::auth_configs::{self, VectorSigner};
use serde_json::Value;

use crate::harness::Outcome;

/// 2026-09-21, the only time that this benchmark uses.
pub const NOW: i64 = 1_790_000_000;

/// All files with their tokens, and the keys of all issuers.
pub struct Work {
    /// The files.
    pub files: Vec<File>,
    /// The body of every issuer's `jwks_uri`.
    pub keys: Value,
}

/// One configuration file with its tokens.
pub struct File {
    /// The text of the file, as a target reads it.
    pub config: String,
    /// The issuers, and the URLs of their documents.
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

    /// The number of tokens.
    pub fn tokens(&self) -> usize {
        self.files.iter().map(|file| file.tokens.len()).sum()
    }
}
