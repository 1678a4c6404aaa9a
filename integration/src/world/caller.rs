//! Calls to a Keyferry, made as a tenant's workload makes them.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use serde_json::Value;

use super::{Broker, CALLER_AUDIENCE};
use crate::control_plane::ControlPlane;
use crate::runner::TestError;

/// A response of the token API.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The `X-Request-Id` header.
    pub request_id: String,
    /// All headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: String,
}

impl Answer {
    async fn of(response: reqwest::Response) -> Result<Self, TestError> {
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let id = headers
            .get("x-request-id")
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        Ok(Self {
            status,
            request_id: id,
            headers,
            body: response.text().await?,
        })
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// The body is not JSON.
    pub fn json(&self) -> Result<Value, TestError> {
        Ok(serde_json::from_str(&self.body)?)
    }

    /// The token from a successful exchange.
    ///
    /// # Errors
    /// The exchange did not succeed.
    pub fn token(&self) -> Result<String, TestError> {
        let token = self.json()?["access_token"].as_str().map(str::to_owned);
        token.ok_or_else(|| format!("no token but {} {}", self.status, self.body).into())
    }
}

/// A well-formed token exchange form (RFC 8693).
pub fn exchange_form(subject_token: &str, access: &str) -> Vec<(&'static str, String)> {
    vec![
        (
            "grant_type",
            "urn:ietf:params:oauth:grant-type:token-exchange".to_owned(),
        ),
        (
            "subject_token_type",
            "urn:ietf:params:oauth:token-type:jwt".to_owned(),
        ),
        ("subject_token", subject_token.to_owned()),
        ("audience", access.to_owned()),
    ]
}

/// The claims of a token, without verifying it (RFC 7519).
///
/// # Errors
/// The text is not a token.
pub fn claims(token: &str) -> Result<Value, TestError> {
    let claims = token.split('.').nth(1).ok_or("this is no token")?;
    Ok(serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims)?)?)
}

impl Broker {
    /// Exchanges a subject token for a token of the access `<namespace>/<access>`.
    ///
    /// # Errors
    /// The server did not answer at all.
    pub async fn exchange(&self, subject_token: &str, access: &str) -> Result<Answer, TestError> {
        self.post_form(&exchange_form(subject_token, access)).await
    }

    /// Exchanges until it succeeds, because Keyferry sees objects that a test has just created on
    /// the hub only after a moment.
    ///
    /// # Errors
    /// The last response after 20 s.
    pub async fn exchange_in_time(
        &self,
        subject_token: &str,
        access: &str,
    ) -> Result<Answer, TestError> {
        let limit = Instant::now() + Duration::from_secs(20);
        loop {
            let answer = self.exchange(subject_token, access).await?;
            if answer.status == 200 {
                return Ok(answer);
            }
            if Instant::now() > limit {
                return Err(format!(
                    "{access} was not granted within 20 s: {} {}",
                    answer.status, answer.body
                )
                .into());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Posts any form to the token endpoint.
    ///
    /// # Errors
    /// As [`Broker::exchange`].
    pub async fn post_form(&self, form: &[(&str, String)]) -> Result<Answer, TestError> {
        post_form(self.http(), &self.api_url(), form).await
    }

    /// Fetches the kubeconfig of an access.
    ///
    /// # Errors
    /// As [`Broker::exchange`].
    pub async fn kubeconfig_of(
        &self,
        bearer: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Answer, TestError> {
        let url = format!(
            "{}/v1/namespaces/{namespace}/accesses/{name}/kubeconfig",
            self.api_url()
        );
        Answer::of(self.http().get(url).bearer_auth(bearer).send().await?).await
    }
}

/// A caller token of a ServiceAccount, with Keyferry's audience alone.
///
/// # Errors
/// Any error from the hub.
pub async fn caller_token(
    hub: &ControlPlane,
    namespace: &str,
    account: &str,
) -> Result<String, TestError> {
    Ok(hub
        .token_request(namespace, account, &[CALLER_AUDIENCE], 600)
        .await?
        .token)
}

/// As [`Broker::exchange`], of the server at a URL.
///
/// # Errors
/// The server did not answer at all.
pub async fn exchange_at(
    http: &reqwest::Client,
    api_url: &str,
    subject_token: &str,
    access: &str,
) -> Result<Answer, TestError> {
    post_form(http, api_url, &exchange_form(subject_token, access)).await
}

async fn post_form(
    http: &reqwest::Client,
    api_url: &str,
    form: &[(&str, String)],
) -> Result<Answer, TestError> {
    let encoded: Vec<String> = form
        .iter()
        .map(|(key, value)| format!("{key}={}", percent(value)))
        .collect();
    let request = http
        .post(format!("{api_url}/v1/token"))
        .header("content-type", "application/x-www-form-urlencoded")
        .body(encoded.join("&"));
    Answer::of(request.send().await?).await
}

fn percent(text: &str) -> String {
    text.bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}
