//! Which user a token is at a target, compared with the prediction.

use keyferry_api::reason::Reason;
use keyferry_kube_authn::config::Undetermined;
use keyferry_kube_authn::fetched::Fetched;
use keyferry_kube_authn::lint::{Severity, lint_file};
use keyferry_kube_authn::prediction::{Prediction, entry_for, predict_verdict};
use keyferry_kube_authn::token::Token;
use keyferry_kube_authn::{Code, Minor};
use keyferry_platform::clock::{Clock, SystemClock};
use serde_json::Value;

use crate::doctor::DoctorError;
use crate::doctor::diagnosis::{Cause, Identity, Problem, TokenEvidence, name_fault};
use crate::doctor::fetch::{Fetcher, jwks_uri};
use crate::doctor::plan::Plan;
use crate::doctor::target_calls::TargetCalls;
use crate::doctor::target_user::TargetUser;

/// The target's responses about a token.
pub struct Answered {
    /// The bearer's `userInfo`.
    pub user: Result<Value, Identity>,
    /// The `userInfo` as the impersonated user, where one is named.
    pub impersonated: Option<Result<Value, Identity>>,
    /// The prediction from the AuthenticationConfiguration.
    pub predicted: Option<Prediction>,
    /// Problems that exist although the target accepted the token.
    pub problems: Vec<Problem>,
}

/// Why a target cannot be asked about a token.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The start has a problem.
    #[error("starting from {start}: {}: {}", problem.cause.name(), problem.detail)]
    Start {
        /// Describes the start.
        start: String,
        /// The problem with it.
        problem: Problem,
    },
    /// The start could not be judged.
    #[error("starting from {start}: {why}")]
    Unjudged {
        /// Describes the start.
        start: String,
        /// Why it could not.
        why: String,
    },
    /// Neither the start nor a flag names the target.
    #[error("the target is not known: give --target-address, or something to start from")]
    NoTarget,
    /// The start's token could not be obtained.
    #[error("getting the token: {}: {}", .0.cause.name(), .0.detail)]
    Token(Problem),
    /// Neither the start nor a flag gives a token.
    #[error("there is no token: give --target-token-file")]
    NoToken,
    /// There is no token that could be sent.
    #[error("getting the token of {start}: {why}")]
    NothingToSend {
        /// Describes the start.
        start: String,
        /// Why there is none.
        why: String,
    },
    /// The token is another kind of credential, which is not sent.
    #[error("reading the token: it is not a signed JWT")]
    NotSigned,
    /// The token is beyond what can be predicted.
    #[error(transparent)]
    Undetermined(#[from] Undetermined),
    /// The target's release is needed for a prediction.
    #[error("predicting: the target does not report a release of 1.30 to 1.37")]
    NoRelease,
    /// A client cannot be created.
    #[error(transparent)]
    Client(#[from] DoctorError),
}

/// Asks the target which user the token is.
///
/// # Errors
/// [`IdentityError`].
pub async fn ask(plan: &Plan, auth_config: Option<&[u8]>) -> Result<Answered, IdentityError> {
    let calls = calls(plan).await?;
    let clock = SystemClock::start();
    let user = calls.review(None).await;
    let impersonated = match (&plan.impersonate, &user) {
        (Some(wanted), Ok(_)) => Some(calls.review(Some(wanted)).await),
        _ => None,
    };
    let predicted = match auth_config {
        Some(file) => Some(prediction(plan, file, &calls, &clock).await?),
        None => None,
    };
    let mut problems = Vec::new();
    if let Ok(user) = &user
        && let Some((cause, detail)) = name_fault(
            &TargetUser::of(user).username,
            plan.subject().as_deref(),
            plan.expected_name().as_deref(),
        )
    {
        problems.push(Problem::new(cause, detail));
    }
    match (&plan.impersonate, &impersonated) {
        (Some(wanted), Some(Ok(answer))) => problems.extend(wanted.ignored(answer)),
        (Some(_), Some(Err(Identity::Forbidden(message)))) => {
            problems.push(Problem::new(Code::ImpersonationDenied, message.clone()))
        }
        _ => {}
    }
    if let Some(file) = auth_config {
        let minor = Minor::ALL.into_iter().next_back().unwrap_or(Minor::V1_36);
        let errors = lint_file(file, minor, &plan.own_issuers)
            .into_iter()
            .filter(|found| found.severity == Severity::Error);
        problems.extend(errors.map(|found| {
            Problem::new(
                found.code,
                format!("{} of the file: {}", found.path, found.message),
            )
        }));
    }
    Ok(Answered {
        user,
        impersonated,
        predicted,
        problems,
    })
}

/// Prepares calls to the plan's target with its token.
///
/// # Errors
/// [`IdentityError`].
pub async fn calls(plan: &Plan) -> Result<TargetCalls, IdentityError> {
    if let Some(problem) = &plan.problem {
        return Err(IdentityError::Start {
            start: plan.start.clone(),
            problem: problem.clone(),
        });
    }
    if let Some(why) = &plan.unknown {
        return Err(IdentityError::Unjudged {
            start: plan.start.clone(),
            why: why.clone(),
        });
    }
    let target = plan.target.as_ref().ok_or(IdentityError::NoTarget)?;
    match &plan.token_evidence {
        TokenEvidence::Failed(problem) => return Err(IdentityError::Token(problem.clone())),
        TokenEvidence::None => return Err(IdentityError::NoToken),
        TokenEvidence::Unknown(why) | TokenEvidence::NotAToken(why) => {
            return Err(IdentityError::NothingToSend {
                start: plan.start.clone(),
                why: why.clone(),
            });
        }
        TokenEvidence::Token(_) => {}
    }
    let token = plan.secret().ok_or(IdentityError::NotSigned)?;
    Ok(TargetCalls::new(target, Some(token), &plan.guard).await?)
}

async fn prediction(
    plan: &Plan,
    file: &[u8],
    calls: &TargetCalls,
    clock: &SystemClock,
) -> Result<Prediction, IdentityError> {
    let TokenEvidence::Token(bytes) = &plan.token_evidence else {
        return Err(IdentityError::NoToken);
    };
    let token = Token::read(bytes)?;
    let minor = calls.greet(clock).await.minor;
    let minor = minor.ok_or(IdentityError::NoRelease)?;
    let issuer = plan.token_issuer();
    let mut keys = Fetched::NotTried;
    if let Some(place) = plan.discovery_place(entry_for(file, issuer.as_deref()), issuer.as_deref())
    {
        let fetcher = Fetcher::new(place.ca_pem.as_deref(), plan.documents_guard())?;
        if let Some(uri) = jwks_uri(&fetcher.get(&place.url).await) {
            keys = fetcher.get_linked(&uri, &place.url).await;
        }
    }
    let body = match &keys {
        Fetched::Response(answer) if answer.status == 200 => Some(answer.body.as_slice()),
        _ => None,
    };
    Ok(predict_verdict(
        file,
        minor,
        &plan.own_issuers,
        &token,
        body,
        clock.now().wall,
    ))
}

impl Answered {
    /// Returns the fields in which the response differs from the prediction. `None` if there is
    /// nothing to compare with.
    #[must_use]
    pub fn differences(&self) -> Option<Vec<&'static str>> {
        let wrong = |causes: &[Cause]| {
            self.problems
                .iter()
                .any(|problem| causes.contains(&problem.cause))
        };
        let names = [
            Code::EmptyPrefix.into(),
            Code::SystemPrefix.into(),
            Reason::IdentityUnexpected.into(),
        ];
        let mut differences: Vec<&'static str> =
            wrong(&names).then_some("prefix").into_iter().collect();
        differences.extend(wrong(&[Code::ImpersonationIgnored.into()]).then_some("impersonated"));
        match self.unlike_predicted() {
            Some(more) => differences.extend(more),
            None if differences.is_empty() => return None,
            None => {}
        }
        Some(differences)
    }

    fn unlike_predicted(&self) -> Option<Vec<&'static str>> {
        match (self.predicted.as_ref()?, &self.user) {
            (Prediction::Undetermined(..), _)
            | (_, Err(Identity::Failed(_) | Identity::Forbidden(_) | Identity::NotAsked)) => None,
            (Prediction::Accepted(user), Ok(answer)) => {
                let predicted = serde_json::to_value(user).unwrap_or_default();
                Some(TargetUser::of(&predicted).differences(&TargetUser::of(answer)))
            }
            (Prediction::Accepted(_), Err(_)) => Some(vec!["verdict"]),
            (Prediction::Rejected(..) | Prediction::Refused(..), Err(Identity::Refused)) => {
                Some(Vec::new())
            }
            (Prediction::Rejected(..) | Prediction::Refused(..), _) => Some(vec!["verdict"]),
        }
    }
}

#[cfg(test)]
mod tests {
    use keyferry_kube_authn::Code;
    use keyferry_kube_authn::prediction::Prediction;
    use serde_json::json;

    use super::Answered;
    use crate::doctor::diagnosis::Identity;
    use crate::doctor::impersonated_user::ImpersonatedUser;

    #[test]
    fn what_the_target_adds_is_no_difference() {
        let user = keyferry_kube_authn::verify::User {
            username: "hub:a".to_owned(),
            ..Default::default()
        };
        let mut answered = Answered {
            user: Ok(json!({ "username": "hub:a", "groups": ["system:authenticated"] })),
            impersonated: None,
            predicted: Some(Prediction::Accepted(user)),
            problems: Vec::new(),
        };
        assert_eq!(answered.differences(), Some(vec![]));
        answered.user = Ok(json!({ "username": "hub:b", "groups": ["g", "system:authenticated"] }));
        assert_eq!(answered.differences(), Some(vec!["username", "groups"]));
        answered.user = Err(Identity::Refused);
        assert_eq!(answered.differences(), Some(vec!["verdict"]));
        answered.predicted = Some(Prediction::Rejected(Code::TokenExpired, String::new()));
        assert_eq!(answered.differences(), Some(vec![]));
        answered.predicted = None;
        assert_eq!(answered.differences(), None);
        let wanted = ImpersonatedUser::service_account("apps", "x");
        let problem = wanted.ignored(&json!({ "username": "hub:a" }));
        answered.problems = problem.into_iter().collect();
        assert_eq!(answered.differences(), Some(vec!["impersonated"]));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod embedded_tests {
    use std::time::Duration;

    use keyferry_kube_authn::Code;
    use keyferry_platform::target_connection::TargetAddress;
    use keyferry_testing::{Authority, EmbeddedHub, EmbeddedTarget, HubOptions, TargetOptions};
    use secrecy::ExposeSecret;

    use super::*;
    use crate::doctor::diagnosis::Asked;
    use crate::doctor::impersonated_user::ImpersonatedUser;
    use crate::doctor::{Means, gather_evidence};

    /// RBAC objects that let the bearer impersonate apps/deployer.
    const GRANT: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: impersonate, namespace: apps}
rules:
- {apiGroups: [''], resources: [serviceaccounts], resourceNames: [deployer], verbs: [impersonate]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: impersonate, namespace: apps}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: impersonate}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: 'hub:system:serviceaccount:ci:deployer'}
";

    /// What the target answers to a token of its hub.
    async fn asked(case: Case<'_>) -> Answered {
        let (_hub, _target, plan) = start_clusters(case).await;
        ask(&plan, None).await.unwrap()
    }

    async fn start_clusters(case: Case<'_>) -> (EmbeddedHub, EmbeddedTarget, Plan) {
        let ca = Authority::new("a CA of a test").unwrap();
        let hub = EmbeddedHub::start(HubOptions {
            discovery_ca: Some(ca.clone()),
            ..HubOptions::default()
        })
        .await
        .unwrap();
        hub.add_service_account("ci", "deployer");
        let target = EmbeddedTarget::start(TargetOptions {
            discovery_url: Some(hub.discovery_url()),
            allowed_subjects: vec!["system:serviceaccount:ci:deployer".to_owned()],
            ignores_impersonation: case.ignores_impersonation,
            ..TargetOptions::new(hub.issuer(), "target-a", case.prefix, ca.ca_pem())
        });
        let target = target.await.unwrap();
        target.add_rbac(case.rbac).unwrap();
        let token = hub
            .token("ci", "deployer", "target-a", Duration::from_secs(3600))
            .unwrap();
        let plan = Plan {
            target: Some(TargetAddress {
                url: target.url().to_owned(),
                ca_pem: Some(target.ca_pem().as_bytes().to_vec()),
                ..TargetAddress::default()
            }),
            token_evidence: TokenEvidence::Token(token.expose_secret().as_bytes().to_vec()),
            hub_name: case.hub_name.map(str::to_owned),
            impersonate: case.impersonate,
            guard: keyferry_platform::testing::loopback_guard(),
            ..Plan::named("flags")
        };
        (hub, target, plan)
    }

    /// A target, and what is asked of it.
    struct Case<'a> {
        prefix: &'a str,
        hub_name: Option<&'a str>,
        impersonate: Option<ImpersonatedUser>,
        ignores_impersonation: bool,
        rbac: &'a str,
    }

    impl Default for Case<'_> {
        fn default() -> Self {
            Self {
                prefix: "hub:",
                hub_name: Some("hub"),
                impersonate: None,
                ignores_impersonation: false,
                rbac: GRANT,
            }
        }
    }

    fn causes(answered: &Answered) -> Vec<&'static str> {
        answered
            .problems
            .iter()
            .map(|problem| problem.cause.name())
            .collect()
    }

    #[tokio::test]
    async fn a_name_without_the_hubs_prefix_is_a_difference() {
        let sound = asked(Case::default()).await;
        assert_eq!((causes(&sound), sound.differences()), (vec![], None));
        for (prefix, hub_name, cause) in [
            ("", None, "EmptyPrefix"),
            ("", Some("hub"), "EmptyPrefix"),
            ("other:", Some("hub"), "IdentityUnexpected"),
        ] {
            let answered = asked(Case {
                prefix,
                hub_name,
                ..Case::default()
            })
            .await;
            assert_eq!(
                (causes(&answered), answered.differences()),
                (vec![cause], Some(vec!["prefix"])),
                "{prefix:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_target_that_ignores_impersonation_is_found_out() {
        let answered = asked(Case {
            impersonate: Some(ImpersonatedUser::service_account("apps", "deployer")),
            ignores_impersonation: true,
            ..Case::default()
        })
        .await;
        assert_eq!(causes(&answered), [Code::ImpersonationIgnored.name()]);
        assert_eq!(answered.differences(), Some(vec!["impersonated"]));
    }

    #[tokio::test]
    async fn an_allowed_user_is_impersonated_and_another_is_denied() {
        let asked_as = async |user: ImpersonatedUser| {
            asked(Case {
                impersonate: Some(user),
                ..Case::default()
            })
            .await
        };
        let deployer = ImpersonatedUser::service_account("apps", "deployer");
        let answered = asked_as(deployer.clone()).await;
        assert!(causes(&answered).is_empty());
        let user = answered.impersonated.unwrap().unwrap();
        assert_eq!(user["username"], "system:serviceaccount:apps:deployer");
        assert_eq!(user["groups"][1], "system:serviceaccounts:apps");
        for denied in [
            ImpersonatedUser::named("jane"),
            ImpersonatedUser {
                groups: vec!["system:masters".to_owned()],
                ..deployer
            },
        ] {
            let answered = asked_as(denied).await;
            assert_eq!(causes(&answered), [Code::ImpersonationDenied.name()]);
            assert!(answered.problems[0].detail.contains("cannot impersonate"));
        }
    }

    #[tokio::test]
    async fn doctor_accepts_both_forms_of_the_right_to_impersonate() {
        let narrow = GRANT
            .replace("apiGroups: ['']", "apiGroups: [authentication.k8s.io]")
            .replace(
                "verbs: [impersonate]",
                "verbs: ['impersonate:serviceaccount']",
            );
        assert!(narrow.contains("impersonate:serviceaccount"));
        for rbac in [GRANT, &narrow, ""] {
            let (_hub, _target, plan) = start_clusters(Case {
                impersonate: Some(ImpersonatedUser::service_account("apps", "deployer")),
                rbac,
                ..Case::default()
            })
            .await;
            let evidence = gather_evidence(plan, &Means::default()).await.unwrap();
            let found = evidence.target.impersonation;
            // The narrow right alone says nothing of the requests that may impersonate.
            let expected = match (&found, rbac) {
                (Asked::Yes(_), GRANT) | (Asked::No(_), "") => true,
                (Asked::NothingYet(_), rbac) => rbac == narrow,
                _ => false,
            };
            assert!(expected, "{rbac}: {found:?}");
        }
    }
}
