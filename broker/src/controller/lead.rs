//! Which replica leads: only it withdraws keys that the hub no longer lists.

use std::sync::Arc;
use std::time::Duration;

use keyferry_core::reason::Reason;

use crate::clock::Clock;
use crate::kube::lease::{Lease, TERM};
use crate::publication::Publisher;

const INTERVAL: Duration = Duration::from_secs(10);
/// Leading ends this much before the Lease does: another replica may count faster.
const CAUTION: Duration = Duration::from_secs(10);

/// Takes and renews the Lease until the task is dropped.
pub async fn follow(mut lease: Lease, publisher: Publisher, clock: Arc<dyn Clock>) {
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
        let leads = led_from.is_some_and(|from| clock.now().mono.saturating_sub(from) < TERM.saturating_sub(CAUTION));
        publisher.lead(leads);
        tokio::time::sleep(INTERVAL).await;
    }
}
