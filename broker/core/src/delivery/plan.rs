//! Whether an object is written now.

use jiff::Timestamp;

use super::form::Form;
use super::ownership::{Found, Held};

/// What is to be done at a place.
pub enum Step<'a> {
    /// Nothing: what stands there is right.
    Keep(Held<'a>),
    /// Create the object; only if there still is none.
    Create,
    /// Write it in the place of this one; only if it still is this one.
    Replace(Held<'a>),
    /// Nothing: what stands there is not ours.
    Leave(&'static str),
}

/// Decides on an object that is wanted in `form`. One with a token is written again when its time
/// for that has come, or when the key that signed the token was revoked (`key_revoked`): the target
/// refuses it, or must not be left with it.
pub fn plan<'a>(
    found: Found<'a>,
    form: &Form,
    holds_token: bool,
    key_revoked: bool,
    now: Timestamp,
) -> Step<'a> {
    let held = match found {
        Found::Absent => return Step::Create,
        Found::Foreign(why) => return Step::Leave(why),
        Found::Ours(held) => held,
    };
    let as_rendered = held.digest() == Some(form.digest_with(held.object()).as_str())
        && form.labels_stand_at(held.object());
    let in_time = held
        .renew_at()
        .is_some_and(|renew_at| now < renew_at && held.expires_at().is_some_and(|end| now < end));
    let fresh = !holds_token || (in_time && !key_revoked);
    if as_rendered && fresh {
        Step::Keep(held)
    } else {
        Step::Replace(held)
    }
}
