//! Expressions whose outcome was observed in kube-apiserver's own packages.

use serde_json::{Map, Value as Json, json};

use super::*;

fn claims() -> Map<String, Json> {
    let claims = json!({
        "sub": "alice", "groups": ["dev", "ops"], "n": 5, "obj": {"x.y": 1}, "nul": null, "empty": [],
        "kubernetes.io": {"namespace": "ns"},
    });
    claims.as_object().cloned().unwrap_or_default()
}

/// The outcome in one word or value.
fn outcome(minor: Minor, text: &str) -> String {
    match Environment::new(minor).compile(Scope::Claims, text) {
        Err(CompileFault::Refused { message }) => format!("refused {}", message.lines().next().unwrap_or_default()),
        Err(CompileFault::Undetermined(u)) => format!("undetermined {}", u.reason),
        Ok(expression) => match expression.evaluate(Input::Claims(&claims())) {
            Ok(value) => format!("{value:?}"),
            Err(fault) => format!("fails {fault}"),
        },
    }
}

#[test]
fn outcomes_are_those_of_the_api_server() {
    let both = |text: &str, expected: &str| {
        for minor in [Minor::V1_33, Minor::V1_36, Minor::V1_37] {
            assert_eq!(outcome(minor, text), expected, "{text} in {minor}");
        }
    };
    both("claims.sub + '@x'", r#"String("alice@x")"#);
    both("claims.zzz", "fails no such key: zzz");
    both("has(claims.nul)", "Bool(true)");
    both(
        "claims.groups.map(g, g)",
        "refused ERROR: <input>:1:7: expression of type 'any' cannot be range of a comprehension (must be list, map, or dynamic)",
    );
    both("[claims.sub, 'b']", "refused ERROR: <input>:1:14: expected type 'any' but found 'string'");
    both("foo", "refused ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')");
    both("'a' == 1", "refused ERROR: <input>:1:5: found no matching overload for '_==_' applied to '(string, int)'");
    both("claims.zzz == 'a' || true", "Bool(true)");
    both("claims.?zzz.orValue('d')", r#"String("d")"#);
    both("{'a': 1, 'b': 2}.map(k, k)", "fails not decided: the result depends on the order of a map, which is random");
}

#[test]
fn releases_differ_where_they_are_known_to() {
    let cases = [
        ("claims.n + 1", "Int(6)", "fails no such overload"),
        ("size(claims) > 0", "Bool(true)", "fails no such overload"),
        ("type(claims) == map", "Bool(true)", "Bool(false)"),
        ("claims.kubernetes__dot__io.namespace", "fails no such key: kubernetes__dot__io", r#"String("ns")"#),
        ("optional.ofNonZeroValue(claims.empty).hasValue()", "Bool(false)", "Bool(true)"),
        ("[3, 1].sort() == [1, 3]", "refused", "Bool(true)"),
    ];
    for (text, old, new) in cases {
        assert!(outcome(Minor::V1_33, text).starts_with(old), "{text}: {}", outcome(Minor::V1_33, text));
        assert!(outcome(Minor::V1_36, text).starts_with(new), "{text}: {}", outcome(Minor::V1_36, text));
    }
}
