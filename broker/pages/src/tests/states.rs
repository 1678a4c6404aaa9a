//! Each state of a page, a row each: what it says, and what it must not say.

use jiff::SignedDuration;
use keyferry_api::foreign_text::ForeignText;
use keyferry_api::name::Namespace;
use keyferry_fleet::facts::{Fleet, Health, KeyFacts, ReadFailure, Source};

use super::layout::main_part;
use crate::testing::{empty_fleet, judged_at, large_fleet, refused_list, sample_fleet};
use crate::viewer_page;

/// A state: its name, the fleet, the page with its query, what it says and what it does not.
type State = (
    &'static str,
    Fleet,
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

fn changed(change: impl FnOnce(&mut Fleet)) -> Fleet {
    let mut fleet = sample_fleet();
    change(&mut fleet);
    fleet
}

fn emptied(change: impl FnOnce(&mut Fleet)) -> Fleet {
    let mut fleet = empty_fleet();
    change(&mut fleet);
    fleet
}

#[test]
fn each_state_says_what_is_known_and_no_more() {
    for (name, fleet, address, says, silent) in reading_states().into_iter().chain(page_states()) {
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        let page = viewer_page(&fleet, path, query).html;
        // Without tags, so that a sentence is found whatever is marked in it.
        let text: String = page
            .split('<')
            .filter_map(|part| part.split_once('>'))
            .map(|(_, text)| text)
            .collect();
        let body = text.split_once("Skip to the content").unwrap().1;
        for expected in says {
            assert!(body.contains(expected), "{name}: no {expected:?} in {body}");
        }
        for unexpected in silent {
            assert!(
                !body.contains(unexpected),
                "{name}: {unexpected:?} in {body}"
            );
        }
    }
}

/// How the facts were read, which every page says.
fn reading_states() -> Vec<State> {
    let gap = || refused_list("targetclusters.keyferry.dev", "which targets there are");
    vec![
        (
            "all readable and new",
            sample_fleet(),
            "keys",
            &[
                "Read 1 min ago",
                "alice@example.com",
                "Every list was readable",
            ],
            &["old.", "not readable:", "Generated", "Redacted"],
        ),
        (
            "older than five minutes",
            changed(|fleet| fleet.reading.read_at = judged_at() - SignedDuration::from_mins(12)),
            "denials",
            &["▲ These facts are 12 min old."],
            &[],
        ),
        (
            "the hub does not answer any more",
            changed(|fleet| {
                fleet.reading.read_at = judged_at() - SignedDuration::from_mins(12);
                fleet.reading.failed = Some(ReadFailure {
                    at: judged_at(),
                    message: ForeignText::new("connection refused"),
                    fix: "start the hub".to_owned(),
                });
            }),
            "fleet",
            &[
                "✕ The hub did not answer now",
                "These facts were read 12 min ago",
                "connection refused",
                "Fix: start the hub",
                "prod-us",
            ],
            &["12 min old"],
        ),
        (
            "a list was refused",
            changed(|fleet| fleet.gaps = vec![refused_list("pods", "who reads delivered tokens")]),
            "expiry",
            &[
                "? 1 list was not readable: not known here: who reads delivered tokens.",
                "refused: alice@example.com cannot list it",
                "bind the ClusterRole keyferry-view",
            ],
            &["Every list was readable"],
        ),
        (
            "the targets were refused",
            emptied(|fleet| fleet.gaps = vec![gap()]),
            "fleet",
            &[
                "The targets were not readable",
                "targetclusters.keyferry.dev could not be read",
                "Fix: bind the ClusterRole",
            ],
            &["There is no target yet", "kind: TargetCluster"],
        ),
        (
            "some of the targets were readable",
            changed(|fleet| {
                fleet.gaps = vec![gap()];
                fleet
                    .targets
                    .retain(|target| target.health == Health::Ready);
            }),
            "fleet",
            &["All 2 targets of those that were readable work"],
            &[],
        ),
        (
            "generated",
            large_fleet(3, 2, 5),
            "tenants",
            &["Generated. None of this exists: a made-up fleet with seed 7."],
            &[],
        ),
        (
            "redacted",
            changed(|fleet| {
                fleet.reading.redacted = true;
                fleet.reading.user = None;
                for target in &mut fleet.targets {
                    target.address = None;
                }
            }),
            "target/stage",
            &["Redacted. Addresses", "Addressleft out", "Read byleft out"],
            &["Addressnot known"],
        ),
        (
            "a tenant's reading",
            changed(|fleet| fleet.reading.tenant = Namespace::new("tenant-a").ok()),
            "fleet",
            &["One namespace. Only tenant-a was read"],
            &[],
        ),
        (
            "a folder",
            changed(|fleet| {
                fleet.reading.source = Source::Folder {
                    path: ForeignText::new("./snapshot"),
                };
                fleet.reading.user = None;
            }),
            "fleet",
            &["the folder ./snapshot", "nobody: no hub was asked"],
            &[],
        ),
    ]
}

/// What there is to show on one page.
fn page_states() -> Vec<State> {
    vec![
        (
            "nothing yet",
            empty_fleet(),
            "fleet",
            &[
                "There is no target yet",
                "kind: TargetCluster",
                "kind: TargetAccess",
            ],
            &["not readable:"],
        ),
        (
            "all targets work",
            changed(|fleet| {
                fleet
                    .targets
                    .retain(|target| target.health == Health::Ready)
            }),
            "fleet",
            &["All 2 targets work"],
            &["does not work"],
        ),
        (
            "one target failed, and the others are there",
            sample_fleet(),
            "fleet",
            &[
                "1 of 5 targets does not work, 1 needs attention",
                "✕ broken it refuses tokens of this issuer TargetUntrusted",
                "● ready",
            ],
            &[],
        ),
        (
            "none is proven",
            changed(|fleet| {
                fleet
                    .targets
                    .retain(|target| target.health == Health::Unknown)
            }),
            "fleet",
            &["The only target is not proven to work", "never asked"],
            &[" works"],
        ),
        (
            "the runway is over",
            changed(|fleet| {
                fleet.runway.as_mut().unwrap().at = judged_at() - SignedDuration::from_mins(3)
            }),
            "fleet",
            &["The first token ended 3 min ago"],
            &["If the hub stops now"],
        ),
        (
            "a search without a result repeats the question",
            sample_fleet(),
            "fleet?q=nowhere&state=broken",
            &[
                "No target is in the state “broken” and contains “nowhere”.",
                "without the search",
                "in any state",
                "show all",
            ],
            &["prod-us"],
        ),
        (
            "a search with a result",
            sample_fleet(),
            "fleet?q=PROD-E",
            &["prod-eu"],
            &["registry"],
        ),
        (
            "too much for a page",
            large_fleet(250, 10, 400),
            "fleet?from=101",
            &["101–200 of 250", "← previous", "next →"],
            &[],
        ),
        (
            "a target after the last",
            sample_fleet(),
            "fleet?from=18446744073709551615",
            &["There are only 5 rows", "show the first"],
            &["prod-us"],
        ),
        (
            "an ending after the last",
            sample_fleet(),
            "expiry?from=9901",
            &["There are only", "show the first"],
            &[],
        ),
        (
            "no delivery writes a token",
            empty_fleet(),
            "expiry",
            &["No delivery writes a token; callers fetch them"],
            &[],
        ),
        (
            "endings were refused",
            emptied(|fleet| {
                fleet.gaps = vec![refused_list(
                    "targetaccesses.keyferry.dev",
                    "when tokens end",
                )]
            }),
            "expiry",
            &[
                "When delivered tokens end is not known",
                "targetaccesses.keyferry.dev could not be read",
            ],
            &["No delivery writes a token"],
        ),
        (
            "the journal was not read",
            changed(|fleet| fleet.keys.journal_read = false),
            "keys",
            &[
                "Delivered tokens name 2 keys; the rest of the keys' life is not known",
                "The key journal was not read",
            ],
            &["safe to remove"],
        ),
        (
            "no key is known",
            emptied(|fleet| fleet.keys = KeyFacts::default()),
            "keys",
            &["No signing key is known"],
            &["The journal has no key yet"],
        ),
        (
            "refusals were not read",
            changed(|fleet| fleet.denials = Default::default()),
            "denials",
            &["Refusals were not read", "keyferry fleet --audit FILE"],
            &["Nothing was refused"],
        ),
        (
            "nothing was refused",
            changed(|fleet| {
                fleet.denials.groups.clear();
                fleet.denials.newest.clear();
            }),
            "denials",
            &["Nothing was refused in the last hour", "4,812 audit lines"],
            &[],
        ),
        (
            "the lines begin less than an hour ago",
            changed(|fleet| fleet.denials.since = Some(judged_at() - SignedDuration::from_mins(5))),
            "denials",
            &["214 refusals since 2026-03-04 09:41:00 UTC"],
            &["in the last hour,"],
        ),
        (
            "an unknown target",
            sample_fleet(),
            "target/prod-xx",
            &["No target is named prod-xx", "all targets"],
            &[],
        ),
        (
            "no access",
            empty_fleet(),
            "tenants",
            &["No namespace has an access"],
            &[],
        ),
    ]
}

#[test]
fn the_order_of_a_list_is_marked_and_kept() {
    let fleet = sample_fleet();
    let position = |query: &str, name: &str| {
        let page = main_part(&viewer_page(&fleet, "fleet", query).html);
        page.find(&format!("target/{name}\"")).unwrap()
    };
    assert!(position("", "prod-us") < position("", "hub"), "worst first");
    assert!(position("sort=name", "hub") < position("sort=name", "prod-us"));
    assert!(position("sort=runway", "stage") < position("sort=runway", "prod-us"));
    assert!(position("sort=accesses", "stage") < position("sort=accesses", "prod-us"));
    for (query, marked) in [
        ("", "aria-sort=\"descending\"><a href=\"fleet\">State"),
        (
            "sort=name",
            "aria-sort=\"ascending\"><a href=\"fleet?sort=name\">Target",
        ),
        (
            "sort=runway",
            "aria-sort=\"ascending\"><a href=\"fleet?sort=runway\">Runway",
        ),
    ] {
        let page = viewer_page(&fleet, "fleet", query).html;
        assert!(page.contains(marked), "{query}");
        assert_eq!(
            page.matches("<th scope=\"col\" aria-sort=").count(),
            1,
            "{query}"
        );
    }
}
