//! Maps the text of a TokenReview's `status.error` to a hop and a cause.

use keyferry_kube_authn::Code;

use super::Hop;

/// A part of the error text, and the hop and code that it means. The first match counts.
const WORDS: [(&str, Hop, Code); 27] = [
    (
        "authenticator not initialized",
        Hop::TargetKeys,
        Code::AuthenticatorNotInitialized,
    ),
    (
        "failed to decode keys",
        Hop::TargetKeys,
        Code::KeySetUndecodable,
    ),
    ("fetching keys", Hop::TargetKeys, Code::TargetCannotReadKeys),
    (
        "failed to verify id token signature",
        Hop::TargetKeys,
        Code::SignatureInvalid,
    ),
    (
        "unsupported algorithm",
        Hop::Configuration,
        Code::AlgorithmUnsupported,
    ),
    ("malformed jwt", Hop::Configuration, Code::MalformedJwt),
    (
        "expected audience",
        Hop::Configuration,
        Code::AudienceDiffers,
    ),
    ("token is expired", Hop::Configuration, Code::TokenExpired),
    (
        "before the nbf (not before) time",
        Hop::Configuration,
        Code::TokenNotYetValid,
    ),
    (
        "failed to unmarshal claims",
        Hop::Configuration,
        Code::ClaimsMalformed,
    ),
    (
        "could not expand distributed claims",
        Hop::Configuration,
        Code::DistributedClaimsMalformed,
    ),
    (
        "empty username via CEL",
        Hop::Configuration,
        Code::UsernameEmpty,
    ),
    (
        "error evaluating username claim expression",
        Hop::Configuration,
        Code::UsernameExpressionFailed,
    ),
    (
        "error evaluating group claim expression",
        Hop::Configuration,
        Code::GroupsExpressionFailed,
    ),
    (
        "error evaluating uid claim expression",
        Hop::Configuration,
        Code::UidExpressionFailed,
    ),
    (
        "error evaluating extra claim expression",
        Hop::Configuration,
        Code::ExtraExpressionFailed,
    ),
    (
        "email not verified",
        Hop::Configuration,
        Code::EmailNotVerified,
    ),
    (
        "parse 'email_verified' claim",
        Hop::Configuration,
        Code::EmailVerifiedNotBool,
    ),
    (
        "parse username claims",
        Hop::Configuration,
        Code::UsernameClaimMissing,
    ),
    (
        "parse groups claim",
        Hop::Configuration,
        Code::GroupsClaimMalformed,
    ),
    ("parse uid claim", Hop::Configuration, Code::UidClaimMissing),
    (
        "not present in ID token",
        Hop::Configuration,
        Code::RequiredClaimMissing,
    ),
    (
        "value does not match. Got",
        Hop::Configuration,
        Code::RequiredClaimDiffers,
    ),
    (
        "source does not exist",
        Hop::Configuration,
        Code::ClaimSourceMissing,
    ),
    (
        "validation rule expression",
        Hop::Configuration,
        Code::UserRuleFalse,
    ),
    (
        "parse claim",
        Hop::Configuration,
        Code::RequiredClaimNotString,
    ),
    // The target's own ServiceAccount authenticator reports this: it regards the issuer as its own.
    (
        "invalid signature, no keys found",
        Hop::Configuration,
        Code::IssuerIsTargets,
    ),
];

/// Returns the hop and code of a target's error text; `None` if the text is unknown.
#[must_use]
pub(super) fn cause_of(words: &str) -> Option<(Hop, Code)> {
    let words = words
        .strip_prefix("[invalid bearer token, ")
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(words);
    if words == "invalid bearer token" {
        return Some((Hop::Configuration, Code::IssuerDiffers));
    }
    // These texts end in an expression or message from the file, which may contain any of `WORDS`.
    // So they are checked first.
    for (start, failed, code) in [
        (
            "oidc: error evaluating claim validation expression: ",
            "resulted in error",
            (Code::ClaimRuleFailed, Code::ClaimRuleFalse),
        ),
        (
            "oidc: error evaluating user info validation rule: ",
            "resulted in error",
            (Code::UserRuleFailed, Code::UserRuleFalse),
        ),
    ] {
        if let Some(rest) = words.strip_prefix(start) {
            return Some((
                Hop::Configuration,
                if rest.contains(failed) {
                    code.0
                } else {
                    code.1
                },
            ));
        }
    }
    WORDS
        .iter()
        .find(|(part, ..)| words.contains(part))
        .map(|(_, hop, code)| (*hop, *code))
}
