//! What must hold for any bytes that others wrote: one property for each parser that reads them.
//!
//! A property says more than that nothing panics: what is accepted is bounded, reads the same when
//! it is written again, agrees with a second reader where there is one, and shows no secret.
//! `tests/smoke.rs` replays the corpus and mutations of it with each `cargo test`, and
//! `cargo xtask fuzz TARGET` explores a target with libFuzzer.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a property that does not hold panics, which is what the engine looks for"
)]

mod audit_log;
pub mod certificates;
mod go_formats;
mod key_documents;
mod kubeconfigs;
mod policy;
mod requests;
mod target_file;
pub mod tokens;

use jiff::Timestamp;
use keyferry_api::foreign_text::misleads;

/// What must hold for any bytes. It panics if it does not.
pub type Property = fn(&[u8]);

/// Every target with its property. The folder of this name in `corpus` has its seeds.
pub const TARGETS: [(&str, Property); 21] = [
    ("audit_line", audit_log::audit_line),
    (
        "authentication_configuration",
        target_file::authentication_configuration,
    ),
    ("ca_bundle", certificates::ca_bundle),
    ("caller_certificate", certificates::caller_certificate),
    ("cel", target_file::cel),
    ("certificate_request", certificates::certificate_request),
    ("claim_pointer", tokens::claim_pointer),
    ("client_file", requests::client_file),
    ("configuration", policy::configuration),
    ("discovery", key_documents::discovery),
    ("exchange_form", requests::exchange_form),
    ("exec_info", requests::exec_info),
    ("go_json", go_formats::go_json),
    ("go_yaml", go_formats::go_yaml),
    ("hub_object", policy::hub_object),
    ("import", kubeconfigs::import),
    ("inputs", policy::inputs),
    ("jwks", key_documents::jwks),
    ("jwt", tokens::jwt),
    ("kubeconfig", kubeconfigs::kubeconfig),
    ("target_token", target_file::target_token),
];

/// The property of a target.
pub fn find(name: &str) -> Option<Property> {
    let target = TARGETS.iter().find(|(target, _)| *target == name);
    target.map(|(_, property)| *property)
}

/// A time at which the seeds are valid: 2026-09-21T13:20:00Z.
pub fn now() -> Timestamp {
    Timestamp::from_second(1_789_996_800).expect("a time")
}

/// Asserts that a message may be shown: one line of bounded length, with every misleading character
/// written out.
fn assert_shown(message: &str, most: usize) {
    assert!(!misleads(message), "it misleads: {message:?}");
    assert!(message.chars().count() <= most, "too long: {message:?}");
}
