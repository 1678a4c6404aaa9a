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
        let subjects = self.subject_rules();
        let uid = quoted("claims['kubernetes.io'].serviceaccount.uid");
        let rules = format!(
            "# Only these ServiceAccounts of the hub, even if a signing key is stolen.\n{subjects}\
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

    /// Returns the rules that admit the allowed ServiceAccounts.
    ///
    /// The target demands that every rule is true, so a list that is too long for one expression is
    /// cut into ranges of subjects. Each rule admits the listed subjects of its range and leaves
    /// all other subjects to the other rules. Every subject is in exactly one range.
    fn subject_rules(&self) -> String {
        let mut names: Vec<String> = self.allow.iter().map(ServiceAccount::username).collect();
        let mut rules = String::new();
        if ranges(&names).len() > 1 {
            // The set is in the order of namespaces, which is not that of the subjects.
            names.sort();
            rules += "# In several rules, because one expression has a limit. They belong together: \
                each admits the\n# subjects outside of its range.\n";
        }
        let ranges = ranges(&names);
        for (index, range) in ranges.iter().enumerate() {
            let from = range.first().filter(|_| index > 0);
            let to = ranges.get(index + 1).and_then(|next| next.first());
            rules += &subject_rule(range, from, to);
            rules += "  message: this ServiceAccount may not use this cluster\n";
        }
        rules
    }
}

/// The longest list of subjects in one expression, in bytes. Every release of cel-go takes 100,000
/// code points, and other tools that check such files take 16 KiB.
const MAX_SUBJECTS_BYTES: usize = 12 * 1024;

/// Cuts a sorted list into ranges, each short enough for one expression.
fn ranges(names: &[String]) -> Vec<&[String]> {
    let mut ranges = Vec::new();
    let (mut start, mut length) = (0, 0);
    for (index, name) in names.iter().enumerate() {
        // Quotes, a comma, a line end and blanks.
        let added = name.len() + 10;
        if length + added > MAX_SUBJECTS_BYTES && index > start {
            ranges.extend(names.get(start..index));
            (start, length) = (index, 0);
        }
        length += added;
    }
    ranges.extend(names.get(start..));
    ranges
}

/// Renders the rule of one range: from its first subject up to the first one of the next range.
fn subject_rule(range: &[String], from: Option<&String>, to: Option<&String>) -> String {
    let others: Vec<String> = [from.map(|from| ("<", from)), to.map(|to| (">=", to))]
        .into_iter()
        .flatten()
        .map(|(comparison, bound)| format!("claims.sub {comparison} '{bound}' ||"))
        .collect();
    let names: Vec<String> = range.iter().map(|name| format!("'{name}'")).collect();
    match names.as_slice() {
        [one] if others.is_empty() => format!("- expression: \"claims.sub in [{one}]\"\n"),
        many => {
            let others: String = others
                .iter()
                .map(|other| format!("    {other}\n"))
                .collect();
            format!(
                "- expression: |-\n{others}    claims.sub in [\n      {}\n    ]\n",
                many.join(",\n      ")
            )
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
