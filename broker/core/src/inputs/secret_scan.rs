//! Finds what looks like a secret in fleet inputs: a JWT, a private key, a token of this API or of
//! a well-known system, a URL with a password, or a value whose name says that it is a secret. The
//! name may be that of a member, of an entry `{name, value}`, or of a line in a text.
//!
//! This finds mistakes of writers. It cannot recognise a password under an innocent name.

use std::fmt;

use base64::Engine;
use base64::alphabet;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::{NO_PAD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::{Map, Value};

use super::secret_text::{
    has_known_token, has_named_value, has_url_with_password, is_name_member, is_value_member,
};

/// The prefix of the tokens of this API.
pub const TOKEN_PREFIX: &str = "keyferry-inputs-";

/// The most levels of a value that is accepted. A deeper one is refused, because it was not
/// scanned.
const MAX_DEPTH: usize = 32;
/// The shortest run of base64 that can hold a private key's first line or a JWT's header.
const SHORTEST_ENCODED: usize = 24;
/// Decodes a part of a token too, which may end in the middle of a byte.
const LENIENT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    NO_PAD.with_decode_allow_trailing_bits(true),
);
/// The characters of a token of this API behind its prefix.
const TOKEN_CHARACTERS: usize = 43;
/// The longest key name that a message repeats.
const MAX_SHOWN: usize = 40;

/// Endings of names whose value is a secret. Case, `-`, `_`, `.` and digits at the end do not
/// count. `secretRef` and `tokenName` end otherwise: they name a secret and do not hold it.
const SECRET_NAMES: [&str; 35] = [
    "accesskey",
    "accesskeyid",
    "accountkey",
    "apikey",
    "apikeys",
    "authorization",
    "bearer",
    "clientkey",
    "clientkeydata",
    "connectionstring",
    "cookie",
    "credential",
    "credentials",
    "dockerconfig",
    "dockerconfigjson",
    "encryptionkey",
    "htpasswd",
    "kubeconfig",
    "masterkey",
    "passphrase",
    "passwd",
    "password",
    "passwords",
    "privatekey",
    "privatekeys",
    "pwd",
    "secret",
    "secretkey",
    "secrets",
    "sharedkey",
    "signingkey",
    "sshkey",
    "tlskey",
    "token",
    "tokens",
];

/// Endings that do not change what a name means, such as in `passwordValue`.
const EMPTY_ENDINGS: [&str; 6] = ["value", "data", "base64", "b64", "text", "string"];

/// Endings of names whose value is the name of a Secret.
const REFERENCE_NAMES: [&str; 4] = [
    "existingsecret",
    "imagepullsecret",
    "imagepullsecrets",
    "pullsecrets",
];

/// What kind of secret something looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretKind {
    /// A JSON Web Token, signed or encrypted.
    Jwt,
    /// A private key in PEM, of PGP or of age.
    PrivateKey,
    /// A token of the inputs API.
    InputToken,
    /// A member whose name says that its value is a secret.
    Name,
    /// A token that begins as all tokens of a well-known system do.
    KnownToken,
    /// A URL with a password.
    UrlPassword,
    /// A text with a line or a member whose name says that its value is a secret.
    NameInText,
    /// Deeper than the scan goes.
    TooDeep,
}

/// Something in a collection looks like a secret. The message has its path and never the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{member_path} {kind}")]
pub struct LooksSecret {
    /// Where it is, as a path of member names.
    pub member_path: String,
    /// What it looks like.
    pub kind: SecretKind,
}

impl fmt::Display for SecretKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Jwt => "looks like a JSON Web Token",
            Self::PrivateKey => "looks like a private key",
            Self::InputToken => "looks like a token for fleet inputs",
            Self::KnownToken => "looks like a token of a well-known system",
            Self::UrlPassword => "has a URL with a password",
            Self::Name => "has the name of a secret",
            Self::NameInText => "has a text with a line that has the name of a secret",
            Self::TooDeep => {
                "is nested more than 32 levels deep, so it was not searched for secrets"
            }
        })
    }
}

/// Searches a value and everything nested in it.
///
/// # Errors
/// [`LooksSecret`] for the first thing that looks like a secret.
pub fn scan_for_secrets(value: &Value) -> Result<(), LooksSecret> {
    scan_at(value, "inputs", MAX_DEPTH)
}

fn scan_at(value: &Value, place: &str, depth: usize) -> Result<(), LooksSecret> {
    let refuse_secret = |place: &str, kind| {
        Err(LooksSecret {
            member_path: place.to_owned(),
            kind,
        })
    };
    if depth == 0 {
        return refuse_secret(place, SecretKind::TooDeep);
    }
    match value {
        Value::String(text) => match in_text(text) {
            Some(kind) => refuse_secret(place, kind),
            None => Ok(()),
        },
        Value::Array(items) => items.iter().enumerate().try_for_each(|(index, item)| {
            let inner = format!("{place}[{index}]");
            match index.checked_sub(1).and_then(|before| items.get(before)) {
                Some(flag) if is_value_of_flag(flag, item) => {
                    refuse_secret(&inner, SecretKind::Name)
                }
                _ => scan_at(item, &inner, depth - 1),
            }
        }),
        Value::Object(members) if is_named_secret(members) => {
            refuse_secret(place, SecretKind::Name)
        }
        Value::Object(members) => members.iter().try_for_each(|(name, value)| {
            let inner = format!("{place}.{}", printable_member(name));
            match in_text(name) {
                // The name itself must not be repeated.
                Some(kind) => refuse_secret(place, kind),
                // A switch is no secret, such as automountServiceAccountToken.
                None if is_secret_name(name) && !value.is_boolean() => {
                    refuse_secret(&inner, SecretKind::Name)
                }
                None => scan_at(value, &inner, depth - 1),
            }
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

/// Whether an entry such as `{name: DB_PASSWORD, value: x}` holds a secret by its name.
fn is_named_secret(members: &Map<String, Value>) -> bool {
    let holds = |value: &Value| match value {
        Value::Null | Value::Bool(_) => false,
        Value::String(text) => !text.is_empty(),
        Value::Number(_) | Value::Array(_) | Value::Object(_) => true,
    };
    let is_secret = |value: &Value| value.as_str().is_some_and(is_secret_name);
    let mut named = members.iter().filter(|(name, _)| is_name_member(name));
    named.any(|(_, value)| is_secret(value))
        && members
            .iter()
            .any(|(name, value)| is_value_member(name) && holds(value))
}

/// Whether an argument is the value of the flag before it, such as `--password`.
fn is_value_of_flag(flag: &Value, argument: &Value) -> bool {
    let flag = flag.as_str().and_then(|flag| flag.strip_prefix("--"));
    flag.is_some_and(|flag| !flag.contains('=') && is_secret_name(flag))
        && argument
            .as_str()
            .is_some_and(|text| !text.is_empty() && !text.starts_with(['-', '$']))
}

/// A member's name for a message, or a placeholder if the name could itself be a secret.
fn printable_member(name: &str) -> &str {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    if name.len() <= MAX_SHOWN && name.chars().all(plain) {
        name
    } else {
        "(a long or unusual name)"
    }
}

/// Whether a member's name says that its value is a secret.
fn is_secret_name(name: &str) -> bool {
    let mut plain: String = name
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    if REFERENCE_NAMES
        .iter()
        .any(|reference| plain.ends_with(reference))
    {
        return false;
    }
    loop {
        if SECRET_NAMES.iter().any(|secret| plain.ends_with(secret)) {
            return true;
        }
        let without_digits = plain.trim_end_matches(|c: char| c.is_ascii_digit());
        let shorter = EMPTY_ENDINGS
            .iter()
            .find_map(|ending| plain.strip_suffix(ending))
            .unwrap_or(without_digits)
            .len();
        if shorter == plain.len() {
            return false;
        }
        plain.truncate(shorter);
    }
}

/// What a text looks like, as it is or in base64.
fn in_text(text: &str) -> Option<SecretKind> {
    if let Some(kind) = in_plain(text) {
        return Some(kind);
    }
    // Base64 with line breaks is one run. Other text has its runs searched one by one.
    let joined: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let is_encoded = |c: char| c.is_ascii_alphanumeric() || "+/-_=".contains(c);
    if joined.chars().all(is_encoded) {
        return in_encoded(&joined);
    }
    text.split(|c| !is_encoded(c)).find_map(in_encoded)
}

/// What a run of base64 looks like when it is decoded. It is decoded once, as the data of a Secret
/// would be.
fn in_encoded(run: &str) -> Option<SecretKind> {
    let run = run.trim_end_matches('=');
    if run.len() < SHORTEST_ENCODED {
        return None;
    }
    // A run of a length that base64 does not have is searched without its last character.
    let run = if run.len() % 4 == 1 {
        run.get(..run.len() - 1)?
    } else {
        run
    };
    let decoded = STANDARD_NO_PAD
        .decode(run)
        .or_else(|_| URL_SAFE_NO_PAD.decode(run))
        .ok()?;
    let kind = in_plain(&String::from_utf8_lossy(&decoded));
    // Names of objects have no upper-case letter. Tenants choose them, and must not be able to
    // choose one that is base64 of `token=x`.
    let can_be_name = !run.bytes().any(|byte| byte.is_ascii_uppercase());
    kind.filter(|kind| {
        let by_form = [
            SecretKind::KnownToken,
            SecretKind::UrlPassword,
            SecretKind::NameInText,
        ];
        !(can_be_name && by_form.contains(kind))
    })
}

fn in_plain(text: &str) -> Option<SecretKind> {
    if text.contains(TOKEN_PREFIX) && has_input_token(text) {
        Some(SecretKind::InputToken)
    } else if has_private_key(text) {
        Some(SecretKind::PrivateKey)
    } else if has_jwt(text) {
        Some(SecretKind::Jwt)
    } else if has_known_token(text) {
        Some(SecretKind::KnownToken)
    } else if has_url_with_password(text) {
        Some(SecretKind::UrlPassword)
    } else if has_named_value(text, is_secret_name) {
        Some(SecretKind::NameInText)
    } else {
        None
    }
}

/// Finds the prefix with the part that only a token has after it. Names of ConfigMaps begin with
/// the prefix too.
fn has_input_token(text: &str) -> bool {
    text.match_indices(TOKEN_PREFIX).any(|(at, _)| {
        let rest = text.get(at + TOKEN_PREFIX.len()..).unwrap_or_default();
        let url_safe = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let random: String = rest
            .chars()
            .take(TOKEN_CHARACTERS)
            .take_while(url_safe)
            .collect();
        // Without an upper-case letter it can be a Kubernetes name. Tenants choose such names, and
        // must not be able to block the lists that contain them.
        random.len() == TOKEN_CHARACTERS && random.contains(|c: char| c.is_ascii_uppercase())
    })
}

fn has_private_key(text: &str) -> bool {
    let upper = text.to_ascii_uppercase();
    let pem = upper.match_indices("-----BEGIN ").any(|(at, _)| {
        let label = upper.get(at..).unwrap_or_default();
        let label: String = label.chars().take(80).collect();
        label.contains("PRIVATE KEY")
    });
    pem || text.contains("AGE-SECRET-KEY-1") || text.contains("PuTTY-User-Key-File-")
}

/// Whether the text has two segments joined by a dot, the first of which is a JOSE header (RFC 7515
/// section 7.1, RFC 7516 section 7.1).
fn has_jwt(text: &str) -> bool {
    let in_token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '=');
    text.split(|c| !in_token(c)).any(|run| {
        let segments: Vec<&str> = run.split('.').collect();
        segments
            .windows(2)
            .any(|pair| matches!(pair, [head, next] if !next.is_empty() && is_jose_header(head)))
    })
}

fn is_jose_header(segment: &str) -> bool {
    // A member such as `x=eyJ…` or `token-eyJ…` has the header at its end.
    let run = segment.trim_end_matches('=').rsplit('=').next();
    let run = run.unwrap_or_default();
    // The header may begin at any character. Each of the four ways to divide the run into groups is
    // decoded once, so that the time grows with its length and not with the square of it.
    (0..4).any(|skipped| {
        let groups = run.get(skipped..).unwrap_or_default();
        let whole = groups.len() - usize::from(groups.len() % 4 == 1);
        let decoded = groups
            .get(..whole)
            .map(|groups| LENIENT_BASE64.decode(groups));
        let Some(Ok(decoded)) = decoded else {
            return false;
        };
        let member = |bytes: &[u8]| matches!(bytes, br#""alg""# | br#""enc""#);
        let Some(last) = decoded.windows(5).rposition(member) else {
            return false;
        };
        // An object begins with a quote, or with white space: {" is ey, and the others are ew or ey.
        let begins = |group: &[u8]| group.starts_with(b"ey") || group.starts_with(b"ew");
        let first = groups.as_bytes().chunks(4).position(begins);
        first.is_some_and(|group| group * 3 < last)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;
    use serde_json::json;

    use super::{SecretKind, TOKEN_PREFIX, scan_for_secrets};

    /// A JWT without meaning: its parts are the base64 of a header, an empty object and text.
    fn jwt() -> String {
        let part = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
        format!(
            "{}.{}.{}",
            part(r#"{"alg":"RS256","kid":"k"}"#),
            part("{}"),
            part("signature")
        )
    }

    fn pem() -> String {
        format!(
            "-----BEGIN {} KEY-----\nMIIB\n-----END {0} KEY-----",
            "PRIVATE"
        )
    }

    #[test]
    fn secrets_are_found_wherever_they_are_and_never_repeated() {
        let (jwt, pem) = (jwt(), pem());
        let token = format!("{TOKEN_PREFIX}{}", "aB".repeat(22));
        let spaced = jwt.replacen(
            jwt.split('.').next().unwrap(),
            &base64::engine::general_purpose::URL_SAFE_NO_PAD.encode("{\n \"alg\": \"ES256\"}"),
            1,
        );
        let wrapped: String = STANDARD
            .encode(&pem)
            .as_bytes()
            .chunks(16)
            .map(|line| format!("{}\n", String::from_utf8_lossy(line)))
            .collect();
        let texts = [
            (jwt.clone(), SecretKind::Jwt),
            (spaced, SecretKind::Jwt),
            (format!("Authorization: Bearer {jwt}"), SecretKind::Jwt),
            (format!("https://x.example?id_token={jwt}"), SecretKind::Jwt),
            (STANDARD.encode(&jwt), SecretKind::Jwt),
            (pem.clone(), SecretKind::PrivateKey),
            (pem.to_lowercase(), SecretKind::PrivateKey),
            (
                format!("key: {}", STANDARD.encode(&pem)),
                SecretKind::PrivateKey,
            ),
            (wrapped, SecretKind::PrivateKey),
            ("AGE-SECRET-KEY-1QQQQ".to_owned(), SecretKind::PrivateKey),
            (token, SecretKind::InputToken),
        ];
        for (text, kind) in texts {
            for value in [
                json!([{ "id": "a", "x": text }]),
                json!([{ "id": "a", "x": { "y": ["b", { "z": text }] } }]),
                json!([{ "id": text }]),
                json!([{ "id": "a", text.clone(): 1 }]),
            ] {
                let found = scan_for_secrets(&value).unwrap_err();
                assert_eq!(found.kind, kind, "{value}");
                let said = found.to_string();
                assert!(
                    said.starts_with("inputs") && !said.contains(&text),
                    "{said}"
                );
            }
        }
    }

    #[test]
    fn names_of_secrets_are_refused_and_names_of_references_are_not() {
        for name in [
            "password",
            "dbPassword",
            "DB_PASSWORD",
            "token",
            "api-token",
            "tls.key",
            "clientSecret",
            "client_secret_1",
            "passwordValue",
            "secret",
            "kubeconfig",
            ".dockerconfigjson",
            "AWS_SECRET_ACCESS_KEY",
            "privateKey",
            "token2Base64",
            "credentials",
        ] {
            let found =
                scan_for_secrets(&json!([{ "id": "a", "deep": { name: null } }])).unwrap_err();
            assert_eq!(found.kind, SecretKind::Name, "{name}");
            assert_eq!(found.member_path, format!("inputs[0].deep.{name}"));
        }
        for name in [
            "secretRef",
            "secretName",
            "passwordSecretName",
            "tokenLifetime",
            "keyName",
            "publicKey",
            "serviceAccountName",
            "ca.crt",
            "version",
            "id",
            "monkey",
            "secretNamespace",
        ] {
            assert_eq!(
                scan_for_secrets(&json!([{ "id": "a", name: "x" }])),
                Ok(()),
                "{name}"
            );
        }
    }

    #[test]
    fn what_inputs_usually_hold_is_accepted() {
        for text in [
            "1.2.3",
            "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
            "registry.example.com/platform/cert-manager:v1.20.1",
            "prod-eu.fleet.example.com",
            "keyferry-inputs-prod-eu",
            "eyebrow.example.com",
            "https://hub.example.com:9443/a.b.c",
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
            "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
            "",
        ] {
            assert_eq!(
                scan_for_secrets(&json!([{ "id": "a", "x": text }])),
                Ok(()),
                "{text}"
            );
        }
    }

    /// With a time that grows as the square of the length, this test would run for hours.
    #[test]
    fn a_long_text_that_begins_like_a_token_everywhere_is_searched_at_once() {
        for text in [
            "ey".repeat(450_000) + ".a",
            "ew".repeat(450_000) + ".a",
            "ey.".repeat(300_000),
            TOKEN_PREFIX.repeat(56_000),
            "-----BEGIN ".repeat(80_000),
        ] {
            assert_eq!(scan_for_secrets(&json!([{ "id": "a", "x": text }])), Ok(()));
        }
    }

    #[test]
    fn a_header_is_found_behind_any_text_of_its_own_alphabet() {
        for before in [
            "", "a", "ab", "abc", "token-", "ey", "eyJ", "ew-ey_", "x=", "eyJ=ey",
        ] {
            let text = format!("{before}{}", jwt());
            let found = scan_for_secrets(&json!([{ "id": "a", "x": text }]));
            assert_eq!(found.unwrap_err().kind, SecretKind::Jwt, "{before}");
        }
    }

    #[test]
    fn what_is_too_deep_to_search_is_refused() {
        let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
        assert_eq!(scan_for_secrets(&nested(31)), Ok(()));
        assert_eq!(
            scan_for_secrets(&nested(32)).unwrap_err().kind,
            SecretKind::TooDeep
        );
    }

    proptest! {
        /// A bounded fuzz run: no text panics, and a secret is found whatever surrounds it.
        #[test]
        fn any_text_is_searched(text in ".{0,400}", before in "[ \\n\"'{}(),;:]{0,3}", after in "[ \\n\"'{}(),;]{0,3}") {
            let _ = scan_for_secrets(&json!([{ "id": &text, &text: [&text] }]));
            for secret in [jwt(), pem()] {
                let inside = format!("{text} {before}{secret}{after} {text}");
                let found = scan_for_secrets(&json!([{ "id": "a", "x": inside }]));
                prop_assert!(found.is_err());
            }
        }

        /// Tenants choose the names of objects, and must not be able to block the lists that
        /// contain them.
        #[test]
        fn no_name_of_an_object_looks_like_a_secret(
            start in "(keyferry-inputs-|age-secret-key-1|eyj|ewog|ls0tls1crudjti|[a-z])",
            rest in "[a-z0-9.-]{0,200}",
        ) {
            let name = start + &rest;
            let found = scan_for_secrets(&json!([{ "id": &name, "name": name }]));
            prop_assert_eq!(found, Ok(()));
        }

        #[test]
        fn any_bytes_in_base64_are_searched(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = scan_for_secrets(&json!([STANDARD.encode(bytes)]));
        }
    }
}
