//! Computes the cost of calls: first by the overloads that cel-go's libraries track, then by
//! Kubernetes' estimates, then by cel-go's own.

use crate::Minor;
use crate::value::Val;

/// Computes the cost of a call from its arguments and its result.
///
/// `Err` is a panic: cel-go's cost tracking ends a run that way if the arguments are not what the
/// overload declares.
pub(super) fn cost(
    minor: Minor,
    function: &str,
    overload: &str,
    args: &[Val],
    result: &Val,
) -> Result<u64, String> {
    Ok(tracked(minor, overload, args, result)?
        .or_else(|| kubernetes(minor, function, overload, args, result))
        .unwrap_or_else(|| standard(minor, overload, args)))
}

fn size(args: &[Val], index: usize) -> u64 {
    args.get(index).map_or(1, Val::cost_size)
}

/// A tenth of the size, rounded up.
fn tenth(size: u64) -> u64 {
    (size as f64 * 0.1).ceil() as u64
}

fn pattern(text: u64, pattern: u64) -> u64 {
    (((1.0 + text as f64) * 0.1).ceil() as u64)
        .saturating_mul((pattern as f64 * 0.25).ceil() as u64)
}

fn tracked(
    minor: Minor,
    overload: &str,
    args: &[Val],
    result: &Val,
) -> Result<Option<u64>, String> {
    match overload {
        "list_sets_contains_list" | "list_sets_intersects_list" => {
            return Ok(Some(1 + size(args, 0) * size(args, 1)));
        }
        "list_sets_equivalent_list" => return Ok(Some(1 + size(args, 0) * size(args, 1) * 2)),
        _ if minor < Minor::V1_34 => return Ok(None),
        _ => {}
    }
    Ok(Some(match overload {
        "list_slice" | "lists_range" | "list_reverse" => allocated(1.0, result.cost_size()),
        "list_flatten" => allocated(1.0, size(args, 0)),
        "list_flatten_int" => match args.get(1) {
            Some(Val::Int(depth)) => allocated(*depth as f64, size(args, 0)),
            other => return Err(panic(other, "types.Int")),
        },
        "list_distinct" => compared(args.first())?,
        _ if overload.ends_with("_sortByAssociatedKeys") => compared(args.get(1))?,
        _ if overload.starts_with("list_") && overload.ends_with("_sort") => {
            compared(args.first())?
        }
        _ => return Ok(None),
    }))
}

/// The cost of a new list, and of work in proportion to a size.
fn allocated(factor: f64, size: u64) -> u64 {
    11_u64.saturating_add((size as f64 * factor) as u64)
}

fn panic(value: Option<&Val>, wanted: &str) -> String {
    format!(
        "internal error: interface conversion: {} is not {wanted}",
        value.map_or("nothing", Val::type_name)
    )
}

/// The cost of comparing the elements of a list with each other.
fn compared(list: Option<&Val>) -> Result<u64, String> {
    let Some(Val::List(list)) = list else {
        return Err(panic(list, "traits.Lister"));
    };
    let n = list.len() as u64;
    let factor = if matches!(list.first(), Some(Val::Str(_) | Val::Bytes(_))) {
        2.1
    } else {
        2.0
    };
    Ok(allocated(factor, n * n))
}

fn kubernetes(
    minor: Minor,
    function: &str,
    overload: &str,
    args: &[Val],
    result: &Val,
) -> Option<u64> {
    Some(match function {
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
            args.first().map_or(0, |v| traversal(v, 0))
        }
        "includes" if minor >= Minor::V1_37 => args.first().map_or(0, |v| traversal(v, 0)),
        "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" => tenth(size(args, 0)),
        "replace" | "split" => (size(args, 0) as f64 * 2.0 * 0.1).ceil() as u64,
        "join" => (result.cost_size() as f64 * 2.0 * 0.1).ceil() as u64,
        "find" | "findAll" => pattern(size(args, 0), size(args, 1)),
        "validate" => match args.first() {
            Some(Val::Format(format)) => {
                ((1.0 + size(args, 1) as f64) * 0.1).ceil() as u64 * format.pattern_cost()
            }
            _ => return None,
        },
        "ip" if overload == "cidr_ip" => 1,
        "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
            tenth(size(args, 0))
        }
        "ip.isCanonical" => (size(args, 0) as f64 * 2.0 * 0.1).ceil() as u64,
        "containsIP" | "containsCIDR" => {
            let prefix = size(args, 0);
            let mut cost = tenth(prefix * 2);
            if function == "containsCIDR" {
                cost += tenth(prefix) + 1;
            }
            if overload.ends_with("_string") {
                cost += tenth(size(args, 1));
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
        _ => size(args, index),
    }
}

fn standard(minor: Minor, overload: &str, args: &[Val]) -> u64 {
    let (first, second) = (inner_size(args, 0), inner_size(args, 1));
    match overload {
        "starts_with_string" | "ends_with_string" if minor >= Minor::V1_37 => tenth(second),
        "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string"
        | "strings_quote" | "string_format" => tenth(first),
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
        | "not_equals" => tenth(first.min(second)),
        "add_string" | "add_bytes" => tenth(first + second),
        "matches_string" => pattern(first, second),
        "matches" if minor >= Minor::V1_37 => pattern(first, second),
        "contains_string" => tenth(first) * tenth(second),
        _ => 1,
    }
}

/// The cost of walking a value: one for every leaf, a tenth for every byte of text.
fn traversal(value: &Val, depth: u32) -> u64 {
    match value {
        _ if depth > 256 => 1,
        Val::Str(s) => (s.len() as f64 * 0.1) as u64,
        Val::Bytes(b) => (b.len() as f64 * 0.1) as u64,
        Val::List(l) => l
            .items()
            .iter()
            .map(|v| traversal(v, depth + 1))
            .fold(0, u64::saturating_add),
        Val::Map(m) => m
            .entries()
            .iter()
            .map(|(k, v)| traversal(k, depth + 1) + traversal(v, depth + 1))
            .fold(0, u64::saturating_add),
        _ => 1,
    }
}
