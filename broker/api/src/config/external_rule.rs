//! Rules of an external issuer: claims that a token must have, each with exactly one text.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::check::Check;
use super::external_system::ExternalSystem;

/// Claims whose value stays with one project: after a rename or a deletion no other project gets
/// it. Names of projects and owners are not such claims.
const IMMUTABLE_CLAIMS: [&str; 2] = ["repository_id", "project_id"];
/// Claims that name the ref or the environment. Without one, every branch of the project could use
/// the rule.
const SCOPE_CLAIMS: [&str; 2] = ["ref", "environment"];
/// Claims that Keyferry checks itself, or that differ in every token.
const RESERVED_CLAIMS: [&str; 6] = ["aud", "exp", "iat", "iss", "jti", "nbf"];

pub(super) const MAX_RULES: usize = 64;
const MAX_CLAIMS: usize = 16;
const MAX_CLAIM_BYTES: usize = 1024;

/// Claims that a token must have, each with exactly this text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRule {
    /// The values by the names of their claims.
    pub claims: BTreeMap<String, String>,
}

impl ClaimRule {
    /// Whether one token could meet both rules: no claim has two different values.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.claims
            .iter()
            .all(|(name, value)| other.claims.get(name).is_none_or(|theirs| theirs == value))
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimRuleSpec {
    /// Claims with the exact text of each: those that its system demands. A name that begins with /
    /// is a JSON Pointer to a text inside another claim.
    #[schemars(extend("maxProperties" = MAX_CLAIMS))]
    claims: BTreeMap<String, String>,
}

/// Claims that name a ref, a branch or a tag.
const REF_CLAIMS: [&str; 6] = [
    "branchName",
    "build_branch",
    "build_tag",
    "oidc.circleci.com/vcs-ref",
    "ref",
    "rpo_ref",
];
/// Characters that patterns have, and that no ref has (git-check-ref-format).
const PATTERN_CHARACTERS: [char; 5] = ['*', '?', '[', '^', '\\'];

/// Reads the rules of one entry, and checks each by what is known about the system. `at_host` is the
/// system that everyone finds at the host of the entry's issuer.
pub(super) fn read_rules(
    specs: Vec<ClaimRuleSpec>,
    system: Option<ExternalSystem>,
    at_host: Option<&str>,
    path: &str,
    check: &mut Check<'_>,
) -> Vec<ClaimRule> {
    if specs.is_empty() || specs.len() > MAX_RULES {
        check.wrong(
            path,
            format!("must have 1 to {MAX_RULES} entries"),
            "write which claims a token must have",
        );
    }
    let rules: Vec<ClaimRule> = specs
        .into_iter()
        .map(|spec| ClaimRule {
            claims: spec.claims,
        })
        .collect();
    for (index, rule) in rules.iter().enumerate() {
        let path = format!("{path}[{index}].claims");
        check_claims(rule, &path, check);
        match system {
            Some(system) => check_rule_of(system, rule, &path, check),
            None => check_rule(rule, at_host, &path, check),
        }
    }
    rules
}

/// Checks the names and the length of a rule's claims.
fn check_claims(rule: &ClaimRule, path: &str, check: &mut Check<'_>) {
    if rule.claims.len() > MAX_CLAIMS {
        check.wrong(
            path,
            format!("has more than {MAX_CLAIMS} claims"),
            "keep those that decide",
        );
    }
    for (name, value) in &rule.claims {
        if value.is_empty() || value.len() > MAX_CLAIM_BYTES {
            check.wrong(
                &format!("{path}.{name}"),
                format!("is empty or longer than {MAX_CLAIM_BYTES} bytes"),
                "write the exact value of the claim",
            );
        }
        let first = pointer_steps(name).map_or_else(
            || Some(name.clone()),
            |steps| steps.and_then(|steps| steps.first().cloned()),
        );
        match first.as_deref() {
            None => check.wrong(
                &format!("{path}.{name}"),
                "is no JSON Pointer",
                "write /name/name, with ~1 for / and ~0 for ~ in a name (RFC 6901)",
            ),
            Some(first) if RESERVED_CLAIMS.contains(&first) => check.wrong(
                &format!("{path}.{name}"),
                "is a claim that Keyferry checks itself",
                "remove it",
            ),
            Some(_) => {}
        }
    }
}

/// The steps of a claim's name that begins with `/`, unescaped; `None` for another name, and
/// `Some(None)` for one that is no JSON Pointer (RFC 6901).
fn pointer_steps(name: &str) -> Option<Option<Vec<String>>> {
    let steps = name.strip_prefix('/')?.split('/');
    Some(
        steps
            .map(|step| {
                let bare = step.replace("~0", "").replace("~1", "");
                (!step.is_empty() && !bare.contains('~'))
                    .then(|| step.replace("~1", "/").replace("~0", "~"))
            })
            .collect(),
    )
}

/// Checks a rule by what is known about its system.
fn check_rule_of(system: ExternalSystem, rule: &ClaimRule, path: &str, check: &mut Check<'_>) {
    let facts = system.facts();
    let has = |name: &&str| {
        let value = rule.claims.get(*name);
        value.is_some_and(|value| system.is_immutable(name, value))
    };
    if !facts.project.iter().any(|claims| claims.iter().all(has)) {
        let lists: Vec<String> = facts.project.iter().map(|it| it.join(" and ")).collect();
        check.wrong(
            path,
            format!(
                "has not {}, so others who get the project's name could meet it",
                lists.join(", nor ")
            ),
            "add the id from a token of the job",
        );
    }
    if !facts.scope.iter().any(has) {
        check.wrong(
            path,
            format!(
                "has not {}, so everything that runs in the project could meet it",
                facts.scope.join(", nor ")
            ),
            "add what may run",
        );
    }
    for (name, value) in &rule.claims {
        let is_ref = REF_CLAIMS.contains(&name.as_str());
        let pattern = value.chars().find(|character| {
            *character == '*' || (is_ref && PATTERN_CHARACTERS.contains(character))
        });
        if let Some(pattern) = pattern {
            check.wrong(
                &format!("{path}.{name}"),
                format!("has a {pattern}, and texts are compared as they are written"),
                "write one rule for each value",
            );
        }
        if let Some((problem, fix)) = system.value_problem(name, value) {
            check.wrong(&format!("{path}.{name}"), problem, fix);
        }
    }
    if system == ExternalSystem::GitLab {
        check_gitlab_scope(rule, path, check);
    }
}

/// Checks a rule whose system the file does not name: of GitHub or GitLab.
fn check_rule(rule: &ClaimRule, at_host: Option<&str>, path: &str, check: &mut Check<'_>) {
    let has = |names: &[&str]| names.iter().any(|name| rule.claims.contains_key(*name));
    let fix_with_system = |fix: &str| match at_host {
        Some(system) => format!("write system: {system} into the entry, or {fix}"),
        None => format!("{fix}; for a token of another system than GitHub or GitLab, write system"),
    };
    if !has(&IMMUTABLE_CLAIMS) {
        check.wrong(
            path,
            "has neither repository_id nor project_id, so anyone who takes over a project's name \
             could meet it",
            fix_with_system("add the numeric id of the project"),
        );
    }
    if !has(&SCOPE_CLAIMS) {
        check.wrong(
            path,
            "has neither ref nor environment, so every branch of the project could meet it",
            fix_with_system("add the ref that may deploy, or the environment"),
        );
    }
    check_gitlab_scope(rule, path, check);
}

/// Checks what the ref or the environment of a rule proves at GitLab.
fn check_gitlab_scope(rule: &ClaimRule, path: &str, check: &mut Check<'_>) {
    let has = |names: &[&str]| names.iter().any(|name| rule.claims.contains_key(*name));
    let value = |name: &str| rule.claims.get(name).map(String::as_str);
    // GitHub writes full refs (refs/heads/main). GitLab writes names, and a tag may have the name
    // of a protected branch.
    if value("ref").is_some_and(|name| !name.starts_with("refs/")) && !has(&["ref_type"]) {
        check.wrong(
            path,
            "has a short ref, and a branch and a tag can have the same name",
            "add ref_type: branch, or write the whole ref, such as refs/heads/main",
        );
    }
    let is_protected = value("ref_protected") == Some("true")
        || (has(&["environment"]) && value("environment_protected") == Some("true"));
    // Pipelines of merge requests, and their child pipelines, have the source branch as their ref,
    // and any user who may push chooses its name.
    if has(&["project_id"]) && !is_protected {
        let (problem, fix) = if has(&["ref"]) {
            (
                "has a ref of GitLab that need not be protected",
                "add ref_protected: \"true\", or environment and environment_protected: \"true\"",
            )
        } else {
            (
                "has an environment of GitLab that any branch may name",
                "add environment_protected: \"true\", or ref_protected: \"true\"",
            )
        };
        check.wrong(path, problem, fix);
    }
}
