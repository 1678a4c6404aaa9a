//! The admission policies that Keyferry rests on, looked at again and again. Without `keyferry-author` no token is written to an object;
//! without `keyferry-pairing` others may mint for a target's audience, and without `keyferry-labels` tenants may have themselves selected,
//! which the targets' statuses tell.

use std::sync::Arc;
use std::time::Duration;

use keyferry_core::delivery::ReadObject;
use keyferry_core::fence::Fence;
use keyferry_core::reason::Reason;
use serde_json::Value;

use crate::clock::Clock;
use crate::controller::pairing_trial::PairingTrial;
use crate::fence::{FenceWriter, Standing};
use crate::leadership::LeadershipReader;
use crate::metrics::Metrics;
use crate::ports::{HubError, HubObjects};

const INTERVAL: Duration = Duration::from_secs(20);
const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// What it goes by.
pub struct Fences {
    /// Of `keyferry-author`.
    pub author: FenceWriter,
    /// Of `keyferry-pairing`.
    pub pairing: FenceWriter,
    /// Of `keyferry-labels`.
    pub labels: FenceWriter,
    /// Tries what `keyferry-pairing` does.
    pub trial: PairingTrial,
    /// Reads the policies.
    pub objects: Arc<dyn HubObjects>,
    /// Whether this replica leads: only the leader tries.
    pub leadership: LeadershipReader,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Metrics.
    pub metrics: Metrics,
}

/// Looks until the task is dropped.
pub async fn follow(mut fences: Fences) {
    loop {
        fences.look().await;
        tokio::time::sleep(INTERVAL).await;
    }
}

impl Fences {
    async fn look(&mut self) {
        if let Some(found) = compared(&*self.objects, self.author.fence()).await {
            self.take(&self.author, found, Reason::AuthorUnchecked, "no token is written to an object");
        }
        if let Some(found) = compared(&*self.objects, self.labels.fence()).await {
            self.take(&self.labels, found, Reason::LabelsUnfenced, "whoever may edit a namespace may have a namespaceSelector hold it");
        }
        let mut found = compared(&*self.objects, self.pairing.fence()).await;
        let now = self.clock.now();
        if found == Some(Standing::InForce) && self.leadership.leads(now) {
            found = self.trial.standing(&*self.objects, now.mono).await;
        } else {
            self.trial.forget();
        }
        if let Some(found) = found {
            self.take(&self.pairing, found, Reason::PairingUnfenced, "whoever may create tokens may mint for the targets' audiences");
        }
    }

    fn take(&self, fence: &FenceWriter, found: Standing, reason: Reason, meaning: &'static str) {
        let name = fence.fence().name();
        self.metrics.fence(name, found == Standing::InForce);
        if fence.set(found.clone()) {
            match found {
                Standing::InForce => tracing::info!(fence = name, "the admission policy of the hub is in force"),
                Standing::Gap(gap) => tracing::warn!(fence = name, %reason, gap, "{meaning}"),
                Standing::Unknown => {}
            }
        }
    }
}

/// What the policy and its binding say. A hub that does not answer takes nothing away: it would not admit anything either.
async fn compared(objects: &dyn HubObjects, fence: &Fence) -> Option<Standing> {
    match read(objects, fence).await {
        Ok((policy, binding)) => Some(match fence.check(&policy, &binding) {
            Ok(()) => Standing::InForce,
            Err(gap) => Standing::Gap(gap.to_string()),
        }),
        Err(error) if error.proves_unreachable() || error == HubError::Busy => None,
        Err(error) => Some(Standing::Gap(format!("the admission policy {} could not be read: {error}", fence.name()))),
    }
}

async fn read(objects: &dyn HubObjects, fence: &Fence) -> Result<(Value, Value), HubError> {
    let value = |read: Option<ReadObject>| read.map(|read| read.value().clone()).unwrap_or(Value::Null);
    let policy = objects.get(&format!("{GROUP}/validatingadmissionpolicies/{}", fence.name())).await?;
    let binding = objects.get(&format!("{GROUP}/validatingadmissionpolicybindings/{}", fence.name())).await?;
    Ok((value(policy), value(binding)))
}

#[cfg(all(test, feature = "embedded"))]
mod tests;
