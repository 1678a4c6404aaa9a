//! The serving certificate changes while clients connect.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::try_join_all;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{Broker, BrokerSpec, World};

use super::setup::KEYS;

/// The number of connections before and after the change.
const STORM: usize = 50;

pub(super) async fn change_while_serving(world: Arc<World>) -> TestResult {
    let broker = world
        .start_broker(world.hub(), BrokerSpec::of_hub("swap", world.hub()))
        .await?;
    let discovery = format!("{}{KEYS}", broker.discovery_url());
    let first = served(&broker, &discovery).await?;
    let (over, made) = (AtomicBool::new(false), AtomicUsize::new(0));
    let storm =
        try_join_all((0..8).map(|_| connect_again_and_again(&broker, &discovery, &over, &made)));
    let swap = async {
        until_more(&made, STORM).await;
        // The certificate is written before its key, so they do not match for a moment.
        let second = world.ca().serving("serving-swap", &[])?;
        broker.process().hang_up().await?;
        until_served(&broker, &discovery, &der_of(&second.cert_pem)?).await?;
        until_served(&broker, &broker.api_url(), &der_of(&second.cert_pem)?).await?;
        until_more(&made, STORM).await;
        over.store(true, Ordering::SeqCst);
        Ok::<_, TestError>(second)
    };
    let (seen, second) = tokio::try_join!(storm, swap)?;
    let connections: usize = seen.iter().map(Vec::len).sum();
    let distinct: BTreeSet<&Vec<u8>> = seen.iter().flatten().collect();
    let second_der = der_of(&second.cert_pem)?;
    assert!(
        distinct.contains(&first) && distinct.contains(&second_der) && distinct.len() == 2,
        "{} certificates",
        distinct.len()
    );
    eprintln!("{connections} connections while the certificate changed, none failed");

    let other = world.ca().serving("swap-other", &[])?;
    let mismatched = (other.cert_pem.clone(), second.key_pem.clone());
    let bad = [
        (
            "no PEM",
            ("not a certificate".to_owned(), second.key_pem.clone()),
        ),
        (
            "an empty certificate",
            (String::new(), second.key_pem.clone()),
        ),
        ("an empty key", (second.cert_pem.clone(), String::new())),
        ("a key of another certificate", mismatched),
    ];
    for (what, (certificate, key)) in bad {
        let refusals = refusals(&broker)?;
        write(&second.cert_path, &certificate)?;
        write(&second.key_path, &key)?;
        broker.process().hang_up().await?;
        let limit = Instant::now() + Duration::from_secs(10);
        while self::refusals(&broker)? < refusals + 2 {
            assert!(
                Instant::now() < limit,
                "{what}: not refused by both listeners"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(
            served(&broker, &discovery).await?,
            second_der,
            "{what}: the good one stays"
        );
        assert_eq!(
            served(&broker, &broker.api_url()).await?,
            second_der,
            "{what}: the good one stays"
        );
    }
    write(&second.cert_path, &other.cert_pem)?;
    write(&second.key_path, &other.key_pem)?;
    broker.process().hang_up().await?;
    until_served(&broker, &discovery, &der_of(&other.cert_pem)?).await?;
    until_served(&broker, &broker.api_url(), &der_of(&other.cert_pem)?).await
}

/// The certificate that a new connection gets, as DER.
async fn served(broker: &Broker, url: &str) -> Result<Vec<u8>, TestError> {
    let ca = reqwest::Certificate::from_pem(&std::fs::read(broker.ca_path())?)?;
    let http = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([ca])
        .tls_info(true)
        .build()?;
    let answer = http.get(url).send().await?;
    let info = answer
        .extensions()
        .get::<reqwest::tls::TlsInfo>()
        .and_then(|info| info.peer_certificate());
    Ok(info.ok_or("the connection has no certificate")?.to_vec())
}

async fn connect_again_and_again(
    broker: &Broker,
    url: &str,
    over: &AtomicBool,
    made: &AtomicUsize,
) -> Result<Vec<Vec<u8>>, TestError> {
    let mut seen = Vec::new();
    while !over.load(Ordering::SeqCst) {
        seen.push(served(broker, url).await?);
        made.fetch_add(1, Ordering::SeqCst);
    }
    Ok(seen)
}

async fn until_more(made: &AtomicUsize, more: usize) {
    let enough = made.load(Ordering::SeqCst) + more;
    while made.load(Ordering::SeqCst) < enough {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn until_served(broker: &Broker, url: &str, certificate: &[u8]) -> TestResult {
    let limit = Instant::now() + Duration::from_secs(10);
    while served(broker, url).await? != certificate {
        assert!(
            Instant::now() < limit,
            "the new certificate is not served at {url}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// How often a changed certificate was refused.
fn refusals(broker: &Broker) -> Result<usize, TestError> {
    Ok(broker
        .log()?
        .matches("the changed serving certificate cannot be used")
        .count())
}

/// Replaces the file atomically, as a projected volume changes.
fn write(path: &Path, text: &str) -> TestResult {
    let fresh = path.with_extension("fresh");
    std::fs::write(&fresh, text)?;
    Ok(std::fs::rename(&fresh, path)?)
}

fn der_of(pem: &str) -> Result<Vec<u8>, TestError> {
    let text: String = pem
        .lines()
        .filter(|line| !line.starts_with("-----"))
        .collect();
    Ok(STANDARD.decode(text)?)
}
