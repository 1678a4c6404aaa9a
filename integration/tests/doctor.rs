//! Breaks a federation in real ways, and tests what `keyferry doctor` reports in each of its three
//! modes.

mod cases;
mod federation;
mod identity;
mod impersonation;
mod starts;
mod table;
mod tenant;

use std::time::Duration;

use federation::Federation;
use keyferry_integration::runner::{BoxedSuite, Suite};

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(Federation::start)
        .limit(Duration::from_secs(900))
        .test_alone("tokens_that_a_sound_target_refuses", table::tokens)
        .test_alone(
            "targets_and_documents_that_are_broken",
            table::configurations,
        )
        .test_alone("an_issuer_that_is_also_the_targets_own", table::collision)
        .test_alone(
            "an_access_a_secret_and_objects_of_flux",
            starts::what_users_hold,
        )
        .test_alone("whoami_and_can_i_at_a_target", identity::whoami_and_can_i)
        .test_alone("constrained_impersonation", impersonation::constrained)
        .boxed()
}
