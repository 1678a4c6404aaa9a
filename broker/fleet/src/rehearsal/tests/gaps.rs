//! What was not read makes an answer undetermined, and never takes a time from nowhere.

use std::collections::BTreeSet;

use keyferry_api::foreign_text::ForeignText;
use keyferry_api::name::ObjectName;
use keyferry_api::reason::Reason;
use keyferry_kube_authn::Code;

use super::facts::{fleet, namespace, refused_list};
use super::rehearsed;
use crate::facts::Fleet;
use crate::rehearsal::{Event, Parameters, RotationOrder};

/// Each event.
pub(super) fn events() -> Vec<Event> {
    let kid = ForeignText::new("old");
    vec![
        Event::HubOutage { lasts: None },
        Event::KeyRotation {
            order: RotationOrder::PublishFirst,
        },
        Event::KeyRotation {
            order: RotationOrder::SignAtOnce,
        },
        Event::RemoveKey { kid: kid.clone() },
        Event::DiscoveryAuthorityChange,
        Event::TargetAuthorityChange {
            target: ObjectName::new("prod").unwrap(),
        },
        Event::RevokeKey { kid },
        Event::KeyferryOutage { lasts: None },
    ]
}

/// Which missing list makes which event undetermined, in the order of [`events`].
#[test]
fn each_missing_list_is_named_where_it_matters() {
    for (resource, expected) in [
        (
            "targetaccesses.keyferry.dev",
            [true, false, true, true, false, true, true, true],
        ),
        (
            "targetclusters.keyferry.dev",
            [false, false, true, false, true, true, true, false],
        ),
        (
            "secrets",
            [false, true, true, true, false, false, true, false],
        ),
        ("pods", [false; 8]),
    ] {
        let mut fleet = fleet();
        fleet.gaps.push(refused_list(resource));
        fleet.keys.journal_read = resource != "secrets";
        for (event, expected) in events().iter().zip(expected) {
            let rehearsal = rehearsed(&fleet, event, &Parameters::default());
            let named = rehearsal
                .undetermined
                .iter()
                .any(|open| open.why.contains(resource) && open.fix.contains("jane"));
            assert_eq!(named, expected, "{event:?} without {resource}");
            assert_eq!(rehearsal.gaps, fleet.gaps);
        }
    }
}

#[test]
fn a_journal_that_was_not_read_gives_no_safe_moment() {
    let mut fleet = fleet();
    fleet.keys.journal_read = false;
    for event in &events()[3..=3] {
        let rehearsal = rehearsed(&fleet, event, &Parameters::default());
        assert_eq!(rehearsal.earliest_safe, None);
        assert!(rehearsal.is_undetermined());
    }
}

#[test]
fn a_tenant_cannot_see_what_others_need() {
    let mut fleet = fleet();
    fleet.reading.tenant = Some(namespace("tenant-a"));
    for (event, expected) in events()
        .iter()
        .zip([false, false, false, true, true, true, true, false])
    {
        let rehearsal = rehearsed(&fleet, event, &Parameters::default());
        let named = rehearsal
            .undetermined
            .iter()
            .any(|open| open.why.contains("only namespace tenant-a"));
        assert_eq!(named, expected, "{event:?}");
        if expected {
            assert_eq!(rehearsal.earliest_safe, None, "{event:?}");
        }
    }
}

#[test]
fn a_status_that_says_too_little_is_named() {
    let mut fleet = fleet();
    fleet.accesses[0].deliveries[0].key_id = None;
    let open = |fleet: &Fleet, event: &Event| {
        rehearsed(fleet, event, &Parameters::default())
            .undetermined
            .into_iter()
            .map(|open| open.why)
            .collect::<Vec<_>>()
    };
    let events = events();
    assert_eq!(open(&fleet, &events[0]), Vec::<String>::new());
    assert_eq!(open(&fleet, &events[3]), ["its status has no keyID"]);
    fleet.accesses[0].deliveries[0].expires_at = None;
    assert_eq!(open(&fleet, &events[0]), ["its status has no expiresAt"]);
    fleet.accesses[0].deliveries[0].reason = Some(ForeignText::new("DeliveryFailed"));
    assert_eq!(open(&fleet, &events[0]), Vec::<String>::new());
}

/// `keyferry explain` knows each reason, but for a connection that is not accepted.
#[test]
fn each_reason_is_one_that_explain_knows() {
    let explained: BTreeSet<&str> = Reason::ALL
        .iter()
        .map(|reason| reason.as_str())
        .chain(Code::ALL.iter().map(|code| code.name()))
        .chain(["NoConnection"])
        .collect();
    for event in events() {
        for refusal in rehearsed(&fleet(), &event, &Parameters::default()).refusals {
            assert!(explained.contains(refusal.reason), "{}", refusal.reason);
        }
    }
}
