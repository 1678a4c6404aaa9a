//! Predicts offline whether a target's kube-apiserver, given an AuthenticationConfiguration,
//! accepts a token.
//!
//! Everything here is a pure function: it takes `now` and bytes, and returns values or named
//! errors. What cannot be decided offline is reported as undetermined, never guessed.

pub mod batch;
pub mod cel;
mod certificate;
pub mod code;
pub mod config;
pub mod doctor;
mod go;
pub mod keys;
pub mod lint;
pub mod minor;
pub mod report;
pub mod rights;
pub mod token;
pub mod validate;
pub mod verify;

pub use code::Code;
pub use minor::Minor;
