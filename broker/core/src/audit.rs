//! The record of each decision: who, for whom, where, and why; never the token.

use serde::Serialize;

use crate::authorise::{Grant, Requester};
use crate::bound_token::BoundToken;
use crate::caller::VerifiedCaller;
use crate::name::AccessName;
use crate::reason::Reason;

/// One line of the audit log. Absent members were not known when the decision fell.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditRecord {
    /// RFC 3339, UTC.
    pub time: String,
    /// Joins the record to the answer's `X-Request-Id`.
    pub request_id: String,
    /// `exchange` or `kubeconfig`.
    pub route: &'static str,
    /// `granted`, `denied` (policy or identity) or `failed` (could not be carried out).
    pub decision: &'static str,
    /// The stable reason code.
    pub reason: &'static str,
    /// The caller's username.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// The caller's UID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller_uid: Option<String>,
    /// The `jti` of the caller's token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller_token_id: Option<String>,
    /// The TargetAccess that was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<String>,
    /// The ServiceAccount minted for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
    /// Its UID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_uid: Option<String>,
    /// The TargetCluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The audience.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// The entry of `allow[]` that allowed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<usize>,
    /// The delivery that the token was written for, by shape and name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<String>,
    /// The `jti` of the token that was handed out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_id: Option<String>,
    /// Its expiry, RFC 3339, UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Whether it came from the cache: `hit` or `miss`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<&'static str>,
    /// Whether the hub could not be asked, so that an earlier answer of it was used.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
}

impl AuditRecord {
    /// Adds who called.
    pub fn with_caller(&mut self, caller: &VerifiedCaller) {
        self.caller = Some(caller.user().username.clone());
        self.caller_uid = Some(caller.user().uid.clone());
        self.caller_token_id = caller.token_id().map(str::to_owned);
    }

    /// Adds what was asked for.
    pub fn with_access(&mut self, access: &AccessName) {
        self.access = Some(access.to_string());
    }

    /// Adds what was granted.
    pub fn with_grant(&mut self, grant: &Grant) {
        if let (Requester::Caller(caller), None) = (grant.requester(), &self.caller) {
            self.with_caller(caller);
        }
        let pair = grant.pair();
        self.with_access(pair.access());
        self.service_account = Some(pair.service_account().account.to_string());
        self.service_account_uid = Some(pair.service_account().uid.to_string());
        self.target = Some(pair.target().to_string());
        self.audience = Some(pair.audience().to_string());
        self.rule = Some(pair.rule());
    }

    /// Adds what is handed out.
    pub fn with_token(&mut self, token: &BoundToken) {
        self.token_id = Some(token.token_id().to_owned());
        self.expires_at = Some(token.deadline().wall().to_string());
    }

    /// Sets how it ended.
    pub fn ended(&mut self, decision: &'static str, reason: Reason) {
        self.decision = decision;
        self.reason = reason.as_str();
    }
}
