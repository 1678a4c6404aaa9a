//! Which replica leads: only it withdraws keys that the hub no longer lists, and writes deliveries.

use std::sync::Arc;
use std::time::Duration;

use keyferry_core::reason::Reason;

use crate::clock::Clock;
use crate::kube::lease::{Lease, TERM};
use crate::leadership::LeadershipWriter;
use crate::publication::Publisher;

const INTERVAL: Duration = Duration::from_secs(10);
/// Leading ends this much before the Lease does: another replica may count faster.
const CAUTION: Duration = Duration::from_secs(10);

/// Takes and renews the Lease until the task is dropped.
pub async fn follow(mut lease: Lease, publisher: Publisher, leadership: LeadershipWriter, clock: Arc<dyn Clock>) {
    let (mut led_from, mut told) = (None::<Duration>, false);
    loop {
        let now = clock.now();
        match lease.take(now.wall, now.mono).await {
            Ok(true) => led_from = Some(now.mono),
            Ok(false) => led_from = None,
            Err(error) => {
                if !told {
                    tracing::warn!(reason = %Reason::KeyRecordUnread, %error, "taking the Lease failed; without it no key is ever withdrawn");
                }
            }
        }
        told = led_from.is_none();
        let until = led_from.map(|from| from + TERM.saturating_sub(CAUTION)).filter(|until| clock.now().mono < *until);
        leadership.set(until);
        publisher.lead(until.is_some());
        tokio::time::sleep(INTERVAL).await;
    }
}
