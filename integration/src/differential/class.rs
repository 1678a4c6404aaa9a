//! Classifies reasons by stage and cause, without the values that a text contains.

/// The class of a refused token, derived from kube-apiserver's text.
pub(crate) fn of_rejection(text: &str) -> &'static str {
    let inner = text.strip_prefix("oidc: verify token: ").unwrap_or(text);
    first_match(inner, REJECTIONS)
}

/// The class of the error for a file that is not loaded.
pub(crate) fn of_load_error(text: &str) -> &'static str {
    first_match(text, LOAD_ERRORS)
}

/// Every class of refused tokens. A run over many cases must meet each of them.
pub(crate) fn of_rejections() -> impl Iterator<Item = &'static str> {
    REJECTIONS.iter().map(|(_, class)| *class)
}

fn first_match(text: &str, table: &[(&str, &'static str)]) -> &'static str {
    table
        .iter()
        .find(|(part, _)| text.contains(part))
        .map_or("other", |(_, class)| class)
}

/// The order matters, because one text may contain the parts of several classes.
const REJECTIONS: &[(&str, &str)] = &[
    ("oidc: authenticator not initialized", "not initialized"),
    (
        "oidc: could not expand distributed claims",
        "distributed claims",
    ),
    ("oidc: malformed jwt", "malformed"),
    ("signed with unsupported algorithm", "algorithm"),
    ("fetching keys oidc: failed to decode keys", "key set"),
    ("failed to verify signature", "signature"),
    ("oidc: failed to unmarshal claims", "claims"),
    ("oidc: source does not exist", "claim source"),
    ("oidc: expected audience", "audience"),
    ("oidc: token is expired", "expired"),
    ("before the nbf (not before) time", "not yet valid"),
    ("oidc: parse username claims", "username claim"),
    ("oidc: email not verified", "email not verified"),
    ("oidc: parse 'email_verified' claim", "email_verified claim"),
    ("oidc: empty username", "empty username"),
    ("oidc: parse groups claim", "groups claim"),
    ("oidc: parse uid claim", "uid claim"),
    ("not present in ID token", "required claim missing"),
    ("value does not match. Got", "required claim differs"),
    ("oidc: parse claim", "required claim type"),
    (
        "oidc: error evaluating username claim expression",
        "username expression",
    ),
    (
        "oidc: error evaluating group claim expression",
        "groups expression",
    ),
    (
        "oidc: error evaluating uid claim expression",
        "uid expression",
    ),
    (
        "oidc: error evaluating extra claim expression",
        "extra expression",
    ),
    (
        "oidc: error evaluating claim validation expression: validation expression",
        "rule false",
    ),
    (
        "oidc: error evaluating claim validation expression: expression",
        "rule error",
    ),
    (
        "oidc: error evaluating user info validation rule: validation expression",
        "user rule false",
    ),
    (
        "oidc: error evaluating user info validation rule: expression",
        "user rule error",
    ),
    ("resulted in error", "mapping error"),
];

const LOAD_ERRORS: &[(&str, &str)] = &[
    ("empty config data", "empty"),
    ("strict decoding error", "strict"),
    ("Object 'Kind' is missing", "no kind"),
    ("'apiVersion' is missing", "no version"),
    ("no kind ", "unknown kind"),
    ("couldn't get version/kind", "no version and kind"),
    ("json: cannot unmarshal", "type"),
    ("yaml: ", "yaml"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_their_class() {
        assert_eq!(
            of_rejection("oidc: verify token: oidc: token is expired (Token Expiry: x)"),
            "expired"
        );
        assert_eq!(
            of_rejection(
                "oidc: verify token: failed to verify signature: fetching keys oidc: failed to \
                 decode keys: x"
            ),
            "key set"
        );
        assert_eq!(
            of_rejection("expression 'claims.zzz' resulted in error: no such key: zzz"),
            "mapping error"
        );
        assert_eq!(of_rejection("never said"), "other");
        assert_eq!(
            of_load_error("strict decoding error: yaml: unmarshal errors:\n"),
            "strict"
        );
    }
}
