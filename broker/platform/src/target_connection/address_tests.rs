//! A connection leads to no refused address, whatever a URL, a proxy, a name in the certificate or a
//! DNS answer says.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use futures::future::BoxFuture;
use keyferry_core::target_address::{AddressRules, HubNetworks};

use super::TargetConnectionError as Error;
use super::*;
use crate::address_guard::{HubNetworkSource, HubNetworksUnread};
use crate::connection_fault::ConnectionFault;
use crate::testing::{
    CountingListener, REFUSED_ADDRESS_FORMS, ScriptedResolver, hub_networks, loopback_guard,
    strict_guard,
};

const DEADLINE: Duration = Duration::from_secs(5);
const LOOPBACK: &str = "127.0.0.1";
const ALLOWED_PROXY: &str = "http://proxy.example.test:3128";

async fn open(address: &TargetAddress, guard: &AddressGuard) -> Result<TargetConnection, Error> {
    TargetConnection::open(address, guard, HttpsClientBuilder::new(DEADLINE)).await
}

/// Opens a connection and sends a request, which must fail. Asks why, which must not resolve a name
/// again or connect elsewhere either.
async fn fail_to_send(address: &TargetAddress, guard: &AddressGuard) {
    let connection = open(address, guard).await.unwrap();
    let sent = connection.request(Method::GET, "/version").send().await;
    ConnectionFault::diagnose(&sent.unwrap_err(), connection.endpoint()).await;
}

fn address(url: String, proxy: Option<&str>, name: Option<&str>) -> TargetAddress {
    TargetAddress {
        url,
        ca_pem: None,
        tls_server_name: name.map(str::to_owned),
        proxy_url: proxy.map(str::to_owned),
    }
}

/// Every way in which an address can name a host: as the URL, with another certificate name, as a
/// proxy, and behind an allowed proxy.
fn ways(host: &str, port: u16) -> [TargetAddress; 4] {
    let url = format!("https://{host}:{port}");
    let proxy = format!("http://{host}:{port}");
    let elsewhere = "https://198.51.100.7:6443".to_owned();
    [
        address(url.clone(), None, None),
        address(url.clone(), None, Some("prod.example.test")),
        address(elsewhere, Some(&proxy), None),
        address(url, Some(ALLOWED_PROXY), None),
    ]
}

#[tokio::test]
async fn no_form_of_a_refused_address_is_connected_to() {
    let listener = CountingListener::start().await;
    // The allowed proxy has an address without a listener.
    let guard = strict_guard(ScriptedResolver::new(&[&["203.0.113.1"]]));
    for form in REFUSED_ADDRESS_FORMS {
        for (way, address) in ways(form, listener.port).iter().enumerate() {
            let refused = open(address, &guard).await.err();
            assert!(
                matches!(
                    refused,
                    Some(Error::Destination(DestinationError::Refused { .. }))
                ),
                "{form}, way {way}: {refused:?}"
            );
        }
    }
    assert_eq!(listener.count(), 0);
}

/// A proxy of a kind that the HTTP client does not know is ignored by it, and a URL reads more than a
/// name in a text: both would lead to addresses that nobody checked.
#[tokio::test]
async fn a_proxy_or_a_server_name_that_is_read_otherwise_is_refused() {
    let listener = CountingListener::start().await;
    let guard = strict_guard(ScriptedResolver::new(&[&["203.0.113.1"]]));
    let url = || format!("https://prod.example.test:{}", listener.port);
    let names = [
        "localhost:1",
        "%6cocalhost",
        "lo\u{ad}calhost",
        "localhost/a",
        "localhost?a",
        "",
        "203.0.113.1",
        "[2001:db8::7]",
    ];
    for name in names.into_iter().chain(REFUSED_ADDRESS_FORMS) {
        let refused = open(&address(url(), None, Some(name)), &guard).await;
        assert_eq!(refused.err(), Some(Error::ServerName), "{name}");
    }
    for proxy in [
        "ftp://proxy.example.test",
        "socks5://proxy.example.test:1080",
        "socks5h://proxy.example.test",
        "HTTPX://proxy.example.test",
        "file://proxy.example.test/",
        "proxy.example.test",
    ] {
        let refused = open(&address(url(), Some(proxy), None), &guard).await;
        assert_eq!(refused.err(), Some(Error::Proxy), "{proxy}");
    }
    // The proxy would be asked to connect to the name.
    let both = address(url(), Some(ALLOWED_PROXY), Some("localhost"));
    assert_eq!(
        open(&both, &guard).await.err(),
        Some(Error::ProxiedServerName)
    );
    for url in ["", "prod.example.test", "data:text/plain,a"] {
        let refused = open(&address(url.to_owned(), None, None), &guard).await;
        assert_eq!(refused.err(), Some(Error::Address), "{url}");
    }
    // A DNS name has no case.
    let upper = address(url(), None, Some("PROD.example.test"));
    assert!(open(&upper, &guard).await.is_ok());
    assert_eq!(listener.count(), 0);
}

#[tokio::test]
async fn every_answer_of_a_name_is_checked_and_no_second_one_is_asked_for() {
    let listener = CountingListener::start().await;
    let by_name = || ways("prod.example.test", listener.port).into_iter().take(3);
    // One refused address among others, at any position and of either family.
    for answer in [
        [LOOPBACK, "198.51.100.7"],
        ["198.51.100.7", LOOPBACK],
        ["198.51.100.7", "::1"],
        ["2001:db8::7", "::ffff:127.0.0.1"],
        ["198.51.100.7", "169.254.169.254"],
        ["198.51.100.7", "10.96.0.1"],
    ] {
        for address in by_name() {
            let guard = strict_guard(ScriptedResolver::new(&[&answer]));
            let refused = open(&address, &guard).await.err();
            assert!(
                matches!(refused, Some(Error::Destination(_))),
                "{answer:?}: {refused:?}"
            );
        }
    }
    for address in by_name() {
        let changing = ScriptedResolver::new(&[&["2001:db8::7"], &[LOOPBACK]]);
        fail_to_send(&address, &strict_guard(changing.clone())).await;
        assert_eq!(changing.calls(), 1, "{address:?}");
    }
    assert_eq!(listener.count(), 0);
}

/// The HTTP client's own resolver would find these hosts.
#[tokio::test]
async fn a_host_without_an_address_is_not_looked_for_elsewhere() {
    let listener = CountingListener::start().await;
    let guard = strict_guard(ScriptedResolver::new(&[]));
    let [direct, named, proxied, _] = ways("localhost", listener.port);
    for (address, host) in [
        (&direct, "localhost"),
        (&named, "localhost"),
        (&proxied, "localhost, of its proxy"),
    ] {
        let connection = open(address, &guard).await.unwrap();
        assert_eq!(connection.unresolved_host(), Some(host));
        fail_to_send(address, &guard).await;
    }
    assert_eq!(listener.count(), 0);
}

#[tokio::test]
async fn a_target_behind_a_proxy_is_not_connected_to_directly() {
    let listener = CountingListener::start().await;
    let url = format!("https://localhost:{}", listener.port);
    // The proxy's port has no listener.
    let address = address(url.clone(), Some("http://127.0.0.1:1"), None);
    fail_to_send(&address, &loopback_guard().with_own(&url)).await;
    assert_eq!(listener.count(), 0);
}

#[tokio::test]
async fn names_of_the_proxys_own_host_are_refused_behind_it() {
    let guard = strict_guard(ScriptedResolver::new(&[&["203.0.113.1"]]));
    for host in ["localhost", "LOCALHOST", "a.localhost", "localhost."] {
        let [.., behind_proxy] = ways(host, 6443);
        let refused = open(&behind_proxy, &guard).await.err();
        assert!(
            matches!(refused, Some(Error::Destination(_))),
            "{host}: {refused:?}"
        );
    }
}

/// The networks of a hub, known or unreadable.
struct Hub(Option<HubNetworks>);

impl HubNetworkSource for Hub {
    fn networks(&self) -> BoxFuture<'_, Result<HubNetworks, HubNetworksUnread>> {
        let networks = self.0.clone();
        Box::pin(async move { networks.ok_or(HubNetworksUnread) })
    }
}

#[tokio::test]
async fn what_is_allowed_is_connected_to_and_only_while_the_hubs_networks_are_known() {
    let listener = CountingListener::start().await;
    let guard = |networks| {
        let rules = AddressRules {
            allowed: Arc::from(["127.0.0.0/8".parse().unwrap()]),
            ..AddressRules::default()
        };
        let resolver = ScriptedResolver::new(&[&[LOOPBACK]]);
        AddressGuard::new(rules, Arc::new(Hub(networks)), resolver)
    };
    let [by_name, ..] = ways("prod.example.test", listener.port);
    let unread = Error::Destination(DestinationError::HubUnread);
    assert_eq!(open(&by_name, &guard(None)).await.err(), Some(unread));
    assert_eq!(listener.count(), 0);
    fail_to_send(&by_name, &guard(Some(hub_networks()))).await;
    assert!(listener.count() > 0);
}
