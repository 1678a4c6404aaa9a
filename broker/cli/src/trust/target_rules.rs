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
    /// The prefix of users and groups; checked by [`check_prefix`].
    pub(super) prefix: String,
    /// What each TargetCluster of this issuer admits; never empty, and no audience twice.
    pub(super) audiences: Vec<AudienceRules>,
}

/// What one TargetCluster of an entry admits.
#[derive(Clone, Debug)]
pub(super) struct AudienceRules {
    /// The TargetCluster.
    pub(super) target: String,
    /// Its only audience. [`Audience`](keyferry_api::audience::Audience) has no character that ends
    /// a literal.
    pub(super) audience: String,
    /// The role whose users its tokens are. `None` means those of the ServiceAccounts themselves.
    pub(super) role: Option<String>,
    /// The allowed ServiceAccounts; never empty.
    pub(super) allow: BTreeSet<ServiceAccount>,
    /// The longest allowed lifetime of a token.
    pub(super) max_lifetime: Duration,
}

/// Returns the group of all users of a role, which is also the beginning of its groups for each
/// namespace.
pub(super) fn role_group(prefix: &str, role: &str) -> String {
    format!("{prefix}role:{role}")
}

impl AudienceRules {
    /// Returns the prefix of its users. A role's users differ from all others, because no role is
    /// named `system`, which begins every subject.
    fn user_prefix(&self, prefix: &str) -> String {
        match &self.role {
            Some(role) => format!("{prefix}{role}:"),
            None => prefix.to_owned(),
        }
    }

    /// Returns the expression of its groups. A role has none of the groups of ServiceAccounts, to
    /// which the account's own rights may be bound.
    fn groups(&self, prefix: &str) -> String {
        let group = match &self.role {
            Some(role) => role_group(prefix, role),
            None => format!("{prefix}system:serviceaccounts"),
        };
        // The namespace comes from the subject, which the first rule restricts. A stolen key could
        // set any other claim freely.
        format!("['{group}', '{group}:' + claims.sub.split(':')[2]]")
    }

    /// What a refused token may not use.
    fn noun(&self) -> &'static str {
        match self.role {
            Some(_) => "role",
            None => "cluster",
        }
    }

    /// Returns the rules that admit the allowed ServiceAccounts. `guard` is true for the tokens that
    /// are not for this audience.
    ///
    /// The target demands that every rule is true, so a list that is too long for one expression is
    /// cut into ranges of subjects. Each rule admits the listed subjects of its range and leaves
    /// all other subjects to the other rules. Every subject is in exactly one range.
    fn subject_rules(&self, guard: Option<&str>) -> String {
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
            let from = from.map(|from| format!("claims.sub < '{from}'"));
            let to = to.map(|to| format!("claims.sub >= '{to}'"));
            let others = guard.map(str::to_owned).into_iter().chain(from).chain(to);
            rules += &subject_rule(range, others);
            rules += &format!(
                "  message: this ServiceAccount may not use this {}\n",
                self.noun()
            );
        }
        rules
    }

    /// Returns the rule on the lifetime. A target compares `nbf` and `exp` with the clock, and `iat`
    /// with nothing, so a stolen key could date a token ahead by `iat`. The text of a cluster without
    /// roles is older than this rule, and stays as it is in the files of its users.
    fn lifetime_rule(&self, guard: Option<&str>) -> String {
        let (seconds, noun) = (self.max_lifetime.as_secs(), self.noun());
        let bound = match guard.is_some() || self.role.is_some() {
            // Go cuts a number that is too large for it, and CEL does not: without the first
            // comparison, an nbf of 1e300 would be long ago for one and in the future for the other.
            true => format!("claims.nbf <= claims.exp && claims.exp - claims.nbf <= {seconds}"),
            false => format!("claims.exp - claims.iat <= {seconds}"),
        };
        let expression = match guard {
            Some(guard) => quoted(&format!("{guard} || ({bound})")),
            None => bound,
        };
        format!(
            "- expression: {expression}\n  message: the token lives longer than this {noun} allows\n"
        )
    }
}

const ONE_AUDIENCE: &str =
    "- expression: claims.aud.size() == 1\n  message: the token is for several audiences\n";

impl TargetRules {
    /// Renders the entry as an item of a block list without indentation.
    pub(super) fn entry(&self) -> String {
        format!(
            "- issuer:\n{}  claimValidationRules:\n{}  claimMappings:\n{}",
            indented(&self.issuer_fields(), 4),
            indented(&self.validation_rules(), 4),
            indented(&self.mappings(), 4)
        )
    }

    fn validation_rules(&self) -> String {
        if let [one] = self.audiences.as_slice() {
            return format!(
                "# Only these ServiceAccounts of the hub, even if a signing key is stolen.\n\
                 {}{}{ONE_AUDIENCE}",
                one.subject_rules(None),
                one.lifetime_rule(None)
            );
        }
        let limited = self.audiences.iter().map(|one| {
            let guard = format!("claims.aud[0] != '{}'", one.audience);
            format!(
                "# TargetCluster {}: only these ServiceAccounts of the hub, even if a signing key is \
                 stolen.\n{}{}",
                one.target,
                one.subject_rules(Some(&guard)),
                one.lifetime_rule(Some(&guard))
            )
        });
        format!(
            "# Without this rule, a token for two of the audiences would escape the rules of one.\n\
             {ONE_AUDIENCE}{}",
            limited.collect::<String>()
        )
    }

    fn mappings(&self) -> String {
        let prefix = &self.prefix;
        let uid = quoted("claims['kubernetes.io'].serviceaccount.uid");
        let uid = format!("uid:\n  expression: {uid}\n");
        if let [one] = self.audiences.as_slice() {
            return format!(
                "username:\n  claim: sub\n  # Never empty: without it the hub's ServiceAccounts would be this cluster's own.\n  prefix: {}\n\
                 groups:\n  expression: {}\n{uid}",
                quoted(&one.user_prefix(prefix)),
                quoted(&one.groups(prefix))
            );
        }
        let by_audience = |value: &dyn Fn(&AudienceRules) -> String| {
            let members = self.audiences.iter();
            let members = members.map(|one| format!("      '{}': {}", one.audience, value(one)));
            let members: Vec<String> = members.collect();
            format!("|-\n    {{\n{}\n    }}[claims.aud[0]]", members.join(",\n"))
        };
        format!(
            "# No name of one TargetCluster is a name of another, so RBAC for one gives nothing to \
             another.\nusername:\n  expression: {} + claims.sub\ngroups:\n  expression: {}\n{uid}",
            by_audience(&|one| format!("'{}'", one.user_prefix(prefix))),
            by_audience(&|one| one.groups(prefix))
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
        let is_only = self.audiences.len() == 1;
        text += match is_only {
            true => "# This cluster's one audience: a token for another cluster is refused here.\n",
            false => {
                "# An audience for each TargetCluster that is this cluster: a token for another one is \
                 refused here.\n"
            }
        };
        text += "audiences:\n";
        for one in &self.audiences {
            text += &format!("  - {}\n", quoted(&one.audience));
        }
        if !is_only {
            text += "audienceMatchPolicy: MatchAny\n";
        }
        text
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

/// Renders the rule of one range. `others` are the tokens that other rules judge: those for another
/// audience, and those of the subjects below and above the range.
fn subject_rule(range: &[String], others: impl Iterator<Item = String>) -> String {
    let others: String = others.map(|other| format!("    {other} ||\n")).collect();
    let names: Vec<String> = range.iter().map(|name| format!("'{name}'")).collect();
    match names.as_slice() {
        [one] if others.is_empty() => format!("- expression: \"claims.sub in [{one}]\"\n"),
        many => format!(
            "- expression: |-\n{others}    claims.sub in [\n      {}\n    ]\n",
            many.join(",\n      ")
        ),
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
