//! Reports the state of an access in its status, its Events and the metrics.

use jiff::Timestamp;
use keyferry_api::condition::{Finding, condition_state, conditions, format_seconds};
use keyferry_api::config::{ObjectSize, Policy, StoredAccess};
use keyferry_api::name::AccessName;
use keyferry_api::reason::Reason;
use keyferry_api::status::{ClusterStatus, DeliveryStatus};
use keyferry_api::summary;
use keyferry_core::access_status::{self, AccessReport};
use keyferry_core::authorise::Pair;
use keyferry_core::delivery::ObjectPlace;
use keyferry_hub::event::{self, Subject};
use keyferry_hub::ports::HubError;
use keyferry_hub::targets::Readiness;
use serde_json::{Value, json};

use super::{Deliveries, Next};

/// Returns the access's path in the hub's API.
pub(super) fn access_path(name: &AccessName) -> String {
    format!(
        "/apis/keyferry.dev/v1alpha1/namespaces/{}/targetaccesses/{}",
        name.namespace, name.name
    )
}

/// Reads `exposureUntil` from a status.
pub(super) fn exposure_until(status: &Value) -> Option<Timestamp> {
    status.get("exposureUntil")?.as_str()?.parse().ok()
}

impl Deliveries {
    /// Describes a ready target for the status, as its users need it.
    pub(super) fn cluster_status(&self, policy: &Policy, pair: &Pair) -> Option<ClusterStatus> {
        let target = policy.targets.get(pair.target())?;
        match self.context.targets.readiness(target) {
            Readiness::Ready(ca_pem) => {
                Some(access_status::cluster_status(target, ca_pem.as_deref()))
            }
            Readiness::NotReady { .. } => None,
        }
    }

    /// Writes the status if it changed, and an Event if readiness or its reason changed.
    pub(super) async fn write_status(
        &self,
        name: &AccessName,
        stored: &StoredAccess,
        report: &AccessReport,
        cluster: Option<ClusterStatus>,
    ) -> Result<(), HubError> {
        let ready = report.ready();
        let expires = report
            .deliveries
            .iter()
            .filter_map(|one| one.token.as_ref())
            .map(|token| token.expires_at.as_second())
            .min();
        self.context
            .metrics
            .report_access(name, ready.is_true(), expires);
        self.context
            .metrics
            .report_probe(name, report.probe_success());
        let status = report.status(
            &stored.record.status,
            stored.record.generation,
            self.context.clock.now().wall,
            cluster,
        );
        self.patch_status(name, stored, &json!(status), &ready)
            .await
    }

    /// Reports an access that is excluded from the policy, as invalid, too large, or one of too
    /// many. Its delivered objects stay until their tokens expire, because a typing error must not
    /// cut off consumers. They stay only while policy would grant them to the last valid spec.
    pub(super) async fn report_fault(
        &self,
        name: &AccessName,
        stored: &StoredAccess,
    ) -> Result<Next, HubError> {
        let faults = self.context.faults.last_assembly();
        let fault = faults
            .accesses
            .get(name)
            .filter(|fault| fault.generation == stored.record.spec());
        let Some(fault) = fault else {
            return Ok(Next::Retry);
        };
        let (ready, stalled) = (
            Finding::failed(fault.reason, fault.message.clone()),
            Finding::problem(fault.reason, fault.message.clone()),
        );
        let withdrawn = self.withdraw_revoked(name, stored).await?;
        let mut status = self.with_conditions(
            stored,
            &[("Ready", &ready), ("Stalled", &stalled)],
            summary::summarize_access(&ready, None, None),
        );
        remove_withdrawn_entries(&mut status, name, &withdrawn);
        self.context.metrics.report_access(name, false, None);
        self.patch_status(name, stored, &status, &ready).await?;
        if let Some(meant) = stored.meant() {
            // Until policy includes the target, nothing is removed.
            if !self.context.store.is_in_policy(
                &meant.target,
                &self.context.policy.current(),
                &faults,
            ) {
                return Ok(Next::Retry);
            }
            self.withdraw_ungranted(meant).await?;
        }
        Ok(Next::OnChange)
    }

    /// Reports in the status how long a deleted access stays.
    pub(super) async fn report_drain(
        &self,
        name: &AccessName,
        stored: &StoredAccess,
        until: Timestamp,
    ) -> Result<(), HubError> {
        let until_seconds = format_seconds(until);
        // Names of API objects contain no characters that a shell would interpret.
        let message = format!(
            "deleted; its objects stay until {until_seconds}, when the last written token has expired; to end it now: kubectl patch targetaccess {} \
             -n {} --type=merge -p '{{\"spec\":{{\"deletionPolicy\":\"Immediate\"}}}}'",
            name.name, name.namespace
        );
        let ready = Finding::failed(Reason::DeliveryDraining, message.clone());
        let reconciling = Finding::problem(Reason::DeliveryDraining, message);
        let findings = [("Ready", &ready), ("Reconciling", &reconciling)];
        let withdrawn = self.withdraw_revoked(name, stored).await?;
        let mut status =
            self.with_conditions(stored, &findings, summary::summarize_draining_access(until));
        remove_withdrawn_entries(&mut status, name, &withdrawn);
        self.patch_status(name, stored, &status, &ready).await
    }

    /// Returns the current status with other conditions.
    fn with_conditions(
        &self,
        stored: &StoredAccess,
        findings: &[(&str, &Finding)],
        summary: String,
    ) -> Value {
        let record = &stored.record;
        let mut status = if record.status.is_object() {
            record.status.clone()
        } else {
            json!({})
        };
        status["observedGeneration"] = json!(record.generation);
        status["conditions"] = json!(conditions(
            &record.status,
            record.generation,
            self.context.clock.now().wall,
            findings,
        ));
        status["summary"] = Value::String(summary);
        status
    }

    async fn patch_status(
        &self,
        name: &AccessName,
        stored: &StoredAccess,
        status: &Value,
        ready: &Finding,
    ) -> Result<(), HubError> {
        let record = &stored.record;
        // A status that is not known cannot be compared, and would be written again and again.
        if record.size == ObjectSize::StatusTooLarge {
            return Ok(());
        }
        let Some(mut change) = access_status::merge_patch(&record.status, status) else {
            return Ok(());
        };
        if !self.context.is_leader() {
            return Ok(());
        }
        change["metadata"] =
            json!({ "uid": record.uid.as_str(), "resourceVersion": record.version });
        // 404 is an error too. Where the access is gone, the next run finds that out. A hub that starts
        // may say so of one that is there, whose status would be lost until the next regular check.
        let path = format!("{}/status", access_path(name));
        let written = self.context.objects.patch(&path, &change).await?;
        drop(self.context.store.store_written(&written));
        let truth = if ready.is_true() { "True" } else { "False" };
        let now = self.context.clock.now();
        let news = condition_state(&record.status, "Ready") != Some((truth, ready.reason.as_str()));
        if news && self.events.take_event(&name.namespace, now.mono) {
            let subject = Subject::of_access(name, record.uid.as_str());
            event::write_event(
                &self.context.objects,
                &*self.context.random,
                &subject,
                ready,
                now.wall,
            )
            .await;
        }
        Ok(())
    }
}

/// Removes the entries of withdrawn objects from a status.
fn remove_withdrawn_entries(status: &mut Value, access: &AccessName, withdrawn: &[ObjectPlace]) {
    if withdrawn.is_empty() {
        return;
    }
    let places = access_status::delivered_objects(status, access);
    let kept: Vec<DeliveryStatus> = places
        .into_iter()
        .filter(|(place, _)| !withdrawn.contains(place))
        .map(|(_, report)| report)
        .collect();
    status["deliveries"] = json!(kept);
}
