//! Tokens that a test or the demo mints without a TokenRequest.

use std::time::Duration;

use secrecy::SecretString;

use super::EmbeddedHub;
use super::claims::{self, PodBinding, TokenSpec};
use crate::EmbeddedError;

impl EmbeddedHub {
    /// Mints a bound token with one audience, like TokenRequest, but with any lifetime.
    ///
    /// # Errors
    /// When the ServiceAccount does not exist.
    pub fn token(
        &self,
        namespace: &str,
        service_account: &str,
        audience: &str,
        lifetime: Duration,
    ) -> Result<SecretString, EmbeddedError> {
        self.sign_bound(namespace, service_account, audience, lifetime, None)
    }

    /// Mints the same token, bound to a pod. The pod need not exist.
    ///
    /// # Errors
    /// When the ServiceAccount does not exist.
    pub fn pod_token(
        &self,
        namespace: &str,
        service_account: &str,
        audience: &str,
        lifetime: Duration,
        pod: &PodBinding,
    ) -> Result<SecretString, EmbeddedError> {
        self.sign_bound(namespace, service_account, audience, lifetime, Some(pod))
    }

    /// Mints a token as in Secrets of type `kubernetes.io/service-account-token`: without audience
    /// and expiry. The hub accepts it for its own API audience only.
    ///
    /// # Errors
    /// When the ServiceAccount does not exist.
    pub fn legacy_token(
        &self,
        namespace: &str,
        service_account: &str,
    ) -> Result<SecretString, EmbeddedError> {
        let account = self.service_account(namespace, service_account)?;
        claims::sign_legacy(&self.policy, namespace, service_account, &account.uid)
            .map(SecretString::from)
    }

    fn sign_bound(
        &self,
        namespace: &str,
        service_account: &str,
        audience: &str,
        lifetime: Duration,
        pod: Option<&PodBinding>,
    ) -> Result<SecretString, EmbeddedError> {
        let account = self.service_account(namespace, service_account)?;
        let spec = TokenSpec {
            namespace,
            name: service_account,
            uid: &account.uid,
            audiences: &[audience.to_owned()],
            seconds: i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX),
            pod,
        };
        claims::sign(&self.policy, &spec).map(SecretString::from)
    }
}
