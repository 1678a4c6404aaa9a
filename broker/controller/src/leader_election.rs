//! Elects the leader. Only the leader withdraws keys that the hub no longer lists, and writes
//! deliveries.

use std::sync::Arc;
use std::time::Duration;

use keyferry_api::moment::Moment;
use keyferry_api::reason::Reason;
use keyferry_hub::leadership::LeadershipWriter;
use keyferry_hub::lease::{LEASE_TERM, Leader, LeaderLease};
use keyferry_hub::ports::HubError;
use keyferry_issuer::publication::Publisher;
use keyferry_platform::clock::Clock;
use keyferry_platform::metrics::Metrics;

const RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// How long before the Lease's end leadership ends: another replica's clock may run faster.
const EXPIRY_MARGIN: Duration = Duration::from_secs(10);

/// Takes and renews the Lease until the task is dropped.
pub async fn run_leader_election(
    mut lease: LeaderLease,
    publisher: Publisher,
    leadership: LeadershipWriter,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
) {
    let mut term = Term::new(leadership, metrics, clock.now());
    loop {
        let asked = clock.now();
        let outcome = lease.take_or_renew(asked.wall, asked.mono).await;
        let leads = term.record_outcome(outcome, asked, clock.now());
        publisher.set_leadership(leads);
        tokio::time::sleep(RENEW_INTERVAL).await;
    }
}

/// The state of the election.
struct Term {
    leadership: LeadershipWriter,
    metrics: Metrics,
    led_from: Option<Duration>,
    /// When any replica was last seen to lead.
    seen_at: Duration,
    warned: bool,
    missing: bool,
}

impl Term {
    fn new(leadership: LeadershipWriter, metrics: Metrics, now: Moment) -> Self {
        leadership.set_seen(now.mono);
        Self {
            leadership,
            metrics,
            led_from: None,
            seen_at: now.mono,
            warned: false,
            missing: false,
        }
    }

    /// Processes the outcome of a call that began at `asked`; returns whether this replica leads.
    fn record_outcome(
        &mut self,
        outcome: Result<Leader, HubError>,
        asked: Moment,
        now: Moment,
    ) -> bool {
        match outcome {
            Ok(Leader::This) => (self.led_from, self.seen_at) = (Some(asked.mono), asked.mono),
            Ok(Leader::Another) => (self.led_from, self.seen_at) = (None, asked.mono),
            Ok(Leader::Unseen) => self.led_from = None,
            Err(error) => {
                if !self.warned {
                    tracing::warn!(reason = %Reason::KeyRecordUnread, %error, "taking the Lease \
                        failed; without it no key is ever withdrawn");
                }
            }
        }
        self.warned = self.led_from.is_none();
        let until = self
            .led_from
            .map(|from| from + LEASE_TERM.saturating_sub(EXPIRY_MARGIN))
            .filter(|until| now.mono < *until);
        self.leadership.set(until);
        self.leadership.set_seen(self.seen_at);
        let missing = until.is_none() && self.leadership.reader().is_missing(now);
        if missing && !self.missing {
            let reason = Reason::LeaderMissing;
            tracing::warn!(%reason, "no replica has led for a minute: no delivery, no withdrawal, \
                no AudiencePairing is written; is the Lease keyferry held by another program?");
        }
        self.missing = missing;
        self.metrics.report_leadership(until.is_some(), missing);
        until.is_some()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use keyferry_issuer::testing::FakeClock;

    use super::*;

    #[test]
    fn a_minute_without_a_leader_is_reported_and_ends_with_the_next_one() {
        let (clock, metrics, leadership) = (
            FakeClock::start(),
            Metrics::default(),
            LeadershipWriter::default(),
        );
        let reader = leadership.reader();
        let mut term = Term::new(leadership, metrics.clone(), clock.now());
        let mut after = |seconds, outcome| {
            clock.advance(Duration::from_secs(seconds));
            let leads = term.record_outcome(outcome, clock.now(), clock.now());
            (leads, reader.is_missing(clock.now()))
        };
        assert_eq!(after(10, Ok(Leader::Another)), (false, false));
        // Another program writes a different holder each time, or the hub refuses the Lease.
        assert_eq!(after(30, Ok(Leader::Unseen)), (false, false));
        assert_eq!(
            after(29, Err(HubError::Forbidden("no right".into()))),
            (false, false)
        );
        assert_eq!(after(2, Ok(Leader::Unseen)), (false, true));
        assert!(
            metrics.exposition().contains("keyferry_leader_missing 1"),
            "{}",
            metrics.exposition()
        );
        assert_eq!(after(10, Ok(Leader::This)), (true, false));
        assert!(
            metrics.exposition().contains("keyferry_leader_missing 0")
                && metrics.exposition().contains("keyferry_leads 1")
        );
        assert_eq!(after(10, Ok(Leader::Another)), (false, false));
        assert!(metrics.exposition().contains("keyferry_leads 0"));
    }
}
