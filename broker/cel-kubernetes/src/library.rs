//! Implements the functions of CEL and of Kubernetes.

mod collections;
mod convert;
mod message;
mod named;
mod net;
mod operator;
mod optional;
mod pattern;
mod quantity;
mod semver;
mod shuffled;
mod text;
mod times;
mod url;

pub(crate) use convert::{convert, is_conversion};
pub(crate) use message::Message;
pub(crate) use named::FormatName;
pub(crate) use net::{Ip, Prefix};
pub(crate) use operator::{is_single, operator};
pub(crate) use pattern::{Pattern, PatternFault};
pub(crate) use quantity::Quantity;
pub(crate) use semver::Semver;
pub(crate) use shuffled::in_any_order;
pub(crate) use text::{check_format, is_printable, runtime_name};
pub(crate) use url::Url;

use crate::Minor;
use crate::value::Val;

/// What a function uses besides its arguments.
pub(crate) struct Context<'c> {
    pub(crate) minor: Minor,
    /// The pattern of the call, if it is constant.
    pub(crate) pattern: Option<&'c Pattern>,
}

/// A value, or why it cannot be decided here.
type Called = Result<Val, String>;

/// Whether an overload checks its arguments itself.
pub(crate) fn is_unguarded(overload: &str) -> bool {
    matches!(
        overload,
        "contains_string"
            | "ends_with_string"
            | "starts_with_string"
            | "list_flatten"
            | "list_flatten_int"
    )
}

/// Calls an overload with arguments that match it.
pub(crate) fn call_overload(overload: &str, args: &[Val], context: &Context<'_>) -> Called {
    let proper = match args {
        [Val::List(_)] | [Val::List(_), Val::Int(_)] => overload.starts_with("list_"),
        [Val::Str(_), Val::Str(_)] => !overload.starts_with("list_"),
        _ => false,
    };
    if is_unguarded(overload) && !proper {
        return Ok(Val::no_overload());
    }
    let known = optional::call(overload, args)
        .or_else(|| text::call_text(overload, args, context))
        .or_else(|| collections::call(overload, args, context))
        .or_else(|| times::call_time(overload, args))
        .or_else(|| url::call_url(overload, args))
        .or_else(|| net::call(overload, args, context))
        .or_else(|| convert::call(overload, args))
        .or_else(|| quantity::call_quantity(overload, args))
        .or_else(|| semver::call_semver(overload, args))
        .or_else(|| named::call(overload, args, context));
    known.unwrap_or_else(|| Err(format!("the function {overload} is not evaluated here")))
}
