//! Keeps callers from waiting, one after the other, for a hub that does not answer.

use std::sync::Mutex;
use std::time::Duration;

use keyferry_core::moment::Moment;

use crate::ports::HubError;

/// How long after a failure calls are refused at once.
const PAUSE: Duration = Duration::from_millis(1000);

/// Open after a call proved the hub unreachable; then one call per second tries again.
#[derive(Debug, Default)]
pub struct Circuit {
    closed_from: Mutex<Option<Duration>>,
}

impl Circuit {
    /// Whether to try a call now.
    ///
    /// # Errors
    /// [`HubError::Unreachable`] while the circuit is open. The one caller that gets through holds it open for the others until
    /// its own call has ended.
    pub fn admit(&self, now: Moment) -> Result<(), HubError> {
        let mut closed_from = self.closed_from.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match *closed_from {
            Some(from) if now.mono < from => Err(HubError::Unreachable("it did not answer just now".to_owned())),
            Some(_) => {
                *closed_from = Some(now.mono.saturating_add(PAUSE));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Notes how a call ended.
    pub fn note<T>(&self, result: &Result<T, HubError>, now: Moment) {
        let mut closed_from = self.closed_from.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match result {
            Err(error) if error.proves_unreachable() => *closed_from = Some(now.mono.saturating_add(PAUSE)),
            _ => *closed_from = None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use keyferry_core::moment::Moment;

    use super::Circuit;
    use crate::ports::HubError;

    fn at(millis: u64) -> Moment {
        Moment { wall: jiff::Timestamp::UNIX_EPOCH, mono: Duration::from_millis(millis) }
    }

    #[test]
    fn one_call_a_second_tries_a_dead_hub() {
        let circuit = Circuit::default();
        circuit.admit(at(0)).unwrap();
        circuit.note::<()>(&Err(HubError::Unreachable("refused".to_owned())), at(0));
        assert!(circuit.admit(at(500)).is_err());
        assert!(circuit.admit(at(1000)).is_ok(), "one tries");
        assert!(circuit.admit(at(1001)).is_err(), "the others do not wait with it");
        circuit.note(&Ok(()), at(1002));
        assert!(circuit.admit(at(1003)).is_ok());
    }

    #[test]
    fn a_refusal_is_an_answer() {
        let circuit = Circuit::default();
        circuit.note::<()>(&Err(HubError::Forbidden("no".to_owned())), at(0));
        assert!(circuit.admit(at(0)).is_ok());
    }
}
