//! Gauges of each target: whether it is reachable, and how it answered the tokens of its accesses.

use std::collections::BTreeSet;
use std::sync::Arc;

use keyferry_api::name::ObjectName;
use keyferry_api::status::ProbeCounts;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;

use super::table::{MetricDescription, NamedGauges, metrics};

/// How many targets get their own series.
const MAX_TARGETS: usize = 2_000;

metrics! {
    /// The series.
    TargetGauges {
        reachable: NamedGauges = "target_reachable" ["target"]
            "1 if the TargetCluster answered when the leader last asked it",
        accesses: NamedGauges = "target_accesses" ["target", "answer"]
            "TargetAccesses of a TargetCluster by its last answer to their tokens: accepted, \
             refused, unanswered or not_asked",
    }
}

/// The gauges of all targets. A clone updates the same series.
#[derive(Clone)]
pub(super) struct Targets {
    gauges: TargetGauges,
    reported: Arc<Mutex<BTreeSet<ObjectName>>>,
}

impl Targets {
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            gauges: TargetGauges::register(registry),
            reported: Arc::default(),
        }
    }

    pub(super) fn describe() -> Vec<MetricDescription> {
        TargetGauges::describe()
    }

    pub(super) fn set(
        &self,
        name: &ObjectName,
        reachable: Option<bool>,
        accesses: Option<ProbeCounts>,
    ) {
        if !self.has_room(name) {
            return;
        }
        match reachable {
            Some(answers) => drop(
                self.gauges
                    .reachable
                    .of([name.to_string()])
                    .set(i64::from(answers)),
            ),
            None => self.gauges.reachable.remove([name.to_string()]),
        }
        for (answer, count) in by_answer(accesses.unwrap_or_default()) {
            let labels = [name.to_string(), answer.to_owned()];
            match accesses {
                Some(_) => drop(self.gauges.accesses.of(labels).set(i64::from(count))),
                None => self.gauges.accesses.remove(labels),
            }
        }
    }

    pub(super) fn retain(&self, is_kept: impl Fn(&ObjectName) -> bool) {
        let mut known = self.reported.lock();
        known.retain(|name| {
            let kept = is_kept(name);
            if !kept {
                self.remove(name);
            }
            kept
        });
    }

    fn remove(&self, name: &ObjectName) {
        self.gauges.reachable.remove([name.to_string()]);
        for (answer, _) in by_answer(ProbeCounts::default()) {
            let labels = [name.to_string(), answer.to_owned()];
            self.gauges.accesses.remove(labels);
        }
    }

    fn has_room(&self, name: &ObjectName) -> bool {
        let mut known = self.reported.lock();
        known.contains(name) || known.len() < MAX_TARGETS && known.insert(name.clone())
    }
}

fn by_answer(counts: ProbeCounts) -> [(&'static str, u32); 4] {
    let ProbeCounts {
        total,
        accepted,
        refused,
        unanswered,
    } = counts;
    let asked = accepted.saturating_add(refused).saturating_add(unanswered);
    [
        ("accepted", accepted),
        ("refused", refused),
        ("unanswered", unanswered),
        ("not_asked", total.saturating_sub(asked)),
    ]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn name(number: usize) -> ObjectName {
        ObjectName::new(format!("t{number}")).unwrap()
    }

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn a_target_that_is_gone_leaves_no_series() {
        let mut registry = Registry::default();
        let targets = Targets::register(&mut registry);
        let counts = ProbeCounts {
            total: 4,
            accepted: 2,
            refused: 1,
            unanswered: 0,
        };
        targets.set(&name(1), Some(false), Some(counts));
        let exposition = text(&registry);
        assert!(exposition.contains("target_reachable{target=\"t1\"} 0"));
        for (answer, count) in [("accepted", 2), ("refused", 1), ("not_asked", 1)] {
            let series = format!("target_accesses{{target=\"t1\",answer=\"{answer}\"}} {count}");
            assert!(exposition.contains(&series), "{series} in {exposition}");
        }
        targets.set(&name(1), None, None);
        assert!(!text(&registry).contains("t1"));
        targets.set(&name(1), Some(true), Some(counts));
        targets.retain(|_| false);
        assert!(!text(&registry).contains("t1"));
    }

    #[test]
    fn the_number_of_series_is_bounded() {
        let mut registry = Registry::default();
        let targets = Targets::register(&mut registry);
        for number in 0..MAX_TARGETS + 10 {
            targets.set(&name(number), Some(true), None);
        }
        assert_eq!(
            text(&registry).matches("target_reachable{").count(),
            MAX_TARGETS
        );
        targets.retain(|kept| *kept == name(MAX_TARGETS));
        targets.set(&name(MAX_TARGETS), Some(true), None);
        assert!(text(&registry).contains(&format!("t{MAX_TARGETS}")));
    }
}
