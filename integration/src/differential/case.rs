//! A test case: a configuration, the documents of its issuers, and tokens. It becomes one question
//! for an oracle.

use std::collections::BTreeMap;

use super::keys::SigningKeys;
use super::node::Node;
use super::token::TokenSpec;
use crate::oracle::{Document, Question};

/// 2026-09-21, far from every calendar boundary.
pub(crate) const NOW: i64 = 1_790_000_000;

/// One case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) config: ConfigText,
    /// The target's own issuers, which the configuration may not name.
    pub(crate) disallowed_issuers: Vec<String>,
    /// The documents that each issuer publishes.
    pub(crate) issuers: Vec<Published>,
    pub(crate) tokens: Vec<TokenSpec>,
}

/// A configuration and the way it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigText {
    pub(crate) tree: Node,
    pub(crate) form: Form,
    pub(crate) before: String,
    pub(crate) after: String,
}

/// The format of a configuration's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Yaml,
}

/// The documents of one issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Published {
    /// `issuer.url` of the configuration.
    pub(crate) issuer: String,
    /// The URL of the discovery document, when it is not below the issuer.
    pub(crate) discovery_url: Option<String>,
    /// The body at `jwks_uri`.
    pub(crate) key_set: Node,
}

impl ConfigText {
    pub(crate) fn text(&self) -> String {
        let body = match self.form {
            Form::Json => self.tree.json(),
            Form::Yaml => self.tree.yaml(),
        };
        format!("{}{body}{}", self.before, self.after)
    }
}

impl Published {
    fn documents(&self, index: usize) -> [(String, Document); 2] {
        let bare = self.issuer.strip_suffix('/').unwrap_or(&self.issuer);
        let discovery_url = self
            .discovery_url
            .clone()
            .unwrap_or_else(|| format!("{bare}/.well-known/openid-configuration"));
        let jwks_uri = format!("https://keys.test/{index}");
        let discovery = Node::map([
            ("issuer", Node::text(&self.issuer)),
            ("jwks_uri", Node::text(&jwks_uri)),
        ]);
        let document = |body: String| Document {
            status: 200,
            content_type: "application/json".to_owned(),
            body,
        };
        [
            (discovery_url, document(discovery.json())),
            (jwks_uri, document(self.key_set.json())),
        ]
    }
}

impl Case {
    pub(crate) fn question(&self, id: u64, keys: &SigningKeys) -> Question {
        let http: BTreeMap<String, Document> = self
            .issuers
            .iter()
            .enumerate()
            .flat_map(|(index, published)| published.documents(index))
            .collect();
        Question {
            id,
            config: self.config.text(),
            disallowed_issuers: self.disallowed_issuers.clone(),
            now: NOW,
            http,
            tokens: self.tokens.iter().map(|token| token.text(keys)).collect(),
        }
    }
}
