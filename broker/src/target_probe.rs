//! A target's apiserver, asked whose a token is. A connection of its own each time, no proxy of the environment, no redirect.

use std::time::Duration;

use futures::future::BoxFuture;
use keyferry_core::access_status::TargetIdentity;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::json;

use crate::ports::{ProbeAnswer, ProbedTarget, TargetProbe};

const DEADLINE: Duration = Duration::from_secs(10);
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// More groups than a status is to hold.
const MOST_GROUPS: usize = 64;

/// Asks over HTTPS.
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpsProbe;

impl TargetProbe for HttpsProbe {
    fn try_token<'a>(&'a self, target: &'a ProbedTarget, token: &'a SecretString) -> BoxFuture<'a, ProbeAnswer> {
        Box::pin(async move {
            let asked = tokio::time::timeout(DEADLINE, ask(target, token)).await;
            asked.unwrap_or(Err("it did not answer in time")).unwrap_or_else(ProbeAnswer::Unanswered)
        })
    }
}

async fn ask(target: &ProbedTarget, token: &SecretString) -> Result<ProbeAnswer, &'static str> {
    let (client, base) = client(target).await?;
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let request = client.post(format!("{base}/apis/authentication.k8s.io/v1/selfsubjectreviews"));
    let response = request.bearer_auth(token.expose_secret()).json(&review).send().await.map_err(|error| fault(&error))?;
    match response.status().as_u16() {
        200..=299 => Ok(ProbeAnswer::Accepted(identity(response).await?)),
        401 => Ok(ProbeAnswer::Refused),
        // Whoever is forbidden something was known before.
        403 => Ok(ProbeAnswer::Accepted(TargetIdentity { username: String::new(), uid: String::new(), groups: Vec::new() })),
        _ => Err("it answered, but not as an apiserver does"),
    }
}

/// A client of this one target, and the URL to ask it at.
async fn client(target: &ProbedTarget) -> Result<(reqwest::Client, String), &'static str> {
    const UNUSABLE: &str = "its address, CA or proxy cannot be used";
    let mut url = url::Url::parse(&target.address).map_err(|_| UNUSABLE)?;
    let mut builder = reqwest::Client::builder()
        .https_only(true)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(DEADLINE)
        .pool_max_idle_per_host(0);
    if let Some(pem) = &target.ca_pem {
        builder = builder.tls_certs_only(reqwest::Certificate::from_pem_bundle(pem.as_bytes()).map_err(|_| UNUSABLE)?);
    }
    if let Some(proxy) = &target.proxy_url {
        builder = builder.proxy(reqwest::Proxy::all(proxy).map_err(|_| UNUSABLE)?);
    }
    if let Some(name) = &target.tls_server_name {
        let host = url.host_str().ok_or(UNUSABLE)?.trim_matches(['[', ']']).to_owned();
        let port = url.port_or_known_default().ok_or(UNUSABLE)?;
        let found: Vec<_> = tokio::net::lookup_host((host.as_str(), port)).await.map_err(|_| "its name does not resolve")?.collect();
        builder = builder.resolve_to_addrs(name, &found);
        url.set_host(Some(name)).map_err(|_| UNUSABLE)?;
    }
    Ok((builder.build().map_err(|_| UNUSABLE)?, url.as_str().trim_end_matches('/').to_owned()))
}

fn fault(error: &reqwest::Error) -> &'static str {
    if error.is_timeout() {
        "it did not answer in time"
    } else if error.is_connect() {
        "there is no connection to it, or its certificate is not of its CA"
    } else {
        "the connection broke off"
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    user_info: UserInfo,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct UserInfo {
    username: String,
    uid: String,
    groups: Vec<String>,
}

async fn identity(mut response: reqwest::Response) -> Result<TargetIdentity, &'static str> {
    const UNREADABLE: &str = "its answer cannot be read";
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| fault(&error))? {
        if body.len() + chunk.len() > MAX_ANSWER_BYTES {
            return Err(UNREADABLE);
        }
        body.extend_from_slice(&chunk);
    }
    let UserInfo { username, uid, mut groups } = serde_json::from_slice::<Answer>(&body).map_err(|_| UNREADABLE)?.status.user_info;
    groups.truncate(MOST_GROUPS);
    let short = |text: String| text.chars().filter(|character| !character.is_control()).take(512).collect();
    Ok(TargetIdentity { username: short(username), uid: short(uid), groups: groups.into_iter().map(short).collect() })
}
