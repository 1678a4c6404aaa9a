//! Traps of a file that loads: it does not mean what its author thinks.

use insta::assert_snapshot;

use super::*;

/// A file with one entry of an issuer, with more fields of that entry.
fn file(issuer: &str, audience: &str, rest: &str) -> String {
    format!("{HEAD}- issuer:\n    url: {issuer}\n    audiences: ['{audience}']\n{rest}")
}

const BY_SUB: &str = "  claimMappings:\n    username: {claim: sub, prefix: 'x:'}\n";

fn of(text: &str, code: Code) -> Vec<Finding> {
    lint_file(text.as_bytes(), Minor::V1_34, &[])
        .into_iter()
        .filter(|finding| finding.code == code)
        .collect()
}

fn with_rule(issuer: &str, rule: &str) -> String {
    let rule = serde_json::Value::from(rule);
    file(
        issuer,
        "prod",
        &format!("  claimValidationRules:\n  - expression: {rule}\n{BY_SUB}"),
    )
}

const GITHUB: &str = "https://token.actions.githubusercontent.com";

#[test]
fn a_public_issuer_without_a_rule_on_its_owner_is_an_error() {
    let mut shown = String::new();
    for issuer in [
        GITHUB,
        "https://gitlab.com",
        "https://codeberg.org/api/actions",
        "https://agent.buildkite.com",
        "https://oidc.circleci.com/org/0184990a-477b-4fa8-9968-496074483cee",
        "https://api.bitbucket.org/2.0/workspaces/acme/pipelines-config/identity/oidc",
        "https://vstoken.dev.azure.com/0184990a-477b-4fa8-9968-496074483cee",
        "https://accounts.google.com",
        "https://app.terraform.io",
        "https://api.pulumi.com/oidc",
        "https://acme.semaphoreci.com",
        "https://acme.app.spacelift.io",
        "https://oidc.vercel.com/acme",
        "https://oauth2.sigstore.dev/auth",
    ] {
        let open = of(&file(issuer, "prod", BY_SUB), Code::PublicIssuerOpen);
        assert_eq!(open.len(), 1, "{issuer}");
        assert_eq!(open[0].severity, Severity::Error, "{issuer}");
        shown += &format!("{issuer}\n{}\n", lines(&open));
        let limited = with_rule(issuer, "claims.sub == 'ours'");
        assert_eq!(of(&limited, Code::PublicIssuerOpen), [], "{issuer}");
    }
    assert_snapshot!("a-public-issuer-without-a-rule", shown);
    for other in [
        "https://hub",
        "https://gitlab.example.com",
        &format!("{GITHUB}/acme"),
    ] {
        assert_eq!(
            of(&file(other, "prod", BY_SUB), Code::PublicIssuerOpen),
            [],
            "{other}"
        );
    }
}

#[test]
fn a_rule_that_a_stranger_can_meet_does_not_close_a_public_issuer() {
    for rule in [
        "claims.ref == 'refs/heads/release'",
        "claims.environment in ['blue', 'green']",
        "claims.event_name == 'workflow_dispatch' && claims.ref.startsWith('refs/tags/v')",
        "claims.sub.endsWith(':environment:blue')",
        "claims.exp - claims.iat <= 3600",
        "!claims.repository.startsWith('acme/old')",
    ] {
        assert_eq!(
            of(&with_rule(GITHUB, rule), Code::PublicIssuerOpen).len(),
            1,
            "{rule}"
        );
    }
    for rule in [
        "claims.repository_id == '74'",
        "claims.repository == 'acme/app' && claims.ref == 'refs/heads/main'",
        "claims.repository_owner in ['acme']",
        "claims.sub.startsWith('repo:acme/')",
        "claims.sub in ['repo:acme/app:ref:refs/heads/main']",
    ] {
        assert_eq!(
            of(&with_rule(GITHUB, rule), Code::PublicIssuerOpen),
            [],
            "{rule}"
        );
    }
    let required = "  claimValidationRules:\n  - {claim: repository_owner, requiredValue: acme}\n";
    let text = file(GITHUB, "prod", &format!("{required}{BY_SUB}"));
    assert_eq!(of(&text, Code::PublicIssuerOpen), []);
    let by_user = "  userValidationRules:\n  - expression: user.username == 'x:repo:acme/app'\n";
    let text = file(GITHUB, "prod", &format!("{BY_SUB}{by_user}"));
    assert_eq!(of(&text, Code::PublicIssuerOpen), []);
}

#[test]
fn an_empty_prefix_claims_no_more_than_the_user_rules_let_through() {
    let with = |rules: &str| {
        let text = format!(
            "{HEAD}{}  userValidationRules:\n{rules}",
            entry("    username: {claim: name, prefix: ''}\n    groups: {claim: g, prefix: ''}\n")
        );
        let found = of(&text, Code::EmptyPrefix);
        assert_eq!(found.len(), 2, "{text}");
        lines(&found)
    };
    for (case, rules) in [
        (
            "a-rule-that-excludes-none",
            "  - expression: user.username != 'x'\n",
        ),
        // The rules that the documentation of Kubernetes has.
        (
            "rules-that-exclude-system",
            "  - expression: \"!user.username.startsWith('system:')\"\n  - expression: \
             \"user.groups.all(group, !group.startsWith('system:'))\"\n",
        ),
        (
            "rules-that-close-both",
            "  - expression: user.username in ['jane']\n  - expression: \
             \"user.groups.all(group, group.startsWith('dev') || group == 'a')\"\n",
        ),
        // A group that is demanded excludes no other one.
        (
            "a-rule-that-demands-a-group",
            "  - expression: \"'dev' in user.groups\"\n",
        ),
    ] {
        assert_snapshot!(format!("an-empty-prefix-and-{case}"), with(rules));
    }
}

#[test]
fn a_path_where_a_name_is_read_is_a_warning() {
    let mapped = |claim: &str| {
        let rest = format!(
            "    username: {{claim: sub, prefix: 'kc:'}}\n    groups: {{claim: '{claim}', prefix: \
             'kc:'}}\n"
        );
        of(&format!("{HEAD}{}", entry(&rest)), Code::ClaimIsPath)
    };
    let mut shown = String::new();
    for claim in [
        "realm_access.roles",
        "resource_access.my-app.roles",
        "$.roles",
        "claims.roles",
        "/realm_access/roles",
        "roles[*]",
    ] {
        let found = mapped(claim);
        assert_eq!(found.len(), 1, "{claim}");
        shown += &format!("{claim}\n{}\n", lines(&found));
    }
    assert_snapshot!("a-path-where-a-name-is-read", shown);
    for name in [
        "groups",
        "cognito:groups",
        "https://example.com/roles",
        "kubernetes.io",
        "a-b",
    ] {
        assert_eq!(mapped(name), [], "{name}");
    }
}

#[test]
fn texts_that_never_match_are_warnings() {
    let never = |text: &str| of(text, Code::NeverMatches);
    for audience in ["https://*.example.com", "a,b", "a b", " a"] {
        assert_eq!(
            never(&file("https://hub", audience, BY_SUB)).len(),
            1,
            "{audience}"
        );
    }
    for rule in [
        "claims.ref == 'refs/heads/*'",
        "claims.ref in ['refs/heads/main', 'refs/tags/*']",
        "claims.sub.startsWith('repo:acme/*')",
        "claims.sub == '^repo:acme/.+$'",
    ] {
        assert_eq!(never(&with_rule("https://hub", rule)).len(), 1, "{rule}");
    }
    for rule in [
        "claims.ref == 'refs/heads/main'",
        "claims.sub.matches('^repo:acme/.*$')",
        "claims.ref != 'refs/heads/*'",
    ] {
        assert_eq!(never(&with_rule("https://hub", rule)), [], "{rule}");
    }
    let required = "  claimValidationRules:\n  - {claim: ref, requiredValue: 'refs/heads/*'}\n";
    assert_eq!(
        never(&file("https://hub", "a", &format!("{required}{BY_SUB}"))).len(),
        1
    );
    let paths = "anonymous:\n  enabled: true\n  conditions: [{path: '/livez*'}, {path: readyz}, \
        {path: /healthz}]\n";
    assert_eq!(
        never(&format!("{}{paths}", file("https://hub", "a", BY_SUB))).len(),
        2
    );
}

#[test]
fn an_issuer_of_every_cluster_is_a_warning_unless_the_targets_are_known() {
    for issuer in [
        "https://kubernetes.default.svc.cluster.local",
        "https://kubernetes.default.svc",
        "https://kubernetes.default",
    ] {
        let text = file(issuer, "prod", BY_SUB);
        assert_eq!(of(&text, Code::IssuerOfEveryCluster).len(), 1, "{issuer}");
        let known = lint_file(text.as_bytes(), Minor::V1_34, &["https://other".to_owned()]);
        assert!(
            known
                .iter()
                .all(|one| one.code != Code::IssuerOfEveryCluster)
        );
    }
    assert_eq!(
        of(
            &file("https://hub", "a", BY_SUB),
            Code::IssuerOfEveryCluster
        ),
        []
    );
}

#[test]
fn a_template_that_nobody_rendered_is_named() {
    let helm =
        format!("{HEAD}{{{{- range .Values.issuers }}}}\n- issuer:\n    url: {{{{ .url }}}}\n");
    let found = lint_file(helm.as_bytes(), Minor::V1_34, &[]);
    assert_eq!(
        (found[0].code, found[0].line),
        (Code::TemplateNotRendered, Some(4)),
        "{found:?}"
    );
    for url in [
        "https://${ISSUER_HOST}/",
        "'{{ .Values.issuer }}'",
        "https://<tenant>.example.com",
    ] {
        let found = of(&file(url, "prod", BY_SUB), Code::TemplateNotRendered);
        assert_eq!(found.len(), 1, "{url}");
        assert_eq!(found[0].path, "jwt[0].issuer.url");
    }
    let comment = format!("# url: {{{{ .url }}}}\n{HEAD}- {{x: 1}}\n");
    assert_eq!(of(&comment, Code::TemplateNotRendered), []);
}

#[test]
fn a_path_where_certificates_belong_is_said_to_be_one() {
    let shown = [
        "/etc/kubernetes/oidc-ca.crt",
        "./ca.pem",
        "oidc-ca.pem",
        "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t",
        "AAAA",
    ]
    .map(|authority| {
        let text = file("https://hub", "a", BY_SUB).replace(
            "    audiences",
            &format!("    certificateAuthority: {authority}\n    audiences"),
        );
        let found = of(&text, Code::AuthorityNotCertificates);
        format!("{authority}\n{}", lines(&found))
    });
    assert_snapshot!("a-path-where-certificates-belong", shown.join("\n"));
}

#[test]
fn a_missing_anonymous_section_is_a_note() {
    let text = file("https://hub", "a", BY_SUB);
    let found = of(&text, Code::AnonymousNotStated);
    assert_eq!(found.len(), 1);
    assert_snapshot!("a-missing-anonymous-section", lines(&found));
    let stated = format!("{text}anonymous: {{enabled: false}}\n");
    assert_eq!(of(&stated, Code::AnonymousNotStated), []);
}
