//! The certificates and signing keys of one control plane, written as PEM files.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256, RsaKeySize, SanType,
    date_time_ymd,
};

/// Why a certificate or a key could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PkiError {
    /// The key or certificate could not be made.
    #[error("make {what}: {source}")]
    Make {
        /// What was to be created.
        what: String,
        /// The error of rcgen.
        source: rcgen::Error,
    },
    /// The file could not be written.
    #[error("write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// A certificate and its key, in memory and on disk.
#[derive(Clone)]
pub struct CertifiedKey {
    /// PEM of the certificate.
    pub cert_pem: String,
    /// PEM (PKCS #8) of the key.
    pub key_pem: String,
    /// The file of `cert_pem`.
    pub cert_path: PathBuf,
    /// The file of `key_pem`.
    pub key_path: PathBuf,
}

impl std::fmt::Debug for CertifiedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertifiedKey")
            .field("cert_path", &self.cert_path)
            .finish_non_exhaustive()
    }
}

/// The CA of one control plane. It signs the serving certificates and the client certificates.
pub struct TestCa {
    issuer: Issuer<'static, KeyPair>,
    folder: PathBuf,
    cert_pem: String,
    cert_path: PathBuf,
    key_path: PathBuf,
}

impl std::fmt::Debug for TestCa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestCa")
            .field("cert_path", &self.cert_path)
            .finish_non_exhaustive()
    }
}

impl TestCa {
    /// Creates an ECDSA P-256 CA. Its files are `ca.crt` and `ca.key` in the folder.
    pub fn create(common_name: &str, folder: &Path) -> Result<Self, PkiError> {
        let what = || format!("CA {common_name}");
        let key = ecdsa_key(&what())?;
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(common_name, None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let certificate = params
            .self_signed(&key)
            .map_err(|source| make_error(what(), source))?;
        let cert_pem = certificate.pem();
        let cert_path = write(folder.join("ca.crt"), &cert_pem)?;
        let key_path = write(folder.join("ca.key"), &key.serialize_pem())?;
        Ok(Self {
            issuer: Issuer::new(params, key),
            folder: folder.to_owned(),
            cert_pem,
            cert_path,
            key_path,
        })
    }

    /// PEM of the CA's certificate.
    pub fn cert_pem(&self) -> &str {
        &self.cert_pem
    }

    /// The file of the CA's certificate.
    pub fn cert_path(&self) -> &Path {
        &self.cert_path
    }

    /// The file of the CA's key.
    pub fn key_path(&self) -> &Path {
        &self.key_path
    }

    /// Signs a serving certificate for 127.0.0.1, `localhost` and the given DNS names and IP
    /// addresses, with the files `<name>.crt` and `<name>.key`.
    pub fn serving(&self, name: &str, dns_names: &[String]) -> Result<CertifiedKey, PkiError> {
        let mut names = vec!["localhost".to_owned()];
        names.extend_from_slice(dns_names);
        let mut params = CertificateParams::new(names)
            .map_err(|source| make_error(format!("certificate {name}"), source))?;
        params
            .subject_alt_names
            .push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        params.distinguished_name = subject(name, None);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(name, params)
    }

    /// Signs a client certificate. kube-apiserver takes `user` as the username (CN) and `group` as
    /// the group (O).
    pub fn client(&self, user: &str, group: &str) -> Result<CertifiedKey, PkiError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(user, Some(group));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(user, params)
    }

    /// Signs a certificate for a request's key and this user, whatever the request says otherwise,
    /// as a signer that errs does. It is valid for `life`, which began an hour ago.
    pub fn sign_request(&self, pem: &str, user: &str, life: Duration) -> Result<String, PkiError> {
        let failed = |source| make_error(format!("certificate of a request for {user}"), source);
        let mut request = CertificateSigningRequestParams::from_pem(pem).map_err(failed)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let hour_ago = now.unwrap_or_default() - Duration::from_secs(3600);
        let begin = date_time_ymd(1970, 1, 1) + hour_ago;
        let params = &mut request.params;
        (params.not_before, params.not_after) = (begin, begin + life);
        params.distinguished_name = subject(user, None);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        Ok(request.signed_by(&self.issuer).map_err(failed)?.pem())
    }

    fn issue(&self, name: &str, mut params: CertificateParams) -> Result<CertifiedKey, PkiError> {
        let what = || format!("certificate {name}");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = ecdsa_key(&what())?;
        let cert_pem = params
            .signed_by(&key, &self.issuer)
            .map_err(|source| make_error(what(), source))?
            .pem();
        let key_pem = key.serialize_pem();
        Ok(CertifiedKey {
            cert_path: write(self.folder.join(format!("{name}.crt")), &cert_pem)?,
            key_path: write(self.folder.join(format!("{name}.key")), &key_pem)?,
            cert_pem,
            key_pem,
        })
    }
}

/// The kind of the key that signs ServiceAccount tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SigningKeyKind {
    /// RSA 2048: tokens are RS256, as with kubeadm.
    Rsa2048,
    /// ECDSA P-256: tokens are ES256.
    EcdsaP256,
    /// ECDSA P-384: tokens are ES384.
    EcdsaP384,
}

/// A key pair that signs ServiceAccount tokens, as two PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningKey {
    /// PKCS #8 PEM, for `--service-account-signing-key-file`.
    pub private_path: PathBuf,
    /// SubjectPublicKeyInfo PEM, for `--service-account-key-file`.
    pub public_path: PathBuf,
}

impl SigningKey {
    /// Creates a key pair with the files `<name>.key` and `<name>.pub` in the folder.
    pub fn create(kind: SigningKeyKind, name: &str, folder: &Path) -> Result<Self, PkiError> {
        let key = match kind {
            SigningKeyKind::Rsa2048 => {
                KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)
            }
            SigningKeyKind::EcdsaP256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
            SigningKeyKind::EcdsaP384 => KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384),
        }
        .map_err(|source| make_error(format!("signing key {name}"), source))?;
        Ok(Self {
            private_path: write(folder.join(format!("{name}.key")), &key.serialize_pem())?,
            public_path: write(folder.join(format!("{name}.pub")), &key.public_key_pem())?,
        })
    }
}

fn ecdsa_key(what: &str) -> Result<KeyPair, PkiError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
        .map_err(|source| make_error(what.to_owned(), source))
}

fn subject(common_name: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name
}

fn make_error(what: String, source: rcgen::Error) -> PkiError {
    PkiError::Make { what, source }
}

fn write(path: PathBuf, pem: &str) -> Result<PathBuf, PkiError> {
    match std::fs::write(&path, pem) {
        Ok(()) => Ok(path),
        Err(source) => Err(PkiError::Write { path, source }),
    }
}
