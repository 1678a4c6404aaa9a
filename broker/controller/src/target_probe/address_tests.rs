//! The probe connects to no refused address, whatever a name resolves to.

#![allow(clippy::unwrap_used)]

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use keyferry_core::target_address::HubNetworks;
use keyferry_hub::ports::HubError;
use keyferry_hub::testing::REFUSED_ADDRESS_FORMS as FORMS;
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::*;

const LOOPBACK: &str = "127.0.0.1";

/// A resolver with scripted answers: each call takes the next one, and the last one repeats.
struct Scripted(Mutex<Vec<Vec<IpAddr>>>, AtomicUsize);

impl NameResolver for Scripted {
    fn addresses<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, Vec<SocketAddr>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        let answer = match host.parse() {
            Ok(address) => vec![address],
            Err(_) => {
                let mut answers = self.0.lock();
                if answers.len() > 1 {
                    answers.remove(0)
                } else {
                    answers.first().cloned().unwrap_or_default()
                }
            }
        };
        Box::pin(async move {
            let with_port = |address| SocketAddr::new(address, port);
            answer.into_iter().map(with_port).collect()
        })
    }
}

fn resolver(answers: &[&[&str]]) -> Arc<Scripted> {
    let parsed = |answer: &&[&str]| answer.iter().map(|text| text.parse().unwrap()).collect();
    let answers = answers.iter().map(parsed).collect();
    Arc::new(Scripted(Mutex::new(answers), AtomicUsize::new(0)))
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
    Arc::new(Hub(Some(HubNetworks {
        services: vec!["10.96.0.0/16".parse().unwrap()],
        apiservers: vec!["192.0.2.1".parse().unwrap()],
    })))
}

/// A listener on this host that counts connections.
async fn listener() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            drop(stream);
        }
    });
    (port, count)
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
    let (port, count) = listener().await;
    let rules = AddressRules {
        refused: Arc::from(["10.244.0.0/16".parse().unwrap()]),
        ..AddressRules::default()
    };
    // The allowed proxy has an address without a listener.
    let resolver = resolver(&[&["203.0.113.1"]]);
    let probe = HttpsProbe::within(rules, hub(), resolver);
    for form in FORMS {
        for (way, target) in ways(form, port).into_iter().enumerate() {
            let answer = probe.try_token(&target, &"token".into()).await;
            assert!(
                matches!(answer, ProbeAnswer::AddressRefused(_)),
                "{form}, way {way}: {answer:?}"
            );
        }
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

/// The HTTP client connects to an address in the URL directly, whatever was resolved and checked.
#[tokio::test]
async fn an_address_as_certificate_name_is_not_connected_to() {
    let (port, count) = listener().await;
    let resolver = resolver(&[&["203.0.113.1"]]);
    let probe = HttpsProbe::within(AddressRules::default(), hub(), resolver);
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
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn every_answer_of_a_name_is_checked_and_no_second_one_is_asked_for() {
    let (port, count) = listener().await;
    let probe_of =
        |resolver: Arc<Scripted>| HttpsProbe::within(AddressRules::default(), hub(), resolver);
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
        assert_eq!(changing.1.load(Ordering::SeqCst), 1);
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn names_of_the_proxys_own_host_are_refused_behind_it() {
    for host in ["localhost", "LOCALHOST", "a.localhost", "localhost."] {
        let proxied = target(
            format!("https://{host}:6443"),
            Some("http://proxy.example.test:3128".to_owned()),
            None,
        );
        let probe = HttpsProbe::within(
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
    let (port, count) = listener().await;
    let rules = AddressRules {
        allowed: Arc::from(["127.0.0.0/8".parse().unwrap()]),
        ..AddressRules::default()
    };
    let address = || target(format!("https://prod.example.test:{port}"), None, None);
    let unknown = HttpsProbe::within(rules.clone(), Arc::new(Hub(None)), resolver(&[&[LOOPBACK]]));
    let answer = unknown.try_token(&address(), &"token".into()).await;
    assert!(
        matches!(answer, ProbeAnswer::Unanswered(why) if why.contains("networks")),
        "{answer:?}"
    );
    assert_eq!(count.load(Ordering::SeqCst), 0);
    let known = HttpsProbe::within(rules, hub(), resolver(&[&[LOOPBACK]]));
    let answer = known.try_token(&address(), &"token".into()).await;
    assert!(matches!(answer, ProbeAnswer::Unanswered(_)), "{answer:?}");
    assert!(count.load(Ordering::SeqCst) > 0);
}
