//! Synchronises the shared key journal every few seconds, and writes what it lacks.

use std::time::Duration;

use keyferry_api::reason::Reason;
use keyferry_hub::key_record_store::RecordError;
use keyferry_hub::ports::HubError;

use crate::publication::Publisher;

/// The pause between two readings. Each replica must know of a revocation within 10 s while the hub
/// answers within two.
const SYNC_INTERVAL: Duration = Duration::from_secs(8);
/// The pause while the hub is unreachable or rejects our token. Half a minute without the journal
/// stops all new tokens, so recovery must be noticed soon.
const WHILE_AWAY: Duration = Duration::from_secs(2);

/// Synchronises the key journal until the task is dropped.
pub async fn run_key_journal_sync(publisher: Publisher) {
    let mut failing: Option<Reason> = None;
    loop {
        let mut pause = SYNC_INTERVAL;
        match publisher.sync_journal().await {
            Ok(()) if failing.is_some() => {
                tracing::info!("the key journal is readable and writable again");
                failing = None;
            }
            Ok(()) => {}
            Err(error) => {
                if failing != Some(error.reason()) {
                    tracing::error!(reason = %error.reason(), %error, hint = fix_hint(error.reason()), "no new token is minted before it succeeds");
                }
                failing = Some(error.reason());
                // Other errors come from a hub that answers, and do not justify more requests.
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

fn fix_hint(reason: Reason) -> &'static str {
    match reason {
        Reason::KeyRecordForbidden => {
            "Keyferry's Role in its own namespace needs create on secrets, and get and update on \
             keyferry-keys and keyferry-seal"
        }
        _ => "",
    }
}
