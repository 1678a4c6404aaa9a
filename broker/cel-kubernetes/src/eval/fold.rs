//! Runs loops, which macros become.

use std::sync::Arc;

use super::{Run, Runner, Stop};
use crate::Minor;
use crate::plan::Loop;
use crate::value::{List, Map, Val};

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

impl Runner<'_> {
    pub(super) fn fold(&mut self, fold: &Arc<Loop>, scope: Option<usize>) -> Run<Val> {
        let range = self.eval(&fold.range, scope)?;
        let value = if range.is_error() {
            // 1.32 loses the error of the range if a loop has two variables.
            let forgets = self.minor == Minor::V1_32 && fold.var2.is_some();
            if forgets {
                Val::error("unsupported comprehension range type: *types.Err")
            } else {
                range
            }
        } else {
            match self.entries(&range, fold.var2.is_some())? {
                Ok(entries) => self.iterate(fold, entries, scope)?,
                Err(error) => error,
            }
        };
        self.tracker.drop_ids(&[fold.range.id()])?;
        self.tracker.push(fold.id, value.clone())?;
        Ok(value)
    }

    fn iterate(
        &mut self,
        fold: &Arc<Loop>,
        entries: Vec<(Val, Val)>,
        scope: Option<usize>,
    ) -> Run<Val> {
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
            let accu = self.eval(&fold.init, scope)?;
            if let Some(frame) = self.frames.get_mut(me) {
                frame.accu = Some(accu);
            }
        }
        for (first, second) in entries {
            self.tracker.step(1)?;
            if let Some(frame) = self.frames.get_mut(me) {
                (frame.first, frame.second) = (first, second);
            }
            if matches!(self.eval(&fold.condition, Some(me))?, Val::Bool(false)) {
                break;
            }
            let accu = self.eval(&fold.step, Some(me))?;
            if let Some(frame) = self.frames.get_mut(me) {
                frame.accu = Some(accu);
            }
        }
        if let Some(frame) = self.frames.get_mut(me) {
            frame.finishing = true;
        }
        let value = self.eval(&fold.result, Some(me))?;
        self.frames.truncate(me);
        Ok(match value {
            Val::List(list) if list.is_growing() => Val::list(Vec::new()),
            other => other,
        })
    }

    /// Returns the entries that a loop iterates over.
    fn entries(&mut self, range: &Val, two: bool) -> Run<Result<Vec<(Val, Val)>, Val>> {
        let mut entries: Vec<(Val, Val)> = match range {
            Val::List(list) if two => {
                let index = |i: usize| Val::Int(i64::try_from(i).unwrap_or(i64::MAX));
                return Ok(Ok((0..list.len())
                    .filter_map(|i| Some((index(i), list.get(i)?)))
                    .collect()));
            }
            Val::List(list) => {
                return Ok(Ok(list
                    .items()
                    .iter()
                    .map(|v| (v.clone(), Val::Null))
                    .collect()));
            }
            Val::Map(map) => map.entries().to_vec(),
            Val::Lazy(_) if two => {
                return Err(Stop::Beyond(
                    "a loop with two variables over the variable itself".to_owned(),
                ));
            }
            Val::Lazy(lazy) => lazy.values().map(|v| (v.clone(), Val::Null)).collect(),
            other => {
                let name = other.type_name();
                return Ok(Err(Val::error(format!(
                    "got '{name}', expected iterable type"
                ))));
            }
        };
        self.unordered = self.unordered.max(entries.len());
        permute(&mut entries, self.order);
        Ok(Ok(entries))
    }

    /// Returns the value of a variable, as seen from a scope.
    pub(super) fn lookup(&mut self, name: &str, scope: Option<usize>) -> Run<Val> {
        let mut at = scope;
        while let Some(index) = at {
            let Some(frame) = self.frames.get(index) else {
                break;
            };
            if frame.fold.accu == name {
                if let Some(accu) = &frame.accu {
                    return Ok(accu.clone());
                }
                let (fold, outer) = (Arc::clone(&frame.fold), frame.outer);
                let bound = fold.accu != crate::macros::ACCUMULATOR;
                let accu = match self.eval(&fold.init, outer)? {
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

/// Puts entries into one of several orders: unchanged or reversed, and rotated by some places.
fn permute<T>(entries: &mut [T], order: u32) {
    if entries.is_empty() {
        return;
    }
    if order % 2 == 1 {
        entries.reverse();
    }
    let turn = usize::try_from(order / 2).unwrap_or(0) % entries.len();
    entries.rotate_left(turn);
}
