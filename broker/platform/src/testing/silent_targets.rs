//! Targets of accesses whose probes do not matter.

use futures::future::BoxFuture;
use secrecy::SecretString;

use crate::target_connection::TargetAddress;
use crate::target_probe::{ProbeAnswer, TargetProbe};

/// Targets that never answer.
#[derive(Clone, Copy, Debug)]
pub struct SilentTargets;

impl TargetProbe for SilentTargets {
    fn try_token<'a>(
        &'a self,
        _: &'a TargetAddress,
        _: &'a SecretString,
    ) -> BoxFuture<'a, ProbeAnswer> {
        Box::pin(async { ProbeAnswer::Unanswered("it did not answer in time".into()) })
    }
}
