//! Manages the finalizer of TargetClusters: a deleted target stays for a bounded time while
//! accesses have objects for it. No tenant can make it stay longer, and `deletionPolicy: Immediate`
//! releases it at once.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use keyferry_api::condition::{Finding, format_seconds};
use keyferry_api::config::{DeletionPolicy, Record};
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_api::reason::Reason;
use keyferry_api::summary;
use keyferry_hub::finalizer::{self, FinalizerState};
use keyferry_hub::ports::HubError;

use super::{TargetOutcome, TargetStatusWriter, write_status};

/// The pause after the hub refused the finalizer.
const FINALIZER_RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// How many accesses a condition names.
const MAX_NAMED_ACCESSES: usize = 10;

/// Adds finalizers, and removes them when a drain ends.
#[derive(Default)]
pub(super) struct TargetFinalizers {
    /// The accesses of each target that may have objects.
    users: BTreeMap<ObjectName, Vec<AccessName>>,
    /// Targets whose finalizer the hub refused, and when to try again.
    refused: HashMap<ObjectName, Duration>,
}

impl TargetFinalizers {
    /// Updates which accesses have objects now.
    pub(super) fn update_users(&mut self, writer: &TargetStatusWriter) {
        self.users = writer.context.store.accesses_by_target();
        let now = writer.context.clock.now().mono;
        self.refused.retain(|_, again| *again > now);
    }

    /// Adds the finalizer to a target that accesses use, and removes it from a deleted target that
    /// has drained.
    pub(super) async fn reconcile_finalizer(
        &mut self,
        writer: &TargetStatusWriter,
        name: &ObjectName,
        record: &Record,
    ) -> Result<(), HubError> {
        match record.deleting {
            Some(_) if record.finalizers.ours => self.drain_target(writer, name, record).await,
            None if !record.finalizers.ours
                && self.is_used(writer, name)
                && !self.refused.contains_key(name) =>
            {
                let outcome = set_finalizer(writer, name, record, FinalizerState::Present).await;
                if let Err(error) = &outcome {
                    let again = writer.context.clock.now().mono + FINALIZER_RETRY_INTERVAL;
                    self.refused.insert(name.clone(), again);
                    tracing::warn!(
                        target_cluster = %name, %error,
                        "the finalizer of a TargetCluster could not be set; if it is deleted, its \
                         delivered objects are deleted at once"
                    );
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn is_used(&self, writer: &TargetStatusWriter, name: &ObjectName) -> bool {
        let policy = writer.context.policy.current();
        let drains = policy
            .targets
            .get(name)
            .is_some_and(|target| target.deletion_policy == DeletionPolicy::Drain);
        drains && self.users.contains_key(name)
    }

    async fn drain_target(
        &self,
        writer: &TargetStatusWriter,
        name: &ObjectName,
        record: &Record,
    ) -> Result<(), HubError> {
        let now = writer.context.clock.now().wall;
        let users = self.users.get(name).map(Vec::as_slice).unwrap_or_default();
        let Some(draining) = writer
            .context
            .store
            .draining_target(name)
            .filter(|draining| !users.is_empty() && now < draining.ends())
        else {
            set_finalizer(writer, name, record, FinalizerState::Absent).await?;
            tracing::info!(target_cluster = %name, "the finalizer of a deleted \
                TargetCluster was removed");
            return Ok(());
        };
        let ready = Finding::failed(
            Reason::TargetDraining,
            drain_message(name, users, &format_seconds(draining.ends())),
        );
        let outcome = TargetOutcome {
            findings: vec![("Ready", &ready)],
            summary: summary::summarize_draining_target(users.len()),
            counts: None,
            asked_at: None,
        };
        write_status(writer, name, record, Some(&draining.target), outcome).await
    }
}

/// Adds or removes the finalizer, unless another replica leads now.
async fn set_finalizer(
    writer: &TargetStatusWriter,
    name: &ObjectName,
    record: &Record,
    wanted: FinalizerState,
) -> Result<(), HubError> {
    if !writer.context.is_leader() {
        return Err(HubError::Busy);
    }
    let path = format!("/apis/keyferry.dev/v1alpha1/targetclusters/{name}");
    finalizer::set_finalizer(&*writer.context.objects, &path, record, wanted)
        .await
        .map(drop)
}

/// Names the accesses that block the deletion, and the fix. Only users that may read TargetClusters
/// see this message.
fn drain_message(name: &ObjectName, users: &[AccessName], ends: &str) -> String {
    let named: Vec<String> = users
        .iter()
        .take(MAX_NAMED_ACCESSES)
        .map(AccessName::to_string)
        .collect();
    let more = users.len().saturating_sub(MAX_NAMED_ACCESSES);
    let more = if more == 0 {
        String::new()
    } else {
        format!(" and {more} more")
    };
    format!(
        "deleted; nothing is minted or refreshed for it. TargetAccesses with delivered objects: {}{more}. The objects stay until their tokens \
         expire, {ends} at the latest, so that Flux can prune; fix: delete the Kustomizations and HelmReleases that use them, then these \
         TargetAccesses; to end it now: kubectl patch targetcluster {name} --type=merge -p '{{\"spec\":{{\"deletionPolicy\":\"Immediate\"}}}}'",
        named.join(", ")
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_condition_names_blocking_accesses_and_stays_short() {
        let users: Vec<AccessName> = (0..200)
            .map(|number| AccessName::parse(&format!("tenant-{number}/apps")).unwrap())
            .collect();
        let text = drain_message(
            &ObjectName::new("prod").unwrap(),
            &users,
            "2026-11-23T12:00:00Z",
        );
        assert!(
            text.contains("tenant-0/apps, tenant-1/apps")
                && text.contains("tenant-9/apps and 190 more"),
            "{text}"
        );
        assert!(text.contains(r#"kubectl patch targetcluster prod --type=merge -p '{"spec":{"deletionPolicy":"Immediate"}}'"#), "{text}");
        assert!(text.len() < 4000);
    }
}
