//! Generates several faults at once: in one expression, in one field, and in one entry.

use crate::differential::node::Node;
use crate::random::Random;

/// An expression with several issues: from the parser, from the checker, and from the validation of
/// literals.
pub(crate) fn expression(random: &mut Random) -> String {
    let parts = 2 + random.below(3);
    let mut text = random.pick(&PARTS).to_owned();
    for _ in 1..parts {
        let part = random.pick(&PARTS);
        text = match random.below(8) {
            0 => format!("{text} && {part}"),
            1 => format!("{text} || {part}"),
            2 => format!("{text} == {part}"),
            3 => format!("({text} ? {part} : {})", random.pick(&PARTS)),
            4 => format!("[{text}, {part}]"),
            5 => format!("{{{text}: {part}}}"),
            6 => format!("{text}\n+ {part}"),
            _ => format!("{text} + {part}"),
        };
    }
    if random.percent(2) {
        vec![text; 60].join(" + ")
    } else {
        text
    }
}

/// Puts several faults into one or more fields of an entry.
pub(crate) fn change(random: &mut Random, entry: &mut Node) {
    for _ in 0..random.pick_copied(&[1, 1, 2, 3]) {
        match random.below(4) {
            0 | 1 => mapping(random, entry),
            2 => extras(random, entry),
            _ => rules(random, entry),
        }
    }
}

fn mapping(random: &mut Random, entry: &mut Node) {
    let Some(mappings) = entry.get_mut("claimMappings") else {
        return;
    };
    let mut mapping = Node::Map(Vec::new());
    if random.percent(50) {
        mapping.push("claim", Node::text(random.pick(&["sub", "", "email"])));
    }
    if random.percent(60) {
        mapping.push("prefix", Node::text(random.pick(&["p:", "", "-"])));
    }
    mapping.push("expression", Node::text(any(random)));
    mappings.set(random.pick(&["username", "groups", "uid"]), mapping);
}

fn extras(random: &mut Random, entry: &mut Node) {
    let Some(mappings) = entry.get_mut("claimMappings") else {
        return;
    };
    let mut entries = Vec::new();
    for _ in 0..random.pick_copied(&[1, 2, 3]) {
        let key = Node::text(random.pick(&KEYS));
        entries.push(Node::map([
            ("key", key),
            ("valueExpression", Node::text(any(random))),
        ]));
    }
    mappings.set("extra", Node::List(entries));
}

fn rules(random: &mut Random, entry: &mut Node) {
    let field = random.pick(&[
        "claimValidationRules",
        "claimValidationRules",
        "userValidationRules",
    ]);
    let (one, mut entries) = (any(random), Vec::new());
    for _ in 0..random.pick_copied(&[1, 2, 3]) {
        let text = if random.percent(40) {
            one.clone()
        } else {
            any(random)
        };
        let mut rule = Node::map([("expression", Node::text(text))]);
        if field == "claimValidationRules" {
            for (name, chance) in [("claim", 30), ("requiredValue", 40), ("message", 30)] {
                if random.percent(chance) {
                    rule.push(name, Node::text(random.pick(&["sub", "", "m"])));
                }
            }
        }
        entries.push(rule);
    }
    entry.set(field, Node::List(entries));
}

fn any(random: &mut Random) -> String {
    if random.percent(80) {
        expression(random)
    } else {
        random
            .pick(&["claims.email", "", "true", "claims.sub", "1"])
            .to_owned()
    }
}

/// Keys with several faults each.
const KEYS: [&str; 14] = [
    "Example.org/a b",
    "EXAMPLE..org/ü",
    "K8s.io/X y",
    "-A.k8s.io/%",
    "a_b.kubernetes.io/ ",
    "/X",
    "X/",
    "k8s.io/x y",
    "Ü/Ü",
    "example.org/x",
    "example.org/x",
    "",
    "Example",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaA_.k8s.io/x y",
];

/// Parts of expressions. Most have an issue of their own, a few are sound.
const PARTS: [&str; 66] = [
    "nope",
    "other.x",
    ".nope",
    "nope(1)",
    "claims.sub.nope()",
    "nope.f(other)",
    "nope[other]",
    "claims.sub",
    "true",
    "1",
    "'a'",
    "user.username",
    "user.nope",
    "user.username.x",
    "(1 + 'a')",
    "(1 + 1u)",
    "('a' && 1)",
    "(!1)",
    "(-'a')",
    "[1, 'a', 2.0]",
    "{'a': 1, 2: 'b'}",
    "{nope: other}",
    "{[1]: 2}",
    "[nope, other]",
    "[?1]",
    "[?nope]",
    "{?'a': 1}",
    "has(1)",
    "has(nope)",
    "has(nope.x)",
    "has(claims.?sub)",
    "has(as.x)",
    "claims.all(1, true)",
    "nope.all(x, other)",
    "[1].all(x, x)",
    "[1].all(x, x == 'a')",
    "[1].map(1, 2)",
    "[1].map(x, nope, other)",
    "1.exists(x, nope)",
    "claims.sub.exists(x, x == nope)",
    "'a'.exists_one(x, nope)",
    "[1].filter(x.y, nope)",
    "claims.transformList(x, x, nope)",
    "[1].transformMap(1, 2, nope)",
    "claims.?sub.optMap(1, nope)",
    "claims.?sub.optMap(x, nope)",
    "nope.optMap(x, other)",
    "optional.of(nope).or(1)",
    "claims.?sub.or('a')",
    "as",
    "as(nope)",
    ".as",
    "package.x",
    "'\\u12'",
    "'\\x4' ",
    "9223372036854775808",
    "1e999",
    "99999999999999999999u",
    "timestamp('x')",
    "duration('y')",
    "'a'.matches('(')",
    "'%d %s'.format(['a'])",
    "Nope{a: other}",
    "claims.`a`",
    "claims.(",
    "1 +",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_has_several_parts() {
        for case in 0..500 {
            let text = expression(&mut Random::of(4, case));
            assert!(text.len() < 16 * 1024 && text.len() > 3, "{text}");
        }
    }
}
