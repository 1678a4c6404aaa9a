//! What holds for every fleet.

use keyferry_api::foreign_text::ForeignText;
use proptest::prelude::*;

use super::facts::{access, at, fleet, seconds, token, without_token};
use super::gaps::events;
use super::{Parameters, rehearsed};
use crate::facts::Fleet;
use crate::rehearsal::{CallerClass, Event, RotationOrder, rehearse};

/// Fleets with up to eight accesses whose tokens end within a day.
fn fleets() -> impl Strategy<Value = Fleet> {
    let delivery = (1..86_400_i64, 0..86_400_i64, any::<bool>(), any::<bool>());
    prop::collection::vec(delivery, 0..8).prop_map(|deliveries| {
        let accesses = deliveries.into_iter().enumerate();
        Fleet {
            accesses: accesses
                .map(|(number, (expires, renews, is_old, is_flux))| {
                    let kid = if is_old { "old" } else { "new" };
                    let delivery = if is_flux {
                        without_token("FluxConfigMap")
                    } else {
                        token("KubeConfigSecret", expires, renews.min(expires), kid)
                    };
                    access(&format!("tenant-a/a{number}"), "prod", vec![delivery])
                })
                .collect(),
            ..fleet()
        }
    })
}

fn parameters() -> impl Strategy<Value = Parameters> {
    (30..=3600_u64, 0..=3600_u64, 1..4_u16).prop_map(|(max_age, stale, replicas)| Parameters {
        max_age: seconds(max_age),
        max_stale_authorization: seconds(stale),
        replicas,
        ..Parameters::default()
    })
}

/// For how long tokens of clients that mint by themselves may be refused.
fn longest_refusal(fleet: &Fleet, parameters: &Parameters) -> Option<i64> {
    let event = Event::KeyRotation {
        order: RotationOrder::SignAtOnce,
    };
    rehearsed(fleet, &event, parameters)
        .refusals
        .iter()
        .filter(|refusal| refusal.caller == CallerClass::OwnMinter)
        .filter_map(|refusal| {
            Some(refusal.possible.until()?.as_second() - refusal.possible.from().as_second())
        })
        .max()
}

proptest! {
    #[test]
    fn what_is_certain_is_possible(
        fleet in fleets(),
        parameters in parameters(),
        begin in 0..90_000_i64,
    ) {
        for event in events() {
            for refusal in rehearse(&fleet, &event, &parameters, at(begin)).refusals {
                if let Some(certain) = refusal.certain {
                    prop_assert!(refusal.possible.encloses(certain), "{refusal:?}");
                }
                prop_assert!(refusal.possible.until().is_none_or(|until| until > refusal.possible.from()));
            }
        }
    }

    #[test]
    fn a_key_is_safe_only_after_the_end_of_every_token(
        fleet in fleets(),
        parameters in parameters(),
        begin in 0..90_000_i64,
    ) {
        let event = Event::RemoveKey { kid: ForeignText::new("old") };
        let rehearsal = rehearse(&fleet, &event, &parameters, at(begin));
        let Some(safe) = rehearsal.earliest_safe else {
            return Err(TestCaseError::fail("every fact is there, and no moment is safe"));
        };
        let ends = fleet.accesses.iter().flat_map(|access| &access.deliveries);
        for delivery in ends.filter(|delivery| delivery.key_id == Some(ForeignText::new("old"))) {
            if let Some(end) = delivery.expires_at.filter(|end| *end > at(begin)) {
                prop_assert!(safe.at > end);
            }
        }
    }

    /// An older copy of the keys is never known sooner, and the windows stay as narrow as promised.
    #[test]
    fn a_longer_max_age_never_costs_less(
        fleet in fleets(),
        parameters in parameters(),
        longer in 0..1000_u64,
    ) {
        let more = Parameters { max_age: parameters.max_age + seconds(longer), ..parameters.clone() };
        let (shorter, longer) = (longest_refusal(&fleet, &parameters), longest_refusal(&fleet, &more));
        prop_assert!(shorter <= longer);
        let limit = i64::try_from(parameters.max_age.as_secs()).unwrap_or(i64::MAX) + 25;
        prop_assert!(shorter.is_none_or(|shorter| shorter <= limit));
        let published = Event::KeyRotation { order: RotationOrder::PublishFirst };
        let safe = |parameters| rehearsed(&fleet, &published, parameters).earliest_safe.map(|safe| safe.at);
        prop_assert!(safe(&parameters) <= safe(&more));
    }

    /// A list that is missing never makes an answer of it.
    #[test]
    fn without_the_accesses_an_outage_is_undetermined(parameters in parameters()) {
        let mut fleet = fleet();
        fleet.accesses.clear();
        fleet.gaps.push(super::facts::refused_list("targetaccesses.keyferry.dev"));
        for event in [Event::HubOutage { lasts: None }, Event::KeyferryOutage { lasts: None }] {
            prop_assert!(rehearsed(&fleet, &event, &parameters).is_undetermined());
        }
    }
}
