//! Strict parsing of the token endpoint's form: a token exchange (RFC 8693 section 2.1), or client
//! credentials (RFC 6749 section 4.4) with an assertion (RFC 7523 section 2.2) or a client
//! certificate (RFC 8705 section 2).

use std::borrow::Cow;
use std::time::Duration;

use keyferry_api::json_schema::schema_of;
use keyferry_api::name::AccessName;
use schemars::JsonSchema;
use serde_json::{Value, json};

use crate::caller::PresentedToken;

/// The grant type of RFC 8693.
pub const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
/// The grant type of a caller with an assertion or a client certificate (RFC 6749 section 4.4.2).
pub const GRANT_TYPE_CREDENTIALS: &str = "client_credentials";
/// The type of an assertion that is a JWT (RFC 7523 section 2.2).
pub const ASSERTION_TYPE_JWT: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// The type of a JWT (RFC 8693 section 3): accepted, and issued unless another is requested.
pub const TOKEN_TYPE_JWT: &str = "urn:ietf:params:oauth:token-type:jwt";
/// The type of an OAuth access token. Every token here is a JWT, and clients of other exchanges send
/// and request this type by default.
pub const TOKEN_TYPE_ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
/// The type of an OpenID Connect id-token, such as a CI system gives to a job.
pub const TOKEN_TYPE_ID_TOKEN: &str = "urn:ietf:params:oauth:token-type:id_token";

/// The accepted values of `subject_token_type`. What the token is, its claims and signature say.
pub const SUBJECT_TOKEN_TYPES: [&str; 3] =
    [TOKEN_TYPE_JWT, TOKEN_TYPE_ID_TOKEN, TOKEN_TYPE_ACCESS_TOKEN];
/// The largest form that is accepted, in bytes.
pub const MAX_FORM_BYTES: usize = 64 * 1024;

/// A well-formed request.
#[derive(Debug)]
pub struct ExchangeRequest<'a> {
    /// The caller's own token, as `subject_token` or `client_assertion`; `None` if the connection has
    /// the caller's certificate instead.
    pub subject_token: Option<PresentedToken<'a>>,
    /// The type under which the issued token is requested; it is a JWT in each case.
    pub issued_token_type: &'static str,
    /// The TargetAccess that it requests a token for.
    pub access: AccessName,
    /// What the caller expects the token to be for, which is checked after policy.
    pub scope: Option<Cow<'a, str>>,
    /// The least remaining lifetime that the issued token must have.
    pub min_ttl: Option<Duration>,
    /// Whether the response must also describe the target cluster, which an exec plugin compares.
    pub tell_cluster: bool,
}

/// Whether the connection of a form has a client certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificate {
    /// It has none, so the form must have a token.
    Absent,
    /// It has one.
    Presented,
}

/// Why a form is refused. The text names the parameter, never its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// `invalid_request` (RFC 6749 section 5.2).
    #[error("{parameter} {problem}")]
    InvalidRequest {
        /// The name of the parameter.
        parameter: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// `invalid_target` (RFC 8693 section 2.2.2).
    #[error("{parameter} {problem}")]
    InvalidTarget {
        /// The name of the parameter.
        parameter: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// The form of RFC 8693 section 2.1, or client_credentials with an assertion. With a client
/// certificate, client_credentials needs no token.
#[derive(Default, JsonSchema)]
struct Parameters<'a> {
    /// What proves who the caller is: a subject_token; or, with client_credentials, a
    /// client_assertion or the client certificate of the connection.
    #[schemars(required, extend("enum" = [GRANT_TYPE, GRANT_TYPE_CREDENTIALS]))]
    grant_type: Option<Cow<'a, str>>,
    /// The caller's own ServiceAccount token, or the id-token of a CI system.
    subject_token: Option<Cow<'a, str>>,
    /// The type of the subject_token, which is a JWT in each case.
    #[schemars(extend("enum" = SUBJECT_TOKEN_TYPES))]
    subject_token_type: Option<Cow<'a, str>>,
    /// With client_credentials, the same token as a subject_token would be (RFC 7523).
    client_assertion: Option<Cow<'a, str>>,
    /// The type of the client_assertion.
    #[schemars(extend("enum" = [ASSERTION_TYPE_JWT]))]
    client_assertion_type: Option<Cow<'a, str>>,
    /// The type under which the token is issued; it is a JWT in each case.
    #[schemars(extend("enum" = [TOKEN_TYPE_JWT, TOKEN_TYPE_ACCESS_TOKEN]))]
    requested_token_type: Option<Cow<'a, str>>,
    /// The TargetAccess, as <namespace>/<access>.
    #[schemars(required)]
    audience: Option<Cow<'a, str>>,
    /// The role of the access's target, if that is a role. Any other scope is refused.
    scope: Option<Cow<'a, str>>,
    /// The least expires_in that is of use, in seconds.
    #[schemars(extend("pattern" = "^[0-9]{1,6}$"))]
    min_ttl: Option<Cow<'a, str>>,
    /// Whether the response also says where the target is.
    #[schemars(extend("enum" = ["true"]))]
    keyferry_cluster: Option<Cow<'a, str>>,
}

/// The schema of the form that [`parse_exchange`] parses.
pub fn form_schema() -> Value {
    let mut schema = schema_of::<Parameters<'_>>();
    let parameters = schema["properties"].as_object_mut();
    for parameter in parameters.into_iter().flat_map(|all| all.values_mut()) {
        // A form has no null: a parameter is there or not.
        parameter["type"] = json!("string");
        if let Some(choices) = parameter.get_mut("enum").and_then(Value::as_array_mut) {
            choices.retain(|choice| !choice.is_null());
        }
    }
    schema
}

/// Parses an `application/x-www-form-urlencoded` body of a connection with or without a client
/// certificate.
///
/// # Errors
/// [`ExchangeError`]. An empty value counts as absent, unknown parameters are ignored, and a
/// repeated one is an error (RFC 6749 section 3.2).
pub fn parse_exchange(
    form: &[u8],
    certificate: ClientCertificate,
) -> Result<ExchangeRequest<'_>, ExchangeError> {
    let mut parameters = parse_parameters(form)?;
    let subject_token = take_token(&mut parameters, certificate)?;
    let issued_token_type = match parameters.requested_token_type.as_deref() {
        None | Some(TOKEN_TYPE_JWT) => TOKEN_TYPE_JWT,
        Some(TOKEN_TYPE_ACCESS_TOKEN) => TOKEN_TYPE_ACCESS_TOKEN,
        Some(_) => {
            return Err(invalid_request(
                "requested_token_type",
                "must be urn:ietf:params:oauth:token-type:jwt or :access_token, or absent",
            ));
        }
    };
    let audience = parameters.audience.ok_or(invalid_request(
        "audience",
        "is missing; it names the access as <namespace>/<access>",
    ))?;
    let access = AccessName::parse(&audience)
        .map_err(|_| invalid_request("audience", "must be <namespace>/<access>"))?;
    let min_ttl = parameters
        .min_ttl
        .map(|text| parse_seconds(&text))
        .transpose()?;
    let tell_cluster = match parameters.keyferry_cluster.as_deref() {
        None => false,
        Some("true") => true,
        Some(_) => {
            return Err(invalid_request(
                "keyferry_cluster",
                "must be true or absent",
            ));
        }
    };
    Ok(ExchangeRequest {
        subject_token,
        issued_token_type,
        access,
        scope: parameters.scope,
        min_ttl,
        tell_cluster,
    })
}

/// Takes the token that proves who the caller is, where the grant type wants it; `None` for client
/// credentials by a certificate.
///
/// A token beside a certificate is not refused here: a caller with both proofs gets the answer of
/// every caller that is not accepted.
fn take_token<'a>(
    parameters: &mut Parameters<'a>,
    certificate: ClientCertificate,
) -> Result<Option<PresentedToken<'a>>, ExchangeError> {
    let assertion = take_assertion(parameters)?;
    let subject_token = parameters.subject_token.take().map(PresentedToken::new);
    let token_type = parameters.subject_token_type.as_deref();
    let known_type = token_type.map(|given| SUBJECT_TOKEN_TYPES.contains(&given));
    let unknown_type = invalid_request(
        "subject_token_type",
        "must be urn:ietf:params:oauth:token-type:jwt, or :id_token or :access_token for a token \
         that is a JWT",
    );
    if known_type == Some(false) {
        return Err(unknown_type);
    }
    match parameters.grant_type.as_deref() {
        Some(GRANT_TYPE) if assertion.is_some() => Err(invalid_request(
            "client_assertion",
            "needs grant_type client_credentials; a token exchange has a subject_token",
        )),
        Some(GRANT_TYPE) if subject_token.is_none() => Err(invalid_request(
            "subject_token",
            "is missing; send the caller's own token",
        )),
        Some(GRANT_TYPE) if known_type.is_none() => Err(unknown_type),
        Some(GRANT_TYPE) => Ok(subject_token),
        Some(GRANT_TYPE_CREDENTIALS) if assertion.is_some() && subject_token.is_some() => {
            Err(invalid_request(
                "subject_token",
                "is given beside a client_assertion; send one of them",
            ))
        }
        Some(GRANT_TYPE_CREDENTIALS)
            if certificate == ClientCertificate::Absent && assertion.is_none() =>
        {
            Err(invalid_request(
                "client_assertion",
                "is missing; send the caller's own token, or use \
                 urn:ietf:params:oauth:grant-type:token-exchange",
            ))
        }
        Some(GRANT_TYPE_CREDENTIALS) => Ok(assertion.or(subject_token)),
        Some(_) => Err(invalid_request(
            "grant_type",
            "must be urn:ietf:params:oauth:grant-type:token-exchange, or client_credentials",
        )),
        None => Err(invalid_request(
            "grant_type",
            "is missing; it must be urn:ietf:params:oauth:grant-type:token-exchange, or \
             client_credentials",
        )),
    }
}

fn take_assertion<'a>(
    parameters: &mut Parameters<'a>,
) -> Result<Option<PresentedToken<'a>>, ExchangeError> {
    let assertion = parameters.client_assertion.take();
    match parameters.client_assertion_type.as_deref() {
        Some(ASSERTION_TYPE_JWT) if assertion.is_none() => Err(invalid_request(
            "client_assertion",
            "is missing; send the caller's own token",
        )),
        None if assertion.is_none() => Ok(None),
        Some(ASSERTION_TYPE_JWT) => Ok(assertion.map(PresentedToken::new)),
        _ => Err(invalid_request(
            "client_assertion_type",
            "must be urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        )),
    }
}

fn parse_seconds(text: &str) -> Result<Duration, ExchangeError> {
    let problem = invalid_request("min_ttl", "must be a whole number of seconds");
    if text.len() > 6 || text.bytes().any(|byte| !byte.is_ascii_digit()) {
        return Err(problem);
    }
    text.parse().map(Duration::from_secs).map_err(|_| problem)
}

fn parse_parameters(form: &[u8]) -> Result<Parameters<'_>, ExchangeError> {
    let malformed = invalid_request("body", "is not a form in UTF-8");
    if form.len() > MAX_FORM_BYTES {
        return Err(invalid_request("body", "is larger than 64 KiB"));
    }
    // Even without percent-encoding, a valid form is UTF-8.
    let form = std::str::from_utf8(form).map_err(|_| malformed)?;
    let mut read = Parameters::default();
    for pair in form.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (key, value) = (
            decode_percent(key).ok_or(malformed)?,
            decode_percent(value).ok_or(malformed)?,
        );
        if value.is_empty() {
            continue;
        }
        refuse_unsupported(&key)?;
        let (name, slot) = match &*key {
            "grant_type" => ("grant_type", &mut read.grant_type),
            "subject_token" => ("subject_token", &mut read.subject_token),
            "subject_token_type" => ("subject_token_type", &mut read.subject_token_type),
            "client_assertion" => ("client_assertion", &mut read.client_assertion),
            "client_assertion_type" => ("client_assertion_type", &mut read.client_assertion_type),
            "requested_token_type" => ("requested_token_type", &mut read.requested_token_type),
            "audience" if read.audience.is_some() => {
                return Err(invalid_target("audience", "must be given exactly once"));
            }
            "audience" => ("audience", &mut read.audience),
            "scope" => ("scope", &mut read.scope),
            "min_ttl" => ("min_ttl", &mut read.min_ttl),
            "keyferry_cluster" => ("keyferry_cluster", &mut read.keyferry_cluster),
            _ => continue,
        };
        if slot.replace(value).is_some() {
            return Err(invalid_request(name, "is given more than once"));
        }
    }
    Ok(read)
}

/// Refuses a parameter of other exchanges that asks for what is not offered here: to ignore it would
/// issue another token than the one that was requested.
fn refuse_unsupported(parameter: &str) -> Result<(), ExchangeError> {
    Err(match parameter {
        "resource" => invalid_target("resource", "is not supported; use audience"),
        "actor_token" => invalid_request(
            "actor_token",
            "is not supported; a caller acts for another ServiceAccount by callers[] of its \
             TargetAccess",
        ),
        "actor_token_type" => invalid_request("actor_token_type", "is not supported"),
        "expiration_seconds" => invalid_request(
            "expiration_seconds",
            "cannot be chosen by callers; use min_ttl",
        ),
        _ => return Ok(()),
    })
}

fn invalid_request(parameter: &'static str, problem: &'static str) -> ExchangeError {
    ExchangeError::InvalidRequest { parameter, problem }
}

fn invalid_target(parameter: &'static str, problem: &'static str) -> ExchangeError {
    ExchangeError::InvalidTarget { parameter, problem }
}

/// Decodes percent-encoding strictly. `form_urlencoded` would repair `%zz` and bytes that are not
/// UTF-8, so that two readers could see different values.
fn decode_percent(text: &str) -> Option<Cow<'_, str>> {
    // A JWT needs no decoding, so the caller's token is not copied.
    if !text.contains(['%', '+', '\0']) {
        return Some(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => hex_value(rest.next()?)? << 4 | hex_value(rest.next()?)?,
            plain => plain,
        });
    }
    String::from_utf8(decoded)
        .ok()
        .filter(|text| !text.contains('\0'))
        .map(Cow::Owned)
}

fn hex_value(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| value.try_into().ok())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::{ClientCertificate, ExchangeError, ExchangeRequest};

    fn parse(form: &[u8]) -> Result<ExchangeRequest<'_>, ExchangeError> {
        super::parse_exchange(form, ClientCertificate::Absent)
    }

    const GOOD: &str = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange&subject_token=a.b.c\
                        &subject_token_type=urn:ietf:params:oauth:token-type:jwt&audience=tenant-a%2Fprod";

    const GRANT: &str = "grant_type=urn:ietf:params:oauth:grant-type:token-exchange";

    fn problem(form: &str) -> &'static str {
        match parse(form.as_bytes()).unwrap_err() {
            ExchangeError::InvalidRequest { parameter, .. }
            | ExchangeError::InvalidTarget { parameter, .. } => parameter,
        }
    }

    #[test]
    fn a_good_form_is_read() {
        let form = format!("{GOOD}&min_ttl=600&unknown=x&unknown=y&scope=");
        let request = parse(form.as_bytes()).unwrap();
        assert_eq!(request.subject_token.as_ref().unwrap().expose(), "a.b.c");
        assert_eq!(request.access.to_string(), "tenant-a/prod");
        assert_eq!(request.min_ttl.unwrap().as_secs(), 600);
        assert_eq!(request.scope, None);
        let scoped = format!("{GOOD}&scope=view");
        assert_eq!(parse(scoped.as_bytes()).unwrap().scope.unwrap(), "view");
        assert!(
            !format!("{request:?}").contains("a.b.c"),
            "the token is not printed"
        );
        assert!(
            !request.tell_cluster,
            "nobody is told what was not asked for"
        );
        assert!(
            parse(format!("{GOOD}&keyferry_cluster=true").as_bytes())
                .is_ok_and(|request| request.tell_cluster)
        );
        for wrong in ["false", "1", "TRUE", "true&keyferry_cluster=true"] {
            assert_eq!(
                problem(&format!("{GOOD}&keyferry_cluster={wrong}")),
                "keyferry_cluster",
                "{wrong}"
            );
        }
    }

    #[test]
    fn the_types_of_other_exchanges_mean_the_same_token() {
        let typed = |subject: &str, requested: &str| {
            let form = GOOD.replace("token-type:jwt", &format!("token-type:{subject}"));
            let form = match requested {
                "" => form,
                _ => format!(
                    "{form}&requested_token_type=urn:ietf:params:oauth:token-type:{requested}"
                ),
            };
            parse(form.as_bytes()).map(|request| request.issued_token_type.rsplit(':').next())
        };
        for subject in ["jwt", "id_token", "access_token"] {
            assert_eq!(typed(subject, ""), Ok(Some("jwt")));
            assert_eq!(typed(subject, "jwt"), Ok(Some("jwt")));
            assert_eq!(typed(subject, "access_token"), Ok(Some("access_token")));
        }
        for (subject, requested) in [
            ("saml2", ""),
            ("refresh_token", ""),
            ("ID_TOKEN", ""),
            ("jwt", "id_token"),
            ("jwt", "refresh_token"),
        ] {
            assert!(typed(subject, requested).is_err(), "{subject} {requested}");
        }
    }

    #[test]
    fn repeated_parameters_are_refused() {
        assert_eq!(
            problem(&format!("{GOOD}&subject_token=d.e.f")),
            "subject_token"
        );
        assert_eq!(problem(&format!("{GOOD}&grant_type=x")), "grant_type");
        let twice = parse(format!("{GOOD}&audience=tenant-b/prod").as_bytes()).unwrap_err();
        assert!(matches!(
            twice,
            ExchangeError::InvalidTarget {
                parameter: "audience",
                ..
            }
        ));
    }

    #[test]
    fn what_is_not_offered_is_refused_by_name() {
        for parameter in ["actor_token", "actor_token_type", "expiration_seconds"] {
            assert_eq!(problem(&format!("{GOOD}&{parameter}=x")), parameter);
        }
        let resource = parse(format!("{GOOD}&resource=https://other").as_bytes()).unwrap_err();
        assert!(matches!(
            resource,
            ExchangeError::InvalidTarget {
                parameter: "resource",
                ..
            }
        ));
        assert_eq!(
            problem(&format!(
                "{GOOD}&requested_token_type=urn:ietf:params:oauth:token-type:saml2"
            )),
            "requested_token_type"
        );
    }

    #[test]
    fn hostile_values_are_refused() {
        assert_eq!(
            problem(&GOOD.replace("tenant-a%2Fprod", "..%2Fx")),
            "audience"
        );
        assert_eq!(
            problem(&GOOD.replace("tenant-a%2Fprod", "tenant-a%252Fprod")),
            "audience"
        );
        assert_eq!(
            problem(&GOOD.replace("tenant-a%2Fprod", "t%d0%b5nant%2Fprod")),
            "audience"
        );
        assert_eq!(problem(&GOOD.replace("tenant-a%2Fprod", "")), "audience");
        for bad in ["%", "%2", "%zz", "%ff", "%00", "%c0%af"] {
            assert_eq!(problem(&format!("{GOOD}&x={bad}")), "body", "{bad}");
        }
        for ttl in ["-1", "1.5", "0x10", "9999999", "abc", "+60"] {
            assert_eq!(
                problem(&format!("{GOOD}&min_ttl={ttl}")),
                "min_ttl",
                "{ttl}"
            );
        }
        assert_eq!(problem(""), "grant_type");
        assert_eq!(
            problem(&format!("{GOOD}&pad={}", "a".repeat(65_536))),
            "body"
        );
    }

    #[test]
    fn client_credentials_by_a_certificate_need_no_token() {
        use ClientCertificate::{Absent, Presented};
        const CREDENTIALS: &str = "grant_type=client_credentials&audience=tenant-a%2Fprod";
        let read = super::parse_exchange(CREDENTIALS.as_bytes(), Presented).unwrap();
        assert!(read.subject_token.is_none());
        assert_eq!(read.access.to_string(), "tenant-a/prod");
        let wrong =
            |form: &str, certificate| match super::parse_exchange(form.as_bytes(), certificate) {
                Err(ExchangeError::InvalidRequest { parameter, .. }) => parameter,
                other => panic!("{other:?}"),
            };
        assert_eq!(wrong(CREDENTIALS, Absent), "client_assertion");
        assert_eq!(
            wrong(&format!("{CREDENTIALS}&subject_token_type=x"), Presented),
            "subject_token_type"
        );
        assert_eq!(
            wrong("grant_type=client_credentials", Presented),
            "audience"
        );
        // Both proofs together are read, so that they can be refused as a caller and not as a form.
        for form in [
            GOOD.to_owned(),
            format!("{CREDENTIALS}&subject_token=a.b.c"),
        ] {
            let read = super::parse_exchange(form.as_bytes(), Presented).unwrap();
            assert!(read.subject_token.is_some(), "{form}");
        }
        let without = GOOD.replace("&subject_token=a.b.c", "");
        assert_eq!(wrong(&without, Presented), "subject_token");
    }

    #[test]
    fn an_assertion_is_the_callers_token() {
        use ClientCertificate::{Absent, Presented};
        let form = format!(
            "grant_type=client_credentials&client_assertion=a.b.c&audience=tenant-a%2Fprod\
             &client_assertion_type={}",
            super::ASSERTION_TYPE_JWT
        );
        for certificate in [Absent, Presented] {
            let read = super::parse_exchange(form.as_bytes(), certificate).unwrap();
            assert_eq!(read.subject_token.unwrap().expose(), "a.b.c");
        }
        let exchange = form.replace("grant_type=client_credentials", GRANT);
        for (form, parameter) in [
            (format!("{form}&subject_token=a.b.c"), "subject_token"),
            (format!("{form}&client_assertion=a.b.c"), "client_assertion"),
            (
                form.replace("client_assertion=a.b.c", ""),
                "client_assertion",
            ),
            (
                form.replace("jwt-bearer", "saml2-bearer"),
                "client_assertion_type",
            ),
            (
                form.replace("&client_assertion_type=", "&x="),
                "client_assertion_type",
            ),
            (
                form.replace("client_credentials", "authorization_code"),
                "grant_type",
            ),
            (form.replace("tenant-a%2Fprod", ""), "audience"),
            (exchange.clone(), "client_assertion"),
            (
                format!("{exchange}&subject_token=a.b.c"),
                "client_assertion",
            ),
            (format!("{form}&scope=view&scope=edit"), "scope"),
        ] {
            assert_eq!(problem(&form), parameter, "{form}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            let _ = parse(&bytes);
        }
    }
}
