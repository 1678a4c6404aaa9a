//! Operators, and the functions with one body for all their overloads.

use std::cmp::Ordering;

use super::{Called, Context, collections, pattern};
use crate::number;
use crate::value::Val;

/// Whether a function has one body for all its overloads.
pub(crate) fn is_single(function: &str) -> bool {
    matches!(
        function,
        "_+_"
            | "_-_"
            | "_*_"
            | "_/_"
            | "_%_"
            | "-_"
            | "!_"
            | "_<_"
            | "_<=_"
            | "_>_"
            | "_>=_"
            | "@in"
            | "@not_strictly_false"
            | "matches"
            | "size"
            | "type"
            | "dyn"
            | "sort"
            | "@sortByAssociatedKeys"
    )
}

/// Calls an operator or function with one body.
pub(crate) fn operator(function: &str, args: &[Val], context: &Context<'_>) -> Called {
    let first = args.first().cloned().unwrap_or_else(Val::no_overload);
    let second = || args.get(1).cloned().unwrap_or_else(Val::no_overload);
    Ok(match function {
        "_+_" if matches!(&first, Val::List(l) if l.is_growing()) => {
            return Err(
                "an empty list that is bound to a name and then changed in place".to_owned(),
            );
        }
        "_+_" => add(&first, &second()),
        "_-_" => subtract(&first, &second()),
        "_*_" => number::eval_arithmetic('*', &first, &second()).unwrap_or_else(Val::no_overload),
        "_/_" => number::eval_arithmetic('/', &first, &second()).unwrap_or_else(Val::no_overload),
        "_%_" => number::eval_arithmetic('%', &first, &second()).unwrap_or_else(Val::no_overload),
        "_<_" => compare(&first, &second(), |o| o == Ordering::Less),
        "_<=_" => compare(&first, &second(), |o| o != Ordering::Greater),
        "_>_" => compare(&first, &second(), |o| o == Ordering::Greater),
        "_>=_" => compare(&first, &second(), |o| o != Ordering::Less),
        "-_" => match first {
            Val::Int(n) | Val::Duration(n) if n == i64::MIN => Val::error("integer overflow"),
            Val::Int(n) => Val::Int(-n),
            Val::Duration(n) => Val::Duration(-n),
            Val::Double(d) => Val::Double(-d),
            _ => Val::no_overload(),
        },
        "!_" => match first {
            Val::Bool(b) => Val::Bool(!b),
            _ => Val::no_overload(),
        },
        "@in" => contains(&second(), &first),
        "@not_strictly_false" => match first {
            Val::Bool(_) => first,
            Val::Err(_) => Val::Bool(true),
            _ => Val::no_overload(),
        },
        "matches" => match (&first, second()) {
            (Val::Str(text), Val::Str(written)) => {
                pattern::with(context, &written, |p| p.is_match(text).map(Val::Bool))?
            }
            _ => Val::no_overload(),
        },
        "size" => match first {
            Val::Str(_) | Val::Bytes(_) | Val::List(_) | Val::Map(_) => {
                Val::Int(i64::try_from(first.cost_size()).unwrap_or(i64::MAX))
            }
            _ => Val::no_overload(),
        },
        "type" if context.minor == crate::Minor::V1_30 && matches!(first, Val::Optional(_)) => {
            return Err("the name of the optional type in 1.30".to_owned());
        }
        "type" => Val::Type(first.type_name().into()),
        "dyn" => first,
        "sort" => match &first {
            Val::List(list) => collections::sort(list, list)?,
            _ => Val::no_overload(),
        },
        _ => match (&first, second()) {
            (Val::List(list), Val::List(keys)) => collections::sort(list, &keys)?,
            _ => Val::no_overload(),
        },
    })
}

pub(super) fn add(a: &Val, b: &Val) -> Val {
    if let Some(sum) = number::eval_arithmetic('+', a, b) {
        return sum;
    }
    match (a, b) {
        (Val::Str(a), Val::Str(b)) => Val::from(format!("{a}{b}")),
        (Val::Bytes(a), Val::Bytes(b)) => Val::Bytes([&**a, &**b].concat().into()),
        (Val::List(a), Val::List(b)) => Val::List(a.concat(b)),
        (Val::Duration(a), Val::Duration(b)) => a
            .checked_add(*b)
            .map_or_else(|| Val::error("integer overflow"), Val::Duration),
        (Val::Timestamp(t), Val::Duration(d)) | (Val::Duration(d), Val::Timestamp(t)) => {
            t.add_nanos(*d)
        }
        _ => Val::no_overload(),
    }
}

fn subtract(a: &Val, b: &Val) -> Val {
    if let Some(difference) = number::eval_arithmetic('-', a, b) {
        return difference;
    }
    match (a, b) {
        (Val::Duration(a), Val::Duration(b)) => a
            .checked_sub(*b)
            .map_or_else(|| Val::error("integer overflow"), Val::Duration),
        (Val::Timestamp(t), Val::Duration(d)) => d
            .checked_neg()
            .map_or_else(|| Val::error("integer overflow"), |d| t.add_nanos(d)),
        (Val::Timestamp(a), Val::Timestamp(b)) => a.nanos_since(b),
        _ => Val::no_overload(),
    }
}

fn compare(a: &Val, b: &Val, holds: impl Fn(Ordering) -> bool) -> Val {
    a.compare(b)
        .map_or_else(|error| error, |order| Val::Bool(holds(order)))
}

/// Whether one of the answers is true. Random if that depends on a random order.
pub(super) fn any(answers: impl Iterator<Item = Val>) -> Val {
    let mut found = Val::Bool(false);
    for answer in answers {
        match answer {
            Val::Bool(true) => return answer,
            Val::Random(_) => found = answer,
            _ => {}
        }
    }
    found
}

fn contains(whole: &Val, part: &Val) -> Val {
    match whole {
        Val::List(list) => any(list.items().iter().map(|item| part.equals(item))),
        Val::Map(_) if part.is_random() => Val::random(),
        Val::Map(map) => Val::Bool(map.get(part).is_some()),
        _ => Val::no_overload(),
    }
}
