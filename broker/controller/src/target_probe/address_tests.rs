//! The probe connects to no refused address, whatever a name resolves to.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use keyferry_core::target_address::{AddressRules, HubNetworks};
use keyferry_hub::name_resolver::NameResolver;
use keyferry_hub::ports::{HubError, HubNetworkSource};
use keyferry_hub::testing::{
    CountingListener, REFUSED_ADDRESS_FORMS as FORMS, ScriptedResolver, hub_networks,
};

use super::*;

const LOOPBACK: &str = "127.0.0.1";

fn resolver(answers: &[&[&str]]) -> Arc<ScriptedResolver> {
    ScriptedResolver::new(answers)
}

/// The networks of a hub, known or unreadable.
struct Hub(Option<HubNetworks>);

impl HubNetworkSource for Hub {
    fn networks(&self) -> BoxFuture<'_, Result<HubNetworks, HubError>> {
        let networks = self.0.clone();
        Box::pin(async move { networks.ok_or(HubError::Busy) })
    }
}

fn hub() -> Arc<Hub> {
    Arc::new(Hub(Some(hub_networks())))
}

fn probe_within(
    rules: AddressRules,
    hub: Arc<dyn HubNetworkSource>,
    resolver: Arc<dyn NameResolver>,
) -> HttpsProbe {
    HttpsProbe::new(AddressGuard::new(rules, hub, resolver))
}

fn target(address: String, proxy: Option<String>, name: Option<&str>) -> ProbedTarget {
    ProbedTarget {
        address,
        tls_server_name: name.map(str::to_owned),
        proxy_url: proxy,
        ca_pem: None,
    }
}

/// Every way in which a target can name a host: as its address, with another certificate name, as a
/// proxy, and behind an allowed proxy.
fn ways(host: &str, port: u16) -> [ProbedTarget; 4] {
    let url = |scheme: &str| format!("{scheme}://{host}:{port}");
    let elsewhere = || "https://198.51.100.7:6443".to_owned();
    [
        target(url("https"), None, None),
        target(url("https"), None, Some("prod.example.test")),
        target(elsewhere(), Some(url("http")), None),
        target(
            url("https"),
            Some("http://proxy.example.test:3128".to_owned()),
            None,
        ),
    ]
}

#[tokio::test]
async fn no_form_of_an_address_that_is_none_of_a_target_is_connected_to() {
    let listener = CountingListener::start().await;
    let port = listener.port;
    let rules = AddressRules {
        refused: Arc::from(["10.244.0.0/16".parse().unwrap()]),
        ..AddressRules::default()
    };
    // The allowed proxy has an address without a listener.
    let resolver = resolver(&[&["203.0.113.1"]]);
    let probe = probe_within(rules, hub(), resolver);
    for form in FORMS {
        for (way, target) in ways(form, port).into_iter().enumerate() {
            let answer = probe.try_token(&target, &"token".into()).await;
            assert!(
                matches!(answer, ProbeAnswer::AddressRefused(_)),
                "{form}, way {way}: {answer:?}"
            );
        }
    }
    assert_eq!(listener.count(), 0);
}

/// The HTTP client connects to an address in the URL directly, whatever was resolved and checked.
#[tokio::test]
async fn an_address_as_certificate_name_is_not_connected_to() {
    let listener = CountingListener::start().await;
    let port = listener.port;
    let resolver = resolver(&[&["203.0.113.1"]]);
    let probe = probe_within(AddressRules::default(), hub(), resolver);
    for form in FORMS.into_iter().chain(["203.0.113.1", "[2001:db8::7]"]) {
        let address = format!("https://prod.example.test:{port}");
        let answer = probe
            .try_token(&target(address, None, Some(form)), &"token".into())
            .await;
        assert!(
            matches!(answer, ProbeAnswer::Unanswered(text) if text.contains("cannot be used")),
            "{form}: {answer:?}"
        );
    }
    assert_eq!(listener.count(), 0);
}

#[tokio::test]
async fn every_answer_of_a_name_is_checked_and_no_second_one_is_asked_for() {
    let listener = CountingListener::start().await;
    let port = listener.port;
    let probe_of =
        |resolver: Arc<ScriptedResolver>| probe_within(AddressRules::default(), hub(), resolver);
    // One bad address among good ones, at any position and of either family.
    for answer in [
        ["127.0.0.1", "198.51.100.7"],
        ["198.51.100.7", "127.0.0.1"],
        ["198.51.100.7", "::1"],
        ["2001:db8::7", "::ffff:127.0.0.1"],
        ["198.51.100.7", "169.254.169.254"],
        ["198.51.100.7", "10.96.0.1"],
    ] {
        for target in ways("prod.example.test", port).into_iter().take(3) {
            let answer_of_probe = probe_of(resolver(&[&answer]))
                .try_token(&target, &"token".into())
                .await;
            assert!(
                matches!(answer_of_probe, ProbeAnswer::AddressRefused(_)),
                "{answer:?}: {answer_of_probe:?}"
            );
        }
    }
    // A second resolution would give another address, but the name is resolved only once.
    for target in ways("prod.example.test", port).into_iter().take(3) {
        let changing = resolver(&[&["2001:db8::7"], &[LOOPBACK]]);
        let answer = probe_of(Arc::clone(&changing))
            .try_token(&target, &"token".into())
            .await;
        assert!(matches!(answer, ProbeAnswer::Unanswered(_)), "{answer:?}");
        assert_eq!(changing.calls(), 1);
    }
    assert_eq!(listener.count(), 0);
}

#[tokio::test]
async fn names_of_the_proxys_own_host_are_refused_behind_it() {
    for host in ["localhost", "LOCALHOST", "a.localhost", "localhost."] {
        let proxied = target(
            format!("https://{host}:6443"),
            Some("http://proxy.example.test:3128".to_owned()),
            None,
        );
        let probe = probe_within(
            AddressRules::default(),
            hub(),
            resolver(&[&["203.0.113.1"]]),
        );
        let answer = probe.try_token(&proxied, &"token".into()).await;
        assert!(
            matches!(answer, ProbeAnswer::AddressRefused(_)),
            "{host}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn what_is_allowed_is_connected_to_and_only_while_the_hub_is_known() {
    let listener = CountingListener::start().await;
    let port = listener.port;
    let rules = AddressRules {
        allowed: Arc::from(["127.0.0.0/8".parse().unwrap()]),
        ..AddressRules::default()
    };
    let address = || target(format!("https://prod.example.test:{port}"), None, None);
    let unknown = probe_within(rules.clone(), Arc::new(Hub(None)), resolver(&[&[LOOPBACK]]));
    let answer = unknown.try_token(&address(), &"token".into()).await;
    assert!(
        matches!(answer, ProbeAnswer::Unanswered(why) if why.contains("networks")),
        "{answer:?}"
    );
    assert_eq!(listener.count(), 0);
    let known = probe_within(rules, hub(), resolver(&[&[LOOPBACK]]));
    let answer = known.try_token(&address(), &"token".into()).await;
    assert!(matches!(answer, ProbeAnswer::Unanswered(_)), "{answer:?}");
    assert!(listener.count() > 0);
}
