//! Functions on optional values.

use super::Called;
use crate::value::Val;

pub(super) fn call(overload: &str, args: &[Val]) -> Option<Called> {
    let first = args.first();
    Some(Ok(match (overload, first) {
        ("optional_none", _) => Val::Optional(None),
        ("optional_of", Some(value)) => Val::some(value.clone()),
        ("optional_ofNonZeroValue", Some(value)) if is_zero(value) => Val::Optional(None),
        ("optional_ofNonZeroValue", Some(value)) => Val::some(value.clone()),
        ("optional_hasValue", Some(Val::Optional(inner))) => Val::Bool(inner.is_some()),
        ("optional_value", Some(Val::Optional(inner))) => match inner {
            Some(value) => (**value).clone(),
            None => Val::error("optional.none() dereference"),
        },
        ("optional_unwrap" | "optional_unwrapOpt", Some(Val::List(list))) => {
            let mut kept = Vec::new();
            for item in list.items() {
                match item {
                    Val::Optional(inner) => kept.extend(inner.as_deref().cloned()),
                    other => return Some(Ok(Val::error(format!("value {other} is not optional")))),
                }
            }
            Val::list(kept)
        }
        ("list_first", Some(Val::List(list))) => Val::Optional(list.get(0).map(Into::into)),
        ("list_last", Some(Val::List(list))) => Val::Optional(
            list.len()
                .checked_sub(1)
                .and_then(|i| list.get(i))
                .map(Into::into),
        ),
        _ => return None,
    }))
}

/// Whether a value is the zero of its type. From 1.34 on, lists and maps of claims never are,
/// because their wrapper hides it.
fn is_zero(value: &Val) -> bool {
    match value {
        Val::Null => true,
        Val::Bool(b) => !b,
        Val::Int(n) | Val::Duration(n) => *n == 0,
        Val::Uint(n) => *n == 0,
        Val::Double(d) => *d == 0.0,
        Val::Str(s) => s.is_empty(),
        Val::Bytes(b) => b.is_empty(),
        Val::List(l) => l.len() == 0 && !l.is_unescaping(),
        Val::Map(m) => m.len() == 0 && !m.is_unescaping(),
        Val::Timestamp(t) => t.seconds == -62_135_596_800 && t.nanos == 0,
        _ => false,
    }
}
