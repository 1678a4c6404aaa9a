//! Issuers of CI systems and identity providers that give a token to everybody, or to every project
//! of an organisation: an entry needs a rule that limits whose tokens it accepts.
//!
//! A token of a stranger shows whether the rules limit that. It has the claims of the issuer's
//! tokens, and whatever its owner can choose freely, such as a branch, is chosen so that the rules
//! are met.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use keyferry_go_formats::json::Json;
use regex::Regex;

use super::{Finding, Severity, make_finding};
use crate::Code;
use crate::config::JwtAuthenticator;
use crate::token::Token;
use crate::validate::Compiled;
use crate::verify::{Keys, Outcome, verify_token};

/// An issuer, and a token of a stranger.
struct PublicIssuer {
    /// The host; one that begins with a dot is the end of a host.
    host: &'static str,
    /// What the path begins with.
    path: &'static str,
    /// Whose tokens it signs.
    signs_for: &'static str,
    /// A claim that only one's own jobs or users have.
    limit: &'static str,
    /// Claims of a stranger, which the stranger cannot choose.
    fixed: &'static [(&'static str, &'static str)],
    /// Claims that the stranger chooses.
    free: &'static [(&'static str, &'static str)],
}

const PUBLIC_ISSUERS: [PublicIssuer; 16] = [
    PublicIssuer {
        host: "token.actions.githubusercontent.com",
        path: "",
        signs_for: "every workflow of every repository on GitHub",
        limit: "claims.repository_id == '1234'",
        fixed: &[
            ("sub", "repo:stranger/project:ref:refs/heads/main"),
            ("repository", "stranger/project"),
            ("repository_id", "1"),
            ("repository_owner", "stranger"),
            ("repository_owner_id", "2"),
            ("repository_visibility", "private"),
            ("actor", "stranger"),
            ("actor_id", "2"),
            (
                "workflow_ref",
                "stranger/project/.github/workflows/ci.yaml@refs/heads/main",
            ),
            (
                "job_workflow_ref",
                "stranger/project/.github/workflows/ci.yaml@refs/heads/main",
            ),
            ("run_id", "3"),
            ("run_number", "1"),
            ("run_attempt", "1"),
            ("sha", "0000000000000000000000000000000000000000"),
        ],
        free: &[
            ("ref", "refs/heads/main"),
            ("ref_type", "branch"),
            ("ref_protected", "true"),
            ("environment", "production"),
            ("event_name", "push"),
            ("workflow", "ci"),
            ("runner_environment", "github-hosted"),
            ("base_ref", ""),
            ("head_ref", ""),
        ],
    },
    PublicIssuer {
        host: "gitlab.com",
        path: "",
        signs_for: "every pipeline of every project on gitlab.com",
        limit: "claims.project_id == '1234'",
        fixed: &[
            (
                "sub",
                "project_path:stranger/project:ref_type:branch:ref:main",
            ),
            ("project_path", "stranger/project"),
            ("project_id", "1"),
            ("namespace_path", "stranger"),
            ("namespace_id", "2"),
            ("user_id", "3"),
            ("user_login", "stranger"),
            ("user_email", "stranger@stranger.example"),
            ("pipeline_id", "4"),
            ("job_id", "5"),
            ("project_visibility", "private"),
        ],
        free: &[
            ("ref", "main"),
            ("ref_type", "branch"),
            ("ref_path", "refs/heads/main"),
            ("ref_protected", "true"),
            ("environment", "production"),
            ("environment_protected", "true"),
            ("deployment_tier", "production"),
            ("pipeline_source", "push"),
            ("runner_environment", "gitlab-hosted"),
        ],
    },
    forgejo_issuer(
        "codeberg.org",
        "every workflow of every repository on Codeberg",
    ),
    forgejo_issuer(
        "gitea.com",
        "every workflow of every repository on gitea.com",
    ),
    PublicIssuer {
        host: "agent.buildkite.com",
        path: "",
        signs_for: "every pipeline of every organisation on Buildkite",
        limit: "claims.pipeline_id == 'UUID'",
        fixed: &[
            (
                "sub",
                "organization:stranger:pipeline:project:ref:refs/heads/main:commit:0:step:a",
            ),
            ("organization_slug", "stranger"),
            ("organization_id", "1"),
            ("pipeline_id", "2"),
            ("build_number", "1"),
        ],
        free: &[
            ("pipeline_slug", "project"),
            ("build_branch", "main"),
            ("build_tag", ""),
            ("step_key", "a"),
            ("runner_environment", "self-hosted"),
        ],
    },
    PublicIssuer {
        host: "oidc.circleci.com",
        path: "/org/",
        signs_for: "every project of that organisation on CircleCI",
        limit: "claims['oidc.circleci.com/project-id'] == 'UUID'",
        fixed: &[
            ("sub", "org/1/project/2/user/3"),
            ("oidc.circleci.com/project-id", "2"),
        ],
        free: &[("oidc.circleci.com/vcs-ref", "refs/heads/main")],
    },
    PublicIssuer {
        host: "api.bitbucket.org",
        path: "/2.0/workspaces/",
        signs_for: "every repository of that workspace on Bitbucket",
        limit: "claims.repositoryUuid == '{UUID}'",
        fixed: &[
            ("sub", "{1}:{2}"),
            ("repositoryUuid", "{1}"),
            ("pipelineUuid", "{2}"),
            ("stepUuid", "{3}"),
        ],
        free: &[("branchName", "main"), ("deploymentEnvironmentUuid", "{4}")],
    },
    PublicIssuer {
        host: "vstoken.dev.azure.com",
        path: "",
        signs_for: "every pipeline of that organisation on Azure DevOps",
        limit: "claims.prj_id == 'UUID'",
        fixed: &[
            ("sub", "p://stranger/project/pipeline"),
            ("prj_id", "1"),
            ("def_id", "2"),
            ("org_id", "3"),
            ("rpo_id", "4"),
        ],
        free: &[("rpo_ref", "refs/heads/main"), ("run_id", "5")],
    },
    PublicIssuer {
        host: "accounts.google.com",
        path: "",
        signs_for: "every account and service account of Google",
        limit: "claims.sub == '1234'",
        fixed: &[
            ("sub", "1"),
            ("azp", "1"),
            ("email", "stranger@stranger.example"),
            ("hd", "stranger.example"),
        ],
        free: &[
            ("name", "Stranger"),
            ("given_name", "S"),
            ("family_name", "T"),
        ],
    },
    terraform_issuer("app.terraform.io"),
    terraform_issuer("app.eu.terraform.io"),
    PublicIssuer {
        host: "api.pulumi.com",
        path: "/oidc",
        signs_for: "every organisation on Pulumi Cloud",
        limit: "claims.sub == 'pulumi:deploy:org:acme:project:infra:stack:prod:operation:update:scope:write'",
        fixed: &[
            (
                "sub",
                "pulumi:deploy:org:stranger:project:a:stack:b:operation:update:scope:write",
            ),
            ("org", "stranger"),
        ],
        free: &[("project", "a"), ("stack", "b"), ("operation", "update")],
    },
    PublicIssuer {
        host: ".semaphoreci.com",
        path: "",
        signs_for: "every project of that organisation on Semaphore",
        limit: "claims.prj_id == 'UUID'",
        fixed: &[
            (
                "sub",
                "org:stranger:project:1:repo:a:ref_type:branch:ref:refs/heads/main",
            ),
            ("prj_id", "1"),
            ("org_id", "2"),
            ("repo_slug", "stranger/a"),
        ],
        free: &[
            ("branch", "main"),
            ("ref", "refs/heads/main"),
            ("ref_type", "branch"),
            ("repo", "a"),
            ("prj", "a"),
        ],
    },
    PublicIssuer {
        host: ".app.spacelift.io",
        path: "",
        signs_for: "every stack of that account on Spacelift",
        limit: "claims.callerId == 'prod'",
        fixed: &[
            ("sub", "space:stranger:stack:a:run_type:TRACKED:scope:write"),
            ("spaceId", "stranger"),
            ("callerId", "a"),
        ],
        free: &[
            ("runType", "TRACKED"),
            ("scope", "write"),
            ("callerType", "stack"),
        ],
    },
    PublicIssuer {
        host: "oidc.vercel.com",
        path: "",
        signs_for: "every project on Vercel, or of that team",
        limit: "claims.project_id == 'prj_1234'",
        fixed: &[
            ("sub", "owner:stranger:project:a:environment:production"),
            ("owner", "stranger"),
            ("owner_id", "1"),
            ("project_id", "2"),
        ],
        free: &[("project", "a"), ("environment", "production")],
    },
    PublicIssuer {
        host: "oauth2.sigstore.dev",
        path: "/auth",
        signs_for: "everybody with an account at GitHub, Google or Microsoft",
        limit: "claims.email == 'jane@example.com'",
        fixed: &[("sub", "stranger"), ("email", "stranger@stranger.example")],
        free: &[("name", "Stranger")],
    },
];

const fn forgejo_issuer(host: &'static str, signs_for: &'static str) -> PublicIssuer {
    PublicIssuer {
        host,
        path: "",
        signs_for,
        limit: "claims.repository_id == '1234'",
        fixed: &[
            ("sub", "repo:stranger/project:ref:refs/heads/main"),
            ("repository", "stranger/project"),
            ("repository_id", "1"),
            ("repository_owner", "stranger"),
            ("repository_owner_id", "2"),
            ("actor", "stranger"),
            ("actor_id", "2"),
            (
                "workflow_ref",
                "stranger/project/.forgejo/workflows/ci.yaml@refs/heads/main",
            ),
        ],
        free: &[
            ("ref", "refs/heads/main"),
            ("ref_type", "branch"),
            ("ref_protected", "true"),
            ("event_name", "push"),
            ("workflow", "ci.yaml"),
            ("environment", "production"),
        ],
    }
}

const fn terraform_issuer(host: &'static str) -> PublicIssuer {
    PublicIssuer {
        host,
        path: "",
        signs_for: "every workspace of every organisation on HCP Terraform",
        limit: "claims.terraform_workspace_id == 'ws-1234'",
        fixed: &[
            (
                "sub",
                "organization:stranger:project:a:workspace:b:run_phase:apply",
            ),
            ("terraform_organization_id", "org-1"),
            ("terraform_organization_name", "stranger"),
            ("terraform_project_id", "prj-1"),
            ("terraform_workspace_id", "ws-1"),
            ("terraform_run_id", "run-1"),
        ],
        free: &[
            ("terraform_project_name", "a"),
            ("terraform_workspace_name", "b"),
            ("terraform_run_phase", "apply"),
        ],
    }
}

/// A text to which a rule compares a claim.
static COMPARISON_PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r#"claims(?:\.|\[['"])([\w./-]+?)(?:['"]\])?\s*(==|in\s*\[|\.startsWith\(|\.endsWith\(|\.contains\()\s*['"]([^'"]*)['"]"#,
    )
    .ok()
});

/// The time at which the stranger's token is issued and verified.
const ISSUED_AT: i64 = 1_790_000_000;
const TOKEN_LIFETIME_SECONDS: i64 = 300;

/// Finds entries of public issuers that accept the token of a stranger.
pub(super) fn find_public_issuers(compiled: &Compiled, findings: &mut Vec<Finding>) {
    for (index, authenticator) in compiled.authenticators.iter().enumerate() {
        let config = &authenticator.config;
        let Some(issuer) = public_issuer(&config.issuer.url) else {
            continue;
        };
        let tokens = outsider_tokens(issuer, config);
        let accepted = tokens
            .iter()
            .find_map(|claims| accepted_as(compiled, index, claims));
        let Some(username) = accepted else { continue };
        let message = format!(
            "{} signs tokens for {}, and no rule refuses those of others: a stranger would be the \
             user {username:?}.",
            config.issuer.url, issuer.signs_for
        );
        findings.push(Finding {
            fix: format!(
                "add a rule on a claim that only your own have, like `{}`",
                issuer.limit
            )
            .into(),
            ..make_finding(
                Code::PublicIssuerOpen,
                Severity::Error,
                &format!("jwt[{index}].claimValidationRules"),
                message,
            )
        });
    }
}

fn public_issuer(url: &str) -> Option<&'static PublicIssuer> {
    let rest = url.strip_prefix("https://")?;
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host
        .strip_suffix(":443")
        .unwrap_or(host)
        .to_ascii_lowercase();
    PUBLIC_ISSUERS.iter().find(|issuer| {
        let same = if issuer.host.starts_with('.') {
            host.ends_with(issuer.host)
        } else {
            host == issuer.host
        };
        // GitHub gives enterprises an issuer of their own, with a path.
        let is_own = issuer.host == "token.actions.githubusercontent.com" && path.len() > 1;
        same && path.starts_with(issuer.path) && !is_own
    })
}

/// The user as which the target accepts a token with these claims.
fn accepted_as(compiled: &Compiled, index: usize, claims: &[(String, Json)]) -> Option<String> {
    let token = Token::imagine_claims(Json::Object(claims.to_vec()));
    let now = Timestamp::from_second(ISSUED_AT).ok()?;
    let verdict = verify_token(compiled, &token, &Keys::none(), now);
    match verdict.outcomes.into_iter().nth(index)? {
        Outcome::Accepted(user) => Some(user.username),
        _ => None,
    }
}

/// Builds tokens of a stranger: with one audience as a text and as a list, with the free claims as
/// the rules want them, and with a subject that ends as they want it.
fn outsider_tokens(issuer: &PublicIssuer, config: &JwtAuthenticator) -> Vec<Vec<(String, Json)>> {
    let text = |text: &str| Json::Text(text.to_owned());
    let wanted = compared_claims(config);
    let mut claims: BTreeMap<String, Json> = BTreeMap::new();
    claims.insert("iss".to_owned(), text(&config.issuer.url));
    for (name, value) in [("iat", 0), ("nbf", 0), ("exp", TOKEN_LIFETIME_SECONDS)] {
        claims.insert(
            name.to_owned(),
            Json::Number((ISSUED_AT + value).to_string()),
        );
    }
    claims.insert("jti".to_owned(), text("1"));
    claims.insert("email_verified".to_owned(), Json::Bool(true));
    for (name, value) in issuer.fixed {
        claims.insert((*name).to_owned(), text(value));
    }
    for (name, value) in issuer.free {
        let value = wanted
            .iter()
            .find(|(claim, ..)| claim == name)
            .map_or(*value, |(_, _, value)| value.as_str());
        claims.insert((*name).to_owned(), text(value));
    }
    let subject = issuer.fixed.iter().find(|(name, _)| *name == "sub");
    let subject = subject.map_or("", |(_, subject)| subject);
    // The end of a subject, like a branch or an environment, is the stranger's choice too.
    let ends = wanted
        .iter()
        .filter(|(claim, comparison, _)| claim == "sub" && comparison == ".endsWith(")
        .map(|(_, _, end)| format!("{subject}{end}"));
    let subjects: Vec<String> = [subject.to_owned()].into_iter().chain(ends).collect();
    let audience = config.issuer.audiences.first().map_or("", String::as_str);
    let mut tokens = Vec::new();
    for subject in &subjects {
        for audience in [text(audience), Json::List(vec![text(audience)])] {
            let mut claims = claims.clone();
            claims.insert("sub".to_owned(), text(subject));
            claims.insert("aud".to_owned(), audience);
            tokens.push(claims.into_iter().collect());
        }
    }
    tokens
}

/// Returns claim, comparison and value of each comparison in the rules.
fn compared_claims(config: &JwtAuthenticator) -> Vec<(String, String, String)> {
    let mut wanted = Vec::new();
    for rule in &config.claim_validation_rules {
        if !rule.claim.is_empty() {
            wanted.push((
                rule.claim.clone(),
                "==".to_owned(),
                rule.required_value.clone(),
            ));
        }
        let Some(compared) = COMPARISON_PATTERN.as_ref() else {
            continue;
        };
        for found in compared.captures_iter(&rule.expression) {
            let part = |at: usize| found.get(at).map_or("", |part| part.as_str()).to_owned();
            wanted.push((part(1), part(2), part(3)));
        }
    }
    wanted
}
