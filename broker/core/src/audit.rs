//! The audit record of each decision: the caller, the ServiceAccount, the target and the reason;
//! never the token.

use std::sync::Arc;

use jiff::Timestamp;
use keyferry_api::foreign_text;
use keyferry_api::json_schema::schema_of;
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_api::reason::Reason;
use keyferry_keys::bound_token::BoundToken;
use keyferry_keys::caller_certificate::{CallerCertificateError, CertificateNote};
use keyferry_keys::client_certificate::IssuedCertificate;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::authorise::{Grant, Pair, Requester};
use crate::caller::external::RefusedClaim;
use crate::caller::{ExternalIdentity, VerifiedCaller};
use crate::request_id::RequestId;

/// The most characters of a text from an external issuer in a record.
const MOST_CHARACTERS: usize = 512;

/// The content of one line of the audit log. It keeps the typed values of the decision;
/// [`AuditRecord::to_json_line`] makes the text.
#[derive(Debug, Default)]
pub struct AuditRecord {
    /// When the decision was made.
    pub time: Timestamp,
    /// The response's `X-Request-Id`, which correlates the record with the response.
    pub request_id: RequestId,
    /// `exchange`, `kubeconfig`, `inputs`, `summary` for requests that have no record of their own, or what a
    /// delivery did.
    pub route: &'static str,
    /// `granted`, `denied` (policy or identity) or `failed` (could not be carried out).
    pub decision: &'static str,
    /// The stable reason code.
    pub reason: &'static str,
    /// The authenticated caller.
    pub caller: Option<VerifiedCaller>,
    /// The client certificate that identified no caller.
    pub refused_certificate: Option<RefusedCertificate>,
    /// The claim of an external caller's token that no rule accepts.
    pub refused_claim: Option<Box<RefusedClaim>>,
    /// The credential for fleet inputs that was presented, by its name.
    pub input_credential: Option<ObjectName>,
    /// The client certificate by which it was presented, if it was.
    pub input_certificate: Option<CertificateNote>,
    /// The TargetAccess that was named.
    pub access: Option<AccessName>,
    /// The grant, if there is one.
    pub grant: Option<Grant>,
    /// The TargetCluster, if no grant was needed.
    pub target: Option<ObjectName>,
    /// The delivery that the token was written for, by type and name.
    pub delivery: Option<String>,
    /// The token or the client certificate that was issued.
    pub token: Option<TokenNote>,
    /// Whether the token came from the cache: `hit` or `miss`.
    pub cache: Option<&'static str>,
    /// Whether the hub was unreachable, so that its earlier answer was used.
    pub stale: bool,
    /// How many requests a summary covers.
    pub count: Option<usize>,
    /// Where most of the summarised requests came from.
    pub sources: Option<String>,
    /// The namespaces of most of the known callers that sent the summarised requests.
    pub namespaces: Option<String>,
}

impl AuditRecord {
    /// Sets the decision and its reason.
    pub fn set_decision(&mut self, decision: &'static str, reason: Reason) {
        self.decision = decision;
        self.reason = reason.as_str();
    }

    /// Returns the record as one line of JSON. Members that were unknown when the decision was made
    /// are absent.
    ///
    /// # Errors
    /// The serialiser's error. Such a record must count as unwritten.
    pub fn to_json_line(&self) -> serde_json::Result<Vec<u8>> {
        let pair = self.grant.as_ref().map(Grant::pair);
        let caller = self
            .caller
            .as_ref()
            .or_else(|| match self.grant.as_ref()?.requester() {
                Requester::Caller(caller) => Some(caller),
                Requester::Operator | Requester::Delivery(_) | Requester::Probe => None,
            });
        let external = caller.and_then(VerifiedCaller::external);
        let one_line = |text: &str| foreign_text::one_line(text, MOST_CHARACTERS);
        let access = pair.map(|pair| pair.access()).or(self.access.as_ref());
        let account = pair.map(|pair| &pair.service_account().account);
        let mut line = serde_json::to_vec(&AuditLine {
            time: self.time,
            request_id: self.request_id.to_string(),
            route: self.route,
            decision: self.decision,
            reason: self.reason,
            caller: caller.map(|caller| caller.user().username.as_str()),
            caller_uid: caller.map(|caller| caller.user().uid.as_str()),
            caller_token_id: caller.and_then(VerifiedCaller::token_id),
            caller_certificate: caller
                .and_then(VerifiedCaller::certificate)
                .or(self.input_certificate.as_ref())
                .map(AuditCertificate::of_accepted)
                .or(self
                    .refused_certificate
                    .as_ref()
                    .map(AuditCertificate::of_refused)),
            input_credential: self.input_credential.as_ref().map(ObjectName::as_str),
            caller_issuer: external.map(|external| external.issuer().as_str()),
            caller_subject: external.map(|external| one_line(external.subject())),
            caller_run: external.and_then(ExternalIdentity::run).map(one_line),
            caller_claim: self.refused_claim.as_deref().map(AuditClaim::of),
            access: access.map(AccessName::to_string),
            service_account: account
                .map(|account| format!("{}/{}", account.namespace, account.name)),
            service_account_uid: pair.map(|pair| pair.service_account().uid.as_str()),
            target: pair
                .map(Pair::target)
                .or(self.target.as_ref())
                .map(ObjectName::as_str),
            audience: pair.map(|pair| pair.audience().as_str()),
            rule: pair.map(Pair::rule),
            delivery: self.delivery.as_deref(),
            token_id: self.token.as_ref().map(|token| &*token.id),
            key_id: self
                .token
                .as_ref()
                .and_then(|token| token.key_id.as_deref()),
            expires_at: self.token.as_ref().map(|token| token.expires_at),
            cache: self.cache,
            stale: self.stale,
            count: self.count,
            sources: self.sources.as_deref(),
            namespaces: self.namespaces.as_deref(),
        })?;
        line.push(b'\n');
        Ok(line)
    }
}

/// One line of the audit log, in the order of its members. Its text in the published schema is the
/// text here.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AuditLine<'a> {
    /// When the decision was made, in UTC.
    #[schemars(with = "String", extend("format" = "date-time"))]
    time: Timestamp,
    /// The answer's X-Request-Id.
    request_id: String,
    /// The route of the request: exchange, kubeconfig, inputs, or summary for several requests;
    /// delivery for an object that the controller writes, and probe for a token with which it probes
    /// the target.
    route: &'static str,
    /// denied is by policy or identity; failed could not be carried out.
    #[schemars(extend("enum" = ["granted", "denied", "failed"]))]
    decision: &'static str,
    /// The reason code.
    reason: &'static str,
    /// The caller's username.
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<&'a str>,
    /// The caller's UID.
    #[serde(skip_serializing_if = "Option::is_none")]
    caller_uid: Option<&'a str>,
    /// The jti of the caller's token.
    #[serde(skip_serializing_if = "Option::is_none")]
    caller_token_id: Option<&'a str>,
    /// The iss of the caller's token, if it is an external issuer.
    #[serde(skip_serializing_if = "Option::is_none")]
    caller_issuer: Option<&'a str>,
    /// The sub of such a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    caller_subject: Option<String>,
    /// The run or job that such a token names.
    #[serde(skip_serializing_if = "Option::is_none")]
    caller_run: Option<String>,
    /// The claim of such a token by which it misses the nearest rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    caller_claim: Option<AuditClaim<'a>>,
    /// The client certificate that identified the caller, or that was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    caller_certificate: Option<AuditCertificate<'a>>,
    /// The name of the credential for fleet inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    input_credential: Option<&'a str>,
    /// The access as namespace/name, as requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    access: Option<String>,
    /// The ServiceAccount of the token, as namespace/name.
    #[serde(skip_serializing_if = "Option::is_none")]
    service_account: Option<String>,
    /// The UID of that ServiceAccount.
    #[serde(skip_serializing_if = "Option::is_none")]
    service_account_uid: Option<&'a str>,
    /// The TargetCluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
    /// The audience of the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    audience: Option<&'a str>,
    /// The entry of allow that allowed the request, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<usize>,
    /// The type and name of the delivery that the token or certificate was written for.
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery: Option<&'a str>,
    /// The jti of the issued token, or the serial number of the issued client certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    token_id: Option<&'a str>,
    /// The kid of the key that signed the issued token.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_id: Option<&'a str>,
    /// When the issued token or client certificate ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    expires_at: Option<Timestamp>,
    /// Whether the token came from the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["hit", "miss"]))]
    cache: Option<&'static str>,
    /// Whether an earlier answer of the hub was used, because the hub did not answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(default)]
    stale: bool,
    /// Of a summary: how many requests it covers.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<usize>,
    /// Of a summary: the addresses that sent most of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    sources: Option<&'a str>,
    /// Of a summary: the namespaces of known callers that sent most of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespaces: Option<&'a str>,
}

/// The schema of a line of the audit log, which `docs/reference/keyferry-audit.schema.json` is.
/// Later versions add members.
pub fn record_schema() -> Value {
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "Printed from the types of broker/core; a change of this file is overwritten.",
        "title": "Audit record of Keyferry",
    });
    let mut line = schema_of::<AuditLine<'_>>();
    without_null(&mut line);
    line["description"] = "A line of the audit log. What was not known when the decision was made \
        is absent. Later versions add members."
        .into();
    if let (Some(schema), Value::Object(line)) = (schema.as_object_mut(), line) {
        schema.extend(line);
    }
    schema
}

/// Removes null from the types: a member without a value is absent.
fn without_null(schema: &mut Value) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [name] = types.as_slice() {
            schema["type"] = name.clone();
        }
    }
    if let Some(Value::Array(choices)) = schema.get_mut("enum") {
        choices.retain(|choice| !choice.is_null());
    }
    if let Some(Value::Object(members)) = schema.get_mut("properties") {
        members.values_mut().for_each(without_null);
    }
}

/// A client certificate that identified no caller. None of its content is repeated, because nothing
/// proves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedCertificate {
    /// The SHA-256 of the certificate, in hexadecimal.
    pub fingerprint: Arc<str>,
    /// Why it was refused.
    pub fault: CallerCertificateError,
}

/// The client certificate of a caller in the audit log.
#[derive(Default, Serialize, JsonSchema)]
struct AuditCertificate<'a> {
    /// Its URI.
    #[serde(skip_serializing_if = "Option::is_none")]
    uri: Option<&'a str>,
    /// Its serial number.
    #[serde(skip_serializing_if = "Option::is_none")]
    serial: Option<&'a str>,
    /// The SHA-256 of the CA certificate that verified it.
    #[serde(skip_serializing_if = "Option::is_none")]
    authority: Option<&'a str>,
    /// The SHA-256 of a refused certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<&'a str>,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<&'static str>,
}

impl<'a> AuditCertificate<'a> {
    fn of_accepted(note: &'a CertificateNote) -> Self {
        Self {
            uri: Some(&note.uri),
            serial: Some(&note.serial),
            authority: Some(&note.authority),
            ..Self::default()
        }
    }

    fn of_refused(refused: &'a RefusedCertificate) -> Self {
        Self {
            fingerprint: Some(&refused.fingerprint),
            fault: Some(refused.fault.as_str()),
            ..Self::default()
        }
    }
}

/// The claim by which a token misses the nearest rule, in the audit log.
#[derive(Serialize, JsonSchema)]
struct AuditClaim<'a> {
    /// Its name.
    name: String,
    /// What the token has.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    /// The rule, as a path of the configuration.
    rule: String,
}

impl<'a> AuditClaim<'a> {
    fn of(claim: &'a RefusedClaim) -> Self {
        Self {
            name: foreign_text::one_line(&claim.name, MOST_CHARACTERS),
            value: claim.value.as_deref(),
            rule: claim.rule_path(),
        }
    }
}

/// What the audit log reports of a token: its `jti`, its key and its expiry.
#[derive(Clone, Debug)]
pub struct TokenNote {
    id: Arc<str>,
    key_id: Option<Arc<str>>,
    expires_at: Timestamp,
}

impl TokenNote {
    /// Makes the note of an issued token.
    pub fn of_token(token: &BoundToken) -> Self {
        Self {
            id: token.shared_id(),
            key_id: Some(token.shared_kid()),
            expires_at: token.deadline().wall(),
        }
    }

    /// Makes the note of an issued client certificate, with its serial number.
    pub fn of_certificate(certificate: &IssuedCertificate) -> Self {
        Self {
            id: certificate.serial().into(),
            key_id: None,
            expires_at: certificate.not_after(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use keyferry_api::name::AccessName;
    use keyferry_api::reason::Reason;
    use serde_json::{Value, json};

    use super::{AuditRecord, record_schema};
    use crate::authorise::tests::{caller, granted, hub, usual};

    #[test]
    fn what_was_not_known_is_not_there() {
        let mut record = AuditRecord {
            request_id: 0xa.into(),
            route: "exchange",
            ..AuditRecord::default()
        };
        record.set_decision("denied", Reason::CallerMalformed);
        let line = r#"{"time":"1970-01-01T00:00:00Z","requestId":"000000000000000a","route":"exchange","decision":"denied","reason":"CallerMalformed"}"#;
        assert_eq!(
            String::from_utf8(record.to_json_line().unwrap()).unwrap(),
            format!("{line}\n")
        );
    }

    #[test]
    fn a_grant_names_the_account_and_the_caller() {
        let (policy, hub) = (usual(), hub());
        let access = Some(AccessName::parse("tenant-a/prod").unwrap());
        let grant = Some(granted(&policy, &hub, caller("tenant-a", "notifier")));
        let line: Value = serde_json::from_slice(
            &AuditRecord {
                access,
                grant,
                ..AuditRecord::default()
            }
            .to_json_line()
            .unwrap(),
        )
        .unwrap();
        let members = [
            "caller",
            "callerUid",
            "access",
            "serviceAccount",
            "serviceAccountUid",
            "target",
            "audience",
            "rule",
        ];
        let members: Vec<&Value> = members.iter().map(|member| &line[member]).collect();
        let caller = "system:serviceaccount:tenant-a:notifier";
        let wanted = json!([
            caller,
            "uid-tenant-a-notifier",
            "tenant-a/prod",
            "tenant-a/reconciler",
            "uid-tenant-a-reconciler",
            "prod",
            "prod",
            0
        ]);
        assert_eq!(json!(members), wanted);
        let schema = record_schema();
        for (member, value) in line.as_object().unwrap() {
            let kind = &schema["properties"][member]["type"];
            let is_fitting = match kind.as_str() {
                Some("string") => value.is_string(),
                Some("integer") => value.is_u64(),
                _ => false,
            };
            assert!(is_fitting, "{member} of type {kind}: {value}");
        }
        let always = json!(["time", "requestId", "route", "decision", "reason"]);
        assert_eq!(schema["required"], always);
    }
}
