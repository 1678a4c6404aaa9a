//! The entry of the `jwt` list that admits a hub's tokens, limited to the allowed callers.

use std::collections::BTreeSet;
use std::time::Duration;

use keyferry_api::service_account::ServiceAccount;

use super::{indented, quoted};

/// The content of an entry.
#[derive(Clone, Debug)]
pub(super) struct TargetRules {
    /// The iss of the hub's tokens.
    pub(super) issuer: String,
    /// The URL of the discovery document, if it is not below the issuer.
    pub(super) discovery_url: Option<String>,
    /// CA certificates, PEM. `None` means the target's system roots.
    pub(super) certificate_authority: Option<String>,
    /// The target's only audience.
    pub(super) audience: String,
    /// The prefix of users and groups; checked by [`check_prefix`].
    pub(super) prefix: String,
    /// The allowed ServiceAccounts; never empty.
    pub(super) allow: BTreeSet<ServiceAccount>,
    /// The longest allowed lifetime of a token.
    pub(super) max_lifetime: Duration,
}

impl TargetRules {
    /// Returns the resulting user names, in order.
    pub(super) fn users(&self) -> impl Iterator<Item = String> {
        self.allow
            .iter()
            .map(|account| format!("{}{}", self.prefix, account.username()))
    }

    /// Renders the entry as an item of a block list without indentation.
    pub(super) fn entry(&self) -> String {
        let Self { prefix, .. } = self;
        let seconds = self.max_lifetime.as_secs();
        // The namespace comes from the subject, which the first rule restricts. A stolen key could
        // set any other claim freely.
        let groups = format!(
            "['{prefix}system:serviceaccounts', '{prefix}system:serviceaccounts:' + \
             claims.sub.split(':')[2]]"
        );
        let subjects = self.subjects();
        let uid = quoted("claims['kubernetes.io'].serviceaccount.uid");
        let rules = format!(
            "# Only these ServiceAccounts of the hub, even if a signing key is stolen.\n{subjects}  message: this ServiceAccount may not use this cluster\n\
             - expression: claims.exp - claims.iat <= {seconds}\n  message: the token lives longer than this cluster allows\n\
             - expression: claims.aud.size() == 1\n  message: the token is for several audiences\n"
        );
        let mappings = format!(
            "username:\n  claim: sub\n  # Never empty: without it the hub's ServiceAccounts would be this cluster's own.\n  prefix: {}\n\
             groups:\n  expression: {}\nuid:\n  expression: {uid}\n",
            quoted(prefix),
            quoted(&groups)
        );
        format!(
            "- issuer:\n{}  claimValidationRules:\n{}  claimMappings:\n{}",
            indented(&self.issuer_fields(), 4),
            indented(&rules, 4),
            indented(&mappings, 4)
        )
    }

    fn issuer_fields(&self) -> String {
        let mut text = format!(
            "# The hub's issuer, byte for byte: the iss of its tokens.\nurl: {}\n",
            quoted(&self.issuer)
        );
        if let Some(discovery_url) = &self.discovery_url {
            text += &format!(
                "# The discovery document, which names the address of the keys.\ndiscoveryURL: {}\n",
                quoted(discovery_url)
            );
        }
        match &self.certificate_authority {
            Some(pem) => {
                text += &format!("certificateAuthority: |\n{}", indented(pem.trim_end(), 2))
            }
            None => {
                text += "# No certificateAuthority: the roots of the apiserver's system are \
                    trusted for that place.\n"
            }
        }
        text + &format!(
            "# This cluster's one audience: a token for another cluster is refused \
             here.\naudiences:\n  - {}\n",
            quoted(&self.audience)
        )
    }

    fn subjects(&self) -> String {
        let names: Vec<String> = self
            .allow
            .iter()
            .map(|account| format!("'{}'", account.username()))
            .collect();
        match names.as_slice() {
            [one] => format!("- expression: \"claims.sub in [{one}]\"\n"),
            many => format!(
                "- expression: |-\n    claims.sub in [\n      {}\n    ]\n",
                many.join(",\n      ")
            ),
        }
    }
}

/// Why a prefix is refused.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(super) enum PrefixError {
    #[error("an empty prefix would make the hub's ServiceAccounts this cluster's own")]
    Empty,
    #[error("a prefix that starts with system: would let the hub name the cluster's own users")]
    System,
    #[error("write at most 64 letters, digits and .-_:/@, like hub:")]
    Grammar,
}

/// Checks that a prefix is safe in an expression and separates the hub's names from the target's
/// own.
///
/// # Errors
/// [`PrefixError`].
pub(super) fn check_prefix(prefix: &str) -> Result<(), PrefixError> {
    let plain = |character: char| character.is_ascii_alphanumeric() || ".-_:/@".contains(character);
    if prefix.is_empty() {
        Err(PrefixError::Empty)
    } else if prefix.starts_with("system:") {
        Err(PrefixError::System)
    } else if !prefix.chars().all(plain) || prefix.len() > 64 {
        Err(PrefixError::Grammar)
    } else {
        Ok(())
    }
}
