//! A rehearsal while it is put together.

use jiff::Timestamp;
use keyferry_api::name::{AccessName, ObjectName};

use super::scene::Scene;
use super::window::printed;
use super::{
    Branch, CallerClass, Event, Milestone, Refusal, Rehearsal, SCHEMA, SafeMoment, Step,
    Undetermined, Window,
};
use crate::facts::KeyLife;

/// A part of the facts without which an answer is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NeededFacts {
    /// The statuses of TargetAccesses.
    Accesses,
    /// The TargetClusters.
    Targets,
    /// The key journal.
    Journal,
}

/// What an event costs, as far as it is put together.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) answer: String,
    refusals: Vec<Refusal>,
    milestones: Vec<Milestone>,
    branches: Vec<Branch>,
    pub(super) earliest_safe: Option<SafeMoment>,
    assumptions: Vec<String>,
    undetermined: Vec<Undetermined>,
    runbook: Vec<Step>,
}

/// Who is refused, and why.
pub(super) struct Refused {
    pub(super) caller: CallerClass,
    pub(super) access: Option<AccessName>,
    pub(super) target: Option<ObjectName>,
    pub(super) reason: &'static str,
    pub(super) why: String,
}

impl Refused {
    /// Callers of the token API, whatever the access.
    pub(super) fn callers(caller: CallerClass, reason: &'static str, why: &str) -> Self {
        Self {
            caller,
            access: None,
            target: None,
            reason,
            why: why.to_owned(),
        }
    }
}

impl Draft {
    /// Adds what an apiserver of the hub may refuse that has just started.
    pub(super) fn refuse_while_hub_starts(&mut self, possible: Option<Window>) {
        for (caller, reason, why) in [
            (
                CallerClass::CallerWithoutToken,
                "HubPolicyNotReady",
                "an apiserver of the hub that restarts may refuse every TokenRequest at first",
            ),
            (
                CallerClass::CallerWithoutToken,
                "KeyRecordUnread",
                "no token is issued before the key journal is read from the hub again",
            ),
            (
                CallerClass::AnyCaller,
                "ReviewForbidden",
                "an apiserver of the hub that restarts refuses Keyferry's reviews until it has \
                 read its RBAC",
            ),
        ] {
            self.refuse(Refused::callers(caller, reason, why), None, possible);
        }
    }

    /// Leaves open which key signs, because a published one was not seen to.
    pub(super) fn leave_open_which_signs(&mut self, unseen: &KeyLife) {
        self.leave_open(
            format!("whether the hub signs with key {} already", unseen.kid),
            "it is published, and no token of it was seen",
            "rehearse again once keyferry keys says `now` under SIGNS for it",
        );
    }

    /// Adds what the hub refuses of Keyferry itself once it accepts a key no more.
    pub(super) fn refuse_own_token(&mut self, possible: Option<Window>) {
        self.refuse(
            Refused::callers(
                CallerClass::AnyCaller,
                "ReviewForbidden",
                "Keyferry's own token has the key, until its kubelet or a restart of its Pod \
                 replaces it",
            ),
            None,
            possible,
        );
    }

    /// Adds a refusal. The possible window grows to enclose the certain one; without a window there
    /// is no refusal.
    pub(super) fn refuse(
        &mut self,
        refused: Refused,
        certain: Option<Window>,
        possible: Option<Window>,
    ) {
        let enclosing = match (possible, certain) {
            (Some(possible), Some(certain)) => Some(possible.joined(certain)),
            (possible, certain) => possible.or(certain),
        };
        let Some(possible) = enclosing else { return };
        self.refusals.push(Refusal {
            caller: refused.caller,
            access: refused.access,
            target: refused.target,
            reason: refused.reason,
            why: refused.why,
            certain,
            possible,
        });
    }

    pub(super) fn add_milestone(
        &mut self,
        event: impl Into<String>,
        earliest: Timestamp,
        latest: Option<Timestamp>,
    ) {
        self.add_milestone_at(None, event, earliest, latest);
    }

    pub(super) fn add_milestone_at(
        &mut self,
        target: Option<ObjectName>,
        event: impl Into<String>,
        earliest: Timestamp,
        latest: Option<Timestamp>,
    ) {
        self.milestones.push(Milestone {
            event: event.into(),
            target,
            earliest,
            latest,
        });
    }

    pub(super) fn add_branch(
        &mut self,
        condition: impl Into<String>,
        consequence: impl Into<String>,
    ) {
        self.branches.push(Branch {
            condition: condition.into(),
            consequence: consequence.into(),
        });
    }

    pub(super) fn assume(&mut self, assumption: impl Into<String>) {
        self.assumptions.push(assumption.into());
    }

    pub(super) fn leave_open(
        &mut self,
        question: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.undetermined.push(Undetermined {
            question: question.into(),
            why: why.into(),
            fix: fix.into(),
        });
    }

    pub(super) fn add_step(
        &mut self,
        action: impl Into<String>,
        command: Option<String>,
        expect: impl Into<String>,
    ) {
        self.runbook.push(Step {
            action: action.into(),
            command,
            expect: expect.into(),
        });
    }

    /// How many refusals there are so far.
    pub(super) fn refusals(&self) -> &[Refusal] {
        &self.refusals
    }

    pub(super) fn is_open(&self) -> bool {
        !self.undetermined.is_empty()
    }

    /// Leaves a question open for each part of the needed facts that was not read.
    pub(super) fn check_facts(&mut self, scene: &Scene<'_>, needed: &[NeededFacts]) {
        for facts in needed {
            let (resource, question) = match facts {
                NeededFacts::Accesses => (
                    "targetaccesses",
                    "which delivered tokens live, and until when",
                ),
                NeededFacts::Targets => ("targetclusters", "which targets there are"),
                NeededFacts::Journal => ("secrets", "which key signs, and when it did"),
            };
            if *facts == NeededFacts::Journal && scene.fleet.keys.journal_read {
                continue;
            }
            let open_before = self.undetermined.len();
            for gap in scene.gaps_in(resource) {
                self.leave_open(
                    question,
                    format!("{} were not read: {}", gap.resource, gap.message),
                    gap.fix.clone(),
                );
            }
            if *facts == NeededFacts::Journal && self.undetermined.len() == open_before {
                self.leave_open(
                    question,
                    "the key journal was not read",
                    "grant get on the Secrets keyferry-keys and keyferry-seal, and run it again",
                );
            }
        }
    }

    /// Leaves open what a reading of one namespace cannot know of the others.
    pub(super) fn check_scope(&mut self, scene: &Scene<'_>, question: &str) {
        if let Some(namespace) = &scene.fleet.reading.tenant {
            self.leave_open(
                question,
                format!("only namespace {namespace} was read"),
                "run it without -n, with the rights of a platform admin",
            );
        }
    }

    /// Sorts everything by time.
    pub(super) fn into_rehearsal(mut self, scene: &Scene<'_>, event: &Event) -> Rehearsal {
        self.refusals.sort_by(|left, right| {
            let key = |refusal: &Refusal| (refusal.possible.from(), refusal.caller);
            key(left)
                .cmp(&key(right))
                .then_with(|| left.access.cmp(&right.access))
                .then_with(|| left.target.cmp(&right.target))
        });
        self.milestones
            .sort_by_key(|milestone| (milestone.earliest, milestone.latest));
        self.undetermined.sort();
        self.undetermined.dedup();
        self.assume("the clocks of the hub, Keyferry and the targets agree to a second");
        let reading = &scene.fleet.reading;
        if let Some(namespace) = &reading.tenant {
            self.assume(format!(
                "only accesses of namespace {namespace} are predicted"
            ));
        }
        if let Some(failure) = &reading.failed {
            self.assume(format!(
                "nothing changed since {}: the newest reading failed: {}",
                printed(reading.read_at),
                failure.message
            ));
        }
        Rehearsal {
            schema: SCHEMA,
            event: event.clone(),
            at: scene.at,
            judged_at: reading.judged_at,
            parameters: scene.parameters.clone(),
            answer: self.answer,
            refusals: self.refusals,
            milestones: self.milestones,
            branches: self.branches,
            earliest_safe: self.earliest_safe,
            assumptions: self.assumptions,
            undetermined: self.undetermined,
            runbook: self.runbook,
            gaps: scene.fleet.gaps.clone(),
        }
    }
}
