//! Checks what the issuers of a configuration publish, for `keyferry serve --check --network`.

use std::collections::BTreeMap;

use futures::future::join_all;
use keyferry_api::config::{ExternalIssuer, ServerConfiguration};
use keyferry_hub::client::{ClientError, HubAccess};
use keyferry_hub::forbidden::HubCaller;
use keyferry_hub::issuer_documents::KubeIssuerDocuments;
use keyferry_hub::ports::{EndpointAnswer, IssuerDocuments};
use keyferry_keys::jwks::{KeySetLimits, PublicKeySet};
use keyferry_platform::address_guard::AddressGuard;
use keyferry_platform::external_issuer_documents::{
    ExternalIssuerAddress, ExternalIssuerKeys, ExternalKeysError, HttpsIssuerKeys,
};

use crate::args::address_args::AddressArgs;

/// What reading one issuer's keys shows.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeysFinding {
    /// The issuer's answer cannot be used, wherever it is read.
    Mistake {
        /// The field, the issuer and what is wrong.
        problem: String,
        /// What to do.
        fix: &'static str,
    },
    /// The keys were not read from here, which proves nothing about the server.
    Unread(String),
}

/// Reads the keys of every external issuer, and those of the hub if there is access to it.
///
/// # Errors
/// [`ClientError`]: the hub's kubeconfig cannot be used.
pub(super) async fn check_published_keys(
    server: &ServerConfiguration,
    hub: &HubAccess,
    addresses: &AddressArgs,
) -> Result<Vec<KeysFinding>, ClientError> {
    let has_hub = match hub.config().await {
        Ok(_) => true,
        Err(ClientError::NotInCluster) => false,
        Err(error) => return Err(error),
    };
    let guard = if has_hub {
        addresses.guard(hub.clone())
    } else {
        addresses.guard_without_hub()
    };
    let mut findings = of_external_issuers(&server.external_issuers, guard).await;
    if has_hub {
        let endpoints = server.hub_endpoints.clone();
        let documents = KubeIssuerDocuments::new(hub.clone(), endpoints, HubCaller::User);
        findings.extend(documents.fetch().await.iter().filter_map(of_hub));
    }
    Ok(findings)
}

async fn of_external_issuers(issuers: &[ExternalIssuer], guard: AddressGuard) -> Vec<KeysFinding> {
    let source = HttpsIssuerKeys::new(guard);
    // Entries with one URL have one certificate authority, so one fetch serves them all.
    let mut first = BTreeMap::new();
    for (index, issuer) in issuers.iter().enumerate() {
        first.entry(issuer.url.as_str()).or_insert((index, issuer));
    }
    let findings = first.into_values().map(|(index, issuer)| {
        let source = &source;
        async move {
            let address = ExternalIssuerAddress {
                issuer: issuer.url.clone(),
                certificate_authority: issuer.certificate_authority.clone(),
            };
            let error = source.fetch(&address).await.err()?;
            let problem = format!("externalIssuers[{index}].url {}: {error}", issuer.url);
            // Other machines may have other roots, and other proxies that open TLS.
            let depends_on_machine = matches!(error, ExternalKeysError::Certificate(_))
                && issuer.certificate_authority.is_none();
            Some(match error.issuers_fix().filter(|_| !depends_on_machine) {
                Some(fix) => KeysFinding::Mistake { problem, fix },
                None => KeysFinding::Unread(problem),
            })
        }
    });
    join_all(findings).await.into_iter().flatten().collect()
}

fn of_hub(answer: &EndpointAnswer) -> Option<KeysFinding> {
    let at = &answer.endpoint;
    let documents = match &answer.documents {
        Ok(documents) => documents,
        Err(error) => return Some(KeysFinding::Unread(format!("the hub at {at}: {error}"))),
    };
    let error = PublicKeySet::from_upstream(&documents.jwks, KeySetLimits::default()).err()?;
    Some(KeysFinding::Mistake {
        problem: format!("the hub at {at}: {error}"),
        fix: error.fix(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use keyferry_hub::ports::{EndpointAnswer, HubError, UpstreamDocuments};

    use super::{KeysFinding, of_hub};

    fn endpoint_answer(jwks: &str) -> EndpointAnswer {
        EndpointAnswer {
            endpoint: "https://hub.example".to_owned(),
            documents: Ok(UpstreamDocuments {
                metadata: Vec::new(),
                jwks: jwks.as_bytes().to_vec(),
            }),
        }
    }

    #[test]
    fn keys_of_the_hub_that_sign_nothing_are_a_mistake() {
        let problem = |jwks: &str| match of_hub(&endpoint_answer(jwks)).unwrap() {
            KeysFinding::Mistake { problem, .. } => problem,
            unread => panic!("{unread:?}"),
        };
        let private = problem(r#"{"keys":[{"kty":"RSA","kid":"a","d":"canary"}]}"#);
        assert_eq!(
            private,
            "the hub at https://hub.example: key set publishes a private RSA key: keys[0]"
        );
        let none = problem(r#"{"keys":[{"kty":"OKP","kid":"a"}]}"#);
        assert!(
            none.ends_with("no usable key among its 1: keys[0] has a kty other than RSA and EC"),
            "{none}"
        );
        let silent = EndpointAnswer {
            documents: Err(HubError::Busy),
            ..endpoint_answer("")
        };
        assert!(matches!(of_hub(&silent), Some(KeysFinding::Unread(_))));
    }
}
