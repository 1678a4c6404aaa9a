//! What `keyferry rehearse -o json` printed, as far as it is compared with what happened.

use jiff::{SignedDuration, Timestamp};
use keyferry_integration::runner::TestError;
use keyferry_integration::world::on_hub::OnHub;
use serde::Deserialize;

use super::consumers::ObservedCall;

/// `discovery.maxAge` of the fixture: the shortest one that a configuration may have, because
/// everything here waits for it.
pub(super) const MAX_AGE: u64 = 30;

/// A prediction.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Prediction {
    schema: String,
    pub(super) at: Timestamp,
    pub(super) refusals: Vec<PredictedRefusal>,
    pub(super) undetermined: Vec<serde_json::Value>,
    pub(super) runbook: Vec<PredictedStep>,
}

/// Calls that are predicted to be refused.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PredictedRefusal {
    pub(super) caller: String,
    pub(super) access: Option<String>,
    pub(super) target: Option<String>,
    pub(super) reason: String,
    pub(super) certain: Option<PredictedWindow>,
    pub(super) possible: PredictedWindow,
}

/// A step of the printed runbook.
#[derive(Debug, Deserialize)]
pub(super) struct PredictedStep {
    pub(super) action: String,
    pub(super) command: Option<String>,
}

/// A span of time.
#[derive(Debug, Deserialize)]
pub(super) struct PredictedWindow {
    from: Timestamp,
    until: Option<Timestamp>,
}

impl PredictedWindow {
    /// Whether the whole of a call lies in it, from the request to the answer.
    ///
    /// The event began `later` than it was rehearsed for. A window that follows the event moves
    /// with it, and one that follows the end of a token does not, so the call has to lie in both.
    pub(super) fn encloses(&self, call: &ObservedCall, later: SignedDuration) -> bool {
        let zero = SignedDuration::ZERO;
        self.from + later.max(zero) <= call.sent
            && self
                .until
                .is_none_or(|until| call.answered <= until + later.min(zero))
    }

    /// Whether a part of a call lies in it, or in the window that moved and then lasted longer.
    pub(super) fn touches(
        &self,
        call: &ObservedCall,
        later: SignedDuration,
        overran: SignedDuration,
    ) -> bool {
        let zero = SignedDuration::ZERO;
        self.from + later.min(zero) <= call.answered
            && self
                .until
                .is_none_or(|until| call.sent <= until + later.max(zero) + overran)
    }

    /// How long it is.
    pub(super) fn seconds(&self) -> f64 {
        self.until.map_or(f64::INFINITY, |until| {
            until.duration_since(self.from).as_secs_f64()
        })
    }
}

/// Rehearses an event on the hub itself, with the rights of a platform admin. `event` is the
/// subcommand with its own arguments.
pub(super) async fn predict(
    world: &OnHub,
    event: &[&str],
    at: Option<Timestamp>,
) -> Result<Prediction, TestError> {
    let kubeconfig = world.hub.admin_kubeconfig().display().to_string();
    let max_age = format!("{MAX_AGE}s");
    let at = at.map(|at| at.to_string());
    let mut arguments = vec!["rehearse"];
    arguments.extend(event);
    arguments.extend(["--discovery-max-age", &max_age, "--replicas", "1"]);
    arguments.extend(["--kubeconfig", &kubeconfig, "-o", "json"]);
    arguments.extend(at.iter().flat_map(|at| ["--at", at]));
    let answer = world.ground.binary().run(&arguments, &[]).await?;
    let printed = String::from_utf8_lossy(&answer.stdout).into_owned();
    let prediction: Prediction = serde_json::from_str(&printed).map_err(|error| {
        let said = String::from_utf8_lossy(&answer.stderr);
        format!("{arguments:?}: {error}: {printed}{said}")
    })?;
    assert_eq!(prediction.schema, "keyferry.dev/rehearsal/v1");
    let code = if prediction.undetermined.is_empty() {
        0
    } else {
        3
    };
    assert_eq!(answer.status.code(), Some(code), "{printed}");
    Ok(prediction)
}
