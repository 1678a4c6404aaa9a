//! Predicts offline whether a kube-apiserver with a given AuthenticationConfiguration accepts a
//! token.
//!
//! Everything here is a pure function: it takes `now` and bytes, and returns values or named
//! errors. What cannot be decided offline is reported as undetermined, never guessed.
//!
//! [`config::load_configuration`] reads the file as one [`Minor`] release does,
//! [`validate::validate_configuration`] compiles it, and [`verify::verify_token`] judges a
//! [`token::Token`]. [`lint`] warns about a file that loads but does not mean what its author
//! thinks, and [`prediction`] says in one call what a target does.
//! Every failure has a [`Code`] with its cause and its fix.
//!
//! ```
//! use keyferry_kube_authn::token::{ServiceAccountToken, Token};
//! use keyferry_kube_authn::verify::{Keys, Union, verify_token};
//! use keyferry_kube_authn::{Minor, config, validate};
//!
//! let file = br#"
//! apiVersion: apiserver.config.k8s.io/v1beta1
//! kind: AuthenticationConfiguration
//! jwt:
//! - issuer: {url: https://hub.example, audiences: [prod]}
//!   claimMappings:
//!     username: {claim: sub, prefix: 'hub:'}
//! "#;
//! let loaded = config::load_configuration(file, Minor::V1_33)?;
//! let compiled = validate::validate_configuration(&loaded.configuration, Minor::V1_33, &[]).unwrap();
//!
//! // A token as the hub would issue it to tenant-a/app. It has no signature, so none is checked.
//! let token = Token::of_service_account(&ServiceAccountToken {
//!     namespace: "tenant-a".to_owned(),
//!     name: "app".to_owned(),
//!     uid: None,
//!     issuer: "https://hub.example".to_owned(),
//!     audience: "prod".to_owned(),
//!     issued_at: 1_790_000_000,
//!     lifetime: 600,
//! });
//! let now = jiff::Timestamp::from_second(1_790_000_001)?;
//! let verdict = verify_token(&compiled, &token, &Keys::none(), now);
//! let Union::Accepted(user) = verdict.union() else {
//!     panic!("{verdict:?}");
//! };
//! assert_eq!(user.username, "hub:system:serviceaccount:tenant-a:app");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod batch;
mod certificate;
mod code;
pub mod code_text;
pub mod config;
pub mod fetched;
pub mod impersonation;
pub mod keys;
pub mod lint;
pub mod prediction;
mod release;
pub mod report;
pub mod rights;
pub mod token;
pub mod validate;
pub mod verify;

pub use certificate::go_releases;
pub use code::Code;
pub use keyferry_cel_kubernetes::{Minor, UnknownMinor};
pub use release::Release;
