//! Asks clients for an optional certificate. TLS proves only that the client has its key. Each
//! request decides which caller it identifies.
//!
//! So a certificate is not accepted beyond its validity or a change of the rules, however long the
//! connection is open. A refused certificate gets the same answer as every refused caller, and not
//! a TLS alert that shows which check failed.

use std::sync::Arc;

use keyferry_keys::caller_certificate::PresentedChain;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, ServerConnection,
    SignatureScheme,
};
use rustls_pki_types::{CertificateDer, UnixTime};

/// Whether a listener asks its clients for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// It does not.
    Ignored,
    /// It does, and serves those without one too.
    Requested,
}

/// Lets every certificate pass that is short enough and whose key the client proves to have.
#[derive(Debug)]
pub(crate) struct PossessionVerifier(WebPkiSupportedAlgorithms);

impl PossessionVerifier {
    pub(crate) fn new() -> Self {
        Self(rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms)
    }
}

impl ClientCertVerifier for PossessionVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// The handshake lists no names of CAs: they change without a new TLS configuration, and
    /// clients need not learn them.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        // Every connection keeps its chain, so its size is limited before it is kept.
        PresentedChain::check_limits(end_entity, intermediates).map_err(|_| {
            Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)
        })?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// The certificates that the peer of a TLS connection presented.
pub(crate) fn peer_chain(session: &ServerConnection) -> Option<Arc<PresentedChain>> {
    PresentedChain::new(session.peer_certificates()?)
        .ok()
        .map(Arc::new)
}
