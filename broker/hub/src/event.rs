//! Writes Events (events.k8s.io/v1) about changes of an object's state. They are only for people: a
//! failed write is not an error.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use keyferry_api::condition::Finding;
use keyferry_api::foreign_text;
use keyferry_api::name::{AccessName, Namespace, ObjectName};
use keyferry_platform::random::Random;
use parking_lot::Mutex;

use crate::ports::HubObjects;

/// The maximum length of a note in the API, in bytes.
const MAX_NOTE_BYTES: usize = 1000;

/// How many Events a namespace may cause at once.
const MAX_EVENT_BURST: u32 = 100;
/// How long until a namespace may cause one more.
const ONE_MORE_AFTER: Duration = Duration::from_secs(2);
/// How many namespaces are stored before those with a full budget are removed.
const MAX_NAMESPACES: usize = 1_000;

/// The budget of Events for each namespace's accesses. A tenant that breaks its accesses repeatedly
/// must neither flood the hub with writes nor take the Events of others; statuses are always
/// written.
#[derive(Debug, Default)]
pub struct EventBudgets(Mutex<HashMap<Namespace, Duration>>);

impl EventBudgets {
    /// Takes one Event from the budget, if any is left; `now` is monotonic.
    pub fn take_event(&self, namespace: &Namespace, now: Duration) -> bool {
        let mut spent = self.0.lock();
        if spent.len() >= MAX_NAMESPACES {
            spent.retain(|_, until| *until > now);
        }
        // The time at which the budget is full again: each Event delays it, but never beyond the
        // time for a whole budget.
        let until = spent.get(namespace).copied().unwrap_or_default().max(now) + ONE_MORE_AFTER;
        let fits = until <= now + ONE_MORE_AFTER * MAX_EVENT_BURST;
        if fits {
            spent.insert(namespace.clone(), until);
        }
        fits
    }
}

/// The object of an Event.
pub struct Subject {
    reference: ObjectReference,
    namespace: String,
}

impl Subject {
    /// Creates the subject for a TargetAccess.
    pub fn of_access(name: &AccessName, uid: &str) -> Self {
        let namespace = name.namespace.to_string();
        Self {
            reference: ObjectReference {
                namespace: Some(namespace.clone()),
                ..object_reference("TargetAccess", &name.name, uid)
            },
            namespace,
        }
    }

    /// Creates the subject for a TargetCluster. Events of cluster-scoped objects are in the
    /// namespace `default`.
    pub fn of_target(name: &ObjectName, uid: &str) -> Self {
        Self {
            reference: object_reference("TargetCluster", name, uid),
            namespace: "default".to_owned(),
        }
    }
}

impl Subject {
    /// Creates the subject for a Secret of Keyferry's namespace.
    pub fn of_secret(namespace: &Namespace, name: &ObjectName, uid: &str) -> Self {
        Self::of_core_object("Secret", namespace, name, uid)
    }

    /// Creates the subject for a Pod.
    pub fn of_pod(namespace: &Namespace, name: &ObjectName, uid: &str) -> Self {
        Self::of_core_object("Pod", namespace, name, uid)
    }

    fn of_core_object(kind: &str, namespace: &Namespace, name: &ObjectName, uid: &str) -> Self {
        let namespace = namespace.to_string();
        Self {
            reference: ObjectReference {
                api_version: Some("v1".to_owned()),
                namespace: Some(namespace.clone()),
                ..object_reference(kind, name, uid)
            },
            namespace,
        }
    }
}

fn object_reference(kind: &str, name: &ObjectName, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("keyferry.dev/v1alpha1".to_owned()),
        kind: Some(kind.to_owned()),
        name: Some(name.to_string()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

/// Writes an Event about a condition of an object. A failed write is ignored.
pub async fn write_event(
    objects: &Arc<dyn HubObjects>,
    random: &dyn Random,
    about: &Subject,
    finding: &Finding,
    now: Timestamp,
) {
    let name = format!("keyferry.{}", random.request_id());
    let mut note = foreign_text::one_line(&finding.message, MAX_NOTE_BYTES);
    while note.len() > MAX_NOTE_BYTES {
        note.pop();
    }
    let event = Event {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(about.namespace.clone()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(now)),
        reporting_controller: Some("keyferry.dev/keyferry".to_owned()),
        reporting_instance: Some("keyferry".to_owned()),
        action: Some("Reconcile".to_owned()),
        reason: Some(finding.reason.as_str().to_owned()),
        regarding: Some(about.reference.clone()),
        note: Some(note),
        type_: Some(
            if finding.is_true() {
                "Normal"
            } else {
                "Warning"
            }
            .to_owned(),
        ),
        ..Event::default()
    };
    let Ok(event) = serde_json::to_value(&event) else {
        return;
    };
    let collection = format!(
        "/apis/events.k8s.io/v1/namespaces/{}/events",
        about.namespace
    );
    if let Err(error) = objects.create_plain(&collection, &event).await {
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
            (0..5_000)
                .filter(|_| budgets.take_event(namespace, now))
                .count()
        };
        assert_eq!(through(&flood, now), 100);
        assert!(budgets.take_event(&other, now));
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
            assert!(budgets.take_event(
                &Namespace::new(format!("n{number}")).unwrap(),
                Duration::from_secs(10) * number
            ));
        }
        assert!(budgets.0.lock().len() <= MAX_NAMESPACES);
    }
}
