//! Gets the id-token of a CI job: from an environment variable, as GitLab gives it, or from GitHub's
//! own endpoint, which makes one for the audience that is asked for.

use std::time::Duration;

use keyferry_api::audience::Audience;
use keyferry_hub::https_client::{BodyError, HttpsClientBuilder, read_body};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use url::Url;

/// The variable with the endpoint at which a job of GitHub Actions gets its id-token.
const REQUEST_URL: &str = "ACTIONS_ID_TOKEN_REQUEST_URL";
/// The variable with the secret for that endpoint.
const REQUEST_TOKEN: &str = "ACTIONS_ID_TOKEN_REQUEST_TOKEN";

const DEADLINE: Duration = Duration::from_secs(20);
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Where a job's id-token comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CiTokenSource {
    /// `--github-oidc`: GitHub's endpoint.
    GithubOidc,
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
    /// The endpoint did not give a token.
    #[error("getting an id-token of GitHub: {0}")]
    Endpoint(String),
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
    pub async fn token(&self, audience: &Audience) -> Result<SecretString, CiTokenError> {
        match self {
            Self::Variable(name) => variable(name),
            Self::GithubOidc => {
                let url = text(REQUEST_URL).ok_or(CiTokenError::NoPermission(REQUEST_URL))?;
                let secret =
                    text(REQUEST_TOKEN).ok_or(CiTokenError::NoPermission(REQUEST_TOKEN))?;
                let client = HttpsClientBuilder::new(DEADLINE)
                    .build()
                    .map_err(|error| CiTokenError::Endpoint(error.to_string()))?;
                request(&client, url.expose_secret(), &secret, audience).await
            }
        }
    }

    /// Returns a value that is unique to one job, to keep the tokens of several jobs of one user
    /// apart.
    pub fn job(&self) -> Option<SecretString> {
        match self {
            Self::Variable(name) => text(name),
            Self::GithubOidc => text(REQUEST_TOKEN),
        }
    }
}

fn text(name: &str) -> Option<SecretString> {
    let value = std::env::var(name).ok()?;
    (!value.is_empty()).then(|| value.into())
}

fn variable(name: &str) -> Result<SecretString, CiTokenError> {
    text(name)
        .filter(|token| {
            token
                .expose_secret()
                .bytes()
                .all(|byte| byte.is_ascii_graphic())
        })
        .ok_or_else(|| CiTokenError::Variable(name.to_owned()))
}

async fn request(
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
    use keyferry_hub::https_client::HttpsClientBuilder;
    use keyferry_testing::Authority;
    use secrecy::{ExposeSecret, SecretString};

    use super::{CiTokenError, CiTokenSource, DEADLINE, request};

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
        let client = HttpsClientBuilder::new(DEADLINE)
            .trusting_only(authority.ca_pem().as_bytes())
            .unwrap()
            .build()
            .unwrap();
        let audience = Audience::new("https://keys.example.com").unwrap();
        let endpoint = endpoint.replace("PORT", &port.to_string());
        request(&client, &endpoint, &"canary-secret".into(), &audience).await
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

    #[tokio::test]
    async fn a_variable_that_is_not_set_is_named() {
        let source = CiTokenSource::Variable("KEYFERRY_NO_SUCH_VARIABLE".to_owned());
        let audience = Audience::new("a").unwrap();
        let error = source.token(&audience).await.unwrap_err().to_string();
        assert!(error.contains("KEYFERRY_NO_SUCH_VARIABLE"), "{error}");
        assert!(source.job().is_none());
    }
}
