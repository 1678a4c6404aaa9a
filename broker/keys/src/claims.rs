//! The typed claims that kube-apiserver writes into a bound ServiceAccount token.

use jiff::Timestamp;
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_api::service_account::{ServiceAccount, ServiceAccountIdentity, Uid};
use serde_json::{Map, Value};

use crate::jwt::UnverifiedJwt;

/// The unverified claims of a bound ServiceAccount token; [`crate::verify`] checks them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccountClaims {
    /// The claims that every token has.
    pub registered: RegisteredClaims,
    /// The namespace and ServiceAccount of `kubernetes.io`; `sub` names the same.
    pub identity: ServiceAccountIdentity,
    /// `kubernetes.io.pod`: the token is invalid once this Pod is gone.
    pub pod: Option<BoundObject>,
    /// `kubernetes.io.node`: the Node of the Pod, or the Node to which the token is bound.
    pub node: Option<BoundObject>,
    /// `kubernetes.io.secret`: the token is invalid once this Secret is gone.
    pub secret: Option<BoundObject>,
}

/// The registered claims (RFC 7519 section 4.1) that [`crate::verify`] checks in every token. `sub`
/// is read by each kind of token in its own way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredClaims {
    /// `iss`, byte for byte.
    pub issuer: String,
    /// `aud`: at least one entry, none empty; a single string reads as one entry.
    pub audiences: Vec<String>,
    /// `exp`, whole seconds.
    pub expires_at: Timestamp,
    /// `iat`, whole seconds.
    pub issued_at: Timestamp,
    /// `nbf`, whole seconds.
    pub not_before: Option<Timestamp>,
    /// `jti`: Kubernetes 1.32 and later always write one.
    pub token_id: Option<String>,
}

impl RegisteredClaims {
    /// Reads the registered claims of a token, verified or not.
    ///
    /// # Errors
    /// [`ClaimsFormError`] names the first claim that is missing or of the wrong form.
    pub(crate) fn read(claims: &Map<String, Value>) -> Result<Self, ClaimsFormError> {
        Ok(Self {
            issuer: require_claim(read_text(claims, "iss", "iss")?, "iss")?.to_owned(),
            audiences: read_audiences(claims)?,
            expires_at: require_claim(read_time(claims, "exp")?, "exp")?,
            issued_at: require_claim(read_time(claims, "iat")?, "iat")?,
            not_before: read_time(claims, "nbf")?,
            token_id: read_text(claims, "jti", "jti")?.map(str::to_owned),
        })
    }
}

/// An object that a token names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundObject {
    /// Its name.
    pub name: ObjectName,
    /// Its UID; kube-apiserver omits a Node's if it does not know it.
    pub uid: Option<Uid>,
}

/// Why claims are not those of a bound ServiceAccount token. Names the claim, never its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimsFormError {
    /// A required claim is missing. Without `kubernetes.io` it is not a bound token, but perhaps a
    /// legacy one.
    #[error("token has no claim {0}")]
    Missing(&'static str),
    /// A claim has another JSON type, is an empty string where a value is needed, or is longer than
    /// any real one.
    #[error("token has a claim {0} of the wrong form")]
    WrongForm(&'static str),
    /// A time that is not a whole number of seconds, or lies outside the years 1970 to 9999.
    #[error("token has a claim {0} that is no whole number of seconds between 1970 and 9999")]
    NotATime(&'static str),
    /// `sub` names a ServiceAccount other than the one in `kubernetes.io`, or none.
    #[error("token has a sub that disagrees with its kubernetes.io claim")]
    SubjectDisagrees,
}

impl ServiceAccountClaims {
    /// Reads the claims of a token, verified or not.
    ///
    /// # Errors
    /// [`ClaimsFormError`] names the first claim that is not as kube-apiserver writes it.
    pub fn read(jwt: &UnverifiedJwt) -> Result<Self, ClaimsFormError> {
        Self::from_members(jwt.claims())
    }

    /// Reads claims that were parsed with [`crate::json`].
    ///
    /// # Errors
    /// [`ClaimsFormError`] names the first claim that is not as kube-apiserver writes it.
    pub fn from_members(claims: &Map<String, Value>) -> Result<Self, ClaimsFormError> {
        let bound = read_object(claims, "kubernetes.io", "kubernetes.io")?
            .ok_or(ClaimsFormError::Missing("kubernetes.io"))?;
        let identity = read_identity(bound)?;
        let subject = require_claim(read_text(claims, "sub", "sub")?, "sub")?;
        if subject != identity.account.username() {
            return Err(ClaimsFormError::SubjectDisagrees);
        }
        Ok(Self {
            registered: RegisteredClaims::read(claims)?,
            identity,
            pod: bound_object(bound, "pod", "kubernetes.io.pod")?,
            node: bound_object(bound, "node", "kubernetes.io.node")?,
            secret: bound_object(bound, "secret", "kubernetes.io.secret")?,
        })
    }
}

fn read_identity(bound: &Map<String, Value>) -> Result<ServiceAccountIdentity, ClaimsFormError> {
    const NAMESPACE_CLAIM: &str = "kubernetes.io.namespace";
    const ACCOUNT_CLAIM: &str = "kubernetes.io.serviceaccount";
    const NAME_CLAIM: &str = "kubernetes.io.serviceaccount.name";
    const UID_CLAIM: &str = "kubernetes.io.serviceaccount.uid";
    let namespace = require_claim(
        read_text(bound, "namespace", NAMESPACE_CLAIM)?,
        NAMESPACE_CLAIM,
    )?;
    let account = read_object(bound, "serviceaccount", ACCOUNT_CLAIM)?
        .ok_or(ClaimsFormError::Missing(ACCOUNT_CLAIM))?;
    let name = require_claim(read_text(account, "name", NAME_CLAIM)?, NAME_CLAIM)?;
    let uid = require_claim(read_text(account, "uid", UID_CLAIM)?, UID_CLAIM)?;
    Ok(ServiceAccountIdentity {
        account: ServiceAccount {
            namespace: Namespace::new(namespace)
                .map_err(|_| ClaimsFormError::WrongForm(NAMESPACE_CLAIM))?,
            name: ObjectName::new(name).map_err(|_| ClaimsFormError::WrongForm(NAME_CLAIM))?,
        },
        uid: Uid::new(uid).map_err(|_| ClaimsFormError::WrongForm(UID_CLAIM))?,
    })
}

fn bound_object(
    bound: &Map<String, Value>,
    member: &str,
    claim: &'static str,
) -> Result<Option<BoundObject>, ClaimsFormError> {
    let Some(named) = read_object(bound, member, claim)? else {
        return Ok(None);
    };
    let name = require_claim(read_text(named, "name", claim)?, claim)?;
    let uid = read_text(named, "uid", claim)?.map(Uid::new).transpose();
    Ok(Some(BoundObject {
        name: ObjectName::new(name).map_err(|_| ClaimsFormError::WrongForm(claim))?,
        uid: uid.map_err(|_| ClaimsFormError::WrongForm(claim))?,
    }))
}

fn read_audiences(claims: &Map<String, Value>) -> Result<Vec<String>, ClaimsFormError> {
    const WRONG_AUDIENCE: ClaimsFormError = ClaimsFormError::WrongForm("aud");
    let entry = |value: &Value| match value {
        Value::String(audience) if !audience.is_empty() => Ok(audience.clone()),
        _ => Err(WRONG_AUDIENCE),
    };
    match claims.get("aud") {
        None => Err(ClaimsFormError::Missing("aud")),
        Some(Value::Array(entries)) if entries.is_empty() => Err(WRONG_AUDIENCE),
        Some(Value::Array(entries)) => entries.iter().map(entry).collect(),
        Some(single) => Ok(vec![entry(single)?]),
    }
}

/// Reads a NumericDate (RFC 7519 section 2). Kubernetes uses whole seconds only.
fn read_time(
    claims: &Map<String, Value>,
    claim: &'static str,
) -> Result<Option<Timestamp>, ClaimsFormError> {
    let Some(value) = claims.get(claim) else {
        return Ok(None);
    };
    let seconds = value
        .as_i64()
        .filter(|seconds| *seconds >= 0)
        .ok_or(ClaimsFormError::NotATime(claim))?;
    Timestamp::from_second(seconds)
        .map(Some)
        .map_err(|_| ClaimsFormError::NotATime(claim))
}

fn read_object<'a>(
    members: &'a Map<String, Value>,
    member: &str,
    claim: &'static str,
) -> Result<Option<&'a Map<String, Value>>, ClaimsFormError> {
    match members.get(member) {
        None => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => Err(ClaimsFormError::WrongForm(claim)),
    }
}

pub(crate) fn read_text<'a>(
    members: &'a Map<String, Value>,
    member: &str,
    claim: &'static str,
) -> Result<Option<&'a str>, ClaimsFormError> {
    match members.get(member) {
        None => Ok(None),
        Some(Value::String(text)) if !text.is_empty() && text.len() <= MAX_CLAIM_BYTES => {
            Ok(Some(text))
        }
        Some(_) => Err(ClaimsFormError::WrongForm(claim)),
    }
}

/// Longer than any issuer (600), subject (338) or UID. It bounds the audit record; it is not a rule
/// of Kubernetes.
pub(crate) const MAX_CLAIM_BYTES: usize = 1024;

pub(crate) fn require_claim<T>(
    value: Option<T>,
    claim: &'static str,
) -> Result<T, ClaimsFormError> {
    value.ok_or(ClaimsFormError::Missing(claim))
}

#[cfg(test)]
mod tests;
