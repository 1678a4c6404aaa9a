//! Whether cryptography runs in FIPS mode.

/// Whether the cryptographic module reports that it runs in FIPS mode, and rustls that its
/// cipher suites, key exchanges, signatures, random numbers and key loading are all approved.
///
/// This says nothing about the certificate of the module. The feature `fips` alone does not make
/// it true: the module decides at run time.
pub fn is_enabled() -> bool {
    aws_lc_rs::try_fips_mode().is_ok() && rustls::crypto::aws_lc_rs::default_provider().fips()
}
