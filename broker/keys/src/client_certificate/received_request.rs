//! A certificate request as its approver reads it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::CertificateSigningRequestDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY};
use x509_parser::prelude::FromDer;

use super::single_common_name;

/// The longest request that is read. One of Keyferry's has about 500 bytes.
const MAX_REQUEST_BYTES: usize = 16 * 1024;

/// A received certificate request that has a common name, a key on P-256, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedCertificateRequest {
    common_name: String,
}

/// Why a received certificate request is not one that Keyferry makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnexpectedRequest {
    /// It cannot be read.
    #[error("it is not one certificate request in PEM")]
    NotARequest,
    /// Its subject is not one common name alone.
    #[error("its subject is not one common name alone")]
    Subject,
    /// It asks for extensions, such as alternative names.
    #[error("it asks for extensions")]
    Attributes,
    /// Its key is not on P-256.
    #[error("its key is not an ECDSA key on P-256")]
    Key,
}

impl ReceivedCertificateRequest {
    /// Reads a request. The apiserver has checked its signature when it was created (kubernetes
    /// pkg/apis/certificates/validation).
    ///
    /// # Errors
    /// [`UnexpectedRequest`] for any request that Keyferry would not make.
    pub fn read(pem: &[u8]) -> Result<Self, UnexpectedRequest> {
        if pem.len() > MAX_REQUEST_BYTES {
            return Err(UnexpectedRequest::NotARequest);
        }
        let mut blocks = CertificateSigningRequestDer::pem_slice_iter(pem);
        let (Some(Ok(der)), None) = (blocks.next(), blocks.next()) else {
            return Err(UnexpectedRequest::NotARequest);
        };
        // The apiserver and the signer read PEM with Go's encoding/pem, which ends lines and blocks
        // elsewhere. Only the exact form that Keyferry writes is the same request for both.
        if super::write_pem("CERTIFICATE REQUEST", &STANDARD.encode(der.as_ref())).as_bytes() != pem
        {
            return Err(UnexpectedRequest::NotARequest);
        }
        let Ok(([], request)) = X509CertificationRequest::from_der(der.as_ref()) else {
            return Err(UnexpectedRequest::NotARequest);
        };
        let info = &request.certification_request_info;
        if !info.attributes().is_empty() {
            return Err(UnexpectedRequest::Attributes);
        }
        let key = &info.subject_pki.algorithm;
        let curve = key.parameters.as_ref().and_then(|any| any.as_oid().ok());
        if key.algorithm != OID_KEY_TYPE_EC_PUBLIC_KEY || curve != Some(OID_EC_P256) {
            return Err(UnexpectedRequest::Key);
        }
        let common_name = single_common_name(&info.subject).ok_or(UnexpectedRequest::Subject)?;
        Ok(Self {
            common_name: common_name.to_owned(),
        })
    }

    /// The requested user.
    pub fn common_name(&self) -> &str {
        &self.common_name
    }
}
