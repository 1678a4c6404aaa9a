//! Renders the status of a TargetAccess from the results of a reconciliation.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use keyferry_api::condition::{Finding, conditions, seconds};
use keyferry_api::config::{Delivery, DeliveryType, TargetCluster};
use keyferry_api::foreign_text;
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_api::reason::Reason;
use keyferry_api::summary;
use serde_json::{Map, Value, json};

use crate::delivery::{ObjectKind, ObjectPlace};

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
    /// The identity that the target assigned to that token.
    pub identity: Option<TargetIdentity>,
    /// Whether the problem resolves itself: it then counts as `Reconciling`, else as `Stalled`.
    pub passes: bool,
    /// The results of the deliveries that write an object.
    pub deliveries: Vec<DeliveryReport>,
    /// Earlier reports of objects that are no longer wanted but still exist.
    pub left_over: Vec<Value>,
    /// When the last written token expires.
    pub exposure_until: Option<Timestamp>,
    /// The last handled value of `keyferry.dev/requestedAt`.
    pub handled: Option<String>,
}

impl AccessReport {
    /// `Ready`: authorised and delivered, nothing else.
    pub fn ready(&self) -> Finding {
        match (self.authorized.holds(), self.delivered.holds()) {
            (true, true) => Finding::well("authorised and delivered"),
            (true, false) => Finding {
                ..self.delivered.clone()
            },
            (false, _) => Finding {
                ..self.authorized.clone()
            },
        }
    }

    /// Renders the status; fields without a result are omitted.
    ///
    /// `cluster` is the part of the target that its users may know.
    pub fn status(
        &self,
        before: &Value,
        generation: i64,
        now: Timestamp,
        cluster: Option<Value>,
    ) -> Value {
        let ready = self.ready();
        let hindrance = (!ready.holds()).then(|| Finding::so(ready.reason, ready.message.clone()));
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
        let mut status = Map::new();
        let mut set = |field: &str, value: Value| drop(status.insert(field.to_owned(), value));
        set("observedGeneration", json!(generation));
        set("conditions", conditions(before, generation, now, &findings));
        set(
            "summary",
            json!(summary::of_access(&ready, self.authenticates.as_ref())),
        );
        if let Some(cluster) = cluster {
            set("cluster", cluster);
        }
        if let Some(TargetIdentity {
            username,
            uid,
            groups,
        }) = &self.identity
        {
            let same = before.get("identity").filter(|known| {
                known["username"] == username.as_str() && known["groups"] == json!(groups)
            });
            let at = same
                .and_then(|known| known["observedAt"].as_str())
                .map(str::to_owned)
                .unwrap_or_else(|| seconds(now));
            set(
                "identity",
                json!({ "username": username, "uid": uid, "groups": groups, "observedAt": at }),
            );
        }
        if let Some(until) = self.exposure_until {
            set("exposureUntil", json!(seconds(until)));
        }
        let deliveries: Vec<Value> = self
            .deliveries
            .iter()
            .map(DeliveryReport::written)
            .chain(self.left_over.iter().cloned())
            .collect();
        if !deliveries.is_empty() {
            set("deliveries", Value::Array(deliveries));
        }
        if let Some(handled) = &self.handled {
            set("lastHandledReconcileAt", json!(handled));
        }
        Value::Object(status)
    }
}

impl TokenReport {
    /// Reads the token of one delivery report, as [`AccessReport::status`] writes it; `None` if it
    /// reports none.
    pub fn read(report: &Value) -> Option<Self> {
        let text = |field: &str| report.get(field).and_then(Value::as_str);
        let time = |field: &str| text(field)?.parse::<Timestamp>().ok();
        Some(Self {
            token_id: text("tokenID")?.to_owned(),
            key_id: text("keyID").map(str::to_owned),
            expires_at: time("expiresAt")?,
            renew_at: time("renewAt")?,
        })
    }
}

impl DeliveryReport {
    fn written(&self) -> Value {
        let reason = if self.reason == Reason::Ready {
            "Delivered"
        } else {
            self.reason.as_str()
        };
        let mut report = json!({
            "name": self.delivery.name.as_str(), "type": self.delivery.delivery_type.as_str(), "reason": reason,
        });
        if let Some(object) = &self.delivery.object_name {
            report["object"] = json!(object.as_str());
        }
        if !self.message.is_empty() {
            report["message"] = json!(foreign_text::lines(&self.message, 4096));
        }
        if let Some(TokenReport {
            token_id,
            key_id,
            expires_at,
            renew_at,
        }) = &self.token
        {
            report["tokenID"] = json!(token_id);
            if let Some(key_id) = key_id {
                report["keyID"] = json!(key_id);
            }
            report["expiresAt"] = json!(seconds(*expires_at));
            report["renewAt"] = json!(seconds(*renew_at));
        }
        report
    }
}

/// Renders `status.cluster`: clientcmd's Cluster and the audience. None of it is secret.
pub fn cluster(target: &TargetCluster, ca_pem: Option<&str>) -> Value {
    let mut cluster = json!({ "server": target.address, "audience": target.audience.as_str() });
    if let Some(pem) = ca_pem {
        cluster["certificate-authority-data"] = json!(STANDARD.encode(pem));
    }
    if let Some(name) = &target.tls_server_name {
        cluster["tls-server-name"] = json!(name);
    }
    if let Some(proxy) = &target.proxy_url {
        cluster["proxy-url"] = json!(proxy);
    }
    cluster
}

/// Makes a merge patch (RFC 7396) from one status to another; `None` if they are equal.
pub fn patch(before: &Value, wanted: &Value) -> Option<Value> {
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
pub fn places<'a>(status: &'a Value, access: &AccessName) -> Vec<(ObjectPlace, &'a Value)> {
    let reports = status
        .get("deliveries")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let place = |report: &'a Value| {
        let shape = DeliveryType::ALL
            .iter()
            .find(|(name, _)| report["type"] == *name)?
            .1;
        let name = ObjectName::new(report["object"].as_str()?).ok()?;
        Some((
            ObjectPlace {
                kind: ObjectKind::of(shape)?,
                namespace: access.namespace.clone(),
                name,
            },
            report,
        ))
    };
    reports.iter().filter_map(place).collect()
}

/// Whether a delivered object may still exist, according to an access's status.
pub fn may_have_objects(status: &Value) -> bool {
    let reports = status
        .get("deliveries")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let withdrawn = [
        Reason::TargetNotGranted,
        Reason::NotExpressible,
        Reason::ObjectNotOurs,
    ]
    .map(Reason::as_str);
    reports.iter().any(|report| {
        report["object"].is_string() && !withdrawn.iter().any(|reason| report["reason"] == *reason)
    })
}

/// Renames the report of an object that is no longer wanted but still exists, to a name that no
/// delivery has. The list is a map by name: with a duplicate name the hub would refuse the whole
/// status.
pub fn left_over(place: &ObjectPlace, report: &Value) -> Value {
    let mut report = report.clone();
    report["name"] = json!(format!("{}/{}", place.kind.as_str(), place.name));
    report
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use keyferry_api::name::AccessName;
    use serde_json::json;

    use super::{left_over, patch, places};

    #[test]
    fn a_patch_says_what_changes_and_what_goes() {
        let before = json!({ "observedGeneration": 1, "identity": { "username": "a", "uid": "x" }, "exposureUntil": "t" });
        assert_eq!(patch(&before, &before), None);
        let wanted = json!({ "observedGeneration": 2, "identity": { "username": "b" } });
        let change = patch(&before, &wanted).unwrap();
        assert_eq!(
            change,
            json!({ "status": { "observedGeneration": 2, "identity": { "username": "b", "uid": null }, "exposureUntil": null } })
        );
        assert_eq!(
            patch(&json!(null), &json!({ "observedGeneration": 1 })).unwrap()["status"]["observedGeneration"],
            1
        );
    }

    #[test]
    fn earlier_objects_are_found_again() {
        let access = AccessName::parse("tenant-a/apps").unwrap();
        let status = json!({ "deliveries": [
            { "name": "a", "type": "KubeConfigSecret", "object": "apps-kubeconfig" },
            { "name": "b", "type": "Unheard", "object": "x" },
            { "name": "c", "type": "FluxConfigMap", "object": "../x" },
        ] });
        let found: Vec<String> = places(&status, &access)
            .iter()
            .map(|(place, _)| place.to_string())
            .collect();
        assert_eq!(found, ["Secret tenant-a/apps-kubeconfig"]);
        let (place, report) = places(&status, &access).remove(0);
        let kept = json!({ "deliveries": [left_over(&place, report)] });
        assert_eq!(
            kept["deliveries"][0]["name"], "Secret/apps-kubeconfig",
            "no delivery is called so, and the list is a map by name"
        );
        assert_eq!(
            places(&kept, &access)[0].0,
            place,
            "and it is found again by what it says of itself"
        );
    }
}
