//! Asks a target's apiserver which identity a token has. Each probe uses its own connection, no
//! proxy from the environment, and follows no redirect. It connects only to addresses that the
//! [`AddressGuard`] has checked, so a second DNS answer has no effect.

use std::time::Duration;

use futures::future::BoxFuture;
use keyferry_api::foreign_text;
use keyferry_api::reason::Reason;
use keyferry_core::access_status::TargetIdentity;
use keyferry_core::target_address::RefusedDestination;
use keyferry_hub::address_guard::{AddressGuard, DestinationError};
use keyferry_hub::https_client::{BodyError, HttpsClientBuilder, read_body};
use keyferry_hub::ports::{ProbeAnswer, ProbedTarget, TargetProbe};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::json;
use url::Url;

const DEADLINE: Duration = Duration::from_secs(10);
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// How many groups a status may contain.
const MOST_GROUPS: usize = 16;
/// How many characters of a name a status may contain.
const MOST_CHARACTERS: usize = 256;

/// The username of a request without credentials.
const ANONYMOUS: &str = "system:anonymous";
const NO_APISERVER: &str = "it answered, but not as an apiserver does";
const NO_TOKEN: &str = "it answered as if there was no token: something on the network path \
    removes the Authorization header";

/// Probes a target over HTTPS.
#[derive(Clone)]
pub struct HttpsProbe(AddressGuard);

/// Why nothing was sent.
enum NotSent {
    Unusable(&'static str),
    Refused(RefusedDestination),
}

impl From<&'static str> for NotSent {
    fn from(why: &'static str) -> Self {
        Self::Unusable(why)
    }
}

impl From<NotSent> for ProbeAnswer {
    fn from(not_sent: NotSent) -> Self {
        match not_sent {
            NotSent::Unusable(why) => Self::Unanswered(why),
            NotSent::Refused(refused) => Self::AddressRefused(refused),
        }
    }
}

impl HttpsProbe {
    /// Creates a probe that connects only where the guard allows: TargetClusters and DNS answers
    /// choose the addresses.
    pub fn new(guard: AddressGuard) -> Self {
        Self(guard)
    }
}

impl TargetProbe for HttpsProbe {
    fn try_token<'a>(
        &'a self,
        target: &'a ProbedTarget,
        token: &'a SecretString,
    ) -> BoxFuture<'a, ProbeAnswer> {
        Box::pin(async move {
            let asked = tokio::time::timeout(DEADLINE, self.ask(target, token)).await;
            asked
                .unwrap_or(Err(NotSent::Unusable("it did not answer in time")))
                .unwrap_or_else(ProbeAnswer::from)
        })
    }
}

impl HttpsProbe {
    async fn ask(
        &self,
        target: &ProbedTarget,
        token: &SecretString,
    ) -> Result<ProbeAnswer, NotSent> {
        let (client, base) = self.client(target).await?;
        Ok(send(&client, &base, token).await?)
    }

    /// Builds a client for this target only, and the URL to ask.
    async fn client(&self, target: &ProbedTarget) -> Result<(reqwest::Client, String), NotSent> {
        const UNUSABLE: &str = "its address, CA or proxy cannot be used";
        // The HTTP client would ask the proxy to connect to the certificate's name instead of the
        // address.
        if target.proxy_url.is_some() && target.tls_server_name.is_some() {
            return Err("it cannot be called with a tlsServerName through a proxyURL".into());
        }
        let mut url = Url::parse(&target.address).map_err(|_| UNUSABLE)?;
        let proxy = target.proxy_url.as_deref().map(Url::parse).transpose();
        let proxy = proxy.map_err(|_| UNUSABLE)?;
        let first = proxy.as_ref().unwrap_or(&url);
        let host = first.host_str().ok_or(UNUSABLE)?.to_owned();
        let checked = match (self.0.addresses(first).await, &proxy) {
            (Ok(addresses), Some(_)) => {
                let behind = self.0.check_behind_proxy(&url).await;
                behind.map(|()| addresses)
            }
            (checked, _) => checked,
        };
        let addresses = checked.map_err(|error| not_sent(&error, &target.address))?;
        if addresses.is_empty() {
            return Err("its name, or its proxy's, does not resolve".into());
        }
        let mut builder = HttpsClientBuilder::new(DEADLINE).without_reuse();
        if let Some(pem) = &target.ca_pem {
            builder = builder
                .trusting_only(pem.as_bytes())
                .map_err(|_| UNUSABLE)?;
        }
        if let Some(proxy) = &target.proxy_url {
            let behind = url.host_str().ok_or(UNUSABLE)?;
            builder = builder.through(proxy, behind).map_err(|_| UNUSABLE)?;
        }
        let name = target.tls_server_name.as_ref();
        if let Some(name) = name {
            url.set_host(Some(name)).map_err(|_| UNUSABLE)?;
            // The HTTP client connects to what the URL reads in the name, such as an address, and
            // not to the checked addresses.
            if url.domain() != Some(name.to_ascii_lowercase().as_str()) {
                return Err(UNUSABLE.into());
            }
        }
        builder = builder.resolving(name.unwrap_or(&host), &addresses);
        let client = builder.build().map_err(|_| UNUSABLE)?;
        Ok((client, url.as_str().trim_end_matches('/').to_owned()))
    }
}

fn not_sent(error: &DestinationError, target: &str) -> NotSent {
    match error {
        DestinationError::HubUnread => {
            "the hub's own networks could not be read, so nothing was sent to it".into()
        }
        DestinationError::Refused { refused, .. } => {
            tracing::warn!(
                reason = %Reason::TargetAddressRefused, address = %target, kind = %refused.kind,
                "nothing was sent to a target"
            );
            NotSent::Refused(*refused)
        }
    }
}

async fn send(
    client: &reqwest::Client,
    base: &str,
    token: &SecretString,
) -> Result<ProbeAnswer, &'static str> {
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let request = client.post(format!(
        "{base}/apis/authentication.k8s.io/v1/selfsubjectreviews"
    ));
    let mut response = request
        .bearer_auth(token.expose_secret())
        .json(&review)
        .send()
        .await
        .map_err(|error| fault(&error))?;
    let status = response.status().as_u16();
    // The body of a 401 is not needed.
    let body = if status == 401 {
        Vec::new()
    } else {
        read_body(&mut response, MAX_ANSWER_BYTES)
            .await
            .map_err(|error| match error {
                BodyError::TooLong(_) => "its answer is too long",
                BodyError::Connection(error) => fault(&error),
            })?
    };
    judged(status, &body)
}

/// Interprets an answer to the token. kube-apiserver always answers 401 to a bearer token that it
/// does not accept, and never continues as `system:anonymous`. So a 403 means that it authenticated
/// the token, which is all that matters here. But a 403 may come from a proxy that did not pass the
/// token on. If a proxy removes the header, the apiserver names `system:anonymous`.
fn judged(status: u16, body: &[u8]) -> Result<ProbeAnswer, &'static str> {
    match status {
        200..=299 => match identity(body)? {
            identity if identity.username == ANONYMOUS => Err(NO_TOKEN),
            identity => Ok(ProbeAnswer::Accepted(identity)),
        },
        401 => Ok(ProbeAnswer::Refused),
        403 => {
            let answer = serde_json::from_slice::<Forbidden>(body).map_err(|_| NO_APISERVER)?;
            if answer.kind != "Status" || answer.api_version != "v1" || answer.reason != "Forbidden"
            {
                return Err(NO_APISERVER);
            }
            if answer.message.contains(&format!("User \"{ANONYMOUS}\"")) {
                return Err(NO_TOKEN);
            }
            Ok(ProbeAnswer::Accepted(TargetIdentity {
                username: String::new(),
                uid: String::new(),
                groups: Vec::new(),
            }))
        }
        _ => Err(NO_APISERVER),
    }
}

fn fault(error: &reqwest::Error) -> &'static str {
    if error.is_timeout() {
        "it did not answer in time"
    } else if error.is_connect() {
        "there is no connection to it, or its certificate is not signed by its CA"
    } else {
        "the connection broke off"
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SelfSubjectReviewResponse {
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

/// The members of `metav1.Status` that are used.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Forbidden {
    kind: String,
    api_version: String,
    reason: String,
    message: String,
}

fn identity(body: &[u8]) -> Result<TargetIdentity, &'static str> {
    let answer = serde_json::from_slice::<SelfSubjectReviewResponse>(body)
        .map_err(|_| "its answer cannot be read")?;
    let UserInfo {
        username,
        uid,
        mut groups,
    } = answer.status.user_info;
    groups.truncate(MOST_GROUPS);
    let short = |text: &String| foreign_text::one_line(text, MOST_CHARACTERS);
    Ok(TargetIdentity {
        username: short(&username),
        uid: short(&uid),
        groups: groups.iter().map(short).collect(),
    })
}

#[cfg(test)]
mod address_tests;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn status(reason: &str, message: &str) -> Vec<u8> {
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason, "message": message })
            .to_string()
            .into_bytes()
    }

    fn review(username: &str) -> Vec<u8> {
        json!({ "kind": "SelfSubjectReview", "status": { "userInfo": { "username": username } } })
            .to_string()
            .into_bytes()
    }

    const MAY_NOT: &str = "cannot create resource \"selfsubjectreviews\" in API \
        group \"authentication.k8s.io\" at the cluster scope";

    #[test]
    fn who_is_known_is_accepted_whatever_it_may_do() {
        assert!(
            matches!(judged(201, &review("hub:a")), Ok(ProbeAnswer::Accepted(identity)) if identity.username == "hub:a")
        );
        let known = format!(
            "selfsubjectreviews.authentication.k8s.io is forbidden: \
             User \"hub:system:serviceaccount:a:b\" {MAY_NOT}"
        );
        assert!(matches!(
            judged(403, &status("Forbidden", &known)),
            Ok(ProbeAnswer::Accepted(_))
        ));
        assert_eq!(
            judged(401, &status("Unauthorized", "Unauthorized")),
            Ok(ProbeAnswer::Refused)
        );
    }

    #[test]
    fn an_identity_is_bounded_and_cannot_mislead() {
        let groups: Vec<String> = (0..100)
            .map(|index| format!("g{index}\u{202e}{}", "x".repeat(1000)))
            .collect();
        let user = json!({ "username": "hub:a\nall is well \u{2066}", "uid": "u".repeat(1000), "groups": groups });
        let answer =
            json!({ "kind": "SelfSubjectReview", "status": { "userInfo": user } }).to_string();
        let Ok(ProbeAnswer::Accepted(identity)) = judged(201, answer.as_bytes()) else {
            panic!("it is an answer")
        };
        assert_eq!(identity.username, r"hub:a\u{a}all is well \u{2066}");
        assert_eq!((identity.groups.len(), identity.uid.len()), (16, 256 + 3));
        assert!(
            identity
                .groups
                .iter()
                .all(|group| group.contains(r"\u{202e}") && group.chars().count() < 300)
        );
    }

    #[test]
    fn what_no_apiserver_says_of_a_token_is_no_answer() {
        let page = b"<html><body>403 Forbidden</body></html>";
        for body in [
            page.as_slice(),
            b"",
            b"{}",
            b"{\"message\": \"blocked\"}",
            &status("Blocked", "no"),
            &review("hub:a"),
        ] {
            assert_eq!(
                judged(403, body),
                Err(NO_APISERVER),
                "{}",
                String::from_utf8_lossy(body)
            );
        }
        for status in [302, 404, 407, 500, 503] {
            assert_eq!(judged(status, &review("hub:a")), Err(NO_APISERVER));
        }
    }

    #[test]
    fn a_header_that_was_taken_off_is_no_answer() {
        let anonymous = format!(
            "selfsubjectreviews.authentication.k8s.io is forbidden: User \"system:anonymous\" \
             {MAY_NOT}"
        );
        assert_eq!(judged(403, &status("Forbidden", &anonymous)), Err(NO_TOKEN));
        assert_eq!(judged(201, &review("system:anonymous")), Err(NO_TOKEN));
    }
}
