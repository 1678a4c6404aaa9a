//! Checks whether a certificate can serve a listener, so that a bad one is found before clients
//! refuse it.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::foreign_text;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

/// How far the clock of a certificate's issuer may be ahead of ours.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(300);

/// Maximum number of names to print from a certificate for other hosts.
const PRINTED_NAMES: usize = 5;

/// Why clients would refuse a serving certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServingCertificateError {
    /// The certificate cannot be read.
    #[error("the first certificate is not an X.509 certificate")]
    NotX509,
    /// The certificate has expired.
    #[error("the certificate expired at {0}")]
    Expired(Timestamp),
    /// The certificate is not valid yet.
    #[error("the certificate is not valid before {0}")]
    NotYetValid(Timestamp),
    /// The certificate has an extended key usage that does not include servers.
    #[error("the certificate's extended key usage has no serverAuth")]
    NoServerAuth,
    /// The certificate is for other hosts.
    #[error("the certificate is not for {host}, but for {names}")]
    OtherHost {
        /// The host that clients connect to.
        host: String,
        /// The hosts in the certificate, as far as they are printed.
        names: String,
    },
}

impl ServingCertificateError {
    /// How to fix the problem.
    pub fn fix(&self) -> String {
        match self {
            Self::NotX509 => "put the certificate of the listener first, as PEM, and those of \
                intermediate authorities after it"
                .to_owned(),
            Self::Expired(_) => "renew it".to_owned(),
            Self::NotYetValid(_) => "wait until then, or correct the clock of this machine or of \
                the issuer"
                .to_owned(),
            Self::NoServerAuth => "have it issued with the extended key usage serverAuth \
                (cert-manager: usages: [server auth])"
                .to_owned(),
            Self::OtherHost { host, .. } => {
                format!(
                    "have it issued with {host} as a subject alternative name, or correct \
                    publicURL; its common name does not count"
                )
            }
        }
    }
}

/// Checks the certificate of a listener and returns its expiry. `host` is the one that clients
/// connect to, if that is known.
///
/// # Errors
/// [`ServingCertificateError`] says what a client would refuse.
pub fn check_certificate(
    leaf: &[u8],
    host: Option<&str>,
    now: Timestamp,
) -> Result<Timestamp, ServingCertificateError> {
    use ServingCertificateError as E;
    let (rest, certificate) = parse_x509_certificate(leaf).map_err(|_| E::NotX509)?;
    if !rest.is_empty() {
        return Err(E::NotX509);
    }
    let validity = certificate.validity();
    // RFC 5280 section 4.1.2.5: 99991231235959Z means no end, and lies beyond what a `Timestamp`
    // can hold.
    let time = |seconds: i64| {
        Timestamp::from_second(seconds.min(Timestamp::MAX.as_second())).map_err(|_| E::NotX509)
    };
    let (begin, end) = (
        time(validity.not_before.timestamp())?,
        time(validity.not_after.timestamp())?,
    );
    if now > end {
        return Err(E::Expired(end));
    }
    if now + MAX_CLOCK_SKEW < begin {
        return Err(E::NotYetValid(begin));
    }
    // Without the extension, the certificate is valid for every usage.
    if let Some(usage) = certificate.extended_key_usage().map_err(|_| E::NotX509)?
        && !usage.value.server_auth
        && !usage.value.any
    {
        return Err(E::NoServerAuth);
    }
    match host {
        Some(host) => check_host(&certificate, host).map(|()| end),
        None => Ok(end),
    }
}

/// Checks the host by RFC 6125 section 6.4, as clients apply it today: only subject alternative
/// names count, and a wildcard covers the whole first label.
fn check_host(
    certificate: &X509Certificate<'_>,
    host: &str,
) -> Result<(), ServingCertificateError> {
    let names = certificate
        .subject_alternative_name()
        .map_err(|_| ServingCertificateError::NotX509)?;
    let names = names
        .map(|extension| extension.value.general_names.as_slice())
        .unwrap_or_default();
    let address: Option<IpAddr> = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .ok();
    let fits = |name: &GeneralName<'_>| match (name, address) {
        (GeneralName::IPAddress(bytes), Some(address)) => address_octets(address) == *bytes,
        (GeneralName::DNSName(pattern), None) => names_host(pattern, host),
        _ => false,
    };
    if names.iter().any(fits) {
        return Ok(());
    }
    let printed: Vec<String> = names
        .iter()
        .filter_map(printed_name)
        .take(PRINTED_NAMES)
        .collect();
    let names = if printed.is_empty() {
        "no host".to_owned()
    } else {
        printed.join(", ")
    };
    Err(ServingCertificateError::OtherHost {
        host: host.to_owned(),
        names,
    })
}

fn address_octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn names_host(pattern: &str, host: &str) -> bool {
    let host = host.trim_end_matches('.');
    match pattern.strip_prefix("*.") {
        Some(parent) => host
            .split_once('.')
            .is_some_and(|(label, rest)| !label.is_empty() && rest.eq_ignore_ascii_case(parent)),
        None => pattern.eq_ignore_ascii_case(host),
    }
}

fn printed_name(name: &GeneralName<'_>) -> Option<String> {
    let text = match name {
        GeneralName::DNSName(name) => (*name).to_owned(),
        GeneralName::IPAddress(bytes) => match <[u8; 4]>::try_from(*bytes) {
            Ok(octets) => IpAddr::from(octets).to_string(),
            Err(_) => IpAddr::from(<[u8; 16]>::try_from(*bytes).ok()?).to_string(),
        },
        _ => return None,
    };
    Some(foreign_text::visible_ascii(&text, 253))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair, date_time_ymd};

    use super::{ServingCertificateError, check_certificate};

    fn certificate(names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
        let mut params = CertificateParams::new(
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>(),
        )
        .unwrap();
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = date_time_ymd(2026, 2, 1);
        change(&mut params);
        params
            .self_signed(&KeyPair::generate().unwrap())
            .unwrap()
            .der()
            .to_vec()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn now() -> Timestamp {
        at("2026-01-10T00:00:00Z")
    }

    #[test]
    fn its_host_is_among_its_names() {
        let leaf = certificate(
            &[
                "keyferry.example.com",
                "*.apps.example.com",
                "192.0.2.1",
                "2001:db8::1",
            ],
            |_| {},
        );
        let end = Ok(at("2026-02-01T00:00:00Z"));
        for host in [
            "keyferry.example.com",
            "KEYFERRY.example.com",
            "a.apps.example.com",
            "192.0.2.1",
            "[2001:db8::1]",
        ] {
            assert_eq!(check_certificate(&leaf, Some(host), now()), end, "{host}");
        }
        assert_eq!(check_certificate(&leaf, None, now()), end);
        for host in [
            "example.com",
            "apps.example.com",
            "a.b.apps.example.com",
            ".apps.example.com",
            "192.0.2.2",
            "[2001:db8::2]",
        ] {
            let error = check_certificate(&leaf, Some(host), now()).unwrap_err();
            assert!(
                matches!(error, ServingCertificateError::OtherHost { .. }),
                "{host}: {error}"
            );
            assert!(
                error
                    .to_string()
                    .contains("keyferry.example.com, *.apps.example.com, 192.0.2.1, 2001:db8::1"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_common_name_is_no_host() {
        let leaf = certificate(&[], |params| {
            params
                .distinguished_name
                .push(rcgen::DnType::CommonName, "keyferry.example.com")
        });
        let error = check_certificate(&leaf, Some("keyferry.example.com"), now()).unwrap_err();
        assert!(error.to_string().ends_with("but for no host"), "{error}");
        assert!(
            error.fix().contains("common name does not count"),
            "{}",
            error.fix()
        );
    }

    #[test]
    fn its_time_has_come_and_not_passed() {
        let leaf = certificate(&["a"], |_| {});
        let (begin, end) = (at("2026-01-01T00:00:00Z"), at("2026-02-01T00:00:00Z"));
        let second = SignedDuration::from_secs(1);
        assert_eq!(check_certificate(&leaf, None, end), Ok(end));
        assert_eq!(
            check_certificate(&leaf, None, end + second),
            Err(ServingCertificateError::Expired(end))
        );
        assert_eq!(
            check_certificate(&leaf, None, begin - SignedDuration::from_secs(300)),
            Ok(end),
            "clocks differ a little"
        );
        assert_eq!(
            check_certificate(&leaf, None, begin - SignedDuration::from_secs(301)),
            Err(ServingCertificateError::NotYetValid(begin))
        );
    }

    #[test]
    fn its_usage_is_a_servers() {
        let with = |usages: &[ExtendedKeyUsagePurpose]| {
            certificate(&["a"], |params| {
                params.extended_key_usages = usages.to_vec()
            })
        };
        use ExtendedKeyUsagePurpose::{Any, ClientAuth, ServerAuth};
        for usages in [&[ServerAuth][..], &[ClientAuth, ServerAuth], &[Any], &[]] {
            assert!(
                check_certificate(&with(usages), None, now()).is_ok(),
                "{usages:?}"
            );
        }
        assert_eq!(
            check_certificate(&with(&[ClientAuth]), None, now()),
            Err(ServingCertificateError::NoServerAuth)
        );
    }

    #[test]
    fn what_is_no_certificate_is_said_to_be_none() {
        let leaf = certificate(&["a"], |_| {});
        for bytes in [
            &b""[..],
            b"junk",
            &leaf[..leaf.len() - 1],
            &[leaf.clone(), vec![0]].concat(),
        ] {
            assert_eq!(
                check_certificate(bytes, None, now()),
                Err(ServingCertificateError::NotX509)
            );
        }
    }
}
