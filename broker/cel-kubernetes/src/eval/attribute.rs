//! Resolves variables and what is selected from them.

use super::{Run, Runner, Stop};
use crate::Minor;
use crate::plan::{Attr, Key, Qualifier};
use crate::value::Val;

/// The result of resolving: a value, or an error value.
type Resolved = Result<Val, Val>;

/// What is selected from.
struct Operand {
    value: Val,
    /// Whether the result is an optional.
    optional: bool,
}

impl Runner<'_> {
    /// Evaluates an attribute that is a step of its own.
    pub(super) fn eval_attribute(&mut self, attr: &Attr, scope: Option<usize>) -> Run<Val> {
        let value = self
            .resolve_attribute(attr, scope)?
            .unwrap_or_else(|error| error);
        self.observe_attribute(attr.id(), attr, false, value.clone())?;
        Ok(value)
    }

    /// Evaluates `has(...)`.
    pub(super) fn eval_has(&mut self, id: u32, attr: &Attr, scope: Option<usize>) -> Run<Val> {
        let value = match self.resolve_attribute(attr, scope)? {
            Ok(Val::Optional(inner)) => Val::Bool(inner.is_some()),
            Ok(value) | Err(value) => value,
        };
        self.observe_attribute(id, attr, true, value.clone())?;
        Ok(value)
    }

    pub(super) fn observe_attribute(
        &mut self,
        id: u32,
        attr: &Attr,
        test: bool,
        value: Val,
    ) -> Run<()> {
        let mut cost = 0;
        if let Attr::Choice { test, yes, no, .. } = attr {
            self.tracker.drop_ids(&[no.id(), yes.id(), test.id()])?;
        } else {
            self.tracker.drop_ids(&[attr.id()])?;
            cost += 1;
        }
        self.tracker.charge_signed(cost - i64::from(test));
        self.tracker.push_value(id, value)
    }

    fn resolve_attribute(&mut self, attr: &Attr, scope: Option<usize>) -> Run<Resolved> {
        let (value, path) = match attr {
            Attr::Choice { test, yes, no, .. } => {
                return match self.eval_node(test, scope)? {
                    Val::Bool(true) => self.resolve_attribute(yes, scope),
                    Val::Bool(false) => self.resolve_attribute(no, scope),
                    error @ Val::Err(_) => Ok(Err(error)),
                    Val::Random(test) => self.resolve_either(test.fallible, [yes, no], scope),
                    _ => Ok(Err(Val::no_overload())),
                };
            }
            Attr::Variable {
                name,
                outermost,
                path,
                ..
            } => (
                self.lookup_variable(name, if *outermost { None } else { scope })?,
                path,
            ),
            Attr::Computed { operand, path, .. } => (self.eval_node(operand, scope)?, path),
        };
        if value.is_error() {
            return Ok(Err(value));
        }
        let Some(Operand {
            mut value,
            mut optional,
        }) = self.open_optional(value)?
        else {
            return Ok(Ok(Val::Optional(None)));
        };
        // cel-go's cost tracking does not see what is selected past the loop variables.
        let unseen = matches!(
            attr,
            Attr::Variable {
                outermost: true,
                ..
            }
        );
        let mut resolved = Ok(());
        for qualifier in path {
            optional |= qualifier.optional;
            self.tracker.set_muted(unseen);
            let found = self.run_doubtful(value.is_random(), |run| {
                let scope = if unseen { None } else { scope };
                run.apply_qualifier(qualifier, &value, optional, scope)
            })?;
            self.tracker.set_muted(false);
            match found {
                Ok(Some(found)) => value = found,
                Ok(None) => return Ok(Ok(Val::Optional(None))),
                Err(error) => {
                    resolved = Err(error);
                    break;
                }
            }
        }
        Ok(resolved.map(|()| {
            if optional && !value.may_fail() {
                Val::some(value)
            } else {
                value
            }
        }))
    }

    /// Returns what to select from: the value, or what an optional contains, if anything.
    fn open_optional(&self, value: Val) -> Run<Option<Operand>> {
        let (value, optional) = match value {
            Val::Optional(None) => return Ok(None),
            Val::Optional(Some(inner)) if self.minor < Minor::V1_37 => {
                match (*inner).clone().native() {
                    Some(inner) => (inner, true),
                    None => {
                        return Err(Stop::Beyond(format!(
                            "an optional {} is selected from",
                            inner.type_name()
                        )));
                    }
                }
            }
            Val::Optional(Some(inner)) => ((*inner).clone(), true),
            other => (other, false),
        };
        Ok(Some(Operand { value, optional }))
    }

    /// Resolves both branches of a conditional whose test depends on a random order.
    fn resolve_either(
        &mut self,
        fallible: bool,
        branches: [&Attr; 2],
        scope: Option<usize>,
    ) -> Run<Resolved> {
        let [yes, no] = branches
            .map(|branch| self.run_doubtful(true, |run| run.resolve_attribute(branch, scope)));
        Ok(match (yes?, no?) {
            (Err(error), Err(_)) => Err(error),
            (Ok(yes), Ok(no)) if !fallible && yes.same(&no) => Ok(yes),
            _ => Ok(Val::random()),
        })
    }

    /// Applies one qualifier. Returns `None` if the selected entry is missing and optional.
    fn apply_qualifier(
        &mut self,
        q: &Qualifier,
        value: &Val,
        lenient: bool,
        scope: Option<usize>,
    ) -> Run<Result<Option<Val>, Val>> {
        let mut computed_id = None;
        let selected = match &q.key {
            Key::Const(key) => select_entry(value, key, lenient),
            Key::Test(_) if value.is_random() => Ok(Some(Val::random())),
            Key::Test(key) if lenient => select_entry(value, key, true),
            Key::Test(key) => {
                select_entry(value, key, true).map(|found| Some(Val::Bool(found.is_some())))
            }
            Key::Attr { attr, computed } => {
                computed_id = computed.then(|| attr.id());
                match self.resolve_attribute(attr, scope)? {
                    Ok(
                        key @ (Val::Bool(_)
                        | Val::Int(_)
                        | Val::Uint(_)
                        | Val::Double(_)
                        | Val::Random(_)
                        | Val::Str(_)),
                    ) => select_entry(value, &key, lenient),
                    Ok(other) => Err(Val::error(format!(
                        "invalid qualifier type: {}",
                        other.type_name()
                    ))),
                    Err(error) => Err(error),
                }
            }
        };
        let seen = match &selected {
            Ok(Some(value)) | Err(value) => Some(value.clone()),
            Ok(None) => None,
        };
        let absent = !matches!(selected, Ok(Some(_)));
        if !(lenient && absent) {
            if let Some(id) = computed_id {
                self.tracker.drop_ids(&[id])?;
            }
            self.tracker.charge_signed(1);
            self.tracker.push_value(q.id, seen.unwrap_or(Val::Null))?;
        }
        Ok(selected)
    }
}

/// Returns what a key selects. `lenient` allows a missing entry.
fn select_entry(value: &Val, key: &Val, lenient: bool) -> Result<Option<Val>, Val> {
    if value.is_random() || key.is_random() {
        return Ok(Some(Val::random()));
    }
    if matches!(
        key,
        Val::Null
            | Val::Bytes(_)
            | Val::List(_)
            | Val::Map(_)
            | Val::Type(_)
            | Val::Timestamp(_)
            | Val::Duration(_)
    ) {
        return Err(Val::error(format!(
            "invalid qualifier type: {}",
            key.type_name()
        )));
    }
    let missing = || {
        if lenient {
            Ok(None)
        } else {
            Err(Val::error(format!("no such key: {key}")))
        }
    };
    match value {
        Val::Err(_) => Err(value.clone()),
        Val::Map(map) => map.find(key).map_or_else(missing, |v| Ok(Some(v))),
        Val::Lazy(lazy) => lazy
            .find(key)?
            .map_or_else(missing, |v| if v.is_error() { Err(v) } else { Ok(Some(v)) }),
        Val::List(list) => {
            let index = match key {
                Val::Int(n) => Some(*n),
                Val::Uint(n) => i64::try_from(*n).ok(),
                Val::Double(d) => crate::number::lossless_int(*d),
                _ => {
                    return Err(Val::error(format!(
                        "unsupported index type '{}' in list",
                        key.type_name()
                    )));
                }
            };
            let Some(index) = index else {
                return Err(Val::error(format!("unsupported index value {key} in list")));
            };
            match usize::try_from(index).ok().and_then(|i| list.get(i)) {
                Some(_) if list.is_shuffled() => Ok(Some(list.one_of())),
                Some(found) => Ok(Some(found)),
                None if lenient => Ok(None),
                None => Err(Val::error(format!("index out of bounds: {key}"))),
            }
        }
        _ => missing(),
    }
}
