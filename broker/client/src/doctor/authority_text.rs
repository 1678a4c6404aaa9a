//! Checks the text of CA certificates in an object, and says how it is wrong.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_platform::https_client::HttpsClientBuilder;

/// How many characters of a text that is no PEM a message repeats.
const SHOWN_CHARACTERS: usize = 16;

/// Why a text is no CA certificates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityTextError {
    /// It should be base64, and is not.
    #[error("is not base64")]
    NotBase64,
    /// It is base64 of PEM, where PEM belongs.
    #[error("is base64 of PEM certificates, where the PEM text itself belongs")]
    Base64OfPem,
    /// It has no PEM block.
    #[error("is not PEM: it begins with {0:?}")]
    NotPem(String),
    /// It has PEM blocks, but no certificate that can be used.
    #[error("is PEM, but holds no certificate that can be used")]
    NoCertificate,
}

/// Checks that an HTTPS client can trust these PEM certificates.
///
/// # Errors
/// [`AuthorityTextError`].
pub fn certificates(bytes: &[u8]) -> Result<(), AuthorityTextError> {
    if HttpsClientBuilder::new(Duration::ZERO)
        .trusting_only(bytes)
        .is_ok()
    {
        return Ok(());
    }
    if has_marker(bytes) {
        return Err(AuthorityTextError::NoCertificate);
    }
    let packed: Vec<u8> = bytes
        .iter()
        .copied()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    match STANDARD.decode(packed) {
        Ok(decoded) if has_marker(&decoded) => Err(AuthorityTextError::Base64OfPem),
        _ => {
            let text = String::from_utf8_lossy(bytes);
            let start = text.chars().take(SHOWN_CHARACTERS).collect();
            Err(AuthorityTextError::NotPem(start))
        }
    }
}

fn has_marker(bytes: &[u8]) -> bool {
    let marker = b"-----BEGIN ";
    bytes.windows(marker.len()).any(|part| part == marker)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn each_wrong_form_of_certificates_has_its_text() {
        let pem = keyferry_testing::Authority::new("t").unwrap();
        let pem = pem.ca_pem();
        assert_eq!(certificates(pem.as_bytes()), Ok(()));
        let encoded = STANDARD.encode(pem);
        assert_eq!(
            certificates(encoded.as_bytes()),
            Err(AuthorityTextError::Base64OfPem)
        );
        assert_eq!(
            certificates(b"/etc/ssl/ca.crt"),
            Err(AuthorityTextError::NotPem("/etc/ssl/ca.crt".to_owned()))
        );
        let key = pem.replace("CERTIFICATE", "PUBLIC KEY");
        assert_eq!(
            certificates(key.as_bytes()),
            Err(AuthorityTextError::NoCertificate)
        );
    }
}
