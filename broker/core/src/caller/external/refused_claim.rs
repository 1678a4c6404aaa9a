//! Compares a token's claims with rules, and names the claim by which it misses the nearest one.
//!
//! Every user of a public CI system gets signed tokens of its issuer, and chooses refs and
//! environments in them. So a caller learns only that no rule names its project; what else a rule
//! says, only jobs of the same project learn, by the name of the claim and never by its value.

use keyferry_api::config::{
    ClaimRule, EventClaim, ExternalIssuer, ExternalSystem, GITHUB_EVENT, GITLAB_EVENT,
};
use keyferry_api::foreign_text;
use keyferry_api::reason::Reason;
use keyferry_keys::id_token::IdTokenClaims;

/// The events of an entry that does not name its system. A rule must name every other event, because
/// CI systems add events that outsiders can cause, such as `issue_comment` or `gollum`, and whose
/// jobs can have the ref of the main branch.
static EVENTS_WITHOUT_SYSTEM: [&EventClaim; 2] = [&GITHUB_EVENT, &GITLAB_EVENT];
/// The project claims of such an entry.
const PROJECTS_WITHOUT_SYSTEM: &[&[&str]] = &[&["repository_id"], &["project_id"]];
/// The longest value of a token that is recorded, in characters.
const MAX_VALUE_CHARACTERS: usize = 128;

/// An entry whose issuer, audience and times a token meets, with its index.
pub(super) type Candidate<'i> = (usize, &'i ExternalIssuer);

/// Why the token of a caller is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerRefusal {
    /// The stable code.
    pub reason: Reason,
    /// The claim of a token with a good signature that no rule accepts.
    pub claim: Option<Box<RefusedClaim>>,
}

impl CallerRefusal {
    pub(super) fn of_claim(claim: RefusedClaim) -> Self {
        Self {
            reason: Reason::CallerClaimsMismatch,
            claim: Some(Box::new(claim)),
        }
    }
}

impl From<Reason> for CallerRefusal {
    fn from(reason: Reason) -> Self {
        Self {
            reason,
            claim: None,
        }
    }
}

/// The claim by which a token misses the nearest rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedClaim {
    /// The index of the rule's entry in `externalIssuers`.
    pub entry: usize,
    /// The index of the rule in its entry.
    pub rule: usize,
    /// The name of the claim, for those who may read the configuration.
    pub name: String,
    /// The token's value on one line; `None` if it has no such claim.
    pub value: Option<String>,
    /// The names that the caller may learn: those of the claims with its project, unless a rule
    /// names its project.
    pub disclosed: String,
}

impl RefusedClaim {
    /// The rule, as a path of the configuration.
    pub fn rule_path(&self) -> String {
        format!("externalIssuers[{}].rules[{}]", self.entry, self.rule)
    }

    /// Chooses the rule that the token meets but for the fewest claims, and prefers one of its own
    /// project. `None` without candidates.
    pub(super) fn nearest(claims: &IdTokenClaims, candidates: &[Candidate<'_>]) -> Option<Self> {
        let rules = candidates.iter().flat_map(|(entry, issuer)| {
            let rules = issuer.rules.iter().enumerate();
            rules.map(move |(index, rule)| {
                let mut differences: Vec<_> = differences(claims, rule, issuer.system).collect();
                differences.sort_by_key(|difference| difference.kind);
                (*entry, index, differences)
            })
        });
        let (entry, rule, differences) = rules.min_by_key(|(_, _, differences)| {
            let is_of_others = differences
                .first()
                .is_none_or(|first| first.kind == ClaimKind::Project);
            (is_of_others, differences.len())
        })?;
        let first = differences.first()?;
        Some(Self {
            entry,
            rule,
            name: first.name.to_owned(),
            value: shown_value(claims, first.name),
            disclosed: match first.kind {
                ClaimKind::Project => project_claims(candidates),
                ClaimKind::Other | ClaimKind::Event => first.name.to_owned(),
            },
        })
    }
}

/// The token's value of a claim, on one line.
pub(super) fn shown_value(claims: &IdTokenClaims, name: &str) -> Option<String> {
    match claims.claim(name) {
        Some(text) => Some(foreign_text::one_line(text, MAX_VALUE_CHARACTERS)),
        None if claims.has_claim(name) => Some("(no text)".to_owned()),
        None => None,
    }
}

/// What a claim of a rule says, from what outsiders cannot choose to what they can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ClaimKind {
    Project,
    Other,
    Event,
}

/// A claim by which a token does not meet a rule.
struct Difference<'r> {
    name: &'r str,
    kind: ClaimKind,
}

/// Whether the token has every claim of the rule, and an event that the rule admits.
pub(super) fn meets_rule(
    claims: &IdTokenClaims,
    rule: &ClaimRule,
    system: Option<ExternalSystem>,
) -> bool {
    differences(claims, rule, system).next().is_none()
}

fn differences<'r>(
    claims: &'r IdTokenClaims,
    rule: &'r ClaimRule,
    system: Option<ExternalSystem>,
) -> impl Iterator<Item = Difference<'r>> {
    let differing = rule.claims.iter().filter_map(move |(name, value)| {
        let kind = match is_project_claim(name, system) {
            true => ClaimKind::Project,
            false => ClaimKind::Other,
        };
        (claims.claim(name) != Some(value.as_str())).then_some(Difference { name, kind })
    });
    let own_event = system.and_then(|system| system.facts().event);
    let without_system = EVENTS_WITHOUT_SYSTEM.iter().copied();
    let events = own_event
        .into_iter()
        .chain(without_system.filter(move |_| system.is_none()));
    let refused = events.filter_map(move |event| {
        (!admits_event(event, claims, rule, system)).then_some(Difference {
            name: event.name,
            kind: ClaimKind::Event,
        })
    });
    differing.chain(refused)
}

fn project_lists(system: Option<ExternalSystem>) -> &'static [&'static [&'static str]] {
    system.map_or(PROJECTS_WITHOUT_SYSTEM, |system| system.facts().project)
}

fn is_project_claim(name: &str, system: Option<ExternalSystem>) -> bool {
    project_lists(system)
        .iter()
        .any(|claims| claims.contains(&name))
}

/// The project claims of the systems of all candidates, which no rule changes: so a caller of
/// another project learns nothing about rules.
fn project_claims(candidates: &[Candidate<'_>]) -> String {
    let mut names: Vec<String> = Vec::new();
    for list in candidates
        .iter()
        .flat_map(|(_, issuer)| project_lists(issuer.system))
    {
        let name = list.join(" and ");
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(" or ")
}

/// Whether the rule names the event, or the event needs write access to the project. A token
/// without the claim is refused if its system always writes it.
fn admits_event(
    event: &EventClaim,
    claims: &IdTokenClaims,
    rule: &ClaimRule,
    system: Option<ExternalSystem>,
) -> bool {
    if rule.claims.contains_key(event.name) {
        return true;
    }
    match claims.claim(event.name) {
        Some(name) => event.by_members.contains(&name),
        None => system.is_none() && !rule.claims.contains_key(event.project),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use keyferry_api::config::{ClaimRule, ExternalSystem};
    use keyferry_keys::id_token::IdTokenClaims;
    use keyferry_keys::jwt::{SigningAlgorithm, UnverifiedJwt};
    use keyferry_keys::testing::key;
    use serde_json::{Value, json};

    use super::RefusedClaim;
    use crate::caller::external::tests::{SYSTEM_CASES, claims_of, entry_of, set_claim};

    fn nearest(issuers: &[super::ExternalIssuer], claims: &Value) -> Option<RefusedClaim> {
        let token = key(SigningAlgorithm::Es256).token(claims);
        let jwt = UnverifiedJwt::parse_id_token(&token).unwrap();
        let candidates: Vec<_> = issuers.iter().enumerate().collect();
        RefusedClaim::nearest(&IdTokenClaims::read(&jwt).unwrap(), &candidates)
    }

    #[test]
    fn each_claim_of_each_system_is_named_when_it_differs() {
        for case in &SYSTEM_CASES {
            let (system, rule, _) = case;
            let issuers = [entry_of(*system, rule)];
            assert_eq!(nearest(&issuers, &claims_of(case)), None, "{system:?}");
            for (name, _) in *rule {
                for (other, shown) in [
                    (json!("another"), Some("another")),
                    (json!("a\u{202e}b\nfix: c"), Some("a\\u{202e}b\\u{a}fix: c")),
                    (json!(["x"]), Some("(no text)")),
                ] {
                    let mut claims = claims_of(case);
                    if *name == "sub" && !other.is_string() {
                        continue;
                    }
                    set_claim(&mut claims, name, other);
                    let refused = nearest(&issuers, &claims).unwrap();
                    assert_eq!(refused.name, *name, "{system:?}");
                    assert_eq!(refused.value.as_deref(), shown, "{system:?} {name}");
                    assert_eq!((refused.entry, refused.rule), (0, 0));
                    assert_eq!(refused.rule_path(), "externalIssuers[0].rules[0]");
                }
                let mut without = claims_of(case);
                let members = without.as_object_mut().unwrap();
                if *name != "sub" && members.remove(*name).is_some() {
                    let refused = nearest(&issuers, &without).unwrap();
                    assert_eq!((refused.name.as_str(), refused.value), (*name, None));
                }
            }
        }
    }

    /// Rules of two projects at GitHub, as the rules of two tenants.
    fn two_tenants() -> Vec<super::ExternalIssuer> {
        let mut entry = entry_of(
            ExternalSystem::GitHub,
            &[("repository_id", "42"), ("environment", "production")],
        );
        let second = [
            ("repository_id", "43"),
            ("ref", "refs/heads/main"),
            (
                "job_workflow_ref",
                "acme/app/.github/workflows/deploy.yaml@x",
            ),
        ];
        entry.rules.push(ClaimRule {
            claims: second
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
        });
        vec![entry]
    }

    /// A stranger chooses every claim but the number of the repository.
    #[test]
    fn a_caller_of_another_project_learns_nothing_about_rules() {
        let issuers = two_tenants();
        for reference in ["refs/heads/main", "refs/heads/x"] {
            for environment in [json!("production"), json!("x"), Value::Null] {
                for workflow in ["acme/app/.github/workflows/deploy.yaml@x", "x"] {
                    for event in ["push", "pull_request_target"] {
                        let claims = json!({
                            "iss": "https://ci.example.com", "aud": "x", "iat": 1, "exp": 2,
                            "sub": "repo:evil@9/x@9:ref:refs/heads/main", "repository_id": "9",
                            "ref": reference, "environment": environment,
                            "job_workflow_ref": workflow, "event_name": event,
                        });
                        let refused = nearest(&issuers, &claims).unwrap();
                        assert_eq!(refused.disclosed, "repository_id or sub");
                    }
                }
            }
        }
    }

    #[test]
    fn a_job_of_the_project_learns_which_claim_differs_and_no_value() {
        let issuers = two_tenants();
        let own = |further: Value| {
            let mut claims = json!({
                "iss": "https://ci.example.com", "aud": "x", "iat": 1, "exp": 2, "sub": "x",
                "repository_id": "42", "event_name": "push", "environment": "production",
            });
            let further = further.as_object().unwrap().clone();
            claims.as_object_mut().unwrap().extend(further);
            nearest(&issuers, &claims)
        };
        assert_eq!(own(json!({})), None);
        for (further, name) in [
            (json!({ "environment": "staging" }), "environment"),
            (json!({ "event_name": "workflow_run" }), "event_name"),
            (json!({ "event_name": null }), "event_name"),
            (
                json!({ "environment": "staging", "event_name": "fork" }),
                "environment",
            ),
            (
                json!({ "repository_id": "43", "ref": "refs/heads/main" }),
                "job_workflow_ref",
            ),
        ] {
            let refused = own(further.clone()).unwrap();
            assert_eq!(refused.disclosed, name, "{further}");
            assert_eq!(refused.name, name, "{further}");
        }
    }
}
