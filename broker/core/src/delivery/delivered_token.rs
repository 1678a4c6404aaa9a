//! Reads which key signed the token in a delivered object. A tenant can edit the annotations of its own Secret, and the token says it itself.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::jwt::{MAX_JWT_BYTES, UnverifiedJwt};

/// The largest value of `data` that is searched. A kubeconfig with its CA certificates is smaller.
const MAX_VALUE_BYTES: usize = 512 * 1024;
/// Texts of a value that are tried as a token. Keyferry writes one; a tenant could fill a value with texts that begin like one.
const MAX_CANDIDATES: usize = 16;

/// The `kid` of the first token in the object's `data`; none where no value holds a token with a `kid`.
pub(super) fn key_id(object: &Value) -> Option<String> {
    let data = object.get("data").and_then(Value::as_object)?;
    data.values().filter_map(Value::as_str).find_map(key_id_in)
}

fn key_id_in(encoded: &str) -> Option<String> {
    if encoded.len() > MAX_VALUE_BYTES {
        return None;
    }
    let decoded = Zeroizing::new(STANDARD.decode(encoded).ok()?);
    let text = std::str::from_utf8(&decoded).ok()?;
    let is_of_token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let candidates = text.split(|c| !is_of_token(c)).filter(|word| word.starts_with("ey") && word.len() <= MAX_JWT_BYTES);
    let mut tokens = candidates.take(MAX_CANDIDATES).filter_map(|word| UnverifiedJwt::parse(word).ok());
    tokens.find_map(|token| token.kid().map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use serde_json::json;

    use super::*;

    fn token(kid: &str) -> String {
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.{}", part(json!({ "alg": "ES256", "kid": kid })), part(json!({ "iss": "x" })), URL_SAFE_NO_PAD.encode([7; 64]))
    }

    fn object(text: &str) -> Value {
        json!({ "data": { "value": STANDARD.encode(text), "name": STANDARD.encode("prod") } })
    }

    #[test]
    fn the_token_says_which_key_signed_it() {
        for text in [format!("users:\n- user:\n    token: {}\n", token("old")), format!(r#"{{"bearerToken":"{}"}}"#, token("old"))] {
            assert_eq!(key_id(&object(&text)).as_deref(), Some("old"), "{text}");
        }
    }

    #[test]
    fn what_is_no_token_says_nothing() {
        let long = "ey".repeat(MAX_JWT_BYTES);
        for text in ["", "eyJ.eyJ.x", "users: []", long.as_str()] {
            assert_eq!(key_id(&object(text)), None);
        }
        assert_eq!(key_id(&json!({ "data": { "value": "not base64!" } })), None);
        assert_eq!(key_id(&json!({})), None);
        assert_eq!(key_id(&object(&format!("{} {}", "eyJ.eyJ.x ".repeat(MAX_CANDIDATES), token("old")))), None, "the search is bounded");
    }
}
