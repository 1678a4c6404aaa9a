//! Functions on lists, sets and the maps that loops build.

use std::cmp::Ordering;

use super::{Called, Context, operator};
use crate::Minor;
use crate::value::{List, Val};

/// The longest range from 1.37 on.
const MAX_RANGE: i64 = 1_000_000;

pub(super) fn call(overload: &str, args: &[Val], context: &Context<'_>) -> Option<Called> {
    let done = match (overload, args) {
        ("lists_range", [Val::Int(n)]) if *n < 0 && context.minor >= Minor::V1_37 => {
            Val::error(format!("lists.range: size must be non-negative, got {n}"))
        }
        ("lists_range", [Val::Int(n)]) if *n > MAX_RANGE && context.minor >= Minor::V1_37 => {
            Val::error(format!(
                "lists.range: size {n} exceeds maximum allowed ({MAX_RANGE})"
            ))
        }
        ("lists_range", [Val::Int(n)]) if *n > 1_100_000 => {
            return Some(Err("a very long range".to_owned()));
        }
        ("lists_range", [Val::Int(n)]) => Val::list((0..*n).map(Val::Int).collect()),
        ("list_includes_dyn_dyn", [Val::List(list), item]) => {
            operator::any(list.items().iter().map(|i| i.equals(item)))
        }
        ("list_includes_dyn_dyn", [value, item]) => Val::Bool(value.equals(item).is_true()),
        ("@mapInsert_map_key_value", [Val::Map(map), key, value]) => {
            insert(map.clone(), [(key.clone(), value.clone())])
        }
        ("@mapInsert_map_map", [Val::Map(map), Val::Map(more)]) => {
            insert(map.clone(), more.entries().to_vec())
        }
        (_, [Val::List(list)]) => return one_list(overload, list, context),
        (_, [Val::List(a), Val::List(b)]) if overload.starts_with("list_sets_") => {
            sets(overload, a, b)?
        }
        ("list_a_index_of_int", [Val::List(list), item]) => {
            position(list.items().iter().position(|i| i.equals(item).is_true()))
        }
        ("list_a_last_index_of_int", [Val::List(list), item]) => {
            position(list.items().iter().rposition(|i| i.equals(item).is_true()))
        }
        ("list_slice", [Val::List(list), Val::Int(from), Val::Int(to)]) => slice(list, *from, *to),
        ("list_flatten_int", [Val::List(_), Val::Int(depth)]) if *depth < 0 => {
            Val::error("level must be non-negative")
        }
        ("list_flatten_int", [Val::List(list), Val::Int(depth)]) => flatten(list, *depth),
        _ => return None,
    };
    Some(Ok(done))
}

fn one_list(overload: &str, list: &List, context: &Context<'_>) -> Option<Called> {
    let items = list.items();
    if overload.ends_with("_is_sorted_bool") {
        return Some(Ok(is_sorted(items)));
    }
    if overload.contains("_sum_") {
        return Some(Ok(sum(overload, items)));
    }
    for (part, wanted) in [("_max_", Ordering::Less), ("_min_", Ordering::Greater)] {
        if overload.contains(part) {
            return Some(Ok(extreme(part, wanted, items)));
        }
    }
    let _ = context;
    Some(Ok(match overload {
        "list_flatten" => flatten(list, 1),
        "list_reverse" => Val::list((0..list.len()).rev().filter_map(|i| list.get(i)).collect()),
        "list_distinct" if items.is_empty() => Val::List(list.clone()),
        "list_distinct" => {
            let mut kept: Vec<Val> = Vec::new();
            for item in (0..list.len()).filter_map(|i| list.get(i)) {
                if !kept.iter().any(|k| item.equals(k).is_true()) {
                    kept.push(item);
                }
            }
            Val::list(kept)
        }
        _ => return None,
    }))
}

fn position(found: Option<usize>) -> Val {
    Val::Int(found.and_then(|i| i64::try_from(i).ok()).unwrap_or(-1))
}

pub(super) fn is_sorted(items: &[Val]) -> Val {
    let mut previous: Option<&Val> = None;
    for item in items {
        if !comparable(item) {
            return Val::no_overload();
        }
        if previous.is_some_and(|p| matches!(p.compare(item), Ok(Ordering::Greater))) {
            return Val::Bool(false);
        }
        previous = Some(item);
    }
    Val::Bool(true)
}

pub(super) fn comparable(value: &Val) -> bool {
    use Val::{Bool, Bytes, Double, Duration, Int, Str, Timestamp, Uint};
    matches!(
        value,
        Bool(_) | Bytes(_) | Double(_) | Duration(_) | Int(_) | Str(_) | Timestamp(_) | Uint(_)
    )
}

pub(super) fn sum(overload: &str, items: &[Val]) -> Val {
    let mut total = match overload {
        "list_int_sum_int" => Val::Int(0),
        "list_uint_sum_uint" => Val::Uint(0),
        "list_double_sum_double" => Val::Double(0.0),
        _ => Val::Duration(0),
    };
    for item in items {
        total = operator::add(&total, item);
        if total.is_error() {
            return total;
        }
    }
    total
}

pub(super) fn extreme(part: &str, wanted: Ordering, items: &[Val]) -> Val {
    let mut best: Option<&Val> = None;
    for item in items {
        if !comparable(item) {
            return Val::no_overload();
        }
        best = match best {
            Some(b) if !matches!(b.compare(item), Ok(order) if order == wanted) => Some(b),
            _ => Some(item),
        };
    }
    best.cloned()
        .unwrap_or_else(|| Val::error(format!("{} called on empty list", part.trim_matches('_'))))
}

fn sets(overload: &str, a: &List, b: &List) -> Option<Val> {
    let within =
        |list: &List, item: &Val| operator::any(list.items().iter().map(|i| item.equals(i)));
    let not = |answer: Val| match answer {
        Val::Bool(b) => Val::Bool(!b),
        other => other,
    };
    let lacks =
        |a: &List, b: &List| operator::any(b.items().iter().map(|item| not(within(a, item))));
    Some(match overload {
        "list_sets_contains_list" => not(lacks(a, b)),
        "list_sets_equivalent_list" => not(operator::any([lacks(a, b), lacks(b, a)].into_iter())),
        "list_sets_intersects_list" => operator::any(a.items().iter().map(|item| within(b, item))),
        _ => return None,
    })
}

fn slice(list: &List, from: i64, to: i64) -> Val {
    let bounds = (usize::try_from(from), usize::try_from(to));
    let (Ok(start), Ok(end)) = bounds else {
        return Val::error(format!(
            "cannot slice({from}, {to}), negative indexes not supported"
        ));
    };
    if start > end {
        return Val::error(format!(
            "cannot slice({from}, {to}), start index must be less than or equal to end index"
        ));
    }
    if end > list.len() {
        return Val::error(format!(
            "cannot slice({from}, {to}), list is length {}",
            list.len()
        ));
    }
    Val::list((start..end).filter_map(|i| list.get(i)).collect())
}

pub(super) fn flatten(list: &List, depth: i64) -> Val {
    let mut flat: Vec<Val> = list.items().to_vec();
    for _ in 0..depth {
        if !flat.iter().any(|v| matches!(v, Val::List(_))) {
            break;
        }
        flat = flat
            .into_iter()
            .flat_map(|v| match v {
                Val::List(inner) => inner.items().to_vec(),
                other => vec![other],
            })
            .collect();
    }
    Val::list(flat)
}

fn insert(mut map: crate::value::Map, entries: impl IntoIterator<Item = (Val, Val)>) -> Val {
    for (key, value) in entries {
        if map.get(&key).is_some() {
            return Val::error(format!("insert failed: key {key} already exists"));
        }
        map.put(key, value);
    }
    Val::Map(map)
}

/// Sorts a list by keys of the same length.
pub(super) fn sort(list: &List, keys: &List) -> Called {
    let n = list.len();
    if n != keys.len() {
        return Ok(Val::error(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list",
        ));
    }
    let Some(first) = keys.first() else {
        return Ok(Val::List(list.clone()));
    };
    if !comparable(first) {
        return Ok(Val::error("list elements must be comparable"));
    }
    if n > 1
        && keys
            .items()
            .iter()
            .any(|k| k.type_name() != first.type_name())
    {
        return Ok(Val::error("list elements must have the same type"));
    }
    let mut order: Vec<(&Val, usize)> = keys.items().iter().zip(0..n).collect();
    let compared = |a: &Val, b: &Val| a.compare(b).unwrap_or(Ordering::Equal);
    order.sort_by(|a, b| compared(a.0, b.0));
    let items = list.items();
    // Go does not keep the order of elements with equal keys in longer lists.
    let unstable = order.windows(2).any(|pair| match pair {
        [(a, i), (b, j)] => {
            let same = items
                .get(*i)
                .zip(items.get(*j))
                .is_some_and(|(a, b)| a.same(b));
            compared(a, b) == Ordering::Equal && !same
        }
        _ => false,
    });
    if unstable && list.is_shuffled() {
        return Ok(Val::random());
    }
    if unstable && n > 12 {
        return Err("a sort of many elements with equal keys".to_owned());
    }
    Ok(Val::list(
        order.into_iter().filter_map(|(_, i)| list.get(i)).collect(),
    ))
}
