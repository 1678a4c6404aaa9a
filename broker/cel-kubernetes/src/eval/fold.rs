//! Runs loops, which macros become.

use std::sync::Arc;

use super::{Run, Runner, Stop};
use crate::Minor;
use crate::ast::Purpose;
use crate::cost::RANDOM_ORDER;
use crate::plan::{Attr, Call, Loop, Node};
use crate::value::{List, Map, Random, Val};

/// The variables of a running loop.
pub(super) struct Frame {
    outer: Option<usize>,
    fold: Arc<Loop>,
    accu: Option<Val>,
    first: Val,
    second: Val,
    /// Whether the result is being computed; the loop variables are then undefined.
    finishing: bool,
}

/// What a loop iterates over.
struct Range {
    entries: Vec<(Val, Val)>,
    /// Whether the order of the entries is random.
    shuffled: bool,
}

impl Runner<'_> {
    pub(super) fn eval_fold(&mut self, fold: &Arc<Loop>, scope: Option<usize>) -> Run<Val> {
        let range = self.eval_node(&fold.range, scope)?;
        let value = if range.is_error() {
            // 1.32 loses the error of the range if a loop has two variables.
            let forgets = self.minor == Minor::V1_32 && fold.var2.is_some();
            if forgets {
                Val::error("unsupported comprehension range type: *types.Err")
            } else {
                range
            }
        } else if range.is_random() {
            return Err(Stop::Beyond(RANDOM_ORDER.to_owned()));
        } else {
            match self.fold_range(&range, fold.var2.is_some())? {
                Ok(range) => self.iterate_range(fold, range, scope)?,
                Err(error) => error,
            }
        };
        self.tracker.drop_ids(&[fold.range.id()])?;
        self.tracker.push_value(fold.id, value.clone())?;
        Ok(value)
    }

    fn iterate_range(&mut self, fold: &Arc<Loop>, range: Range, scope: Option<usize>) -> Run<Val> {
        let me = self.frames.len();
        let frame = Frame {
            outer: scope,
            fold: Arc::clone(fold),
            accu: None,
            first: Val::Null,
            second: Val::Null,
            finishing: false,
        };
        self.frames.push(frame);
        // From 1.32 on, the accumulator is computed when it is first used.
        if self.minor < Minor::V1_32 {
            let accu = self.eval_node(&fold.init, scope)?;
            self.set_accumulator(me, accu);
        }
        let shuffled = range.shuffled;
        match (fold.purpose, appended_step(fold)) {
            (Purpose::All | Purpose::Exists, _) if shuffled => {
                self.run_quantifier(fold, range, me)?
            }
            (Purpose::List, Some(parts)) if !self.uses_accumulators => {
                self.collect_list(range, me, &parts)?;
            }
            _ => self.run_in_order(fold, range, me)?,
        }
        if let Some(frame) = self.frames.get_mut(me) {
            frame.finishing = true;
        }
        let value = self.eval_node(&fold.result, Some(me))?;
        self.frames.truncate(me);
        Ok(match value {
            Val::List(list) if list.is_growing() => Val::list(Vec::new()),
            Val::List(list) if shuffled && fold.purpose == Purpose::List => {
                Val::List(list.shuffled())
            }
            other => other,
        })
    }

    fn set_accumulator(&mut self, me: usize, value: Val) {
        if let Some(frame) = self.frames.get_mut(me) {
            frame.accu = Some(value);
        }
    }

    fn accumulator_of(&self, me: usize) -> Option<&Val> {
        self.frames.get(me).and_then(|frame| frame.accu.as_ref())
    }

    fn enter_step(&mut self, me: usize, (first, second): (Val, Val)) -> Run<()> {
        self.tracker.count_steps(1)?;
        if let Some(frame) = self.frames.get_mut(me) {
            (frame.first, frame.second) = (first, second);
        }
        Ok(())
    }

    /// Runs the steps of a loop in order, until the condition fails.
    fn run_in_order(&mut self, fold: &Arc<Loop>, range: Range, me: usize) -> Run<()> {
        let mut doubtful = false;
        for entry in range.entries {
            self.enter_step(me, entry)?;
            match self.run_doubtful(doubtful, |run| run.eval_node(&fold.condition, Some(me)))? {
                Val::Bool(false) => break,
                // Some orders end the loop here. Its other steps change nothing in those.
                Val::Random(_) => doubtful = true,
                _ => {}
            }
            let accu = self.run_doubtful(doubtful, |run| run.eval_node(&fold.step, Some(me)))?;
            if range.shuffled && fold.purpose == Purpose::Map {
                check_keys(self.accumulator_of(me), &accu)?;
            }
            self.set_accumulator(me, accu);
        }
        Ok(())
    }

    /// Runs the steps of `all` or `exists` over entries in a random order. The order decides only
    /// how many steps run before the first that decides.
    fn run_quantifier(&mut self, fold: &Arc<Loop>, range: Range, me: usize) -> Run<()> {
        let undecided = Val::Bool(fold.purpose == Purpose::All);
        let before = self.tracker.uncertain_cost();
        let mut decided = None;
        for entry in range.entries {
            self.enter_step(me, entry)?;
            self.run_doubtful(true, |run| run.eval_node(&fold.condition, Some(me)))?;
            let accu = self.run_doubtful(true, |run| run.eval_node(&fold.step, Some(me)))?;
            if matches!(&accu, Val::Bool(b) if Val::Bool(*b).is_true() != undecided.is_true()) {
                decided = Some(accu);
                self.set_accumulator(me, undecided.clone());
            } else {
                self.set_accumulator(me, accu);
            }
        }
        match decided {
            Some(decided) => self.set_accumulator(me, decided),
            None if self.accumulator_of(me).is_some_and(Val::is_random) => {}
            None => self.tracker.remove_uncertain(before),
        }
        Ok(())
    }

    /// Runs the steps of a loop that collects a list. They have the same values and costs as if each
    /// were evaluated, but the list is not copied in each.
    fn collect_list(&mut self, range: Range, me: usize, step: &Appended<'_>) -> Run<()> {
        let mut items = Vec::with_capacity(range.entries.len());
        let mut end: Option<Val> = None;
        for entry in range.entries {
            self.enter_step(me, entry)?;
            self.eval_node(step.condition, Some(me))?;
            if end.is_some() {
                // The list is an error, or depends on an order, and stays so.
                let accu = self.eval_node(step.whole, Some(me))?;
                self.set_accumulator(me, accu.clone());
                end = Some(accu);
                continue;
            }
            let test = match step.test {
                Some((_, test)) => self.eval_node(test, Some(me))?,
                None => Val::Bool(true),
            };
            let added = match test {
                Val::Bool(true) => self.eval_append(step, me)?,
                Val::Bool(false) => Ok(None),
                error @ Val::Err(_) => Err(error),
                Val::Random(_) => {
                    self.run_doubtful(true, |run| run.eval_append(step, me))?
                        .ok();
                    Err(Val::random())
                }
                _ => Err(Val::no_overload()),
            };
            match added {
                Ok(item) => items.extend(item),
                Err(other) => {
                    self.set_accumulator(me, other.clone());
                    end = Some(other);
                }
            }
            if let Some((choice, _)) = step.test {
                let value = end.clone().unwrap_or_else(|| Val::list(Vec::new()));
                self.observe_attribute(choice.id(), choice, false, value)?;
            }
        }
        if end.is_none() && self.accumulator_of(me).is_none_or(|accu| !accu.is_error()) {
            self.set_accumulator(me, Val::list(items));
        }
        Ok(())
    }

    /// Evaluates `accumulator + [item]`, and returns the items of the second list. `Err` is the sum
    /// if that is no list.
    fn eval_append(&mut self, step: &Appended<'_>, me: usize) -> Run<Result<Option<Val>, Val>> {
        let empty = Val::list(Vec::new());
        self.observe_attribute(step.accu.id(), step.accu, false, empty.clone())?;
        let (result, value) = match self.eval_node(step.item, Some(me))? {
            Val::List(list) => (Ok(list.get(0)), empty),
            other => (Err(other.clone()), other),
        };
        let ids = [step.accu.id(), step.item.id()];
        let call = (step.sum.function.as_str(), step.sum.overload);
        self.tracker
            .count_call(self.minor, step.sum.id, call, &ids, &value)?;
        Ok(result)
    }

    /// Returns what a loop iterates over.
    fn fold_range(&mut self, range: &Val, two: bool) -> Run<Result<Range, Val>> {
        let mut shuffled;
        let index = |i: usize| Val::Int(i64::try_from(i).unwrap_or(i64::MAX));
        let mut entries: Vec<(Val, Val)> = match range {
            Val::List(list) if two => {
                shuffled = list.is_shuffled();
                let place = |i: usize| match shuffled {
                    false => index(i),
                    true => Val::Random(Random {
                        size: 1,
                        fallible: false,
                    }),
                };
                let pairs = (0..list.len()).filter_map(|i| Some((place(i), list.get(i)?)));
                pairs.collect()
            }
            Val::List(list) => {
                shuffled = list.is_shuffled();
                list.items()
                    .iter()
                    .map(|v| (v.clone(), Val::Null))
                    .collect()
            }
            Val::Map(map) => {
                shuffled = true;
                map.entries().to_vec()
            }
            // The second variable is what the value of the first selects.
            Val::Lazy(lazy) => {
                shuffled = !lazy.is_ordered();
                let pair = |v: Val| {
                    let second = if two { lazy.get(&v) } else { Val::Null };
                    (v, second)
                };
                lazy.values().into_iter().map(pair).collect()
            }
            other => {
                let name = other.type_name();
                return Ok(Err(Val::error(format!(
                    "got '{name}', expected iterable type"
                ))));
            }
        };
        shuffled &= entries.len() > 1;
        if shuffled {
            self.unordered = self.unordered.max(entries.len());
            if let Some(orders) = &mut self.orders {
                if !orders.arrange_entries(&mut entries) {
                    return Err(Stop::Beyond(RANDOM_ORDER.to_owned()));
                }
                shuffled = false;
            } else if self.uses_accumulators {
                return Err(Stop::Beyond(RANDOM_ORDER.to_owned()));
            } else {
                self.tracker.note_map_order();
            }
        }
        Ok(Ok(Range { entries, shuffled }))
    }

    /// Returns the value of a variable, as seen from a scope.
    pub(super) fn lookup_variable(&mut self, name: &str, scope: Option<usize>) -> Run<Val> {
        let mut at = scope;
        while let Some(index) = at {
            let Some(frame) = self.frames.get(index) else {
                break;
            };
            // Up to 1.31 a loop variable hides the accumulator.
            if self.minor < Minor::V1_32 && !frame.finishing && frame.fold.var == name {
                return Ok(frame.first.clone());
            }
            if frame.fold.accu == name {
                if let Some(accu) = &frame.accu {
                    return Ok(accu.clone());
                }
                let (fold, outer) = (Arc::clone(&frame.fold), frame.outer);
                let bound = fold.purpose == Purpose::Binding;
                let accu = match self.eval_node(&fold.init, outer)? {
                    Val::List(list) if list.len() == 0 && bound => Val::List(List::growing()),
                    Val::Map(map) if map.len() == 0 => Val::Map(Map::built()),
                    Val::Lazy(lazy) if lazy.len() == 0 => Val::Map(Map::built()),
                    other => other,
                };
                if let Some(frame) = self.frames.get_mut(index) {
                    frame.accu = Some(accu.clone());
                }
                return Ok(accu);
            }
            if !frame.finishing {
                if frame.fold.var == name {
                    return Ok(frame.first.clone());
                }
                if frame.fold.var2.as_deref() == Some(name) {
                    return Ok(frame.second.clone());
                }
            }
            at = frame.outer;
        }
        if self.variable.0 == name {
            return Ok(self.variable.1.clone());
        }
        Ok(Val::error(format!("no such attribute(s): {name}")))
    }
}

/// The parts of a step that appends one item to the accumulator, perhaps only if a test holds.
struct Appended<'p> {
    whole: &'p Node,
    condition: &'p Node,
    test: Option<(&'p Attr, &'p Node)>,
    sum: &'p Call,
    accu: &'p Attr,
    item: &'p Node,
}

fn appended_step(fold: &Loop) -> Option<Appended<'_>> {
    let (test, sum) = match &fold.step {
        Node::Call(sum) => (None, sum),
        Node::Attr(choice @ Attr::Choice { test, yes, .. }) => match &**yes {
            Attr::Computed { operand, .. } => match &**operand {
                Node::Call(sum) => (Some((choice, &**test)), sum),
                _ => return None,
            },
            _ => return None,
        },
        _ => return None,
    };
    match sum.args.as_slice() {
        [
            Node::Attr(accu),
            item @ (Node::List { .. } | Node::Const(..)),
        ] => Some(Appended {
            whole: &fold.step,
            condition: &fold.condition,
            test,
            sum,
            accu,
            item,
        }),
        _ => None,
    }
}

/// Checks that a map can be built in any order. Whether two numbers of different types are one key
/// depends on which comes first.
fn check_keys(before: Option<&Val>, after: &Val) -> Run<()> {
    let numbers = |value: Option<&Val>| match value {
        Some(Val::Map(map)) => {
            let keys = map.entries().iter();
            keys.map(|(key, _)| match key {
                Val::Int(_) | Val::Uint(_) => (true, false),
                Val::Double(_) => (false, true),
                _ => (false, false),
            })
            .fold((false, false), |(a, b), (c, d)| (a | c, b | d))
        }
        _ => (false, false),
    };
    let collides = after.is_error() && numbers(before) != (false, false);
    if collides || numbers(Some(after)) == (true, true) {
        return Err(Stop::Beyond(RANDOM_ORDER.to_owned()));
    }
    Ok(())
}
