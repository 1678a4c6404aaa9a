//! Makes the status of a TargetAccess from the results of a reconciliation.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use keyferry_api::condition::{Finding, Truth, condition_state, conditions, format_seconds};
use keyferry_api::config::{Delivery, DeliveryType, TargetCluster};
use keyferry_api::foreign_text;
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_api::reason::Reason;
use keyferry_api::status::{ClusterStatus, DeliveryStatus, IdentityStatus, TargetAccessStatus};
use keyferry_api::summary::{self, SilenceCause};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::delivery::{ObjectKind, ObjectPlace};

/// How old a reported time of a probe may be, if the answer has not changed since.
const PROBE_TIME_PRECISION: SignedDuration = SignedDuration::from_mins(5);

/// The result of one delivery that writes an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryReport {
    /// The delivery, with its name and type.
    pub delivery: Delivery,
    /// [`Reason::Ready`], or why the object is not ready.
    pub reason: Reason,
    /// The text for readers of the TargetAccess.
    pub message: String,
    /// The token in the object, if there is one.
    pub token: Option<TokenReport>,
}

/// What a status reports of a token in a delivered object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenReport {
    /// Its `jti`.
    pub token_id: String,
    /// The `kid` of the key that signed it, if the object states it.
    pub key_id: Option<String>,
    /// When it expires.
    pub expires_at: Timestamp,
    /// When it is due for renewal.
    pub renew_at: Timestamp,
}

/// The identity that the target assigns to a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetIdentity {
    /// The username.
    pub username: String,
    /// The UID, if the target maps one.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
}

/// The results of reconciling one access.
#[derive(Clone, Debug)]
pub struct AccessReport {
    /// Whether policy grants it.
    pub authorized: Finding,
    /// Whether every object is as rendered.
    pub delivered: Finding,
    /// Whether the target answered, if it was probed.
    pub reachable: Option<Finding>,
    /// Whether the target accepted a token, if one was tried.
    pub authenticates: Option<Finding>,
    /// Why the target did not answer, if it did not.
    pub silence: Option<SilenceCause>,
    /// When the target was asked, if it was.
    pub probed_at: Option<Timestamp>,
    /// The identity that the target assigned to that token.
    pub identity: Option<TargetIdentity>,
    /// Whether the problem resolves itself: it then counts as `Reconciling`, else as `Stalled`.
    pub passes: bool,
    /// The results of the deliveries that write an object.
    pub deliveries: Vec<DeliveryReport>,
    /// Earlier reports of objects that are no longer wanted but still exist.
    pub left_over: Vec<DeliveryStatus>,
    /// When the last written token expires.
    pub exposure_until: Option<Timestamp>,
    /// The last handled value of `keyferry.dev/requestedAt`.
    pub handled: Option<String>,
}

impl AccessReport {
    /// `Ready`: authorised and delivered. Of the target's answers only one counts: an access to a
    /// role is not ready where its token has other rights than the role's.
    pub fn ready(&self) -> Finding {
        let unmapped = self
            .authenticates
            .as_ref()
            .filter(|finding| finding.reason == Reason::RoleNotMapped);
        match (self.authorized.is_true(), self.delivered.is_true()) {
            (true, true) => unmapped
                .cloned()
                .unwrap_or_else(|| Finding::ok("authorised and delivered")),
            (true, false) => Finding {
                ..self.delivered.clone()
            },
            (false, _) => Finding {
                ..self.authorized.clone()
            },
        }
    }

    /// Whether the target accepted a token of the access; `None` if none was tried.
    pub fn probe_success(&self) -> Option<bool> {
        let finding = self.authenticates.as_ref()?;
        let is_unknown = finding.status == Truth::Unknown;
        is_probe_result(is_unknown, finding.reason.as_str()).then(|| finding.is_true())
    }

    /// Makes the status; fields without a result are omitted.
    ///
    /// `cluster` is the part of the target that its users may know.
    pub fn status(
        &self,
        before: &Value,
        generation: i64,
        now: Timestamp,
        cluster: Option<ClusterStatus>,
    ) -> TargetAccessStatus {
        let ready = self.ready();
        let hindrance =
            (!ready.is_true()).then(|| Finding::problem(ready.reason, ready.message.clone()));
        let (reconciling, stalled) = if self.passes {
            (hindrance, None)
        } else {
            (None, hindrance)
        };
        let optional = [
            ("TargetReachable", &self.reachable),
            ("TargetAuthenticates", &self.authenticates),
            ("Reconciling", &reconciling),
            ("Stalled", &stalled),
        ];
        let mut findings = vec![
            ("Ready", &ready),
            ("Authorized", &self.authorized),
            ("Delivered", &self.delivered),
        ];
        findings.extend(
            optional
                .into_iter()
                .filter_map(|(kind, finding)| Some((kind, finding.as_ref()?))),
        );
        let deliveries = self.deliveries.iter().map(DeliveryReport::status);
        TargetAccessStatus {
            observed_generation: Some(generation),
            summary: Some(summary::summarize_access(
                &ready,
                self.authenticates.as_ref(),
                self.silence,
            )),
            conditions: conditions(before, generation, now, &findings),
            cluster,
            identity: self
                .identity
                .as_ref()
                .map(|identity| identity.status(before, now)),
            last_probe_time: self.probed_at.map(|at| self.probe_time(before, at)),
            exposure_until: self.exposure_until.map(format_seconds),
            deliveries: deliveries.chain(self.left_over.iter().cloned()).collect(),
            last_handled_reconcile_at: self.handled.clone(),
        }
    }
}

impl AccessReport {
    /// Returns the time to report for a probe. Where the answer is the same, an earlier time that is
    /// nearly as recent stays: silent targets are asked every minute, and not every time is worth a
    /// write.
    fn probe_time(&self, before: &Value, at: Timestamp) -> String {
        let answer = self.authenticates.as_ref().map(|finding| {
            let truth = match finding.status {
                Truth::True => "True",
                Truth::False => "False",
                Truth::Unknown => "Unknown",
            };
            (truth, finding.reason.as_str())
        });
        let handled = before.get("lastHandledReconcileAt").and_then(Value::as_str);
        let same = condition_state(before, "TargetAuthenticates") == answer
            && handled == self.handled.as_deref();
        recent_probe_time(before, at)
            .filter(|_| same)
            .unwrap_or_else(|| format_seconds(at))
    }
}

/// Whether the condition `TargetAuthenticates` says how a probe ended. It is also `Unknown` while a
/// requested probe cannot be made, for the reason of that.
pub fn is_probe_result(is_unknown: bool, reason: &str) -> bool {
    let silences = [
        Reason::ProbeUnanswered,
        Reason::RoleNotMapped,
        Reason::TargetAddressRefused,
    ];
    !is_unknown || silences.map(Reason::as_str).contains(&reason)
}

/// Returns `lastProbeTime` of a status, if it is nearly as recent as `at`.
pub fn recent_probe_time(before: &Value, at: Timestamp) -> Option<String> {
    let text = before.get("lastProbeTime")?.as_str()?;
    let earlier: Timestamp = text.parse().ok()?;
    let age = at.duration_since(earlier);
    (age >= SignedDuration::ZERO && age < PROBE_TIME_PRECISION).then(|| text.to_owned())
}

impl TargetIdentity {
    /// The identity for the status, with the time since which the target reports it.
    fn status(&self, before: &Value, now: Timestamp) -> IdentityStatus {
        let wanted = IdentityStatus {
            username: Some(self.username.clone()),
            uid: Some(self.uid.clone()),
            groups: Some(self.groups.clone()),
            observed_at: None,
        };
        let known = before
            .get("identity")
            .and_then(|known| IdentityStatus::deserialize(known).ok())
            .filter(|known| (&known.username, &known.groups) == (&wanted.username, &wanted.groups));
        let since = known.and_then(|known| known.observed_at);
        IdentityStatus {
            observed_at: Some(since.unwrap_or_else(|| format_seconds(now))),
            ..wanted
        }
    }
}

impl TokenReport {
    /// Reads the token of one delivery's status, as [`AccessReport::status`] writes it; `None` if
    /// it reports none.
    pub fn read(report: &DeliveryStatus) -> Option<Self> {
        let time = |text: &Option<String>| text.as_ref()?.parse::<Timestamp>().ok();
        Some(Self {
            token_id: report.token_id.clone()?,
            key_id: report.key_id.clone(),
            expires_at: time(&report.expires_at)?,
            renew_at: time(&report.renew_at)?,
        })
    }
}

impl DeliveryReport {
    fn status(&self) -> DeliveryStatus {
        let reason = if self.reason == Reason::Ready {
            "Delivered"
        } else {
            self.reason.as_str()
        };
        let (delivery, token) = (&self.delivery, self.token.as_ref());
        DeliveryStatus {
            name: delivery.name.to_string(),
            delivery_type: delivery.delivery_type.as_str().to_owned(),
            object: delivery.object_name.as_ref().map(ObjectName::to_string),
            reason: reason.to_owned(),
            message: (!self.message.is_empty())
                .then(|| foreign_text::one_line(&self.message, 4096)),
            expires_at: token.map(|token| format_seconds(token.expires_at)),
            renew_at: token.map(|token| format_seconds(token.renew_at)),
            token_id: token.map(|token| token.token_id.clone()),
            key_id: token.and_then(|token| token.key_id.clone()),
        }
    }
}

/// Makes `status.cluster`: clientcmd's Cluster and the audience. None of it is secret.
pub fn cluster_status(target: &TargetCluster, ca_pem: Option<&str>) -> ClusterStatus {
    ClusterStatus {
        server: target.is_cluster().then(|| target.address.clone()),
        certificate_authority_data: ca_pem.map(|pem| STANDARD.encode(pem)),
        tls_server_name: target.tls_server_name.clone(),
        proxy_url: target.proxy_url.clone(),
        audience: Some(target.audience.as_str().to_owned()),
    }
}

/// Makes a merge patch (RFC 7396) from one status to another; `None` if they are equal.
pub fn merge_patch(before: &Value, wanted: &Value) -> Option<Value> {
    let empty = Map::new();
    let (known, wanted_members) = (before.as_object().unwrap_or(&empty), wanted.as_object()?);
    let mut change: Map<String, Value> = wanted_members
        .iter()
        .filter(|(field, value)| known.get(*field) != Some(value))
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect();
    // A merge patch merges an object into the old one, so members that the new one lacks must be
    // removed with null.
    for (field, value) in &mut change {
        if let (Some(Value::Object(old)), Value::Object(new)) = (known.get(field), value) {
            for gone in old.keys() {
                new.entry(gone.clone()).or_insert(Value::Null);
            }
        }
    }
    change.extend(
        known
            .keys()
            .filter(|field| !wanted_members.contains_key(*field))
            .map(|field| (field.clone(), Value::Null)),
    );
    (!change.is_empty()).then(|| json!({ "status": change }))
}

/// Returns the objects that the deliveries in a status wrote, with their reports.
pub fn delivered_objects(
    status: &Value,
    access: &AccessName,
) -> Vec<(ObjectPlace, DeliveryStatus)> {
    let place = |report: DeliveryStatus| {
        let delivery_type = DeliveryType::ALL
            .iter()
            .find(|(name, _)| report.delivery_type == *name)?
            .1;
        let name = ObjectName::new(report.object.as_ref()?).ok()?;
        let place = ObjectPlace {
            kind: ObjectKind::of(delivery_type)?,
            namespace: access.namespace.clone(),
            name,
        };
        Some((place, report))
    };
    delivery_reports(status).filter_map(place).collect()
}

/// Whether a delivered object may still exist, according to an access's status.
pub fn may_have_objects(status: &Value) -> bool {
    let withdrawn = [
        Reason::TargetNotGranted,
        Reason::NotExpressible,
        Reason::ObjectNotOurs,
    ]
    .map(Reason::as_str);
    delivery_reports(status)
        .any(|report| report.object.is_some() && !withdrawn.contains(&report.reason.as_str()))
}

/// The reports of the deliveries in a status.
fn delivery_reports(status: &Value) -> impl Iterator<Item = DeliveryStatus> {
    let reports = status.get("deliveries").and_then(Value::as_array);
    reports.into_iter().flatten().map(|report| {
        DeliveryStatus::deserialize(report).unwrap_or_else(|_| readable_members(report))
    })
}

/// What can be read of a report that does not fit its schema. Its object must still be found: it
/// may hold a token.
fn readable_members(report: &Value) -> DeliveryStatus {
    let text = |member| {
        report
            .get(member)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    DeliveryStatus {
        name: text("name").unwrap_or_default(),
        delivery_type: text("type").unwrap_or_default(),
        object: text("object"),
        reason: text("reason").unwrap_or_default(),
        message: text("message"),
        expires_at: text("expiresAt"),
        renew_at: text("renewAt"),
        token_id: text("tokenID"),
        key_id: text("keyID"),
    }
}

/// Renames the report of an object that is no longer wanted but still exists, to a name that no
/// delivery has. The list is a map by name: with a duplicate name the hub would refuse the whole
/// status.
pub fn rename_left_over_report(place: &ObjectPlace, report: DeliveryStatus) -> DeliveryStatus {
    DeliveryStatus {
        name: format!("{}/{}", place.kind.as_str(), place.name),
        ..report
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use keyferry_api::name::AccessName;
    use serde_json::json;

    use super::{delivered_objects, may_have_objects, merge_patch, rename_left_over_report};

    #[test]
    fn a_patch_says_what_changes_and_what_goes() {
        let before = json!({ "observedGeneration": 1, "identity": { "username": "a", "uid": "x" }, "exposureUntil": "t" });
        assert_eq!(merge_patch(&before, &before), None);
        let wanted = json!({ "observedGeneration": 2, "identity": { "username": "b" } });
        let change = merge_patch(&before, &wanted).unwrap();
        assert_eq!(
            change,
            json!({ "status": { "observedGeneration": 2, "identity": { "username": "b", "uid": null }, "exposureUntil": null } })
        );
        assert_eq!(
            merge_patch(&json!(null), &json!({ "observedGeneration": 1 })).unwrap()["status"]["observedGeneration"],
            1
        );
    }

    /// The apiserver refuses such a status, but the object in it may hold a token.
    #[test]
    fn a_report_that_does_not_fit_its_schema_hides_no_object() {
        let access = AccessName::parse("tenant-a/apps").unwrap();
        let status = json!({ "deliveries": [
            { "type": "KubeConfigSecret", "object": "apps-kubeconfig", "keyID": "stolen", "message": 7 },
            "not an object",
        ] });
        let found = delivered_objects(&status, &access);
        let [(place, report)] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert_eq!(place.name.as_str(), "apps-kubeconfig");
        assert_eq!(report.key_id.as_deref(), Some("stolen"));
        assert!(may_have_objects(&status));
        assert!(!may_have_objects(
            &json!({ "deliveries": ["not an object"] })
        ));
    }

    #[test]
    fn earlier_objects_are_found_again() {
        let access = AccessName::parse("tenant-a/apps").unwrap();
        let status = json!({ "deliveries": [
            { "name": "a", "type": "KubeConfigSecret", "object": "apps-kubeconfig", "reason": "Delivered" },
            { "name": "b", "type": "Unheard", "object": "x", "reason": "Delivered" },
            { "name": "b", "object": 5 },
            { "name": "c", "type": "FluxConfigMap", "object": "../x", "reason": "Delivered" },
        ] });
        let found: Vec<String> = delivered_objects(&status, &access)
            .iter()
            .map(|(place, _)| place.to_string())
            .collect();
        assert_eq!(found, ["Secret tenant-a/apps-kubeconfig"]);
        let (place, report) = delivered_objects(&status, &access).remove(0);
        let kept = json!({ "deliveries": [rename_left_over_report(&place, report)] });
        assert_eq!(
            kept["deliveries"][0]["name"], "Secret/apps-kubeconfig",
            "no delivery is called so, and the list is a map by name"
        );
        assert_eq!(
            delivered_objects(&kept, &access)[0].0,
            place,
            "and it is found again by what it says of itself"
        );
    }
}
