//! The token API in front of the small world, and the forms of its two ways to present a token.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use keyferry_core::exchange::{
    ASSERTION_TYPE_JWT, GRANT_TYPE, GRANT_TYPE_CREDENTIALS, TOKEN_TYPE_JWT,
};
use keyferry_hub::targets::{Readiness, TargetState, TargetWriter};
use keyferry_issuer::testing::{FakeClock, SmallWorld};
use keyferry_platform::audit_sink::AuditSink;
use keyferry_platform::clock::Clock;
use keyferry_platform::policy_store::PolicyWriter;
use keyferry_platform::random::SystemRandomness;
use keyferry_server::authenticate::Authenticator;
use keyferry_server::broker::{Broker, BrokerParts};
use keyferry_server::delegate::Delegations;
use keyferry_server::http::health::HealthParts;
use keyferry_server::http::token_api::{ApiParts, PublicParts, token_api_routes};
use secrecy::ExposeSecret;

const MAX_STALE: Duration = Duration::from_secs(300);

/// The path of the token endpoint.
pub const PATH: &str = "/v1/token";
/// The media type of its requests.
pub const MEDIA_TYPE: &str = "application/x-www-form-urlencoded";

/// The same caller's token for the same access, presented in both ways.
pub struct Forms {
    /// As `subject_token` (RFC 8693).
    pub subject_token: String,
    /// As `client_assertion` (RFC 7523).
    pub client_assertion: String,
}

impl Forms {
    /// The forms with one new token of the access's own ServiceAccount.
    pub fn new(world: &SmallWorld) -> Self {
        let lifetime = Duration::from_secs(3600);
        let token = world
            .hub
            .token("tenant-a", "reconciler", "keyferry.dev", lifetime)
            .unwrap();
        let form = |pairs: [(&str, &str); 3]| {
            url::form_urlencoded::Serializer::new(String::new())
                .extend_pairs(pairs)
                .append_pair("audience", "tenant-a/prod")
                .finish()
        };
        Self {
            subject_token: form([
                ("grant_type", GRANT_TYPE),
                ("subject_token_type", TOKEN_TYPE_JWT),
                ("subject_token", token.expose_secret()),
            ]),
            client_assertion: form([
                ("grant_type", GRANT_TYPE_CREDENTIALS),
                ("client_assertion_type", ASSERTION_TYPE_JWT),
                ("client_assertion", token.expose_secret()),
            ]),
        }
    }
}

/// The routes that `keyferry serve` opens on the token API's listener, with a ready target.
pub fn routes(world: &SmallWorld, audit: Arc<dyn AuditSink>) -> Router {
    let targets = TargetWriter::default();
    let state = |generation| TargetState {
        generation,
        readiness: Readiness::Ready(None),
        client_certificate: false,
    };
    let states = world.policy.targets.values();
    targets.replace(
        states
            .map(|target| (target.name.clone(), state(target.generation)))
            .collect(),
    );
    let clock = || Arc::<FakeClock>::clone(&world.clock) as Arc<dyn Clock>;
    let hub = || Arc::clone(&world.port);
    let (callers, metrics) = (world.callers(MAX_STALE), world.metrics.clone());
    let broker = Broker::new(BrokerParts {
        policy: PolicyWriter::new(world.policy.clone()).reader(),
        live: Arc::clone(&world.live),
        published: world.publisher.reader(),
        targets: targets.reader(),
        authenticator: Authenticator::new(
            hub(),
            world.publisher.clone(),
            clock(),
            metrics.clone(),
            [7; 32],
            callers.clone(),
        ),
        external: None,
        delegations: Delegations::new(hub(), clock(), metrics.clone(), MAX_STALE),
        mint: world.new_mint(),
        audit,
        clock: clock(),
        random: Arc::new(SystemRandomness::default()),
        metrics,
        callers,
    });
    let health = HealthParts {
        serving: Arc::default(),
        stopping: Arc::default(),
        published: world.publisher.reader(),
        live: Arc::clone(&world.live),
        metrics: None,
    };
    token_api_routes(ApiParts {
        broker: Arc::new(broker),
        counts_sources: true,
        inputs: None,
        public: PublicParts {
            health,
            metadata: None,
            has_inputs: false,
        },
    })
}
