//! What clients of the token API get over connections of their own.

mod client_certificate;
