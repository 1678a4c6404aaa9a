//! Decides whether a type is assignable to another, and binds type parameters.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use crate::types::{Param, Type};

/// The deepest level at which types are compared; deeper ones are not assignable. The parser's
/// height limit keeps real types far below.
const MAX_DEPTH: u32 = 300;

/// The most parts of one type. Types that repeat a part grow fast: `{x: x}` doubles the type of `x`.
const MAX_TYPE_PARTS: u32 = 1_000;

/// The most steps that comparing and substituting the types of one expression may take.
const MAX_TYPE_STEPS: u64 = 20_000_000;

/// The bindings of type parameters.
#[derive(Debug, Default)]
pub(crate) struct Mapping {
    bindings: HashMap<Param, Type>,
    /// The bindings that were replaced since the last decision, oldest first.
    replaced: Vec<(Param, Option<Type>)>,
    steps: Cell<u64>,
    /// Whether a type has too many parts.
    too_large: Cell<bool>,
}

impl Mapping {
    /// Whether the types are too large to be compared, so that its answers are not valid.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.too_large.get() || self.steps.get() > MAX_TYPE_STEPS
    }

    /// Counts a step; false if there were too many.
    fn step(&self) -> bool {
        self.steps.set(self.steps.get() + 1);
        !self.is_exhausted()
    }

    fn find(&self, t: &Type) -> Option<&Type> {
        let Type::Param(p) = t else { return None };
        self.bindings.get(p)
    }

    /// Binds a parameter; replaces an earlier binding.
    pub(crate) fn add(&mut self, param: Param, to: Type) {
        let before = self.bindings.insert(param, to);
        self.replaced.push((param, before));
    }

    /// Whether `a` is assignable to `b`; only then the mapping gets new bindings.
    pub(crate) fn assignable(&mut self, a: &Type, b: &Type) -> bool {
        let fits = self.fits(a, b, 0);
        self.keep(fits)
    }

    /// Whether each of `a` is assignable to its counterpart in `b`.
    pub(crate) fn all_assignable(&mut self, a: &[Type], b: &[Type]) -> bool {
        let fits = a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.fits(a, b, 0));
        self.keep(fits)
    }

    /// Keeps the new bindings, or takes them back.
    fn keep(&mut self, keep: bool) -> bool {
        let replaced = std::mem::take(&mut self.replaced);
        if keep {
            return true;
        }
        for (param, before) in replaced.into_iter().rev() {
            match before {
                Some(before) => drop(self.bindings.insert(param, before)),
                None => drop(self.bindings.remove(&param)),
            }
        }
        false
    }

    /// Returns the type with its parameters replaced; unbound ones become `dyn` if `free_to_dyn`.
    pub(crate) fn substitute(&self, t: &Type, free_to_dyn: bool) -> Type {
        self.substitute_in(t, free_to_dyn, 0, &Cell::new(0))
    }

    fn substitute_in(&self, t: &Type, free: bool, depth: u32, parts: &Cell<u32>) -> Type {
        parts.set(parts.get() + 1);
        if parts.get() > MAX_TYPE_PARTS {
            self.too_large.set(true);
        }
        if depth > MAX_DEPTH || !self.step() {
            return Type::Dyn;
        }
        let inner = |t: &Type| self.substitute_in(t, free, depth + 1, parts);
        if let Some(bound) = self.find(t) {
            return inner(bound);
        }
        match t {
            Type::Param(_) if free => Type::Dyn,
            Type::List(of) => Type::list(inner(of)),
            Type::Map(pair) => Type::map(inner(&pair.0), inner(&pair.1)),
            Type::Optional(of) => Type::optional(inner(of)),
            Type::Of(Some(of)) => Type::Of(Some(Arc::new(inner(of)))),
            _ => t.clone(),
        }
    }

    fn fits(&mut self, a: &Type, b: &Type, depth: u32) -> bool {
        if depth > MAX_DEPTH || !self.step() {
            return false;
        }
        if let Type::Param(p) = b {
            match self.stands_for(a, *p, depth) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Param(p) = a {
            return self.stands_for(b, *p, depth).0;
        }
        if a.is_dyn_or_error() || b.is_dyn_or_error() {
            return true;
        }
        match (a, b) {
            (Type::Null, other) | (other, Type::Null) => nullable(other),
            (Type::Of(_), Type::Of(_)) => true,
            (Type::List(x), Type::List(y)) | (Type::Optional(x), Type::Optional(y)) => {
                self.fits(x, y, depth + 1)
            }
            (Type::Map(x), Type::Map(y)) => {
                self.fits(&x.0, &y.0, depth + 1) && self.fits(&x.1, &y.1, depth + 1)
            }
            _ => a == b,
        }
    }

    /// Whether the parameter can mean `t`, and whether it was bound before.
    fn stands_for(&mut self, t: &Type, param: Param, depth: u32) -> (bool, bool) {
        let as_type = Type::Param(param);
        if *t == as_type {
            return (true, true);
        }
        if let Some(bound) = self.find(&as_type).cloned() {
            if *t == bound {
                return (true, true);
            }
            if !self.fits(t, &bound, depth + 1) {
                return (false, true);
            }
            let general = most_general(t, &bound).clone();
            if self.absent(&as_type, &general, 0) {
                self.add(param, general);
            }
            return (true, true);
        }
        if self.absent(&as_type, t, 0) {
            self.add(param, t.clone());
            return (true, false);
        }
        (false, false)
    }

    /// Whether `t` does not occur within `within`.
    fn absent(&self, t: &Type, within: &Type, depth: u32) -> bool {
        if !self.step() || t == within || depth > MAX_DEPTH {
            return false;
        }
        match within {
            Type::Param(_) => self
                .find(within)
                .is_none_or(|bound| self.absent(t, bound, depth + 1)),
            _ => within
                .parts()
                .into_iter()
                .all(|p| self.absent(t, p, depth + 1)),
        }
    }
}

/// Returns the more general of two types that are known to be assignable.
pub(crate) fn most_general<'t>(a: &'t Type, b: &'t Type) -> &'t Type {
    if less_specific(a, b, 0) { a } else { b }
}

fn less_specific(a: &Type, b: &Type, depth: u32) -> bool {
    if a.is_dyn() || matches!(a, Type::Param(_)) {
        return true;
    }
    if b.is_dyn() || matches!(b, Type::Param(_)) || depth > MAX_DEPTH {
        return false;
    }
    match (a, b) {
        (Type::List(x), Type::List(y)) | (Type::Optional(x), Type::Optional(y)) => {
            less_specific(x, y, depth + 1)
        }
        (Type::Map(x), Type::Map(y)) => {
            less_specific(&x.0, &y.0, depth + 1) && less_specific(&x.1, &y.1, depth + 1)
        }
        (Type::Of(_), Type::Of(_)) => true,
        _ => a == b,
    }
}

fn nullable(t: &Type) -> bool {
    matches!(
        t,
        Type::Null
            | Type::Optional(_)
            | Type::Opaque(_)
            | Type::Object(_)
            | Type::Timestamp
            | Type::Duration
            | Type::Wrapper(_)
    )
}
