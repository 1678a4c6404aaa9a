//! The behaviour of Go's libraries, as far as an apiserver's answer depends on it: JSON, YAML,
//! base64, quoting, URLs, PEM.
//!
//! The behaviour was read from Go 1.26 and tested against it; the code is ours.

pub(crate) mod base64;
pub(crate) mod json;
pub(crate) mod pem;
pub(crate) mod quote;
pub(crate) mod time;
pub(crate) mod url;
pub(crate) mod yaml;
