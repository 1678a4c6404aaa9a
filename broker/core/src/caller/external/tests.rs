//! Which id-tokens stand for which ServiceAccount, and that none of the others stands for any.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::audience::Audience;
use keyferry_api::config::{ClaimRule, ExternalIssuer, ExternalSystem, TokenUse};
use keyferry_api::issuer::Issuer;
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_api::reason::Reason;
use keyferry_api::service_account::{ServiceAccount, Uid};
use keyferry_keys::jwt::{SigningAlgorithm, UnverifiedJwt};
use keyferry_keys::testing::{NOW, key};
use keyferry_keys::verify;
use serde_json::{Value, json};

use super::{ExternalIdentity, accept_external, check_unverified};
use crate::caller::VerifiedCaller;

pub(super) fn entry(audience: &str, account: &str, rules: &[&[(&str, &str)]]) -> ExternalIssuer {
    let text = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    ExternalIssuer {
        url: Issuer::new("https://ci.example.com").unwrap(),
        system: None,
        audience: Audience::new(audience).unwrap(),
        certificate_authority: None,
        rules: rules
            .iter()
            .map(|rule| ClaimRule {
                claims: rule.iter().map(text).collect(),
            })
            .collect(),
        service_account: ServiceAccount {
            namespace: Namespace::new("tenant-a").unwrap(),
            name: ObjectName::new(account).unwrap(),
        },
        service_account_uid: None,
        max_token_lifetime: Duration::from_secs(3600),
        token_use: TokenUse::Once,
    }
}

/// The shapes of entries that the configuration accepts: GitHub's ref, GitHub's environment,
/// GitLab's protected branch, and another audience of the same issuer.
fn issuers() -> Vec<ExternalIssuer> {
    vec![
        entry(
            "https://keys.example.com",
            "deployer",
            &[&[("repository_id", "42"), ("ref", "refs/heads/main")]],
        ),
        entry(
            "https://keys.example.com",
            "releaser",
            &[&[
                ("repository_id", "43"),
                ("environment", "production"),
                ("event_name", "pull_request_target"),
            ]],
        ),
        entry(
            "https://keys.example.com",
            "gitlab",
            &[&[
                ("project_id", "7"),
                ("ref", "main"),
                ("ref_type", "branch"),
                ("ref_protected", "true"),
            ]],
        ),
        entry(
            "https://other.example.com",
            "other",
            &[&[("repository_id", "42"), ("ref", "refs/heads/main")]],
        ),
    ]
}

fn claims() -> Value {
    json!({
        "iss": "https://ci.example.com", "aud": "https://keys.example.com", "jti": "one",
        "sub": "repo:example/app:ref:refs/heads/main", "iat": NOW, "nbf": NOW - 600,
        "exp": NOW + 300, "repository_id": "42", "repository": "example/app",
        "ref": "refs/heads/main", "event_name": "push", "run_id": "99",
    })
}

fn gitlab_claims(source: &str) -> Value {
    json!({
        "iss": "https://ci.example.com", "aud": "https://keys.example.com", "jti": "one",
        "sub": "project_path:a/b:ref_type:branch:ref:main", "iat": NOW, "exp": NOW + 3600,
        "project_id": "7", "ref": "main", "ref_type": "branch", "ref_protected": "true",
        "job_id": "5", "pipeline_id": "4", "pipeline_source": source,
    })
}

/// The entry of a system, with one rule.
pub(super) fn entry_of(system: ExternalSystem, rule: &[(&str, &str)]) -> ExternalIssuer {
    ExternalIssuer {
        system: Some(system),
        token_use: TokenUse::UntilExpiry,
        ..entry("https://keys.example.com", "deployer", &[rule])
    }
}

/// Each system, a rule, the claims of a job that meets it, and the claim that names its run.
pub(super) type SystemCase = (
    ExternalSystem,
    &'static [(&'static str, &'static str)],
    Option<(&'static str, &'static str)>,
);

pub(super) const SYSTEM_CASES: [SystemCase; 13] = [
    (
        ExternalSystem::AzureDevOps,
        &[
            ("prj_id", "1f0a"),
            ("def_id", "12"),
            ("rpo_ref", "refs/heads/main"),
        ],
        Some(("run_id", "9")),
    ),
    (
        ExternalSystem::Bitbucket,
        &[("repositoryUuid", "{1f0a}"), ("branchName", "main")],
        Some(("stepUuid", "{9}")),
    ),
    (
        ExternalSystem::Buildkite,
        &[("pipeline_id", "1f0a"), ("build_branch", "main")],
        Some(("job_id", "9")),
    ),
    (
        ExternalSystem::CircleCI,
        &[
            ("oidc.circleci.com/project-id", "1f0a"),
            ("oidc.circleci.com/vcs-ref", "refs/heads/main"),
        ],
        Some(("oidc.circleci.com/job-id", "9")),
    ),
    (
        ExternalSystem::Forgejo,
        &[("repository_id", "42"), ("ref", "refs/heads/main")],
        Some(("run_id", "9")),
    ),
    (
        ExternalSystem::GitHub,
        &[("repository_id", "42"), ("ref", "refs/heads/main")],
        Some(("run_id", "9")),
    ),
    (
        ExternalSystem::GitHub,
        &[("sub", "repo:acme@1/app@2:ref:refs/heads/main")],
        Some(("run_id", "9")),
    ),
    (
        ExternalSystem::GitLab,
        &[
            ("project_id", "7"),
            ("ref", "main"),
            ("ref_protected", "true"),
        ],
        Some(("job_id", "9")),
    ),
    (
        ExternalSystem::Kubernetes,
        &[
            ("sub", "system:serviceaccount:ci:runner"),
            ("/kubernetes.io/serviceaccount/uid", "5c1f0a"),
        ],
        None,
    ),
    (
        ExternalSystem::Pulumi,
        &[("sub", "pulumi:org:1f0a:env:2b")],
        None,
    ),
    (
        ExternalSystem::Other,
        &[("sub", "113774264463038321964")],
        None,
    ),
    (
        ExternalSystem::SPIFFE,
        &[("sub", "spiffe://prod.example.com/ns/team/sa/deployer")],
        None,
    ),
    (
        ExternalSystem::TerraformCloud,
        &[
            ("terraform_workspace_id", "ws-1f0a"),
            ("terraform_run_phase", "apply"),
        ],
        Some(("terraform_run_id", "9")),
    ),
];

/// The claims of a job, with those of a rule, its run, and an event of members where there is one.
pub(super) fn claims_of((system, rule, run): &SystemCase) -> Value {
    let mut claims = json!({
        "iss": "https://ci.example.com", "aud": "https://keys.example.com",
        "sub": "any", "iat": NOW, "exp": NOW + 300,
    });
    let event = system.facts().event.map(|event| (event.name, "push"));
    for (name, value) in rule.iter().copied().chain(event).chain(*run) {
        set_claim(&mut claims, name, json!(value));
    }
    claims
}

/// Sets a claim by its name in a rule, which may be a JSON Pointer.
pub(super) fn set_claim(claims: &mut Value, name: &str, value: Value) {
    let steps = name.strip_prefix('/');
    let mut member = claims;
    for step in steps.map_or_else(|| vec![name], |steps| steps.split('/').collect()) {
        member = &mut member[step];
    }
    *member = value;
}

#[test]
fn a_job_of_each_system_is_accepted_by_its_claims_and_no_other() {
    for case in &SYSTEM_CASES {
        let (system, rule, run) = case;
        let issuers = [entry_of(*system, rule)];
        let accepted = judged(&issuers, &claims_of(case)).unwrap();
        assert_eq!(accepted.run(), run.map(|(_, run)| run), "{system:?}");
        for (name, value) in *rule {
            let numbers: Option<u64> = value.parse().ok();
            let mut others = vec![
                json!(null),
                json!(format!("{value}0")),
                json!(value.to_uppercase() + " "),
                json!([value]),
                json!({ "value": value }),
                json!(true),
            ];
            others.extend(numbers.map(|number| json!(number)));
            for other in others {
                let mut claims = claims_of(case);
                set_claim(&mut claims, name, other.clone());
                assert!(
                    judged(&issuers, &claims).is_err(),
                    "{system:?} {name}: {other}"
                );
            }
        }
        // Those of every other system, in a token of the same issuer.
        for other in SYSTEM_CASES.iter().filter(|other| other.1 != *rule) {
            assert!(
                judged(&issuers, &claims_of(other)).is_err(),
                "{system:?} by claims of {:?}",
                other.0
            );
        }
    }
}

/// The claim `kubernetes.io` makes a token one of a cluster, and only an entry of system Kubernetes
/// accepts one of those.
#[test]
fn a_clusters_token_is_none_of_a_ci_system_and_the_reverse() {
    for case in &SYSTEM_CASES {
        let issuers = [entry_of(case.0, case.1)];
        let mut claims = claims_of(case);
        if case.0 == ExternalSystem::Kubernetes {
            claims.as_object_mut().unwrap().remove("kubernetes.io");
        } else {
            claims["kubernetes.io"] = json!({ "namespace": "ci" });
        }
        let refused = judged(&issuers, &claims).err();
        assert_eq!(refused, Some(Reason::CallerMalformed), "{:?}", case.0);
        assert_eq!(judged_early(&issuers, &claims).err(), refused);
    }
}

#[test]
fn events_of_outsiders_are_refused_at_each_system_that_tells_them() {
    for case in &SYSTEM_CASES {
        let Some(event) = case.0.facts().event else {
            continue;
        };
        let issuers = [entry_of(case.0, case.1)];
        for name in [
            "pull_request_target",
            "workflow_call",
            "merge_request_event",
            "issue_comment",
            "",
        ] {
            let mut claims = claims_of(case);
            claims[event.name] = json!(name);
            assert!(judged(&issuers, &claims).is_err(), "{:?} {name}", case.0);
            claims.as_object_mut().unwrap().remove(event.name);
            assert!(judged(&issuers, &claims).is_err(), "{:?} without", case.0);
        }
    }
}

/// A job that stands for a ServiceAccount of `tenant-a`, by its name and UID.
pub(crate) fn job_of(account: &str, uid: &str) -> VerifiedCaller {
    let mut issuers = issuers();
    issuers.first_mut().unwrap().service_account.name = ObjectName::new(account).unwrap();
    let identity = judged(&issuers, &claims()).unwrap();
    identity.caller(Some(Uid::new(uid).unwrap())).unwrap()
}

pub(super) fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

fn judged(issuers: &[ExternalIssuer], claims: &Value) -> Result<ExternalIdentity, Reason> {
    let key = key(SigningAlgorithm::Es256);
    let jwt = UnverifiedJwt::parse_id_token(&key.token(claims)).unwrap();
    let early = check_unverified(&jwt, issuers, now());
    let signature = verify::verify_signature(&jwt, &key.set()).unwrap();
    let late = accept_external(&signature, issuers, now()).map_err(|refusal| {
        let has_claim = refusal.claim.is_some();
        assert!(!has_claim || refusal.reason == Reason::CallerClaimsMismatch);
        refusal.reason
    });
    if let Err(reason) = early {
        assert_eq!(late.as_ref().err(), Some(&reason), "the same reason later");
    }
    late
}

fn judged_early(issuers: &[ExternalIssuer], claims: &Value) -> Result<(), Reason> {
    let token = key(SigningAlgorithm::Es256).token(claims);
    let jwt = UnverifiedJwt::parse_id_token(&token).unwrap();
    check_unverified(&jwt, issuers, now())
}

fn with(change: impl FnOnce(&mut Value)) -> Result<ExternalIdentity, Reason> {
    let mut claims = claims();
    change(&mut claims);
    judged(&issuers(), &claims)
}

#[test]
fn a_job_stands_for_the_service_account_of_its_rule() {
    let identity = with(|_| {}).unwrap();
    assert_eq!(identity.account().to_string(), "tenant-a/deployer");
    assert_eq!(identity.run(), Some("99"));
    assert_eq!(identity.subject(), "repo:example/app:ref:refs/heads/main");
    assert_eq!(identity.single_use(), Some("one"));
    assert_eq!(identity.issuer().as_str(), "https://ci.example.com");
    assert_eq!(identity.expires_at().as_second(), NOW + 300);
    let other = with(|claims| claims["aud"] = json!(["https://other.example.com"])).unwrap();
    assert_eq!(other.account().to_string(), "tenant-a/other");
    let gitlab = with(|claims| *claims = gitlab_claims("push")).unwrap();
    assert_eq!(
        (gitlab.account().to_string().as_str(), gitlab.run()),
        ("tenant-a/gitlab", Some("5"))
    );
    assert_eq!(
        [&identity, &gitlab, &other].map(|job| job.entry()),
        [0, 2, 3]
    );
}

#[test]
fn a_claim_that_differs_is_refused() {
    for (name, value) in [
        ("repository_id", json!("420")),
        ("repository_id", json!(42)),
        ("repository_id", json!(["42"])),
        ("repository_id", json!(" 42")),
        ("repository_id", json!("")),
        ("repository_id", Value::Null),
        ("ref", json!("refs/heads/main2")),
        ("ref", json!("refs/heads/Main")),
        ("ref", json!("refs/tags/main")),
        ("ref", json!("main")),
        ("ref", json!("refs/pull/1/merge")),
        ("pipeline_source", json!("merge_request_event")),
    ] {
        let refused = with(|claims| claims[name] = value.clone()).err();
        assert_eq!(
            refused,
            Some(Reason::CallerClaimsMismatch),
            "{name} {value}"
        );
    }
}

#[test]
fn an_event_of_outsiders_needs_a_rule_that_names_it() {
    let release = |event: &str| {
        with(|claims| {
            claims["repository_id"] = json!("43");
            claims["environment"] = json!("production");
            claims["event_name"] = json!(event);
        })
    };
    let named = release("pull_request_target").unwrap();
    assert_eq!(named.account().to_string(), "tenant-a/releaser");
    assert!(release("push").is_err());
}

#[test]
fn only_events_of_members_need_no_rule_that_names_them() {
    for event in [
        "push",
        "release",
        "repository_dispatch",
        "schedule",
        "workflow_dispatch",
    ] {
        assert!(
            with(|claims| claims["event_name"] = json!(event)).is_ok(),
            "{event}"
        );
    }
    for event in [
        json!("pull_request"),
        json!("pull_request_target"),
        json!("workflow_run"),
        json!("issue_comment"),
        json!("gollum"),
        json!("check_run"),
        json!("check_suite"),
        json!("deployment"),
        json!("deployment_status"),
        json!("status"),
        json!("merge_group"),
        json!("an_event_of_the_future"),
        json!("Push"),
        json!(""),
        json!(["push"]),
        Value::Null,
    ] {
        let refused = with(|claims| claims["event_name"] = event.clone()).err();
        assert_eq!(refused, Some(Reason::CallerClaimsMismatch), "{event}");
    }
    let silent = with(|claims| drop(claims.as_object_mut().unwrap().remove("event_name")));
    assert_eq!(silent.err(), Some(Reason::CallerClaimsMismatch));

    for source in ["api", "push", "schedule", "trigger", "web"] {
        assert!(
            judged(&issuers(), &gitlab_claims(source)).is_ok(),
            "{source}"
        );
    }
    let mut silent = gitlab_claims("push");
    silent.as_object_mut().unwrap().remove("pipeline_source");
    assert!(judged(&issuers(), &silent).is_err());
}

#[test]
fn a_pipeline_of_others_needs_a_rule_that_names_it() {
    for source in [
        "chat",
        "external_pull_request_event",
        "merge_request_event",
        "parent_pipeline",
        "pipeline",
    ] {
        let claims = gitlab_claims(source);
        let refused = judged(&issuers(), &claims).err();
        assert_eq!(refused, Some(Reason::CallerClaimsMismatch), "{source}");
        let mut named = issuers();
        for rule in named.iter_mut().flat_map(|entry| &mut entry.rules) {
            let claim = ("pipeline_source".to_owned(), source.to_owned());
            rule.claims.extend([claim]);
        }
        assert!(judged(&named, &claims).is_ok(), "{source}");
    }
}

/// What is decided before the signature is what a stranger can measure.
#[test]
fn only_issuer_audience_and_times_decide_before_the_signature() {
    let early = |change: &dyn Fn(&mut Value)| {
        let mut claims = claims();
        change(&mut claims);
        judged_early(&issuers(), &claims)
    };
    for (name, value) in [
        ("repository_id", json!("420")),
        ("ref", json!("refs/heads/next")),
        ("event_name", json!("issue_comment")),
        ("exp", json!(NOW + 3601)),
    ] {
        assert_eq!(early(&|claims| claims[name] = value.clone()), Ok(()));
        assert!(with(|claims| claims[name] = value.clone()).is_err());
    }
    let without_jti = early(&|claims| drop(claims.as_object_mut().unwrap().remove("jti")));
    assert_eq!(without_jti, Ok(()));
    for (name, value, reason) in [
        (
            "iss",
            json!("https://c.example.com"),
            Reason::CallerIssuerMismatch,
        ),
        (
            "aud",
            json!("https://c.example.com"),
            Reason::CallerAudienceMismatch,
        ),
        ("exp", json!(NOW), Reason::CallerExpired),
    ] {
        let refused = early(&|claims| {
            claims["iat"] = json!(NOW - 300);
            claims[name] = value.clone();
        });
        assert_eq!(refused, Err(reason));
    }
}

#[test]
fn registered_claims_are_checked_like_those_of_the_hubs_tokens() {
    for (name, value, reason) in [
        (
            "iss",
            json!("https://ci.example.com/"),
            Reason::CallerIssuerMismatch,
        ),
        (
            "iss",
            json!("https://CI.example.com"),
            Reason::CallerIssuerMismatch,
        ),
        (
            "iss",
            json!("https://hub.example.com"),
            Reason::CallerIssuerMismatch,
        ),
        ("aud", json!("keyferry.dev"), Reason::CallerAudienceMismatch),
        (
            "aud",
            json!(["https://keys.example.com", "https://other.example.com"]),
            Reason::CallerAudienceMismatch,
        ),
        ("exp", json!(NOW + 3601), Reason::CallerMalformed),
        ("exp", json!(NOW as f64 + 300.5), Reason::CallerMalformed),
        ("iat", json!(NOW + 31), Reason::CallerMalformed),
        ("nbf", json!(NOW + 31), Reason::CallerMalformed),
        ("sub", json!(""), Reason::CallerMalformed),
        ("jti", Value::Null, Reason::CallerMalformed),
        ("kubernetes.io", json!({}), Reason::CallerMalformed),
    ] {
        let refused = with(|claims| claims[name] = value.clone()).err();
        assert_eq!(refused, Some(reason), "{name} {value}");
    }
    let expired = with(|claims| {
        claims["iat"] = json!(NOW - 300);
        claims["exp"] = json!(NOW);
    });
    assert_eq!(expired.err(), Some(Reason::CallerExpired));
    let without_jti = with(|claims| drop(claims.as_object_mut().unwrap().remove("jti")));
    assert_eq!(without_jti.err(), Some(Reason::CallerMalformed));
}

/// The configuration refuses such entries; this holds if it ever did not.
#[test]
fn two_entries_that_accept_one_token_accept_none() {
    let mut issuers = issuers();
    let mut twin = issuers.first().unwrap().clone();
    twin.service_account.name = ObjectName::new("admin").unwrap();
    for at in [0, issuers.len()] {
        issuers.insert(at, twin.clone());
        let refused = judged(&issuers, &claims()).err();
        assert_eq!(refused, Some(Reason::CallerClaimsMismatch));
        issuers.remove(at);
    }
}

#[test]
fn the_caller_is_the_live_service_account_and_the_pinned_one() {
    let live = |uid: &str| Some(Uid::new(uid).unwrap());
    let identity = with(|_| {}).unwrap();
    let caller = identity.caller(live("uid-1")).unwrap();
    assert_eq!(
        caller.external().map(ExternalIdentity::subject),
        Some(identity.subject())
    );
    assert_eq!(
        (caller.user().username.as_str(), caller.user().uid.as_str()),
        ("system:serviceaccount:tenant-a:deployer", "uid-1")
    );
    assert_eq!(
        (caller.user().groups.len(), caller.user().extra.len()),
        (0, 0)
    );
    assert_eq!(
        identity.caller(None).err(),
        Some(Reason::CallerIdentityChanged)
    );
    let mut issuers = issuers();
    issuers.first_mut().unwrap().service_account_uid = live("uid-1");
    let pinned = judged(&issuers, &claims()).unwrap();
    assert!(pinned.caller(live("uid-1")).is_ok());
    assert_eq!(
        pinned.caller(live("uid-2")).err(),
        Some(Reason::CallerIdentityChanged)
    );
}
