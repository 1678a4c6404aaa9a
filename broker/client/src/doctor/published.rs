//! Fetches what the issuers of an AuthenticationConfiguration publish, as the target would:
//! anonymously, each with its own CA.

use futures::future::join_all;
use keyferry_kube_authn::fetched::Fetched;
use keyferry_kube_authn::lint::{Published, PublishedDocuments, jwks_uri};
use keyferry_platform::address_guard::AddressGuard;

use crate::doctor::fetch::Fetcher;

/// The most entries that kube-apiserver accepts.
const MAX_ENTRIES: usize = 64;

/// Fetches all documents concurrently, each with a limit on its time and size, and only from where
/// the guard allows.
pub async fn published(
    places: &[Option<PublishedDocuments>],
    guard: &AddressGuard,
) -> Vec<Published> {
    join_all(
        places
            .iter()
            .take(MAX_ENTRIES)
            .map(|place| fetch_published(place.as_ref(), guard)),
    )
    .await
}

async fn fetch_published(place: Option<&PublishedDocuments>, guard: &AddressGuard) -> Published {
    // An invalid CA is reported by a finding of its own.
    let fetcher = place.map(|place| {
        let authority = place.certificate_authority.as_deref().map(str::as_bytes);
        Fetcher::new(authority, guard.clone())
    });
    let (Some(place), Some(Ok(fetcher))) = (place, fetcher) else {
        return Published::default();
    };
    let discovery = fetcher.get(&place.discovery_url).await;
    let keys = match jwks_uri(&discovery) {
        Some(uri) => fetcher.get_linked(&uri, &place.discovery_url).await,
        None => Fetched::NotTried,
    };
    Published { discovery, keys }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use keyferry_kube_authn::fetched::HttpResponse;
    use keyferry_testing::{Authority, EmbeddedHub, HubOptions};

    use super::*;

    #[tokio::test]
    async fn both_documents_are_read_by_the_entrys_own_authority() {
        let (authority, stranger) = (
            Authority::new("test CA").unwrap(),
            Authority::new("another CA").unwrap(),
        );
        let options = HubOptions {
            discovery_ca: Some(authority.clone()),
            ..HubOptions::default()
        };
        let hub = EmbeddedHub::start(options).await.unwrap();
        let place = |pem: &str| {
            Some(PublishedDocuments {
                discovery_url: hub.discovery_url(),
                certificate_authority: Some(pem.to_owned()),
            })
        };
        let places = [
            place(authority.ca_pem()),
            place(stranger.ca_pem()),
            place("no PEM"),
            None,
        ];
        let found = published(&places, &keyferry_platform::testing::loopback_guard()).await;
        let [sound, untrusted, unusable, none] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert!(
            matches!(
                &sound.discovery,
                Fetched::Response(HttpResponse { status: 200, .. })
            ),
            "{sound:?}"
        );
        assert!(
            matches!(
                &sound.keys,
                Fetched::Response(HttpResponse { status: 200, .. })
            ),
            "{sound:?}"
        );
        assert!(
            matches!(
                &untrusted,
                Published {
                    discovery: Fetched::Untrusted(_),
                    keys: Fetched::NotTried
                }
            ),
            "{untrusted:?}"
        );
        assert_eq!(
            (unusable, none),
            (&Published::default(), &Published::default())
        );
    }
}
