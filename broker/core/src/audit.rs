//! The record of each decision: who, for whom, where, and why; never the token.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde::ser::Serializer;

use crate::authorise::{Grant, Requester};
use crate::bound_token::BoundToken;
use crate::caller::VerifiedCaller;
use crate::name::{AccessName, ObjectName};
use crate::reason::Reason;
use crate::request_id::RequestId;
use crate::service_account::{ServiceAccount, Uid};

/// What one line of the audit log tells. It holds what the decision held, and becomes text only in its line.
#[derive(Debug, Default)]
pub struct AuditRecord {
    /// When.
    pub time: Timestamp,
    /// Joins the record to the answer's `X-Request-Id`.
    pub request_id: RequestId,
    /// `exchange`, `kubeconfig`, or what a delivery did.
    pub route: &'static str,
    /// `granted`, `denied` (policy or identity) or `failed` (could not be carried out).
    pub decision: &'static str,
    /// The stable reason code.
    pub reason: &'static str,
    /// Who called.
    pub caller: Option<VerifiedCaller>,
    /// The TargetAccess that was named.
    pub access: Option<AccessName>,
    /// What was granted.
    pub grant: Option<Grant>,
    /// The TargetCluster, where nothing had to be granted.
    pub target: Option<ObjectName>,
    /// The delivery that the token was written for, by shape and name.
    pub delivery: Option<String>,
    /// Which token was handed out.
    pub token: Option<TokenNote>,
    /// Whether it came from the cache: `hit` or `miss`.
    pub cache: Option<&'static str>,
    /// Whether the hub could not be asked, so that an earlier answer of it was used.
    pub stale: bool,
}

impl AuditRecord {
    /// Sets how it ended.
    pub fn ended(&mut self, decision: &'static str, reason: Reason) {
        self.decision = decision;
        self.reason = reason.as_str();
    }
}

/// What is told of a token.
#[derive(Clone, Debug)]
pub struct TokenNote {
    id: Arc<str>,
    expires_at: Timestamp,
}

impl TokenNote {
    /// Of this one.
    pub fn of(token: &BoundToken) -> TokenNote {
        TokenNote { id: token.shared_id(), expires_at: token.deadline().wall() }
    }
}

/// The line as JSON. Absent members were not known when the decision fell.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    /// RFC 3339, UTC.
    time: Timestamp,
    request_id: RequestId,
    route: &'static str,
    decision: &'static str,
    reason: &'static str,
    /// The caller's username.
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<&'a str>,
    /// The caller's UID.
    #[serde(skip_serializing_if = "Option::is_none")]
    caller_uid: Option<&'a str>,
    /// The `jti` of the caller's token.
    #[serde(skip_serializing_if = "Option::is_none")]
    caller_token_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    access: Option<Shown<'a, AccessName>>,
    /// The ServiceAccount minted for.
    #[serde(skip_serializing_if = "Option::is_none")]
    service_account: Option<Shown<'a, ServiceAccount>>,
    /// Its UID.
    #[serde(skip_serializing_if = "Option::is_none")]
    service_account_uid: Option<Shown<'a, Uid>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    audience: Option<&'a str>,
    /// The entry of `allow[]` that allowed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery: Option<&'a str>,
    /// The `jti` of the token that was handed out.
    #[serde(skip_serializing_if = "Option::is_none")]
    token_id: Option<&'a str>,
    /// Its expiry, RFC 3339, UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache: Option<&'static str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stale: bool,
}

/// Written as its text.
struct Shown<'a, T>(&'a T);

impl<T: std::fmt::Display> Serialize for Shown<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self.0)
    }
}

impl Serialize for AuditRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let pair = self.grant.as_ref().map(Grant::pair);
        let caller = self.caller.as_ref().or_else(|| match self.grant.as_ref()?.requester() {
            Requester::Caller(caller) => Some(caller),
            Requester::Operator | Requester::Delivery(_) => None,
        });
        let line = Line {
            time: self.time,
            request_id: self.request_id,
            route: self.route,
            decision: self.decision,
            reason: self.reason,
            caller: caller.map(|caller| caller.user().username.as_str()),
            caller_uid: caller.map(|caller| caller.user().uid.as_str()),
            caller_token_id: caller.and_then(VerifiedCaller::token_id),
            access: pair.map(|pair| pair.access()).or(self.access.as_ref()).map(Shown),
            service_account: pair.map(|pair| Shown(&pair.service_account().account)),
            service_account_uid: pair.map(|pair| Shown(&pair.service_account().uid)),
            target: pair.map(|pair| pair.target()).or(self.target.as_ref()).map(ObjectName::as_str),
            audience: pair.map(|pair| pair.audience().as_str()),
            rule: pair.map(|pair| pair.rule()),
            delivery: self.delivery.as_deref(),
            token_id: self.token.as_ref().map(|token| &*token.id),
            expires_at: self.token.as_ref().map(|token| token.expires_at),
            cache: self.cache,
            stale: self.stale,
        };
        line.serialize(serializer)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::AuditRecord;
    use crate::authorise::tests::{caller, granted, hub, usual};
    use crate::name::AccessName;
    use crate::reason::Reason;

    #[test]
    fn what_was_not_known_is_not_there() {
        let mut record = AuditRecord { request_id: 0xa.into(), route: "exchange", ..AuditRecord::default() };
        record.ended("denied", Reason::CallerMalformed);
        let line = r#"{"time":"1970-01-01T00:00:00Z","requestId":"000000000000000a","route":"exchange","decision":"denied","reason":"CallerMalformed"}"#;
        assert_eq!(serde_json::to_string(&record).unwrap(), line);
    }

    #[test]
    fn a_grant_says_for_whom_and_to_whom() {
        let (policy, hub) = (usual(), hub());
        let access = Some(AccessName::parse("tenant-a/prod").unwrap());
        let grant = Some(granted(&policy, &hub, caller("tenant-a", "notifier")));
        let line = serde_json::to_value(AuditRecord { access, grant, ..AuditRecord::default() }).unwrap();
        let told = ["caller", "callerUid", "access", "serviceAccount", "serviceAccountUid", "target", "audience", "rule"];
        let told: Vec<&serde_json::Value> = told.iter().map(|member| &line[member]).collect();
        let caller = "system:serviceaccount:tenant-a:notifier";
        let wanted =
            json!([caller, "uid-tenant-a-notifier", "tenant-a/prod", "tenant-a/reconciler", "uid-tenant-a-reconciler", "prod", "prod", 0]);
        assert_eq!(json!(told), wanted);
    }
}
