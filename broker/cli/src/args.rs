//! Flags that several commands have: where the hub is, [`HubArgs`]; the access, the server and the
//! caller, [`access`]; what `doctor`, `whoami` and `can-i` start from, [`start_args`], and how they
//! reach the target, [`target_args`]; to which networks, [`address_args`]; the user to impersonate,
//! [`impersonation_args`]; `-f`, [`objects_argument`]; `--kubernetes`, [`minor`]; the output format,
//! [`output_format`].
//!
//! A command flattens a struct of flags into its own, and lets it find what the user means.

pub(crate) mod access;
pub(crate) mod address_args;
pub(crate) mod client_config;
mod hub_args;
pub(crate) mod impersonation_args;
pub(crate) mod minor;
pub(crate) mod names;
pub(crate) mod objects_argument;
pub(crate) mod only_access;
pub(crate) mod output_format;
pub(crate) mod start_arg;
pub(crate) mod start_args;
pub(crate) mod target_args;

use std::ffi::OsStr;

pub(crate) use self::hub_args::{HubArgs, KeyferryArgs};

// Headings of help only: several structs put flags under each.

/// Heading of the flags that say where the hub is.
pub(crate) const HUB: &str = "Hub";
/// Heading of the flags that say which Keyferry server is asked, and by which caller.
pub(crate) const SERVER: &str = "Keyferry server";
/// Heading of the flags about a target.
pub(crate) const TARGET: &str = "Target";

/// Whether a value comes from a flag and not from its variable: a flag overrides the variable of
/// another flag.
pub(crate) fn by_flag(value: Option<&OsStr>, variable: &str) -> bool {
    value.is_some_and(|value| std::env::var_os(variable).as_deref() != Some(value))
}
