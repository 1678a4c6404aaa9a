//! A resolver with scripted answers, a hub's networks, and a listener that must not be reached.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use keyferry_core::target_address::{AddressRules, HubNetworks};
use parking_lot::Mutex;
use tokio::net::TcpListener;

use crate::address_guard::AddressGuard;
use crate::name_resolver::{NameResolver, SystemResolver};

/// A resolver with scripted answers: each call takes the next one, and the last one repeats.
/// Addresses, and the old forms of IPv4 that a system resolver reads, are answered as they are.
pub struct ScriptedResolver {
    answers: Mutex<Vec<Vec<IpAddr>>>,
    calls: AtomicUsize,
}

impl ScriptedResolver {
    /// Creates a resolver with these answers.
    #[allow(clippy::unwrap_used, reason = "tests write good addresses")]
    pub fn new(answers: &[&[&str]]) -> Arc<Self> {
        let parsed = |answer: &&[&str]| answer.iter().map(|text| text.parse().unwrap()).collect();
        Arc::new(Self {
            answers: Mutex::new(answers.iter().map(parsed).collect()),
            calls: AtomicUsize::new(0),
        })
    }

    /// How often it was asked.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl NameResolver for ScriptedResolver {
    fn addresses<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, Vec<SocketAddr>> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let answer = match host.parse() {
            Ok(address) => vec![address],
            Err(_) => {
                let mut answers = self.answers.lock();
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

/// A listener on this host, and how many connections it accepted.
pub struct CountingListener {
    /// Its port on 127.0.0.1.
    pub port: u16,
    count: Arc<AtomicUsize>,
}

impl CountingListener {
    /// Starts it.
    #[allow(clippy::unwrap_used, reason = "a test without a port cannot go on")]
    pub async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                drop(stream);
            }
        });
        Self { port, count }
    }

    /// How many connections it accepted.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}

/// The networks of the hub of [`REFUSED_ADDRESS_FORMS`](super::REFUSED_ADDRESS_FORMS).
#[allow(clippy::unwrap_used, reason = "the networks are constants")]
pub fn hub_networks() -> HubNetworks {
    HubNetworks {
        services: vec!["10.96.0.0/16".parse().unwrap()],
        apiservers: vec!["192.0.2.1".parse().unwrap()],
    }
}

/// Creates a guard that refuses every one of
/// [`REFUSED_ADDRESS_FORMS`](super::REFUSED_ADDRESS_FORMS).
#[allow(clippy::unwrap_used, reason = "the network is a constant")]
pub fn strict_guard(resolver: Arc<dyn NameResolver>) -> AddressGuard {
    let rules = AddressRules {
        refused: Arc::from(["10.244.0.0/16".parse().unwrap()]),
        ..AddressRules::default()
    };
    AddressGuard::new(rules, Arc::new(hub_networks()), resolver)
}

/// Creates a guard that also allows this host, on which the servers of tests are.
#[allow(clippy::unwrap_used, reason = "the networks are constants")]
pub fn loopback_guard() -> AddressGuard {
    let rules = AddressRules {
        allowed: Arc::from(["127.0.0.0/8", "::1/128"].map(|text| text.parse().unwrap())),
        ..AddressRules::default()
    };
    AddressGuard::new(
        rules,
        Arc::new(HubNetworks::default()),
        Arc::new(SystemResolver),
    )
}
