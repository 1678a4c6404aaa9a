//! What an issuer publishes: its key set and its metadata.

use std::collections::BTreeSet;

use keyferry_go_formats::GoRelease;
use keyferry_keys::discovery::{ProviderMetadata, render_metadata};
use keyferry_keys::jwks::{KeySetLimits, PublicKeySet};
use keyferry_kube_authn::keys::KeySet;
use serde_json::Value;

use crate::tokens::{ISSUER, seed_keys};

/// A set that is accepted is published without private members and in one spelling, is read as the
/// same one again, and has the same keys for a kube-apiserver of every release.
pub(crate) fn jwks(data: &[u8]) {
    let limits = KeySetLimits::default();
    let Ok((set, rejected)) = PublicKeySet::from_upstream(data, limits) else {
        return;
    };
    assert!(!set.is_empty() && set.len() + rejected.len() <= limits.keys);
    let bytes = set.to_bytes();
    let (again, none) =
        PublicKeySet::from_upstream(&bytes, limits).expect("what is published can be read");
    assert!(none.is_empty());
    assert_eq!(again, set);
    assert_eq!(again.to_bytes(), bytes);
    let document: Value = serde_json::from_slice(&bytes).expect("JSON");
    let keys = document["keys"].as_array().expect("an array");
    for member in keys
        .iter()
        .flat_map(|key| key.as_object().expect("an object").keys())
    {
        assert!(["kty", "use", "alg", "kid", "n", "e", "crv", "x", "y"].contains(&member.as_str()));
    }
    let target = KeySet::read(&bytes, &GoRelease::ALL).expect("a target decodes it");
    assert_eq!(target.published_secret(), None);
    let ours: BTreeSet<&str> = keys.iter().filter_map(|key| key["kid"].as_str()).collect();
    assert_eq!(target.kids().collect::<BTreeSet<_>>(), ours);
    assert_eq!(target.len(), set.len());
}

/// A document that is accepted names the issuer that was expected, and so does ours for that
/// issuer.
pub(crate) fn discovery(data: &[u8]) {
    if let Ok(metadata) = ProviderMetadata::from_upstream(data, ISSUER) {
        assert_eq!(metadata.issuer(), ISSUER);
    }
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if text.len() > 1024 {
        return;
    }
    let keys = seed_keys();
    let ours = render_metadata(text, text, &keys);
    let metadata = ProviderMetadata::from_upstream(&ours, text).expect("what we write can be read");
    assert!(
        metadata
            .signing_algorithms()
            .iter()
            .eq(keys.algorithms().iter())
    );
}
