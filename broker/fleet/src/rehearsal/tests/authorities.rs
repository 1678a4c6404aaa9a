//! Changes of CAs.

use keyferry_api::foreign_text::ForeignText;
use keyferry_api::name::ObjectName;

use super::facts::{compared, fleet, target};
use super::{lines, rehearsed, safe_after};
use crate::facts::{Comparison, Fleet};
use crate::rehearsal::{Event, Parameters};

fn differs() -> Comparison {
    Comparison::Differs {
        differences: vec![ForeignText::new("certificateAuthority")],
    }
}

#[test]
fn a_new_ca_of_the_documents_fails_later_and_only_without_it() {
    let not_compared = || Comparison::NotCompared {
        why: "no file".to_owned(),
    };
    for (files, refused, open, safe) in [
        (
            [Comparison::Matches, Comparison::Matches],
            vec![],
            0,
            Some(0),
        ),
        (
            [Comparison::Matches, differs()],
            vec!["ObjectReader * stage DiscoveryUntrusted: certain never, possible 0.."],
            0,
            None,
        ),
        ([Comparison::Matches, not_compared()], vec![], 1, None),
        (
            [differs(), not_compared()],
            vec!["ObjectReader * prod DiscoveryUntrusted: certain never, possible 0.."],
            1,
            None,
        ),
    ] {
        let [prod, stage] = files;
        let fleet = Fleet {
            targets: vec![
                compared(target("prod"), prod),
                compared(target("stage"), stage),
            ],
            ..fleet()
        };
        let rehearsal = rehearsed(
            &fleet,
            &Event::DiscoveryAuthorityChange,
            &Parameters::default(),
        );
        assert_eq!(lines(&rehearsal), refused);
        assert_eq!(rehearsal.undetermined.len(), open);
        assert_eq!(safe_after(&rehearsal), safe);
        assert!(rehearsal.answer.starts_with("nothing fails at once"));
    }
}

/// Keyferry reads Secrets every 30 s, and watches TargetClusters.
#[test]
fn a_new_ca_of_a_target_reaches_its_objects_within_seconds() {
    for (source, written) in [
        ("Secret prod-ca", Some(35)),
        ("ClusterTrustBundle fleet", Some(35)),
        ("inline", Some(5)),
        ("system roots", None),
    ] {
        let mut fleet = fleet();
        fleet.targets[0].certificate_authority.source = ForeignText::new(source);
        let event = Event::TargetAuthorityChange {
            target: ObjectName::new("prod").unwrap(),
        };
        let rehearsal = rehearsed(&fleet, &event, &Parameters::default());
        let expected = written.map_or_else(Vec::new, |written| {
            vec![
                format!(
                    "ObjectReader tenant-a/apps prod TargetUntrusted: certain never, possible \
                     0-{written}"
                ),
                format!(
                    "ObjectReader tenant-a/flux prod TargetUntrusted: certain never, possible \
                     0-{written}"
                ),
                "KeptCopy * prod TargetUntrusted: certain never, possible 0-600".to_owned(),
            ]
        });
        assert_eq!(lines(&rehearsal), expected, "{source}");
        assert_eq!(safe_after(&rehearsal), Some(written.unwrap_or(0)));
    }
}

#[test]
fn a_target_that_is_not_there_is_undetermined() {
    let event = Event::TargetAuthorityChange {
        target: ObjectName::new("other").unwrap(),
    };
    let rehearsal = rehearsed(&fleet(), &event, &Parameters::default());
    assert!(rehearsal.is_undetermined());
    assert_eq!(rehearsal.earliest_safe, None);
}
