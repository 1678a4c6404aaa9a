//! Calls to a Keyferry server.

use std::path::PathBuf;
use std::time::Duration;

use keyferry_core::exchange::{GRANT_TYPE, TOKEN_TYPE_JWT};
use keyferry_core::jwt::UnverifiedJwt;
use keyferry_core::lifetime;
use keyferry_core::name::AccessName;
use keyferry_core::public_cluster::PublicCluster;
use keyferry_core::received_kubeconfig;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::{ClientError, UsableToken};

const DEADLINE: Duration = Duration::from_secs(30);
const MAX_ANSWER_BYTES: usize = 512 * 1024;

/// Where the server is.
#[derive(Clone, Debug)]
pub struct ServerAddress {
    /// Its https origin.
    pub url: String,
    /// The CA certificates to trust for it, and only these; without, the system's.
    pub certificate_authority: Option<PathBuf>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: SecretString,
    token_type: String,
    expires_in: u64,
    keyferry_cluster: Option<PublicCluster>,
}

/// What an exec plugin needs.
pub struct ClusterToken {
    /// The token.
    pub token: UsableToken,
    /// Where it may be taken. None from a server that does not tell.
    pub cluster: Option<PublicCluster>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorAnswer {
    error: String,
    error_description: String,
}

impl ServerAddress {
    /// Exchanges the caller's token for one of `access`.
    ///
    /// # Errors
    /// [`ClientError`]; nothing that the server sent but its error texts is repeated.
    pub async fn token(&self, caller: &SecretString, access: &AccessName) -> Result<UsableToken, ClientError> {
        Ok(self.exchange(caller, access, &[]).await?.token)
    }

    /// As [`ServerAddress::token`], with where the target is.
    ///
    /// # Errors
    /// As [`ServerAddress::token`].
    pub async fn cluster_token(&self, caller: &SecretString, access: &AccessName) -> Result<ClusterToken, ClientError> {
        self.exchange(caller, access, &[("keyferry_cluster", "true")]).await
    }

    async fn exchange(&self, caller: &SecretString, access: &AccessName, further: &[(&str, &str)]) -> Result<ClusterToken, ClientError> {
        let audience = access.to_string();
        let form = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", GRANT_TYPE)
            .append_pair("subject_token_type", TOKEN_TYPE_JWT)
            .append_pair("audience", &audience)
            .append_pair("subject_token", caller.expose_secret())
            .extend_pairs(further)
            .finish();
        let request = self
            .client()?
            .post(self.path("/v1/token"))
            .header(reqwest::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form);
        let body = self.send(request).await?;
        let answer: TokenAnswer = serde_json::from_slice(&body).map_err(|_| self.problem("its answer is no token"))?;
        // Whatever is printed or used from here on is a token, and nothing that speaks to a terminal.
        let sound = UnverifiedJwt::parse(answer.access_token.expose_secret()).is_ok() && answer.token_type == "Bearer";
        if !sound || answer.expires_in > lifetime::MAX.as_secs() {
            return Err(self.problem("its answer is no bearer token with a sensible life"));
        }
        let cluster = answer.keyferry_cluster.map(PublicCluster::checked).transpose();
        let cluster = cluster.map_err(|error| self.problem(format!("it does not say where the target is: {error}")))?;
        let token = UsableToken { token: answer.access_token, usable: Duration::from_secs(answer.expires_in) };
        Ok(ClusterToken { token, cluster })
    }

    /// Fetches the kubeconfig of `access`.
    ///
    /// # Errors
    /// As [`ServerAddress::token`].
    pub async fn kubeconfig(&self, caller: &SecretString, access: &AccessName) -> Result<SecretString, ClientError> {
        let path = format!("/v1/namespaces/{}/accesses/{}/kubeconfig", access.namespace, access.name);
        let request = self.client()?.get(self.path(&path)).bearer_auth(caller.expose_secret());
        let body = self.send(request).await?;
        let text = String::from_utf8(body).map_err(|_| self.problem("its answer is no kubeconfig"))?;
        received_kubeconfig::read(&text, access).map_err(|error| self.problem(error.to_string()))
    }

    fn path(&self, path: &str) -> String {
        format!("{}{path}", self.url.trim_end_matches('/'))
    }

    fn problem(&self, problem: impl Into<String>) -> ClientError {
        ClientError::Server { server: self.url.clone(), problem: problem.into() }
    }

    /// The caller's token goes to this origin and nowhere else: no redirects, no proxy from the environment, https only.
    fn client(&self) -> Result<reqwest::Client, ClientError> {
        let mut builder = reqwest::Client::builder()
            .https_only(true)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(DEADLINE)
            .connect_timeout(Duration::from_secs(5));
        if let Some(path) = &self.certificate_authority {
            let wrong = || ClientError::CertificateAuthority(path.clone());
            let pem = std::fs::read(path).map_err(|_| wrong())?;
            let certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(|_| wrong())?;
            if certificates.is_empty() {
                return Err(wrong());
            }
            builder = builder.tls_certs_only(certificates);
        }
        builder.build().map_err(|_| self.problem("no HTTPS client can be made; is there a CA to trust? give --certificate-authority"))
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<Vec<u8>, ClientError> {
        let mut response = request.send().await.map_err(|error| self.problem(fault(&error)))?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.problem(fault(&error)))? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_ANSWER_BYTES {
                return Err(self.problem("its answer is too large"));
            }
        }
        if status.is_success() {
            return Ok(body);
        }
        let answer: ErrorAnswer = serde_json::from_slice(&body).unwrap_or_default();
        let plain = |text: String| text.chars().filter(|character| *character == '\n' || !character.is_control()).take(2000).collect();
        Err(ClientError::Answer { status: status.as_u16(), error: plain(answer.error), description: plain(answer.error_description) })
    }
}

fn fault(error: &reqwest::Error) -> &'static str {
    if error.is_timeout() {
        "it did not answer in time"
    } else if error.is_connect() {
        "the connection failed; check the address and --certificate-authority"
    } else if error.is_builder() {
        "the address is not an https URL"
    } else {
        "the request could not be completed"
    }
}
