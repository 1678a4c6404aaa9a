//! Which external issuers are refused before a token could use them.

use std::time::Duration;

use super::{edited, mistakes_of, read};
use crate::config::{ExternalIssuer, TokenUse};

const GITHUB: &str = "  - url: https://token.actions.githubusercontent.com
    audience: https://keys.example.com
    rules:
      - claims: {repository_id: \"42\", ref: refs/heads/main}
      - claims: {repository_id: \"42\", environment: production}
    serviceAccount: {namespace: tenant-a, name: deployer}
";

const GITLAB: &str = "  - url: https://gitlab.example.com
    audience: https://keys.example.com
    rules:
      - claims: {project_id: \"7\", ref: main, ref_type: branch, ref_protected: \"true\"}
    serviceAccount: {namespace: tenant-b, name: deployer, uid: uid-1}
    maxTokenLifetime: 2h
    tokenUse: UntilExpiry
";

const GITLAB_RULE: &str =
    "{project_id: \"7\", ref: main, ref_type: branch, ref_protected: \"true\"}";

fn with(list: &str) -> String {
    edited(
        "hubName: hub\n",
        &format!("hubName: hub\nexternalIssuers:\n{list}"),
    )
}

fn issuers(list: &str) -> Vec<ExternalIssuer> {
    read(&with(list)).unwrap().server.external_issuers
}

/// The path and the problem of the only mistake.
fn mistake(list: &str) -> (String, String) {
    let mistakes = mistakes_of(&with(list));
    let [mistake] = mistakes.as_slice() else {
        panic!("not one mistake: {mistakes:?}");
    };
    assert!(!mistake.fix.is_empty() && mistake.line > 0, "{mistake}");
    (mistake.path.clone(), mistake.problem.clone())
}

#[test]
fn they_are_off_by_default_and_typed_when_written() {
    assert_eq!(read(super::GOOD).unwrap().server.external_issuers, []);
    let read = issuers(&format!("{GITHUB}{GITLAB}"));
    let [github, gitlab] = read.as_slice() else {
        panic!("two were written");
    };
    assert_eq!(github.rules.len(), 2);
    assert_eq!(github.service_account.to_string(), "tenant-a/deployer");
    assert_eq!(github.max_token_lifetime, Duration::from_secs(3600));
    assert_eq!(github.token_use, TokenUse::Once);
    assert_eq!(gitlab.max_token_lifetime, Duration::from_secs(7200));
    assert_eq!(gitlab.token_use, TokenUse::UntilExpiry);
    assert_eq!(
        gitlab.service_account_uid.as_ref().unwrap().as_str(),
        "uid-1"
    );
}

#[test]
fn a_rule_names_one_project_and_what_may_run_there() {
    for (rule, problem) in [
        (
            "{ref: refs/heads/main}",
            "has neither repository_id nor project_id",
        ),
        (
            "{repository: example/app, ref: refs/heads/main}",
            "has neither repository_id nor project_id",
        ),
        ("{repository_id: \"42\"}", "has neither ref nor environment"),
        (
            "{repository_id: \"42\", event_name: push}",
            "has neither ref nor environment",
        ),
        (
            "{project_id: \"7\", ref: main, ref_protected: \"true\"}",
            "has a short ref, and a branch and a tag can have the same name",
        ),
        (
            "{project_id: \"7\", ref: main, ref_type: branch}",
            "has a ref of GitLab that need not be protected",
        ),
        (
            "{project_id: \"7\", ref: main, ref_type: branch, ref_protected: \"false\"}",
            "has a ref of GitLab that need not be protected",
        ),
        (
            "{project_id: \"7\", ref: refs/heads/main, environment_protected: \"true\"}",
            "has a ref of GitLab that need not be protected",
        ),
        (
            "{project_id: \"7\", environment: production}",
            "has an environment of GitLab that any branch may name",
        ),
    ] {
        let list = GITLAB.replace(GITLAB_RULE, rule);
        let (path, found) = mistake(&list);
        assert_eq!(path, "externalIssuers[0].rules[0].claims", "{rule}");
        assert!(found.starts_with(problem), "{rule}: {found}");
    }
    for scope in [
        "environment: production, environment_protected: \"true\"",
        "ref: refs/heads/main, environment: production, environment_protected: \"true\"",
        "environment: production, ref_protected: \"true\"",
    ] {
        let list = GITLAB.replace(GITLAB_RULE, &format!("{{project_id: \"7\", {scope}}}"));
        assert_eq!(issuers(&list).len(), 1, "{scope}");
    }
}

/// One entry of a system.
fn entry_of(system: &str, url: &str, audience: &str, rule: &str) -> String {
    format!(
        "  - url: {url}\n    system: {system}\n    audience: {audience}\n    rules:\n      \
         - claims: {rule}\n    serviceAccount: {{namespace: tenant-a, name: deployer}}\n"
    )
}

#[test]
fn each_system_has_its_own_claims() {
    const OURS: &str = "https://keys.example.com";
    const AZURE: &str = "api://AzureADTokenExchange";
    for (system, url, audience, rule, token_use) in [
        (
            "AzureDevOps",
            "https://vstoken.dev.azure.com/1f0a",
            AZURE,
            "{prj_id: 1f0a, def_id: \"12\", rpo_ref: refs/heads/main}",
            TokenUse::Once,
        ),
        (
            "Bitbucket",
            "https://api.bitbucket.org/2.0/workspaces/team/pipelines-config/identity/oidc",
            OURS,
            "{repositoryUuid: \"{1f0a}\", branchName: main}",
            TokenUse::UntilExpiry,
        ),
        (
            "Buildkite",
            "https://agent.buildkite.com",
            OURS,
            "{pipeline_id: 1f0a, build_branch: main}",
            TokenUse::Once,
        ),
        (
            "CircleCI",
            "https://oidc.circleci.com/org/1f0a",
            OURS,
            "{oidc.circleci.com/project-id: 1f0a, oidc.circleci.com/vcs-ref: refs/heads/main}",
            TokenUse::UntilExpiry,
        ),
        (
            "Forgejo",
            "https://codeberg.org/api/actions",
            OURS,
            "{repository_id: \"42\", ref: refs/heads/main}",
            TokenUse::UntilExpiry,
        ),
        (
            "GitHub",
            "https://github.example.com/_services/token",
            OURS,
            "{repository_id: \"42\", environment: production}",
            TokenUse::Once,
        ),
        (
            "GitLab",
            "https://gitlab.com",
            OURS,
            GITLAB_RULE,
            TokenUse::UntilExpiry,
        ),
        (
            "GitHub",
            "https://token.actions.githubusercontent.com",
            OURS,
            "{sub: \"repo:acme@1/app@2:ref:refs/heads/main\"}",
            TokenUse::Once,
        ),
        (
            "Kubernetes",
            "https://oidc.eks.eu-west-1.amazonaws.com/id/1f0a",
            OURS,
            "{sub: \"system:serviceaccount:ci:runner\", /kubernetes.io/serviceaccount/uid: 1f0a}",
            TokenUse::UntilExpiry,
        ),
        (
            "Other",
            "https://accounts.google.com",
            OURS,
            "{sub: \"113774264463038321964\"}",
            TokenUse::UntilExpiry,
        ),
        (
            "Pulumi",
            "https://api.pulumi.com/oidc/v2",
            OURS,
            "{sub: \"pulumi:org:1f0a:env:2b\"}",
            TokenUse::UntilExpiry,
        ),
        (
            "SPIFFE",
            "https://spire.example.com",
            OURS,
            "{sub: spiffe://example.com/ns/team/sa/deployer}",
            TokenUse::UntilExpiry,
        ),
        (
            "TerraformCloud",
            "https://app.terraform.io",
            OURS,
            "{terraform_workspace_id: ws-1f0a, terraform_run_phase: apply}",
            TokenUse::UntilExpiry,
        ),
    ] {
        let mut list = entry_of(system, url, audience, rule);
        if system == "Other" {
            assert_eq!(mistake(&list).0, "externalIssuers[0].subject");
            list.push_str("    subject: Immutable\n");
        }
        let read = issuers(&list);
        assert_eq!(read[0].token_use, token_use, "{system}");
        // Without a claim, or with another form of it, the file is refused.
        let without = entry_of(system, url, audience, "{actor: x}");
        assert!(!mistakes_of(&with(&without)).is_empty(), "{system}");
        let star = entry_of(system, url, audience, &rule.replacen("1f0a", "1f0a*", 1));
        if star.contains('*') {
            let mistakes = mistakes_of(&with(&star));
            assert!(
                mistakes.iter().any(|it| it.problem.contains("a *")),
                "{system}: {mistakes:?}"
            );
        }
        // At the public host of another system its own checks would not hold.
        let public = match system {
            "Buildkite" => "https://app.terraform.io",
            _ => "https://agent.buildkite.com",
        };
        let elsewhere = list.replace(url, public);
        assert_eq!(
            mistake(&elsewhere).0,
            "externalIssuers[0].system",
            "{system}"
        );
    }
}

#[test]
fn a_value_that_meets_no_token_or_too_many_is_refused() {
    const OURS: &str = "https://keys.example.com";
    for (system, rule, claim) in [
        (
            "Bitbucket",
            "{repositoryUuid: 1f0a, branchName: main}",
            ".repositoryUuid",
        ),
        ("Forgejo", "{repository_id: \"1\", ref: main}", ".ref"),
        ("GitHub", "{repository_id: \"1\", ref: main}", ".ref"),
        (
            "Forgejo",
            "{repository_id: \"1\", ref: refs/heads/main, event_name: workflow_call}",
            ".event_name",
        ),
        ("Pulumi", "{sub: \"pulumi:deploy:org:team\"}", ".sub"),
        ("SPIFFE", "{sub: example.com/x}", ".sub"),
        ("Kubernetes", "{sub: runner}", ".sub"),
        ("Kubernetes", "{sub: \"system:serviceaccount:ci\"}", ".sub"),
        (
            "Kubernetes",
            "{sub: \"system:serviceaccount:ci:a:b\"}",
            ".sub",
        ),
        (
            "Kubernetes",
            "{sub: \"system:serviceaccount:ci:a\", kubernetes.io/serviceaccount/uid: x}",
            ".kubernetes.io/serviceaccount/uid",
        ),
        (
            "GitHub",
            "{sub: \"repo:acme/app:ref:refs/heads/main\", ref: refs/heads/main}",
            "",
        ),
        (
            "GitHub",
            "{sub: \"repo:acme@1/app@2:pull_request\", repository_id: \"2\"}",
            "",
        ),
        (
            "GitHub",
            "{repository_id: \"1\", ref: \"refs/heads/v[12]\"}",
            ".ref",
        ),
        (
            "Buildkite",
            "{pipeline_id: x, build_branch: ^main}",
            ".build_branch",
        ),
        (
            "Bitbucket",
            "{repositoryUuid: \"{x}\", branchName: \"release/?\"}",
            ".branchName",
        ),
        (
            "TerraformCloud",
            "{terraform_workspace_id: ws-1, terraform_run_phase: destroy}",
            ".terraform_run_phase",
        ),
        ("Buildkite", "{pipeline_id: x}", ""),
        ("Buildkite", "{build_branch: main, pipeline_slug: x}", ""),
        ("SPIFFE", "{sub: spiffe://a/b, /x~2: y}", "./x~2"),
        ("SPIFFE", "{sub: spiffe://a/b, /: y}", "./"),
        ("SPIFFE", "{sub: spiffe://a/b, /aud: y}", "./aud"),
        ("SPIFFE", "{sub: spiffe://a/b, /aud/0: y}", "./aud/0"),
    ] {
        let url = match system {
            "Bitbucket" => "https://api.bitbucket.org/x",
            "Buildkite" => "https://agent.buildkite.com",
            _ => "https://ci.example.com",
        };
        assert_eq!(
            mistake(&entry_of(system, url, OURS, rule)).0,
            format!("externalIssuers[0].rules[0].claims{claim}"),
            "{system}: {rule}"
        );
    }
    for (list, path) in [
        (
            entry_of(
                "CircleCI",
                "https://oidc.circleci.com/org/x",
                OURS,
                "{oidc.circleci.com/project-id: x, oidc.circleci.com/vcs-ref: refs/heads/x}",
            ) + "    tokenUse: Once\n",
            "tokenUse",
        ),
        (
            entry_of(
                "AzureDevOps",
                "https://vstoken.dev.azure.com/x",
                OURS,
                "{prj_id: x, def_id: \"1\", rpo_ref: refs/heads/main}",
            ),
            "audience",
        ),
        (
            entry_of(
                "GitHub",
                "https://ci.example.com",
                OURS,
                "{repository_id: \"1\", ref: refs/heads/main}",
            ) + "    subject: Immutable\n",
            "subject",
        ),
        (
            entry_of(
                "Jenkins",
                "https://ci.example.com",
                OURS,
                "{repository_id: \"1\", ref: refs/heads/main}",
            ),
            "system",
        ),
    ] {
        assert_eq!(mistake(&list).0, format!("externalIssuers[0].{path}"));
    }
}

#[test]
fn values_that_are_empty_or_checked_elsewhere_are_refused() {
    let rule = |further: &str| {
        let rule = format!("{{repository_id: \"42\", ref: refs/heads/main, {further}}}");
        mistake(&GITHUB.replace("{repository_id: \"42\", ref: refs/heads/main}", &rule)).0
    };
    assert_eq!(
        rule("actor: \"\""),
        "externalIssuers[0].rules[0].claims.actor"
    );
    for claim in ["iss", "aud", "exp", "nbf", "iat", "jti"] {
        assert_eq!(
            rule(&format!("{claim}: \"1\"")),
            format!("externalIssuers[0].rules[0].claims.{claim}")
        );
    }
    // A number would be another text in each reader.
    let number = GITHUB.replace("repository_id: \"42\", ref", "repository_id: 42, ref");
    assert!(mistake(&number).0.contains("repository_id"));
    assert_eq!(
        mistake(&GITHUB.replace("audience: https://keys.example.com", "audience: \"\"")).0,
        "externalIssuers[0].audience"
    );
    let long = GITLAB.replace("2h", "25h");
    assert_eq!(mistake(&long).0, "externalIssuers[0].maxTokenLifetime");
    let sometimes = GITLAB.replace("UntilExpiry", "Sometimes");
    assert_eq!(mistake(&sometimes).0, "externalIssuers[0].tokenUse");
}

#[test]
fn an_issuer_of_the_hub_or_of_keyferry_is_refused() {
    let named = |url: &str| GITLAB.replace("https://gitlab.example.com", url);
    for url in [
        "https://kubernetes.default.svc",
        "https://kubernetes.default.svc.cluster.local",
        "https://keyferry.example.com",
        "https://keyferry.example.com/issuers/prod",
        "https://KEYFERRY.example.com:443/issuers/prod",
        "http://gitlab.example.com",
    ] {
        assert_eq!(mistake(&named(url)).0, "externalIssuers[0].url", "{url}");
    }
    let pinned = |url: &str| {
        with(&named(url)).replace(
            "hubName: hub\n",
            "hubName: hub\nhub: {issuer: https://h.example.com}\n",
        )
    };
    for url in [
        "https://h.example.com",
        "https://h.example.com/",
        "https://H.example.com:443",
    ] {
        assert_eq!(mistakes_of(&pinned(url)).len(), 1, "{url}");
    }
    assert!(read(&pinned("https://h.example.com/other")).is_ok());
}

#[test]
fn two_entries_that_could_accept_one_token_are_refused() {
    let other = |rule: &str| {
        let other = GITHUB
            .replace("name: deployer", "name: releaser")
            .replace(
                "      - claims: {repository_id: \"42\", environment: production}\n",
                "",
            )
            .replace("{repository_id: \"42\", ref: refs/heads/main}", rule);
        format!("{GITHUB}{other}")
    };
    // A token has both the ref of the one rule and the environment of the other.
    for rule in [
        "{repository_id: \"42\", ref: refs/heads/main}",
        "{repository_id: \"42\", ref: refs/heads/main, event_name: push}",
        "{repository_id: \"42\", environment: staging}",
        "{project_id: \"7\", ref: refs/heads/main, ref_protected: \"true\"}",
    ] {
        let (path, problem) = mistake(&other(rule));
        assert_eq!(path, "externalIssuers[1].rules[0].claims", "{rule}");
        assert!(problem.contains("can accept the same token"), "{problem}");
    }
    for rule in [
        "{repository_id: \"43\", ref: refs/heads/main}",
        "{repository_id: \"42\", ref: refs/heads/next, environment: staging}",
    ] {
        assert_eq!(issuers(&other(rule)).len(), 2, "{rule}");
    }
    let same = other("{repository_id: \"42\", ref: refs/heads/main}");
    let elsewhere = same.replacen("keys.example.com", "keys2.example.com", 1);
    assert_eq!(issuers(&elsewhere).len(), 2, "no token has both audiences");
}

#[test]
fn one_issuer_has_one_spelling_and_one_authority() {
    let second = GITLAB.replace("\"7\"", "\"8\"");
    let slash = second.replace("https://gitlab.example.com", "https://gitlab.example.com/");
    assert_eq!(
        mistake(&format!("{GITLAB}{slash}")).0,
        "externalIssuers[1].url"
    );
    let authority = format!("{GITLAB}{second}    certificateAuthority: other\n");
    assert_eq!(
        mistake(&authority).0,
        "externalIssuers[1].certificateAuthority"
    );
    assert_eq!(issuers(&format!("{GITLAB}{second}")).len(), 2);
}

/// The longest list, in which every rule is compared with every other: all entries have one issuer
/// and one audience, and the claims that differ come last.
#[test]
// A figure is measured and shown, and decides nothing else.
#[allow(clippy::disallowed_methods, clippy::print_stderr)]
fn the_longest_list_is_read_in_50_ms() {
    let entries: String = (0..32)
        .map(|entry| {
            let rules: String = (0..64)
                .map(|rule| {
                    format!(
                        "    - claims: {{environment: production, ref: refs/heads/main, \
                         repository_id: \"{entry}{rule:02}\"}}\n"
                    )
                })
                .collect();
            format!(
                "  - url: https://token.actions.githubusercontent.com\n    system: GitHub\n    \
                 audience: https://keys.example.com\n    rules:\n{rules}    \
                 serviceAccount: {{namespace: tenant-a, name: account-{entry}}}\n"
            )
        })
        .collect();
    let text = with(&entries);
    let begin = std::time::Instant::now();
    let count: usize = read(&text)
        .unwrap()
        .server
        .external_issuers
        .iter()
        .map(|entry| entry.rules.len())
        .sum();
    let elapsed = begin.elapsed();
    assert_eq!(count, 2048);
    eprintln!("32 issuers x 64 rules were read and compared in {elapsed:?}");
    // Without optimisation it takes several times as long.
    assert!(
        cfg!(debug_assertions) || elapsed.as_millis() < 50,
        "{elapsed:?}"
    );
}
