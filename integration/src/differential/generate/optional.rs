//! Generates chains of optionals of claims: a start, selections, and an end. Each step may switch
//! between static and `dyn` types.

use super::expression::Scope;
use crate::random::Random;

/// An expression of the type, if a chain can end in that type.
pub(crate) fn expression(random: &mut Random, scope: Scope, wanted: &str) -> Option<String> {
    let ends = ENDS
        .iter()
        .find(|(kind, _)| *kind == wanted)
        .map(|(_, ends)| *ends)?;
    let end = random.pick(ends);
    let (one, other) = (chain(random, scope), chain(random, scope));
    Some(filled(random, end, &one).replace("%o", &other))
}

/// A start and some steps. Most chains stay optional; the others fail when they are compiled or
/// when they run.
fn chain(random: &mut Random, scope: Scope) -> String {
    let starts: &[&str] = if scope == Scope::Claims {
        &CLAIMS
    } else {
        &USER
    };
    let mut made = random.pick(starts).to_owned();
    for _ in 0..random.below(4) {
        let step = random.pick(&STEPS);
        made = filled(random, step, &made);
    }
    made
}

fn filled(random: &mut Random, form: &str, chain: &str) -> String {
    form.replace("%x", random.pick(&FIELDS))
        .replace("%s", random.pick(&VALUES))
        .replace("%c", chain)
}

const CLAIMS: [&str; 26] = [
    "claims.?sub",
    "claims.?missing",
    "claims.?nested",
    "claims.?nested.?deep",
    "claims.?nul",
    "claims.?groups",
    "claims[?'sub']",
    "claims[?'kubernetes.io']",
    "claims.nested[?'a']",
    "claims.groups[?0]",
    "claims.?email_verified",
    "optional.of(claims.sub)",
    "optional.of(claims.missing)",
    "optional.of(claims.nested)",
    "optional.of(claims.nul)",
    "optional.of(claims.groups)",
    "optional.of(claims)",
    "optional.of(claims.?sub)",
    "optional.ofNonZeroValue(claims.empty)",
    "optional.ofNonZeroValue(claims.nested)",
    "optional.of(dyn(claims.nested))",
    "dyn(claims.?nested)",
    "dyn(optional.of(claims.sub))",
    "dyn(optional.none())",
    "optional.none()",
    "dyn(claims).?nested",
];

const USER: [&str; 12] = [
    "user.?uid",
    "user.?groups",
    "user.?extra",
    "user.?missing",
    "user.extra[?'example.org/team']",
    "user.groups[?0]",
    "optional.of(user)",
    "optional.of(user.username)",
    "optional.of(user.extra)",
    "dyn(optional.of(user.uid))",
    "dyn(user).?uid",
    "optional.none()",
];

const STEPS: [&str; 22] = [
    "%c.%x",
    "%c.?%x",
    "%c.?%x.?%x",
    "%c['%x']",
    "%c[?'%x']",
    "%c[0]",
    "%c[?0]",
    "%c.or(optional.of(%s))",
    "%c.or(claims.?%x)",
    "%c.or(dyn(optional.of(%s)))",
    "%c.or(dyn(%s))",
    "dyn(%c)",
    "dyn(%c).or(optional.none())",
    "dyn(%c).or(optional.of(%s))",
    "optional.of(%c)",
    "optional.of(%c.value())",
    "optional.ofNonZeroValue(%c.orValue(%s))",
    "%c.optMap(z, z)",
    "%c.optMap(z, z.%x)",
    "%c.optMap(z, string(z))",
    "%c.optFlatMap(z, z.?%x)",
    "%c.optFlatMap(z, optional.of(z))",
];

const FIELDS: [&str; 9] = [
    "a",
    "b",
    "deep",
    "namespace",
    "missing",
    "serviceaccount",
    "sub",
    "uid",
    "example",
];

const VALUES: [&str; 12] = [
    "'x'",
    "''",
    "1",
    "null",
    "[]",
    "{}",
    "['a']",
    "claims.sub",
    "claims.missing",
    "dyn('x')",
    "{'a': 'x'}",
    "optional.of('x')",
];

/// The ends of a chain, by type. `%o` is another chain.
const ENDS: &[(&str, &[&str])] = &[
    (
        "b",
        &[
            "%c.hasValue()",
            "%c.hasValue() && %o.hasValue()",
            "!%c.hasValue()",
            "dyn(%c).hasValue()",
            "optional.of(%c).hasValue()",
            "optional.of(%c.value()).hasValue()",
            "%c.or(%o).hasValue()",
            "dyn(%c).or(%o).hasValue()",
            "%c.or(dyn(%o)).hasValue()",
            "%c == %o",
            "dyn(%c) == %s",
            "%c.orValue(%s) == %s",
            "has(%c.%x)",
            "%c.hasValue() ? %c.value() == %s : false",
        ],
    ),
    (
        "s",
        &[
            "%c.orValue('x')",
            "%c.orValue(%s)",
            "%c.or(%o).orValue('x')",
            "dyn(%c).or(%o).orValue('x')",
            "string(%c.orValue('x'))",
            "string(%c.value())",
            "%c.value()",
            "dyn(%c).value()",
            "%c.orValue(%o.orValue('x'))",
            "optional.of(%c.orValue('x')).value()",
        ],
    ),
    (
        "ls",
        &[
            "%c.orValue([])",
            "%c.orValue(['x'])",
            "%c.value()",
            "[?%c]",
            "[?%c, ?%o]",
            "dyn(%c).orValue([])",
            "[%c.orValue('x')]",
        ],
    ),
    (
        "a",
        &["%c.orValue(%s)", "%c.value()", "dyn(%c).orValue(%s)"],
    ),
    ("dyn", &["%c.orValue(%s)", "dyn(%c)", "%c.value()", "%c"]),
    ("os", &["%c", "dyn(%c)", "%c.or(%o)"]),
    ("ols", &["%c", "dyn(%c)", "%c.or(%o)"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_filled() {
        for case in 0..2000 {
            let mut random = Random::of(3, case);
            let scope = random.pick_copied(&[Scope::Claims, Scope::User]);
            let wanted = random.pick(&["b", "s", "ls", "a", "dyn", "os", "ols"]);
            let text = expression(&mut random, scope, wanted).unwrap_or_default();
            assert!(!text.is_empty() && !text.contains('%'), "{text}");
        }
    }
}
