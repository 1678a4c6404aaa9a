//! Calls to a Keyferry server.

use std::path::PathBuf;
use std::time::Duration;

use keyferry_api::foreign_text::ForeignText;
use keyferry_api::issuer::DISCOVERY_PATH;
use keyferry_api::lifetime;
use keyferry_api::name::AccessName;
use keyferry_core::exchange::{GRANT_TYPE, GRANT_TYPE_CREDENTIALS, TOKEN_TYPE_JWT};
use keyferry_core::public_cluster::PublicCluster;
use keyferry_core::received_kubeconfig;
use keyferry_keys::ca_bundle::MAX_CA_BUNDLE_BYTES;
use keyferry_keys::jwt::UnverifiedJwt;
use keyferry_platform::connection_fault::{ConnectionFault, ConnectionFaultKind, Endpoint};
use keyferry_platform::https_client::{BodyError, HttpsClientBuilder, read_body};
use keyferry_platform::regular_file;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::caller_token::CallerProof;
use super::{ClientError, UsableToken};

/// The token endpoint (RFC 8693).
const EXCHANGE_PATH: &str = "/v1/token";
const REQUEST_DEADLINE: Duration = Duration::from_secs(30);
const MAX_ANSWER_BYTES: usize = 512 * 1024;

/// The address of a Keyferry server.
#[derive(Clone, Debug)]
pub struct ServerAddress {
    /// The https origin of the server.
    pub url: String,
    /// The only CA certificates to trust for the server. `None` means the system's.
    pub certificate_authority: Option<PathBuf>,
}

/// What an issuer's discovery document has at least.
#[derive(Deserialize)]
#[expect(dead_code, reason = "only whether they are there is asked")]
struct DiscoveryDocument {
    issuer: String,
    jwks_uri: String,
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: SecretString,
    token_type: String,
    expires_in: u64,
    keyferry_cluster: Option<PublicCluster>,
}

/// A token with the cluster that it is for, as an exec plugin needs it.
pub struct ClusterToken {
    /// The token.
    pub token: UsableToken,
    /// The cluster to which the token may be sent. `None` from a server that does not report it.
    pub cluster: Option<PublicCluster>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorAnswer {
    error: ForeignText,
    error_description: ForeignText,
}

impl ServerAddress {
    /// Exchanges the caller's proof for a token of `access`.
    ///
    /// # Errors
    /// [`ClientError`]. Of the server's response, only its error texts are repeated.
    pub async fn exchange_for_token(
        &self,
        caller: &CallerProof,
        access: &AccessName,
    ) -> Result<UsableToken, ClientError> {
        Ok(self.send_exchange(caller, access, &[]).await?.token)
    }

    /// Like [`ServerAddress::exchange_for_token`], and also returns where the target is.
    ///
    /// # Errors
    /// As [`ServerAddress::exchange_for_token`].
    pub async fn cluster_token(
        &self,
        caller: &CallerProof,
        access: &AccessName,
    ) -> Result<ClusterToken, ClientError> {
        self.send_exchange(caller, access, &[("keyferry_cluster", "true")])
            .await
    }

    async fn send_exchange(
        &self,
        caller: &CallerProof,
        access: &AccessName,
        further: &[(&str, &str)],
    ) -> Result<ClusterToken, ClientError> {
        let audience = access.to_string();
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.append_pair("audience", &audience)
            .extend_pairs(further);
        match caller {
            CallerProof::Token(token) => form
                .append_pair("grant_type", GRANT_TYPE)
                .append_pair("subject_token_type", TOKEN_TYPE_JWT)
                .append_pair("subject_token", token.expose_secret()),
            CallerProof::Certificate(_) => form.append_pair("grant_type", GRANT_TYPE_CREDENTIALS),
        };
        let form = form.finish();
        let request = self
            .https_client(Some(caller))?
            .post(self.request_url(EXCHANGE_PATH))
            .header(
                reqwest::header::CONTENT_TYPE,
                "application/x-www-form-urlencoded",
            )
            .body(form);
        let received = self.send_request(request).await?;
        let wrong = |problem: &str| self.problem_of(&received, problem);
        let answer: TokenAnswer = serde_json::from_slice(&received.body)
            .map_err(|_| wrong("its answer is not a token"))?;
        // From here on, the response contains a token and nothing that could control a terminal.
        let sound = UnverifiedJwt::parse(answer.access_token.expose_secret()).is_ok()
            && answer.token_type == "Bearer";
        if !sound || answer.expires_in > lifetime::MAX.as_secs() {
            return Err(wrong(
                "its answer is not a bearer token with a valid lifetime",
            ));
        }
        let cluster = answer
            .keyferry_cluster
            .map(PublicCluster::check_received)
            .transpose();
        let cluster = cluster
            .map_err(|error| wrong(&format!("it does not report the target's address: {error}")))?;
        let token = UsableToken {
            token: answer.access_token,
            remaining_lifetime: Duration::from_secs(answer.expires_in),
        };
        Ok(ClusterToken { token, cluster })
    }

    /// Fetches the kubeconfig of `access`.
    ///
    /// # Errors
    /// As [`ServerAddress::exchange_for_token`].
    pub async fn fetch_kubeconfig(
        &self,
        caller: &CallerProof,
        access: &AccessName,
    ) -> Result<SecretString, ClientError> {
        let path = format!(
            "/v1/namespaces/{}/accesses/{}/kubeconfig",
            access.namespace, access.name
        );
        let request = self
            .https_client(Some(caller))?
            .get(self.request_url(&path));
        let request = match caller {
            CallerProof::Token(token) => request.bearer_auth(token.expose_secret()),
            CallerProof::Certificate(_) => request,
        };
        let answer = self.send_request(request).await?;
        let text = std::str::from_utf8(&answer.body)
            .map_err(|_| self.problem_of(&answer, "its answer is not a kubeconfig"))?;
        received_kubeconfig::rewrite_kubeconfig(text, access)
            .map_err(|error| self.problem_of(&answer, error))
    }

    fn request_url(&self, path: &str) -> String {
        format!("{}{path}", self.url.trim_end_matches('/'))
    }

    fn address_problem(&self, problem: impl Into<String>) -> ClientError {
        ClientError::Server {
            server: self.url.clone(),
            problem: problem.into(),
            fix: None,
        }
    }

    fn problem_with_fix(&self, problem: impl Into<String>, fix: Option<String>) -> ClientError {
        ClientError::Server {
            server: self.url.clone(),
            problem: problem.into(),
            fix,
        }
    }

    /// Builds an error about a response, with the request id of the server's audit record.
    fn problem_of(&self, answer: &ServerResponse, problem: impl std::fmt::Display) -> ClientError {
        self.address_problem(format!(
            "{problem}{}",
            request_id_suffix(answer.request_id.as_deref())
        ))
    }

    /// Checks the address, before anything is read for it.
    ///
    /// # Errors
    /// It is not an https URL.
    pub fn check(&self) -> Result<(), ClientError> {
        self.parse_address().map(drop)
    }

    /// Parses the server's address.
    fn parse_address(&self) -> Result<url::Url, ClientError> {
        let url = url::Url::parse(&self.url)
            .ok()
            .filter(|url| url.scheme() == "https" && url.has_host());
        if let Some(url) = &url
            && url.path().trim_end_matches('/').ends_with(EXCHANGE_PATH)
        {
            let origin = url.origin().ascii_serialization();
            return Err(self.problem_with_fix(
                "the address has the path of the token endpoint",
                Some(format!("write the origin alone, {origin}")),
            ));
        }
        url.ok_or_else(|| {
            // The parser takes HOST of HOST:PORT for the scheme.
            let rest = self.url.strip_prefix("http://").unwrap_or(&self.url);
            let meant = format!("https://{rest}");
            let fix = match url::Url::parse(&meant) {
                Ok(url) if url.has_host() && !rest.contains("://") => {
                    Some(format!("write {meant}"))
                }
                _ => None,
            };
            self.problem_with_fix("the address is not an https URL", fix)
        })
    }

    /// Builds an HTTPS client that sends the caller's proof only to this origin.
    fn https_client(&self, caller: Option<&CallerProof>) -> Result<reqwest::Client, ClientError> {
        self.parse_address()?;
        let mut builder =
            HttpsClientBuilder::new(REQUEST_DEADLINE).connecting_within(Duration::from_secs(5));
        if let Some(path) = &self.certificate_authority {
            let wrong = || ClientError::CertificateAuthority(path.clone());
            let pem = regular_file::read_regular_file(path, MAX_CA_BUNDLE_BYTES as u64)
                .map_err(|_| wrong())?;
            builder = builder.trusting_only(&pem).map_err(|_| wrong())?;
        }
        if let Some(CallerProof::Certificate(files)) = caller {
            builder = builder
                .present_certificate(&files.read_pem()?)
                .map_err(|_| {
                    let fix =
                        "give the key unencrypted, and the certificate that it belongs to first";
                    self.problem_with_fix(
                        "the client certificate and its key are no pair in PEM",
                        Some(fix.to_owned()),
                    )
                })?;
        }
        builder.build().map_err(|_| {
            self.problem_with_fix(
                "no HTTPS client can be made, as if there were no CA to trust",
                Some("give --certificate-authority FILE".to_owned()),
            )
        })
    }

    async fn send_request(
        &self,
        request: reqwest::RequestBuilder,
    ) -> Result<ServerResponse, ClientError> {
        let mut response = match request.send().await {
            Ok(response) => response,
            Err(error) => return Err(self.describe_fault(&error).await),
        };
        let status = response.status();
        let request_id = response
            .headers()
            .get("x-request-id")
            .and_then(|id| id.to_str().ok())
            .and_then(request_id);
        let mut answer = ServerResponse {
            body: Vec::new(),
            request_id,
        };
        match read_body(&mut response, MAX_ANSWER_BYTES).await {
            Ok(body) => answer.body = body,
            Err(BodyError::TooLong(_)) => {
                return Err(self.problem_of(&answer, "its answer is too large"));
            }
            Err(BodyError::Malformed) => {
                return Err(self.problem_of(&answer, BodyError::Malformed.to_string()));
            }
            Err(BodyError::Connection(error)) => return Err(self.describe_fault(&error).await),
        }
        if status.is_success() {
            return Ok(answer);
        }
        let error: ErrorAnswer = serde_json::from_slice(&answer.body).unwrap_or_default();
        // Every error of the token API has a code.
        if error.error.is_empty() {
            return Err(self.describe_foreign(status.as_u16(), &answer).await);
        }
        Err(ClientError::Answer {
            status: status.as_u16(),
            error: error.error,
            description: error.error_description,
            request_id: answer.request_id,
        })
    }

    /// Describes what responded instead of the token API.
    async fn describe_foreign(&self, status: u16, answer: &ServerResponse) -> ClientError {
        let (problem, fix) = if status == 404 && self.is_discovery().await {
            (
                "this is the discovery listener, not the token API".to_owned(),
                "name the listener of api.address, by default port 9443",
            )
        } else {
            (
                format!("it answers {status}, and not as Keyferry's token API does"),
                "check the address",
            )
        };
        let problem = format!(
            "{problem}{}",
            request_id_suffix(answer.request_id.as_deref())
        );
        self.problem_with_fix(problem, Some(fix.to_owned()))
    }

    /// Whether this origin publishes a discovery document. Asked without the caller's token.
    async fn is_discovery(&self) -> bool {
        let Ok(client) = self.https_client(None) else {
            return false;
        };
        let Ok(mut response) = client.get(self.request_url(DISCOVERY_PATH)).send().await else {
            return false;
        };
        let Ok(body) = read_body(&mut response, MAX_ANSWER_BYTES).await else {
            return false;
        };
        response.status().is_success() && serde_json::from_slice::<DiscoveryDocument>(&body).is_ok()
    }

    async fn describe_fault(&self, error: &reqwest::Error) -> ClientError {
        if error.is_timeout() {
            return self.address_problem("it did not answer in time");
        }
        if !error.is_connect() {
            return self.address_problem("the request could not be completed");
        }
        let place = self
            .parse_address()
            .ok()
            .as_ref()
            .and_then(Endpoint::of_url);
        let fault = ConnectionFault::diagnose(error, place.as_ref()).await;
        let fix = match (&fault.kind, &self.certificate_authority) {
            (ConnectionFaultKind::UnknownAuthority, None) => {
                Some("give the CA of the server by --certificate-authority FILE".to_owned())
            }
            (ConnectionFaultKind::UnknownAuthority, Some(file)) => Some(format!(
                "give the CA of the server, --certificate-authority {} is another",
                file.display()
            )),
            _ => None,
        };
        self.problem_with_fix(fault.text, fix)
    }
}

/// The body of a response, and the id that links it to the server's audit record.
struct ServerResponse {
    body: Vec<u8>,
    request_id: Option<String>,
}

/// Accepts a request id in Keyferry's format; anything else is not repeated.
fn request_id(text: &str) -> Option<String> {
    let sound = (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    sound.then(|| text.to_owned())
}

/// Formats a fix at the end of an error's line.
pub(crate) fn in_line(fix: Option<&str>) -> String {
    fix.map(|fix| format!("; fix: {fix}")).unwrap_or_default()
}

/// Formats the request id for an error message.
pub(super) fn request_id_suffix(request_id: Option<&str>) -> String {
    request_id
        .map(|id| format!(" (request id {id})"))
        .unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{ServerAddress, request_id};

    #[test]
    fn an_address_that_is_no_origin_is_told_how_to_write_it() {
        let said = |url: &str| {
            ServerAddress {
                url: url.to_owned(),
                certificate_authority: None,
            }
            .parse_address()
            .err()
            .map(|error| error.to_string())
        };
        assert_eq!(said("https://k.example:9443"), None);
        for (url, meant) in [
            ("http://k.example", "https://k.example"),
            ("127.0.0.1:9443", "https://127.0.0.1:9443"),
            ("k.example:9443", "https://k.example:9443"),
            ("k.example", "https://k.example"),
        ] {
            let said = said(url).unwrap();
            assert!(
                said.contains("not an https URL") && said.ends_with(&format!("fix: write {meant}")),
                "{said}"
            );
        }
        for url in [
            "https://k.example:9443/v1/token",
            "https://k.example:9443/v1/token/",
        ] {
            let told = said(url).unwrap();
            assert!(
                told.ends_with("write the origin alone, https://k.example:9443"),
                "{told}"
            );
        }
        for url in ["", "ftp://k.example", "https://"] {
            assert!(said(url).unwrap().ends_with("not an https URL"), "{url}");
        }
    }

    #[test]
    fn a_request_id_is_repeated_only_if_it_is_one() {
        assert_eq!(
            request_id("d2fd05e9826e417b").as_deref(),
            Some("d2fd05e9826e417b")
        );
        for text in ["", "a b", "a\u{1b}", &"a".repeat(65)] {
            assert_eq!(request_id(text), None, "{text:?}");
        }
    }
}
