//! Outages of the hub and of Keyferry.

use super::facts::{access, at, fleet, now, seconds, token, without_token};
use super::{lines, rehearsed, safe_after};
use crate::facts::Fleet;
use crate::rehearsal::{Event, Parameters, rehearse};

fn hub_outage(lasts: u64) -> Event {
    Event::HubOutage {
        lasts: Some(seconds(lasts)),
    }
}

/// With the defaults, a known caller's cached token can be used for 110 s at least, and its review
/// for 290 s. The first token ends after an hour.
#[test]
fn a_hub_outage_ends_tokens_in_their_order() {
    let rehearsal = rehearsed(&fleet(), &hub_outage(14_400), &Parameters::default());
    assert_eq!(
        lines(&rehearsal),
        [
            "UnconfirmedCaller * * HubUnreachable: certain 0-14400, possible 0-14430",
            "OwnMinter tenant-a/flux prod HubUnreachable: certain 3612-14400, possible 0-14430",
            "ConfirmedCaller * * HubUnreachable: certain 301-14400, possible 110-14430",
            "ObjectReader tenant-a/apps prod TokenExpired: certain 3612-14400, possible 3599-14550",
            "ObjectReader tenant-b/apps stage TokenExpired: certain 7212-14400, possible 7199-14550",
            "CallerWithoutToken * * HubPolicyNotReady: certain never, possible 14400-14430",
            "CallerWithoutToken * * KeyRecordUnread: certain never, possible 14400-14430",
            "AnyCaller * * ReviewForbidden: certain never, possible 14400-14430",
        ]
    );
    assert_eq!(safe_after(&rehearsal), Some(14_550));
    assert!(!rehearsal.is_undetermined(), "{:?}", rehearsal.undetermined);
}

/// The one token ends after 3600 s. It is written again within 150 s after the end of the outage,
/// and a target accepts it for 12 s more at most.
#[test]
fn the_length_of_an_outage_decides_to_the_second() {
    let mut fleet = fleet();
    fleet.accesses.truncate(1);
    let window = |certain: &str, possible: &str| {
        let certain = format!("certain {certain}, possible {possible}");
        vec![format!(
            "ObjectReader tenant-a/apps prod TokenExpired: {certain}"
        )]
    };
    for (lasts, expected) in [
        (3448, vec![]),
        (3449, vec![]),
        (3450, window("never", "3599-3600")),
        (3612, window("never", "3599-3762")),
        (3613, window("3612-3613", "3599-3763")),
    ] {
        let rehearsal = rehearsed(&fleet, &hub_outage(lasts), &Parameters::default());
        let readers: Vec<String> = lines(&rehearsal)
            .into_iter()
            .filter(|line| line.starts_with("ObjectReader"))
            .collect();
        assert_eq!(readers, expected, "{lasts} s");
    }
}

#[test]
fn an_outage_without_an_end_has_windows_without_an_end() {
    let rehearsal = rehearsed(
        &fleet(),
        &Event::HubOutage { lasts: None },
        &Parameters::default(),
    );
    assert_eq!(
        lines(&rehearsal)[3],
        "ObjectReader tenant-a/apps prod TokenExpired: certain 3612.., possible 3599.."
    );
    assert_eq!(rehearsal.earliest_safe, None);
    assert!(!rehearsal.is_undetermined());
}

#[test]
fn the_parameters_move_the_callers_that_the_hub_confirmed() {
    let parameters = |max_age, stale| Parameters {
        max_age: seconds(max_age),
        max_stale_authorization: seconds(stale),
        ..Parameters::default()
    };
    for (parameters, expected) in [
        (parameters(60, 0), "certain 1-3000, possible 0-3030"),
        (parameters(60, 5), "certain 6-3000, possible 0-3030"),
        (parameters(60, 16), "certain 17-3000, possible 6-3030"),
        (parameters(30, 300), "certain 301-3000, possible 80-3030"),
        (parameters(600, 300), "certain 301-3000, possible 290-3030"),
        (parameters(3600, 3600), "certain never, possible 3030-3030"),
    ] {
        let rehearsal = rehearsed(&fleet(), &hub_outage(3000), &parameters);
        let confirmed: Vec<String> = lines(&rehearsal)
            .into_iter()
            .filter(|line| line.starts_with("ConfirmedCaller"))
            .collect();
        if parameters.max_stale_authorization == seconds(3600) {
            assert_eq!(
                confirmed,
                Vec::<String>::new(),
                "nothing is refused before the end"
            );
        } else {
            assert_eq!(
                confirmed,
                [format!("ConfirmedCaller * * HubUnreachable: {expected}")]
            );
        }
    }
}

#[test]
fn a_restarted_replica_needs_its_state_directory() {
    for (state_dir, expected) in [(Some(true), 1), (Some(false), 1), (None, 2)] {
        let parameters = Parameters {
            state_dir,
            ..Parameters::default()
        };
        let rehearsal = rehearsed(&fleet(), &hub_outage(60), &parameters);
        let restarts: Vec<&str> = rehearsal
            .branches
            .iter()
            .filter(|branch| branch.condition.contains("a replica"))
            .map(|branch| branch.consequence.as_str())
            .collect();
        assert_eq!(restarts.len(), expected, "{restarts:?}");
        assert_eq!(
            restarts[0].starts_with("it publishes the keys of its directory"),
            state_dir != Some(false)
        );
    }
}

/// The status does not say when the next token ends.
#[test]
fn a_token_that_is_renewed_before_the_outage_has_no_certain_end() {
    let fleet = fleet();
    for (begin, open, expected) in [
        (1799, 0, "certain 1813.., possible 1800.."),
        (1800, 1, "certain never, possible 1799.."),
    ] {
        let rehearsal = rehearse(
            &fleet,
            &Event::HubOutage { lasts: None },
            &Parameters::default(),
            at(begin),
        );
        assert_eq!(
            lines(&rehearsal)[3],
            format!("ObjectReader tenant-a/apps prod TokenExpired: {expected}")
        );
        assert_eq!(
            rehearsal.undetermined.len(),
            open,
            "{:?}",
            rehearsal.undetermined
        );
    }
}

#[test]
fn an_outage_of_keyferry_stops_callers_and_renewals_alone() {
    let rehearsal = rehearsed(
        &fleet(),
        &Event::KeyferryOutage {
            lasts: Some(seconds(5000)),
        },
        &Parameters::default(),
    );
    assert_eq!(
        lines(&rehearsal),
        [
            "AnyCaller * * NoConnection: certain 0-5000, possible 0-5030",
            "ObjectReader tenant-a/apps prod TokenExpired: certain 3612-5000, possible 3599-5150",
            "AnyCaller * * temporarily_unavailable: certain never, possible 5000-5030",
        ]
    );
    assert_eq!(safe_after(&rehearsal), Some(5150));
    assert!(
        rehearsal
            .branches
            .iter()
            .any(|branch| { branch.consequence.ends_with("mints by the hub go on: 1") })
    );
}

#[test]
fn what_holds_no_token_does_not_end() {
    let fleet = Fleet {
        accesses: vec![
            access(
                "tenant-a/tls",
                "prod",
                vec![token("ClientCertificateSecret", 100, 50, "")],
            ),
            access(
                "tenant-a/profile",
                "prod",
                vec![without_token("ClusterProfile")],
            ),
            access(
                "tenant-a/gone",
                "prod",
                vec![token("KubeConfigSecret", 0, -10, "old")],
            ),
        ],
        ..fleet()
    };
    let rehearsal = rehearse(
        &fleet,
        &Event::KeyferryOutage { lasts: None },
        &Parameters::default(),
        now(),
    );
    assert_eq!(
        lines(&rehearsal),
        ["AnyCaller * * NoConnection: certain 0.., possible 0.."]
    );
}
