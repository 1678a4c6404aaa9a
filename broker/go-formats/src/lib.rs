//! Reads and prints JSON, YAML, URLs, PEM, certificates, base64, quoted text and times as Go's
//! libraries do.
//!
//! kube-apiserver is written in Go, so what it accepts and the text of its errors follow Go's
//! readers, also where they differ from the specification. The behaviour was read from Go 1.26, of
//! certificates from Go 1.22 to 1.26, and is tested against it; the code is ours. Everything is a
//! pure function of its arguments.
//!
//! ```
//! use keyferry_go_formats::yaml;
//!
//! // Go's YAML library reads YAML 1.1, in which `on` is a boolean.
//! let document = yaml::read(b"enabled: on")?;
//! assert_eq!(document.value.member("enabled").unwrap().to_bool(), Ok(true));
//!
//! let refused = yaml::read(b"a: b: c").unwrap_err();
//! assert!(format!("{refused:?}").contains("mapping values are not allowed in this context"));
//! # Ok::<(), yaml::Fault>(())
//! ```

pub mod base64;
mod go_release;
pub mod json;
pub mod natural;
pub mod pem;
pub mod quote;
pub mod time;
pub mod url;
pub mod x509;
pub mod yaml;

pub use go_release::GoRelease;
