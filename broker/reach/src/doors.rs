//! The doors from one identity to another, or to a token: the closed list, version 1.
//!
//! Doors 6 and 11 are not evaluated: of a holder of a right that may open one, every answer that is
//! not a yes is undetermined. Of doors 9 and 10, the parts named in `doors/change_policy.rs` are so too.

pub(crate) mod certificates;
pub(crate) mod change_policy;
pub(crate) mod impersonate;
pub(crate) mod keys;
pub(crate) mod own_grants;
pub(crate) mod pods;
pub(crate) mod secrets;
pub(crate) mod token_request;

/// The version of the closed list of doors.
pub const VERSION: u32 = 1;

/// A door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Door {
    /// Its number.
    pub number: u8,
    /// What it is.
    pub name: &'static str,
    /// Whether it is evaluated.
    pub is_evaluated: bool,
}

/// All doors.
pub const ALL: [Door; 12] = [
    door(1, "exchange by a TargetAccess", true),
    door(2, "TokenRequest", true),
    door(3, "run a Pod as the account", true),
    door(4, "enter a Pod of the account", true),
    door(5, "read a token at rest", true),
    door(6, "make a controller use a credential", false),
    door(7, "impersonate", true),
    door(8, "grant rights to oneself", true),
    door(9, "change policy", true),
    door(10, "take admission policies away", true),
    door(11, "read or replace Keyferry's keys and CAs", false),
    door(12, "approve client certificates", true),
];

const fn door(number: u8, name: &'static str, is_evaluated: bool) -> Door {
    Door {
        number,
        name,
        is_evaluated,
    }
}
