//! A `certSecretRef` Secret that also contains the key of the target's admin.

use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_integration::pki::CertifiedKey;
use keyferry_integration::rest::RestClient;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{ACCOUNT, TENANT, World, caller_token};
use serde_json::{Value, json};

use super::document::kubeconfig_file;

pub(crate) async fn the_client_key_beside_the_ca_goes_nowhere(world: Arc<World>) -> TestResult {
    let secret = world
        .hub()
        .admin()
        .get("/api/v1/namespaces/keyferry-system/secrets/target-a-ca")
        .await?;
    let entry = |name: &str| -> Result<String, TestError> {
        Ok(String::from_utf8(STANDARD.decode(
            secret["data"][name].as_str().unwrap_or_default(),
        )?)?)
    };
    let (certificate, key, ca) = (entry("tls.crt")?, entry("tls.key")?, entry("ca.crt")?);
    // This key is worth stealing: with its certificate, its owner is the target's admin.
    let pair = CertifiedKey {
        cert_pem: certificate.clone(),
        key_pem: key.clone(),
        cert_path: PathBuf::new(),
        key_path: PathBuf::new(),
    };
    let thief =
        RestClient::with_certificate(&world.target_a().url(), world.target_a().ca_pem(), &pair)?;
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let user = thief
        .create("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review)
        .await?["status"]["userInfo"]
        .take();
    assert!(
        user["groups"]
            .as_array()
            .is_some_and(|groups| groups.contains(&json!("system:masters"))),
        "{user}"
    );

    let (_folder, path) = kubeconfig_file(&world).await?;
    let output = world
        .target_a()
        .kubectl_with(&path, &["config", "view", "--raw", "-o", "json"])
        .await?;
    let document: Value = serde_json::from_slice(&output.stdout)?;
    let bundle = document["clusters"][0]["cluster"]["certificate-authority-data"]
        .as_str()
        .unwrap_or_default();
    let bundle = String::from_utf8(STANDARD.decode(bundle)?)?;
    assert_eq!(
        bundle.matches("BEGIN").count(),
        1,
        "one CA certificate and nothing else: {bundle}"
    );
    assert_eq!(base64_of(&bundle), base64_of(&ca));
    let user = document["users"][0]["user"].as_object().ok_or("a user")?;
    assert_eq!(user.keys().collect::<Vec<_>>(), ["token"]);

    let caller = caller_token(world.hub(), TENANT, ACCOUNT).await?;
    let exchange = world.broker().exchange(&caller, "tenant-a/a").await?;
    let denied = world.broker().exchange(&caller, "tenant-a/b").await?;
    let metrics = world
        .broker()
        .http()
        .get(format!("{}/metrics", world.broker().health_url()))
        .send()
        .await?
        .text()
        .await?;
    let audit = world
        .broker()
        .audit()?
        .iter()
        .map(Value::to_string)
        .collect::<String>();
    let everything = [
        std::fs::read_to_string(&path)?,
        bundle,
        exchange.body,
        denied.body,
        metrics,
        audit,
        world.broker().log()?,
    ];
    for pem in [&certificate, &key] {
        // Search for the key as it is, and as base64 of the whole PEM at any offset in a text. A
        // certificate contains the name of its CA, just as the CA does.
        let own_lines = pem
            .lines()
            .filter(|line| line.len() > 20 && !line.starts_with("-----") && !ca.contains(line));
        let lines: Vec<String> = own_lines.map(str::to_owned).collect();
        assert!(lines.len() > 1);
        let again = (0..3).map(|shift| {
            let encoded = STANDARD.encode(pem.get(shift..).unwrap_or_default());
            // Compare the certificate's signature and the end of the key, because their beginnings
            // are all alike.
            encoded
                .get(encoded.len() - 140..encoded.len() - 80)
                .unwrap_or_default()
                .to_owned()
        });
        for needle in lines.into_iter().chain(again) {
            assert!(
                everything.iter().all(|text| !text.contains(&needle)),
                "{needle} left Keyferry"
            );
        }
    }
    Ok(())
}

fn base64_of(pem: &str) -> String {
    pem.lines()
        .filter(|line| !line.starts_with("-----"))
        .collect()
}
