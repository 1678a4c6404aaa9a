//! The hub's token and review APIs behind one port: a common limit on calls in flight, and a circuit each for mints and reviews.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use keyferry_core::audience::Audience;
use keyferry_core::bound_token::MintAnswer;
use keyferry_core::caller::{ReviewedUser, TokenReviewAnswer};
use keyferry_core::service_account::{ServiceAccount, ServiceAccountIdentity};
use secrecy::SecretString;
use tokio::sync::Semaphore;

use super::client::HubClient;
use super::{access_review, token_request, token_review};
use crate::circuit::Circuit;
use crate::clock::Clock;
use crate::ports::{Hub, HubError};

/// Calls in flight at most: well under the 200 mutating requests that an apiserver takes at once.
const IN_FLIGHT: usize = 32;

/// The real hub.
pub struct KubeHub {
    client: HubClient,
    clock: Arc<dyn Clock>,
    mints: Circuit,
    reviews: Circuit,
    in_flight: Semaphore,
}

impl KubeHub {
    /// The hub that `client` speaks to.
    pub fn new(client: HubClient, clock: Arc<dyn Clock>) -> KubeHub {
        KubeHub { client, clock, mints: Circuit::on_silence(), reviews: Circuit::on_any_failure(), in_flight: Semaphore::new(IN_FLIGHT) }
    }

    async fn guarded<T>(&self, circuit: &Circuit, call: impl Future<Output = Result<T, HubError>>) -> Result<T, HubError> {
        let _permit = self.in_flight.acquire().await.map_err(|_| HubError::Unreachable("Keyferry is stopping".to_owned()))?;
        circuit.admit(self.clock.now())?;
        let result = call.await;
        circuit.note(&result, self.clock.now());
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
        Box::pin(self.guarded(&self.mints, token_request::create(&self.client, identity, audience, lifetime)))
    }

    fn token_review<'a>(
        &'a self,
        token: &'a SecretString,
        audience: Option<&'a Audience>,
    ) -> BoxFuture<'a, Result<TokenReviewAnswer, HubError>> {
        Box::pin(self.guarded(&self.reviews, token_review::create(&self.client, token, audience)))
    }

    fn access_review<'a>(&'a self, user: &'a ReviewedUser, account: &'a ServiceAccount) -> BoxFuture<'a, Result<bool, HubError>> {
        Box::pin(self.guarded(&self.reviews, access_review::create(&self.client, user, account)))
    }
}
