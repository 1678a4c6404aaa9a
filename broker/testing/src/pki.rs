//! A certificate authority that lives in memory and signs server certificates for loopback.

use std::fmt;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use secrecy::{ExposeSecret, SecretString};

use super::EmbeddedError;

/// A self-signed CA. Clones share one key, so hub, broker and target can use the same CA.
#[derive(Clone)]
pub struct Authority {
    issuer: Arc<Issuer<'static, KeyPair>>,
    ca_pem: String,
}

/// A server certificate and its private key, both PEM.
pub struct ServerIdentity {
    /// The certificate, without the CA.
    pub certificate_pem: String,
    /// Its private key (PKCS#8).
    pub key_pem: SecretString,
}

impl Authority {
    /// Makes a CA with a new P-256 key.
    ///
    /// # Errors
    /// When the key or the certificate cannot be made.
    pub fn new(common_name: &str) -> Result<Self, EmbeddedError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca_pem = params.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Arc::new(Issuer::new(params, key)),
            ca_pem,
        })
    }

    /// The CA certificate in PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// A certificate for the given DNS names or IP addresses.
    ///
    /// # Errors
    /// When a name is neither a DNS name nor an address, or the certificate cannot be made.
    pub fn server_identity(&self, names: &[&str]) -> Result<ServerIdentity, EmbeddedError> {
        let key = KeyPair::generate()?;
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        params
            .distinguished_name
            .push(DnType::CommonName, "keyferry embedded server");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate_pem = params.signed_by(&key, &self.issuer)?.pem();
        Ok(ServerIdentity {
            certificate_pem,
            key_pem: SecretString::from(key.serialize_pem()),
        })
    }

    /// A certificate for 127.0.0.1 and localhost.
    pub(super) fn loopback_identity(&self) -> Result<ServerIdentity, EmbeddedError> {
        self.server_identity(&["127.0.0.1", "localhost"])
    }
}

impl ServerIdentity {
    /// A TLS configuration that offers HTTP/2 and HTTP/1.1.
    ///
    /// # Errors
    /// When the TLS library refuses the certificate or its key.
    pub fn tls_config(&self) -> Result<rustls::ServerConfig, EmbeddedError> {
        use rustls_pki_types::pem::PemObject;
        use rustls_pki_types::{CertificateDer, PrivateKeyDer};

        let certificate = CertificateDer::from_pem_slice(self.certificate_pem.as_bytes())
            .map_err(|_| EmbeddedError::PrivateKey)?;
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.expose_secret().as_bytes())
            .map_err(|_| EmbeddedError::PrivateKey)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl fmt::Debug for ServerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerIdentity").finish_non_exhaustive()
    }
}
