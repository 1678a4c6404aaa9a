//! What a target's kube-apiserver makes of an AuthenticationConfiguration and a token, decided
//! offline.
//!
//! Everything here is a pure function: `now` and bytes go in, values or named errors come out. What
//! cannot be decided is said to be undetermined, never guessed.

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
