//! The result of the last probe of an access, and what it means for the status and the deliveries.

use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::condition::Finding;
use keyferry_api::reason::Reason;
use keyferry_api::summary::SilenceCause;
use keyferry_core::access_status::TargetIdentity;
use keyferry_core::target_address::RefusedAddress;
use keyferry_platform::target_probe::ProbeAnswer;

/// The result of the last probe of an access.
#[derive(Clone, Default)]
pub(super) struct LastProbe {
    pub(super) answer: Option<ProbeAnswer>,
    /// When the target was asked.
    pub(super) asked_at: Option<Timestamp>,
    /// Why the target was not probed.
    pub(super) not_probed: Option<(Reason, String)>,
    /// Whether a person waits for the answer, so that the status says why there is none.
    pub(super) is_requested: bool,
    pub(super) next: Option<Duration>,
    /// What is wrong with the user that the target takes the token for.
    pub(super) unexpected: Option<Finding>,
}

impl LastProbe {
    /// An answer that is cached for the time `left`.
    pub(super) fn cached(answer: ProbeAnswer, asked_at: Timestamp, left: Duration) -> Self {
        Self {
            answer: Some(answer),
            asked_at: Some(asked_at),
            next: Some(left),
            ..Self::default()
        }
    }

    /// No probe is ever sent, and an access that requires one cannot have it.
    pub(super) fn never(message: &str) -> Self {
        Self {
            not_probed: Some((Reason::ProbeUnanswered, message.to_owned())),
            ..Self::default()
        }
    }

    pub(super) fn reachable_finding(&self) -> Option<Finding> {
        Some(match self.answer.as_ref()? {
            ProbeAnswer::Accepted(_) | ProbeAnswer::Refused => Finding::ok("the target answered"),
            ProbeAnswer::Unanswered(silence) => {
                Finding::failed(Reason::ProbeUnanswered, silence.text.clone())
            }
            ProbeAnswer::AddressRefused(destination) => Finding::failed(
                Reason::TargetAddressRefused,
                describe_refused_address(destination.kind),
            ),
        })
    }

    pub(super) fn authenticates_finding(&self) -> Option<Finding> {
        let Some(answer) = &self.answer else {
            let (reason, message) = self.not_probed.clone().filter(|_| self.is_requested)?;
            return Some(Finding::unknown(reason, message));
        };
        Some(match answer {
            ProbeAnswer::Accepted(_) => match &self.unexpected {
                Some(finding) => finding.clone(),
                None => Finding::ok("the target accepted a token of this access"),
            },
            ProbeAnswer::Refused => Finding::failed(
                Reason::ProbeRefused,
                "the target answered 401 to a token of this access",
            ),
            ProbeAnswer::Unanswered(silence) => {
                Finding::unknown(Reason::ProbeUnanswered, silence.text.clone())
            }
            ProbeAnswer::AddressRefused(destination) => Finding::unknown(
                Reason::TargetAddressRefused,
                describe_refused_address(destination.kind),
            ),
        })
    }

    pub(super) fn target_identity(&self) -> Option<TargetIdentity> {
        match self.answer.as_ref()? {
            ProbeAnswer::Accepted(identity) if !identity.username.is_empty() => {
                Some(identity.clone())
            }
            _ => None,
        }
    }

    pub(super) fn silence_cause(&self) -> Option<SilenceCause> {
        match &self.answer {
            Some(ProbeAnswer::Unanswered(silence)) => Some(silence.cause),
            _ => None,
        }
    }

    pub(super) fn asked_at(&self) -> Option<Timestamp> {
        self.asked_at
    }

    pub(super) fn next_probe(&self) -> Option<Duration> {
        self.next
    }

    /// Whether the target is known to give the token of a role other rights than the role's. It
    /// blocks every delivery.
    pub(super) fn misses_role(&self) -> bool {
        let unexpected = self.unexpected.as_ref();
        unexpected.is_some_and(|finding| finding.reason == Reason::RoleNotMapped)
    }

    /// Returns what blocks the delivery of an access with `probe: Require`.
    pub(super) fn blocking_reason(&self) -> Option<(Reason, String)> {
        match &self.answer {
            Some(ProbeAnswer::Accepted(_)) => self
                .unexpected
                .clone()
                .map(|finding| (finding.reason, finding.message)),
            Some(ProbeAnswer::Refused) => Some((
                Reason::ProbeRefused,
                "the target answered 401 to a token of this access".to_owned(),
            )),
            Some(ProbeAnswer::Unanswered(silence)) => Some((
                Reason::ProbeUnanswered,
                format!("the target could not be probed: {}", silence.text),
            )),
            Some(ProbeAnswer::AddressRefused(destination)) => Some((
                Reason::TargetAddressRefused,
                describe_refused_address(destination.kind),
            )),
            None => Some(self.not_probed.clone().unwrap_or((
                Reason::ProbeUnanswered,
                "the target has not been probed yet".to_owned(),
            ))),
        }
    }
}

fn describe_refused_address(kind: RefusedAddress) -> String {
    format!("nothing was sent to the target, because it or its proxy has {kind}")
}
