//! Reads the subject and issuer names of a certificate for messages. Nothing here trusts the
//! certificate.

use std::net::IpAddr;

use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

/// The most names that a message repeats.
const MAX_NAMES: usize = 10;
/// The most characters of a name that a message repeats.
const MAX_CHARACTERS: usize = 200;

/// The names in an unverified certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateNames {
    /// The issuer's distinguished name, like `CN=example CA`.
    pub issuer: String,
    /// The DNS names and IP addresses that it is for; at most ten.
    pub subjects: Vec<String>,
}

/// Reads the names of a DER certificate; `None` if it cannot be parsed. Characters that could
/// control a terminal are replaced.
pub fn read_names(der: &[u8]) -> Option<CertificateNames> {
    let (_, certificate) = parse_x509_certificate(der).ok()?;
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names
        .iter()
        .flat_map(|extension| &extension.value.general_names);
    let subjects = names.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(printable_text(name)),
        GeneralName::IPAddress(bytes) => parse_address(bytes).map(|address| address.to_string()),
        _ => None,
    });
    Some(CertificateNames {
        subjects: subjects.take(MAX_NAMES).collect(),
        issuer: printable_text(&certificate.issuer().to_string()),
    })
}

fn parse_address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

fn printable_text(text: &str) -> String {
    let kept =
        |character: char| character.is_alphanumeric() || " .,=-_:*@/()'+".contains(character);
    text.chars()
        .take(MAX_CHARACTERS)
        .map(|character| if kept(character) { character } else { '?' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{printable_text, read_names};

    #[test]
    fn names_do_not_speak_to_the_terminal() {
        assert_eq!(printable_text("CN=a\u{1b}[31m\u{202e}b"), "CN=a??31m?b");
        assert_eq!(printable_text(&"a".repeat(1000)).len(), 200);
        assert_eq!(read_names(b"no certificate"), None);
    }
}
