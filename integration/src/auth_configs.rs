//! The shipped files of `auth-configs/` and their vectors: which tokens they are asked about, and
//! what must come of each.

mod signer;
mod text;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::runner::TestError;
pub use signer::VectorSigner;

/// One file with its vectors.
#[derive(Debug, Clone)]
pub struct AuthConfig {
    /// `hub.yaml`.
    pub name: String,
    /// As it is shipped: where a certificate stands, the reader is told to put one.
    pub text: String,
    /// What stands beside it.
    pub vectors: Vectors,
}

/// `*.vectors.yaml`; the fields are described in `auth-configs/README.md`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vectors {
    lifetime: i64,
    claims: Map<String, Value>,
    /// The tokens.
    pub cases: Vec<Case>,
}

/// One token, and what must come of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What it is about.
    pub name: String,
    #[serde(default)]
    claims: Map<String, Value>,
    lifetime: Option<i64>,
    #[serde(default)]
    age: i64,
    signed: Option<Signed>,
    accepted: Option<User>,
    rejected: Option<String>,
    skipped: Option<String>,
}

/// Who signs, when it is not the issuer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Signed {
    #[serde(rename = "by another key")]
    ByAnotherKey,
}

/// What must come of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected<'a> {
    /// This user, exactly.
    Accepted(&'a User),
    /// This reason code.
    Rejected(&'a str),
    /// This reason code, of every entry.
    Skipped(&'a str),
}

/// Whom a token is for, without the credential id and without what kube-apiserver adds for
/// everybody.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// The name.
    pub username: String,
    /// In order.
    #[serde(default)]
    pub groups: Vec<String>,
    /// Empty without one.
    #[serde(default)]
    pub uid: String,
    /// Values by key.
    #[serde(default)]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The folder of the repository.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../auth-configs")
}

/// Every file, by name.
///
/// # Errors
/// A file cannot be read, or has no vectors.
pub fn all() -> Result<Vec<AuthConfig>, TestError> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".yaml") && !name.ends_with(".vectors.yaml") {
            names.push(name);
        }
    }
    names.sort();
    names.into_iter().map(AuthConfig::read).collect()
}

impl AuthConfig {
    fn read(name: String) -> Result<Self, TestError> {
        let path = folder().join(name.replace(".yaml", ".vectors.yaml"));
        let vectors = std::fs::read_to_string(&path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let vectors: Vectors = serde_saphyr::from_str(&vectors)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        for case in &vectors.cases {
            case.expected()
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(Self {
            text: std::fs::read_to_string(folder().join(&name))?,
            name,
            vectors,
        })
    }

    /// `issuer.url` of every entry, in order.
    pub fn issuers(&self) -> Vec<String> {
        text::issuers(&self.text)
    }

    /// `issuer.discoveryURL` of every entry, in order.
    ///
    /// # Errors
    /// The file is no YAML.
    pub fn discovery_urls(&self) -> Result<Vec<Option<String>>, TestError> {
        text::discovery_urls(&self.text)
    }

    /// The file with a certificate in every place where the reader is to put one.
    pub fn with_certificate(&self, pem: &str) -> String {
        text::with_certificate(&self.text, pem)
    }

    /// The file as it is for issuers that a test serves: `discoveryURL` and `certificateAuthority`
    /// of every entry are other ones, and nothing else is.
    ///
    /// # Errors
    /// More or less than that would be changed.
    pub fn served_at(
        &self,
        pem: &str,
        discovery_url: impl Fn(usize) -> String,
    ) -> Result<String, TestError> {
        text::served_at(&self.text, pem, discovery_url)
            .map_err(|error| format!("{}: {error}", self.name).into())
    }
}

impl Vectors {
    /// The claims of the token of a case, at a time in seconds since 1970.
    pub fn claims(&self, case: &Case, now: i64) -> Map<String, Value> {
        let issued_at = now - case.age;
        let mut claims = self.claims.clone();
        claims.insert("iat".to_owned(), issued_at.into());
        claims.insert("nbf".to_owned(), issued_at.into());
        claims.insert(
            "exp".to_owned(),
            (issued_at + case.lifetime.unwrap_or(self.lifetime)).into(),
        );
        claims.extend(case.claims.clone());
        claims.retain(|_, value| !value.is_null());
        claims
    }
}

impl Case {
    /// Whether the issuer's own key signs.
    pub fn signed_by_issuer(&self) -> bool {
        self.signed != Some(Signed::ByAnotherKey)
    }

    /// What must come of it.
    ///
    /// # Errors
    /// The case says nothing, or several things.
    pub fn expected(&self) -> Result<Expected<'_>, TestError> {
        match (&self.accepted, &self.rejected, &self.skipped) {
            (Some(user), None, None) => Ok(Expected::Accepted(user)),
            (None, Some(code), None) => Ok(Expected::Rejected(code)),
            (None, None, Some(code)) => Ok(Expected::Skipped(code)),
            _ => Err(format!("{}: one of accepted, rejected and skipped", self.name).into()),
        }
    }
}
