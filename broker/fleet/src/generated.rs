//! A made-up fleet, the same for the same seed: for the demo, benchmarks and tests. Its statuses are
//! made by the code that the controller writes them with.

mod certificate;
mod objects;

use jiff::{SignedDuration, Timestamp};
use keyferry_api::config::ReducedObject;
use keyferry_api::reason::Reason;
use keyferry_core::audit::AuditRecord;
use serde_json::{Value, json};

pub use self::certificate::authority_pem;
pub use self::objects::{AccessPlan, TargetPlan, TargetState};
use crate::audit_lines::AuditLines;
use crate::facts::Source;
use crate::keys_document::KeysDocument;
use crate::snapshot::Snapshot;

/// Accesses of one namespace, on average.
const ACCESSES_PER_NAMESPACE: usize = 20;
/// The most namespaces.
const MAX_NAMESPACES: usize = 500;
/// Refusals in the made-up audit log.
const REFUSALS: u64 = 240;

/// Makes a snapshot of a fleet with these numbers of targets and accesses. About one target in
/// twenty has something wrong with it.
pub fn snapshot(targets: usize, accesses: usize, seed: u64, now: Timestamp) -> Snapshot {
    let mut snapshot = Snapshot::new(Source::Generated { seed }, now);
    for object in objects(targets, accesses, seed, now) {
        snapshot.add_object(&ReducedObject::of(&object));
    }
    snapshot.keys = KeysDocument::read(keys_json(now).as_bytes()).ok();
    snapshot.audit = Some(AuditLines::read("generated", &audit_log(seed, now)));
    snapshot
}

/// Makes the objects of [`snapshot`] one by one, as the hub returns them: first the TargetClusters.
pub fn objects(
    targets: usize,
    accesses: usize,
    seed: u64,
    now: Timestamp,
) -> impl Iterator<Item = Value> {
    let plans = target_plans(targets, accesses, seed, now);
    let users = access_plans(accesses, seed, &plans);
    let mut counts = vec![0_u32; plans.len()];
    for user in &users {
        if let Some(count) = counts.get_mut(user.target) {
            *count += 1;
        }
    }
    let of_targets: Vec<Value> = plans
        .iter()
        .zip(&counts)
        .map(|(plan, count)| plan.object(*count))
        .collect();
    let of_accesses = users.into_iter().filter_map(move |user| {
        let plan = plans.get(user.target)?;
        Some(user.object(plan))
    });
    of_targets.into_iter().chain(of_accesses)
}

fn target_plans(targets: usize, accesses: usize, seed: u64, now: Timestamp) -> Vec<TargetPlan> {
    let mut random = Random(seed);
    let namespaces = namespace_count(accesses);
    (0..targets)
        .map(|index| {
            let state = match random.below(60) {
                0 => TargetState::Unreachable,
                1 => TargetState::Refusing,
                2 => TargetState::AuthorityEnds,
                3 => TargetState::Unrestricted,
                4 if index % 3 == 0 => TargetState::Suspended,
                5 if index % 3 == 0 => TargetState::Unwritten,
                _ => TargetState::Ready,
            };
            let days = 60 + i64::try_from(random.below(700)).unwrap_or_default();
            let lasts = match state {
                TargetState::AuthorityEnds => SignedDuration::from_hours(9 * 24),
                _ => SignedDuration::from_hours(days * 24),
            };
            TargetPlan {
                name: format!("prod-{:03}", index + 1),
                state,
                authority_ends: now + lasts,
                asked_at: now - seconds(random.below(900)),
                now,
                namespaces,
            }
        })
        .collect()
}

fn access_plans(accesses: usize, seed: u64, targets: &[TargetPlan]) -> Vec<AccessPlan> {
    let mut random = Random(seed ^ 0x5eed);
    let namespaces = u64::try_from(namespace_count(accesses)).unwrap_or(1);
    let target_count = u64::try_from(targets.len()).unwrap_or_default().max(1);
    (0..accesses)
        .map(|index| {
            let target = usize::try_from(random.below(target_count)).unwrap_or_default();
            AccessPlan {
                namespace: format!("tenant-{:03}", random.below(namespaces) + 1),
                name: format!("apps-{:05}", index + 1),
                target,
                writes_secret: random.below(3) == 0,
                only_callers: random.below(12) == 0,
                written_ago: seconds(random.below(6 * 3600)),
                signed_by_old_key: random.below(8) == 0,
            }
        })
        .collect()
}

fn namespace_count(accesses: usize) -> usize {
    accesses
        .div_ceil(ACCESSES_PER_NAMESPACE)
        .clamp(1, MAX_NAMESPACES)
}

/// What `keyferry keys -o json` would print for the fleet's three keys.
pub fn keys_json(now: Timestamp) -> String {
    let hours = |hours| now - SignedDuration::from_hours(hours);
    let document = json!({
        "issuer": objects::ISSUER,
        "keys": [
            { "kid": "hub-key-1", "algorithm": "RS256", "signs": "before", "publishedAt": hours(1_000),
              "activeAt": hours(999), "signsSince": hours(990), "withdrawnAt": hours(200),
              "tokensUntil": hours(201) },
            { "kid": objects::OLD_KEY, "algorithm": "RS256", "signs": "before", "publishedAt": hours(300),
              "activeAt": hours(299), "signsSince": hours(290), "tokensUntil": hours(-11),
              "removeAfter": hours(-11) },
            { "kid": objects::KEY, "algorithm": "ES256", "signs": "lastSeen", "publishedAt": hours(4),
              "activeAt": hours(3), "signsSince": hours(2), "tokensUntil": hours(-12) },
        ],
        "revoked": [{ "kid": "hub-key-0", "at": hours(1_100) }],
    });
    document.to_string()
}

/// Lines of an audit log, with refusals in the last hour.
pub fn audit_log(seed: u64, now: Timestamp) -> Vec<u8> {
    const REASONS: [Reason; 4] = [
        Reason::TargetNotGranted,
        Reason::TargetNotGranted,
        Reason::CallerExpired,
        Reason::RateLimited,
    ];
    let mut random = Random(seed ^ 0xa0d1);
    let mut log = Vec::new();
    for step in 0..REFUSALS {
        let mut record = AuditRecord {
            time: now - seconds((REFUSALS - step) * 15),
            request_id: step.into(),
            route: "exchange",
            ..AuditRecord::default()
        };
        let chosen = usize::try_from(random.below(4)).unwrap_or_default();
        let reason = REASONS
            .get(chosen)
            .copied()
            .unwrap_or(Reason::TargetNotGranted);
        record.set_decision("denied", reason);
        let access = format!(
            "tenant-{:03}/apps-{:05}",
            random.below(3) + 1,
            random.below(90) + 1
        );
        record.access = keyferry_api::name::AccessName::parse(&access).ok();
        log.extend(record.to_json_line().unwrap_or_default());
    }
    log
}

fn seconds(count: u64) -> SignedDuration {
    SignedDuration::from_secs(i64::try_from(count).unwrap_or_default())
}

/// SplitMix64: small, and the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit.max(1)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::facts::Health;
    use crate::judge::judge;

    #[test]
    fn the_same_seed_makes_the_same_fleet() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let facts = |seed| {
            let fleet = judge(&snapshot(60, 600, seed, now), now);
            serde_json::to_string(&fleet).unwrap()
        };
        assert_eq!(facts(7), facts(7));
        assert_ne!(facts(7), facts(8));
    }

    #[test]
    fn most_of_a_made_up_fleet_works_and_some_does_not() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let fleet = judge(&snapshot(300, 3_000, 1, now), now);
        let count = |health| {
            fleet
                .targets
                .iter()
                .filter(|it| it.health == health)
                .count()
        };
        assert_eq!((fleet.targets.len(), fleet.accesses.len()), (300, 3_000));
        assert!(count(Health::Ready) > 200, "{}", count(Health::Ready));
        for health in [Health::Broken, Health::Attention, Health::Unknown] {
            assert!(count(health) > 0, "{health:?}");
        }
        assert!(fleet.gaps.is_empty() && fleet.runway.is_some());
        assert_eq!(fleet.keys.keys.len(), 4);
        assert!(!fleet.denials.groups.is_empty());
        let cas = fleet
            .targets
            .iter()
            .filter(|it| it.certificate_authority.ends.is_some());
        assert!(cas.count() > 290, "the certificates can be read");
    }
}
