//! A configuration with mistakes, at start and on reload.

use std::sync::Arc;

use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{
    ACCOUNT, Access, Broker, BrokerSpec, TENANT, Target, World, caller_token,
};
use serde_json::Value;

use super::mistakes::{MISTAKES, Mistake};

async fn broker(world: &World, name: &str) -> Result<Broker, TestError> {
    let target = |audience: &str, name: &str| Target::of(world.target_a(), audience).named(name);
    let spec = BrokerSpec::of_hub(name, world.hub())
        .with_target(target("https://first.keyferry.test", "first").allowing(TENANT, &[ACCOUNT]))
        .with_target(target("https://second.keyferry.test", "second"))
        .with_access(Access::of(TENANT, "a", "first", ACCOUNT));
    world.start_broker(world.hub(), spec).await
}

/// Keyferry reports where the mistake is and how to fix it. The active configuration stays active,
/// and the next valid file is loaded.
pub(super) async fn a_bad_one_changes_nothing(world: Arc<World>) -> TestResult {
    let broker = broker(&world, "reload").await?;
    let good = std::fs::read_to_string(broker.config())?;
    let caller = caller_token(world.hub(), TENANT, ACCOUNT).await?;
    for mistake in &MISTAKES {
        let bad = mistake.in_text(&good)?;
        let logged = broker.log()?.len();
        broker
            .rewrite_config(&bad, "failure")
            .await
            .map_err(|error| format!("{}: {error}", mistake.name))?;
        let log = broker.log()?;
        let error = errors(log.get(logged..).unwrap_or_default());
        assert!(
            error.contains("the active configuration stays")
                && error.contains("ConfigurationInvalid"),
            "{}: {error}",
            mistake.name
        );
        it_is_named(mistake, &bad, &error);
        assert_eq!(
            broker.exchange(&caller, "tenant-a/a").await?.status,
            200,
            "{}",
            mistake.name
        );
    }
    broker.rewrite_config("", "failure").await?;
    assert_eq!(broker.exchange(&caller, "tenant-a/a").await?.status, 200);
    std::fs::remove_file(broker.config())?;
    broker.process().hang_up().await?;
    assert_eq!(broker.exchange(&caller, "tenant-a/a").await?.status, 200);

    let without = good.replace(
        &format!("serviceAccounts: [{ACCOUNT}]"),
        "serviceAccounts: [somebody-else]",
    );
    broker.rewrite_config(&without, "success").await?;
    assert_eq!(
        broker.exchange(&caller, "tenant-a/a").await?.status,
        400,
        "the good file is active at once"
    );
    Ok(())
}

/// Keyferry exits with an error before it sends any request to the hub. It writes nothing to
/// standard output, which is for audit records.
pub(super) async fn a_bad_one_does_not_start(world: Arc<World>) -> TestResult {
    let broker = broker(&world, "model").await?;
    let good = std::fs::read_to_string(broker.config())?;
    let file = broker.config().with_file_name("bad.yaml");
    let shown = file.display().to_string();
    for mistake in &MISTAKES {
        let bad = mistake.in_text(&good)?;
        std::fs::write(&file, &bad)?;
        for further in [&[][..], &["--check"]] {
            let output = world
                .binary()
                .run(&[&["serve", "--config", &shown], further].concat(), &[])
                .await?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(
                output.status.code().is_some_and(|code| code != 0),
                "{}: {:?} {said}",
                mistake.name,
                output.status
            );
            assert!(output.stdout.is_empty(), "{}", mistake.name);
            assert!(said.contains(&shown), "{}: {said}", mistake.name);
            it_is_named(mistake, &bad, &said);
        }
    }
    std::fs::write(&file, "")?;
    let empty = world
        .binary()
        .run(&["serve", "--config", &shown], &[])
        .await?;
    std::fs::remove_file(&file)?;
    let missing = world
        .binary()
        .run(&["serve", "--config", &shown], &[])
        .await?;
    for output in [empty, missing] {
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{output:?}"
        );
    }
    Ok(())
}

/// A certificate that every client would refuse, at start and with `--check`. Keyferry sends no
/// request to the hub.
pub(super) async fn a_bad_serving_certificate_does_not_start(world: Arc<World>) -> TestResult {
    let broker = broker(&world, "certified").await?;
    let good = std::fs::read_to_string(broker.config())?;
    let file = broker.config().with_file_name("certificate.yaml");
    let shown = file.display().to_string();
    let public_url = good
        .lines()
        .find(|line| line.starts_with("publicURL: "))
        .ok_or("no publicURL")?;
    let certificate = good
        .lines()
        .find_map(|line| line.trim().strip_prefix("certFile: "))
        .ok_or("no certFile")?;
    let key = good
        .lines()
        .find_map(|line| line.trim().strip_prefix("keyFile: "))
        .ok_or("no keyFile")?;
    let client = world.ca().client("certified-client", "none")?;
    let other = world.ca().serving("certified-other", &[])?;
    let (client_certificate, client_key) = (
        client.cert_path.display().to_string(),
        client.key_path.display().to_string(),
    );
    let cases = [
        (
            "another host",
            good.replace(public_url, "publicURL: https://keyferry.test"),
            "is not for keyferry.test, but for localhost, 127.0.0.1",
        ),
        (
            "no server's",
            good.replace(certificate, &client_certificate)
                .replace(key, &client_key),
            "no serverAuth",
        ),
        (
            "another key",
            good.replace(key, &other.key_path.display().to_string()),
            "it is not the key of the certificate",
        ),
        (
            "no certificate",
            good.replace(certificate, key),
            "holds no certificate",
        ),
    ];
    for (what, text, problem) in cases {
        std::fs::write(&file, text)?;
        for further in [&[][..], &["--check"]] {
            let output = world
                .binary()
                .run(&[&["serve", "--config", &shown], further].concat(), &[])
                .await?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{what}: {said}");
            assert!(
                said.contains("ServingCertificateInvalid: ")
                    && said.contains(problem)
                    && said.contains("fix: "),
                "{what}: {said}"
            );
            assert!(
                output.stdout.is_empty() && !said.contains("PRIVATE KEY"),
                "{what}"
            );
        }
    }
    std::fs::write(
        &file,
        good.replace(public_url, "publicURL: https://keyferry.example.com")
            .replace(certificate, "/nowhere/tls.crt"),
    )?;
    let output = world
        .binary()
        .run(&["serve", "--config", &shown, "--check"], &[])
        .await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        output.status.code(),
        Some(0),
        "what is on another machine is not checked: {said}"
    );
    assert!(
        said.contains("not checked")
            && said.contains("/nowhere/tls.crt")
            && said.contains("is the example's"),
        "{said}"
    );
    Ok(())
}

fn it_is_named(mistake: &Mistake, bad: &str, said: &str) {
    let (
        line,
        Mistake {
            name,
            location: place,
            fix,
            ..
        },
    ) = (mistake.line_in(bad), mistake);
    assert!(
        said.contains(place),
        "{name}: the place {place:?} is not in {said}"
    );
    assert!(said.contains(&line), "{name}: {line:?} is not in {said}");
    assert!(
        said.contains(fix),
        "{name}: the fix {fix:?} is not in {said}"
    );
}

/// The message, reason and error of the log's error lines.
fn errors(log: &str) -> String {
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|line| line["level"] == "ERROR");
    let field =
        |line: &Value, name: &str| line["fields"][name].as_str().unwrap_or_default().to_owned();
    lines
        .map(|line| {
            [
                field(&line, "message"),
                field(&line, "reason"),
                field(&line, "error"),
            ]
            .join(" ")
        })
        .collect::<Vec<_>>()
        .join("\n")
}
