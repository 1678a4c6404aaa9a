//! Client certificates of readers of fleet inputs, over real TLS connections.

use std::sync::Arc;
use std::time::Duration;

use keyferry_api::config::{ClientCertificateRule, InputCredential, InputProof, InputScope};
use keyferry_api::name::{ClusterDns, ObjectName};
use keyferry_core::inputs::credential::InputToken;
use keyferry_keys::caller_certificate::CallerCertificateRule;
use keyferry_keys::testing::client_certificates::{Authorities, OTHER_URI, Outcome, URI, table};
use secrecy::ExposeSecret;

use super::connection::Answer;
use super::{EXCHANGE, Stage, get, now, post, rules};

/// The certificates of the first CA read a.example.com, and those of the second b.example.com.
fn input_rules(authorities: &Authorities) -> Vec<CallerCertificateRule<Arc<InputCredential>>> {
    let clusters = ["a", "b"].into_iter();
    authorities
        .rules()
        .into_iter()
        .zip(clusters)
        .map(|(rule, cluster)| {
            let dns = ClusterDns::new(format!("{cluster}.example.com")).unwrap();
            CallerCertificateRule {
                identity: Arc::new(InputCredential {
                    name: ObjectName::new(cluster).unwrap(),
                    scope: InputScope::Cluster(dns),
                    proof: InputProof::Certificate(ClientCertificateRule {
                        authority_secret: ObjectName::new("ca").unwrap(),
                        uri: rule.uri.clone(),
                        allow_hub_client_ca: false,
                    }),
                }),
                uri: rule.uri,
                authority: rule.authority,
                refused_keys: rule.refused_keys,
            }
        })
        .collect()
}

fn read(cluster: &str, headers: &str) -> String {
    format!(
        "GET /api/v2/flux/clusters/{cluster}.example.com/cluster HTTP/1.1\r\nHost: a\r\n\
         {headers}\r\n"
    )
}

async fn stage(per_second: Option<u32>) -> Stage {
    let stage = Stage::with_inputs(per_second, true).await;
    stage.trust.replace(Vec::new());
    stage.trust.replace_inputs(input_rules(&stage.authorities));
    stage
}

impl Stage {
    /// The answer to every credential for inputs that is not accepted.
    async fn no_credential(&self) -> Answer {
        let token = InputToken::of(&[77; 32]);
        let header = format!(
            "Authorization: Bearer {}\r\n",
            token.secret().expose_secret()
        );
        let client = self.server.client(None);
        let answer = client.once(read("a", &header)).await.unwrap();
        assert_eq!(answer.status, 401);
        answer
    }
}

#[tokio::test]
async fn every_certificate_of_the_table_gets_its_answer_for_inputs() {
    let stage = stage(None).await;
    let unknown_token = stage.no_credential().await;
    let admin = "Authorization: Bearer keyferry-none\r\n";
    assert_eq!(
        stage
            .server
            .client(None)
            .once(read("a", admin))
            .await
            .unwrap(),
        unknown_token
    );
    let cases = table(&stage.authorities, now(&stage.world));
    let (mut accepted, mut refused, mut unshaken) = (0, 0, 0);
    let mut not_found: Option<Answer> = None;
    for case in &cases {
        let name = case.name;
        if let Outcome::RefusedWithoutTls(_) = case.outcome {
            continue;
        }
        let client = stage.server.client(Some(&case.certificate));
        let own = client.once(read("a", "")).await.ok();
        match case.outcome {
            Outcome::Accepted => {
                let own = own.unwrap();
                assert_eq!(own.status, 200, "{name}: {}", own.body);
                assert!(own.body.contains("a.example.com"), "{name}: {}", own.body);
                let record = stage.last_record();
                assert_eq!(record["inputCredential"], "a", "{name}");
                assert_eq!(record["callerCertificate"]["uri"], URI, "{name}");
                assert_eq!(record.get("caller"), None, "{name}");
                // Another cluster's path is as unknown as one that does not exist.
                for cluster in ["b", "unknown"] {
                    let other = client.once(read(cluster, "")).await.unwrap();
                    assert_eq!(other.status, 404, "{name}");
                    let first = not_found.get_or_insert_with(|| other.clone());
                    assert_eq!(*first, other, "{name}: {cluster}");
                }
                // The credential may send five requests a second.
                let second = Duration::from_secs(1);
                stage.world.clock.advance_monotonic(second);
                accepted += 1;
            }
            Outcome::Refused(fault) => {
                assert_eq!(own.as_ref(), Some(&unknown_token), "{name}");
                let record = stage.last_record();
                assert_eq!(record["reason"], "InputCredentialRejected", "{name}");
                let found = &record["callerCertificate"]["fault"];
                assert_eq!(found, fault.as_str(), "{name}");
                assert_eq!(record.get("inputCredential"), None, "{name}");
                for cluster in ["b", "unknown"] {
                    let other = client.once(read(cluster, "")).await.ok();
                    assert_eq!(other.as_ref(), Some(&unknown_token), "{name}: {cluster}");
                }
                refused += 1;
            }
            Outcome::NoHandshake => {
                assert_eq!(own, None, "{name}");
                unshaken += 1;
            }
            Outcome::RefusedWithoutTls(_) => {}
        }
    }
    assert!(
        accepted >= 15 && refused >= 60 && unshaken >= 7,
        "{accepted} accepted, {refused} refused, {unshaken} without a handshake"
    );
    let second = stage.authorities.second.issue(OTHER_URI, |_| {});
    let client = stage.server.client(Some(&second));
    assert_eq!(client.once(read("b", "")).await.unwrap().status, 200);
    assert_eq!(client.once(read("a", "")).await.ok(), not_found);
}

#[tokio::test]
async fn a_reader_is_no_caller_of_tokens_and_a_caller_no_reader() {
    let stage = stage(None).await;
    let faults = stage.identity_fault().await;
    let unknown_token = stage.no_credential().await;
    let good = stage.good();
    let reader = stage.server.client(Some(&good));
    assert_eq!(reader.once(read("a", "")).await.unwrap().status, 200);
    assert_eq!(reader.once(post(EXCHANGE)).await.unwrap(), faults[0]);
    assert_eq!(
        stage.last_record()["callerCertificate"]["fault"],
        "OtherUri"
    );
    assert_eq!(reader.once(get("")).await.unwrap(), faults[1]);

    stage.trust.replace(rules(&stage.world, &stage.authorities));
    assert_eq!(reader.once(get("")).await.unwrap().status, 200);
    assert_eq!(reader.once(read("a", "")).await.unwrap(), unknown_token);
}

#[tokio::test]
async fn a_certificate_beside_a_token_reads_nothing() {
    let stage = stage(None).await;
    let unknown_token = stage.no_credential().await;
    let token = InputToken::of(&[1; 32]);
    let token = token.secret().expose_secret();
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let without = stage.server.client(None);
    assert_eq!(without.once(read("a", &bearer)).await.unwrap().status, 200);
    let good = stage.good();
    let with = stage.server.client(Some(&good));
    for header in [
        bearer.as_str(),
        "Authorization: Digest x\r\n",
        "Authorization: \r\n",
    ] {
        let answer = with.once(read("a", header)).await.unwrap();
        assert_eq!(answer, unknown_token, "{header}");
        assert_eq!(stage.last_record()["reason"], "CallerAmbiguous", "{header}");
    }
    assert_eq!(with.once(read("a", "")).await.unwrap().status, 200);
}

/// A connection may stay open for long, so what was true in its handshake is no proof.
#[tokio::test]
async fn an_open_connection_follows_the_rules_and_the_clock() {
    let stage = stage(None).await;
    let unknown_token = stage.no_credential().await;
    let good = stage.good();
    let mut connection = stage.server.client(Some(&good)).connect().await.unwrap();
    assert_eq!(connection.ask(read("a", "")).await.unwrap().status, 200);
    stage.trust.replace_inputs(Vec::new());
    assert_eq!(connection.ask(read("a", "")).await.unwrap(), unknown_token);
    let mut moved = input_rules(&stage.authorities);
    let (one, other) = moved.split_at_mut(1);
    std::mem::swap(&mut one[0].identity, &mut other[0].identity);
    stage.trust.replace_inputs(moved);
    assert_eq!(connection.ask(read("a", "")).await.unwrap().status, 404);
    assert_eq!(connection.ask(read("b", "")).await.unwrap().status, 200);
    stage.trust.replace_inputs(input_rules(&stage.authorities));
    assert_eq!(connection.ask(read("a", "")).await.unwrap().status, 200);
    stage.world.clock.advance(Duration::from_secs(3541));
    assert_eq!(connection.ask(read("a", "")).await.unwrap(), unknown_token);
    assert_eq!(stage.last_record()["callerCertificate"]["fault"], "Expired");
}

#[tokio::test]
async fn unknown_certificates_are_limited_and_known_readers_are_not() {
    let stage = stage(Some(1)).await;
    let good = stage.good();
    let known = stage.server.client(Some(&good));
    assert_eq!(known.once(read("a", "")).await.unwrap().status, 200);
    let mut statuses = Vec::new();
    for _ in 0..6 {
        let stranger = stage.authorities.second.issue(URI, |_| {});
        let client = stage.server.client(Some(&stranger));
        statuses.push(client.once(read("a", "")).await.unwrap().status);
    }
    assert!(
        statuses.starts_with(&[401]) && statuses.ends_with(&[429]),
        "{statuses:?}"
    );
    for _ in 0..6 {
        assert_eq!(known.once(read("a", "")).await.unwrap().status, 200);
    }
}
