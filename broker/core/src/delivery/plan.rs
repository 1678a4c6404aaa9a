//! Decides whether an object must be written now.

use jiff::Timestamp;

use super::form::Form;
use super::ownership::{DeliveredObject, OwnedObject};

/// The next action for one object.
pub enum Step<'a> {
    /// Do nothing: the object is up to date.
    Keep(OwnedObject<'a>),
    /// Create the object, only if it still does not exist.
    Create,
    /// Replace this object, only if it has not changed since it was read.
    Replace(OwnedObject<'a>),
    /// Do nothing: the object is not ours.
    Leave(&'static str),
}

/// Decides on an object that is wanted in `form`.
///
/// An object with a credential is written again when its renewal is due, or when the key that signed the
/// token was revoked (`key_revoked`). The target refuses a token of a revoked key, or must not keep
/// it.
pub fn plan_step<'a>(
    found: DeliveredObject<'a>,
    form: &Form,
    holds_credential: bool,
    key_revoked: bool,
    now: Timestamp,
) -> Step<'a> {
    let held = match found {
        DeliveredObject::Absent => return Step::Create,
        DeliveredObject::Foreign(why) => return Step::Leave(why),
        DeliveredObject::Ours(held) => held,
    };
    let as_rendered = held.digest() == Some(form.digest_with(held.object()).as_str())
        && form.stands_at(held.object());
    let in_time = held
        .renew_at()
        .is_some_and(|renew_at| now < renew_at && held.expires_at().is_some_and(|end| now < end));
    let fresh = !holds_credential || (in_time && !key_revoked);
    if as_rendered && fresh {
        Step::Keep(held)
    } else {
        Step::Replace(held)
    }
}
