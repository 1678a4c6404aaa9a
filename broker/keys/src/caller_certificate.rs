//! Client certificates of callers: finds the identity that a presented chain proves, by the
//! configured rules. A caller of the token API is a ServiceAccount, and a reader of fleet inputs a
//! credential. Their rules have two types, so a certificate of the one cannot be used as the other.
//!
//! A rule names one CA and one URI. The URI selects the rules, and each selected rule verifies the
//! chain against its own CA only, so a URI that is allowed for one CA proves nothing under another.
//! The common name, the organization and every other name of the certificate are ignored.

mod authority;
mod chain;
mod error;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::service_account::ServiceAccountIdentity;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

use crate::ca_bundle::certificate::has_strong_key;
use crate::hexadecimal::to_hexadecimal;

pub use authority::{AuthorityKeys, CallerAuthority, CallerAuthorityError};
pub use chain::{ChainTooLarge, MAX_CHAIN_BYTES, MAX_CHAIN_CERTIFICATES, PresentedChain};
pub use error::CallerCertificateError;

/// The longest life of a caller's certificate, from its notBefore to its notAfter. No list of
/// revoked certificates is read, so a stolen key can be used until its certificate expires.
pub const LONGEST_LIFE: Duration = Duration::from_secs(24 * 3600);

/// The most bytes of a serial number that are printed. RFC 5280 section 4.1.2.2 allows 20.
const PRINTED_SERIAL: usize = 20;

/// One rule: certificates with this URI, signed under this CA, prove this identity.
#[derive(Clone, Debug)]
pub struct CallerCertificateRule<I = ServiceAccountIdentity> {
    /// The only URI among the certificate's alternative names, byte for byte.
    pub uri: String,
    /// The identity of the caller.
    pub identity: I,
    /// The CA of the rule. Without one, the rule accepts nothing.
    pub authority: Option<Arc<CallerAuthority>>,
    /// Keys of CAs that no chain may contain, such as those of the hub's client CA.
    pub refused_keys: Option<Arc<AuthorityKeys>>,
}

/// Rules for identities of one type, found by their URI.
#[derive(Clone, Debug)]
pub struct CallerCertificateRules<I = ServiceAccountIdentity>(Vec<CallerCertificateRule<I>>);

impl<I> Default for CallerCertificateRules<I> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// A caller that a certificate identified. Only [`CallerCertificateRules::identify_caller`] makes it.
#[derive(Clone, Debug)]
pub struct CertifiedCaller<I = ServiceAccountIdentity> {
    identity: I,
    certificate: CertificateNote,
    not_after: Timestamp,
}

impl<I> CertifiedCaller<I> {
    /// The identity that the rule names.
    pub fn identity(&self) -> &I {
        &self.identity
    }

    /// What the audit record reports of the certificate.
    pub fn certificate(&self) -> &CertificateNote {
        &self.certificate
    }

    /// When the certificate expires.
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }
}

/// The part of an accepted certificate that an audit record has. It holds nothing secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateNote {
    /// The URI, which equals that of the rule.
    pub uri: String,
    /// The serial number, in hexadecimal.
    pub serial: String,
    /// The SHA-256 of the CA certificate of the rule that verified the chain, in hexadecimal.
    pub authority: String,
}

impl<I: Clone + PartialEq> CallerCertificateRules<I> {
    /// Orders the rules by their URI.
    pub fn new(mut rules: Vec<CallerCertificateRule<I>>) -> Self {
        rules.sort_by(|one, other| one.uri.cmp(&other.uri));
        Self(rules)
    }

    /// Returns the caller that the chain identifies at `now`. TLS must have proved that the peer
    /// has the private key.
    ///
    /// # Errors
    /// [`CallerCertificateError`].
    pub fn identify_caller(
        &self,
        chain: &PresentedChain,
        now: Timestamp,
    ) -> Result<CertifiedCaller<I>, CallerCertificateError> {
        use CallerCertificateError as E;
        let (rest, leaf) = parse_x509_certificate(chain.leaf()).map_err(|_| E::NotX509)?;
        if !rest.is_empty() {
            return Err(E::NotX509);
        }
        let not_after = check_validity(&leaf, now)?;
        check_usage(&leaf)?;
        let uri = only_uri(&leaf)?;
        let selected = self.of_uri(uri);
        if selected.is_empty() {
            return Err(E::OtherUri);
        }
        let mut accepted: Option<CertifiedCaller<I>> = None;
        let mut refused = E::OtherAuthority;
        for rule in selected {
            let verified = rule
                .authority
                .as_ref()
                .ok_or(E::OtherAuthority)
                .and_then(|authority| {
                    authority.verify_chain(chain, rule.refused_keys.as_deref(), now)
                });
            let authority = match verified {
                Ok(authority) => authority,
                Err(error) => {
                    refused = error;
                    continue;
                }
            };
            match &accepted {
                Some(first) if first.identity == rule.identity => {}
                Some(_) => return Err(E::SeveralAccounts),
                None => {
                    accepted = Some(CertifiedCaller {
                        identity: rule.identity.clone(),
                        certificate: CertificateNote {
                            uri: uri.to_owned(),
                            serial: serial_number(&leaf),
                            authority: authority.to_owned(),
                        },
                        not_after,
                    });
                }
            }
        }
        accepted.ok_or(refused)
    }

    fn of_uri(&self, uri: &str) -> &[CallerCertificateRule<I>] {
        let start = self.0.partition_point(|rule| rule.uri.as_str() < uri);
        let from = self.0.get(start..).unwrap_or_default();
        let count = from.partition_point(|rule| rule.uri == uri);
        from.get(..count).unwrap_or_default()
    }
}

impl<I> CallerCertificateRules<I> {
    /// The rules, ordered by their URI.
    pub fn rules(&self) -> &[CallerCertificateRule<I>] {
        &self.0
    }
}

/// Checks the validity without tolerance for clocks that differ, and returns its end.
fn check_validity(
    leaf: &X509Certificate<'_>,
    now: Timestamp,
) -> Result<Timestamp, CallerCertificateError> {
    use CallerCertificateError as E;
    let validity = leaf.validity();
    let (begin, end) = (
        validity.not_before.timestamp(),
        validity.not_after.timestamp(),
    );
    // In whole seconds, because notAfter includes its second (RFC 5280 section 4.1.2.5).
    let now = now.as_second();
    if now < begin {
        return Err(E::NotYetValid);
    }
    if now > end {
        return Err(E::Expired);
    }
    let life = end.checked_sub(begin).ok_or(E::TooLong)?;
    if life > i64::try_from(LONGEST_LIFE.as_secs()).unwrap_or(i64::MAX) {
        return Err(E::TooLong);
    }
    Timestamp::from_second(end).map_err(|_| E::NotX509)
}

/// Checks that the certificate is for a client and not for a CA.
fn check_usage(leaf: &X509Certificate<'_>) -> Result<(), CallerCertificateError> {
    use CallerCertificateError as E;
    let constraints = leaf.basic_constraints().map_err(|_| E::NotX509)?;
    if constraints.is_some_and(|constraints| constraints.value.ca) {
        return Err(E::IsAuthority);
    }
    // TLS libraries treat an absent extension, and anyExtendedKeyUsage, as every usage.
    let extended = leaf.extended_key_usage().map_err(|_| E::NotX509)?;
    if !extended.is_some_and(|usage| usage.value.client_auth) {
        return Err(E::NoClientAuth);
    }
    let usage = leaf.key_usage().map_err(|_| E::NotX509)?;
    if usage.is_some_and(|usage| !usage.value.digital_signature()) {
        return Err(E::NoDigitalSignature);
    }
    if !has_strong_key(leaf) {
        return Err(E::WeakKey);
    }
    Ok(())
}

/// The only URI among the alternative names. Names of other kinds are not read.
fn only_uri<'a>(leaf: &'a X509Certificate<'_>) -> Result<&'a str, CallerCertificateError> {
    use CallerCertificateError as E;
    let names = leaf.subject_alternative_name().map_err(|_| E::NotX509)?;
    let names = names.ok_or(E::NoUri)?;
    let mut uris = names
        .value
        .general_names
        .iter()
        .filter_map(|name| match name {
            GeneralName::URI(uri) => Some(Ok(*uri)),
            // A name that cannot be read might be a second URI.
            GeneralName::Invalid(..) => Some(Err(E::NoUri)),
            _ => None,
        });
    let only = uris.next().ok_or(E::NoUri)??;
    match uris.next() {
        None => Ok(only),
        Some(Ok(_)) => Err(E::SeveralUris),
        Some(Err(error)) => Err(error),
    }
}

fn serial_number(leaf: &X509Certificate<'_>) -> String {
    let serial = leaf.raw_serial();
    to_hexadecimal(serial.get(..PRINTED_SERIAL).unwrap_or(serial))
}

#[cfg(test)]
mod tests;
