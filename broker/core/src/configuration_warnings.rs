//! What a valid configuration says that is likely to be a mistake, for `keyferry serve --check`.

use jiff::Timestamp;
use keyferry_api::config::{
    CertificateSource, ClaimRule, Configuration, EventClaim, ExternalIssuer, ExternalSystem,
    GITHUB_EVENT, GITLAB_EVENT, TargetCluster,
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
    if issuer.url.as_str() == "https://accounts.google.com" {
        warnings.push(format!(
            "externalIssuers {}: it publishes its keys at another origin, where the server reads \
             none, so no token of it is accepted; fix: use the identity of another system",
            issuer.url
        ));
    }
    for rule in &issuer.rules {
        let admits = issuer
            .system
            .and_then(|system| wide_rule_problem(system, rule));
        warnings.extend(
            admits.map(|problem| format!("externalIssuers {}: the rule {problem}", issuer.url)),
        );
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

/// How a rule admits more than it seems to say, which no other claim of it prevents.
fn wide_rule_problem(system: ExternalSystem, rule: &ClaimRule) -> Option<&'static str> {
    let has = |name: &str| rule.claims.contains_key(name);
    match system {
        ExternalSystem::AzureDevOps => Some(
            "admits a token that a job sends to any other service, because all of them have one \
             audience; fix: let the job log in to services alone that you trust",
        ),
        ExternalSystem::Buildkite if !has("cluster_id") && !has("queue_id") => Some(
            "admits a branch of that name in a fork, if the pipeline builds forks without a prefix; \
             fix: turn that off, or add the queue_id of agents that build none",
        ),
        ExternalSystem::CircleCI if !has("oidc.circleci.com/vcs-origin") => Some(
            "admits a branch of that name in a fork, if forks get secrets; fix: add \
             oidc.circleci.com/vcs-origin",
        ),
        ExternalSystem::Forgejo if !has("ref_protected") => Some(
            "admits a ref that no rule of Forgejo need protect; fix: add ref_protected: \"true\"",
        ),
        ExternalSystem::Kubernetes if !has("/kubernetes.io/serviceaccount/uid") => Some(
            "admits a ServiceAccount that somebody recreates under that name; fix: add its \
             metadata.uid as /kubernetes.io/serviceaccount/uid",
        ),
        ExternalSystem::TerraformCloud
            if rule.claims.get("terraform_run_phase").map(String::as_str) == Some("plan") =>
        {
            Some(
                "admits plans, which run the code of a pull request before anyone has read it; \
                 fix: be sure that the ServiceAccount may only read",
            )
        }
        _ => None,
    }
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
        "sub" | "repository" | "project_path"
            if value.contains("://") && !value.starts_with("spiffe://") =>
        {
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

    /// An entry with this URL, rule and further fields.
    fn entry(url: &str, rule: &str, further: &str) -> String {
        format!(
            "{}externalIssuers:\n- url: {url}\n  audience: https://keys.example.com\n  \
             rules: [{{claims: {rule}}}]\n  serviceAccount: {{namespace: a, name: b}}\n{further}",
            crate::import::TEST_HEAD.trim_end_matches("---\n")
        )
    }

    /// What `serve --check` says to an entry: the first mistake with its fix, or all warnings.
    fn said(text: &str) -> Result<String, String> {
        let now = jiff::Timestamp::from_second(NOW).unwrap();
        match config::read(text) {
            Ok(configuration) => Ok(configuration_warnings(&configuration, now).join("\n")),
            Err(mistakes) => {
                let first = mistakes.mistakes.first().unwrap();
                Err(format!("{} {}; {}", first.path, first.problem, first.fix))
            }
        }
    }

    /// A public report of a rule for a system that the configuration did not know: its entry as
    /// written, with the system named, and what each gets.
    struct Report {
        url: &'static str,
        rule: &'static str,
        /// Of the entry as written: words of the mistake, or of the warning.
        written: Result<&'static str, &'static str>,
        /// The lines that name the system.
        system: &'static str,
        named: Result<&'static str, &'static str>,
    }

    const REPORTS: [Report; 10] = [
        Report {
            url: "https://agent.buildkite.com",
            rule: "{organization_slug: acme, pipeline_slug: app, build_branch: main}",
            written: Err("write system: Buildkite into the entry"),
            system: "  system: Buildkite\n",
            named: Err("has not pipeline_id"),
        },
        Report {
            url: "https://agent.buildkite.com",
            rule: "{organization_id: 1f0a, pipeline_id: 2b3c, build_branch: main}",
            written: Err("write system: Buildkite into the entry"),
            system: "  system: Buildkite\n",
            named: Ok("in a fork"),
        },
        Report {
            url: "https://oidc.circleci.com/org/1f0a",
            rule: "{oidc.circleci.com/project-id: 2b3c, oidc.circleci.com/vcs-ref: refs/heads/main}",
            written: Err("write system: CircleCI into the entry"),
            system: "  system: CircleCI\n",
            named: Ok("vcs-origin"),
        },
        Report {
            url: "https://vstoken.dev.azure.com/1f0a",
            rule: "{prj_id: 2b3c, def_id: '12', rpo_ref: refs/heads/main}",
            written: Err("write system: AzureDevOps into the entry"),
            system: "  system: AzureDevOps\n",
            named: Err("write api://AzureADTokenExchange"),
        },
        Report {
            url: "https://accounts.google.com",
            rule: "{sub: '1234567890'}",
            written: Err("write system"),
            system: "  system: Other\n  subject: Immutable\n",
            named: Ok("at another origin"),
        },
        Report {
            url: "https://spire.example.com",
            rule: "{sub: spiffe://example.com/ns/a/sa/b}",
            written: Err("write system"),
            system: "  system: SPIFFE\n",
            named: Ok(""),
        },
        Report {
            url: "https://keycloak.example.com/realms/corp",
            rule: "{azp: ci-robot, sub: f3a1}",
            written: Err("write system"),
            system: "  system: Other\n  subject: Immutable\n",
            named: Ok(""),
        },
        Report {
            url: "https://oidc.eks.eu-west-1.amazonaws.com/id/ABCDEF",
            rule: "{sub: 'system:serviceaccount:ci:runner'}",
            written: Err("write system"),
            system: "  system: Kubernetes\n",
            named: Ok("recreates"),
        },
        Report {
            url: "https://token.actions.githubusercontent.com",
            rule: "{repository_id: '74', ref: refs/heads/*}",
            written: Ok("it meets no token"),
            system: "  system: GitHub\n",
            named: Err("has a *"),
        },
        Report {
            url: "https://kubernetes.default.svc.cluster.local",
            rule: "{sub: 'system:serviceaccount:ci:runner'}",
            written: Err("distributions give to every cluster"),
            system: "  system: Kubernetes\n",
            named: Err("distributions give to every cluster"),
        },
    ];

    #[test]
    fn each_reported_rule_is_taken_or_refused_with_its_reason() {
        for report in &REPORTS {
            let (url, rule) = (report.url, report.rule);
            for (further, expected) in [("", report.written), (report.system, report.named)] {
                let shown = said(&entry(url, rule, further));
                let matches = match (&shown, expected) {
                    (Ok(shown), Ok("")) => shown.is_empty(),
                    (Ok(shown), Ok(words)) | (Err(shown), Err(words)) => shown.contains(words),
                    _ => false,
                };
                assert!(matches, "{url} {rule} {further}: {shown:?}");
            }
        }
    }

    #[test]
    fn a_rule_that_admits_more_than_it_says_is_warned_of() {
        let uid = "{sub: 'system:serviceaccount:ci:runner', /kubernetes.io/serviceaccount/uid: x}";
        for (system, rule, words) in [
            ("Kubernetes", uid, ""),
            (
                "TerraformCloud",
                "{terraform_workspace_id: ws-1, terraform_run_phase: plan}",
                "admits plans",
            ),
            (
                "TerraformCloud",
                "{terraform_workspace_id: ws-1, terraform_run_phase: apply}",
                "",
            ),
            (
                "Forgejo",
                "{repository_id: '1', ref: refs/heads/main}",
                "ref_protected",
            ),
            (
                "Forgejo",
                "{repository_id: '1', ref: refs/heads/main, ref_protected: 'true'}",
                "",
            ),
            (
                "GitHub",
                "{repository_id: '1', ref: refs/heads/main, event_name: pull_request_target}",
                "may be caused by those who may not write",
            ),
            (
                "GitHub",
                "{repository_id: '1', environment: 'production '}",
                "white space",
            ),
        ] {
            let text = entry(
                "https://x.example.com",
                rule,
                &format!("  system: {system}\n"),
            );
            let warned = said(&text).unwrap();
            assert!(
                warned.contains(words) && warned.is_empty() == words.is_empty(),
                "{system} {rule}: {warned}"
            );
        }
    }
}
