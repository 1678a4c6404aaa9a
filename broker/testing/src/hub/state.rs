//! The state of a running hub.

use std::sync::Mutex;

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use secrecy::SecretString;

use super::access::Grant;
#[cfg(feature = "faults")]
use super::faults::Faults;
use super::keys::{KeyAlgorithm, KeyRing};
use super::objects::Objects;
use super::routes::Requests;
use super::{DiscoveryAccess, HubOptions};
use crate::EmbeddedError;
use crate::clock::Clock;

pub(super) struct HubState {
    pub(super) url: String,
    pub(super) issuer: String,
    pub(super) algorithm: KeyAlgorithm,
    pub(super) checks_uid: bool,
    /// In seconds.
    pub(super) max_token_seconds: Option<i64>,
    pub(super) discovery_access: DiscoveryAccess,
    pub(super) broker_token: SecretString,
    pub(super) objects: Objects,
    pub(super) keys: Mutex<KeyRing>,
    pub(super) grants: Mutex<Vec<Grant>>,
    pub(super) requests: Requests,
    #[cfg(feature = "faults")]
    pub(super) faults: Faults,
    clock: Clock,
}

impl HubState {
    pub(super) fn new(url: String, options: HubOptions) -> Result<Self, EmbeddedError> {
        Ok(Self {
            issuer: options.issuer.unwrap_or_else(|| url.clone()),
            url,
            algorithm: options.algorithm,
            checks_uid: options.checks_uid,
            max_token_seconds: options
                .max_token_lifetime
                .and_then(|lifetime| i64::try_from(lifetime.as_secs()).ok()),
            discovery_access: options.discovery_access,
            broker_token: random_token()?,
            objects: Objects::new(options.clock.clone()),
            keys: Mutex::new(KeyRing::new(options.algorithm)?),
            grants: Mutex::new(Vec::new()),
            requests: Requests::default(),
            #[cfg(feature = "faults")]
            faults: Faults::default(),
            clock: options.clock,
        })
    }

    pub(super) fn now(&self) -> Timestamp {
        (self.clock)()
    }
}

/// 256 random bits, in a form that is not a JWT.
pub(crate) fn random_token() -> Result<SecretString, EmbeddedError> {
    let mut bytes = [0_u8; 32];
    rand::fill(&mut bytes)?;
    Ok(SecretString::from(URL_SAFE_NO_PAD.encode(bytes)))
}
