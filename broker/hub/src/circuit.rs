//! A circuit breaker, so that callers do not wait, one after the other, for a hub that does not
//! answer.

use std::time::Duration;

use keyferry_api::moment::Moment;
use parking_lot::Mutex;

use crate::ports::HubError;

/// How long after the last failure calls are refused at once.
const OPEN_PERIOD: Duration = Duration::from_millis(1000);
/// How many consecutive failures open the circuit: the failure of a single call must not stop the
/// others.
const MAX_CONSECUTIVE_FAILURES: u32 = 3;

/// Opens after several consecutive failures, and then lets one call per second try again.
#[derive(Debug)]
pub(crate) struct Circuit {
    opens: Opens,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    closed_from: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opens {
    OnSilence,
    OnAnyFailure,
}

impl Circuit {
    /// Creates a circuit that opens only when no answer comes. For mints: a hub may answer 500 for
    /// a single ServiceAccount, which must not stop the mints of others.
    pub(crate) fn on_silence() -> Self {
        Self {
            opens: Opens::OnSilence,
            state: Mutex::default(),
        }
    }

    /// Creates a circuit that opens also on 429 and 5xx. For reviews, where no single caller can
    /// cause such an answer.
    pub(crate) fn on_any_failure() -> Self {
        Self {
            opens: Opens::OnAnyFailure,
            state: Mutex::default(),
        }
    }

    /// Decides whether a call may be tried now.
    ///
    /// # Errors
    /// [`HubError::Unreachable`] while the circuit is open. One call a second gets through, whether
    /// or not the one before it has ended.
    pub(crate) fn admit_call(&self, now: Moment) -> Result<(), HubError> {
        let mut state = self.state.lock();
        if state.failures < MAX_CONSECUTIVE_FAILURES {
            return Ok(());
        }
        if now.mono < state.closed_from {
            return Err(HubError::Unreachable(
                "it did not answer just now".to_owned(),
            ));
        }
        state.closed_from = now.mono.saturating_add(OPEN_PERIOD);
        Ok(())
    }

    /// Notes how a call ended.
    pub(crate) fn note_result<T>(&self, result: &Result<T, HubError>, now: Moment) {
        let mut state = self.state.lock();
        let opens = |error: &HubError| match self.opens {
            Opens::OnSilence => matches!(error, HubError::Unreachable(_)),
            Opens::OnAnyFailure => error.proves_unreachable(),
        };
        match result {
            Err(error) if opens(error) => {
                state.failures = state.failures.saturating_add(1);
                state.closed_from = now.mono.saturating_add(OPEN_PERIOD);
            }
            _ => *state = State::default(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use keyferry_api::moment::Moment;

    use super::Circuit;
    use crate::ports::HubError;

    fn at(millis: u64) -> Moment {
        Moment {
            wall: jiff::Timestamp::UNIX_EPOCH,
            mono: Duration::from_millis(millis),
        }
    }

    #[test]
    fn one_call_a_second_tries_a_dead_hub() {
        let circuit = Circuit::on_silence();
        for _ in 0..3 {
            circuit.admit_call(at(0)).unwrap();
            circuit.note_result::<()>(&Err(HubError::Unreachable("refused".to_owned())), at(0));
        }
        assert!(circuit.admit_call(at(500)).is_err());
        assert!(circuit.admit_call(at(1000)).is_ok(), "one tries");
        assert!(
            circuit.admit_call(at(1001)).is_err(),
            "the others do not wait with it"
        );
        circuit.note_result(&Ok(()), at(1002));
        assert!(circuit.admit_call(at(1003)).is_ok());
    }

    #[test]
    fn a_server_error_stops_reviews_and_no_mints() {
        let unwell: Result<(), HubError> = Err(HubError::Overloaded("HTTP 500".to_owned()));
        let (mints, reviews) = (Circuit::on_silence(), Circuit::on_any_failure());
        for _ in 0..3 {
            assert!(
                reviews.admit_call(at(0)).is_ok(),
                "one failure stops nobody else"
            );
            mints.note_result(&unwell, at(0));
            reviews.note_result(&unwell, at(0));
        }
        assert!(mints.admit_call(at(1)).is_ok());
        assert!(reviews.admit_call(at(1)).is_err());
    }

    #[test]
    fn a_refusal_is_an_answer() {
        let circuit = Circuit::on_any_failure();
        circuit.note_result::<()>(&Err(HubError::Forbidden("no".into())), at(0));
        assert!(circuit.admit_call(at(0)).is_ok());
    }
}
