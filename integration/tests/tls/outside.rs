//! TLS as OpenSSL sees it.

use std::path::Path;
use std::process::Output;
use std::sync::Arc;

use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::until;
use keyferry_integration::world::BrokerSpec;

use super::stage::{SOON, Stage, s_client};

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Asserts that a version is spoken, or refused.
async fn speaks(url: &str, ca: &Path, version: &str, wanted: bool) -> Result<String, TestError> {
    let output = s_client(url, ca, &[version, "-verify_hostname", "localhost"]).await?;
    let said = said(&output);
    assert_eq!(output.status.success(), wanted, "{url} {version}: {said}");
    // After a failed handshake, OpenSSL prints this line too.
    if wanted {
        assert!(said.contains("Verify return code: 0 (ok)"), "{said}");
    }
    Ok(said)
}

pub(super) async fn openssl_sees_the_promised_tls(stage: Arc<Stage>) -> TestResult {
    let spec = BrokerSpec::of_hub("outside", stage.hub());
    let usual = stage.ground().start_broker(stage.hub(), spec).await?;
    let ca = usual.ca_path();
    for url in [usual.discovery_url(), usual.api_url()] {
        for old in ["-tls1", "-tls1_1", "-tls1_2"] {
            speaks(&url, ca, old, false).await?;
        }
        let shown = speaks(&url, ca, "-tls1_3", true).await?;
        assert!(shown.contains("TLSv1.3, Cipher is TLS_"), "{shown}");
        for suite in [
            "TLS_AES_256_GCM_SHA384",
            "TLS_AES_128_GCM_SHA256",
            "TLS_CHACHA20_POLY1305_SHA256",
        ] {
            let output = s_client(&url, ca, &["-ciphersuites", suite]).await?;
            assert!(
                said(&output).contains(&format!("Cipher is {suite}")),
                "{suite}"
            );
        }
        // The name is checked by the client: the certificate is for no other.
        let output = s_client(&url, ca, &["-verify_hostname", "elsewhere.example.com"]).await?;
        assert!(!output.status.success(), "{}", said(&output));
        // No ticket is ever sent, so nothing can be resumed.
        let sessions = stage.folder("sessions")?.join("session.pem");
        let kept = sessions.display().to_string();
        let output = s_client(&url, ca, &["-sess_out", &kept]).await?;
        assert!(output.status.success(), "{}", said(&output));
        let shown = said(&output);
        assert!(!shown.contains("New Session Ticket"), "{shown}");
        if sessions.exists() {
            let again = said(&s_client(&url, ca, &["-sess_in", &kept]).await?);
            assert!(
                again.contains("New, TLSv1.3") && !again.contains("Reused"),
                "{again}"
            );
            std::fs::remove_file(&sessions)?;
        }
        let shown = said(&s_client(&url, ca, &["-reconnect"]).await?);
        assert!(
            shown.contains("New, TLSv1.3") && !shown.contains("Reused"),
            "{shown}"
        );
    }

    let old =
        BrokerSpec::of_hub("outside-old", stage.hub()).with_discovery_tls("minVersion: '1.2'");
    let old = stage.ground().start_broker(stage.hub(), old).await?;
    let (documents, tokens) = (old.discovery_url(), old.api_url());
    speaks(&documents, ca, "-tls1_1", false).await?;
    let shown = speaks(&documents, ca, "-tls1_2", true).await?;
    assert!(shown.contains("ECDHE-"), "forward secrecy: {shown}");
    for weak in ["AES128-SHA", "ECDHE-ECDSA-AES128-SHA", "AES256-GCM-SHA384"] {
        let output = s_client(&documents, ca, &["-tls1_2", "-cipher", weak]).await?;
        assert!(!output.status.success(), "{weak}: {}", said(&output));
    }
    let shown = said(&s_client(&documents, ca, &["-tls1_2", "-reconnect"]).await?);
    assert!(
        shown.contains("New, TLSv1.2") && !shown.contains("Reused"),
        "{shown}"
    );
    speaks(&documents, ca, "-tls1_3", true).await?;
    speaks(&tokens, ca, "-tls1_2", false).await?;
    Ok(())
}

/// The beginning of the certificate that was shown.
fn leaf(shown: &str) -> Option<&str> {
    let begin = shown.find("-----BEGIN CERTIFICATE-----")?;
    shown.get(begin..begin + 300)
}

/// The Secrets of `keyferry tls init` serve, and those of `renew` are of the same CA.
pub(super) async fn what_init_and_renew_print(stage: Arc<Stage>) -> TestResult {
    let folder = stage.folder("tls-init")?;
    let flags = ["https://127.0.0.1:8443", "--api-host", "localhost"];
    let binary = stage.ground().binary();
    let init = binary
        .run(&[&["tls", "init"], &flags[..]].concat(), &[])
        .await?;
    let printed = String::from_utf8(init.stdout)?;
    let file = folder.join("init.yaml");
    std::fs::write(&file, &printed)?;
    keyferry_integration::rbac::apply_manifests(stage.hub(), &[&file]).await?;
    let admin = stage.hub().admin();
    let ca = admin
        .get("/api/v1/namespaces/keyferry-ca/secrets/keyferry-ca")
        .await?;
    let ca_file = folder.join("ca.json");
    std::fs::write(&ca_file, ca.to_string())?;
    a_second_init_keeps_the_ca(&stage, &flags, &printed).await?;
    let ca_pem = printed
        .split("ca.crt: |\n")
        .nth(1)
        .and_then(|rest| rest.split_inclusive("-----END CERTIFICATE-----").next())
        .ok_or("init printed no ca.crt")?;
    let ca_pem: String = ca_pem
        .lines()
        .map(|line| format!("{}\n", line.trim()))
        .collect();
    let ca_path = folder.join("ca.crt");
    std::fs::write(&ca_path, ca_pem)?;

    stage
        .allow_watching(["keyferry-discovery-tls", "keyferry-api-tls"])
        .await?;
    let broker = stage
        .ground()
        .start_broker(
            stage.hub(),
            BrokerSpec::of_hub("tls-init", stage.hub()).with_args(&[
                "--discovery-tls-secret",
                "keyferry-discovery-tls",
                "--api-tls-secret",
                "keyferry-api-tls",
            ]),
        )
        .await?;
    let first = speaks(&broker.api_url(), &ca_path, "-tls1_3", true).await?;
    let ca_shown = ca_file.display().to_string();
    let renew = binary
        .run(
            &[&["tls", "renew", "--ca-secret", &ca_shown], &flags[..]].concat(),
            &[],
        )
        .await?;
    let printed = String::from_utf8(renew.stdout)?;
    assert!(!printed.contains("name: keyferry-ca\n"), "{printed}");
    let file = folder.join("renew.yaml");
    std::fs::write(&file, &printed)?;
    keyferry_integration::rbac::apply_manifests(stage.hub(), &[&file]).await?;
    let url = broker.api_url();
    until("the renewed certificate is served", SOON, || async {
        let next = speaks(&url, &ca_path, "-tls1_3", true).await?;
        Ok(leaf(&next) != leaf(&first))
    })
    .await
}

/// A second `tls init` would replace the CA of which all targets have a copy.
async fn a_second_init_keeps_the_ca(stage: &Stage, flags: &[&str], first: &str) -> TestResult {
    let run = async |more: &[&str]| -> Result<(Option<i32>, String, String), TestError> {
        let args = [&["tls", "init"], flags, more].concat();
        let output = stage.ground().binary().run(&args, &[]).await?;
        Ok((
            output.status.code(),
            String::from_utf8(output.stdout)?,
            String::from_utf8(output.stderr)?,
        ))
    };
    let admin = stage.hub().admin_kubeconfig().display().to_string();
    let (code, printed, said) = run(&["--kubeconfig", &admin]).await?;
    assert_eq!((code, printed.as_str()), (Some(1), ""), "{said}");
    assert!(
        said.contains("the hub has Secret keyferry-ca/keyferry-ca already")
            && said.contains("add --replace-ca"),
        "{said}"
    );
    // There is none in another namespace.
    let elsewhere = ["--kubeconfig", &admin, "--ca-namespace", "other-ca"];
    let (code, _, said) = run(&elsewhere).await?;
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("unknown"), "{said}");
    let (code, printed, said) = run(&["--kubeconfig", &admin, "--replace-ca"]).await?;
    assert_eq!(code, Some(0), "{said}");
    assert!(printed.contains("name: keyferry-ca\n"), "{printed}");
    assert_ne!(leaf(&printed), leaf(first), "it is another CA");
    Ok(())
}
