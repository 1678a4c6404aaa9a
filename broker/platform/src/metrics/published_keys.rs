//! Gauges of the published keys: their number, when each was first and last seen, and the hash of
//! the bytes that targets fetch.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::registry::Registry;

use super::table::{Gauge, MetricDescription, NamedGauges, metrics};

/// How many keys get their own series, including withdrawn ones. A hub has two or three.
const MOST_KIDS: usize = 64;
/// The longest label: a `kid` of Kubernetes has 43 characters.
const LONGEST_KID: usize = 64;

metrics! {
    /// The series.
    KeyGauges {
        count: Gauge = "published_keys" []
            "Keys in the published set; above 80 the log warns, because some clouds read at most \
             100",
        unconfirmed: Gauge = "published_keys_unconfirmed" []
            "Published keys that this process has not read from the hub itself",
        documents: NamedGauges = "published_document_info" ["document", "hash"]
            "1; hash is sha256: and the hex digest of the key set's bytes. A target of 1.35 or newer \
             shows the same in \
             apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info once it has \
             fetched them",
        first_seen: NamedGauges = "published_key_first_seen_timestamp_seconds" ["kid"]
            "When this process first published a key; 64 keys at most",
        last_seen: NamedGauges = "published_key_last_seen_timestamp_seconds" ["kid"]
            "When this process last published a key; unchanged once the key is retired",
    }
}

/// The gauges of the published keys. A clone updates the same series.
#[derive(Clone)]
pub(super) struct PublishedKeys {
    gauges: KeyGauges,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// When each key was last seen.
    last_seen: BTreeMap<String, i64>,
    hash: String,
}

impl PublishedKeys {
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            gauges: KeyGauges::register(registry),
            state: Arc::default(),
        }
    }

    pub(super) fn describe() -> Vec<MetricDescription> {
        KeyGauges::describe()
    }

    /// Reports how many keys this process has not seen at the hub.
    pub(super) fn set_unconfirmed(&self, count: usize) {
        self.gauges
            .unconfirmed
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Reports the keys that are published after a successful reading at `at` (seconds since 1970),
    /// and the hash of the key set's bytes.
    pub(super) fn report_reading<'a>(
        &self,
        kids: impl Iterator<Item = &'a str>,
        now: &str,
        at: i64,
    ) {
        let mut state = self.state.lock();
        let State {
            last_seen: seen,
            hash,
        } = &mut *state;
        let mut count = 0;
        for kid in kids {
            count += 1;
            let kid = key_label(kid);
            if !seen.contains_key(&kid) {
                self.gauges.first_seen.of([kid.clone()]).set(at);
            }
            self.gauges.last_seen.of([kid.clone()]).set(at);
            seen.insert(kid, at);
        }
        while seen.len() > MOST_KIDS {
            // The key that was seen longest ago; among equals the first by name.
            let Some(oldest) = seen
                .iter()
                .min_by_key(|(_, at)| **at)
                .map(|(kid, _)| kid.clone())
            else {
                break;
            };
            seen.remove(&oldest);
            self.gauges.first_seen.remove([oldest.clone()]);
            self.gauges.last_seen.remove([oldest]);
        }
        self.gauges.count.set(count);
        if now != *hash {
            let labels = |hash: &str| ["jwks".to_owned(), hash.to_owned()];
            self.gauges.documents.of(labels(now)).set(1);
            self.gauges.documents.remove(labels(hash));
            now.clone_into(hash);
        }
    }
}

/// Returns a key's label: the hub chooses a `kid`, so one that no apiserver would generate is
/// replaced.
fn key_label(kid: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if kid.len() <= LONGEST_KID && kid.bytes().all(plain) {
        kid.to_owned()
    } else {
        "other".to_owned()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn a_withdrawn_key_stands_still_and_the_hash_follows_the_bytes() {
        let mut registry = Registry::default();
        let keys = PublishedKeys::register(&mut registry);
        keys.report_reading(["old"].into_iter(), "sha256:ab01", 100);
        keys.report_reading(["old", "new"].into_iter(), "sha256:ab02", 115);
        keys.report_reading(["new"].into_iter(), "sha256:ab03", 130);
        let text = text(&registry);
        for line in [
            "published_keys 1",
            "published_key_first_seen_timestamp_seconds{kid=\"old\"} 100",
            "published_key_last_seen_timestamp_seconds{kid=\"old\"} 115",
            "published_key_first_seen_timestamp_seconds{kid=\"new\"} 115",
            "published_key_last_seen_timestamp_seconds{kid=\"new\"} 130",
            "published_document_info{document=\"jwks\",hash=\"sha256:ab03\"} 1",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line} in {text}");
        }
        assert_eq!(
            text.matches("hash=").count(),
            1,
            "one hash at a time: {text}"
        );
    }

    #[test]
    fn an_upstream_cannot_make_series_without_end_nor_write_labels() {
        let mut registry = Registry::default();
        let keys = PublishedKeys::register(&mut registry);
        for reading in 0..10 {
            let kids: Vec<String> = (0..50)
                .map(|number| format!("kid-{reading}-{number}"))
                .collect();
            keys.report_reading(kids.iter().map(String::as_str), "", reading);
        }
        keys.report_reading(
            ["evil\"} 1\nforged{x=\"", "k".repeat(65).as_str()].into_iter(),
            "",
            11,
        );
        let text = text(&registry);
        assert_eq!(
            text.matches("first_seen_timestamp_seconds{").count(),
            MOST_KIDS
        );
        assert_eq!(
            text.matches("last_seen_timestamp_seconds{").count(),
            MOST_KIDS
        );
        assert!(
            text.contains("last_seen_timestamp_seconds{kid=\"other\"} 11\n")
                && !text.contains("forged"),
            "{text}"
        );
    }
}
