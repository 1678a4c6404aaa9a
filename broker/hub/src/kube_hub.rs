//! The hub's token and review APIs behind one port. Mints and reviews each have a limit on
//! concurrent calls and a circuit breaker. The duration of each TokenRequest is measured here: for
//! mints, for the hub's consent and for the canary.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use keyferry_api::audience::Audience;
use keyferry_api::service_account::{ServiceAccount, ServiceAccountIdentity};
use keyferry_core::caller::{ReviewedUser, TokenReviewAnswer};
use keyferry_keys::bound_token::MintAnswer;
use keyferry_platform::clock::Clock;
use keyferry_platform::metrics::Metrics;
use secrecy::SecretString;
use tokio::sync::Semaphore;

use super::client::HubClient;
use super::token_request::TokenRequest;
use super::{access_review, token_review};
use crate::circuit::Circuit;
use crate::ports::{Hub, HubError};

/// The most concurrent calls, for mints and reviews apart. It is well below the 200 mutating
/// requests that an apiserver serves concurrently.
const IN_FLIGHT: usize = 16;
/// How long a call waits for a free slot.
const SLOT_TIMEOUT: Duration = Duration::from_secs(10);

/// The real hub.
pub struct KubeHub {
    client: HubClient,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    mints: Gate,
    reviews: Gate,
}

/// The limits that each call passes.
struct Gate {
    circuit: Circuit,
    in_flight: Semaphore,
}

impl Gate {
    fn new(circuit: Circuit) -> Self {
        Self {
            circuit,
            in_flight: Semaphore::new(IN_FLIGHT),
        }
    }
}

impl KubeHub {
    /// Creates the hub behind `client`. The monotonic part of `clock` measures TokenRequests for
    /// `metrics`.
    pub fn new(client: HubClient, clock: Arc<dyn Clock>, metrics: Metrics) -> Self {
        Self {
            client,
            clock,
            metrics,
            mints: Gate::new(Circuit::on_silence()),
            reviews: Gate::new(Circuit::on_any_failure()),
        }
    }

    async fn guard_call<T>(
        &self,
        gate: &Gate,
        call: impl Future<Output = Result<T, HubError>>,
    ) -> Result<T, HubError> {
        let permit = tokio::time::timeout(SLOT_TIMEOUT, gate.in_flight.acquire()).await;
        let _permit = permit
            .map_err(|_| HubError::Busy)?
            .map_err(|_| HubError::Busy)?;
        gate.circuit.admit_call(self.clock.now())?;
        let result = call.await;
        gate.circuit.note_result(&result, self.clock.now());
        result
    }

    /// Measures a TokenRequest, with its wait for a free slot.
    async fn timed<T>(
        &self,
        call: impl Future<Output = Result<T, HubError>>,
    ) -> Result<T, HubError> {
        let sent = self.clock.now().mono;
        let result = call.await;
        let duration = self.clock.now().mono.saturating_sub(sent);
        self.metrics.token_request_took(duration, result.is_ok());
        result
    }
}

impl Hub for KubeHub {
    fn token_request<'a>(
        &'a self,
        identity: &'a ServiceAccountIdentity,
        audience: &'a Audience,
        lifetime: Duration,
    ) -> BoxFuture<'a, Result<MintAnswer, HubError>> {
        let request = TokenRequest {
            account: &identity.account,
            uid: Some(&identity.uid),
            audience,
            lifetime,
        };
        let call = request.send(&self.client);
        Box::pin(self.timed(self.guard_call(&self.mints, call)))
    }

    fn token_review<'a>(
        &'a self,
        token: &'a SecretString,
        audience: Option<&'a Audience>,
    ) -> BoxFuture<'a, Result<TokenReviewAnswer, HubError>> {
        Box::pin(self.guard_call(
            &self.reviews,
            token_review::create_token_review(&self.client, token, audience),
        ))
    }

    fn access_review<'a>(
        &'a self,
        user: &'a ReviewedUser,
        account: &'a ServiceAccount,
    ) -> BoxFuture<'a, Result<bool, HubError>> {
        Box::pin(self.guard_call(
            &self.reviews,
            access_review::create_access_review(&self.client, user, account),
        ))
    }

    fn path_review<'a>(
        &'a self,
        user: &'a ReviewedUser,
        path: &'static str,
    ) -> BoxFuture<'a, Result<bool, HubError>> {
        Box::pin(self.guard_call(
            &self.reviews,
            access_review::of_path(&self.client, user, path),
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use keyferry_platform::testing::FakeClock;

    use super::*;

    #[tokio::test]
    async fn a_token_request_counts_into_the_bucket_of_its_duration() {
        let (clock, metrics) = (FakeClock::start(), Metrics::default());
        let nowhere = kube::Config::new("https://hub.invalid".parse().unwrap());
        let client = HubClient::new(nowhere).unwrap();
        let hub = KubeHub::new(client, Arc::<FakeClock>::clone(&clock), metrics.clone());
        let slow = async {
            clock.advance(Duration::from_millis(300));
            Err::<(), _>(HubError::Forbidden("serviceaccounts/token".into()))
        };
        assert!(hub.timed(hub.guard_call(&hub.mints, slow)).await.is_err());
        let text = metrics.exposition();
        for line in [
            "keyferry_token_request_duration_seconds_bucket{le=\"0.25\",result=\"failure\"} 0",
            "keyferry_token_request_duration_seconds_bucket{le=\"0.5\",result=\"failure\"} 1",
            "keyferry_token_request_duration_seconds_bucket{le=\"+Inf\",result=\"failure\"} 1",
            "keyferry_token_request_duration_seconds_sum{result=\"failure\"} 0.3",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line} in {text}");
        }
        assert!(
            !text.contains("duration_seconds_count{result=\"success\"}"),
            "{text}"
        );
    }
}
