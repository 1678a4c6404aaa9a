//! Unusable CA certificates of targets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{
    ACCOUNT, Access, Answer, Broker, BrokerSpec, TENANT, Target, World, caller_token, put_secret,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

/// A target, the `ca.crt` of its Secret (`None`: no such entry), and the error that an authorised
/// caller gets.
struct Case {
    name: &'static str,
    ca: Option<String>,
    expected_message: &'static str,
}

pub(super) async fn a_bad_one_concerns_its_own_target(world: Arc<World>) -> TestResult {
    let cases = cases(&world)?;
    for case in &cases {
        match &case.ca {
            Some(ca) => put_secret(world.hub(), case.name, &[("ca.crt", ca)]).await?,
            None => put_secret(world.hub(), case.name, &[("tls.crt", "x")]).await?,
        }
    }
    put_secret(
        world.hub(),
        "ca-good",
        &[("ca.crt", world.target_a().ca_pem())],
    )
    .await?;
    let mut names: Vec<&str> = cases.iter().map(|case| case.name).collect();
    names.extend(["ca-absent", "ca-good"]);
    let spec = names.iter().fold(
        BrokerSpec::of_hub("authorities", world.hub()),
        |spec, name| {
            let target = Target {
                ca_secret: Some((*name).to_owned()),
                ..Target::of(world.target_a(), &format!("https://{name}.keyferry.test"))
            };
            spec.with_target(target.named(name).allowing(TENANT, &[ACCOUNT]))
                .with_access(Access::of(TENANT, name, name, ACCOUNT))
        },
    );
    let broker = world.start_broker(world.hub(), spec).await?;
    let caller = caller_token(world.hub(), TENANT, ACCOUNT).await?;
    world
        .hub()
        .create_service_account(TENANT, "outsider")
        .await?;
    let outsider = caller_token(world.hub(), TENANT, "outsider").await?;

    until_granted(&broker, &caller, "ca-good").await?;
    let absent = Case {
        name: "ca-absent",
        ca: None,
        expected_message: "does not exist in Keyferry's namespace; create it there with ca.crt",
    };
    for case in cases.iter().chain([&absent]) {
        let answer = broker
            .exchange(&caller, &format!("{TENANT}/{}", case.name))
            .await?;
        assert_eq!(answer.status, 503, "{}: {}", case.name, answer.body);
        for told in ["CertificateAuthorityInvalid", case.expected_message] {
            assert!(
                answer.body.contains(told),
                "{}: {told:?} is not in {}",
                case.name,
                answer.body
            );
        }
        assert!(
            !answer.body.contains("BEGIN") && !answer.body.contains("eyJ"),
            "{}",
            answer.body
        );
        assert_eq!(
            broker.audit_of(&answer.request_id)?["reason"],
            "CertificateAuthorityInvalid"
        );
        let kubeconfig = broker.kubeconfig_of(&caller, TENANT, case.name).await?;
        assert_eq!(kubeconfig.status, 503, "{}", case.name);
        let unknown = broker
            .exchange(&outsider, &format!("{TENANT}/{}", case.name))
            .await?;
        assert_eq!(
            unknown.status, 400,
            "who may not use the target learns nothing about it: {}",
            unknown.body
        );
        assert!(!unknown.body.contains("Certificate"), "{}", unknown.body);
        assert_eq!(
            broker.exchange(&caller, "tenant-a/ca-good").await?.status,
            200,
            "the other target works"
        );
    }
    for name in names {
        put_secret(world.hub(), name, &[("ca.crt", world.target_a().ca_pem())]).await?;
    }
    broker.process().hang_up().await?;
    for case in cases.iter().chain([&absent]) {
        until_granted(&broker, &caller, case.name).await?;
    }
    let log = broker.log()?;
    assert!(
        !log.contains("PRIVATE KEY"),
        "the key that stood for a certificate is in the log"
    );
    Ok(())
}

fn cases(world: &World) -> Result<Vec<Case>, TestError> {
    let leaf = world.target_a().ca().serving("not-a-ca", &[])?;
    let mut expired = CertificateParams::default();
    expired.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    (expired.not_before, expired.not_after) = (
        rcgen::date_time_ymd(2020, 1, 1),
        rcgen::date_time_ymd(2021, 1, 1),
    );
    let expired = expired.self_signed(&KeyPair::generate()?)?.pem();
    let case = |name, ca, told| Case {
        name,
        ca,
        expected_message: told,
    };
    Ok(vec![
        case(
            "ca-missing",
            None,
            "has no ca.crt; add the target's CA certificates under that key",
        ),
        case("ca-empty", Some(String::new()), "is empty"),
        case(
            "ca-text",
            Some("not a certificate".to_owned()),
            "is not PEM",
        ),
        case("ca-leaf", Some(leaf.cert_pem), "is no CA"),
        case("ca-expired", Some(expired), "expired at 2021-01-01"),
        case("ca-key", Some(leaf.key_pem), "no certificate"),
    ])
}

async fn until_granted(broker: &Broker, caller: &str, access: &str) -> Result<Answer, TestError> {
    let limit = Instant::now() + Duration::from_secs(10);
    loop {
        let answer = broker
            .exchange(caller, &format!("{TENANT}/{access}"))
            .await?;
        if answer.status == 200 {
            return Ok(answer);
        }
        if Instant::now() > limit {
            return Err(format!("{access}: {} {}", answer.status, answer.body).into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
