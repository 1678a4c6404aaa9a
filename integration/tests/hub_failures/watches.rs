//! The watches of ServiceAccounts and Namespaces break.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use keyferry_integration::chaos_proxy::{Fault, Rule};
use keyferry_integration::runner::TestResult;
use keyferry_integration::world::World;

use super::setup::Behind;

const MAX_STALE: Duration = Duration::from_secs(6);

/// The lists that restart a broken watch fail too. The cached objects grow old, and Keyferry must
/// not base decisions on them for ever.
pub(super) async fn stop_decisions_after_the_limit(world: Arc<World>) -> TestResult {
    let behind = Behind::start(
        &world,
        world.hub(),
        "watchless",
        MAX_STALE.as_secs(),
        &["one"],
    )
    .await?;
    let caller = behind.fresh_caller().await?;
    assert_eq!(behind.exchange(&caller, "one").await?.status, 200);
    let cut = Instant::now();
    behind.proxy.add(Rule::on(
        Method::GET,
        "/api/v1/serviceaccounts",
        Fault::Drop,
    ));
    behind.proxy.cut_all();

    let mut served = 0;
    let refused_after = loop {
        let sent = cut.elapsed();
        let answer = behind.exchange(&caller, "one").await?;
        if answer.status != 200 {
            assert_eq!(
                behind.broker.audit_of(&answer.request_id)?["reason"],
                "HubUnreachable"
            );
            break cut.elapsed();
        }
        served += 1;
        assert!(
            sent < MAX_STALE + Duration::from_secs(2),
            "still decided {sent:?} after the watches broke"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(
        refused_after >= MAX_STALE && served > 10,
        "refused after {refused_after:?} and {served} answers"
    );

    behind.proxy.clear();
    let fixed = Instant::now();
    behind
        .until_granted(&caller, "one", Duration::from_secs(15))
        .await?;
    eprintln!(
        "watches gone: refused after {refused_after:.1?}, healed {:.1?} after they could be had \
         again",
        fixed.elapsed()
    );
    Ok(())
}

/// A hub that still answers lists reports everything: nothing is refused, during the fault or after
/// it.
pub(super) async fn one_alone_stops_nothing(world: Arc<World>) -> TestResult {
    let behind = Behind::start(
        &world,
        world.hub(),
        "listing",
        MAX_STALE.as_secs(),
        &["one"],
    )
    .await?;
    let caller = behind.fresh_caller().await?;
    behind
        .proxy
        .add(Rule::on(Method::GET, "watch=true", Fault::Drop));
    behind.proxy.cut_all();
    let cut = Instant::now();
    while cut.elapsed() < MAX_STALE * 2 {
        if cut.elapsed() > MAX_STALE {
            // Nothing changes on the hub for a while after the watches have recovered, so no event
            // shows that they have.
            behind.proxy.clear();
        }
        let answer = behind.exchange(&caller, "one").await?;
        assert_eq!(
            answer.status,
            200,
            "{:?} after the cut: {}",
            cut.elapsed(),
            answer.body
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}
