//! Calls functions on values that depend on the order of a map.

use std::cmp::Ordering;

use super::collections::{comparable, extreme, flatten};
use crate::value::{List, Random, Val};

/// The longest list in an unknown order whose elements are compared with each other.
const MAX_COMPARED: usize = 300;

/// Returns the result of a call that holds in every order. `None` if none of the arguments depends
/// on an order, or if the function computes such a result itself.
pub(crate) fn in_any_order(function: &str, args: &[Val]) -> Option<Val> {
    if !args.iter().any(Val::depends_on_order) {
        return None;
    }
    if args.iter().any(Val::may_fail) {
        return Some(unknown_value(function));
    }
    match function {
        "size" if args.iter().any(Val::is_random) => return Some(unknown_value(function)),
        // These only move values about, or compare them with an answer that may be random.
        "size" | "dyn" | "optional.of" | "@in" | "includes" | "cel.@mapInsert" => return None,
        "_+_" | "type" | "hasValue" | "value" | "optional.ofNonZeroValue"
            if !args.iter().any(Val::is_random) =>
        {
            return None;
        }
        "sets.contains" | "sets.equivalent" | "sets.intersects"
            if !args.iter().any(Val::is_random) =>
        {
            return None;
        }
        _ => {}
    }
    let Some(Val::List(list)) = args.first() else {
        return Some(unknown_value(function));
    };
    if args.iter().skip(1).any(Val::is_random) {
        return Some(unknown_value(function));
    }
    on_list(function, list, args)
}

/// Returns a value of which only the function is known that computes it.
fn unknown_value(function: &str) -> Val {
    let small = matches!(
        function,
        "_<_"
            | "_<=_"
            | "_>_"
            | "_>=_"
            | "!_"
            | "@in"
            | "@not_strictly_false"
            | "size"
            | "contains"
            | "startsWith"
            | "endsWith"
            | "matches"
            | "indexOf"
            | "lastIndexOf"
            | "hasValue"
            | "includes"
    );
    if small {
        Val::Random(Random {
            size: 1,
            fallible: true,
        })
    } else {
        Val::random()
    }
}

fn on_list(function: &str, list: &List, args: &[Val]) -> Option<Val> {
    let items = list.items();
    let shuffled = list.is_shuffled();
    let order_independent = !items.iter().any(Val::depends_on_order);
    let number = Val::Random(Random {
        size: 1,
        fallible: false,
    });
    match (function, args) {
        ("reverse", _) if shuffled => Some(reorder_elements(list, (0..list.len()).rev().collect())),
        ("first" | "last", _) if shuffled => Some(Val::some(list.one_of())),
        ("slice", [_, Val::Int(from), Val::Int(to)]) if shuffled => {
            let (start, end) = (usize::try_from(*from).ok()?, usize::try_from(*to).ok()?);
            if start >= end || end > list.len() {
                return None;
            }
            Some(if end - start == list.len() {
                Val::List(list.clone())
            } else {
                Val::Random(Random {
                    size: (end - start) as u64,
                    fallible: false,
                })
            })
        }
        ("reverse" | "first" | "last" | "slice", _) => None,
        ("flatten", [_]) => Some(mark_shuffled(flatten(list, 1))),
        ("flatten", [_, Val::Int(depth)]) if *depth >= 0 => {
            Some(mark_shuffled(flatten(list, *depth)))
        }
        ("optional.unwrap" | "unwrapOpt", _) if !items.iter().any(Val::is_random) => {
            let optional = |item: &Val| matches!(item, Val::Optional(_));
            items.iter().all(optional).then(|| {
                let inner = items.iter().filter_map(|item| match item {
                    Val::Optional(Some(inner)) => Some((**inner).clone()),
                    _ => None,
                });
                mark_shuffled(Val::list(inner.collect()))
            })
        }
        ("sort", _) if order_independent => sort_by_keys(items),
        ("@sortByAssociatedKeys", [_, Val::List(keys)]) => {
            let settled = !keys.items().iter().any(Val::depends_on_order);
            if settled {
                sort_by_keys(keys.items())
            } else {
                Some(Val::random())
            }
        }
        ("indexOf" | "lastIndexOf", [_, wanted]) => {
            let absent = items.iter().all(|item| item.equals(wanted).is_false());
            (!absent).then_some(number)
        }
        ("join", _)
            if items
                .iter()
                .any(|i| !matches!(i, Val::Str(_) | Val::Random(_))) =>
        {
            None
        }
        ("join", _) if order_independent => {
            let separator = args.get(1).map_or(0, Val::cost_size);
            let sizes = items.iter().map(|item| item.cost_size() + separator);
            Some(Val::Random(Random {
                size: sizes.sum(),
                fallible: false,
            }))
        }
        ("distinct", _) if order_independent => Some(distinct_elements(list)),
        ("isSorted", _) if order_independent && have_total_order(items) => Some(number),
        ("min" | "max", _) if order_independent && have_total_order(items) => {
            let wanted = if function == "max" {
                Ordering::Less
            } else {
                Ordering::Greater
            };
            let found = extreme(function, wanted, items);
            let equal = |item: &&Val| matches!(item.compare(&found), Ok(Ordering::Equal));
            let one = items.iter().filter(equal).all(|item| item.same(&found));
            if one { None } else { Some(Val::random()) }
        }
        ("sum", _) if order_independent && sums_alike(items) => None,
        _ => Some(unknown_value(function)),
    }
}

/// Returns the elements at those places, in an unknown order.
fn reorder_elements(list: &List, places: Vec<usize>) -> Val {
    let items = places.into_iter().filter_map(|at| list.get(at)).collect();
    mark_shuffled(Val::list(items))
}

fn mark_shuffled(value: Val) -> Val {
    match value {
        Val::List(list) => Val::List(list.shuffled()),
        other => other,
    }
}

fn one_kind(items: &[Val]) -> bool {
    let mut kinds = items.iter().map(Val::type_name);
    let first = kinds.next();
    kinds.all(|kind| Some(kind) == first)
}

/// Whether every two of the elements have an order.
fn have_total_order(items: &[Val]) -> bool {
    let nan = |item: &Val| matches!(item, Val::Double(d) if d.is_nan());
    one_kind(items) && items.iter().all(|item| comparable(item) && !nan(item))
}

/// Whether a list can be sorted by these keys. If not, each order has an error, or none can be
/// foreseen.
fn sort_by_keys(keys: &[Val]) -> Option<Val> {
    let fails = !one_kind(keys) || !keys.iter().all(comparable);
    (!fails && !have_total_order(keys)).then(Val::random)
}

/// Returns the distinct elements. Of those that are equal, the first stays, so they must be alike.
fn distinct_elements(list: &List) -> Val {
    if list.len() > MAX_COMPARED {
        return Val::random();
    }
    let mut kept: Vec<Val> = Vec::new();
    for item in (0..list.len()).filter_map(|i| list.get(i)) {
        let equal = |other: &&Val| item.equals(other).is_true() || other.equals(&item).is_true();
        match kept.iter().find(equal) {
            Some(other) if !other.same(&item) => return Val::random(),
            Some(_) => {}
            None => kept.push(item),
        }
    }
    mark_shuffled(Val::list(kept))
}

/// Whether the sum is the same in every order, without an overflow on the way.
fn sums_alike(items: &[Val]) -> bool {
    let (mut above, mut below) = (0_i128, 0_i128);
    let (mut lowest, mut highest) = (i128::from(i64::MIN), i128::from(i64::MAX));
    for item in items {
        let n = match item {
            Val::Int(n) | Val::Duration(n) => i128::from(*n),
            Val::Uint(n) => {
                (lowest, highest) = (0, i128::from(u64::MAX));
                i128::from(*n)
            }
            Val::Double(d) if d.fract() == 0.0 && d.abs() < 1e15 && d.to_bits() != 1 << 63 => {
                (lowest, highest) = (-(1 << 53), 1 << 53);
                *d as i128
            }
            _ => return false,
        };
        if n > 0 { above += n } else { below += n }
    }
    one_kind(items) && lowest <= below && above <= highest
}
