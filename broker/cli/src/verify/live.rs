//! `--live`: fetches the keys from where the target would.

use keyferry_client::trusted_issuer::TrustedIssuer;
use keyferry_kube_authn::Code;
use keyferry_kube_authn::config::{Issuer, Undetermined};
use keyferry_kube_authn::verify::Keys;
use keyferry_platform::address_guard::AddressGuard;

pub(super) use keyferry_client::trusted_issuer::MAX_BODY;

/// Reads the keys of one issuer, from where the guard allows.
///
/// # Errors
/// [`Undetermined`]: the target may be able to read what this machine cannot, and the other way
/// round.
pub(super) fn fetch(issuer: &Issuer, guard: &AddressGuard) -> Result<(Keys, String), Undetermined> {
    let failed = |reason: String| Undetermined {
        code: Code::IssuerNotRead,
        reason,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| failed(format!("starting: {error}")))?;
    let place = TrustedIssuer {
        url: &issuer.url,
        discovery_url: &issuer.discovery_url,
        certificate_authority: &issuer.certificate_authority,
    };
    let body = runtime
        .block_on(place.key_set(guard))
        .map_err(|error| failed(error.to_string()))?;
    Ok((
        Keys::none().with_key_set(issuer.url.clone(), &body),
        format!("keys read now for {}", issuer.url),
    ))
}
