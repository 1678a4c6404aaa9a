//! Writes Events (events.k8s.io/v1) about changes of an object's state. They are only for people: a
//! failed write is not an error.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::condition::Finding;
use keyferry_api::foreign_text;
use keyferry_api::name::{AccessName, Namespace, ObjectName};
use serde_json::{Value, json};

use crate::ports::HubObjects;
use crate::random::Random;

/// The maximum length of a note in the API, in bytes.
const MOST: usize = 1000;

/// How many Events a namespace may cause at once.
const AT_ONCE: u32 = 100;
/// How long until a namespace may cause one more.
const ONE_MORE_AFTER: Duration = Duration::from_secs(2);
/// How many namespaces are stored before those with a full budget are removed.
const REMEMBERED: usize = 1_000;

/// The budget of Events for each namespace's accesses. A tenant that breaks its accesses repeatedly
/// must neither flood the hub with writes nor take the Events of others; statuses are always
/// written.
#[derive(Debug, Default)]
pub struct EventBudgets(Mutex<HashMap<Namespace, Duration>>);

impl EventBudgets {
    /// Takes one Event from the budget, if any is left; `now` is monotonic.
    pub fn take(&self, namespace: &Namespace, now: Duration) -> bool {
        let mut spent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spent.len() >= REMEMBERED {
            spent.retain(|_, until| *until > now);
        }
        // The time at which the budget is full again: each Event delays it, but never beyond the
        // time for a whole budget.
        let until = spent.get(namespace).copied().unwrap_or_default().max(now) + ONE_MORE_AFTER;
        let fits = until <= now + ONE_MORE_AFTER * AT_ONCE;
        if fits {
            spent.insert(namespace.clone(), until);
        }
        fits
    }
}

/// The object of an Event.
pub struct Subject {
    reference: Value,
    namespace: String,
}

impl Subject {
    /// Creates the subject for a TargetAccess.
    pub fn access(name: &AccessName, uid: &str) -> Self {
        let reference = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess", "name": name.name.as_str(), "namespace": name.namespace.as_str(), "uid": uid,
        });
        Self {
            reference,
            namespace: name.namespace.to_string(),
        }
    }

    /// Creates the subject for a TargetCluster. Events of cluster-scoped objects are in the
    /// namespace `default`.
    pub fn target(name: &ObjectName, uid: &str) -> Self {
        let reference = json!({ "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster", "name": name.as_str(), "uid": uid });
        Self {
            reference,
            namespace: "default".to_owned(),
        }
    }
}

/// Writes an Event about a finding.
pub async fn tell(
    objects: &Arc<dyn HubObjects>,
    random: &dyn Random,
    about: &Subject,
    finding: &Finding,
    now: Timestamp,
) {
    let name = format!("keyferry.{}", random.request_id());
    let mut note = foreign_text::lines(&finding.message, MOST);
    while note.len() > MOST {
        note.pop();
    }
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": { "name": name, "namespace": about.namespace },
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
        "reportingController": "keyferry.dev/keyferry", "reportingInstance": "keyferry",
        "action": "Reconcile", "reason": finding.reason.as_str(), "regarding": about.reference, "note": note,
        "type": if finding.holds() { "Normal" } else { "Warning" },
    });
    let collection = format!(
        "/apis/events.k8s.io/v1/namespaces/{}/events",
        about.namespace
    );
    if let Err(error) = objects.post(&collection, &event).await {
        tracing::debug!(%error, "an Event could not be written");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn one_namespaces_flood_takes_nobody_elses_events() {
        let (budgets, now) = (EventBudgets::default(), Duration::from_secs(1000));
        let [flood, other] = ["flood", "other"].map(|name| Namespace::new(name).unwrap());
        let through = |namespace: &Namespace, now| {
            (0..5_000).filter(|_| budgets.take(namespace, now)).count()
        };
        assert_eq!(through(&flood, now), 100);
        assert!(budgets.take(&other, now));
        assert_eq!(
            through(&flood, now + Duration::from_secs(1)),
            0,
            "nothing comes back before its time"
        );
        assert_eq!(
            through(&flood, now + Duration::from_secs(20)),
            10,
            "one every two seconds"
        );
        assert_eq!(
            through(&flood, now + Duration::from_secs(3600)),
            100,
            "and no more than at the start"
        );
    }

    #[test]
    fn namespaces_that_have_all_of_theirs_are_forgotten() {
        let budgets = EventBudgets::default();
        for number in 0_u32..10_000 {
            assert!(budgets.take(
                &Namespace::new(format!("n{number}")).unwrap(),
                Duration::from_secs(10) * number
            ));
        }
        assert!(budgets.0.lock().unwrap().len() <= REMEMBERED);
    }
}
