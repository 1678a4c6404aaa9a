//! The shared record of keys, read every few seconds and written where it lacks something.

use std::time::Duration;

use keyferry_core::reason::Reason;

use crate::key_record_store::RecordError;
use crate::ports::HubError;
use crate::publication::Publisher;

const INTERVAL: Duration = Duration::from_secs(10);
/// Half a minute without the record stops all new tokens, so a hub that is back, or a token of our
/// own that was renewed, is noticed soon.
const WHILE_AWAY: Duration = Duration::from_secs(2);

/// Follows the record until the task is dropped.
pub async fn follow(publisher: Publisher) {
    let mut failing: Option<Reason> = None;
    loop {
        let mut pause = INTERVAL;
        match publisher.sync().await {
            Ok(()) if failing.is_some() => {
                tracing::info!("the record of keys is read and written again");
                failing = None;
            }
            Ok(()) => {}
            Err(error) => {
                if failing != Some(error.reason()) {
                    tracing::error!(reason = %error.reason(), %error, hint = hint(error.reason()), "no new token is minted before it succeeds");
                }
                failing = Some(error.reason());
                // Whatever else it says, a hub that answers is not asked more often for it.
                if matches!(
                    error,
                    RecordError::Hub(HubError::Unreachable(_) | HubError::Unauthenticated(_))
                ) {
                    pause = WHILE_AWAY;
                }
            }
        }
        tokio::time::sleep(pause).await;
    }
}

fn hint(reason: Reason) -> &'static str {
    match reason {
        Reason::KeyRecordForbidden => {
            "Keyferry's Role in its own namespace needs create on secrets, and get and update on \
             keyferry-keys and keyferry-seal"
        }
        _ => "",
    }
}
