//! Counts the cost of a run as cel-go does: with a stack of values by node id, quirks included.

mod call;

use crate::Minor;
use crate::eval::{Run, Stop};
use crate::value::Val;

/// The kube-apiserver's cost limit for one expression.
const COST_LIMIT: u64 = 1_000_000;

/// Why a result is undetermined that depends on the order of a map.
pub(crate) const RANDOM_ORDER: &str = "the result depends on the order of a map, which is random";

/// The work after which a run is given up: far more than any expression within the limit needs.
const MAX_STEPS: u64 = 10_000_000;

/// Tracks the cost of a run, and the values that determine it.
#[derive(Debug, Default)]
pub(crate) struct Tracker {
    cost: u64,
    /// The part of the cost that is not spent in every order of the maps.
    unsure: u64,
    /// How many of the steps around the current one do not run in every order.
    doubts: u32,
    steps: u64,
    stack: Vec<(u32, Val)>,
    /// The number of stack entries with each id.
    present: Vec<u32>,
    muted: bool,
    /// Whether values can depend on the order of a map.
    shuffled: bool,
}

impl Tracker {
    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns the work that was counted.
    pub(crate) fn counted_steps(&self) -> u64 {
        self.steps
    }

    /// Counts work that costs nothing in CEL but takes time here.
    pub(crate) fn count_steps(&mut self, work: u64) -> Run<()> {
        self.steps = self.steps.saturating_add(work);
        if self.steps > MAX_STEPS {
            return Err(Stop::Beyond("the evaluation takes too long".to_owned()));
        }
        Ok(())
    }

    /// Stops or resumes the tracking of cost.
    pub(crate) fn set_muted(&mut self, muted: bool) {
        self.muted = muted;
    }

    pub(crate) fn charge_signed(&mut self, cost: i64) {
        if !self.muted {
            self.cost = self.cost.wrapping_add_signed(cost);
            if self.doubts > 0 {
                self.unsure = self.unsure.saturating_add_signed(cost);
            }
        }
    }

    fn charge_cost(&mut self, cost: u64, doubtful: bool) {
        self.cost = self.cost.saturating_add(cost);
        if doubtful || self.doubts > 0 {
            self.unsure = self.unsure.saturating_add(cost);
        }
    }

    /// Notes that values can depend on the order of a map from now on.
    pub(crate) fn note_map_order(&mut self) {
        self.shuffled = true;
    }

    pub(crate) fn is_shuffled(&self) -> bool {
        self.shuffled
    }

    /// Starts or ends steps that do not run in every order of the maps.
    pub(crate) fn set_doubtful(&mut self, starts: bool) {
        self.doubts = if starts {
            self.doubts + 1
        } else {
            self.doubts.saturating_sub(1)
        };
    }

    /// Returns how much of the cost is not spent in every order of the maps.
    pub(crate) fn uncertain_cost(&self) -> u64 {
        self.unsure
    }

    /// Takes back doubts about the cost: the steps did run in every order.
    pub(crate) fn remove_uncertain(&mut self, unsure: u64) {
        if self.doubts == 0 {
            self.unsure = unsure;
        }
    }

    /// Records the value of a node on the stack.
    pub(crate) fn push_value(&mut self, id: u32, value: Val) -> Run<()> {
        let extent = value.extent();
        if extent.is_too_large() {
            return Err(Stop::Beyond("a value is too large".to_owned()));
        }
        self.count_steps(1 + extent.parts() / 256)?;
        if self.muted {
            return Ok(());
        }
        self.stack.push((id, value));
        let index = id as usize;
        if self.present.len() <= index {
            self.present.resize(index + 1, 0);
        }
        if let Some(count) = self.present.get_mut(index) {
            *count += 1;
        }
        self.check_limit()
    }

    fn check_limit(&self) -> Run<()> {
        if self.cost <= COST_LIMIT {
            Ok(())
        } else if self.cost.saturating_sub(self.unsure) > COST_LIMIT {
            Err(Stop::Cost)
        } else {
            Err(Stop::Beyond(RANDOM_ORDER.to_owned()))
        }
    }

    /// Removes each of the nodes from the stack, with everything above it.
    pub(crate) fn drop_ids(&mut self, ids: &[u32]) -> Run<()> {
        for id in ids {
            if let Some(at) = self.find_on_stack(*id)? {
                self.truncate_stack(at);
            }
        }
        Ok(())
    }

    fn find_on_stack(&mut self, id: u32) -> Run<Option<usize>> {
        if self
            .present
            .get(id as usize)
            .is_none_or(|count| *count == 0)
        {
            return Ok(None);
        }
        let found = self.stack.iter().rposition(|(i, _)| *i == id);
        let looked = self.stack.len() - found.unwrap_or(0);
        self.count_steps(looked as u64 / 8)?;
        Ok(found)
    }

    fn truncate_stack(&mut self, at: usize) {
        for (id, _) in self.stack.drain(at..) {
            if let Some(count) = self.present.get_mut(id as usize) {
                *count = count.saturating_sub(1);
            }
        }
    }

    /// Removes the arguments of a call from the stack. Returns `None` if one of them is not on it.
    fn take_arguments(&mut self, ids: &[u32]) -> Run<Option<Vec<Val>>> {
        let mut values = Vec::with_capacity(ids.len());
        for id in ids.iter().rev() {
            let Some(at) = self.find_on_stack(*id)? else {
                return Ok(None);
            };
            let Some((_, value)) = self.stack.get(at) else {
                return Ok(None);
            };
            values.push(value.clone());
            self.truncate_stack(at);
        }
        values.reverse();
        Ok(Some(values))
    }

    /// Counts the construction of a list or a map.
    pub(crate) fn count_construction(
        &mut self,
        id: u32,
        parts: &[u32],
        cost: u64,
        value: Val,
    ) -> Run<()> {
        self.take_arguments(parts)?;
        self.charge_cost(cost, false);
        self.push_value(id, value)
    }

    /// Counts the call of a function.
    pub(crate) fn count_call(
        &mut self,
        minor: Minor,
        id: u32,
        what: (&str, Option<&str>),
        parts: &[u32],
        value: &Val,
    ) -> Run<()> {
        if let Some(args) = self.take_arguments(parts)? {
            let doubtful = self.shuffled
                && (args.iter().any(Val::depends_on_order) || value.depends_on_order());
            let cost = call::call_cost(minor, what.0, what.1.unwrap_or_default(), &args, value);
            let cost = cost.map_err(|panic| match doubtful {
                true => Stop::Beyond(RANDOM_ORDER.to_owned()),
                false => Stop::Panic(panic),
            })?;
            self.charge_cost(cost, doubtful);
        }
        self.push_value(id, value.clone())
    }
}
