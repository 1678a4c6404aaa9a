//! What is known about a hub and its targets: facts, made from what was read, at one moment.
//!
//! A list that could not be read is a [`gap::Gap`], never an empty list. Whatever another system
//! wrote is [`keyferry_api::foreign_text::ForeignText`], which is one line however it is printed.

pub mod audit_lines;
pub mod facts;
pub mod folder;
pub mod gap;
#[cfg(any(test, feature = "generated"))]
pub mod generated;
pub mod judge;
pub mod keys_document;
pub mod object_stream;
pub mod redact;
pub mod rehearsal;
pub mod snapshot;
pub mod trail;

pub use keyferry_api::{lenient, object_view, stated_condition};
