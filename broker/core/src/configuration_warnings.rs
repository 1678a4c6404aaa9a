//! What a valid configuration says that is likely to be a mistake, for `keyferry serve --check`.

use jiff::Timestamp;
use keyferry_api::config::{
    CertificateSource, Configuration, EventClaim, ExternalIssuer, GITHUB_EVENT, GITLAB_EVENT,
    TargetCluster,
};
use keyferry_keys::ca_bundle::CaBundle;

use crate::address_warning::address_warning;

/// The API audiences that distributions give a hub's own apiserver.
const DISTRIBUTIONS_AUDIENCES: [&str; 6] = [
    "https://kubernetes.default.svc",
    "https://kubernetes.default.svc.cluster.local",
    "kubernetes.default.svc",
    "api",
    "k3s",
    "rke2",
];

/// Each warning as one line, with its fix.
pub fn configuration_warnings(configuration: &Configuration, now: Timestamp) -> Vec<String> {
    let targets = configuration.policy.targets.values();
    let issuers = configuration.server.external_issuers.iter();
    targets
        .flat_map(|target| target_warnings(target, now))
        .chain(issuers.flat_map(issuer_warnings))
        .collect()
}

fn target_warnings(target: &TargetCluster, now: Timestamp) -> Vec<String> {
    let of_target = |problem: String| format!("TargetCluster {}: {problem}", target.name);
    let mut warnings = Vec::new();
    if let Some(warning) = address_warning(&target.address).filter(|_| target.is_cluster()) {
        warnings.push(of_target(format!("spec.address: {warning}")));
    }
    if let CertificateSource::Inline(pem) = &target.certificate
        && let Err(error) = CaBundle::from_pem(pem.as_bytes(), now)
    {
        warnings.push(of_target(format!(
            "spec.caBundle: {error}, so no token is issued; fix: {}",
            error.fix()
        )));
    }
    if DISTRIBUTIONS_AUDIENCES.contains(&target.audience.as_str()) {
        warnings.push(of_target(format!(
            "spec.audience {} is the one that distributions give to a cluster's own apiserver; if \
             the hub has it, Keyferry issues no token (AudienceIsHubs); fix: write the target's \
             own, such as its address",
            target.audience
        )));
    }
    warnings
}

fn issuer_warnings(issuer: &ExternalIssuer) -> Vec<String> {
    let mut warnings = Vec::new();
    if issuer.url.as_str().ends_with('/') {
        warnings.push(format!(
            "externalIssuers {}: a URL with a slash at its end meets no token of an issuer that \
             writes none; fix: compare it with the `iss` of a token",
            issuer.url
        ));
    }
    let events: Vec<&EventClaim> = match issuer.system {
        Some(system) => system.facts().event.into_iter().collect(),
        None => vec![&GITHUB_EVENT, &GITLAB_EVENT],
    };
    for rule in &issuer.rules {
        for (name, value) in &rule.claims {
            let is_of_outsiders = events
                .iter()
                .any(|event| event.name == name && !event.by_members.contains(&value.as_str()));
            let problem = claim_problem(name, value).or(is_of_outsiders.then_some(
                "may be caused by those who may not write to the project; fix: be sure that its \
                 job runs no code of theirs, or remove the claim",
            ));
            if let Some(problem) = problem {
                warnings.push(format!(
                    "externalIssuers {}: the rule's {name} {value:?} {problem}",
                    issuer.url
                ));
            }
        }
    }
    warnings
}

/// Why a rule with this value is likely to meet no token: texts are compared byte for byte.
fn claim_problem(name: &str, value: &str) -> Option<&'static str> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if value.contains('*') || value.starts_with('^') || value.ends_with('$') {
        return Some(
            "is compared as it is written, so it meets no token; fix: write one rule for each \
             value",
        );
    }
    if value.trim() != value {
        return Some("begins or ends with white space, so it meets no token; fix: remove it");
    }
    match name {
        "repository_id" | "project_id" | "repository_owner_id" | "namespace_id"
            if !is_number(value) =>
        {
            Some("is no number, so it meets no token of GitHub or GitLab; fix: write the number")
        }
        "ref" if value.starts_with("heads/") || value.starts_with("tags/") => {
            Some("is a part of a ref; fix: write the whole one, such as refs/heads/main")
        }
        "sub" | "repository" | "project_path" if value.contains("://") => {
            Some("is a URL, and CI systems write a path; fix: compare it with a token's claim")
        }
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use keyferry_api::config;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::configuration_warnings;

    const NOW: i64 = 1_790_000_000;

    fn warnings(objects: &str) -> Vec<String> {
        let text = format!("{}{objects}", crate::import::TEST_HEAD);
        let configuration = config::read(&text).unwrap();
        configuration_warnings(&configuration, jiff::Timestamp::from_second(NOW).unwrap())
    }

    fn target(spec: &str) -> String {
        format!(
            "apiVersion: keyferry.dev/v1alpha1\nkind: TargetCluster\nmetadata: {{name: prod}}\n\
             spec: {{{spec}}}\n"
        )
    }

    fn expired_ca() -> String {
        let mut parameters = CertificateParams::new([]).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let at = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(NOW as u64 - 86_400);
        parameters.not_after = at.into();
        let key = KeyPair::generate().unwrap();
        parameters.self_signed(&key).unwrap().pem()
    }

    #[test]
    fn what_is_valid_and_cannot_work_is_warned_of() {
        let good = "address: 'https://prod.example.com', audience: 'https://prod.example.com'";
        assert_eq!(warnings(&target(good)), Vec::<String>::new());
        let ca = serde_json::to_string(&expired_ca()).unwrap();
        for (spec, says) in [
            (
                "address: 'https://127.0.0.1:6443', audience: a".to_owned(),
                "address of this machine",
            ),
            (
                "address: 'https://kubernetes.default.svc', audience: a".to_owned(),
                "the hub itself",
            ),
            (format!("{good}, caBundle: {ca}"), "expired at"),
            (
                "address: 'https://prod.example.com', audience: \
                 'https://kubernetes.default.svc.cluster.local'"
                    .to_owned(),
                "AudienceIsHubs",
            ),
        ] {
            let warned = warnings(&target(&spec));
            assert!(
                warned.len() == 1 && warned[0].contains(says),
                "{spec}: {warned:?}"
            );
            assert!(warned[0].starts_with("TargetCluster prod: "), "{warned:?}");
        }
    }

    #[test]
    fn rules_that_meet_no_token_are_warned_of() {
        for (name, value, warns) in [
            ("ref", "refs/heads/main", false),
            ("ref", "refs/heads/*", true),
            ("ref", "^refs/heads/main$", true),
            ("ref", "heads/main", true),
            ("repository_id", "acme/app", true),
            ("repository_id", "123", false),
            ("environment", "production ", true),
            ("repository", "https://github.com/acme/app", true),
            ("sub", "repo:acme/app:ref:refs/heads/main", false),
        ] {
            assert_eq!(
                super::claim_problem(name, value).is_some(),
                warns,
                "{name}: {value}"
            );
        }
    }
}
