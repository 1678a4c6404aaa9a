//! The table of client certificates against a Keyferry process and a real hub, on both routes.

use std::sync::Arc;

use jiff::Timestamp;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{
    AUDIENCE_A, Access, Broker, BrokerSpec, Target, World, make_tenant, put_secret,
};
use keyferry_keys::testing::client_certificates::{
    Authorities, OTHER_URI, Outcome, TestCertificate, URI, table,
};
use reqwest::Client;

use super::caller::{grant, uid};

const NAMESPACE: &str = "mtls-table";
const FORM: &str = "grant_type=client_credentials&audience=mtls-table%2Fa";
/// The form of a token that is not accepted.
const BAD_TOKEN: &str = "grant_type=urn:ietf:params:oauth:grant-type:token-exchange\
    &subject_token_type=urn:ietf:params:oauth:token-type:jwt&subject_token=a.b.c\
    &audience=mtls-table%2Fa";

/// The status, the body and the headers of an answer, but for those that differ in every one.
type Reply = (u16, String, Vec<(String, String)>);

pub(crate) async fn every_certificate_gets_its_answer(world: Arc<World>) -> TestResult {
    let (hub, now) = (world.hub(), Timestamp::now());
    let authorities = Authorities::new(now);
    make_tenant(hub, NAMESPACE, &["reconciler", "notifier"]).await?;
    let mut rules = "  clientCertificates:\n".to_owned();
    for (secret, authority, uri, account) in [
        ("table-first-ca", &authorities.first, URI, "reconciler"),
        (
            "table-second-ca",
            &authorities.second,
            OTHER_URI,
            "notifier",
        ),
    ] {
        put_secret(hub, secret, &[("ca.crt", authority.pem())]).await?;
        grant(&world, secret).await?;
        let uid = uid(hub, [NAMESPACE, account]).await?;
        rules += &format!(
            "    - caSecretRef: {{ name: {secret} }}\n      uriSAN: {uri}\n      serviceAccount: \
             {{ namespace: {NAMESPACE}, name: {account}, uid: {uid} }}\n"
        );
    }
    let spec = BrokerSpec::of_hub("mtls-table", hub)
        .with_api_lines(&rules)
        .with_target(
            Target::of(world.target_a(), AUDIENCE_A)
                .named("a")
                .allowing(NAMESPACE, &["reconciler"]),
        )
        .with_access(Access::of(NAMESPACE, "a", "a", "reconciler"));
    let broker = world.start_broker(hub, spec).await?;
    let faults = [
        exchange(&broker, broker.http(), BAD_TOKEN).await?,
        kubeconfig(&broker, broker.http(), Some("a.b.c")).await?,
    ];
    assert_eq!(faults.each_ref().map(|fault| fault.0), [400, 401]);

    let (mut accepted, mut refused, mut unshaken, mut unsent) = (0, 0, 0, Vec::new());
    for case in table(&authorities, now) {
        let name = case.name;
        // This client checks what it presents, and cannot send some of them. The unit tests do.
        let Ok(client) = client(&broker, &case.certificate) else {
            unsent.push(name);
            continue;
        };
        let answers = [
            exchange(&broker, &client, FORM).await,
            kubeconfig(&broker, &client, None).await,
        ];
        match case.outcome {
            Outcome::Accepted => {
                for answer in answers {
                    let (status, body, _) = answer?;
                    assert_eq!(status, 200, "{name}: {body}");
                }
                accepted += 1;
            }
            Outcome::Refused(_) => {
                for (answer, fault) in answers.into_iter().zip(&faults) {
                    assert_eq!(answer?, *fault, "{name}");
                }
                refused += 1;
            }
            Outcome::NoHandshake | Outcome::RefusedWithoutTls(_) => {
                assert!(answers.iter().all(Result::is_err), "{name}");
                unshaken += 1;
            }
        }
    }
    eprintln!(
        "{accepted} accepted, {refused} refused, {unshaken} without a handshake; not sent: {unsent:?}"
    );
    assert!(accepted >= 15 && refused >= 60 && unsent.len() <= 8);
    Ok(())
}

fn client(broker: &Broker, certificate: &TestCertificate) -> Result<Client, TestError> {
    let ca = std::fs::read(broker.ca_path())?;
    Ok(Client::builder()
        .no_proxy()
        .tls_certs_only([reqwest::Certificate::from_pem(&ca)?])
        .identity(reqwest::Identity::from_pem(
            certificate.to_pem().as_bytes(),
        )?)
        .build()?)
}

async fn exchange(
    broker: &Broker,
    client: &Client,
    form: &'static str,
) -> Result<Reply, TestError> {
    let request = client
        .post(format!("{}/v1/token", broker.api_url()))
        .header("content-type", "application/x-www-form-urlencoded")
        .body(form);
    reply(request).await
}

async fn kubeconfig(
    broker: &Broker,
    client: &Client,
    token: Option<&str>,
) -> Result<Reply, TestError> {
    let path = format!("/v1/namespaces/{NAMESPACE}/accesses/a/kubeconfig");
    let mut request = client.get(format!("{}{path}", broker.api_url()));
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    reply(request).await
}

async fn reply(request: reqwest::RequestBuilder) -> Result<Reply, TestError> {
    let answer = request.send().await?;
    let status = answer.status().as_u16();
    let mut headers: Vec<_> = answer
        .headers()
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "date" | "x-request-id"))
        .map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.as_str().to_owned(), value)
        })
        .collect();
    headers.sort();
    Ok((status, answer.text().await?, headers))
}
