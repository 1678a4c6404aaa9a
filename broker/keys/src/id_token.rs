//! The claims of an id-token (OpenID Connect Core 1.0 section 2) of an issuer other than a hub,
//! such as a CI system.

use serde_json::{Map, Value};

use crate::claims::{ClaimsFormError, MAX_CLAIM_BYTES, RegisteredClaims, read_text, require_claim};
use crate::jwt::UnverifiedJwt;

/// The unverified claims of an id-token; [`crate::verify`] checks them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdTokenClaims {
    registered: RegisteredClaims,
    subject: String,
    members: Map<String, Value>,
}

impl IdTokenClaims {
    /// Reads the claims of a token, verified or not.
    ///
    /// # Errors
    /// [`ClaimsFormError`] names the first claim that is missing or of the wrong form.
    pub fn read(jwt: &UnverifiedJwt) -> Result<Self, ClaimsFormError> {
        let claims = jwt.claims();
        Ok(Self {
            registered: RegisteredClaims::read(claims)?,
            subject: require_claim(read_text(claims, "sub", "sub")?, "sub")?.to_owned(),
            members: claims.clone(),
        })
    }

    /// The claims that every token has.
    pub fn registered(&self) -> &RegisteredClaims {
        &self.registered
    }

    /// `sub`.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Whether it has the claim `kubernetes.io`, which every bound token of a ServiceAccount has and
    /// no id-token.
    pub fn is_service_account_token(&self) -> bool {
        self.members.contains_key("kubernetes.io")
    }

    /// Returns a claim that is a string of at most 1024 bytes; `None` for any other value. Issuers
    /// write ids as strings, and `1` and `"1"` must not be equal. A name that begins with `/` is a
    /// JSON Pointer (RFC 6901) to a string inside objects.
    pub fn claim(&self, name: &str) -> Option<&str> {
        let text = self.member(name)?.as_str()?;
        (text.len() <= MAX_CLAIM_BYTES).then_some(text)
    }

    /// Whether it has a claim of this name, of whatever form.
    pub fn has_claim(&self, name: &str) -> bool {
        self.member(name).is_some()
    }

    fn member(&self, name: &str) -> Option<&Value> {
        let Some(steps) = name.strip_prefix('/') else {
            return self.members.get(name);
        };
        let mut steps = steps.split('/').map(unescape_step);
        let first = self.members.get(&steps.next()?)?;
        steps.try_fold(first, |value, step| value.as_object()?.get(&step))
    }
}

fn unescape_step(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

/// Returns the `iss` of a token without any other check; `None` if it cannot be read.
pub fn claimed_issuer(jwt: &UnverifiedJwt) -> Option<&str> {
    read_text(jwt.claims(), "iss", "iss").ok().flatten()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::{IdTokenClaims, claimed_issuer};
    use crate::claims::ClaimsFormError;
    use crate::jwt::{JwtError, SigningAlgorithm, UnverifiedJwt};
    use crate::testing::{NOW, claims as hub_claims, key};

    fn claims() -> Value {
        json!({
            "iss": "https://ci.example.com", "sub": "repo:example/app:ref:refs/heads/main",
            "aud": "https://keyferry.example.com", "iat": NOW, "nbf": NOW - 600, "exp": NOW + 300,
            "jti": "one", "repository_id": "42", "run_attempt": 1, "empty": "",
        })
    }

    fn read(claims: &Value) -> Result<IdTokenClaims, ClaimsFormError> {
        let token = key(SigningAlgorithm::Es256).token(claims);
        IdTokenClaims::read(&UnverifiedJwt::parse_id_token(&token).unwrap())
    }

    #[test]
    fn only_texts_are_claims_that_a_rule_can_name() {
        let read = read(&claims()).unwrap();
        assert_eq!(read.claim("repository_id"), Some("42"));
        assert_eq!(read.claim("run_attempt"), None, "a number is no text");
        assert!(read.has_claim("run_attempt") && !read.has_claim("absent"));
        assert_eq!(
            (read.claim("empty"), read.claim("absent")),
            (Some(""), None)
        );
        assert_eq!(
            read.registered().audiences,
            ["https://keyferry.example.com"]
        );
        assert_eq!(read.registered().token_id.as_deref(), Some("one"));
    }

    #[test]
    fn a_pointer_names_a_text_inside_objects() {
        let mut nested = claims();
        nested["a.b/c"] = json!({ "d~e": { "f": "text", "n": 1, "l": ["text"] } });
        nested["/literal"] = json!("text");
        let read = read(&nested).unwrap();
        for (name, expected) in [
            ("/a.b~1c/d~0e/f", Some("text")),
            ("/repository_id", Some("42")),
            ("/a.b~1c/d~0e/n", None),
            ("/a.b~1c/d~0e/l", None),
            ("/a.b~1c/d~0e/l/0", None),
            ("/a.b~1c/d~0e", None),
            ("/a.b/c/d~0e/f", None),
            ("/literal", None),
            ("/", None),
        ] {
            assert_eq!(read.claim(name), expected, "{name}");
        }
    }

    #[test]
    fn a_missing_claim_is_refused_and_a_service_accounts_token_is_told() {
        for claim in ["iss", "sub", "aud", "iat", "exp"] {
            let mut without = claims();
            without.as_object_mut().unwrap().remove(claim);
            assert_eq!(read(&without), Err(ClaimsFormError::Missing(claim)));
        }
        assert!(read(&hub_claims()).unwrap().is_service_account_token());
        assert!(!read(&claims()).unwrap().is_service_account_token());
        let mut long = claims();
        long["repository_id"] = "1".repeat(1025).into();
        assert_eq!(read(&long).unwrap().claim("repository_id"), None);
    }

    #[test]
    fn a_thumbprint_is_ignored_and_every_other_refused_header_stays_refused() {
        let key = key(SigningAlgorithm::Es256);
        let token = |member: &str| {
            let header = json!({"alg": "ES256", "kid": "ES256", "typ": "JWT", member: "x"});
            key.sign(
                header.to_string().as_bytes(),
                claims().to_string().as_bytes(),
            )
        };
        for member in ["x5t", "x5t#S256"] {
            let jwt = UnverifiedJwt::parse_id_token(&token(member)).unwrap();
            assert_eq!(claimed_issuer(&jwt), Some("https://ci.example.com"));
            assert!(UnverifiedJwt::parse(&token(member)).is_err(), "{member}");
        }
        for member in [
            "crit", "b64", "zip", "enc", "jwk", "jku", "x5u", "x5c", "cty",
        ] {
            assert_eq!(
                UnverifiedJwt::parse_id_token(&token(member)).unwrap_err(),
                JwtError::HeaderMemberRefused(member)
            );
        }
    }
}
