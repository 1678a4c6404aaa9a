//! How a target answers: the tokens of its accesses, by their statuses, and the canary's token.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::condition::{Finding, condition_state};
use keyferry_api::config::StoredAccess;
use keyferry_api::name::ObjectName;
use keyferry_api::reason::Reason;
use keyferry_api::status::ProbeCounts;
use keyferry_api::summary::TargetAnswers;
use keyferry_core::access_status::is_probe_result;
use keyferry_hub::object_store::ObjectStore;
use keyferry_platform::target_probe::ProbeAnswer;
use serde_json::Value;

use crate::delivery::MAX_ANSWER_AGE;

/// How a target answered the tokens of its accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AccessAnswers {
    pub(super) counts: ProbeCounts,
    /// The latest counted probe that the target accepted or refused.
    answered: Option<Timestamp>,
    /// The latest counted probe that it did not answer.
    unanswered: Option<Timestamp>,
    /// The latest probe of any of them, however old.
    last: Option<Timestamp>,
}

/// The answers of all targets.
pub(super) type AnswersByTarget = BTreeMap<ObjectName, AccessAnswers>;

/// Counts the answers in the statuses of all accesses that are recent enough to be about the
/// present. A status stays as it is while no process reconciles its access.
pub(super) fn count_answers(store: &ObjectStore, now: Timestamp) -> AnswersByTarget {
    let is_recent = |at: Timestamp| {
        let age = Duration::try_from(now.duration_since(at));
        // A time in the future is a clock that was set back.
        age.map_or(true, |age| age <= MAX_ANSWER_AGE)
    };
    let of = |_: &_, stored: &StoredAccess| {
        let access = stored
            .read
            .as_ref()
            .ok()
            .filter(|_| stored.record.deleting.is_none())?;
        Some((access.target.clone(), read_answer(&stored.record.status)))
    };
    let mut all = AnswersByTarget::new();
    for (target, (truth, at)) in store.each_access(of).into_iter().flatten() {
        let answers = all.entry(target).or_default();
        answers.counts.total += 1;
        answers.last = answers.last.max(at);
        let (counter, latest) = match truth.filter(|_| at.is_some_and(is_recent)) {
            Some(Answer::Accepted) => (&mut answers.counts.accepted, &mut answers.answered),
            Some(Answer::Refused) => (&mut answers.counts.refused, &mut answers.answered),
            Some(Answer::None) => (&mut answers.counts.unanswered, &mut answers.unanswered),
            None => continue,
        };
        *counter += 1;
        *latest = (*latest).max(at);
    }
    all
}

#[derive(Clone, Copy)]
enum Answer {
    Accepted,
    Refused,
    None,
}

fn read_answer(status: &Value) -> (Option<Answer>, Option<Timestamp>) {
    let result = condition_state(status, "TargetAuthenticates")
        .filter(|(truth, reason)| is_probe_result(*truth == "Unknown", reason));
    let truth = result.map(|(truth, _)| match truth {
        "True" => Answer::Accepted,
        "False" => Answer::Refused,
        _ => Answer::None,
    });
    let at = status.get("lastProbeTime").and_then(Value::as_str);
    (truth, at.and_then(|at| at.parse().ok()))
}

/// How the target answered the canary's token, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CanaryAnswer {
    pub(super) answer: ProbeAnswer,
    pub(super) at: Timestamp,
}

impl CanaryAnswer {
    fn reachable_finding(&self) -> Finding {
        match &self.answer {
            ProbeAnswer::AddressRefused(destination) => Finding::failed(
                Reason::TargetAddressRefused,
                format!(
                    "nothing was sent to the target, because it or its proxy has {}",
                    destination.kind
                ),
            ),
            ProbeAnswer::Unanswered(silence) => {
                Finding::failed(Reason::ProbeUnanswered, silence.text.clone())
            }
            ProbeAnswer::Accepted(_) | ProbeAnswer::Refused => Finding::ok("the target answers"),
        }
    }
}

/// What is known of one target's answers.
#[derive(Debug)]
pub(super) struct KnownAnswers<'a> {
    /// `None` if Keyferry asks this target nothing.
    pub(super) accesses: Option<AccessAnswers>,
    pub(super) canary: Option<&'a CanaryAnswer>,
}

impl KnownAnswers<'_> {
    /// Whether the target answers: the newer of what it answered to tokens of its accesses and to
    /// the canary's.
    pub(super) fn reachable_finding(&self) -> Option<Finding> {
        let accesses = self.accesses.unwrap_or_default();
        let (of_accesses, at) = if accesses.counts.accepted + accesses.counts.refused > 0 {
            let answers = Finding::ok("the target answers tokens of its accesses");
            (Some(answers), accesses.answered)
        } else if accesses.counts.unanswered > 0 {
            let silence = Finding::failed(
                Reason::ProbeUnanswered,
                "it answered no token of its accesses; their condition TargetReachable says why",
            );
            (Some(silence), accesses.unanswered)
        } else {
            (None, None)
        };
        match self.canary {
            Some(canary) if of_accesses.is_none() || Some(canary.at) > at => {
                Some(canary.reachable_finding())
            }
            _ => of_accesses,
        }
    }

    /// Whether the target accepts the tokens of its accesses.
    pub(super) fn authenticates_finding(&self) -> Option<Finding> {
        let counts = self.accesses?.counts;
        let ProbeCounts {
            total,
            accepted,
            refused,
            unanswered,
        } = counts;
        let detail = format!(
            "of {total} accesses, the target accepts {accepted} and refuses {refused}; \
             {unanswered} had no answer"
        );
        if refused > 0 {
            Some(Finding::failed(Reason::ProbeRefused, detail))
        } else if unanswered > 0 {
            Some(Finding::unknown(Reason::ProbeUnanswered, detail))
        } else if accepted > 0 {
            Some(Finding::ok(detail))
        } else {
            None
        }
    }

    /// What the column STATUS needs.
    pub(super) fn status_summary(&self) -> TargetAnswers {
        let refused = self.reachable_finding().is_some_and(|reachable| {
            !reachable.is_true() && reachable.reason == Reason::TargetAddressRefused
        });
        let silent = self
            .reachable_finding()
            .is_some_and(|reachable| !reachable.is_true());
        let silence = match self.canary.map(|canary| &canary.answer) {
            Some(ProbeAnswer::Unanswered(silence)) if silent => Some(silence.cause),
            _ => None,
        };
        TargetAnswers {
            accesses: self.accesses.map(|accesses| accesses.counts),
            silence,
            address_refused: refused,
        }
    }

    /// When the target was last asked.
    pub(super) fn asked_at(&self) -> Option<Timestamp> {
        let accesses = self.accesses.and_then(|accesses| accesses.last);
        accesses.max(self.canary.map(|canary| canary.at))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use keyferry_api::summary::{SilenceCause, summarize_target};
    use keyferry_core::target_address::{RefusedAddress, RefusedDestination};
    use keyferry_hub::object_store::Collection;
    use keyferry_platform::target_probe::Silence;
    use serde_json::json;

    use super::*;

    fn accesses(accepted: u32, refused: u32, unanswered: u32) -> Option<AccessAnswers> {
        Some(AccessAnswers {
            counts: ProbeCounts {
                total: 4,
                accepted,
                refused,
                unanswered,
            },
            answered: (accepted + refused > 0).then_some(at(100)),
            unanswered: (unanswered > 0).then_some(at(100)),
            last: None,
        })
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn canary(answer: ProbeAnswer) -> CanaryAnswer {
        CanaryAnswer {
            answer,
            at: Timestamp::UNIX_EPOCH,
        }
    }

    fn truths(known: &KnownAnswers<'_>) -> (Option<bool>, Option<bool>, String) {
        let line = summarize_target(&Finding::ok(""), &[], &known.status_summary());
        (
            known.reachable_finding().map(|finding| finding.is_true()),
            known
                .authenticates_finding()
                .map(|finding| finding.is_true()),
            line,
        )
    }

    /// These three were called usable: an address that is refused, a closed port, an unknown host.
    #[test]
    fn a_target_that_never_answered_is_not_called_usable() {
        let refused = RefusedDestination {
            address: "169.254.169.254".parse().unwrap(),
            kind: RefusedAddress::LinkLocal,
        };
        let silence = |cause| {
            ProbeAnswer::Unanswered(Silence {
                cause,
                text: "no".to_owned(),
            })
        };
        for (answer, line) in [
            (
                ProbeAnswer::AddressRefused(refused),
                "declared; Keyferry does not connect to the target's address",
            ),
            (
                silence(SilenceCause::ConnectionRefused),
                "declared; the target refuses connections",
            ),
            (
                silence(SilenceCause::UnknownHost),
                "declared; the target's host is unknown",
            ),
        ] {
            let canary = canary(answer);
            let known = KnownAnswers {
                accesses: Some(AccessAnswers::default()),
                canary: Some(&canary),
            };
            assert_eq!(truths(&known), (Some(false), None, line.to_owned()));
        }
    }

    #[test]
    fn a_refused_token_of_one_access_is_seen_at_the_target() {
        let canary = canary(ProbeAnswer::Refused);
        for (accesses, expected) in [
            (accesses(3, 1, 0), (Some(true), Some(false))),
            (accesses(4, 0, 0), (Some(true), Some(true))),
            (accesses(0, 0, 4), (Some(false), Some(false))),
            (accesses(0, 0, 0), (Some(true), None)),
        ] {
            let known = KnownAnswers {
                accesses,
                canary: Some(&canary),
            };
            let (reachable, authenticates, line) = truths(&known);
            assert_eq!((reachable, authenticates), expected, "{line}");
            assert!(line.starts_with("declared; "), "{line}");
        }
    }

    fn silent() -> ProbeAnswer {
        ProbeAnswer::Unanswered(Silence {
            cause: SilenceCause::Other,
            text: "no".to_owned(),
        })
    }

    #[test]
    fn the_newer_of_the_canarys_and_the_accesses_answers_counts() {
        for (counts, answer, canary_at, reachable) in [
            (accesses(1, 0, 0), silent(), 99, true),
            (accesses(1, 0, 0), silent(), 101, false),
            (accesses(0, 0, 1), ProbeAnswer::Refused, 99, false),
            (accesses(0, 0, 1), ProbeAnswer::Refused, 101, true),
        ] {
            let canary = CanaryAnswer {
                answer,
                at: at(canary_at),
            };
            let known = KnownAnswers {
                accesses: counts,
                canary: Some(&canary),
            };
            assert_eq!(
                known.reachable_finding().unwrap().is_true(),
                reachable,
                "{known:?}"
            );
        }
    }

    /// One token that was accepted on request called a target well that had stopped since.
    #[test]
    fn an_old_status_says_nothing_about_the_present() {
        let server = keyferry_api::config::read(keyferry_issuer::testing::CONFIGURATION);
        let store = ObjectStore::new(server.unwrap().server);
        let probed = "2026-01-01T00:00:00Z";
        let access = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess",
            "metadata": {
                "name": "ci", "namespace": "tenant-a", "uid": "u-1", "generation": 1,
                "resourceVersion": "1", "creationTimestamp": probed,
            },
            "spec": {
                "targetClusterRef": { "name": "prod" }, "serviceAccountName": "reconciler",
            },
            "status": {
                "lastProbeTime": probed,
                "conditions": [
                    { "type": "TargetAuthenticates", "status": "True", "reason": "Ready" },
                ],
            },
        });
        store.list(Collection::TargetAccesses, &[access]);
        let asked_at: Timestamp = probed.parse().unwrap();
        let canary = CanaryAnswer {
            answer: silent(),
            at: asked_at - jiff::SignedDuration::from_secs(1),
        };
        let known_after = |seconds| {
            let now = asked_at + jiff::SignedDuration::from_secs(seconds);
            let answers = count_answers(&store, now);
            let known = KnownAnswers {
                accesses: answers.values().next().copied(),
                canary: Some(&canary),
            };
            assert_eq!(known.asked_at(), Some(asked_at));
            assert_eq!(known.accesses.unwrap().counts.total, 1);
            truths(&known)
        };
        let (reachable, authenticates, _) = known_after(1200);
        assert_eq!((reachable, authenticates), (Some(true), Some(true)));
        let (reachable, authenticates, _) = known_after(1201);
        assert_eq!((reachable, authenticates), (Some(false), None));
    }

    #[test]
    fn an_answer_is_read_from_the_status_of_an_access() {
        let status = json!({
            "lastProbeTime": "2026-01-01T00:00:00Z",
            "conditions": [{ "type": "TargetAuthenticates", "status": "False", "reason": "ProbeRefused" }],
        });
        let (truth, at) = read_answer(&status);
        assert!(matches!(truth, Some(Answer::Refused)));
        assert_eq!(at.unwrap().to_string(), "2026-01-01T00:00:00Z");
        assert!(matches!(read_answer(&json!({})), (None, None)));
        for (reason, counts) in [("ProbeUnanswered", true), ("AuthorUnchecked", false)] {
            let conditions = json!([
                { "type": "TargetAuthenticates", "status": "Unknown", "reason": reason },
            ]);
            let (truth, _) = read_answer(&json!({ "conditions": conditions }));
            assert_eq!(truth.is_some(), counts, "{reason}");
        }
    }
}
