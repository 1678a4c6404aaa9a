//! The shipped files of `auth-configs/` and their test vectors: tokens, and the expected result of
//! each.

mod signer;
mod text;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::runner::TestError;
pub use signer::VectorSigner;

/// A shipped file with its vectors.
#[derive(Debug, Clone)]
pub struct AuthConfig {
    /// The file name, such as `hub.yaml`.
    pub name: String,
    /// The text as it is shipped. In place of a certificate it tells the reader to insert one.
    pub text: String,
    /// The vectors from the file beside it.
    pub vectors: Vectors,
}

/// The content of `*.vectors.yaml`; `auth-configs/README.md` describes the fields.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vectors {
    lifetime: i64,
    claims: Map<String, Value>,
    /// The tokens.
    pub cases: Vec<Case>,
}

/// One token and its expected result.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What the case tests.
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

/// Who signs the token, when it is not the issuer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Signed {
    #[serde(rename = "by another key")]
    ByAnotherKey,
}

/// The expected result of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected<'a> {
    /// Accepted as exactly this user.
    Accepted(&'a User),
    /// Rejected with this reason code.
    Rejected(&'a str),
    /// Skipped by every entry, with this reason code.
    Skipped(&'a str),
}

/// The user of a token, without the credential ID and without the groups that kube-apiserver adds
/// for every user.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// The username.
    pub username: String,
    /// The groups, in order.
    #[serde(default)]
    pub groups: Vec<String>,
    /// The UID; empty if there is none.
    #[serde(default)]
    pub uid: String,
    /// The extra values by key.
    #[serde(default)]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The path of `auth-configs/`.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../auth-configs")
}

/// Every shipped file, sorted by name.
///
/// # Errors
/// A file cannot be read, or it has no vectors.
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
        let text = std::fs::read_to_string(folder().join(&name))?;
        Self::of(name, text, &vectors)
    }

    /// A file that is not shipped, with its vectors as YAML.
    ///
    /// # Errors
    /// The vectors cannot be read.
    pub fn of(name: String, text: String, vectors: &str) -> Result<Self, TestError> {
        let vectors: Vectors =
            serde_saphyr::from_str(vectors).map_err(|error| format!("{name}: {error}"))?;
        for case in &vectors.cases {
            case.expected()
                .map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(Self {
            name,
            text,
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
    /// The file is not YAML.
    pub fn discovery_urls(&self) -> Result<Vec<Option<String>>, TestError> {
        text::discovery_urls(&self.text)
    }

    /// The file's text with a certificate in every place where the reader must insert one.
    pub fn with_certificate(&self, pem: &str) -> String {
        text::with_certificate(&self.text, pem)
    }

    /// The file's text for issuers that a test serves. It replaces only `discoveryURL` and
    /// `certificateAuthority` of every entry.
    ///
    /// # Errors
    /// The replacement would change more or less than that.
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
    /// The claims of a case's token, at a time in seconds since 1970.
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

    /// The expected result of the case.
    ///
    /// # Errors
    /// The case expects nothing, or several results.
    pub fn expected(&self) -> Result<Expected<'_>, TestError> {
        match (&self.accepted, &self.rejected, &self.skipped) {
            (Some(user), None, None) => Ok(Expected::Accepted(user)),
            (None, Some(code), None) => Ok(Expected::Rejected(code)),
            (None, None, Some(code)) => Ok(Expected::Skipped(code)),
            _ => Err(format!("{}: one of accepted, rejected and skipped", self.name).into()),
        }
    }
}
