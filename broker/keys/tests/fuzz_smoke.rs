//! A bounded run of the fuzz targets' properties: every seed, and mutations of every seed. `cargo
//! fuzz` runs the same ones without end.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use proptest::prelude::{any, prop};
use proptest::test_runner::{Config, TestRunner};

#[path = "../fuzz/properties.rs"]
mod properties;

#[test]
fn jwt() {
    run("jwt", properties::jwt, 2000);
}

#[test]
fn jwks() {
    run("jwks", properties::jwks, 2000);
}

#[test]
fn discovery() {
    run("discovery", properties::discovery, 1000);
}

#[test]
fn ca_bundle() {
    run("ca_bundle", properties::ca_bundle, 2000);
}

#[test]
fn caller_certificate() {
    run("caller_certificate", properties::caller_certificate, 2000);
}

#[test]
fn the_seeds_that_are_good_are_accepted() {
    use keyferry_keys::{
        ca_bundle::CaBundle, discovery::ProviderMetadata, jwt::UnverifiedJwt, verify,
    };

    let (keys, rejected) =
        keyferry_keys::jwks::PublicKeySet::from_upstream(properties::KEYS, Default::default())
            .unwrap();
    assert!(rejected.is_empty());
    let token = include_str!("../fuzz/corpus/jwt/plain").trim_end();
    let jwt = UnverifiedJwt::parse(token).unwrap();
    let claims = verify::verify_signature(&jwt, &keys)
        .unwrap()
        .claims()
        .unwrap();
    assert!(claims.registered.expires_at > properties::now());
    let document = include_bytes!("../fuzz/corpus/discovery/plain.json");
    assert!(ProviderMetadata::from_upstream(document, properties::ISSUER).is_ok());
    let bundle = CaBundle::from_pem(
        include_bytes!("../fuzz/corpus/ca_bundle/two_and_a_key.pem"),
        properties::now(),
    )
    .unwrap();
    assert_eq!(
        (bundle.certificates().len(), bundle.ignored_blocks()),
        (2, 1)
    );
    let certificate = include_bytes!("../fuzz/corpus/caller_certificate/good.der");
    let chain =
        keyferry_keys::caller_certificate::PresentedChain::new(&[certificate.as_slice().into()])
            .unwrap();
    properties::caller_rules()
        .identify_caller(&chain, properties::now())
        .unwrap();
}

/// Runs a property on every seed of a target, then on seeds with bytes replaced, cut out or joined.
fn run(target: &str, property: fn(&[u8]), cases: u32) {
    let seeds = seeds(target);
    for seed in &seeds {
        property(seed);
    }
    let edit = (
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
        prop::collection::vec(any::<u8>(), 0..3),
    );
    let input = (
        prop::sample::select(seeds),
        prop::collection::vec(edit, 0..4),
    );
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    });
    let outcome = runner.run(&input, |(mut data, edits)| {
        for (start, length, bytes) in edits {
            let start = start.index(data.len() + 1);
            let end = start + length.index(4).min(data.len() - start);
            data.splice(start..end, bytes);
        }
        property(&data);
        Ok(())
    });
    outcome.unwrap();
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let mut paths: Vec<_> = folder
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    assert!(paths.len() >= 3, "{target} has too few seeds");
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}
