//! Compares what was predicted with what was observed.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use keyferry_integration::runner::{TestError, TestResult};

use super::consumers::ObservedCall;
use super::prediction::{MAX_AGE, PredictedRefusal, Prediction};

/// What an event really did.
pub(super) struct Outcome {
    /// What it is, for messages.
    pub(super) event: String,
    /// When the first thing was done for it. Before that, every call has to be served.
    pub(super) acted: Timestamp,
    /// When it began, as the rehearsal means it.
    pub(super) begin: Timestamp,
    /// How much longer it lasted than was rehearsed: an apiserver needs seconds until it answers.
    pub(super) overran: SignedDuration,
    /// Each call.
    pub(super) calls: Vec<ObservedCall>,
}

impl Outcome {
    /// Requires that each refusal lies where one is possible, and that each call is refused where
    /// that is certain. Prints one line, and returns how many calls were refused for certain.
    ///
    /// The event began `begin - prediction.at` later than it was rehearsed for, so the windows are
    /// moved by that.
    pub(super) fn compare_with(&self, prediction: &Prediction) -> Result<usize, TestError> {
        let later = self.begin.duration_since(prediction.at);
        self.check_health_before()?;
        let after: Vec<&ObservedCall> = self
            .calls
            .iter()
            .filter(|call| call.sent >= self.begin)
            .collect();
        let unforeseen: Vec<String> = after
            .iter()
            .filter(|call| {
                call.refused.as_ref().is_some_and(|reason| {
                    !prediction.refusals.iter().any(|refusal| {
                        call.is_of(refusal)
                            && refusal.reason == *reason
                            && refusal.possible.touches(call, later, self.overran)
                    })
                })
            })
            .map(|call| self.describe(call))
            .collect();
        let mut served: Vec<String> = Vec::new();
        let mut certain_calls = 0;
        for refusal in &prediction.refusals {
            let Some(certain) = &refusal.certain else {
                continue;
            };
            for call in after
                .iter()
                .filter(|call| call.is_of(refusal) && certain.encloses(call, later))
            {
                certain_calls += 1;
                if call.refused.is_none() {
                    served.push(format!("{}, against {refusal:?}", self.describe(call)));
                }
            }
        }
        eprintln!("{}: {}, {certain_calls} certain", self.event, self.tally());
        if unforeseen.is_empty() && served.is_empty() {
            return Ok(certain_calls);
        }
        Err(format!(
            "{}: refused where nothing was possible: {unforeseen:#?}; served where a refusal was \
             certain: {served:#?}; predicted: {:#?}",
            self.event, prediction.refusals
        )
        .into())
    }

    /// Requires that no call was refused, but for those that `restarts` of the hub's only apiserver
    /// touch: a hub with several restarts one at a time.
    pub(super) fn check_nothing_refused(&self, restarts: &[Restart]) -> TestResult {
        let refused: Vec<String> = self
            .calls
            .iter()
            .filter(|call| call.refused.is_some())
            .filter(|call| !restarts.iter().any(|restart| restart.touches(call)))
            .map(|call| self.describe(call))
            .collect();
        eprintln!("{}: {}", self.event, self.tally());
        if refused.is_empty() {
            return Ok(());
        }
        Err(format!("{}: refused: {refused:#?}", self.event).into())
    }

    fn check_health_before(&self) -> TestResult {
        let mut before = self
            .calls
            .iter()
            .filter(|call| call.answered < self.acted && call.refused.is_some());
        match before.next() {
            Some(call) => Err(format!(
                "{}: refused before it began: {}",
                self.event,
                self.describe(call)
            )
            .into()),
            None => Ok(()),
        }
    }

    fn describe(&self, call: &ObservedCall) -> String {
        let seconds = |at: Timestamp| at.duration_since(self.begin).as_secs_f64();
        format!(
            "{} of {} from {:.1} s to {:.1} s: {}",
            call.classes[0],
            call.access,
            seconds(call.sent),
            seconds(call.answered),
            call.refused.as_deref().unwrap_or("served")
        )
    }

    /// The number of calls, and of refusals by caller and reason.
    fn tally(&self) -> String {
        let mut refused: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for call in &self.calls {
            if let Some(reason) = &call.refused {
                *refused.entry((call.classes[0], reason)).or_default() += 1;
            }
        }
        format!("{} calls, refused: {refused:?}", self.calls.len())
    }
}

/// A restart of the hub's only apiserver.
pub(super) struct Restart {
    pub(super) from: Timestamp,
    /// When it was ready.
    pub(super) until: Timestamp,
}

impl Restart {
    fn touches(&self, call: &ObservedCall) -> bool {
        self.from <= call.answered && call.sent <= self.until
    }
}

/// A target refuses for `maxAge` and 25 s at most.
pub(super) fn check_widths(prediction: &Prediction) {
    let limit = Duration::from_secs(MAX_AGE + 25).as_secs_f64();
    let by_targets = prediction
        .refusals
        .iter()
        .filter(|refusal| refusal.caller == "ownMinter" && refusal.reason == "SignatureInvalid");
    for refusal in by_targets {
        assert!(refusal.possible.seconds() <= limit, "{refusal:?}");
    }
}

impl ObservedCall {
    fn is_of(&self, refusal: &PredictedRefusal) -> bool {
        let matches = |wanted: &Option<String>, own: &str| {
            wanted.as_ref().is_none_or(|wanted| *wanted == own)
        };
        self.classes.contains(&refusal.caller.as_str())
            && matches(&refusal.access, &self.access)
            && matches(&refusal.target, self.target)
    }
}
