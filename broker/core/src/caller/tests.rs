#![allow(clippy::unwrap_used)]

use jiff::Timestamp;
use keyferry_api::audience::Audience;
use keyferry_api::issuer::Issuer;
use keyferry_api::reason::Reason;
use keyferry_keys::caller_certificate::{CallerCertificateRules, PresentedChain};
use keyferry_keys::claims::ServiceAccountClaims;
use keyferry_keys::jwt::SigningAlgorithm;
use keyferry_keys::testing::client_certificates::{Authorities, URI};
use keyferry_keys::testing::{NOW, claims, key};
use serde_json::{Value, json};

use super::{
    CallerRules, ReviewedUser, TokenReviewAnswer, VerifiedCaller, accept_caller,
    accept_certificate, read_caller_token,
};

/// The rules that the tests' tokens meet.
pub(crate) fn rules() -> CallerRules {
    CallerRules {
        issuer: Issuer::new("https://hub.example.com").unwrap(),
        audience: Audience::new("keyferry.dev").unwrap(),
        require_pod_bound: false,
    }
}

/// An authenticated caller with this ServiceAccount.
pub(crate) fn verified(namespace: &str, name: &str, uid: &str) -> VerifiedCaller {
    let mut body = claims();
    body["sub"] = json!(format!("system:serviceaccount:{namespace}:{name}"));
    body["kubernetes.io"]["namespace"] = json!(namespace);
    body["kubernetes.io"]["serviceaccount"] = json!({"name": name, "uid": uid});
    let claims = read_caller_token(&token(&body), &rules(), now()).unwrap();
    accept_caller(&claims, review_answer(&claims), &rules()).unwrap()
}

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

fn token(claims: &Value) -> String {
    key(SigningAlgorithm::Es256).token(claims)
}

/// The hub's TokenReview of a token with these claims.
fn review_answer(claims: &ServiceAccountClaims) -> TokenReviewAnswer {
    TokenReviewAnswer {
        authenticated: true,
        audiences: vec!["keyferry.dev".to_owned()],
        user: ReviewedUser {
            username: claims.identity.account.username(),
            uid: claims.identity.uid.to_string(),
            groups: vec!["system:serviceaccounts".to_owned()],
            extra: [(
                "authentication.kubernetes.io/pod-name".to_owned(),
                vec!["reconciler-7d9c".to_owned()],
            )]
            .into(),
        },
    }
}

fn verdict(change: impl FnOnce(&mut Value)) -> Result<ServiceAccountClaims, Reason> {
    let mut body = claims();
    change(&mut body);
    read_caller_token(&token(&body), &rules(), now())
}

#[test]
fn a_good_token_is_read() {
    let claims = verdict(|_| {}).unwrap();
    assert_eq!(claims.identity.account.to_string(), "tenant-a/reconciler");
    assert!(
        verdict(|body| body["aud"] = json!("keyferry.dev")).is_ok(),
        "a single audience may stand as a text"
    );
    assert!(verdict(|body| drop(body.as_object_mut().unwrap().remove("nbf"))).is_ok());
}

#[test]
fn no_token_is_missing() {
    assert_eq!(
        read_caller_token("", &rules(), now()),
        Err(Reason::CallerMissing)
    );
}

#[test]
fn what_is_no_bound_token_is_malformed() {
    let whole = token(&claims());
    let stripped = whole.rsplit_once('.').unwrap().0;
    for text in [
        "x",
        ".",
        "..",
        " ",
        stripped,
        &format!("{stripped}."),
        &format!("{whole} "),
        &format!(" {whole}"),
        &format!("{whole}.x"),
        &format!("Bearer {whole}"),
    ] {
        assert_eq!(
            read_caller_token(text, &rules(), now()),
            Err(Reason::CallerMalformed),
            "{text:?}"
        );
    }
    for member in ["sub", "iss", "aud", "exp", "iat", "kubernetes.io"] {
        assert_eq!(
            verdict(|body| drop(body.as_object_mut().unwrap().remove(member))),
            Err(Reason::CallerMalformed),
            "without {member}"
        );
    }
    assert_eq!(
        verdict(|body| body["sub"] = json!("system:serviceaccount:tenant-b:reconciler")),
        Err(Reason::CallerMalformed)
    );
    assert_eq!(
        verdict(|body| body["kubernetes.io"]["serviceaccount"]["uid"] = json!("")),
        Err(Reason::CallerMalformed)
    );
    assert_eq!(
        verdict(|body| body["aud"] = json!([])),
        Err(Reason::CallerMalformed)
    );
}

#[test]
fn another_issuer_is_named_before_anything_else() {
    for issuer in [
        "https://hub.example.com/",
        "https://HUB.example.com",
        "https://hub.example.com:443",
        "https://other.example.com",
    ] {
        assert_eq!(
            verdict(|body| (body["iss"], body["exp"]) = (json!(issuer), json!(NOW))),
            Err(Reason::CallerIssuerMismatch),
            "{issuer}"
        );
    }
}

#[test]
fn the_audience_is_ours_alone() {
    for audience in [
        json!(["other"]),
        json!(["keyferry.dev", "other"]),
        json!(["other", "keyferry.dev"]),
        json!(["keyferry.dev", "keyferry.dev"]),
        json!("KEYFERRY.DEV"),
        json!(["keyferry.dev,other"]),
    ] {
        assert_eq!(
            verdict(|body| body["aud"] = audience.clone()),
            Err(Reason::CallerAudienceMismatch),
            "{audience}"
        );
    }
}

#[test]
fn expiry_gets_no_leeway() {
    assert!(
        verdict(|body| (body["iat"], body["exp"]) = (json!(NOW - 600), json!(NOW + 1))).is_ok()
    );
    for expires in [NOW, NOW - 1] {
        assert_eq!(
            verdict(|body| (body["iat"], body["exp"]) = (json!(NOW - 600), json!(expires))),
            Err(Reason::CallerExpired)
        );
    }
}

#[test]
fn the_future_begins_after_30_s() {
    for time in ["iat", "nbf"] {
        assert!(
            verdict(|body| body[time] = json!(NOW + 30)).is_ok(),
            "{time}"
        );
        assert_eq!(
            verdict(|body| body[time] = json!(NOW + 31)),
            Err(Reason::CallerMalformed),
            "{time}"
        );
    }
    assert_eq!(
        verdict(|body| (body["iat"], body["exp"]) = (json!(NOW + 20), json!(NOW + 10))),
        Err(Reason::CallerMalformed)
    );
}

#[test]
fn a_token_may_have_to_be_a_pods() {
    let strict = CallerRules {
        require_pod_bound: true,
        ..rules()
    };
    let mut body = claims();
    assert!(read_caller_token(&token(&body), &strict, now()).is_ok());
    body["kubernetes.io"].as_object_mut().unwrap().remove("pod");
    assert_eq!(
        read_caller_token(&token(&body), &strict, now()),
        Err(Reason::CallerNotPodBound)
    );
    assert!(read_caller_token(&token(&body), &rules(), now()).is_ok());
}

#[test]
fn an_answer_about_this_token_is_accepted_with_its_user() {
    let claims = verdict(|_| {}).unwrap();
    let caller = accept_caller(&claims, review_answer(&claims), &rules()).unwrap();
    assert_eq!(caller.identity(), &claims.identity);
    assert_eq!(
        caller.user(),
        &review_answer(&claims).user,
        "groups and extra are kept as they came"
    );
    assert_eq!(
        caller.token_id(),
        Some("6f2ee0f7-1ab9-4d7a-8f4e-0e2f1b1f0c55")
    );
    assert_eq!(caller.expires_at().as_second(), NOW + 3600);
}

/// The hub's RBAC decides on this user as on one whose token it has reviewed.
#[test]
fn a_certificate_stands_for_the_user_that_the_hub_would_report() {
    let authorities = Authorities::new(now());
    let certificate = authorities.first.issue(URI, |_| {});
    let chain = PresentedChain::new(&certificate.chain).unwrap();
    let rules = CallerCertificateRules::new(authorities.rules());
    let certified = rules.identify_caller(&chain, now()).unwrap();
    let caller = accept_certificate(&certified);
    assert_eq!(caller.identity(), certified.identity());
    let groups = [
        "system:serviceaccounts",
        "system:serviceaccounts:tenant-a",
        "system:authenticated",
    ];
    let user = ReviewedUser {
        username: "system:serviceaccount:tenant-a:reconciler".to_owned(),
        uid: "uid-reconciler".to_owned(),
        groups: groups.map(str::to_owned).into(),
        ..ReviewedUser::default()
    };
    assert_eq!(caller.user(), &user);
    assert_eq!(caller.certificate(), Some(certified.certificate()));
    assert_eq!(caller.expires_at(), certified.not_after());
    assert!(caller.token_id().is_none() && caller.external().is_none());
}

type Change = (&'static str, Box<dyn Fn(&mut TokenReviewAnswer)>);

#[test]
fn any_other_answer_is_rejected() {
    let claims = verdict(|_| {}).unwrap();
    let audiences = |list: &[&str]| {
        list.iter()
            .map(|audience| (*audience).to_owned())
            .collect::<Vec<_>>()
    };
    let changes: Vec<Change> = vec![
        (
            "not authenticated",
            Box::new(|answer| answer.authenticated = false),
        ),
        (
            "no audiences",
            Box::new(move |answer| answer.audiences = audiences(&[])),
        ),
        (
            "two audiences",
            Box::new(move |answer| answer.audiences = audiences(&["keyferry.dev", "other"])),
        ),
        (
            "ours twice",
            Box::new(move |answer| answer.audiences = audiences(&["keyferry.dev", "keyferry.dev"])),
        ),
        (
            "another audience",
            Box::new(move |answer| answer.audiences = audiences(&["other"])),
        ),
        (
            "no username",
            Box::new(|answer| answer.user.username.clear()),
        ),
        (
            "another ServiceAccount",
            Box::new(|answer| {
                answer.user.username = "system:serviceaccount:tenant-b:reconciler".to_owned()
            }),
        ),
        (
            "a user",
            Box::new(|answer| answer.user.username = "reconciler".to_owned()),
        ),
        ("no uid", Box::new(|answer| answer.user.uid.clear())),
        (
            "another uid",
            Box::new(|answer| answer.user.uid = "0b8f2a5e-5f39-4c3c-9c7e-0d1c6d9f8a11".to_owned()),
        ),
        ("a longer uid", Box::new(|answer| answer.user.uid.push(' '))),
        (
            "nothing at all",
            Box::new(|answer| *answer = TokenReviewAnswer::default()),
        ),
    ];
    for (what, change) in changes {
        let mut changed = review_answer(&claims);
        change(&mut changed);
        assert_eq!(
            accept_caller(&claims, changed, &rules()).err(),
            Some(Reason::CallerRejected),
            "{what}"
        );
    }
}
