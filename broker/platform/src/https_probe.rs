//! Asks a target's apiserver which identity a token has. Each probe uses its own
//! [`TargetConnection`].

use std::time::Duration;

use futures::future::BoxFuture;
use http::Method;
use keyferry_api::foreign_text;
use keyferry_api::reason::Reason;
use keyferry_api::summary::SilenceCause;
use keyferry_core::access_status::TargetIdentity;
use keyferry_core::self_subject_review::{self, SelfSubjectReview, UserInfo};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::address_guard::{AddressGuard, DestinationError};
use crate::connection_fault::{ConnectionFault, ConnectionFaultKind, Endpoint};
use crate::https_client::{BodyError, HttpsClientBuilder, read_body};
use crate::target_connection::{TargetAddress, TargetConnection, TargetConnectionError};
use crate::target_probe::{ProbeAnswer, Silence, TargetProbe};

const PROBE_DEADLINE: Duration = Duration::from_secs(10);
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// How many groups a status may contain.
const MAX_GROUPS: usize = 16;
/// How many characters of a text a status may contain.
const MAX_TEXT_CHARACTERS: usize = 256;

/// The username of a request without credentials.
const ANONYMOUS_USER: &str = "system:anonymous";
const NO_APISERVER: &str = "it answered, but not as an apiserver does";
const NO_TOKEN: &str = "it answered as if there was no token: something on the network path \
    removes the Authorization header";

/// Probes a target over HTTPS.
#[derive(Clone)]
pub struct HttpsProbe(AddressGuard);

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
        target: &'a TargetAddress,
        token: &'a SecretString,
    ) -> BoxFuture<'a, ProbeAnswer> {
        Box::pin(async move {
            tokio::time::timeout(PROBE_DEADLINE, self.probe(target, token))
                .await
                .unwrap_or_else(|_| Err(too_late()))
                .unwrap_or_else(ProbeAnswer::Unanswered)
        })
    }
}

impl HttpsProbe {
    async fn probe(
        &self,
        target: &TargetAddress,
        token: &SecretString,
    ) -> Result<ProbeAnswer, Silence> {
        let builder = HttpsClientBuilder::new(PROBE_DEADLINE).without_reuse();
        let connection = match TargetConnection::open(target, &self.0, builder).await {
            Ok(connection) => connection,
            Err(error) => return not_sent(error, &target.url),
        };
        if let Some(host) = connection.unresolved_host() {
            let text = format!("host not found: {host}");
            return Err(silence_of(SilenceCause::UnknownHost, text));
        }
        send_review(&connection, token).await
    }
}

/// Describes why nothing was sent to a target.
fn not_sent(error: TargetConnectionError, address: &str) -> Result<ProbeAnswer, Silence> {
    match error {
        TargetConnectionError::Destination(DestinationError::Refused { refused, .. }) => {
            tracing::warn!(
                reason = %Reason::TargetAddressRefused, %address, kind = %refused.kind,
                "nothing was sent to a target"
            );
            Ok(ProbeAnswer::AddressRefused(refused))
        }
        TargetConnectionError::Destination(DestinationError::HubUnread)
        | TargetConnectionError::ProxiedServerName => Err(error.to_string().as_str().into()),
        TargetConnectionError::Address
        | TargetConnectionError::Proxy
        | TargetConnectionError::ServerName
        | TargetConnectionError::Client(_) => Err("its address, CA or proxy cannot be used".into()),
    }
}

async fn send_review(
    connection: &TargetConnection,
    token: &SecretString,
) -> Result<ProbeAnswer, Silence> {
    let request = connection
        .request(Method::POST, self_subject_review::REVIEW_PATH)
        .bearer_auth(token.expose_secret())
        .json(&self_subject_review::review_request());
    let mut response = match request.send().await {
        Ok(response) => response,
        Err(error) => return Err(describe_fault(&error, connection.endpoint()).await),
    };
    let status = response.status().as_u16();
    // The body of a 401 is not needed.
    let body = if status == 401 {
        Vec::new()
    } else {
        match read_body(&mut response, MAX_ANSWER_BYTES).await {
            Ok(body) => body,
            Err(BodyError::TooLong(_)) => return Err("its answer is too long".into()),
            Err(BodyError::Malformed) => {
                return Err(BodyError::Malformed.to_string().as_str().into());
            }
            Err(BodyError::Connection(error)) => {
                return Err(describe_fault(&error, connection.endpoint()).await);
            }
        }
    };
    Ok(read_answer(status, &body)?)
}

/// Interprets an answer to the token. kube-apiserver always answers 401 to a bearer token that it
/// does not accept, and never continues as `system:anonymous`. So a 403 means that it authenticated
/// the token, which is all that matters here. But a 403 may come from a proxy that did not pass the
/// token on. If a proxy removes the header, the apiserver names `system:anonymous`.
fn read_answer(status: u16, body: &[u8]) -> Result<ProbeAnswer, &'static str> {
    match status {
        200..=299 => match parse_identity(body)? {
            identity if identity.username == ANONYMOUS_USER => Err(NO_TOKEN),
            identity => Ok(ProbeAnswer::Accepted(identity)),
        },
        401 => Ok(ProbeAnswer::Refused),
        403 => {
            let answer = serde_json::from_slice::<Forbidden>(body).map_err(|_| NO_APISERVER)?;
            if answer.kind != "Status" || answer.api_version != "v1" || answer.reason != "Forbidden"
            {
                return Err(NO_APISERVER);
            }
            if answer
                .message
                .contains(&format!("User \"{ANONYMOUS_USER}\""))
            {
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

fn silence_of(cause: SilenceCause, text: impl Into<String>) -> Silence {
    Silence {
        cause,
        text: text.into(),
    }
}

fn too_late() -> Silence {
    silence_of(SilenceCause::NoRoute, "it did not answer in time")
}

/// Describes why there is no answer. `endpoint` is where the connection led; `None` through a proxy,
/// whose own fault and the target's look the same.
async fn describe_fault(error: &reqwest::Error, endpoint: Option<&Endpoint>) -> Silence {
    if error.is_timeout() {
        return too_late();
    }
    if !error.is_connect() {
        return "the connection broke off".into();
    }
    let fault = ConnectionFault::diagnose(error, endpoint).await;
    let cause = match fault.kind {
        ConnectionFaultKind::Refused => SilenceCause::ConnectionRefused,
        ConnectionFaultKind::NoRoute => SilenceCause::NoRoute,
        ConnectionFaultKind::HostNotFound => SilenceCause::UnknownHost,
        ConnectionFaultKind::UnknownAuthority => SilenceCause::UnknownAuthority,
        ConnectionFaultKind::OtherNames => SilenceCause::OtherNames,
        ConnectionFaultKind::Certificate(_)
        | ConnectionFaultKind::NotTls
        | ConnectionFaultKind::Other => SilenceCause::Other,
    };
    let text = foreign_text::one_line(&fault.text, MAX_TEXT_CHARACTERS);
    match (cause, endpoint) {
        (SilenceCause::UnknownAuthority, _) => {
            let text = format!("{text}, which is none of its TargetCluster's CA certificates");
            silence_of(cause, text)
        }
        (_, Some(_)) => silence_of(cause, text),
        (_, None) => silence_of(cause, format!("{text}, at its proxy or behind it")),
    }
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

fn parse_identity(body: &[u8]) -> Result<TargetIdentity, &'static str> {
    let SelfSubjectReview { status } =
        serde_json::from_slice(body).map_err(|_| "its answer cannot be read")?;
    let UserInfo {
        username,
        uid,
        mut groups,
    } = status.user_info;
    groups.truncate(MAX_GROUPS);
    let short = |text: &String| foreign_text::one_line(text, MAX_TEXT_CHARACTERS);
    Ok(TargetIdentity {
        username: short(&username),
        uid: short(&uid),
        groups: groups.iter().map(short).collect(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{CountingListener, ScriptedResolver, strict_guard};

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
            matches!(read_answer(201, &review("hub:a")), Ok(ProbeAnswer::Accepted(identity)) if identity.username == "hub:a")
        );
        let known = format!(
            "selfsubjectreviews.authentication.k8s.io is forbidden: \
             User \"hub:system:serviceaccount:a:b\" {MAY_NOT}"
        );
        assert!(matches!(
            read_answer(403, &status("Forbidden", &known)),
            Ok(ProbeAnswer::Accepted(_))
        ));
        assert_eq!(
            read_answer(401, &status("Unauthorized", "Unauthorized")),
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
        let Ok(ProbeAnswer::Accepted(identity)) = read_answer(201, answer.as_bytes()) else {
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
                read_answer(403, body),
                Err(NO_APISERVER),
                "{}",
                String::from_utf8_lossy(body)
            );
        }
        for status in [302, 404, 407, 500, 503] {
            assert_eq!(read_answer(status, &review("hub:a")), Err(NO_APISERVER));
        }
    }

    /// They had one text: "there is no connection to it, or its certificate is not signed by its CA".
    #[tokio::test]
    async fn each_cause_of_silence_has_its_text() {
        let hub_ca = keyferry_testing::Authority::new("hub").unwrap();
        let options =
            keyferry_testing::TargetOptions::new("https://h", "t", "hub:", hub_ca.ca_pem());
        let target = keyferry_testing::EmbeddedTarget::start(options)
            .await
            .unwrap();
        let free = std::net::TcpListener::bind(("127.0.0.1", 0))
            .unwrap()
            .local_addr()
            .unwrap();
        let ask = async |address: &str, ca_pem: &str, name: Option<&str>| {
            let target = TargetAddress {
                url: address.to_owned(),
                tls_server_name: name.map(str::to_owned),
                proxy_url: None,
                ca_pem: Some(ca_pem.into()),
            };
            let probe = HttpsProbe::new(crate::testing::loopback_guard());
            match probe.try_token(&target, &"token".into()).await {
                ProbeAnswer::Unanswered(silence) => silence,
                other => panic!("{other:?}"),
            }
        };
        let own = target.ca_pem();
        let closed = format!("https://{free}");
        for (silence, cause, text) in [
            (
                ask(&closed, own, None).await,
                SilenceCause::ConnectionRefused,
                format!("connection refused at {free}"),
            ),
            (
                ask("https://keyferry.invalid:6443", own, None).await,
                SilenceCause::UnknownHost,
                "host not found: keyferry.invalid".to_owned(),
            ),
            (
                ask(target.url(), hub_ca.ca_pem(), None).await,
                SilenceCause::UnknownAuthority,
                "its certificate is signed by an unknown CA (issuer".to_owned(),
            ),
            (
                ask(target.url(), own, Some("other.example")).await,
                SilenceCause::OtherNames,
                "not for other.example".to_owned(),
            ),
        ] {
            assert_eq!(silence.cause, cause, "{silence:?}");
            assert!(silence.text.contains(&text), "{silence:?}");
        }
    }

    #[tokio::test]
    async fn nothing_is_sent_to_a_refused_address() {
        let listener = CountingListener::start().await;
        let address = TargetAddress {
            url: format!("https://prod.example.test:{}", listener.port),
            ..TargetAddress::default()
        };
        let guard = strict_guard(ScriptedResolver::new(&[&["127.0.0.1"]]));
        let probe = HttpsProbe::new(guard);
        let answer = probe.try_token(&address, &"token".into()).await;
        assert!(
            matches!(answer, ProbeAnswer::AddressRefused(_)),
            "{answer:?}"
        );
        assert_eq!(listener.count(), 0);
    }

    #[test]
    fn a_header_that_was_taken_off_is_no_answer() {
        let anonymous = format!(
            "selfsubjectreviews.authentication.k8s.io is forbidden: User \"system:anonymous\" \
             {MAY_NOT}"
        );
        assert_eq!(
            read_answer(403, &status("Forbidden", &anonymous)),
            Err(NO_TOKEN)
        );
        assert_eq!(read_answer(201, &review("system:anonymous")), Err(NO_TOKEN));
    }
}
