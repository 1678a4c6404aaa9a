//! The hub answers all but the key journal, which says which keys are revoked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use keyferry_integration::chaos_proxy::{Fault, Rule};
use keyferry_integration::runner::TestResult;
use keyferry_integration::world::World;

use super::setup::{Behind, GRANTED_WITHIN};

const JOURNAL: &str = "/secrets/keyferry-keys";
/// A shorter `maxStaleAuthorization` counts as this much for the journal: new tokens are minted for
/// as long after the last reading.
const LIMIT: Duration = Duration::from_secs(30);
/// How often Keyferry reads the journal, with room for a busy machine.
const READ_EVERY: Duration = Duration::from_secs(12);

/// The key of a cached token may have been revoked since the last reading.
pub(super) async fn stops_cached_tokens_after_the_limit(world: Arc<World>) -> TestResult {
    let behind = Behind::start(&world, world.hub(), "unread", 6, &["one", "two"]).await?;
    let caller = behind.fresh_caller().await?;
    assert_eq!(behind.exchange(&caller, "one").await?.status, 200);
    behind
        .proxy
        .add(Rule::on(Method::GET, JOURNAL, Fault::Drop));
    behind.proxy.cut_all();
    let cut = Instant::now();

    let mut served = 0;
    let refused_after = loop {
        let sent = cut.elapsed();
        let answer = behind.exchange(&caller, "one").await?;
        let record = behind.broker.audit_of(&answer.request_id)?;
        if answer.status != 200 {
            assert_eq!(
                (answer.status, &record["reason"]),
                (503, &"KeyRecordUnread".into())
            );
            break sent;
        }
        assert_eq!(record["cache"], "hit");
        served += 1;
        assert!(sent < LIMIT, "issued {sent:?} after the last reading");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(
        refused_after > LIMIT.saturating_sub(READ_EVERY) && served > 10,
        "refused after {refused_after:?} and {served} answers"
    );
    let new = behind.exchange(&caller, "two").await?;
    let record = behind.broker.audit_of(&new.request_id)?;
    assert_eq!(
        (new.status, &record["reason"]),
        (503, &"KeyRecordUnread".into())
    );

    behind.proxy.clear();
    let answer = behind.until_granted(&caller, "one", GRANTED_WITHIN).await?;
    let record = behind.broker.audit_of(&answer.request_id)?;
    assert_eq!(record["cache"], "hit", "no key was revoked meanwhile");
    eprintln!("the journal unread: refused after {refused_after:.1?}");
    Ok(())
}
