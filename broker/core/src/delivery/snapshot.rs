//! The inputs from which a delivered object is rendered: a snapshot of access, target and CA, and the
//! credential.

use jiff::Timestamp;
use keyferry_api::config::{TargetAccess, TargetCluster};
use keyferry_api::service_account::Uid;
use secrecy::SecretString;

/// The inputs from which an object is rendered.
pub struct Snapshot<'a> {
    /// The access, which is an object of the hub.
    pub access: &'a TargetAccess,
    /// The access's UID, which owns the object.
    pub owner: &'a Uid,
    /// The UID of the ServiceAccount: a recreated account of the same name is a different one.
    pub account_uid: &'a Uid,
    /// The target.
    pub target: &'a TargetCluster,
    /// The target's CA certificates as PEM; none means the client's own roots.
    pub ca_pem: Option<&'a str>,
}

/// The token to write into an object.
pub struct Bearer<'a> {
    /// The token.
    pub token: &'a SecretString,
    /// What the annotations say of it: its `jti`, and the `kid` of the key that signed it.
    pub note: CredentialNote<'a>,
}

/// The certificate to write into an object, with its key.
pub struct DeliveredCertificate<'a> {
    /// The certificate as PEM.
    pub chain: &'a str,
    /// Its private key as PEM.
    pub key: &'a SecretString,
    /// What the annotations say of it: its serial number.
    pub note: CredentialNote<'a>,
}

/// What an object's annotations say of the credential in it.
#[derive(Clone, Copy, Debug)]
pub struct CredentialNote<'a> {
    /// What identifies the credential.
    pub id: &'a str,
    /// The key that signed it, if that is a key of the hub.
    pub key_id: Option<&'a str>,
    /// When it expires.
    pub expires_at: Timestamp,
    /// When it is due for renewal.
    pub renew_at: Timestamp,
}
