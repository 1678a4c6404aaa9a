//! A CA of callers, and TLS clients with and without certificates of it.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::ClientConfig;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use crate::harness::{Outcome, tls_connection};

/// The URI of every certificate.
pub const URI: &str = "spiffe://bench.test/caller";

/// A CA, and one that it signed.
pub struct Callers {
    /// The CA as PEM.
    pub ca_pem: String,
    root: Issuer<'static, KeyPair>,
    intermediate: Issuer<'static, KeyPair>,
    intermediate_der: CertificateDer<'static>,
}

fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

impl Callers {
    /// Makes both CAs.
    pub fn new() -> Outcome<Self> {
        let (key, below) = (KeyPair::generate()?, KeyPair::generate()?);
        let params = authority("callers");
        let ca_pem = params.self_signed(&key)?.pem();
        let root = Issuer::new(params, key);
        let params = authority("callers below");
        let signed = params.signed_by(&below, &root)?;
        Ok(Self {
            ca_pem,
            root,
            intermediate_der: signed.der().clone(),
            intermediate: Issuer::new(params, below),
        })
    }

    /// A TLS client that trusts this CA and presents a certificate on P-256, with the intermediate
    /// CA or without.
    pub fn client(&self, server_ca: &str, below: bool) -> Outcome<Arc<ClientConfig>> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed()?.as_secs();
        let at = |seconds: u64| {
            rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(seconds)
        };
        (params.not_before, params.not_after) = (at(now - 60), at(now + 3600));
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.subject_alt_names = vec![SanType::URI(URI.try_into()?)];
        let issuer = if below {
            &self.intermediate
        } else {
            &self.root
        };
        let mut chain = vec![params.signed_by(&key, issuer)?.der().clone()];
        if below {
            chain.push(self.intermediate_der.clone());
        }
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        Ok(Arc::new(
            tls_connection::configuration_trusting(server_ca)?
                .with_client_auth_cert(chain, key.into())?,
        ))
    }
}
