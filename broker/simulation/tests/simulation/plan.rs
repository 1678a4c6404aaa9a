//! What happens in a schedule, drawn from its seed.

use crate::draw::Stream;
use crate::world::REPLICAS;

/// What a schedule does to the hub, the replicas and the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// No call of the replica reaches the hub.
    Split(usize),
    /// The hub answers nobody.
    HubDown,
    /// Calls of the replica take seconds.
    Slow(usize),
    /// The hub does what the replica asks, and its answers are lost.
    LoseAnswers(usize),
    /// The replica is killed, and a new process starts without memory.
    Restart(usize),
    /// The replica's wall clock jumps by these seconds.
    StepClock(usize, i64),
    /// The hub lists one more key.
    ListKey,
    /// The hub signs with the next key, listed or not.
    SignWithNext,
    /// The hub lists only the key that it signs with.
    UnlistOthers,
    /// `keyferry revoke` of a key that the hub no longer signs with, or of its only one.
    Revoke,
    /// An administrator asks for a rotation of the managed issuer.
    RotateManaged,
    /// A target stops allowing its tenant.
    Deny(usize),
    /// The target allows its tenant again.
    Allow(usize),
    /// A ServiceAccount is deleted and created again.
    Recreate(usize),
    /// A TargetCluster is deleted, and drains.
    Drain(usize),
    /// Another program holds the Lease.
    StealLease,
    /// Audit records of the replica cannot be written.
    BlockAudit(usize),
    /// Somebody writes the key journal without its seal.
    BreakSeal,
    /// The hub's tokens are not those that were asked for.
    Lie,
}

/// An event, when it happens, and for how long where it lasts, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    pub(crate) at: u64,
    pub(crate) lasts: u64,
    pub(crate) event: Event,
}

/// How long a schedule runs, in virtual milliseconds.
pub(crate) const SCHEDULE_LENGTH: u64 = 160_000;
/// Before this time nothing fails: the first replica has started.
const CALM_START: u64 = 5_000;

/// Draws the plan of a seed, in the order of time.
pub(crate) fn draw_plan(seed: u64) -> Vec<Planned> {
    let mut numbers = Stream::new(seed);
    let mut plan = Vec::new();
    if numbers.below(4) > 0 {
        plan_rotation(&mut numbers, &mut plan);
    }
    for _ in 0..4 + numbers.below(8) {
        let event = draw_event(&mut numbers);
        // A journal whose seal breaks before any replica has read a revocation loses it.
        let loses_revocation = |planned: &Planned| {
            matches!(
                (planned.event, event),
                (Event::Revoke, Event::BreakSeal) | (Event::BreakSeal, Event::Revoke)
            )
        };
        if plan.iter().any(loses_revocation) {
            continue;
        }
        let planned = Planned {
            at: CALM_START + numbers.below(SCHEDULE_LENGTH - 20_000),
            lasts: 1_000 + numbers.below(70_000),
            event,
        };
        plan.push(planned);
        if let Event::Deny(target) = event {
            // Else most schedules would soon have nothing that is allowed.
            plan.push(Planned {
                at: planned.at + numbers.below(40_000),
                event: Event::Allow(target),
                ..planned
            });
        }
    }
    plan.sort_by_key(|planned| planned.at);
    plan
}

/// A rotation of the hub's key, as administrators do it or wrongly.
fn plan_rotation(numbers: &mut Stream, plan: &mut Vec<Planned>) {
    let listed = CALM_START + numbers.below(40_000);
    let signs = listed + numbers.below(60_000);
    let unlisted = signs + numbers.below(40_000);
    let mut steps = vec![
        (listed, Event::ListKey),
        (signs, Event::SignWithNext),
        (unlisted, Event::UnlistOthers),
    ];
    if numbers.below(3) == 0 {
        // The hub signs before it lists the key.
        steps[0].0 = signs + numbers.below(20_000);
    }
    if numbers.below(2) == 0 {
        steps.push((unlisted + numbers.below(40_000), Event::Revoke));
    }
    plan.extend(steps.into_iter().map(|(at, event)| Planned {
        at,
        lasts: 0,
        event,
    }));
}

fn draw_event(numbers: &mut Stream) -> Event {
    let replica = usize::try_from(numbers.below(REPLICAS as u64)).unwrap_or_default();
    let target = usize::try_from(numbers.below(2)).unwrap_or_default();
    match numbers.below(20) {
        0 | 1 => Event::Split(replica),
        2 => Event::HubDown,
        3 | 4 => Event::Slow(replica),
        5 => Event::LoseAnswers(replica),
        6 | 7 => Event::Restart(replica),
        8 => {
            let far = numbers.below(5) == 0;
            let reach: u64 = if far { 200_000 } else { 40 };
            let step = i64::try_from(numbers.below(reach)).unwrap_or_default();
            Event::StepClock(replica, step - i64::try_from(reach / 2).unwrap_or_default())
        }
        9 => Event::ListKey,
        10 => Event::Revoke,
        11 => Event::RotateManaged,
        12..=14 => Event::Deny(target),
        15 => Event::Recreate(target),
        16 if numbers.below(2) == 0 => Event::Drain(target),
        16 | 17 => Event::StealLease,
        18 => Event::BlockAudit(replica),
        _ => [Event::BreakSeal, Event::Lie][target],
    }
}
