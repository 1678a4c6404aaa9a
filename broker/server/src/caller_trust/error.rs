//! Why the CA of a rule for client certificates cannot be used.

use keyferry_api::reason::Reason;
use keyferry_hub::ports::HubError;
use keyferry_keys::caller_certificate::CallerAuthorityError;

/// The CA of a rule for client certificates cannot be used: what, where, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {location}: {problem}; fix: {fix}", reason = Reason::CallerAuthorityInvalid)]
pub struct CallerTrustError {
    location: String,
    problem: String,
    fix: &'static str,
    state: SourceState,
}

/// What an error says about the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SourceState {
    /// It was read, and its content is wrong.
    Wrong,
    /// It does not exist.
    Absent,
    /// The hub refuses Keyferry the Secret or the ConfigMap with its own client CA (401 or 403). This
    /// is an answer, and can be how an admin withdraws the CA.
    Refused,
    /// The Secret or the hub's own client CA could not be read, so the state of the CA is unknown.
    Unknown,
}

/// What to do where the hub's own client CA is not known.
const UNKNOWN_HUB_CA: &str = "let Keyferry's account get this ConfigMap, as \
    examples/install/caller-certificates does; or set allowHubClientCA: true if the hub accepts \
    this CA's certificates and you accept that";

impl CallerTrustError {
    fn new(place: String, problem: impl Into<String>, fix: &'static str) -> Self {
        Self {
            location: place,
            problem: problem.into(),
            fix,
            state: SourceState::Wrong,
        }
    }

    pub(super) fn no_authority(place: String) -> Self {
        Self::new(
            place,
            "it has no ca.crt",
            "add the certificate of the CA that signs the callers' certificates as ca.crt",
        )
    }

    pub(super) fn bad_authority(place: &str, error: &CallerAuthorityError) -> Self {
        let problem = error.to_string().replace('`', "");
        Self::new(place.to_owned(), problem, error.fix())
    }

    pub(super) fn is_hubs(place: String) -> Self {
        Self::new(
            place,
            "it has a CA whose certificates are users of the hub's own apiserver",
            "give callers a CA of their own; or set allowHubClientCA: true on every rule with \
             this Secret",
        )
    }

    pub(super) fn unread_secret(place: String, error: &HubError) -> Self {
        match error {
            HubError::NotFound(_) => Self {
                state: SourceState::Absent,
                ..Self::new(
                    place,
                    "it does not exist",
                    "create it in Keyferry's namespace, with the CA of the callers as ca.crt",
                )
            },
            HubError::Forbidden(_) | HubError::Unauthenticated(_) => Self {
                state: SourceState::Refused,
                ..Self::new(
                    place,
                    error.to_string(),
                    "allow Keyferry's account to get and watch this Secret by name",
                )
            },
            _ => Self {
                state: SourceState::Unknown,
                ..Self::new(
                    place,
                    format!("it could not be read: {error}"),
                    "wait until the hub answers",
                )
            },
        }
    }

    pub(super) fn hub_says_nothing() -> Self {
        Self {
            state: SourceState::Unknown,
            ..Self::of_hub_ca("it does not exist, so the hub's own client CA is not known")
        }
    }

    pub(super) fn unread_hub_ca(error: &HubError) -> Self {
        let state = match error {
            HubError::Forbidden(_) | HubError::Unauthenticated(_) => SourceState::Refused,
            _ => SourceState::Unknown,
        };
        Self {
            state,
            ..Self::of_hub_ca(format!("it could not be read: {error}"))
        }
    }

    pub(super) fn bad_hub_ca() -> Self {
        Self {
            state: SourceState::Unknown,
            ..Self::of_hub_ca("it has something other than certificates")
        }
    }

    fn of_hub_ca(problem: impl Into<String>) -> Self {
        Self::new(
            "ConfigMap kube-system/extension-apiserver-authentication".to_owned(),
            problem,
            UNKNOWN_HUB_CA,
        )
    }

    pub(super) fn state(&self) -> SourceState {
        self.state
    }

    /// The problem and the fix, without the reason code, which an Event has in a field of its own.
    pub(super) fn message(&self) -> String {
        format!("{}: {}; fix: {}", self.location, self.problem, self.fix)
    }
}
