//! Reports key events to the log and as alarms.

use keyferry_api::reason::Reason;
use keyferry_keys::tracked_keys::KeyEvent;

/// Returns the alarm for an unexpected event, one that no rotation causes.
pub(super) fn alarm_reason(event: &KeyEvent) -> Option<Reason> {
    match event {
        KeyEvent::Published(_)
        | KeyEvent::Withdrawn(_)
        | KeyEvent::Retired(_)
        | KeyEvent::Revoked(_) => None,
        KeyEvent::RevokedListed(_) => Some(Reason::KeyRevoked),
        KeyEvent::Replaced(_) => Some(Reason::HubKeyReplaced),
        KeyEvent::RecordTampered(_) | KeyEvent::RecordRolledBack => Some(Reason::KeyRecordTampered),
    }
}

/// Logs an event. The hub chooses a `kid`, so it is logged with `?`, which escapes unprintable
/// characters.
pub(super) fn to_log(event: &KeyEvent) {
    match event {
        KeyEvent::Published(kid) => tracing::info!(?kid, "a key is now published"),
        KeyEvent::Withdrawn(kid) => tracing::info!(
            ?kid,
            "the hub no longer lists a key; it stays published while a token that it \
             signed may be valid"
        ),
        KeyEvent::Retired(kid) => tracing::info!(?kid, "a key is no longer published"),
        KeyEvent::Revoked(kid) => {
            tracing::warn!(?kid, reason = %Reason::KeyRevoked, "a key was revoked")
        }
        KeyEvent::RevokedListed(kid) => {
            tracing::error!(?kid, reason = %Reason::KeyRevoked, "the hub still lists a revoked \
                key; it is not published");
        }
        KeyEvent::Replaced(kid) => {
            tracing::error!(?kid, reason = %Reason::HubKeyReplaced, "the hub lists another key \
                under a known kid; it is not published");
        }
        KeyEvent::RecordTampered(what) => {
            tracing::error!(what, reason = %Reason::KeyRecordTampered, "the key journal failed its \
                seal check; it is rewritten");
        }
        KeyEvent::RecordRolledBack => {
            tracing::error!(reason = %Reason::KeyRecordTampered, "the key journal is an older \
                one; it is rewritten");
        }
    }
}
