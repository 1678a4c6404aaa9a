//! Reads the facts that `rehearse` starts from: those of the hub, or of a folder.

use jiff::Timestamp;
use keyferry_fleet::facts::Fleet;

use super::SceneArgs;
use crate::command_error::CommandError;

pub(super) async fn read_fleet(_: &SceneArgs, _: Timestamp) -> Result<Fleet, CommandError> {
    Err(CommandError::new("not wired"))
}
