//! The checks of one JWT authenticator, in the order and wording of kube-apiserver 1.36.

use super::provider::SignatureError;
use super::{TargetPolicy, TokenCase};
use crate::identity::{AUTHENTICATED, UserInfo};
use crate::jws::{ACCEPTED, Jws};

/// Why a token was not accepted; displayed as the text of `status.error` in a TokenReview, and of
/// the apiserver's log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// No authenticator claimed the token.
    #[error("invalid bearer token")]
    Unclaimed,
    /// The keys' location was never read.
    #[error("[invalid bearer token, oidc: authenticator not initialized]")]
    NotInitialised,
    /// The token failed a check.
    #[error("[invalid bearer token, oidc: verify token: {0}]")]
    Unverified(#[from] TokenError),
    /// The verifier refused the token.
    #[error("[invalid bearer token, {0}]")]
    Verifier(String),
    /// The token has no subject.
    #[error("[invalid bearer token, oidc: parse username claims \"sub\": claim not present]")]
    NoSubject,
    /// A claim validation rule failed.
    #[error(
        "[invalid bearer token, oidc: error evaluating claim validation expression: validation \
         expression '{expression}' failed: {message}]"
    )]
    Rule {
        expression: String,
        message: &'static str,
    },
}

/// The check that a token failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    #[error(
        "oidc: id token signed with unsupported algorithm, expected {} got {found:?}",
        quoted(&ACCEPTED)
    )]
    Algorithm { found: String },
    #[error(transparent)]
    Signature(#[from] SignatureError),
    #[error("oidc: failed to unmarshal claims: aud is neither a string nor a list of them")]
    MalformedAudience,
    #[error("oidc: expected audience {expected:?} got {}", quoted(.found))]
    OtherAudience {
        expected: String,
        found: Vec<String>,
    },
    #[error("oidc: token is expired (Token Expiry: {})", time_text(*.0))]
    Expired(i64),
    #[error("oidc: current time {now} before the nbf (not before) time: {}", time_text(*.not_before))]
    NotYetValid {
        now: jiff::Timestamp,
        not_before: i64,
    },
}

/// Verifies a token and returns its user.
pub(super) async fn token(target: &TargetPolicy, token: &str) -> Result<UserInfo, Refusal> {
    let jws = Jws::parse(token).ok_or(Refusal::Unclaimed)?;
    if jws.claim("iss") != Some(target.options.issuer.as_str()) {
        return Err(Refusal::Unclaimed);
    }
    if !target.provider.initialised().await {
        return Err(Refusal::NotInitialised);
    }
    if let Some(verifier) = &target.options.verifier {
        let key_set = target.provider.key_set(&jws).await;
        let case = TokenCase {
            token,
            key_set: key_set.as_deref(),
            now: target.now(),
        };
        let mut user = verifier(&case).map_err(|refused| Refusal::Verifier(refused.cause))?;
        user.groups.push(AUTHENTICATED.to_owned());
        return Ok(user);
    }
    let audiences = check_token(target, &jws).await?;
    let subject = jws.claim("sub").ok_or(Refusal::NoSubject)?;
    check_rules(target, subject, &audiences)?;
    let user = UserInfo {
        username: format!("{}{subject}", target.options.username_prefix),
        groups: vec![AUTHENTICATED.to_owned()],
        ..UserInfo::default()
    };
    Ok(user.with_credential_id(jws.claim("jti")))
}

/// Checks everything that is signed except the claims that rules read; returns the audiences.
async fn check_token(target: &TargetPolicy, jws: &Jws<'_>) -> Result<Vec<String>, TokenError> {
    if !ACCEPTED.contains(&jws.algorithm()) {
        return Err(TokenError::Algorithm {
            found: jws.algorithm().to_owned(),
        });
    }
    target.provider.verify(jws).await?;
    let audiences = check_audience(jws, &target.options.audience)?;
    check_times(jws, target.now())?;
    Ok(audiences)
}

fn check_audience(jws: &Jws<'_>, expected: &str) -> Result<Vec<String>, TokenError> {
    let audiences = jws.audiences().ok_or(TokenError::MalformedAudience)?;
    if audiences.iter().any(|audience| audience == expected) {
        return Ok(audiences);
    }
    Err(TokenError::OtherAudience {
        expected: expected.to_owned(),
        found: audiences,
    })
}

/// Checks `exp` without leeway (equal still passes), and `nbf` with 60 s.
fn check_times(jws: &Jws<'_>, now: jiff::Timestamp) -> Result<(), TokenError> {
    let expiry = jws.seconds("exp").unwrap_or(i64::MIN);
    if expiry < now.as_second() {
        return Err(TokenError::Expired(expiry));
    }
    let not_before = jws.seconds("nbf").unwrap_or(i64::MIN);
    if now.as_second() < not_before.saturating_sub(60) {
        return Err(TokenError::NotYetValid { now, not_before });
    }
    Ok(())
}

/// The claim validation rules that a target's configuration would carry.
fn check_rules(target: &TargetPolicy, subject: &str, audiences: &[String]) -> Result<(), Refusal> {
    let failed = |expression: &str, message| {
        Err(Refusal::Rule {
            expression: expression.to_owned(),
            message,
        })
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
