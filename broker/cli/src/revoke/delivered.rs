//! Tracks the delivered objects of a revocation by their accesses' statuses: which contain a token
//! of the revoked key, and which no longer do.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use keyferry_api::config::StoredAccess;
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_api::status::DeliveryStatus;
use keyferry_core::access_status;

use super::NotProven;

/// The reasons with which a status reports that Keyferry deleted an object.
const WITHDRAWN: [&str; 4] = [
    "NotExpressible",
    "TargetDraining",
    "TargetNotGranted",
    "TargetSuspended",
];

/// The token of one object, according to the status.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// The revoked key signed it.
    OfRevoked { reason: String, message: String },
    /// The status does not name the signing key: an older Keyferry wrote it.
    OfUnknown,
    /// Another key signed it.
    Replaced { key_id: String },
}

/// One delivered object and its access.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DeliveredObject {
    /// For example `Secret tenant-a/apps-kubeconfig`.
    object: String,
    access: String,
}

/// Objects that contained, or may have contained, a token of the key.
#[derive(Default)]
pub(super) struct Delivered {
    kid: String,
    affected: BTreeSet<DeliveredObject>,
    now: BTreeMap<DeliveredObject, Token>,
}

impl Delivered {
    pub(super) fn of(kid: &str) -> Self {
        Self {
            kid: kid.to_owned(),
            ..Self::default()
        }
    }

    /// Updates from all accesses. Skips objects for targets of `other_issuers`, whose keys are not
    /// the hub's, unless the status names the revoked key. Returns a line for each object that
    /// improved.
    pub(super) fn observe(
        &mut self,
        accesses: &[(AccessName, StoredAccess)],
        other_issuers: &BTreeSet<ObjectName>,
        at: Timestamp,
    ) -> Vec<String> {
        let mut current = BTreeMap::new();
        for (name, stored) in accesses {
            // The keys that sign for these targets are not the hub's. The object can still contain
            // a token of the hub that was written earlier.
            let managed = stored
                .meant()
                .is_some_and(|access| other_issuers.contains(&access.target));
            for (place, report) in access_status::delivered_objects(&stored.record.status, name) {
                if managed && report.key_id.as_ref() != Some(&self.kid) {
                    continue;
                }
                let object = DeliveredObject {
                    object: place.to_string(),
                    access: format!("TargetAccess {name}"),
                };
                let expires: Option<Timestamp> = report
                    .expires_at
                    .as_ref()
                    .and_then(|text| text.parse().ok());
                match expires {
                    Some(expires) if expires > at => {
                        drop(current.insert(object, self.token(&report)))
                    }
                    // A status without a token proves that there is none only if Keyferry deleted
                    // the object.
                    None if self.affected.contains(&object)
                        && !WITHDRAWN.contains(&report.reason.as_str()) =>
                    {
                        drop(current.insert(object, self.of_revoked(&report)));
                    }
                    _ => {}
                }
            }
        }
        let mut news = Vec::new();
        for object in &self.affected {
            let before_stale = self.now.get(object).is_some_and(Token::is_stale);
            match current.get(object) {
                Some(Token::Replaced { key_id }) if before_stale => {
                    news.push(format!(
                        "{} ({}): rewritten, signed by {key_id:?} now",
                        object.object, object.access
                    ));
                }
                None if before_stale => {
                    news.push(format!("{} ({}): withdrawn", object.object, object.access))
                }
                _ => {}
            }
        }
        self.affected.extend(
            current
                .iter()
                .filter(|(_, token)| token.is_stale())
                .map(|(object, _)| object.clone()),
        );
        self.now = current;
        news
    }

    fn of_revoked(&self, report: &DeliveryStatus) -> Token {
        Token::OfRevoked {
            reason: report.reason.clone(),
            message: report.message.clone().unwrap_or_default(),
        }
    }

    fn token(&self, report: &DeliveryStatus) -> Token {
        match report.key_id.as_deref() {
            None => Token::OfUnknown,
            Some(key_id) if key_id == self.kid => self.of_revoked(report),
            Some(key_id) => Token::Replaced {
                key_id: key_id.to_owned(),
            },
        }
    }

    /// Counts the objects that contain, or may contain, a token of the key.
    pub(super) fn stale(&self) -> usize {
        self.now.values().filter(|token| token.is_stale()).count()
    }

    /// Returns a row for each object that contained a token of the key: object, access and result.
    pub(super) fn rows(&self) -> Vec<Vec<String>> {
        let result = |object: &DeliveredObject| match self.now.get(object) {
            None => "withdrawn".to_owned(),
            Some(Token::Replaced { key_id }) => format!("rewritten, signed by {key_id:?} now"),
            Some(Token::OfRevoked { .. } | Token::OfUnknown) => "NOT REWRITTEN".to_owned(),
        };
        self.affected
            .iter()
            .map(|object| vec![object.object.clone(), object.access.clone(), result(object)])
            .collect()
    }

    /// Returns the objects without proof.
    pub(super) fn not_proven(&self, leader: &str) -> Vec<NotProven> {
        let not_proven = |(object, token): (&DeliveredObject, &Token)| {
            let name = format!("{} ({})", object.object, object.access);
            match token {
                Token::Replaced { .. } => None,
                Token::OfUnknown => {
                    let why = "it may hold a token of the key: the access's status does not say \
                        which key signed it"
                        .to_owned();
                    Some(NotProven {
                        name,
                        why,
                        fix: format!(
                            "check that this version of Keyferry leads ({leader}), then run the \
                             command again"
                        ),
                    })
                }
                Token::OfRevoked { reason, message } if reason == "Delivered" => {
                    let why = "it was not rewritten, and the status of its access does not report \
                               why"
                    .to_owned();
                    Some(NotProven {
                        name,
                        why,
                        fix: format!(
                            "check that Keyferry runs and leads ({leader}), then run the command \
                             again"
                        ),
                    })
                }
                Token::OfRevoked { reason, message } => {
                    let why = format!("it was not rewritten: {reason}: {message}");
                    Some(NotProven {
                        name,
                        why,
                        fix: format!("keyferry explain {reason}; then run the command again"),
                    })
                }
            }
        };
        self.now.iter().filter_map(not_proven).collect()
    }
}

impl Token {
    fn is_stale(&self) -> bool {
        !matches!(self, Self::Replaced { .. })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use insta::assert_snapshot;
    use serde_json::{Value, json};

    use super::*;

    fn accesses(deliveries: &Value) -> Vec<(AccessName, StoredAccess)> {
        let object = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess",
            "metadata": { "name": "apps", "namespace": "tenant-a", "uid": "u", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "targetClusterRef": { "name": "prod" }, "serviceAccountName": "reconciler" },
            "status": { "deliveries": deliveries },
        });
        vec![StoredAccess::read(&object).unwrap()]
    }

    fn secret(key_id: Option<&str>, reason: &str, message: &str) -> Value {
        let mut report = json!({
            "name": "s", "type": "KubeConfigSecret", "object": "apps-kubeconfig", "reason": reason, "message": message,
            "expiresAt": "2026-06-01T00:00:00Z",
        });
        if let Some(key_id) = key_id {
            report["keyID"] = json!(key_id);
        }
        json!([report])
    }

    fn at() -> Timestamp {
        "2026-05-01T00:00:00Z".parse().unwrap()
    }

    #[test]
    fn an_object_that_is_rewritten_is_told_once() {
        let none = BTreeSet::new();
        let mut delivered = Delivered::of("stolen");
        assert!(
            delivered
                .observe(
                    &accesses(&secret(Some("stolen"), "Delivered", "")),
                    &none,
                    at()
                )
                .is_empty()
        );
        assert_eq!(delivered.stale(), 1);
        let rewritten = accesses(&secret(Some("clean"), "Delivered", ""));
        let news = delivered.observe(&rewritten, &none, at());
        assert_eq!(
            news,
            [
                "Secret tenant-a/apps-kubeconfig (TargetAccess tenant-a/apps): rewritten, signed \
                 by \"clean\" now"
            ]
        );
        assert!(delivered.observe(&rewritten, &none, at()).is_empty());
        assert!(delivered.not_proven("").is_empty());
        assert_eq!(delivered.rows().len(), 1);
        // A late write, with a token that was minted before the revocation was noticed.
        delivered.observe(
            &accesses(&secret(Some("stolen"), "Delivered", "")),
            &none,
            at(),
        );
        assert_eq!(delivered.not_proven("").len(), 1);
        assert_eq!(
            delivered.observe(&accesses(&json!([])), &none, at()).len(),
            1,
            "withdrawn"
        );
        assert!(delivered.not_proven("").is_empty());
    }

    #[test]
    fn each_cause_has_its_fix() {
        let none = BTreeSet::new();
        let reports = [
            secret(None, "Delivered", ""),
            secret(Some("stolen"), "Delivered", ""),
            secret(Some("stolen"), "KeyRevoked", "the hub still signs"),
        ];
        let shown = reports.map(|report| {
            let mut delivered = Delivered::of("stolen");
            delivered.observe(&accesses(&report), &none, at());
            let not_proven = delivered.not_proven("kubectl get lease");
            let [not_proven] = not_proven.as_slice() else {
                panic!("{report}")
            };
            let (name, why, fix) = (&not_proven.name, &not_proven.why, &not_proven.fix);
            format!("{name}: {why}\nfix: {fix}\n")
        });
        assert_snapshot!("an-object-that-is-not-rewritten", shown.join("\n"));
    }

    #[test]
    fn an_object_that_keyferry_cannot_reach_any_more_is_not_withdrawn() {
        let none = BTreeSet::new();
        let without_token = |reason: &str| {
            let report = json!([{ "name": "s", "type": "KubeConfigSecret", "object": "apps-kubeconfig", "reason": reason }]);
            accesses(&report)
        };
        for (reason, open) in [
            ("ObjectNotOurs", 1),
            ("DeliveryForbidden", 1),
            ("TargetNotGranted", 0),
            ("TargetSuspended", 0),
        ] {
            let mut delivered = Delivered::of("stolen");
            delivered.observe(
                &accesses(&secret(Some("stolen"), "Delivered", "")),
                &none,
                at(),
            );
            delivered.observe(&without_token(reason), &none, at());
            assert_eq!(delivered.not_proven("").len(), open, "{reason}");
        }
    }

    #[test]
    fn what_cannot_be_of_the_key_is_left_out() {
        let mut delivered = Delivered::of("stolen");
        let own = BTreeSet::from([ObjectName::new("prod").unwrap()]);
        for key_id in [None, Some("of-managed")] {
            delivered.observe(&accesses(&secret(key_id, "Delivered", "")), &own, at());
            assert_eq!(delivered.stale(), 0, "a target with a managed issuer");
        }
        delivered.observe(
            &accesses(&secret(Some("stolen"), "Delivered", "")),
            &own,
            at(),
        );
        assert_eq!(
            delivered.stale(),
            1,
            "its object was written while the target trusted the hub"
        );
        let mut delivered = Delivered::of("stolen");
        let ended = "2026-07-01T00:00:00Z".parse().unwrap();
        delivered.observe(
            &accesses(&secret(Some("stolen"), "Delivered", "")),
            &BTreeSet::new(),
            ended,
        );
        assert_eq!(delivered.stale(), 0, "an expired token");
    }
}
