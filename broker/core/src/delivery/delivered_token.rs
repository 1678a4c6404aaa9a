//! Reads which keys signed the tokens in a delivered object, and when the last of them expires.
//!
//! A tenant can edit the annotations of its own Secret and add data to it. So all tokens in the
//! data are read.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use keyferry_keys::jwt::{MAX_JWT_BYTES, UnverifiedJwt};
use serde_json::Value;
use zeroize::Zeroizing;

/// The largest value of `data` that is searched. A kubeconfig with its CA certificates is smaller.
const MAX_VALUE_BYTES: usize = 512 * 1024;
/// The most strings that are tried as a token in one object. Keyferry writes one token; a tenant
/// can fill an object with strings that begin like one.
const MAX_CANDIDATES: usize = 16;

/// What the tokens in the `data` of a delivered object say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveredTokens {
    /// The `kid` of every token that has one.
    pub key_ids: BTreeSet<String>,
    /// The latest `exp`.
    pub expires_at: Option<Timestamp>,
    /// Whether all of the object was searched. If not, it may contain other tokens.
    pub complete: bool,
}

/// Reads the tokens of an object.
pub(super) fn read_tokens(object: &Value) -> DeliveredTokens {
    let mut tokens = DeliveredTokens {
        complete: true,
        ..DeliveredTokens::default()
    };
    let mut left = MAX_CANDIDATES;
    for value in object
        .get("data")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        tokens.complete &= value
            .1
            .as_str()
            .is_some_and(|encoded| tokens.search_value(encoded, &mut left));
    }
    tokens
}

impl DeliveredTokens {
    /// Adds the tokens of one value. Returns whether all of it was searched.
    fn search_value(&mut self, encoded: &str, left: &mut usize) -> bool {
        if encoded.len() > MAX_VALUE_BYTES {
            return false;
        }
        let Ok(decoded) = STANDARD.decode(encoded).map(Zeroizing::new) else {
            return false;
        };
        let Ok(text) = std::str::from_utf8(&decoded) else {
            return false;
        };
        let is_of_token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let words = text.split(|c| !is_of_token(c));
        for word in words.filter(|word| word.starts_with("ey") && word.contains('.')) {
            if *left == 0 || word.len() > MAX_JWT_BYTES {
                return false;
            }
            *left -= 1;
            let Ok(token) = UnverifiedJwt::parse(word) else {
                continue;
            };
            self.key_ids.extend(token.kid().map(str::to_owned));
            let seconds = token.claims().get("exp").and_then(Value::as_i64);
            let expires_at = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
            self.expires_at = self.expires_at.max(expires_at);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use serde_json::json;

    use super::*;

    fn token(kid: &str, exp: i64) -> String {
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let (header, claims) = (json!({ "alg": "ES256", "kid": kid }), json!({ "exp": exp }));
        format!(
            "{}.{}.{}",
            part(header),
            part(claims),
            URL_SAFE_NO_PAD.encode([7; 64])
        )
    }

    fn object(text: &str) -> Value {
        json!({ "data": { "value": STANDARD.encode(text), "name": STANDARD.encode("prod") } })
    }

    #[test]
    fn the_token_says_which_key_signed_it() {
        let yaml = format!("users:\n- user:\n    token: {}\n", token("old", 60));
        let json = format!(r#"{{"bearerToken":"{}"}}"#, token("old", 60));
        for text in [yaml, json] {
            let tokens = read_tokens(&object(&text));
            assert!(
                tokens.complete && tokens.key_ids.iter().eq(["old"]),
                "{text}"
            );
            assert_eq!(tokens.expires_at.map(Timestamp::as_second), Some(60));
        }
    }

    #[test]
    fn a_decoy_hides_no_token() {
        let mut object = object(&token("old", 60));
        object["data"]["aaa"] = json!(STANDARD.encode(token("new", 90)));
        let tokens = read_tokens(&object);
        assert!(tokens.complete && tokens.key_ids.iter().eq(["new", "old"]));
        assert_eq!(tokens.expires_at.map(Timestamp::as_second), Some(90));
    }

    #[test]
    fn what_cannot_be_searched_whole_is_not_known() {
        let padded = format!("{}{}", token("old", 60), " ".repeat(MAX_VALUE_BYTES));
        let crowd = "eyJ.eyJ.x ".repeat(MAX_CANDIDATES + 1);
        let long = "ey.".repeat(MAX_JWT_BYTES);
        for text in [padded, crowd, long] {
            assert!(!read_tokens(&object(&text)).complete);
        }
        assert!(!read_tokens(&json!({ "data": { "value": "not base64!" } })).complete);
    }

    #[test]
    fn what_is_no_token_says_nothing() {
        for object in [
            object(""),
            object("eyJ.eyJ.x"),
            object("users: []"),
            json!({}),
        ] {
            assert_eq!(
                read_tokens(&object),
                DeliveredTokens {
                    complete: true,
                    ..DeliveredTokens::default()
                }
            );
        }
    }
}
