//! Compares what `keyferry who-can` answers with what subjects really get: each really opens the
//! doors on the hub, and really calls the target with the tokens that it obtained.

mod cells;
mod changes;
mod cuts;
mod live;
mod stage;
mod truth;

use std::time::Duration;

use keyferry_integration::runner::{BoxedSuite, Suite};

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(stage::start)
        .limit(Duration::from_secs(1500))
        .test(
            "every_decided_cell_is_what_the_target_does",
            cells::every_decided_cell_is_what_the_target_does,
        )
        .test_alone(
            "predicted_changes_are_what_is_collected_and_what_subjects_get",
            changes::predicted_changes_are_what_is_collected_and_what_subjects_get,
        )
        .test_alone(
            "a_removed_cut_leaves_no_way",
            cuts::a_removed_cut_leaves_no_way,
        )
        .boxed()
}
