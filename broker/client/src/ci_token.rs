//! Gets the id-token of a CI job: from an environment variable, as GitLab gives it, or from GitHub's
//! own endpoint, which makes one for the audience that is asked for.

use std::time::Duration;

use keyferry_api::audience::Audience;
use keyferry_api::foreign_text;
use keyferry_keys::jwt::UnverifiedJwt;
use keyferry_platform::https_client::{BodyError, HttpsClientBuilder, read_body};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::Value;
use url::Url;

/// The variable with the endpoint at which a job of GitHub Actions gets its id-token.
const REQUEST_URL: &str = "ACTIONS_ID_TOKEN_REQUEST_URL";
/// The variable with the secret for that endpoint.
const REQUEST_TOKEN: &str = "ACTIONS_ID_TOKEN_REQUEST_TOKEN";

/// The host of GitHub's endpoints, unless the user's file names that of a GitHub Enterprise Server.
pub const GITHUB_HOST: &str = "actions.githubusercontent.com";

const REQUEST_DEADLINE: Duration = Duration::from_secs(20);
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Where a job's id-token comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CiTokenSource {
    /// `--github-oidc`: GitHub's endpoint, which the runner names in a variable.
    GithubOidc {
        /// The only host of the endpoint, with the names below it. `None` for a job's own script,
        /// whose variables are the runner's. The variables of an exec plugin are not: the author of
        /// a kubeconfig can set them.
        host: Option<String>,
    },
    /// `--token-env`: the environment variable of this name.
    Variable(String),
}

/// No id-token was found. No text contains a value of a variable or a part of an answer.
#[derive(Debug, thiserror::Error)]
pub enum CiTokenError {
    /// A variable is not set, or its value cannot be a token.
    #[error("reading the caller's token from the variable {0}: it is not set to a token")]
    Variable(String),
    /// The job may not get id-tokens.
    #[error(
        "getting an id-token of GitHub: {0} is not set; fix: give the job permissions: id-token: \
         write"
    )]
    NoPermission(&'static str),
    /// The endpoint is not an https URL.
    #[error(
        "getting an id-token of GitHub: {REQUEST_URL} is not an https URL, so nothing was sent"
    )]
    NotHttps,
    /// The endpoint is elsewhere than the user's file says.
    #[error(
        "getting an id-token of GitHub: {REQUEST_URL} is not below {0}, so nothing was sent; fix: \
         write the host of your GitHub Enterprise Server as githubOIDCHost into client.yaml"
    )]
    OtherHost(String),
    /// The endpoint did not give a token.
    #[error("getting an id-token of GitHub: {0}")]
    Endpoint(String),
}

/// The claims by which rules of a server tell jobs apart, of GitHub, GitLab and others.
const IDENTIFYING_CLAIMS: [&str; 14] = [
    "iss",
    "aud",
    "sub",
    "repository",
    "repository_id",
    "project_path",
    "project_id",
    "ref",
    "ref_type",
    "event_name",
    "pipeline_source",
    "environment",
    "workflow_ref",
    "exp",
];
/// The most characters of a claim that are shown.
const MAX_CLAIM_CHARS: usize = 200;

/// Describes the job that an id-token is for, by the claims that a server's rules can be about, so
/// that a refusal can be compared with them. The signature is never part of it.
pub fn describe_claims(token: &SecretString) -> Option<String> {
    let jwt = UnverifiedJwt::parse(token.expose_secret()).ok()?;
    let shown = IDENTIFYING_CLAIMS.iter().filter_map(|name| {
        let text = match jwt.claims().get(*name)? {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Some(format!(
            "{name}: {}",
            foreign_text::one_line(&text, MAX_CLAIM_CHARS)
        ))
    });
    let shown: Vec<String> = shown.collect();
    (!shown.is_empty()).then(|| shown.join(", "))
}

#[derive(Deserialize)]
struct IdTokenAnswer {
    value: SecretString,
}

impl CiTokenSource {
    /// Returns the job's id-token.
    ///
    /// # Errors
    /// [`CiTokenError`].
    pub async fn fetch_token(&self, audience: &Audience) -> Result<SecretString, CiTokenError> {
        match self {
            Self::Variable(name) => required_variable(name),
            Self::GithubOidc { host } => {
                let url =
                    variable_text(REQUEST_URL).ok_or(CiTokenError::NoPermission(REQUEST_URL))?;
                if let Some(host) = host
                    .as_deref()
                    .filter(|host| !is_below(url.expose_secret(), host))
                {
                    return Err(CiTokenError::OtherHost(host.to_owned()));
                }
                let secret = variable_text(REQUEST_TOKEN)
                    .ok_or(CiTokenError::NoPermission(REQUEST_TOKEN))?;
                let client = HttpsClientBuilder::new(REQUEST_DEADLINE)
                    .build()
                    .map_err(|error| CiTokenError::Endpoint(error.to_string()))?;
                request_token(&client, url.expose_secret(), &secret, audience).await
            }
        }
    }

    /// Whether both name the same place.
    pub fn is_same_place(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Variable(name), Self::Variable(other)) => name == other,
            (Self::GithubOidc { .. }, Self::GithubOidc { .. }) => true,
            (Self::Variable(_), Self::GithubOidc { .. })
            | (Self::GithubOidc { .. }, Self::Variable(_)) => false,
        }
    }

    /// Returns a value that is unique to one job, to keep the tokens of several jobs of one user
    /// apart.
    pub fn job_id(&self) -> Option<SecretString> {
        match self {
            Self::Variable(name) => variable_text(name),
            Self::GithubOidc { .. } => variable_text(REQUEST_TOKEN),
        }
    }
}

/// Whether a URL has this host, or one below it.
fn is_below(url: &str, host: &str) -> bool {
    let url = Url::parse(url).ok();
    url.as_ref().and_then(Url::host_str).is_some_and(|named| {
        let above = named.strip_suffix(host).filter(|_| !host.is_empty());
        above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
    })
}

fn variable_text(name: &str) -> Option<SecretString> {
    let value = std::env::var(name).ok()?;
    (!value.is_empty()).then(|| value.into())
}

fn required_variable(name: &str) -> Result<SecretString, CiTokenError> {
    variable_text(name)
        .filter(|token| {
            token
                .expose_secret()
                .bytes()
                .all(|byte| byte.is_ascii_graphic())
        })
        .ok_or_else(|| CiTokenError::Variable(name.to_owned()))
}

async fn request_token(
    client: &reqwest::Client,
    endpoint: &str,
    secret: &SecretString,
    audience: &Audience,
) -> Result<SecretString, CiTokenError> {
    let mut url = Url::parse(endpoint).map_err(|_| CiTokenError::NotHttps)?;
    if url.scheme() != "https" {
        return Err(CiTokenError::NotHttps);
    }
    url.query_pairs_mut()
        .append_pair("audience", audience.as_str());
    let failed = |problem: &str| CiTokenError::Endpoint(problem.to_owned());
    let request = client
        .get(url)
        .bearer_auth(secret.expose_secret())
        .header(reqwest::header::ACCEPT, "application/json; api-version=2.0");
    let answer = request.send().await;
    let mut answer = answer.map_err(|_| failed("there is no answer from its endpoint"))?;
    if answer.status() != reqwest::StatusCode::OK {
        let status = answer.status().as_u16();
        return Err(failed(&format!("its endpoint answered {status}, not 200")));
    }
    let body = read_body(&mut answer, MAX_ANSWER_BYTES)
        .await
        .map_err(|error| match error {
            BodyError::TooLong(_) => failed("the answer of its endpoint is too long"),
            BodyError::Malformed => failed(&format!("at its endpoint, {}", BodyError::Malformed)),
            BodyError::Connection(_) => failed("the answer of its endpoint broke off"),
        })?;
    let body = zeroize::Zeroizing::new(body);
    let answer: IdTokenAnswer = serde_json::from_slice(&body)
        .map_err(|_| failed("the answer of its endpoint has no token"))?;
    Ok(answer.value)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use axum::Router;
    use axum::http::{HeaderMap, Uri};
    use axum::routing::get;
    use keyferry_api::audience::Audience;
    use keyferry_platform::https_client::HttpsClientBuilder;
    use keyferry_testing::Authority;
    use secrecy::{ExposeSecret, SecretString};

    use super::{
        CiTokenError, CiTokenSource, GITHUB_HOST, REQUEST_DEADLINE, is_below, request_token,
    };

    async fn ask(endpoint: &str, answer: &'static str) -> Result<SecretString, CiTokenError> {
        let authority = Authority::new("test CA").unwrap();
        let tls = authority.server_identity(&["localhost"]).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let router = Router::new().route(
            "/token",
            get(move |uri: Uri, headers: HeaderMap| async move {
                let query = uri.query().unwrap_or_default().to_owned();
                let secret = headers
                    .get("authorization")
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned();
                answer.replace("QUERY", &query).replace("SECRET", &secret)
            }),
        );
        let config =
            axum_server::tls_rustls::RustlsConfig::from_config(Arc::new(tls.tls_config().unwrap()));
        let bound = axum_server::from_tcp_rustls(listener, config).unwrap();
        tokio::spawn(bound.serve(router.into_make_service()));
        let client = HttpsClientBuilder::new(REQUEST_DEADLINE)
            .trusting_only(authority.ca_pem().as_bytes())
            .unwrap()
            .build()
            .unwrap();
        let audience = Audience::new("https://keys.example.com").unwrap();
        let endpoint = endpoint.replace("PORT", &port.to_string());
        request_token(&client, &endpoint, &"canary-secret".into(), &audience).await
    }

    const ENDPOINT: &str = "https://localhost:PORT/token?api-version=2.0";

    #[tokio::test]
    async fn the_audience_and_the_secret_go_to_the_endpoint() {
        let token = ask(ENDPOINT, r#"{"count":1,"value":"QUERY SECRET"}"#)
            .await
            .unwrap();
        assert_eq!(
            token.expose_secret(),
            "api-version=2.0&audience=https%3A%2F%2Fkeys.example.com Bearer canary-secret"
        );
    }

    #[tokio::test]
    async fn no_message_repeats_the_secret_or_the_answer() {
        for (endpoint, answer) in [
            (ENDPOINT, r#"{"message":"canary-answer SECRET"}"#),
            (ENDPOINT, "canary-answer"),
            ("https://localhost:PORT/absent", "canary-answer"),
            ("https://localhost:1/token", ""),
            ("http://localhost:PORT/token", ""),
            ("canary-url", ""),
        ] {
            let error = ask(endpoint, answer).await.unwrap_err().to_string();
            assert!(!error.contains("canary"), "{error}");
        }
    }

    #[test]
    fn the_endpoint_is_one_of_the_named_host() {
        for below in [
            "https://pipelines.actions.githubusercontent.com/a?b=c",
            "https://actions.githubusercontent.com/",
        ] {
            assert!(is_below(below, GITHUB_HOST), "{below}");
        }
        for elsewhere in [
            "https://evil.example/",
            "https://evilactions.githubusercontent.com/",
            "https://actions.githubusercontent.com.evil.example/",
            "https://actions.githubusercontent.com@evil.example/",
            "https://evil.example/actions.githubusercontent.com",
            "no-url",
        ] {
            assert!(!is_below(elsewhere, GITHUB_HOST), "{elsewhere}");
        }
    }

    #[test]
    fn a_refused_job_sees_what_its_token_says() {
        use base64::Engine;
        use base64::engine::general_purpose::URL_SAFE_NO_PAD;
        let encode = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let header = encode(serde_json::json!({ "alg": "RS256", "kid": "k" }));
        let claims = encode(serde_json::json!({
            "iss": "https://ci", "aud": "keyferry.dev", "repository_id": "7", "ref": "refs/heads/a\nfix: b",
            "event_name": "push", "secret_claim": "canary",
        }));
        let token = format!("{header}.{claims}.{}", URL_SAFE_NO_PAD.encode("canary"));
        let shown = super::describe_claims(&token.into()).unwrap();
        assert_eq!(
            shown,
            "iss: https://ci, aud: keyferry.dev, repository_id: 7, ref: refs/heads/a\\u{a}fix: b, \
             event_name: push"
        );
        assert_eq!(super::describe_claims(&"canary".into()), None);
    }

    #[tokio::test]
    async fn a_variable_that_is_not_set_is_named() {
        let source = CiTokenSource::Variable("KEYFERRY_NO_SUCH_VARIABLE".to_owned());
        let audience = Audience::new("a").unwrap();
        let error = source.fetch_token(&audience).await.unwrap_err().to_string();
        assert!(error.contains("KEYFERRY_NO_SUCH_VARIABLE"), "{error}");
        assert!(source.job_id().is_none());
    }
}
