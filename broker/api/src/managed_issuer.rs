//! Names of a managed issuer: its URL, its key set's URL and Secret.

use crate::issuer::{Issuer, IssuerError, PublicUrl};
use crate::name::{NameError, ObjectName};

/// Audience of the TokenRequest that asks the hub whether the ServiceAccount exists and whether
/// Keyferry may mint for it. No target has this audience and no API server accepts it. The token is
/// discarded.
pub const INERT_AUDIENCE: &str = "keyferry.dev/inert";

/// `<publicURL>/issuers/<target>`: the value of `iss`, and where the target looks for the keys.
///
/// # Errors
/// [`IssuerError`] when the two together are longer than verifiers accept.
pub fn managed_issuer_url(
    public_url: &PublicUrl,
    target: &ObjectName,
) -> Result<Issuer, IssuerError> {
    Issuer::new(format!("{public_url}/issuers/{target}"))
}

/// The URL of an issuer's key set.
pub fn jwks_uri(issuer: &Issuer) -> String {
    format!("{issuer}/openid/v1/jwks")
}

/// The name of the Secret with a target's key set, in Keyferry's namespace.
///
/// # Errors
/// [`NameError`] when the target's name leaves no room for the prefix.
pub fn secret_name(target: &ObjectName) -> Result<ObjectName, NameError> {
    ObjectName::new(format!("keyferry-issuer-{target}"))
}
