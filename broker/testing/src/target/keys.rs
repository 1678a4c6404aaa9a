//! The target's copy of the issuer's keys and how long it counts as fresh.

use jiff::{SignedDuration, Timestamp};
use reqwest::header::{CACHE_CONTROL, HeaderMap};
use serde_json::{Value, json};

use crate::jws::Jws;

/// The keys as last read. Old keys verify for ever. Only a miss causes a reload, and only near the
/// end of freshness. kube-apiserver does the same, which is why rotations need a delay.
#[derive(Default)]
pub(super) struct CachedKeys {
    keys: Vec<Value>,
    fresh_until: Option<Timestamp>,
}

impl CachedKeys {
    pub(super) fn new(keys: Vec<Value>, fresh_until: Timestamp) -> Self {
        Self {
            keys,
            fresh_until: Some(fresh_until),
        }
    }

    /// Returns the key set as a document; `None` if it was never read.
    pub(super) fn document(&self) -> Option<Vec<u8>> {
        self.fresh_until?;
        serde_json::to_vec(&json!({"keys": self.keys})).ok()
    }

    /// Whether a key with the token's kid (any key, if it names none) made its signature.
    pub(super) fn verify(&self, jws: &Jws<'_>) -> bool {
        self.keys
            .iter()
            .filter(|jwk| {
                jws.kid()
                    .is_none_or(|kid| jwk.get("kid").and_then(Value::as_str) == Some(kid))
            })
            .any(|jwk| jws.verified_by(jwk))
    }

    /// Whether a miss may reload the keys: from 30 s before the end of freshness on.
    pub(super) fn may_refetch(&self, now: Timestamp) -> bool {
        let ahead = now
            .saturating_add(SignedDuration::from_secs(30))
            .unwrap_or(Timestamp::MAX);
        self.fresh_until.is_none_or(|fresh| ahead > fresh)
    }
}

/// Returns the end of freshness of an answer received at `now`: `s-maxage`, else `max-age`, else at
/// once.
pub(super) fn fresh_until(headers: &HeaderMap, now: Timestamp) -> Timestamp {
    let value = headers
        .get(CACHE_CONTROL)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let directive = |name: &str| {
        value.split(',').find_map(|entry| {
            let (key, seconds) = entry.trim().split_once('=')?;
            let seconds = seconds.trim_matches('"').parse::<u32>().ok()?;
            key.eq_ignore_ascii_case(name).then_some(seconds)
        })
    };
    let seconds = directive("s-maxage").or_else(|| directive("max-age"));
    now.saturating_add(SignedDuration::from_secs(i64::from(seconds.unwrap_or(0))))
        .unwrap_or(Timestamp::MAX)
}
