//! What commands share: flags that several of them have, their errors, and the output.
//!
//! The flags: where the hub is, [`HubArgs`]; the access, the server and the caller, [`access`]; what
//! `doctor`, `whoami` and `can-i` start from, [`start_args`]; the user to impersonate,
//! [`impersonation_args`]; `-f`, [`objects_argument`]; `--kubernetes`, [`minor`]; the output format,
//! [`output_format`].
//!
//! A command flattens a struct of flags into its own, lets it find what the user means, and ends
//! with a function of [`ui`], the one module that prints:
//!
//! ```
//! use keyferry_terminal::command_error::CommandError;
//! use keyferry_terminal::{names, ui};
//!
//! fn run(access: &str) -> Result<String, CommandError> {
//!     let access = names::access_name(access, Some("tenant-a"))?;
//!     Ok(format!("the access is {access}"))
//! }
//!
//! let code = match run("prod") {
//!     Ok(text) => ui::finish(&text),
//!     Err(error) => ui::command_failed(&error),
//! };
//! # assert_eq!(code, std::process::ExitCode::SUCCESS);
//! ```

pub mod access;
pub mod address_args;
pub mod client_config;
pub mod command_error;
pub mod doctor_report;
mod hub_args;
pub mod impersonation_args;
pub mod local_file;
pub mod minor;
pub mod names;
pub mod objects_argument;
mod only_access;
pub mod output_format;
pub mod role_manifest;
pub mod signals;
pub mod start_args;
pub mod ui;
pub mod yaml_document;

use std::ffi::OsStr;

pub use self::hub_args::HubArgs;

/// Heading of the flags that say where the hub is.
pub const HUB: &str = "Hub";
/// Heading of the flags that say which Keyferry server is asked, and by which caller.
pub const SERVER: &str = "Keyferry server";
/// Heading of the flags about a target.
pub const TARGET: &str = "Target";

/// Whether a value comes from a flag and not from its variable: a flag overrides the variable of
/// another flag.
pub fn by_flag(value: Option<&OsStr>, variable: &str) -> bool {
    value.is_some_and(|value| std::env::var_os(variable).as_deref() != Some(value))
}
