//! The leaves and forms, by type, from which expressions are built. A form's `{x}` stands for an
//! expression of type `x`; `%v` and `%w` are fresh variables, which `{x|v:s}` may use as an `s`.
//!
//! `lists.range` is used for small ranges only. CEL counts its cost after making the list, so a
//! large range keeps a server busy without end.

mod common_types;
mod leaves;

use self::common_types::{BOOL, INT, STRING, STRING_LIST};
pub(crate) use self::leaves::{CLAIMS_LEAVES, LEAVES, USER_LEAVES};

/// Bool, int, uint, double, string, bytes, null, any, dyn, type, duration, timestamp; `l` list, `m`
/// map with string keys, `o` optional.
pub(crate) const TYPES: &[&str] = &[
    "b", "i", "u", "d", "s", "y", "n", "a", "dyn", "ty", "D", "T", "ls", "li", "ld", "lb", "ll",
    "ldyn", "mss", "msi", "os", "oi", "oa", "ols", "url", "ip", "cidr", "q", "sv", "fm", "re",
];

/// Expressions with sub-expressions, by type.
pub(crate) const FORMS: &[(&str, &[&str])] = &[
    ("b", BOOL),
    ("i", INT),
    (
        "u",
        &[
            "({u} + {u})",
            "({u} * {u})",
            "({u} - {u})",
            "({u} / {u})",
            "({u} % {u})",
            "uint({i})",
            "uint({s})",
            "uint({d})",
            "uint({a})",
        ],
    ),
    (
        "d",
        &[
            "({d} + {d})",
            "({d} * {d})",
            "({d} - {d})",
            "({d} / {d})",
            "-({d})",
            "double({i})",
            "double({s})",
            "double({a})",
            "double({u})",
            "{q}.asApproximateFloat()",
            "{ld}.sum()",
            "{ld}.min()",
            "{ld}.max()",
            "({b} ? {d} : {d})",
        ],
    ),
    ("s", STRING),
    ("y", &["bytes({s})", "({y} + {y})"]),
    (
        "a",
        &[
            "{a}",
            "claims[{s}]",
            "claims.nested[{s}]",
            "claims.list[{i}]",
            "{oa}.orValue({a})",
            "{oa}.value()",
            "({b} ? {a} : {a})",
            "{mss}.a",
        ],
    ),
    (
        "dyn",
        &[
            "dyn({s})",
            "dyn({i})",
            "dyn({a})",
            "dyn({ls})",
            "dyn({mss})",
            "{dyn}[0]",
            "{dyn}['a']",
            "{dyn}.a",
            "dyn({d})",
            "dyn({b})",
            "({dyn} + {dyn})",
            "dyn({T})",
            "dyn({q})",
            "({b} ? {dyn} : {dyn})",
        ],
    ),
    (
        "ty",
        &[
            "type({s})",
            "type({a})",
            "type({ls})",
            "type({dyn})",
            "type({i})",
            "type({T})",
            "type({q})",
            "type({os})",
            "type({mss})",
            "type(type({s}))",
        ],
    ),
    (
        "D",
        &[
            "({D} + {D})",
            "({D} - {D})",
            "({T} - {T})",
            "duration({s})",
            "duration({a})",
            "({b} ? {D} : {D})",
        ],
    ),
    (
        "T",
        &[
            "({T} + {D})",
            "({T} - {D})",
            "timestamp({s})",
            "timestamp({i})",
            "timestamp({a})",
            "timestamp(int({a}))",
            "({D} + {T})",
        ],
    ),
    ("ls", STRING_LIST),
    (
        "li",
        &[
            "[{i}, {i}]",
            "({li} + {li})",
            "{li}.filter(%v, {b|v:i})",
            "{ls}.map(%v, {i|v:s})",
            "{li}.map(%v, {i|v:i})",
            "lists.range(4)",
            "lists.range(size({ls}))",
            "lists.range(-1)",
            "{li}.slice({i}, {i})",
            "{li}.distinct()",
            "{li}.sort()",
            "{li}.reverse()",
            "{ls}.transformList(%v, %w, {i|v:i,w:s})",
            "[{i}, {i}, {i}].sort()",
            "[[{i}], [{i}]].flatten()",
        ],
    ),
    (
        "ld",
        &[
            "[{d}, {d}]",
            "({ld} + {ld})",
            "{ld}.filter(%v, {b|v:d})",
            "{ld}.sort()",
        ],
    ),
    ("lb", &["[{b}, {b}]", "{ls}.map(%v, {b|v:s})"]),
    (
        "ll",
        &["[{ls}, {ls}]", "{ls}.map(%v, [{s|v:s}])", "({ll} + {ll})"],
    ),
    (
        "ldyn",
        &[
            "[dyn({s}), dyn({i})]",
            "[{s}, {i}]",
            "[{a}, {a}]",
            "[{a}, {s}]",
            "[?{os}]",
            "{dyn}.map(%v, %v)",
            "{dyn}.filter(%v, {b|v:dyn})",
            "({ldyn} + {ldyn})",
            "[1, {d}]",
            "[{a}]",
            "[[[{i}]]].flatten(2)",
            "{ll}.flatten()",
            "{ldyn}.flatten({i})",
        ],
    ),
    (
        "mss",
        &[
            "{'a': {s}}",
            "{{s}: {s}}",
            "{'a': {s}, 'b': {s}}",
            "{?'a': {os}}",
            "{mss}.transformMap(%v, %w, {s|v:s,w:s})",
            "{'a': {a}}",
            "{'a': {s}, 'a': {s}}",
            "{mss}.transformMapEntry(%v, %w, {{s|v:s,w:s}: %w})",
            "{ls}.transformMap(%v, %w, {s|v:i,w:s})",
        ],
    ),
    (
        "msi",
        &[
            "{'a': {i}}",
            "{mss}.transformMap(%v, %w, {i|v:s,w:s})",
            "{{s}: {i}}",
        ],
    ),
    (
        "os",
        &[
            "optional.of({s})",
            "optional.ofNonZeroValue({s})",
            "{mss}[?{s}]",
            "{mss}.?a",
            "{os}.or({os})",
            "{os}.optMap(%v, {s|v:s})",
            "{os}.optFlatMap(%v, {os|v:s})",
            "{ls}[?{i}]",
            "{ls}.first()",
            "{ls}.last()",
        ],
    ),
    (
        "oi",
        &[
            "optional.of({i})",
            "optional.ofNonZeroValue({i})",
            "{msi}[?{s}]",
            "{os}.optMap(%v, {i|v:s})",
            "{li}[?{i}]",
            "{li}.first()",
        ],
    ),
    (
        "oa",
        &[
            "optional.of({a})",
            "claims[?{s}]",
            "claims.?nested[?{s}]",
            "{oa}.or({oa})",
            "optional.ofNonZeroValue({a})",
            "{oa}.optMap(%v, {dyn|v:dyn})",
        ],
    ),
    (
        "ols",
        &[
            "optional.of({ls})",
            "{fm}.validate({s})",
            "optional.ofNonZeroValue({ls})",
            "{fm}.validate({s})",
        ],
    ),
    ("url", &["url({s})", "url({a})"]),
    ("ip", &["ip({s})", "{cidr}.ip()", "ip({a})"]),
    ("cidr", &["cidr({s})", "{cidr}.masked()", "cidr({a})"]),
    (
        "q",
        &[
            "quantity({s})",
            "{q}.add({q})",
            "{q}.sub({q})",
            "{q}.add({i})",
            "{q}.sub({i})",
            "quantity({a})",
        ],
    ),
    ("sv", &["semver({s})", "semver({s}, {b})", "semver({a})"]),
    (
        "fm",
        &["format.named({s}).value()", "format.named('uuid').value()"],
    ),
];
