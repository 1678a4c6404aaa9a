//! A Secret that clients would refuse, or that is not a TLS Secret, at start and with `--check`.

use std::sync::Arc;

use keyferry_integration::pki::TestCa;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::BrokerSpec;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair, date_time_ymd};

use super::stage::Stage;

const TLS: &str = "kubernetes.io/tls";

/// A self-signed certificate with its key.
fn self_signed(
    host: &str,
    change: impl FnOnce(&mut CertificateParams),
) -> Result<(String, String), TestError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![host.to_owned()])?;
    change(&mut params);
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

/// Asserts that Keyferry neither starts with this Secret for the discovery listener, nor finds it
/// good.
async fn refused(
    stage: &Stage,
    [config, kubeconfig]: [&str; 2],
    name: &str,
    problem: &str,
) -> TestResult {
    for further in [&[][..], &["--check"]] {
        let args = [
            &["serve", "--config", config, "--kubeconfig", kubeconfig][..],
            &["--tls-secret", "start-good", "--discovery-tls-secret", name],
            further,
        ];
        let output = stage.ground().binary().run(&args.concat(), &[]).await?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{name}: {said}");
        assert!(
            said.contains(&format!(
                "ServingCertificateInvalid: Secret keyferry-system/{name}: "
            )) && said.contains(problem)
                && said.contains("fix: "),
            "{name}: {said}"
        );
        assert!(
            output.stdout.is_empty() && !said.contains("PRIVATE KEY"),
            "{name}"
        );
    }
    Ok(())
}

pub(super) async fn a_bad_secret(stage: Arc<Stage>) -> TestResult {
    let ca: &TestCa = stage.ground().ca();
    let good = ca.serving("start-good", &[])?;
    let (one, other) = (
        ca.serving("start-one", &[])?,
        ca.serving("start-other", &[])?,
    );
    let expired = self_signed("127.0.0.1", |params| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2020, 2, 1);
    })?;
    let client = self_signed("127.0.0.1", |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    })?;
    let elsewhere = self_signed("elsewhere.example.com", |_| {})?;
    let cases = [
        (
            "opaque",
            "Opaque",
            &good.cert_pem,
            &good.key_pem,
            "its type is \"Opaque\"",
        ),
        (
            "keyless",
            TLS,
            &good.cert_pem,
            &String::new(),
            "it has no tls.key",
        ),
        (
            "mismatched",
            TLS,
            &one.cert_pem,
            &other.key_pem,
            "tls.key: it is not the key",
        ),
        (
            "expired",
            TLS,
            &expired.0,
            &expired.1,
            "tls.crt: the certificate expired at",
        ),
        ("for-clients", TLS, &client.0, &client.1, "no serverAuth"),
        (
            "elsewhere",
            TLS,
            &elsewhere.0,
            &elsewhere.1,
            "is not for 127.0.0.1, but for elsewhere",
        ),
        (
            "empty",
            TLS,
            &String::new(),
            &good.key_pem,
            "it has no tls.crt",
        ),
    ];
    stage
        .put("start-good", TLS, &good.cert_pem, &good.key_pem)
        .await?;
    let spec = BrokerSpec::of_hub("start", stage.hub());
    let (config, account) = stage.ground().files(stage.hub(), &spec).await?;
    let (config, kubeconfig) = (
        config.display().to_string(),
        account.path().display().to_string(),
    );
    for (name, kind, certificate, key, problem) in cases {
        stage.put(name, kind, certificate, key).await?;
        refused(&stage, [&config, &kubeconfig], name, problem).await?;
    }
    refused(
        &stage,
        [&config, &kubeconfig],
        "absent",
        "it does not exist",
    )
    .await?;
    // The token API's certificate may be for any host.
    let args = [
        "serve",
        "--check",
        "--config",
        &config,
        "--kubeconfig",
        &kubeconfig,
        "--tls-secret",
        "start-good",
        "--api-tls-secret",
        "elsewhere",
    ];
    let output = stage.ground().binary().run(&args, &[]).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(!said.contains("not checked"), "{said}");
    Ok(())
}

pub(super) async fn the_check_says_what_it_did_not_see(stage: Arc<Stage>) -> TestResult {
    let spec = BrokerSpec::of_hub("unseen", stage.hub());
    let (config, _) = stage.ground().files(stage.hub(), &spec).await?;
    let config = config.display().to_string();
    let args = [
        "serve",
        "--check",
        "--config",
        &config,
        "--api-tls-secret",
        "some",
    ];
    // The variable means the same as the flag, and a flag for one listener overrides it.
    let env = [("KEYFERRY_TLS_SECRET", "other")];
    let output = stage.ground().binary().run(&args, &env).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    for secret in ["some", "other"] {
        assert!(
            said.contains(&format!(
                "warning: not checked: Secret keyferry-system/{secret} is on the hub"
            )),
            "{said}"
        );
    }
    Ok(())
}
