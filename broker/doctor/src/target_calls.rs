//! Calls a target with a token, and anonymously.

use std::time::Duration;

use jiff::{SignedDuration, fmt::rfc2822};
use keyferry_hub::address_guard::AddressGuard;
use keyferry_hub::clock::{Clock, SystemClock};
use keyferry_hub::connection_fault::Endpoint;
use keyferry_hub::https_client::{HttpsClientBuilder, read_body};
use keyferry_kube_authn::Minor;
use keyferry_kube_authn::doctor::{ActiveConfiguration, Asked, Fetched, HttpResponse, Identity};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use crate::fetch::{bounded, exchange, fault};
use crate::impersonated_user::ImpersonatedUser;
use crate::target_metrics::active_configuration;
use crate::{DoctorError, TargetAddress};

const DEADLINE: Duration = Duration::from_secs(10);
/// The largest metrics response that is read: more than a large apiserver has.
const MAX_METRICS_BYTES: usize = 128 << 20;
/// The longest message of a refusal that is repeated.
const MAX_MESSAGE_CHARS: usize = 1000;

/// A client for one target with an optional token.
pub struct TargetCalls {
    client: reqwest::Client,
    base: String,
    token: Option<SecretString>,
    /// Where the connections lead; `None` through a proxy.
    place: Option<Endpoint>,
}

/// The result of the first call.
pub struct Greeting {
    /// The response of the target.
    pub answer: Fetched,
    /// The target's clock minus the local clock.
    pub skew: Option<SignedDuration>,
    /// The target's Kubernetes release.
    pub minor: Option<Minor>,
}

/// Why a call to the target gave no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetCallError {
    /// Nothing was sent.
    #[error("the target was not asked")]
    NotAsked,
    /// The connection failed, or the target's certificate is not trusted.
    #[error("{0}")]
    Connection(String),
    /// The target answered with an unexpected status.
    #[error("the target answers with status {0}")]
    Status(u16),
    /// The target forbids the request.
    #[error("the target answers with status 403: {0}")]
    Forbidden(String),
    /// The body is not JSON.
    #[error("the target's answer is not JSON")]
    NotJson,
}

/// Why an access review has no answer.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The bearer may not send it as the impersonated user.
    #[error("impersonating is not allowed: {0}")]
    Impersonation(String),
    /// The review could not be sent, or its response cannot be read.
    #[error("{0}")]
    Unknown(String),
}

impl TargetCalls {
    /// Prepares calls to `address`, which go only to addresses that the guard has checked.
    ///
    /// # Errors
    /// [`DoctorError`]: the address or its certificates cannot be used, or nothing may be sent
    /// there.
    pub async fn new(
        address: &TargetAddress,
        token: Option<SecretString>,
        guard: &AddressGuard,
    ) -> Result<Self, DoctorError> {
        let wrong = || DoctorError::Address(address.url.clone());
        let mut url = url::Url::parse(&address.url).map_err(|_| wrong())?;
        let host = url.host_str().ok_or_else(wrong)?.to_owned();
        let mut builder = HttpsClientBuilder::new(DEADLINE);
        if let Some(pem) = &address.ca_pem {
            builder = builder
                .trusting_only(pem)
                .map_err(|_| DoctorError::Authority("the target"))?;
        }
        let mut place = None;
        if let Some(proxy) = &address.proxy_url {
            // The HTTP client would ask the proxy to connect to the certificate's name.
            if address.tls_server_name.is_some() {
                return Err(DoctorError::ProxiedServerName);
            }
            let wrong = || DoctorError::Address(proxy.clone());
            let parsed = url::Url::parse(proxy).map_err(|_| wrong())?;
            let addresses = guard.addresses(&parsed).await?;
            guard.check_behind_proxy(&url).await?;
            let proxy_host = parsed.host_str().ok_or_else(wrong)?;
            builder = builder.through(proxy, &host).map_err(|_| wrong())?;
            builder = builder.resolving(proxy_host, &addresses);
        } else {
            let addresses = guard.addresses(&url).await?;
            place = Endpoint::of_url(&url).map(|place| place.at(&addresses));
            let name = address.tls_server_name.as_ref();
            if let Some(name) = name {
                place = place.map(|place| place.with_server_name(name));
                url.set_host(Some(name)).map_err(|_| wrong())?;
                // The URL's own reading of the name, such as an address or a name before a colon,
                // would be connected to in place of the checked addresses.
                if url.domain() != Some(name.to_ascii_lowercase().as_str()) {
                    return Err(DoctorError::ServerName(name.clone()));
                }
            }
            builder = builder.resolving(name.unwrap_or(&host), &addresses);
        }
        let client = builder.build().map_err(|_| DoctorError::Client)?;
        Ok(Self {
            client,
            base: url.as_str().trim_end_matches('/').to_owned(),
            token,
            place,
        })
    }

    /// Whether a token is set.
    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Sends GET /version without credentials, to learn whether the target is reachable, its clock
    /// and its release.
    pub async fn greet(&self, clock: &SystemClock) -> Greeting {
        let response = match self.client.get(self.path("/version")).send().await {
            Ok(response) => response,
            Err(error) => {
                return Greeting {
                    answer: fault(&error, self.place.as_ref()).await,
                    skew: None,
                    minor: None,
                };
            }
        };
        let date = response
            .headers()
            .get(reqwest::header::DATE)
            .and_then(|value| value.to_str().ok());
        let date = date.and_then(|text| rfc2822::DateTimeParser::new().parse_timestamp(text).ok());
        // The Date header has whole seconds, so a smaller difference means nothing.
        let skew = date
            .map(|date| SignedDuration::from_secs(date.duration_since(clock.now().wall).as_secs()));
        let answer = bounded(response, self.place.as_ref()).await;
        let version = match &answer {
            Fetched::Response(answer) => serde_json::from_slice::<Value>(&answer.body).ok(),
            _ => None,
        };
        Greeting {
            skew,
            minor: version.as_ref().and_then(minor),
            answer,
        }
    }

    /// Asks which user the bearer is at the target, or would be when impersonating.
    pub(crate) async fn who(&self, impersonated: Option<&ImpersonatedUser>) -> Identity {
        match self.review(impersonated).await {
            Ok(user) => Identity::Known(user["username"].as_str().unwrap_or_default().to_owned()),
            Err(identity) => identity,
        }
    }

    /// Returns the bearer's `userInfo` from a SelfSubjectReview.
    ///
    /// # Errors
    /// What is known about the identity in spite of the failure.
    pub async fn review(&self, impersonated: Option<&ImpersonatedUser>) -> Result<Value, Identity> {
        let review =
            json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        match self.post_review(path, &review, impersonated).await {
            Ok(answer) => Ok(answer["status"]["userInfo"].clone()),
            Err(Fetched::Response(HttpResponse { status: 401, .. })) => Err(Identity::Refused),
            // Forbidden means that the bearer was authenticated.
            Err(Fetched::Response(HttpResponse { status: 403, .. })) if impersonated.is_none() => {
                Err(Identity::Known(String::new()))
            }
            Err(Fetched::Response(HttpResponse { status: 403, body })) => {
                Err(Identity::Forbidden(forbidden_message(&body)))
            }
            Err(other) => Err(Identity::Failed(unexpected(other).to_string())),
        }
    }

    /// Asks by SelfSubjectAccessReview whether an operation is allowed.
    ///
    /// # Errors
    /// [`AccessError`].
    pub async fn access(
        &self,
        attributes: &Value,
        impersonated: Option<&ImpersonatedUser>,
    ) -> Result<bool, AccessError> {
        self.reviewed(&json!({ "resourceAttributes": attributes }), impersonated)
            .await
    }

    /// Asks as [`Self::access`] does, and describes the answer in words.
    pub(crate) async fn allowed(
        &self,
        attributes: &Value,
        impersonated: Option<&ImpersonatedUser>,
    ) -> Asked {
        let text = |name: &str| {
            attributes
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let place = match text("namespace") {
            "" => String::new(),
            namespace => format!(" in {namespace}"),
        };
        let name = match text("name") {
            "" => String::new(),
            name => format!(" {name}"),
        };
        let what = format!("{} {}{name}{place}", text("verb"), text("resource"));
        asked(what, self.access(attributes, impersonated).await)
    }

    /// Asks by SelfSubjectAccessReview whether a verb is allowed on a path that is no resource.
    pub(crate) async fn allowed_path(&self, verb: &str, path: &str) -> Asked {
        let spec = json!({ "nonResourceAttributes": { "verb": verb, "path": path } });
        asked(format!("{verb} {path}"), self.reviewed(&spec, None).await)
    }

    /// Sends a SelfSubjectAccessReview.
    async fn reviewed(
        &self,
        spec: &Value,
        impersonated: Option<&ImpersonatedUser>,
    ) -> Result<bool, AccessError> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec,
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        match self.post_review(path, &review, impersonated).await {
            Ok(answer) => answer["status"]["allowed"]
                .as_bool()
                .ok_or_else(|| AccessError::Unknown("the answer cannot be read".to_owned())),
            Err(Fetched::Response(HttpResponse { status: 403, body }))
                if impersonated.is_some() =>
            {
                Err(AccessError::Impersonation(forbidden_message(&body)))
            }
            Err(other) => Err(AccessError::Unknown(unexpected(other).to_string())),
        }
    }

    /// Whether all `needs` are allowed. Without needs, whether the user has any right beyond those
    /// of every authenticated user.
    pub(crate) async fn rights(
        &self,
        needs: &[Value],
        namespace: Option<&str>,
        impersonated: Option<&ImpersonatedUser>,
    ) -> Asked {
        for need in needs {
            let asked = self.allowed(need, impersonated).await;
            if !matches!(asked, Asked::Yes(_)) {
                return asked;
            }
        }
        if !needs.is_empty() {
            return Asked::Yes(format!("{} right(s) that are needed", needs.len()));
        }
        let place = namespace.unwrap_or("default");
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": { "namespace": place },
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
        let answer = match self.post_review(path, &review, impersonated).await {
            Ok(answer) => answer,
            Err(other) => return Asked::Unknown(unexpected(other).to_string()),
        };
        let own = answer["status"]["resourceRules"]
            .as_array()
            .map_or(0, |rules| {
                rules.iter().filter(|rule| !is_for_everybody(rule)).count()
            });
        match (own, answer["status"]["incomplete"] == json!(true), namespace) {
            (1.., ..) => Asked::Yes(format!("{own} rule(s) in {place}")),
            (0, true, _) => Asked::Unknown("the target cannot list the user's rules".to_owned()),
            (0, false, Some(_)) => {
                Asked::No(format!("no rule in {place} except those of every user"))
            }
            (0, false, None) => Asked::NothingYet(
                "the user has no rights yet in the whole cluster or in default; --target-namespace \
                 or --needs says where and what is needed".to_owned(),
            ),
        }
    }

    /// Sends a GET and parses the response as JSON.
    ///
    /// # Errors
    /// [`TargetCallError`].
    pub(crate) async fn get_json(&self, path: &str) -> Result<Value, TargetCallError> {
        match self
            .exchange(self.with_token(self.client.get(self.path(path)), None))
            .await
        {
            Fetched::Response(HttpResponse { status: 200, body }) => {
                serde_json::from_slice(&body).map_err(|_| TargetCallError::NotJson)
            }
            other => Err(unexpected(other)),
        }
    }

    /// Sends HEAD /livez/ping, client-go's probe for flow control.
    pub(crate) async fn ping(&self) -> Asked {
        match self
            .exchange(self.with_token(self.client.head(self.path("/livez/ping")), None))
            .await
        {
            Fetched::Response(HttpResponse {
                status: 200..=299, ..
            }) => Asked::Yes("HEAD /livez/ping".to_owned()),
            Fetched::Response(HttpResponse { status: 403, .. }) => {
                Asked::No("HEAD /livez/ping is forbidden".to_owned())
            }
            other => Asked::Unknown(unexpected(other).to_string()),
        }
    }

    /// Returns what the metrics show of the active configuration, if the bearer may read them.
    pub(crate) async fn active_configuration(&self) -> Option<ActiveConfiguration> {
        let request = self.with_token(self.client.get(self.path("/metrics")), None);
        let mut response = request
            .send()
            .await
            .ok()
            .filter(|response| response.status().is_success())?;
        let text = read_body(&mut response, MAX_METRICS_BYTES).await.ok()?;
        Some(active_configuration(&String::from_utf8_lossy(&text)))
    }

    /// Posts a review and parses the response to it; a response that is not JSON reads as null.
    ///
    /// # Errors
    /// Every result except a response with a 2xx status.
    async fn post_review(
        &self,
        path: &str,
        review: &Value,
        impersonated: Option<&ImpersonatedUser>,
    ) -> Result<Value, Fetched> {
        let request = self.client.post(self.path(path)).json(review);
        match self.exchange(self.with_token(request, impersonated)).await {
            Fetched::Response(HttpResponse {
                status: 200..=299,
                body,
            }) => Ok(serde_json::from_slice(&body).unwrap_or_default()),
            other => Err(other),
        }
    }

    async fn exchange(&self, request: reqwest::RequestBuilder) -> Fetched {
        exchange(request, self.place.as_ref()).await
    }

    fn with_token(
        &self,
        request: reqwest::RequestBuilder,
        impersonated: Option<&ImpersonatedUser>,
    ) -> reqwest::RequestBuilder {
        let mut request = match &self.token {
            Some(token) => request.bearer_auth(token.expose_secret()),
            None => request,
        };
        for (name, value) in impersonated
            .map(ImpersonatedUser::headers)
            .into_iter()
            .flatten()
        {
            // As bytes, because a user name can have characters beyond ASCII.
            request = request.header(name, value.as_bytes());
        }
        request
    }

    fn path(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }
}

/// Parses the release from the response of /version.
pub fn minor(version: &Value) -> Option<Minor> {
    version.get("gitVersion")?.as_str()?.parse().ok()
}

/// Whether this rule is one that `system:basic-user` grants to every authenticated user.
fn is_for_everybody(rule: &Value) -> bool {
    let resources = rule["resources"].as_array();
    resources.is_some_and(|all| {
        all.iter().all(|one| {
            one.as_str()
                .is_some_and(|name| name.starts_with("selfsubject"))
        })
    })
}

fn unexpected(fetched: Fetched) -> TargetCallError {
    match fetched {
        Fetched::NotTried => TargetCallError::NotAsked,
        Fetched::Unreachable(how) | Fetched::Untrusted(how) | Fetched::AddressRefused(how) => {
            TargetCallError::Connection(how)
        }
        Fetched::Response(HttpResponse { status: 403, body }) => {
            TargetCallError::Forbidden(forbidden_message(&body))
        }
        Fetched::Response(HttpResponse { status, .. }) => TargetCallError::Status(status),
    }
}

/// Describes the answer of a review in words.
fn asked(what: String, answer: Result<bool, AccessError>) -> Asked {
    match answer {
        Ok(true) => Asked::Yes(what),
        Ok(false) => Asked::No(format!("{what} is not allowed")),
        Err(error) => Asked::Unknown(format!("{what}: {error}")),
    }
}

/// The message of a 403, which says what the bearer may not do. It is of limited length, because
/// the target writes it.
fn forbidden_message(body: &[u8]) -> String {
    let status: Value = serde_json::from_slice(body).unwrap_or_default();
    let message = status["message"].as_str().unwrap_or("it gives no reason");
    message.chars().take(MAX_MESSAGE_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::is_for_everybody;
    use serde_json::json;

    #[test]
    fn everybody_may_review_themselves_and_that_is_no_right() {
        assert!(is_for_everybody(
            &json!({ "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"] })
        ));
        assert!(!is_for_everybody(
            &json!({ "resources": ["selfsubjectreviews", "pods"] })
        ));
    }
}
