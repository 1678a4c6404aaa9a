//! Fills the shipped admission policies in for one hub: with its own audiences, and with the names
//! that Keyferry has there.

use std::collections::BTreeSet;

use keyferry_api::audience::Audience;
use keyferry_api::managed_issuer::INERT_AUDIENCE;
use serde_json::json;

use super::HubSite;

/// Keyferry's namespace in the shipped manifests.
pub(super) const SHIPPED_NAMESPACE: &str = "keyferry-system";
/// The canary ServiceAccount in the shipped manifests.
pub(super) const SHIPPED_CANARY: &str = "keyferry-canary";
/// The username of Keyferry's account in the shipped manifests.
pub(super) const SHIPPED_USERNAME: &str = "system:serviceaccount:keyferry-system:keyferry";
/// Keyferry's audience in the shipped manifests.
pub(super) const CALLER_AUDIENCE: &str = "keyferry.dev";
/// That audience as quoted in the manifests. The API group of the same name has other quotes, so it
/// does not match.
const CALLER_AUDIENCE_EXPRESSION: &str = "\"'keyferry.dev'\"";
/// The placeholder list for each hub's own audiences.
const HUB_AUDIENCES: &str = "['https://kubernetes.default.svc', \
    'https://kubernetes.default.svc.cluster.local', 'kubernetes.default.svc', 'api', 'k3s', \
    'rke2']";

/// The RBAC rights, which must be applied before any binding.
const RIGHTS_MANIFEST: &str = include_str!("../../../../examples/admission-policies/rights.yaml");

/// Keyferry's right to mint in [`RIGHTS_MANIFEST`], for every audience.
const EVERY_AUDIENCE: &str = "{ apiGroups: [keyferry.dev], resources: [audiences], verbs: [mint] }";

/// The audiences of the tokens that Keyferry's account may request, by its ClusterRole
/// `keyferry-audiences`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MintableAudiences {
    /// Every audience but the hub's own.
    Every,
    /// These alone.
    Only(BTreeSet<Audience>),
}

/// Why the manifests cannot be filled in for a hub.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FillError {
    /// Without them, `hubAudiences` would protect nothing.
    #[error("no audience of the hub is known")]
    NoHubAudiences,
    /// A value would end the quotes around it.
    #[error(
        "{0:?} cannot be written into an admission policy: quotes, backslashes, spaces and control \
         characters are not allowed"
    )]
    Unquotable(String),
}

/// Returns the manifests filled in for a hub, in the order in which to apply them.
///
/// The first text contains the rights, and the policies with their bindings. The second contains
/// the bindings of `keyferry-pairing`, to be applied last: they refuse every TokenRequest on a hub
/// that does not know the kind AudiencePairing yet.
///
/// # Errors
/// [`FillError`].
pub fn fill_manifests(
    site: &HubSite,
    mintable: &MintableAudiences,
) -> Result<(String, String), FillError> {
    if site.hub_audiences.is_empty() {
        return Err(FillError::NoHubAudiences);
    }
    let names = [
        &site.namespace,
        &site.canary,
        &site.username,
        &site.caller_audience,
    ];
    for text in names.into_iter().chain(&site.hub_audiences) {
        Audience::new(text.as_str())
            .map_err(|_| FillError::Unquotable(text.chars().take(100).collect()))?;
    }
    let quoted: Vec<String> = site
        .hub_audiences
        .iter()
        .map(|audience| format!("'{audience}'"))
        .collect();
    let fill = |manifest: &str| {
        for_site(manifest, site).replace(HUB_AUDIENCES, &format!("[{}]", quoted.join(", ")))
    };
    let policies = [
        super::AUTHOR_POLICY,
        super::LABELS_POLICY,
        super::RETARGET_POLICY,
        super::AUDIENCE_POLICY,
        super::OWN_ACCOUNT,
        super::KEPT_POLICY,
        super::PAIRING_POLICY,
    ];
    let mut files = vec![with_audiences(&fill(RIGHTS_MANIFEST), mintable)];
    files.extend(
        policies
            .iter()
            .map(|admission_policy| fill(admission_policy.policy)),
    );
    Ok((files.join("---\n"), fill(super::PAIRING_POLICY.binding)))
}

/// Limits the right to mint in the manifest of the rights. An empty `resourceNames` would mean every
/// audience, so the list always has the one that no target may have.
fn with_audiences(rights: &str, mintable: &MintableAudiences) -> String {
    let MintableAudiences::Only(audiences) = mintable else {
        return rights.to_owned();
    };
    let mut names: BTreeSet<&str> = audiences.iter().map(Audience::as_str).collect();
    names.insert(INERT_AUDIENCE);
    let names = json!(names);
    let limited = format!(
        "{{ apiGroups: [keyferry.dev], resources: [audiences], resourceNames: {names}, verbs: \
         [mint] }}"
    );
    rights.replace(EVERY_AUDIENCE, &limited)
}

/// Replaces the shipped names in a manifest by those of this Keyferry.
pub(super) fn for_site(manifest: &str, site: &HubSite) -> String {
    let caller = format!("\"'{}'\"", site.caller_audience);
    // The longest first, since one is part of another. One pass, so that no replacement is replaced
    // again.
    let names = [
        (SHIPPED_USERNAME, site.username.as_str()),
        (CALLER_AUDIENCE_EXPRESSION, caller.as_str()),
        (SHIPPED_NAMESPACE, site.namespace.as_str()),
        (SHIPPED_CANARY, site.canary.as_str()),
    ];
    let mut filled = String::with_capacity(manifest.len());
    let mut rest = manifest;
    while let Some((at, shipped, own)) = find_next(rest, &names) {
        filled.push_str(rest.get(..at).unwrap_or_default());
        filled.push_str(own);
        rest = rest.get(at + shipped.len()..).unwrap_or_default();
    }
    filled.push_str(rest);
    filled
}

/// Finds the first of the names in a text.
fn find_next<'a>(text: &str, names: &[(&'a str, &'a str)]) -> Option<(usize, &'a str, &'a str)> {
    let found = names
        .iter()
        .filter_map(|(shipped, own)| Some((text.find(shipped)?, *shipped, *own)));
    found.min_by_key(|(at, shipped, _)| (*at, usize::MAX - shipped.len()))
}

/// Returns the entries of a CEL list that contains only quoted strings without escapes.
pub(super) fn parse_text_list(expression: &str) -> Option<BTreeSet<String>> {
    let mut rest = expression
        .trim()
        .strip_prefix('[')?
        .strip_suffix(']')?
        .trim();
    let mut texts = BTreeSet::new();
    while !rest.is_empty() {
        let quote = rest
            .chars()
            .next()
            .filter(|quote| matches!(quote, '\'' | '"'))?;
        let (text, after) = rest.get(1..)?.split_once(quote)?;
        if text.contains(['\\', '\n', '\r']) {
            return None;
        }
        texts.insert(text.to_owned());
        rest = after.trim_start();
        if !rest.is_empty() {
            rest = rest.strip_prefix(',')?.trim_start();
        }
    }
    Some(texts)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::ALL_POLICIES;
    use super::*;

    #[test]
    fn what_is_filled_in_is_what_is_compared() {
        let site = HubSite {
            namespace: "access".to_owned(),
            canary: "bird".to_owned(),
            username: "system:serviceaccount:access:keyferry".to_owned(),
            caller_audience: "callers.example.com".to_owned(),
            hub_audiences: ["https://hub.example.com".to_owned(), "api".to_owned()].into(),
        };
        let (first, last) = fill_manifests(&site, &MintableAudiences::Every).unwrap();
        let all = format!("{first}---\n{last}");
        assert!(
            !all.contains("keyferry-system")
                && !all.contains("k3s")
                && !last.contains("kind: ValidatingAdmissionPolicy\n")
        );
        let objects: Vec<serde_json::Value> = serde_saphyr::from_multiple(&all).unwrap();
        let of = |kind: &str, name: &str| {
            objects
                .iter()
                .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
                .unwrap()
        };
        for admission_policy in ALL_POLICIES {
            let (policy, binding) = (
                of("ValidatingAdmissionPolicy", admission_policy.policy_name()),
                of("ValidatingAdmissionPolicyBinding", admission_policy.name()),
            );
            assert_eq!(
                admission_policy.compare_with_shipped(policy, binding, &site),
                Ok(()),
                "{}",
                admission_policy.name()
            );
            assert_eq!(
                admission_policy.check_hub_audiences(policy, &site),
                Ok(()),
                "{}",
                admission_policy.name()
            );
        }
        assert!(
            first.contains("namespace: access"),
            "the rights are bound to the account there"
        );
    }

    #[test]
    fn what_would_end_its_quotes_is_not_written() {
        let with = |audience: &str| {
            let site = HubSite {
                hub_audiences: [audience.to_owned()].into(),
                ..HubSite::of_shipped_manifests()
            };
            fill_manifests(&site, &MintableAudiences::Every)
        };
        assert_eq!(
            fill_manifests(&HubSite::of_shipped_manifests(), &MintableAudiences::Every),
            Err(FillError::NoHubAudiences)
        );
        for audience in ["a'] + ['b", "a\"", "a\\", "", "a b", "a\nb"] {
            assert_eq!(
                with(audience),
                Err(FillError::Unquotable(audience.to_owned())),
                "{audience:?}"
            );
        }
        assert!(with("https://hub.example.com").is_ok());
    }

    #[test]
    fn keyferry_may_mint_for_the_listed_audiences_alone() {
        let site = HubSite {
            hub_audiences: ["api".to_owned()].into(),
            ..HubSite::of_shipped_manifests()
        };
        let names = |mintable: &MintableAudiences| {
            let (first, _) = fill_manifests(&site, mintable).unwrap();
            let objects: Vec<serde_json::Value> = serde_saphyr::from_multiple(&first).unwrap();
            let is_role = |object: &&serde_json::Value| {
                object["kind"] == "ClusterRole"
                    && object["metadata"]["name"] == "keyferry-audiences"
            };
            let role = objects.iter().find(is_role).unwrap();
            assert_eq!(role["rules"].as_array().unwrap().len(), 1);
            assert_eq!(role["rules"][0]["verbs"], json!(["mint"]));
            role["rules"][0]["resourceNames"].clone()
        };
        assert_eq!(names(&MintableAudiences::Every), serde_json::Value::Null);
        // Without a name, RBAC would allow every audience.
        assert_eq!(
            names(&MintableAudiences::Only(BTreeSet::new())),
            json!(["keyferry.dev/inert"])
        );
        let two = ["https://a.example.com", "b"].map(|name| Audience::new(name).unwrap());
        assert_eq!(
            names(&MintableAudiences::Only(two.into())),
            json!(["b", "https://a.example.com", "keyferry.dev/inert"])
        );
    }

    #[test]
    fn a_name_is_replaced_once() {
        let site = HubSite {
            namespace: "keyferry-canary".to_owned(),
            canary: "keyferry-system".to_owned(),
            ..HubSite::of_shipped_manifests()
        };
        assert_eq!(
            for_site("keyferry-system/keyferry-canary", &site),
            "keyferry-canary/keyferry-system"
        );
    }
}
