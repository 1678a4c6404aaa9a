//! The checks of one JWT authenticator, in the order and wording of kube-apiserver 1.36.

use super::TargetState;
use crate::identity::{AUTHENTICATED, UserInfo};
use crate::jws::{ACCEPTED, Jws};

/// Why a token was not accepted.
pub(super) enum Refusal {
    /// No authenticator claimed the token.
    Unclaimed,
    /// The JWT authenticator refused it.
    Because(String),
}

impl Refusal {
    /// The text of `status.error` in a TokenReview, and of the apiserver's log.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Unclaimed => "invalid bearer token".to_owned(),
            Self::Because(cause) => format!("[invalid bearer token, {cause}]"),
        }
    }
}

/// Verifies a token and returns its user.
pub(super) async fn token(target: &TargetState, token: &str) -> Result<UserInfo, Refusal> {
    let jws = Jws::parse(token).ok_or(Refusal::Unclaimed)?;
    if jws.claim("iss") != Some(target.options.issuer.as_str()) {
        return Err(Refusal::Unclaimed);
    }
    if !target.provider.initialised().await {
        return Err(Refusal::Because(
            "oidc: authenticator not initialized".to_owned(),
        ));
    }
    let unverified = |cause| Refusal::Because(format!("oidc: verify token: {cause}"));
    check_algorithm(&jws).map_err(unverified)?;
    target.provider.verify(&jws).await.map_err(unverified)?;
    let audiences = check_audience(&jws, &target.options.audience).map_err(unverified)?;
    check_times(&jws, target.now()).map_err(unverified)?;
    let subject = jws.claim("sub").ok_or_else(|| {
        Refusal::Because("oidc: parse username claims \"sub\": claim not present".to_owned())
    })?;
    check_rules(target, subject, &audiences).map_err(Refusal::Because)?;
    let user = UserInfo {
        username: format!("{}{subject}", target.options.username_prefix),
        groups: vec![AUTHENTICATED.to_owned()],
        ..UserInfo::default()
    };
    Ok(user.with_credential_id(jws.claim("jti")))
}

fn check_algorithm(jws: &Jws<'_>) -> Result<(), String> {
    if ACCEPTED.contains(&jws.algorithm()) {
        return Ok(());
    }
    Err(format!(
        "oidc: id token signed with unsupported algorithm, expected {} got {:?}",
        quoted(&ACCEPTED),
        jws.algorithm()
    ))
}

fn check_audience(jws: &Jws<'_>, expected: &str) -> Result<Vec<String>, String> {
    let audiences = jws
        .audiences()
        .ok_or("oidc: failed to unmarshal claims: aud is neither a string nor a list of them")?;
    if audiences.iter().any(|audience| audience == expected) {
        return Ok(audiences);
    }
    Err(format!(
        "oidc: expected audience {expected:?} got {}",
        quoted(&audiences)
    ))
}

/// Checks `exp` without leeway (equal still passes), and `nbf` with 60 s.
fn check_times(jws: &Jws<'_>, now: jiff::Timestamp) -> Result<(), String> {
    let expiry = jws.seconds("exp").unwrap_or(i64::MIN);
    if expiry < now.as_second() {
        return Err(format!(
            "oidc: token is expired (Token Expiry: {})",
            time_text(expiry)
        ));
    }
    let not_before = jws.seconds("nbf").unwrap_or(i64::MIN);
    if now.as_second() < not_before.saturating_sub(60) {
        return Err(format!(
            "oidc: current time {now} before the nbf (not before) time: {}",
            time_text(not_before)
        ));
    }
    Ok(())
}

/// The claim validation rules that a target's configuration would carry.
fn check_rules(target: &TargetState, subject: &str, audiences: &[String]) -> Result<(), String> {
    let failed = |expression: &str, message: &str| {
        Err(format!(
            "oidc: error evaluating claim validation expression: \
             validation expression '{expression}' failed: {message}"
        ))
    };
    if audiences.len() != 1 {
        return failed(
            "type(claims.aud) == string || claims.aud.size() == 1",
            "the token must have exactly one audience",
        );
    }
    let allowed = &target.options.allowed_subjects;
    if !allowed.iter().any(|allowed| allowed == subject) {
        let expression = format!("claims.sub in [{}]", allowed_text(allowed));
        return failed(&expression, "the subject is not allowed");
    }
    Ok(())
}

fn allowed_text(subjects: &[String]) -> String {
    let quoted: Vec<String> = subjects.iter().map(|it| format!("{it:?}")).collect();
    quoted.join(", ")
}

/// `["a" "b"]`, as Go prints quoted lists.
fn quoted<T: AsRef<str>>(entries: &[T]) -> String {
    let entries: Vec<String> = entries
        .iter()
        .map(|entry| format!("{:?}", entry.as_ref()))
        .collect();
    format!("[{}]", entries.join(" "))
}

fn time_text(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds)
        .map_or_else(|_| "year 1".to_owned(), |time| time.to_string())
}
