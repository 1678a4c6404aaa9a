//! Certificates of every kind over real TLS connections, on both routes of the token API.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod connection;
mod inputs;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::config::NewCallerLimits;
use keyferry_api::service_account::Uid;
use keyferry_core::authorise::HubView;
use keyferry_issuer::testing::{SmallWorld, account_of};
use keyferry_keys::caller_certificate::CallerCertificateRule;
use keyferry_keys::testing::client_certificates::{
    Authorities, OTHER_URI, Outcome, TestCertificate, URI, table,
};
use keyferry_platform::audit_sink::AuditSink;
use keyferry_platform::clock::Clock;
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use self::connection::{Answer, Server};
use crate::broker::tests::{Records, certified};
use crate::caller_trust::TrustReader;
use crate::http::health::HealthParts;
use crate::inputs::tests::service;

const EXCHANGE: &str = "grant_type=client_credentials&audience=tenant-a%2Fprod";
const KUBECONFIG: &str = "/v1/namespaces/tenant-a/accesses/prod/kubeconfig";

/// A server with the two rules of the table, for accounts that exist.
struct Stage {
    world: SmallWorld,
    authorities: Authorities,
    trust: TrustReader,
    records: Arc<Records>,
    server: Server,
}

fn limits(per_second: Option<u32>) -> NewCallerLimits {
    let limit = per_second.and_then(NonZeroU32::new);
    NewCallerLimits {
        per_address: limit,
        per_namespace: limit,
    }
}

impl Stage {
    async fn start() -> Self {
        Self::limited(None).await
    }

    async fn limited(per_second: Option<u32>) -> Self {
        Self::with_inputs(per_second, false).await
    }

    async fn with_inputs(per_second: Option<u32>, has_inputs: bool) -> Self {
        let world = SmallWorld::start().await;
        let authorities = Authorities::new(now(&world));
        let trust = TrustReader::default();
        trust.replace(rules(&world, &authorities));
        let records = Arc::new(Records::default());
        let audit: Arc<dyn AuditSink> = Arc::<Records>::clone(&records);
        let inputs = has_inputs.then(|| {
            let (inputs, _) = service(&world.clock, &world.live, Arc::clone(&audit));
            // The policy counts as complete a second after the start.
            world.clock.advance(Duration::from_secs(1));
            inputs
        });
        let broker = certified(&world, trust.clone(), audit, limits(per_second));
        let health = HealthParts {
            serving: Arc::default(),
            stopping: Arc::default(),
            published: world.publisher.reader(),
            live: Arc::clone(&world.live),
            metrics: None,
        };
        let server = Server::start(broker, health, inputs).await;
        Self {
            world,
            authorities,
            trust,
            records,
            server,
        }
    }

    fn good(&self) -> TestCertificate {
        self.authorities.first.issue(URI, |_| {})
    }

    fn token(&self) -> String {
        let hour = Duration::from_secs(3600);
        let token = self
            .world
            .hub
            .token("tenant-a", "reconciler", "keyferry.dev", hour);
        token.unwrap().expose_secret().to_owned()
    }

    fn last_record(&self) -> Value {
        self.records.0.lock().unwrap().last().unwrap().clone()
    }

    /// Sends the exchange and the request for a kubeconfig, each over a connection of its own.
    async fn both(&self, certificate: Option<&TestCertificate>) -> [Option<Answer>; 2] {
        let mut answers = [None, None];
        for (answer, request) in answers.iter_mut().zip([post(EXCHANGE), get("")]) {
            let client = self.server.client(certificate);
            *answer = client.once(request).await.ok();
        }
        answers
    }

    /// The answers to a token that is not accepted: those of every identity fault.
    async fn identity_fault(&self) -> [Answer; 2] {
        let form = "grant_type=urn:ietf:params:oauth:grant-type:token-exchange\
                    &subject_token_type=urn:ietf:params:oauth:token-type:jwt\
                    &subject_token=a.b.c&audience=tenant-a%2Fprod";
        let client = || self.server.client(None);
        let exchange = client().once(post(form)).await.unwrap();
        let kubeconfig = client().once(get("Authorization: Bearer a.b.c\r\n")).await;
        let answers = [exchange, kubeconfig.unwrap()];
        assert_eq!(answers.each_ref().map(|answer| answer.status), [400, 401]);
        answers
    }
}

fn now(world: &SmallWorld) -> Timestamp {
    world.clock.now().wall
}

/// The rules of the table: reconciler under the first CA, deployer under the second.
fn rules(world: &SmallWorld, authorities: &Authorities) -> Vec<CallerCertificateRule> {
    let mut rules = authorities.rules();
    for (rule, name) in rules.iter_mut().zip(["reconciler", "deployer"]) {
        rule.identity.account = account_of("tenant-a", name);
        rule.identity.uid = world.live.service_account(&rule.identity.account).unwrap();
    }
    rules
}

fn post(form: &str) -> String {
    format!(
        "POST /v1/token HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {}\r\n\r\n{form}",
        form.len()
    )
}

fn get(headers: &str) -> String {
    format!("GET {KUBECONFIG} HTTP/1.1\r\nHost: a\r\n{headers}\r\n")
}

#[tokio::test]
async fn every_certificate_of_the_table_gets_its_answer_on_both_routes() {
    let stage = Stage::start().await;
    let faults = stage.identity_fault().await.map(Some);
    let cases = table(&stage.authorities, now(&stage.world));
    let (mut accepted, mut refused, mut unshaken) = (0, 0, 0);
    for case in &cases {
        let name = case.name;
        let records = || stage.records.0.lock().unwrap().len();
        let before = records();
        if let Outcome::RefusedWithoutTls(_) = case.outcome {
            continue;
        }
        let answers = stage.both(Some(&case.certificate)).await;
        match case.outcome {
            Outcome::Accepted => {
                let [exchange, kubeconfig] = answers.map(Option::unwrap);
                assert_eq!((exchange.status, kubeconfig.status), (200, 200), "{name}");
                let body: Value = serde_json::from_str(&exchange.body).unwrap();
                assert!(body["access_token"].is_string(), "{name}");
                assert!(kubeconfig.body.contains("token"), "{name}");
                let record = stage.last_record();
                assert_eq!(record["decision"], "granted", "{name}");
                assert_eq!(record["callerCertificate"]["uri"], URI, "{name}");
                accepted += 1;
            }
            Outcome::Refused(fault) => {
                assert_eq!(answers, faults, "{name}");
                let record = stage.last_record();
                assert_eq!(record["reason"], "CallerCertificateRejected", "{name}");
                assert_eq!(
                    record["callerCertificate"]["fault"],
                    fault.as_str(),
                    "{name}"
                );
                assert_eq!(record.get("caller"), None, "{name}");
                refused += 1;
            }
            Outcome::NoHandshake => {
                assert_eq!(answers, [None, None], "{name}");
                assert_eq!(records(), before, "{name}: no request arrived");
                unshaken += 1;
                continue;
            }
            Outcome::RefusedWithoutTls(_) => {}
        }
        assert_eq!(records(), before + 2, "{name}: each request has its record");
    }
    assert!(
        accepted >= 15 && refused >= 60 && unshaken >= 7,
        "{accepted} accepted, {refused} refused, {unshaken} without a handshake"
    );
}

#[tokio::test]
async fn a_token_works_as_before_and_never_beside_a_certificate() {
    let stage = Stage::start().await;
    let faults = stage.identity_fault().await;
    let token = stage.token();
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let exchange = format!(
        "grant_type=urn:ietf:params:oauth:grant-type:token-exchange\
         &subject_token_type=urn:ietf:params:oauth:token-type:jwt\
         &subject_token={token}&audience=tenant-a%2Fprod"
    );
    let assertion = format!(
        "{EXCHANGE}&client_assertion={token}\
         &client_assertion_type=urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    );
    for request in [post(&exchange), post(&assertion), get(&bearer)] {
        let answer = stage.server.client(None).once(request).await.unwrap();
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    let stranger = stage.authorities.second.issue(URI, |_| {});
    let with_credentials = format!("{EXCHANGE}&subject_token={token}");
    for certificate in [&stage.good(), &stranger] {
        for (request, fault) in [
            (post(&exchange), &faults[0]),
            (post(&assertion), &faults[0]),
            (post(&with_credentials), &faults[0]),
            (get(&bearer), &faults[1]),
        ] {
            let client = stage.server.client(Some(certificate));
            assert_eq!(client.once(request).await.as_ref().unwrap(), fault);
            assert_eq!(stage.last_record()["reason"], "CallerAmbiguous");
        }
    }
    // A certificate makes no other form valid.
    let without = exchange.replace(&format!("&subject_token={token}"), "");
    let client = stage.server.client(Some(&stage.good()));
    let answer = client.once(post(&without)).await.unwrap();
    assert_eq!(answer.status, 400);
    assert!(
        answer.body.contains("subject_token is missing"),
        "{}",
        answer.body
    );
}

#[tokio::test]
async fn nothing_but_the_certificate_of_the_connection_counts() {
    let stage = Stage::start().await;
    let pem = stage.good().to_pem().replace('\n', "%0A");
    let forwarded = format!(
        "X-Forwarded-Client-Cert: URI={URI}\r\nX-SSL-Client-Cert: {pem}\r\n\
         X-SSL-Client-Verify: SUCCESS\r\nClient-Cert: :aaaa:\r\n"
    );
    let answer = stage
        .server
        .client(None)
        .once(get(&forwarded))
        .await
        .unwrap();
    assert_eq!(answer.status, 401);
    assert_eq!(stage.last_record()["reason"], "CallerMissing");
    let answer = stage
        .server
        .client(None)
        .once(post(EXCHANGE))
        .await
        .unwrap();
    assert_eq!(answer.status, 400);
    assert!(
        answer.body.contains("client_assertion is missing"),
        "{}",
        answer.body
    );
}

#[tokio::test]
async fn no_session_is_resumed_so_none_carries_an_identity() {
    let stage = Stage::start().await;
    let good = stage.good();
    let with = stage.server.client(Some(&good));
    for _ in 0..2 {
        let mut connection = with.connect().await.unwrap();
        assert_eq!(connection.ask(get("")).await.unwrap().status, 200);
        assert_eq!(connection.handshake_kind(), rustls::HandshakeKind::Full);
    }
    // The same memory of sessions, but no certificate.
    let without = with.without_certificate();
    let mut connection = without.connect().await.unwrap();
    assert_eq!(connection.ask(get("")).await.unwrap().status, 401);
    assert_eq!(connection.handshake_kind(), rustls::HandshakeKind::Full);
    assert_eq!(stage.last_record()["reason"], "CallerMissing");
}

/// A connection may stay open for long, so what was true in its handshake is no proof.
#[tokio::test]
async fn an_open_connection_follows_the_rules_the_clock_and_the_account() {
    let stage = Stage::start().await;
    let fault = stage.identity_fault().await[1].clone();
    let good = stage.good();
    let client = stage.server.client(Some(&good));
    let mut connection = client.connect().await.unwrap();
    assert_eq!(connection.ask(get("")).await.unwrap().status, 200);

    let next = Authorities::new(now(&stage.world));
    stage.trust.replace(rules(&stage.world, &next));
    assert_eq!(connection.ask(get("")).await.unwrap(), fault, "another CA");
    stage.trust.replace(Vec::new());
    assert_eq!(connection.ask(get("")).await.unwrap(), fault, "no rule");
    stage.trust.replace(rules(&stage.world, &stage.authorities));
    assert_eq!(connection.ask(get("")).await.unwrap().status, 200);

    let account = account_of("tenant-a", "reconciler");
    let uid = stage.world.live.service_account(&account);
    let other = Some(Uid::new("recreated").unwrap());
    stage.world.live.set_service_account(account.clone(), other);
    assert_eq!(connection.ask(get("")).await.unwrap(), fault, "recreated");
    assert_eq!(stage.last_record()["reason"], "CallerIdentityChanged");
    stage.world.live.set_service_account(account.clone(), None);
    assert_eq!(connection.ask(get("")).await.unwrap(), fault, "deleted");
    stage.world.live.set_service_account(account, uid);
    assert_eq!(connection.ask(get("")).await.unwrap().status, 200);

    stage.world.clock.advance(Duration::from_secs(3541));
    assert_eq!(connection.ask(get("")).await.unwrap(), fault, "expired");
    assert_eq!(stage.last_record()["callerCertificate"]["fault"], "Expired");
}

#[tokio::test]
async fn the_authoriser_decides_as_for_a_token() {
    let stage = Stage::start().await;
    let deployer = stage.authorities.second.issue(OTHER_URI, |_| {});
    let own = "grant_type=client_credentials&audience=tenant-a%2Fdeploy";
    let client = stage.server.client(Some(&deployer));
    let answer = client.once(post(own)).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
    let record = stage.last_record();
    assert_eq!(record["caller"], "system:serviceaccount:tenant-a:deployer");
    let note = &record["callerCertificate"];
    assert_eq!(note["uri"], OTHER_URI);
    assert_eq!(note["authority"].as_str().unwrap().len(), 64);
    assert!(!note["serial"].as_str().unwrap().is_empty());
    assert_eq!(record.get("callerTokenId"), None);
    // The access of another account: the hub is asked about this caller, and says no.
    let hub = &stage.world.hub;
    let (reviews, token_reviews) = (hub.access_reviews(), hub.token_reviews());
    let answer = client.once(post(EXCHANGE)).await.unwrap();
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("invalid_target"), "{}", answer.body);
    assert_eq!(stage.last_record()["reason"], "DelegationForbidden");
    assert_eq!(hub.access_reviews(), reviews + 1);
    assert_eq!(hub.token_reviews(), token_reviews, "no token was shown");
    let absent = "grant_type=client_credentials&audience=tenant-b%2Fprod";
    let answer = client.once(post(absent)).await.unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&answer.body).unwrap()["error"],
        json!("invalid_target")
    );
}

#[tokio::test]
async fn unknown_certificates_are_limited_and_known_ones_are_not() {
    let stage = Stage::limited(Some(1)).await;
    let good = stage.good();
    let known = stage.server.client(Some(&good));
    assert_eq!(known.once(get("")).await.unwrap().status, 200);
    let mut statuses = Vec::new();
    for _ in 0..6 {
        let stranger = stage.authorities.second.issue(URI, |_| {});
        let client = stage.server.client(Some(&stranger));
        statuses.push(client.once(get("")).await.unwrap().status);
    }
    assert!(
        statuses.starts_with(&[401]) && statuses.ends_with(&[429]),
        "{statuses:?}"
    );
    for _ in 0..6 {
        assert_eq!(known.once(get("")).await.unwrap().status, 200);
    }
}
