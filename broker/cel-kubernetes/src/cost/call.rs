//! Computes the cost of calls: first by the overloads that cel-go's libraries track, then by
//! Kubernetes' estimates, then by cel-go's own.

use crate::Minor;
use crate::value::Val;

/// Computes the cost of a call from its arguments and its result.
///
/// `Err` is a panic: cel-go's cost tracking ends a run that way if the arguments are not what the
/// overload declares.
pub(super) fn call_cost(
    minor: Minor,
    function: &str,
    overload: &str,
    args: &[Val],
    result: &Val,
) -> Result<u64, String> {
    Ok(tracked_cost(minor, overload, args, result)?
        .or_else(|| kubernetes_cost(minor, function, overload, args, result))
        .unwrap_or_else(|| standard_cost(minor, overload, args)))
}

fn argument_size(args: &[Val], index: usize) -> u64 {
    args.get(index).map_or(1, Val::cost_size)
}

/// A tenth of the size, rounded up.
fn tenth_of(size: u64) -> u64 {
    (size as f64 * 0.1).ceil() as u64
}

fn pattern_cost(text: u64, pattern: u64) -> u64 {
    (((1.0 + text as f64) * 0.1).ceil() as u64)
        .saturating_mul((pattern as f64 * 0.25).ceil() as u64)
}

fn tracked_cost(
    minor: Minor,
    overload: &str,
    args: &[Val],
    result: &Val,
) -> Result<Option<u64>, String> {
    match overload {
        "list_sets_contains_list" | "list_sets_intersects_list" => {
            return Ok(Some(1 + argument_size(args, 0) * argument_size(args, 1)));
        }
        "list_sets_equivalent_list" => {
            return Ok(Some(
                1 + argument_size(args, 0) * argument_size(args, 1) * 2,
            ));
        }
        _ if minor < Minor::V1_34 => return Ok(None),
        _ => {}
    }
    Ok(Some(match overload {
        "list_slice" | "lists_range" | "list_reverse" => allocation_cost(1.0, result.cost_size()),
        "list_flatten" => allocation_cost(1.0, argument_size(args, 0)),
        "list_flatten_int" => match args.get(1) {
            Some(Val::Int(depth)) => allocation_cost(*depth as f64, argument_size(args, 0)),
            other => return Err(panic_message(other, "types.Int")),
        },
        "list_distinct" => comparison_cost(args.first())?,
        _ if overload.ends_with("_sortByAssociatedKeys") => comparison_cost(args.get(1))?,
        _ if overload.starts_with("list_") && overload.ends_with("_sort") => {
            comparison_cost(args.first())?
        }
        _ => return Ok(None),
    }))
}

/// The cost of a new list, and of work in proportion to a size.
fn allocation_cost(factor: f64, size: u64) -> u64 {
    11_u64.saturating_add((size as f64 * factor) as u64)
}

fn panic_message(value: Option<&Val>, wanted: &str) -> String {
    format!(
        "internal error: interface conversion: {} is not {wanted}",
        value.map_or("nothing", Val::type_name)
    )
}

/// The cost of comparing the elements of a list with each other.
fn comparison_cost(list: Option<&Val>) -> Result<u64, String> {
    let Some(Val::List(list)) = list else {
        return Err(panic_message(list, "traits.Lister"));
    };
    let n = list.len() as u64;
    let factor = if matches!(list.first(), Some(Val::Str(_) | Val::Bytes(_))) {
        2.1
    } else {
        2.0
    };
    Ok(allocation_cost(factor, n * n))
}

fn kubernetes_cost(
    minor: Minor,
    function: &str,
    overload: &str,
    args: &[Val],
    result: &Val,
) -> Option<u64> {
    Some(match function {
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
            args.first().map_or(0, |v| traversal_cost(v, 0))
        }
        "includes" if minor >= Minor::V1_37 => args.first().map_or(0, |v| traversal_cost(v, 0)),
        "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" => {
            tenth_of(argument_size(args, 0))
        }
        "replace" | "split" => (argument_size(args, 0) as f64 * 2.0 * 0.1).ceil() as u64,
        "join" => (result.cost_size() as f64 * 2.0 * 0.1).ceil() as u64,
        "find" | "findAll" => pattern_cost(argument_size(args, 0), argument_size(args, 1)),
        "validate" => match args.first() {
            Some(Val::Format(format)) => {
                ((1.0 + argument_size(args, 1) as f64) * 0.1).ceil() as u64 * format.pattern_cost()
            }
            _ => return None,
        },
        "ip" if overload == "cidr_ip" => 1,
        "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
            tenth_of(argument_size(args, 0))
        }
        "ip.isCanonical" => (argument_size(args, 0) as f64 * 2.0 * 0.1).ceil() as u64,
        "containsIP" | "containsCIDR" => {
            let prefix = argument_size(args, 0);
            let mut cost = tenth_of(prefix * 2);
            if function == "containsCIDR" {
                cost += tenth_of(prefix) + 1;
            }
            if overload.ends_with("_string") {
                cost += tenth_of(argument_size(args, 1));
            }
            cost
        }
        "masked"
        | "prefixLength"
        | "family"
        | "isUnspecified"
        | "isLoopback"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast"
        | "format.named"
        | "sign"
        | "asInteger"
        | "isInteger"
        | "asApproximateFloat"
        | "isGreaterThan"
        | "isLessThan"
        | "compareTo"
        | "add"
        | "sub"
        | "major"
        | "minor"
        | "patch"
        | "getScheme"
        | "getHostname"
        | "getHost"
        | "getPort"
        | "getEscapedPath"
        | "getQuery" => 1,
        // Up to 1.31 Kubernetes has no estimate of its own for these types.
        "_==_" if minor >= Minor::V1_32 => match args.first() {
            Some(
                Val::Url(_)
                | Val::Ip(_)
                | Val::Prefix(_)
                | Val::Quantity(_)
                | Val::Semver(_)
                | Val::Format(_),
            ) => 1,
            _ => return None,
        },
        _ => return None,
    })
}

/// The size of an argument; for an optional one the size of its content.
fn inner_size(args: &[Val], index: usize) -> u64 {
    match args.get(index) {
        Some(Val::Optional(Some(inner))) => inner.cost_size(),
        _ => argument_size(args, index),
    }
}

fn standard_cost(minor: Minor, overload: &str, args: &[Val]) -> u64 {
    let (first, second) = (inner_size(args, 0), inner_size(args, 1));
    match overload {
        "starts_with_string" | "ends_with_string" if minor >= Minor::V1_37 => tenth_of(second),
        "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string"
        | "strings_quote" | "string_format" => tenth_of(first),
        "in_list" => second,
        "less_string"
        | "greater_string"
        | "less_equals_string"
        | "greater_equals_string"
        | "less_bytes"
        | "greater_bytes"
        | "less_equals_bytes"
        | "greater_equals_bytes"
        | "equals"
        | "not_equals" => tenth_of(first.min(second)),
        "add_string" | "add_bytes" => tenth_of(first + second),
        "matches_string" => pattern_cost(first, second),
        "matches" if minor >= Minor::V1_37 => pattern_cost(first, second),
        "contains_string" => tenth_of(first) * tenth_of(second),
        _ => 1,
    }
}

/// The cost of walking a value: one for every leaf, a tenth for every byte of text.
fn traversal_cost(value: &Val, depth: u32) -> u64 {
    match value {
        _ if depth > 256 => 1,
        Val::Str(s) => (s.len() as f64 * 0.1) as u64,
        Val::Bytes(b) => (b.len() as f64 * 0.1) as u64,
        Val::List(l) => l
            .items()
            .iter()
            .map(|v| traversal_cost(v, depth + 1))
            .fold(0, u64::saturating_add),
        Val::Map(m) => m
            .entries()
            .iter()
            .map(|(k, v)| traversal_cost(k, depth + 1) + traversal_cost(v, depth + 1))
            .fold(0, u64::saturating_add),
        _ => 1,
    }
}
