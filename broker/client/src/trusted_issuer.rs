//! Reads an issuer's discovery document and key set, as a kube-apiserver that trusts the issuer
//! does.

use std::time::Duration;

use keyferry_hub::connection_fault::{ConnectionFault, Endpoint};
use keyferry_hub::https_client::{BodyError, HttpsClientBuilder, read_body};
use serde::Deserialize;

/// The timeout that kube-apiserver sets for such a request.
const DEADLINE: Duration = Duration::from_secs(30);
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
    /// Fetches the key set anonymously: by https only, and
    /// following redirects.
    ///
    /// # Errors
    /// [`FetchError`].
    pub async fn key_set(&self) -> Result<Vec<u8>, FetchError> {
        let client = self.client()?;
        let place = if self.discovery_url.is_empty() {
            format!(
                "{}/.well-known/openid-configuration",
                self.url.strip_suffix('/').unwrap_or(self.url)
            )
        } else {
            self.discovery_url.to_owned()
        };
        let body = get(&client, &place).await?;
        let useless = |problem: &str| FetchError::Useless {
            url: place.clone(),
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
        get(&client, &provider.jwks_uri).await
    }

    fn client(&self) -> Result<reqwest::Client, FetchError> {
        let wrong = || FetchError::Authority(self.url.to_owned());
        let mut builder = HttpsClientBuilder::new(DEADLINE).following_redirects();
        if !self.certificate_authority.is_empty() {
            builder = builder
                .trusting_only(self.certificate_authority.as_bytes())
                .map_err(|_| wrong())?;
        }
        builder.build().map_err(|_| wrong())
    }
}

async fn get(client: &reqwest::Client, url: &str) -> Result<Vec<u8>, FetchError> {
    let useless = |problem: String| FetchError::Useless {
        url: url.to_owned(),
        problem,
    };
    let mut answer = match client.get(url).send().await {
        Ok(answer) => answer,
        Err(error) => return Err(no_answer(url, &error).await),
    };
    if answer.status() != reqwest::StatusCode::OK {
        return Err(useless(format!(
            "the answer is {}, not 200",
            answer.status().as_u16()
        )));
    }
    match read_body(&mut answer, MAX_BODY).await {
        Ok(body) => Ok(body),
        Err(BodyError::Connection(error)) => Err(no_answer(url, &error).await),
        Err(error @ BodyError::TooLong(_)) => Err(useless(error.to_string())),
    }
}

/// Describes the failure in terms that a user can act on.
async fn no_answer(url: &str, error: &reqwest::Error) -> FetchError {
    let problem = if error.is_timeout() {
        "it did not answer in time".to_owned()
    } else if error.is_connect() {
        let place = error.url().and_then(Endpoint::of_url);
        ConnectionFault::of(error, place.as_ref()).await.text
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
        let body = place.key_set().await.unwrap();
        assert!(serde_json::from_slice::<serde_json::Value>(&body).unwrap()["keys"].is_array());
    }

    #[tokio::test]
    async fn another_issuer_and_another_authority_are_refused() {
        let (hub, authority) = hub().await;
        let discovery_url = hub.discovery_url();
        let place = TrustedIssuer {
            url: "https://hub.example/",
            discovery_url: &discovery_url,
            certificate_authority: authority.ca_pem(),
        };
        assert!(
            matches!(place.key_set().await, Err(FetchError::OtherIssuer { got, .. }) if got == "https://hub.example")
        );
        let stranger = Authority::new("another CA").unwrap();
        let place = TrustedIssuer {
            url: hub.issuer(),
            certificate_authority: stranger.ca_pem(),
            ..place
        };
        assert!(matches!(
            place.key_set().await,
            Err(FetchError::NoAnswer { .. })
        ));
        let place = TrustedIssuer {
            certificate_authority: "no PEM",
            ..place
        };
        assert!(matches!(
            place.key_set().await,
            Err(FetchError::Authority(_)) | Err(FetchError::NoAnswer { .. })
        ));
    }
}
