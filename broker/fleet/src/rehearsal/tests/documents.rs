//! The document of each event, whole.

use insta::assert_snapshot;

use super::facts::fleet;
use super::gaps::events;
use super::{Parameters, rehearsed};

#[test]
fn the_documents_stay_as_they_are() {
    for (name, event) in [
        "hub-outage",
        "publish-first",
        "sign-at-once",
        "remove-key",
        "ca-change-discovery",
        "ca-change-target",
        "revoke",
        "keyferry-outage",
    ]
    .iter()
    .zip(events())
    {
        let rehearsal = rehearsed(&fleet(), &event, &Parameters::default());
        assert_snapshot!(*name, serde_json::to_string_pretty(&rehearsal).unwrap());
    }
}
