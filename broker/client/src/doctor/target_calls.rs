//! Calls a target with a token, and anonymously.

use std::time::Duration;

use jiff::SignedDuration;
use jiff::fmt::rfc2822;
use keyferry_api::foreign_text::ForeignText;
use keyferry_core::self_subject_review;
use keyferry_kube_authn::Minor;
use keyferry_kube_authn::fetched::{Fetched, HttpResponse};
use keyferry_platform::address_guard::AddressGuard;
use keyferry_platform::clock::{Clock, SystemClock};
use keyferry_platform::https_client::{HttpsClientBuilder, read_body};
use keyferry_platform::target_connection::{TargetAddress, TargetConnection};
use reqwest::Method;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::doctor::DoctorError;
use crate::doctor::diagnosis::{ActiveConfiguration, Asked, Identity};
use crate::doctor::fetch::{bounded, exchange, fault};
use crate::doctor::impersonated_user::ImpersonatedUser;
use crate::doctor::resource_attributes::ResourceAttributes;
use crate::doctor::target_metrics::active_configuration;
use crate::doctor::target_user::TargetUser;
use crate::lenient::{self, Lenient};

const DEADLINE: Duration = Duration::from_secs(10);
/// The largest metrics response that is read: more than a large apiserver has.
const MAX_METRICS_BYTES: usize = 128 << 20;
/// The largest list of APIs that is read: thousands of CustomResourceDefinitions.
const MAX_DISCOVERY_BYTES: usize = 16 << 20;
/// The form of kubectl, and for other servers the older one.
const DISCOVERY_FORMS: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// A client for one target with an optional token.
pub struct TargetCalls {
    connection: TargetConnection,
    token: Option<SecretString>,
}

/// The response of /version, reduced to the release.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServerVersion {
    #[serde(deserialize_with = "lenient::or_default")]
    git_version: String,
}

impl ServerVersion {
    /// Returns the release, if it is one that Keyferry knows.
    #[must_use]
    pub fn minor(&self) -> Option<Minor> {
        self.git_version.parse().ok()
    }
}

/// A SelfSubjectReview, reduced to the user as the target names it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct UserReview {
    #[serde(deserialize_with = "lenient::or_default")]
    status: UserReviewStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct UserReviewStatus {
    user_info: Value,
}

/// A SelfSubjectAccessReview, reduced to its answer.
#[derive(Default, Deserialize)]
#[serde(default)]
struct AccessReview {
    #[serde(deserialize_with = "lenient::or_default")]
    status: AccessReviewStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AccessReviewStatus {
    allowed: Option<bool>,
}

/// An error of the API (metav1.Status), reduced to its message.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorStatus {
    #[serde(deserialize_with = "lenient::or_default")]
    message: Option<String>,
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
    Forbidden(ForeignText),
    /// The body is not JSON.
    #[error("the target's answer is not JSON")]
    NotJson,
}

/// Why an access review has no answer.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The bearer may not send it as the impersonated user.
    #[error("impersonating is not allowed: {0}")]
    Impersonation(ForeignText),
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
        let connection = TargetConnection::open(address, guard, HttpsClientBuilder::new(DEADLINE))
            .await
            .map_err(|error| DoctorError::of_target(error, address))?;
        Ok(Self { connection, token })
    }

    /// Whether a token is set.
    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Sends GET /version without credentials, to learn whether the target is reachable, its clock
    /// and its release.
    pub async fn greet(&self, clock: &SystemClock) -> Greeting {
        let response = match self.get("/version").send().await {
            Ok(response) => response,
            Err(error) => {
                return Greeting {
                    answer: fault(&error, self.connection.endpoint()).await,
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
        let answer = bounded(response, self.connection.endpoint()).await;
        let version: Option<ServerVersion> = match &answer {
            Fetched::Response(answer) => serde_json::from_slice(&answer.body).ok(),
            _ => None,
        };
        Greeting {
            skew,
            minor: version.and_then(|version| version.minor()),
            answer,
        }
    }

    /// Asks which user the bearer is at the target, or would be when impersonating.
    pub(crate) async fn who(&self, impersonated: Option<&ImpersonatedUser>) -> Identity {
        match self.review(impersonated).await {
            Ok(user) => Identity::Known(TargetUser::of(&user).username),
            Err(identity) => identity,
        }
    }

    /// Returns the bearer's `userInfo` from a SelfSubjectReview.
    ///
    /// # Errors
    /// What is known about the identity in spite of the failure.
    pub async fn review(&self, impersonated: Option<&ImpersonatedUser>) -> Result<Value, Identity> {
        let review = self_subject_review::review_request();
        let answer = self.post_review(self_subject_review::REVIEW_PATH, &review, impersonated);
        match answer.await {
            Ok(UserReview { status }) => Ok(status.user_info),
            Err(Fetched::Response(HttpResponse { status: 401, .. })) => Err(Identity::Refused),
            // Forbidden means that the bearer was authenticated.
            Err(Fetched::Response(HttpResponse { status: 403, .. })) if impersonated.is_none() => {
                Err(Identity::Known(String::new()))
            }
            Err(Fetched::Response(HttpResponse { status: 403, body })) => {
                Err(Identity::Forbidden(forbidden_message(&body).to_string()))
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
        attributes: &ResourceAttributes,
        impersonated: Option<&ImpersonatedUser>,
    ) -> Result<bool, AccessError> {
        self.reviewed(&json!({ "resourceAttributes": attributes }), impersonated)
            .await
    }

    /// Asks as [`Self::access`] does, and describes the answer in words.
    pub(crate) async fn allowed(
        &self,
        attributes: &ResourceAttributes,
        impersonated: Option<&ImpersonatedUser>,
    ) -> Asked {
        let answer = self.access(attributes, impersonated).await;
        asked(attributes.in_words(), answer)
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
        let answer: AccessReview = self.post_access_review(path, &review, impersonated).await?;
        let allowed = answer.status.allowed;
        allowed.ok_or_else(|| AccessError::Unknown("the answer cannot be read".to_owned()))
    }

    /// Posts a review of what the user may do.
    ///
    /// # Errors
    /// [`AccessError`].
    pub(crate) async fn post_access_review<T: DeserializeOwned + Default>(
        &self,
        path: &str,
        review: &Value,
        impersonated: Option<&ImpersonatedUser>,
    ) -> Result<T, AccessError> {
        match self.post_review(path, review, impersonated).await {
            Ok(answer) => Ok(answer),
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
        needs: &[ResourceAttributes],
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
        let rules = match self.rules(place, impersonated).await {
            Ok(rules) => rules,
            Err(error) => return Asked::Unknown(error.to_string()),
        };
        let own = rules.own();
        match (own, rules.incomplete, namespace) {
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
    pub(crate) async fn get_json<T: DeserializeOwned + Default>(
        &self,
        path: &str,
    ) -> Result<T, TargetCallError> {
        match self.exchange(self.with_token(self.get(path), None)).await {
            Fetched::Response(HttpResponse { status: 200, body }) => read_json(&body),
            other => Err(unexpected(other)),
        }
    }

    /// Reads a list of APIs, in the aggregated form where the target has it.
    ///
    /// # Errors
    /// [`TargetCallError`].
    pub(crate) async fn discovery<T: DeserializeOwned + Default>(
        &self,
        path: &str,
    ) -> Result<T, TargetCallError> {
        let request = self.with_token(self.get(path), None);
        let request = request.header(reqwest::header::ACCEPT, DISCOVERY_FORMS);
        let mut response = match request.send().await {
            Ok(response) => response,
            Err(error) => return Err(unexpected(fault(&error, self.connection.endpoint()).await)),
        };
        let status = response.status().as_u16();
        if status != 200 {
            return Err(TargetCallError::Status(status));
        }
        let body = read_body(&mut response, MAX_DISCOVERY_BYTES)
            .await
            .map_err(|error| TargetCallError::Connection(error.to_string()))?;
        read_json(&body)
    }

    /// Sends HEAD /livez/ping, client-go's probe for flow control.
    pub(crate) async fn ping(&self) -> Asked {
        match self
            .exchange(self.with_token(self.connection.request(Method::HEAD, "/livez/ping"), None))
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
        let request = self.with_token(self.get("/metrics"), None);
        let mut response = request
            .send()
            .await
            .ok()
            .filter(|response| response.status().is_success())?;
        let text = read_body(&mut response, MAX_METRICS_BYTES).await.ok()?;
        Some(active_configuration(&String::from_utf8_lossy(&text)))
    }

    /// Posts a review and parses the response to it; a response that is no review reads as one
    /// without an answer.
    ///
    /// # Errors
    /// Every result except a response with a 2xx status.
    async fn post_review<T: DeserializeOwned + Default>(
        &self,
        path: &str,
        review: &Value,
        impersonated: Option<&ImpersonatedUser>,
    ) -> Result<T, Fetched> {
        let request = self.connection.request(Method::POST, path).json(review);
        match self.exchange(self.with_token(request, impersonated)).await {
            Fetched::Response(HttpResponse {
                status: 200..=299,
                body,
            }) => Ok(read_json(&body).unwrap_or_default()),
            other => Err(other),
        }
    }

    async fn exchange(&self, request: reqwest::RequestBuilder) -> Fetched {
        exchange(request, self.connection.endpoint()).await
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

    fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.connection.request(Method::GET, path)
    }
}

/// Parses a response whose members may all be missing.
fn read_json<T: DeserializeOwned + Default>(body: &[u8]) -> Result<T, TargetCallError> {
    let read: Result<Lenient<T>, _> = serde_json::from_slice(body);
    read.map(|Lenient(read)| read)
        .map_err(|_| TargetCallError::NotJson)
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

/// The message of a 403, which says what the bearer may not do.
fn forbidden_message(body: &[u8]) -> ForeignText {
    let status: ErrorStatus = read_json(body).unwrap_or_default();
    ForeignText::new(status.message.as_deref().unwrap_or("it gives no reason"))
}
