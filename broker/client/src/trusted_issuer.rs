//! Reads an issuer's discovery document and key set, as a kube-apiserver that trusts the issuer
//! does.

use std::time::Duration;

use keyferry_api::issuer::discovery_url;
use keyferry_platform::address_guard::{AddressGuard, DestinationError};
use keyferry_platform::connection_fault::{ConnectionFault, Endpoint};
use keyferry_platform::https_client::{BodyError, read_body};
use keyferry_platform::public_documents::{DocumentError, DocumentResponse, PublicDocuments};
use serde::Deserialize;

/// The timeout that kube-apiserver sets for such a request.
const FETCH_DEADLINE: Duration = Duration::from_secs(30);
/// The largest body that is read. An apiserver has no limit.
pub const MAX_BODY: usize = 1 << 20;

/// The part of an AuthenticationConfiguration entry that says where the keys are.
#[derive(Clone, Copy, Debug)]
pub struct TrustedIssuer<'a> {
    /// `issuer.url`.
    pub url: &'a str,
    /// `issuer.discoveryURL`; may be empty.
    pub discovery_url: &'a str,
    /// `issuer.certificateAuthority`, PEM. Empty means the roots of this machine.
    pub certificate_authority: &'a str,
}

/// The keys could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The certificate authority cannot be used.
    #[error("reading certificateAuthority of issuer {0}: it holds no certificate that can be used")]
    Authority(String),
    /// The server did not respond.
    #[error("fetching {url}: {problem}")]
    NoAnswer {
        /// The URL that was fetched.
        url: String,
        /// Why there was no response.
        problem: String,
    },
    /// Nothing was sent, because of the address.
    #[error("fetching {url}: TargetAddressRefused: {refused}")]
    AddressRefused {
        /// The URL that was not fetched.
        url: String,
        /// Why not.
        refused: DestinationError,
    },
    /// The response cannot be used.
    #[error("fetching {url}: {problem}")]
    Useless {
        /// The URL that was fetched.
        url: String,
        /// The problem with the response.
        problem: String,
    },
    /// The document names another issuer; the message is kube-apiserver's own.
    #[error(
        "oidc: issuer did not match the issuer returned by provider, expected {expected:?} got \
         {got:?}"
    )]
    OtherIssuer {
        /// `issuer.url` of the entry.
        expected: String,
        /// `issuer` of the document.
        got: String,
    },
}

#[derive(Deserialize)]
struct Provider {
    #[serde(default)]
    issuer: String,
    #[serde(default)]
    jwks_uri: String,
}

impl TrustedIssuer<'_> {
    /// Fetches the key set anonymously: by https only, following redirects, and only from where the
    /// guard allows.
    ///
    /// # Errors
    /// [`FetchError`].
    pub async fn key_set(&self, guard: &AddressGuard) -> Result<Vec<u8>, FetchError> {
        let documents = self.document_client(guard)?;
        let document_url = if self.discovery_url.is_empty() {
            discovery_url(self.url)
        } else {
            self.discovery_url.to_owned()
        };
        let body = fetch_document(&documents, &document_url, &document_url).await?;
        let useless = |problem: &str| FetchError::Useless {
            url: document_url.clone(),
            problem: problem.to_owned(),
        };
        let provider: Provider = serde_json::from_slice(&body)
            .map_err(|_| useless("the answer is not a discovery document"))?;
        if provider.issuer != self.url {
            return Err(FetchError::OtherIssuer {
                expected: self.url.to_owned(),
                got: provider.issuer,
            });
        }
        if provider.jwks_uri.is_empty() {
            return Err(useless("the discovery document names no jwks_uri"));
        }
        if !provider.jwks_uri.starts_with("https://") {
            return Err(useless(
                "jwks_uri is not https: a target would still fetch it, and trust any server that \
                 answers",
            ));
        }
        fetch_document(&documents, &provider.jwks_uri, &document_url).await
    }

    fn document_client(&self, guard: &AddressGuard) -> Result<PublicDocuments, FetchError> {
        let authority = Some(self.certificate_authority.as_bytes());
        let authority = authority.filter(|pem| !pem.is_empty());
        PublicDocuments::new(authority, FETCH_DEADLINE, guard.clone())
            .map_err(|_| FetchError::Authority(self.url.to_owned()))
    }
}

/// Fetches a URL that the document at `from` names.
async fn fetch_document(
    documents: &PublicDocuments,
    url: &str,
    from: &str,
) -> Result<Vec<u8>, FetchError> {
    let useless = |problem: String| FetchError::Useless {
        url: url.to_owned(),
        problem,
    };
    let DocumentResponse {
        mut response,
        endpoint,
    } = match documents.get_linked(url, from).await {
        Ok(answer) => answer,
        Err(DocumentError::Request { error, endpoint }) => {
            return Err(no_answer(url, &error, endpoint.as_ref()).await);
        }
        Err(DocumentError::Destination(refused)) => {
            return Err(FetchError::AddressRefused {
                url: url.to_owned(),
                refused,
            });
        }
        Err(other) => return Err(useless(other.to_string())),
    };
    if response.status() != reqwest::StatusCode::OK {
        return Err(useless(format!(
            "the answer is {}, not 200",
            response.status().as_u16()
        )));
    }
    match read_body(&mut response, MAX_BODY).await {
        Ok(body) => Ok(body),
        Err(BodyError::Connection(error)) => Err(no_answer(url, &error, endpoint.as_ref()).await),
        Err(error @ (BodyError::TooLong(_) | BodyError::Malformed)) => {
            Err(useless(error.to_string()))
        }
    }
}

/// Describes the failure in terms that a user can act on.
async fn no_answer(url: &str, error: &reqwest::Error, endpoint: Option<&Endpoint>) -> FetchError {
    let problem = if error.is_timeout() {
        "it did not answer in time".to_owned()
    } else if error.is_connect() {
        ConnectionFault::diagnose(error, endpoint).await.text
    } else {
        "the answer broke off".to_owned()
    };
    FetchError::NoAnswer {
        url: url.to_owned(),
        problem,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use keyferry_platform::testing::{
        CountingListener, REFUSED_ADDRESS_FORMS, ScriptedResolver, loopback_guard, strict_guard,
    };
    use keyferry_testing::{Authority, EmbeddedHub, HubOptions};

    use super::*;

    async fn hub() -> (EmbeddedHub, Authority) {
        let authority = Authority::new("test CA").unwrap();
        let options = HubOptions {
            issuer: Some("https://hub.example".to_owned()),
            discovery_ca: Some(authority.clone()),
            ..HubOptions::default()
        };
        (EmbeddedHub::start(options).await.unwrap(), authority)
    }

    #[tokio::test]
    async fn the_keys_are_read_from_where_the_entry_says() {
        let (hub, authority) = hub().await;
        let place = TrustedIssuer {
            url: hub.issuer(),
            discovery_url: &hub.discovery_url(),
            certificate_authority: authority.ca_pem(),
        };
        let body = place.key_set(&loopback_guard()).await.unwrap();
        assert!(serde_json::from_slice::<serde_json::Value>(&body).unwrap()["keys"].is_array());
    }

    #[tokio::test]
    async fn another_issuer_and_another_authority_are_refused() {
        let (hub, authority) = hub().await;
        let discovery_url = hub.discovery_url();
        let trusted_issuer = TrustedIssuer {
            url: "https://hub.example/",
            discovery_url: &discovery_url,
            certificate_authority: authority.ca_pem(),
        };
        assert!(
            matches!(trusted_issuer.key_set(&loopback_guard()).await, Err(FetchError::OtherIssuer { got, .. }) if got == "https://hub.example")
        );
        let stranger = Authority::new("another CA").unwrap();
        let place = TrustedIssuer {
            url: hub.issuer(),
            certificate_authority: stranger.ca_pem(),
            ..trusted_issuer
        };
        assert!(matches!(
            place.key_set(&loopback_guard()).await,
            Err(FetchError::NoAnswer { .. })
        ));
        let place = TrustedIssuer {
            certificate_authority: "no PEM",
            ..place
        };
        assert!(matches!(
            place.key_set(&loopback_guard()).await,
            Err(FetchError::Authority(_)) | Err(FetchError::NoAnswer { .. })
        ));
    }

    #[tokio::test]
    async fn a_file_leads_to_no_refused_address() {
        let listener = CountingListener::start().await;
        let guard = strict_guard(ScriptedResolver::new(&[&["127.0.0.1"]]));
        for form in REFUSED_ADDRESS_FORMS {
            let url = format!("https://{form}:{}", listener.port);
            for (url, discovery_url) in [(url.as_str(), ""), ("https://hub.example", &url)] {
                let place = TrustedIssuer {
                    url,
                    discovery_url,
                    certificate_authority: "",
                };
                let refused = place.key_set(&guard).await.unwrap_err();
                assert!(
                    matches!(refused, FetchError::AddressRefused { .. }),
                    "{form}: {refused}"
                );
            }
        }
        assert_eq!(listener.count(), 0);
    }
}
