//! Rotations, removals and revocations of keys.

use keyferry_api::foreign_text::ForeignText;

use super::facts::{at, fleet, key, seconds};
use super::{lines, rehearsed, safe_after};
use crate::facts::{Answer, Fleet, KeyState};
use crate::rehearsal::{Event, Parameters, RotationOrder};

const SIGN_AT_ONCE: Event = Event::KeyRotation {
    order: RotationOrder::SignAtOnce,
};
const PUBLISH_FIRST: Event = Event::KeyRotation {
    order: RotationOrder::PublishFirst,
};

fn parameters(max_age: u64, replicas: u16) -> Parameters {
    Parameters {
        max_age: seconds(max_age),
        replicas,
        ..Parameters::default()
    }
}

fn remove(kid: &str) -> Event {
    Event::RemoveKey {
        kid: ForeignText::new(kid),
    }
}

fn revoke(kid: &str) -> Event {
    Event::RevokeKey {
        kid: ForeignText::new(kid),
    }
}

/// Published after 35 s and 10 s for the second replica; active 30 s + maxAge + 30 s later.
#[test]
fn publishing_first_refuses_no_call() {
    for (parameters, signs) in [
        (parameters(60, 1), 155),
        (parameters(60, 2), 165),
        (parameters(30, 2), 135),
        (parameters(3600, 2), 3705),
    ] {
        let rehearsal = rehearsed(&fleet(), &PUBLISH_FIRST, &parameters);
        assert_eq!(lines(&rehearsal), Vec::<String>::new());
        assert_eq!(safe_after(&rehearsal), Some(signs), "{parameters:?}");
        assert!(!rehearsal.is_undetermined());
    }
}

/// A target may have fetched the keys just before the new one was published, and fetches them again
/// `maxAge` - 30 s later.
#[test]
fn signing_at_once_costs_callers_the_delay_and_own_minters_the_age_of_a_copy() {
    for (parameters, read, own, callers) in [
        (
            parameters(60, 1),
            35,
            "0-65",
            "certain 1-99, possible 0-158",
        ),
        (
            parameters(60, 2),
            45,
            "0-75",
            "certain 1-99, possible 0-168",
        ),
        (
            parameters(30, 1),
            35,
            "0-35",
            "certain 1-69, possible 0-128",
        ),
        (
            parameters(600, 2),
            45,
            "0-615",
            "certain 1-639, possible 0-708",
        ),
    ] {
        let possible = |line: &str, until| format!("{line}: certain never, possible 0-{until}");
        let rehearsal = rehearsed(&fleet(), &SIGN_AT_ONCE, &parameters);
        assert_eq!(
            lines(&rehearsal),
            [
                possible("UnconfirmedCaller * * CallerRejected", read),
                format!("CallerWithoutToken * * KeySettling: {callers}"),
                possible("CallerWithoutToken * * KeyNotPublished", read),
                possible("CallerWithoutToken * * HubUnreachable", 30),
                possible("CallerWithoutToken * * HubPolicyNotReady", 30),
                possible("CallerWithoutToken * * KeyRecordUnread", 30),
                possible("AnyCaller * * ReviewForbidden", 30),
                format!(
                    "OwnMinter tenant-a/flux prod SignatureInvalid: certain never, possible {own}"
                ),
            ],
            "{parameters:?}"
        );
    }
}

/// The target fetched the keys so many seconds before the hub signs with a new one; `maxAge` is
/// 120 s, so it fetches again 90 s after the fetch, and the key is published after 35 s.
#[test]
fn a_fetch_that_was_read_narrows_the_window() {
    for (fetched, expected) in [
        (0, "certain 0-89, possible 0-91"),
        (54, "certain 0-35, possible 0-37"),
        // The next fetch may come before the publication, and find nothing.
        (55, "certain 0-34, possible 0-125"),
        (88, "certain 0-1, possible 0-125"),
        (89, "certain never, possible 0-125"),
        (5000, "certain never, possible 0-125"),
        // A fetch of the future is none.
        (-1, "certain never, possible 0-125"),
    ] {
        let fleet = fleet();
        let mut parameters = parameters(120, 1);
        parameters
            .fetched_at
            .insert(fleet.targets[0].name.clone(), at(-fetched));
        let rehearsal = rehearsed(&fleet, &SIGN_AT_ONCE, &parameters);
        assert_eq!(
            lines(&rehearsal)[7],
            format!("OwnMinter tenant-a/flux prod SignatureInvalid: {expected}"),
            "fetched {fetched} s before"
        );
    }
}

#[test]
fn a_target_that_trusts_no_key_of_the_hub_refuses_nothing_in_a_rotation() {
    let change = |change: &dyn Fn(&mut Fleet)| {
        let mut fleet = fleet();
        change(&mut fleet);
        rehearsed(&fleet, &SIGN_AT_ONCE, &Parameters::default())
            .refusals
            .len()
    };
    assert_eq!(change(&|_| ()), 8);
    assert_eq!(
        change(&|fleet| fleet.targets[0].issuer =
            Some(ForeignText::new("https://keyferry.test/issuers/prod"))),
        7
    );
    assert_eq!(change(&|fleet| fleet.targets[0].relying_party = true), 7);
    assert_eq!(change(&|fleet| fleet.accesses[1].suspended = true), 7);
    // Nothing says that it does not.
    assert_eq!(change(&|fleet| fleet.targets[0].issuer = None), 8);
}

/// The other key signs since 1000 s, so the last Pod has another token 85 400 s from now. A token
/// of the old key ends after an hour.
#[test]
fn a_key_is_safe_to_remove_once_no_token_needs_it() {
    let rehearsal = rehearsed(&fleet(), &remove("old"), &Parameters::default());
    assert_eq!(
        lines(&rehearsal),
        [
            "AnyCaller * * CallerRejected: certain never, possible 0-85400",
            "AnyCaller * * ReviewForbidden: certain never, possible 0-85400",
            "ObjectReader tenant-a/apps prod SignatureInvalid: certain never, possible 0-3612",
        ]
    );
    assert_eq!(safe_after(&rehearsal), Some(85_400));
    assert!(!rehearsal.is_undetermined());
}

#[test]
fn the_last_token_decides_if_it_ends_later() {
    for (since, safe, expires, expected) in [
        (-86_400, 100, 3600, 3612),
        (-86_400, 5000, 3600, 5000),
        (-86_399, 0, -5, 1),
        (-200_000, -50, -5, -50),
    ] {
        let mut fleet = fleet();
        fleet.keys.keys[0].signs_since = Some(at(since));
        fleet.keys.keys[1].safe_to_remove_at = Some(at(safe));
        fleet.accesses[0].deliveries[0].expires_at = Some(at(expires));
        let rehearsal = rehearsed(&fleet, &remove("old"), &Parameters::default());
        assert_eq!(safe_after(&rehearsal), Some(expected));
    }
}

#[test]
fn the_key_that_signs_is_never_safe_to_remove() {
    let rehearsal = rehearsed(&fleet(), &remove("new"), &Parameters::default());
    assert_eq!(
        lines(&rehearsal),
        [
            "AnyCaller * * CallerRejected: certain 12.., possible 0..",
            "AnyCaller * * ReviewForbidden: certain never, possible 0..",
            "ObjectReader tenant-b/apps stage SignatureInvalid: certain never, possible 0-7212",
        ]
    );
    assert_eq!(rehearsal.earliest_safe, None);
    assert!(
        rehearsal.answer.contains("rotate first"),
        "{}",
        rehearsal.answer
    );
}

#[test]
fn a_key_that_the_hub_dropped_stays_for_its_tokens() {
    let mut fleet = fleet();
    fleet.keys.keys[1].withdrawn_at = Some(at(-500));
    let rehearsal = rehearsed(&fleet, &remove("old"), &Parameters::default());
    assert_eq!(
        lines(&rehearsal),
        ["ObjectReader tenant-a/apps prod SignatureInvalid: certain never, possible 0-3612"]
    );
    assert!(rehearsal.answer.ends_with("of it that live: 1"));
    assert!(!rehearsal.is_undetermined());
}

/// Targets that answer forget the key 10 s + 30 s + 12 s later; objects are rewritten after 75 s.
#[test]
fn a_revoked_key_is_replaced_where_another_signs() {
    let rehearsal = rehearsed(&fleet(), &revoke("old"), &Parameters::default());
    assert_eq!(
        lines(&rehearsal),
        [
            "AnyCaller * * CallerRejected: certain never, possible 0-86400",
            "ObjectReader tenant-a/apps prod SignatureInvalid: certain never, possible 0-75",
            "KeptCopy * * SignatureInvalid: certain never, possible 0-86400",
        ]
    );
    assert_eq!(safe_after(&rehearsal), Some(75));
    let forgotten: Vec<Option<i64>> = rehearsal
        .milestones
        .iter()
        .filter(|milestone| milestone.target.is_some())
        .map(|milestone| Some(milestone.latest?.as_second() - rehearsal.at.as_second()))
        .collect();
    assert_eq!(forgotten, [Some(52), Some(52)]);
    assert!(!rehearsal.is_undetermined());
}

#[test]
fn a_revoked_key_that_signs_stops_everything() {
    let rehearsal = rehearsed(&fleet(), &revoke("new"), &Parameters::default());
    assert_eq!(
        lines(&rehearsal),
        [
            "AnyCaller * * CallerRejected: certain never, possible 0..",
            "AnyCaller * * KeyRevoked: certain 12.., possible 0..",
            "ObjectReader tenant-b/apps stage SignatureInvalid: certain 52.., possible 0..",
            "KeptCopy * * SignatureInvalid: certain never, possible 0-86400",
        ]
    );
    assert_eq!(rehearsal.earliest_safe, None);
}

/// The hub may sign with a key before Keyferry has seen a token of it, so nothing is certain.
#[test]
fn a_key_that_was_not_seen_to_sign_leaves_open_which_does() {
    let mut fleet = fleet();
    fleet.keys.keys.insert(0, key("next", KeyState::Active));
    for (event, expected) in [
        (
            revoke("new"),
            &[
                "AnyCaller * * CallerRejected: certain never, possible 0..",
                "AnyCaller * * KeyRevoked: certain never, possible 0..",
                "ObjectReader tenant-b/apps stage SignatureInvalid: certain never, possible 0..",
                "KeptCopy * * SignatureInvalid: certain never, possible 0-86400",
            ][..],
        ),
        (
            remove("new"),
            &[
                "AnyCaller * * CallerRejected: certain never, possible 0..",
                "AnyCaller * * ReviewForbidden: certain never, possible 0..",
                "ObjectReader tenant-b/apps stage SignatureInvalid: certain never, possible 0-7212",
            ],
        ),
    ] {
        let rehearsal = rehearsed(&fleet, &event, &Parameters::default());
        assert_eq!(lines(&rehearsal), expected);
        assert_eq!(rehearsal.earliest_safe, None);
        let open: Vec<&str> = rehearsal
            .undetermined
            .iter()
            .map(|it| it.question.as_str())
            .collect();
        assert_eq!(open, ["whether the hub signs with key next already"]);
    }
}

#[test]
fn a_successor_that_is_not_active_yet_delays_everything() {
    let mut fleet = fleet();
    fleet.keys.keys[0].active_at = Some(at(100));
    let rehearsal = rehearsed(&fleet, &revoke("old"), &Parameters::default());
    assert_eq!(
        lines(&rehearsal)[..3],
        [
            "AnyCaller * * CallerRejected: certain never, possible 0-86400",
            "AnyCaller * * KeySettling: certain never, possible 0-102",
            "ObjectReader tenant-a/apps prod SignatureInvalid: certain never, possible 0-175",
        ]
    );
    assert_eq!(safe_after(&rehearsal), Some(175));
}

#[test]
fn a_target_that_does_not_answer_keeps_its_copy() {
    let mut fleet = fleet();
    fleet.targets[1].reachable = Answer::Unknown {
        why: ForeignText::new("never asked: probe is Off"),
    };
    let rehearsal = rehearsed(&fleet, &revoke("new"), &Parameters::default());
    assert_eq!(
        lines(&rehearsal)[2],
        "ObjectReader tenant-b/apps stage SignatureInvalid: certain never, possible 0.."
    );
    let open: Vec<&str> = rehearsal
        .undetermined
        .iter()
        .map(|open| open.question.as_str())
        .collect();
    assert_eq!(open, ["when target stage forgets the key"]);
}

#[test]
fn a_key_that_nothing_names_is_undetermined() {
    for event in [remove("other"), revoke("other")] {
        let rehearsal = rehearsed(&fleet(), &event, &Parameters::default());
        assert!(rehearsal.is_undetermined());
        assert_eq!(rehearsal.earliest_safe, None);
        assert_eq!(lines(&rehearsal), Vec::<String>::new());
    }
}

#[test]
fn a_key_without_a_successor_is_undetermined() {
    let mut fleet = fleet();
    fleet.keys.keys = vec![key("old", KeyState::Active)];
    let rehearsal = rehearsed(&fleet, &remove("old"), &Parameters::default());
    assert!(rehearsal.is_undetermined());
    assert_eq!(rehearsal.earliest_safe, None);
    assert!(
        rehearsal.answer.contains("not before"),
        "{}",
        rehearsal.answer
    );
}
