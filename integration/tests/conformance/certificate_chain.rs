//! A serving certificate below an intermediate CA.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::http_client::trusting;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{BrokerSpec, World};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    PKCS_ECDSA_P256_SHA256, SanType,
};

use super::setup::KEYS;

/// The targets have the root CA alone. The certificate is for an address and for no DNS name.
pub(super) async fn is_served_whole(world: Arc<World>) -> TestResult {
    let broker = world
        .start_broker(world.hub(), BrokerSpec::of_hub("chain", world.hub()))
        .await?;
    let chain = Chain::create()?;
    // The files that World's CA created for this broker.
    let files = world.ca().serving("serving-chain", &[])?;
    std::fs::write(
        &files.cert_path,
        format!("{}{}", chain.leaf_pem, chain.intermediate_pem),
    )?;
    std::fs::write(&files.key_path, &chain.leaf_key_pem)?;
    broker.process().hang_up().await?;

    let by_root = trusting(&chain.root_pem)?;
    let url = format!("{}{KEYS}", broker.discovery_url());
    let limit = Instant::now() + Duration::from_secs(15);
    let answer = loop {
        match by_root.get(&url).send().await {
            Ok(answer) => break answer,
            Err(error) if Instant::now() > limit => {
                return Err(format!("not trusted by its root alone: {error:?}").into());
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    assert_eq!(answer.status(), 200);
    let elsewhere = by_root
        .get(url.replace("127.0.0.1", "localhost"))
        .send()
        .await;
    assert!(
        elsewhere.is_err_and(|error| error.is_connect()),
        "the certificate names no localhost"
    );
    Ok(())
}

struct Chain {
    root_pem: String,
    intermediate_pem: String,
    leaf_pem: String,
    leaf_key_pem: String,
}

impl Chain {
    fn create() -> Result<Self, TestError> {
        let authority = |name: &str| {
            let mut params = CertificateParams::default();
            params.distinguished_name = DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params
        };
        let key = || KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256);
        let (root, root_key) = (authority("chain root"), key()?);
        let root_pem = root.self_signed(&root_key)?.pem();
        let root = Issuer::new(root, root_key);
        let (intermediate, intermediate_key) = (authority("chain intermediate"), key()?);
        let intermediate_pem = intermediate.signed_by(&intermediate_key, &root)?.pem();
        let intermediate = Issuer::new(intermediate, intermediate_key);
        let leaf_key = key()?;
        let mut leaf = CertificateParams::default();
        leaf.subject_alt_names = vec![SanType::IpAddress(std::net::Ipv4Addr::LOCALHOST.into())];
        let leaf_pem = leaf.signed_by(&leaf_key, &intermediate)?.pem();
        Ok(Self {
            root_pem,
            intermediate_pem,
            leaf_pem,
            leaf_key_pem: leaf_key.serialize_pem(),
        })
    }
}
