//! The status of a TargetAccess, made of what was found.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::condition::{Finding, conditions, seconds};
use crate::config::{Delivery, DeliveryType, TargetCluster};
use crate::delivery::{ObjectKind, ObjectPlace};
use crate::foreign_text;
use crate::name::{AccessName, ObjectName};
use crate::reason::Reason;
use crate::summary;

/// What became of one delivery that writes an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryReport {
    /// Its name and shape.
    pub delivery: Delivery,
    /// [`Reason::Ready`], or what stands in the way.
    pub reason: Reason,
    /// For whoever reads the object.
    pub message: String,
    /// The token in the object, if one stands there.
    pub token: Option<TokenReport>,
}

/// A token in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenReport {
    /// Its `jti`.
    pub token_id: String,
    /// The `kid` of the key that signed it, where the object says so.
    pub key_id: Option<String>,
    /// When it expires.
    pub expires_at: Timestamp,
    /// When it is written anew.
    pub renew_at: Timestamp,
}

/// Whom the target takes a token for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetIdentity {
    /// The username.
    pub username: String,
    /// The UID, where the target maps one.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
}

/// All that was found of an access.
#[derive(Clone, Debug)]
pub struct AccessReport {
    /// Whether policy grants it.
    pub authorized: Finding,
    /// Whether every object is as it should be.
    pub delivered: Finding,
    /// Whether the target answered, where it was asked.
    pub reachable: Option<Finding>,
    /// Whether the target took a token, where one was tried.
    pub authenticates: Option<Finding>,
    /// Whom the target took it for.
    pub identity: Option<TargetIdentity>,
    /// Whether what stands in the way passes without anybody's doing.
    pub passes: bool,
    /// Each delivery that writes an object.
    pub deliveries: Vec<DeliveryReport>,
    /// Earlier reports of objects that are no longer wanted and still stand there.
    pub left_over: Vec<Value>,
    /// When the last token that was written expires.
    pub exposure_until: Option<Timestamp>,
    /// The last `keyferry.dev/requestedAt`.
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

    /// The status, without what was not found.
    ///
    /// `cluster` is the target as far as somebody who may use it is to know it.
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
    /// The token of one report of a status, as [`AccessReport::status`] writes it; nothing where it
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

/// `status.cluster`: clientcmd's Cluster and the audience. Nothing of it is secret.
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

/// A merge patch (RFC 7396) that makes a status out of another one; nothing if they are the same.
pub fn patch(before: &Value, wanted: &Value) -> Option<Value> {
    let empty = Map::new();
    let (known, wanted_members) = (before.as_object().unwrap_or(&empty), wanted.as_object()?);
    let mut change: Map<String, Value> = wanted_members
        .iter()
        .filter(|(field, value)| known.get(*field) != Some(value))
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect();
    // An object in the place of another one is merged into it, so what the new one lacks has to be
    // taken out.
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

/// The places that earlier deliveries of a status were written to, with their reports.
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

/// Whether an object that was delivered may still stand there, by an access's status.
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

/// The report of an object that is no longer wanted and still stands there, under a name that no
/// delivery has: the list is a map by name, and with a name twice the hub would refuse the whole
/// status.
pub fn left_over(place: &ObjectPlace, report: &Value) -> Value {
    let mut report = report.clone();
    report["name"] = json!(format!("{}/{}", place.kind.as_str(), place.name));
    report
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use serde_json::json;

    use super::{left_over, patch, places};
    use crate::name::AccessName;

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
