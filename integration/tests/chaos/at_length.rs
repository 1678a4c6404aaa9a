//! The leader is killed at each request of a delivery, before the hub receives it and before its
//! answer arrives.

use std::sync::Arc;

use keyferry_integration::chaos_proxy::Rule;
use keyferry_integration::runner::TestResult;

use super::killed::{Access, nothing_is_left};
use super::stage::{MOMENTS, Stage};
use crate::deliveries::tenant::Tenant;

/// A flow with fewer requests was not seen.
const FEWEST_REQUESTS: u32 = 12;

/// Ends at the first number that the flow does not reach.
pub(super) async fn killed_at_each_request_of_a_delivery_the_next_leader_finishes(
    stage: Arc<Stage>,
) -> TestResult {
    let tenant = Tenant::new(&stage.world, "killed-each", &["HTTP", "KubeConfigSecret"]).await?;
    let path = format!("/namespaces/{}/", tenant.name);
    let mut accesses = 0..;
    for moment in MOMENTS {
        for number in 0.. {
            let armed = stage.kill_at(moment, |fault| Rule::on_any(&path, fault).after(number))?;
            let index = accesses.next().unwrap_or_default();
            let access = Access::new(&tenant, format!("a{index}"), index);
            let request = stage
                .survive(armed, access.live(), access.check_halfway())
                .await?;
            let Some(request) = request else {
                assert!(number >= FEWEST_REQUESTS, "only {number} requests");
                break;
            };
            eprintln!("{moment:?} {number}: {request}");
        }
    }
    nothing_is_left(&tenant).await
}
