//! What is known about a hub and its targets: facts, made from what was read, at one moment.
//!
//! A list that could not be read is a [`gap::Gap`], never an empty list. Whatever another system
//! wrote is [`keyferry_api::foreign_text::ForeignText`], which is one line however it is printed.

pub mod facts;
pub mod gap;
pub mod rehearsal;
