//! The CA of `keyferry tls`, and the serving certificates that it signs.

use std::time::Duration;

use jiff::Timestamp;
use keyferry_keys::ca_bundle::{CaBundle, CaBundleError};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, date_time_ymd,
};
use secrecy::{ExposeSecret, SecretString};

/// How far the clock of a verifier may be behind ours.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(300);

/// Why certificates could not be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum AuthorityError {
    #[error("making the certificate for {0}: not every name is a host name or an IP address")]
    Host(String),
    #[error("reading the CA: {0}")]
    Certificate(#[from] CaBundleError),
    /// The library's own message is dropped, because it may describe the key.
    #[error("reading the CA: tls.key is no private key that can sign")]
    Key,
    #[error("reading the CA: tls.key is not the key of tls.crt")]
    OtherKey,
    #[error("making {0}: the library failed")]
    Library(&'static str),
}

/// A certificate as PEM with its key.
pub(super) struct Certified {
    pub(super) certificate: String,
    pub(super) key: SecretString,
    pub(super) not_after: Timestamp,
}

/// A CA that can sign.
pub(super) struct Authority {
    pub(super) certified: Certified,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Creates a CA with an ECDSA P-256 key.
    pub(super) fn new(life: Duration, now: Timestamp) -> Result<Self, AuthorityError> {
        let failed = |_| AuthorityError::Library("the CA");
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let mut params = CertificateParams::default();
        // While one CA follows another, both are trusted: the time keeps their names apart, so that
        // verifiers do not try the wrong key.
        params.distinguished_name = named(&format!("Keyferry CA {}", now.as_second()));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let not_after = now + life;
        valid(&mut params, now, not_after);
        let certificate = params.self_signed(&key).map_err(failed)?.pem();
        Ok(Self {
            certified: Certified {
                certificate,
                key: SecretString::from(key.serialize_pem()),
                not_after,
            },
            issuer: Issuer::new(params, key),
        })
    }

    /// Reads a CA from its certificate and key as PEM.
    pub(super) fn read(
        certificate: &str,
        key: &SecretString,
        now: Timestamp,
    ) -> Result<Self, AuthorityError> {
        let bundle = CaBundle::from_pem(certificate.as_bytes(), now)?;
        let pair = KeyPair::from_pem(key.expose_secret()).map_err(|_| AuthorityError::Key)?;
        // The library signs with any key, and every client would refuse the result.
        if !bundle.first_has_key(&pair.subject_public_key_info()) {
            return Err(AuthorityError::OtherKey);
        }
        let issuer = Issuer::from_ca_cert_pem(certificate, pair)
            .map_err(|_| AuthorityError::Library("the issuer"))?;
        Ok(Self {
            certified: Certified {
                certificate: certificate.to_owned(),
                key: key.clone(),
                not_after: bundle.earliest_expiry(),
            },
            issuer,
        })
    }

    /// Signs a serving certificate with a new key for these hosts. It ends no later than the CA.
    pub(super) fn serving(
        &self,
        hosts: &[String],
        life: Duration,
        now: Timestamp,
    ) -> Result<Certified, AuthorityError> {
        let params = CertificateParams::new(hosts.to_vec());
        let mut params = params.map_err(|_| AuthorityError::Host(hosts.join(", ")))?;
        // Clients read the alternative names only, and a common name has at most 64 characters.
        params.distinguished_name = named("Keyferry");
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let not_after = (now + life).min(self.certified.not_after);
        valid(&mut params, now, not_after);
        let failed = |_| AuthorityError::Library("a serving certificate");
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Certified {
            certificate: certificate.pem(),
            key: SecretString::from(key.serialize_pem()),
            not_after,
        })
    }
}

fn named(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

fn valid(params: &mut CertificateParams, now: Timestamp, not_after: Timestamp) {
    // Counted from 1970, because the library exports a constructor of its times but not their type.
    let time = |at: Timestamp| {
        let since = u64::try_from(at.as_second()).unwrap_or_default();
        date_time_ymd(1970, 1, 1) + Duration::from_secs(since)
    };
    params.not_before = time(now - MAX_CLOCK_SKEW);
    params.not_after = time(not_after);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;
    use keyferry_keys::serving_certificate;
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject;
    use secrecy::{ExposeSecret, SecretString};

    use super::{Authority, AuthorityError};

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn now() -> Timestamp {
        "2026-11-01T00:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_renewed_certificate_is_of_the_same_ca_and_has_another_key() {
        let first = Authority::new(DAY * 100, now()).unwrap();
        let ca = &first.certified;
        let again = Authority::read(&ca.certificate, &ca.key, now()).unwrap();
        assert_eq!(again.certified.not_after, now() + DAY * 100);
        let hosts = ["keyferry.example.com".to_owned(), "192.0.2.1".to_owned()];
        let (one, other) = (
            first.serving(&hosts, DAY, now()).unwrap(),
            again.serving(&hosts, DAY * 500, now()).unwrap(),
        );
        assert_ne!(one.key.expose_secret(), other.key.expose_secret());
        assert_eq!(
            (one.not_after, other.not_after),
            (now() + DAY, now() + DAY * 100),
            "a certificate does not outlive its CA"
        );
        for certified in [&one, &other] {
            let leaf = CertificateDer::from_pem_slice(certified.certificate.as_bytes()).unwrap();
            for host in &hosts {
                assert_eq!(
                    serving_certificate::check_certificate(&leaf, Some(host), now()),
                    Ok(certified.not_after)
                );
            }
            assert!(
                serving_certificate::check_certificate(&leaf, Some("localhost"), now()).is_err()
            );
        }
    }

    #[test]
    fn what_is_no_ca_with_its_key_signs_nothing() {
        let (one, other) = (
            Authority::new(DAY * 10, now()).unwrap(),
            Authority::new(DAY * 10, now()).unwrap(),
        );
        let ca = &one.certified;
        let read =
            |certificate: &str, key: &SecretString, at| Authority::read(certificate, key, at).err();
        assert!(matches!(
            read(&ca.certificate, &other.certified.key, now()),
            Some(AuthorityError::OtherKey)
        ));
        assert!(matches!(
            read(&ca.certificate, &SecretString::from(""), now()),
            Some(AuthorityError::Key)
        ));
        let later = now() + DAY * 11;
        assert!(matches!(
            read(&ca.certificate, &ca.key, later),
            Some(AuthorityError::Certificate(_))
        ));
        let leaf = one.serving(&["a".to_owned()], DAY, now()).unwrap();
        assert!(matches!(
            read(&leaf.certificate, &leaf.key, now()),
            Some(AuthorityError::Certificate(_))
        ));
        let host = one.serving(&["ä b".to_owned()], DAY, now()).err();
        assert!(matches!(host, Some(AuthorityError::Host(_))));
    }
}
