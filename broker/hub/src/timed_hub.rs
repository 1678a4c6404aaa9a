//! Measures the duration of all TokenRequests: for mints, for the hub's consent and for the canary.

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

use crate::ports::{Hub, HubError};

/// A [`Hub`] that reports how long its TokenRequests take.
pub struct TimedHub {
    hub: Arc<dyn Hub>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
}

impl TimedHub {
    /// Wraps `hub`, and measures with the monotonic part of `clock`.
    pub fn new(hub: Arc<dyn Hub>, clock: Arc<dyn Clock>, metrics: Metrics) -> Self {
        Self {
            hub,
            clock,
            metrics,
        }
    }
}

impl Hub for TimedHub {
    fn token_request<'a>(
        &'a self,
        identity: &'a ServiceAccountIdentity,
        audience: &'a Audience,
        lifetime: Duration,
    ) -> BoxFuture<'a, Result<MintAnswer, HubError>> {
        Box::pin(async move {
            let sent = self.clock.now().mono;
            let answer = self.hub.token_request(identity, audience, lifetime).await;
            self.metrics
                .token_request_took(self.clock.now().mono.saturating_sub(sent), answer.is_ok());
            answer
        })
    }

    fn token_review<'a>(
        &'a self,
        token: &'a SecretString,
        audience: Option<&'a Audience>,
    ) -> BoxFuture<'a, Result<TokenReviewAnswer, HubError>> {
        self.hub.token_review(token, audience)
    }

    fn access_review<'a>(
        &'a self,
        user: &'a ReviewedUser,
        account: &'a ServiceAccount,
    ) -> BoxFuture<'a, Result<bool, HubError>> {
        self.hub.access_review(user, account)
    }

    fn path_review<'a>(
        &'a self,
        user: &'a ReviewedUser,
        path: &'static str,
    ) -> BoxFuture<'a, Result<bool, HubError>> {
        self.hub.path_review(user, path)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use keyferry_api::service_account::Uid;
    use keyferry_platform::testing::FakeClock;

    use super::*;

    /// A hub that advances the test's clock and then refuses.
    struct SlowHub(Arc<FakeClock>, Duration);

    impl Hub for SlowHub {
        fn token_request<'a>(
            &'a self,
            _: &'a ServiceAccountIdentity,
            _: &'a Audience,
            _: Duration,
        ) -> BoxFuture<'a, Result<MintAnswer, HubError>> {
            self.0.advance(self.1);
            Box::pin(async { Err(HubError::Forbidden("serviceaccounts/token".into())) })
        }

        fn token_review<'a>(
            &'a self,
            _: &'a SecretString,
            _: Option<&'a Audience>,
        ) -> BoxFuture<'a, Result<TokenReviewAnswer, HubError>> {
            Box::pin(async { Err(HubError::Forbidden("tokenreviews".into())) })
        }

        fn access_review<'a>(
            &'a self,
            _: &'a ReviewedUser,
            _: &'a ServiceAccount,
        ) -> BoxFuture<'a, Result<bool, HubError>> {
            Box::pin(async { Ok(true) })
        }

        fn path_review<'a>(
            &'a self,
            _: &'a ReviewedUser,
            _: &'static str,
        ) -> BoxFuture<'a, Result<bool, HubError>> {
            Box::pin(async { Ok(true) })
        }
    }

    #[tokio::test]
    async fn a_token_request_counts_into_its_bucket_and_others_do_not() {
        let (clock, metrics) = (FakeClock::start(), Metrics::default());
        let slow: Arc<dyn Hub> = Arc::new(SlowHub(Arc::clone(&clock), Duration::from_millis(300)));
        let hub = TimedHub::new(slow, clock, metrics.clone());
        let account =
            ServiceAccount::from_username("system:serviceaccount:tenant-a:reconciler").unwrap();
        let identity = ServiceAccountIdentity {
            account,
            uid: Uid::new("1").unwrap(),
        };
        let audience = Audience::new("https://prod.example.com").unwrap();
        assert!(
            hub.token_request(&identity, &audience, Duration::from_secs(600))
                .await
                .is_err()
        );
        assert!(
            hub.token_review(&SecretString::from("t"), None)
                .await
                .is_err()
        );
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
