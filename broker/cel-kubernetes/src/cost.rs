//! Counts the cost of a run as cel-go does: with a stack of values by node id, quirks included.

mod call;

use crate::Minor;
use crate::eval::{Run, Stop};
use crate::value::Val;

/// The kube-apiserver's cost limit for one expression.
const LIMIT: u64 = 1_000_000;

/// The work after which a run is given up: far more than any expression within the limit needs.
const MAX_STEPS: u64 = 10_000_000;

/// Tracks the cost of a run, and the values that determine it.
#[derive(Debug, Default)]
pub(crate) struct Tracker {
    cost: u64,
    steps: u64,
    stack: Vec<(u32, Val)>,
    /// The number of stack entries with each id.
    present: Vec<u32>,
    muted: bool,
}

impl Tracker {
    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    /// Counts work that costs nothing in CEL but takes time here.
    pub(crate) fn step(&mut self, work: u64) -> Run<()> {
        self.steps = self.steps.saturating_add(work);
        if self.steps > MAX_STEPS {
            return Err(Stop::Beyond("the evaluation takes too long".to_owned()));
        }
        Ok(())
    }

    /// Stops or resumes the tracking of cost.
    pub(crate) fn mute(&mut self, muted: bool) {
        self.muted = muted;
    }

    pub(crate) fn charge_signed(&mut self, cost: i64) {
        if !self.muted {
            self.cost = self.cost.wrapping_add_signed(cost);
        }
    }

    /// Records the value of a node on the stack.
    pub(crate) fn push(&mut self, id: u32, value: Val) -> Run<()> {
        self.step(1)?;
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
        if self.cost > LIMIT {
            Err(Stop::Cost)
        } else {
            Ok(())
        }
    }

    /// Removes each of the nodes from the stack, with everything above it.
    pub(crate) fn drop_ids(&mut self, ids: &[u32]) -> Run<()> {
        for id in ids {
            if let Some(at) = self.find(*id)? {
                self.truncate(at);
            }
        }
        Ok(())
    }

    fn find(&mut self, id: u32) -> Run<Option<usize>> {
        if self
            .present
            .get(id as usize)
            .is_none_or(|count| *count == 0)
        {
            return Ok(None);
        }
        let found = self.stack.iter().rposition(|(i, _)| *i == id);
        let looked = self.stack.len() - found.unwrap_or(0);
        self.step(looked as u64 / 8)?;
        Ok(found)
    }

    fn truncate(&mut self, at: usize) {
        for (id, _) in self.stack.drain(at..) {
            if let Some(count) = self.present.get_mut(id as usize) {
                *count = count.saturating_sub(1);
            }
        }
    }

    /// Removes the arguments of a call from the stack. Returns `None` if one of them is not on it.
    fn take(&mut self, ids: &[u32]) -> Run<Option<Vec<Val>>> {
        let mut values = Vec::with_capacity(ids.len());
        for id in ids.iter().rev() {
            let Some(at) = self.find(*id)? else {
                return Ok(None);
            };
            let Some((_, value)) = self.stack.get(at) else {
                return Ok(None);
            };
            values.push(value.clone());
            self.truncate(at);
        }
        values.reverse();
        Ok(Some(values))
    }

    /// Counts the construction of a list or a map.
    pub(crate) fn construct(&mut self, id: u32, parts: &[u32], cost: u64, value: Val) -> Run<()> {
        self.take(parts)?;
        self.cost = self.cost.saturating_add(cost);
        self.push(id, value)
    }

    /// Counts the call of a function.
    pub(crate) fn call(
        &mut self,
        minor: Minor,
        id: u32,
        what: (&str, Option<&str>),
        parts: &[u32],
        value: &Val,
    ) -> Run<()> {
        if let Some(args) = self.take(parts)? {
            let cost = call::cost(minor, what.0, what.1.unwrap_or_default(), &args, value)
                .map_err(Stop::Panic)?;
            self.cost = self.cost.saturating_add(cost);
        }
        self.push(id, value.clone())
    }
}
