//! The doors from one identity to another, or to a token: the closed list, version 1.
//!
//! Doors 1 to 5, 7 and 8 are evaluated. Of a holder of the rights of another door, every answer
//! that is not a yes is undetermined.

pub(crate) mod impersonate;
pub(crate) mod not_evaluated;
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
    door(9, "change policy", false),
    door(10, "take admission policies away", false),
    door(11, "read or replace Keyferry's keys and CAs", false),
    door(12, "approve client certificates", false),
];

const fn door(number: u8, name: &'static str, is_evaluated: bool) -> Door {
    Door {
        number,
        name,
        is_evaluated,
    }
}
