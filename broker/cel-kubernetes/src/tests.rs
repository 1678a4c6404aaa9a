//! Tests expressions against results of kube-apiserver's own packages.

mod answers;
mod hostile;
mod observed;

use std::thread;

use serde_json::{Value as Json, json};

use super::*;

const MINORS: [Minor; 3] = [Minor::V1_33, Minor::V1_36, Minor::V1_37];

/// Runs something on the stack of a worker thread.
fn on_a_small_stack(run: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(run)
        .unwrap();
    thread.join().unwrap();
}

fn inputs() -> (serde_json::Map<String, Json>, UserInfo) {
    let read: Json = serde_json::from_str(include_str!("tests/inputs.json")).unwrap();
    let texts = |v: &Json| {
        v.as_array()
            .unwrap()
            .iter()
            .map(|t| t.as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let user = &read["user"];
    let user = UserInfo {
        username: user["username"].as_str().unwrap().to_owned(),
        uid: user["uid"].as_str().unwrap().to_owned(),
        groups: texts(&user["groups"]),
        extra: user["extra"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(k, v)| (k.clone(), texts(v)))
            .collect(),
    };
    (read["claims"].as_object().unwrap().clone(), user)
}

fn show(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(b) => format!("bool:{b}"),
        Value::Int(n) => format!("int:{n}"),
        Value::Uint(n) => format!("uint:{n}"),
        Value::Double(d) => format!(
            "double:{:016x}",
            if d.is_nan() {
                f64::NAN.to_bits()
            } else {
                d.to_bits()
            }
        ),
        Value::String(s) => format!("string:{}", json!(s)),
        Value::Bytes(b) => format!(
            "bytes:{}",
            b.iter().map(|b| format!("{b:02x}")).collect::<String>()
        ),
        Value::List(list) => format!(
            "[{}]",
            list.items().iter().map(show).collect::<Vec<_>>().join(", ")
        ),
        Value::Map(entries) => {
            let mut shown: Vec<String> = entries
                .iter()
                .map(|(k, v)| format!("{}: {}", show(k), show(v)))
                .collect();
            shown.sort();
            format!("{{{}}}", shown.join(", "))
        }
        Value::Optional(None) => "optional.none".to_owned(),
        Value::Optional(Some(inner)) => format!("optional({})", show(inner)),
        Value::Timestamp { seconds, nanos } => format!("timestamp:{seconds}.{nanos:09}"),
        Value::Duration(n) => format!("duration:{n}"),
        Value::Type(name) => format!("type:{name}"),
        Value::Opaque(name)
            if matches!(name.as_str(), "kubernetes.claims" | "kubernetes.UserInfo") =>
        {
            "lazymap".to_owned()
        }
        Value::Opaque(name) => format!("opaque:{name}"),
    }
}

/// Returns the outcome in the table's form; `None` if it is undetermined.
fn outcome(environment: &Environment, scope: Scope, text: &str) -> Option<String> {
    let (claims, user) = inputs();
    let expression = match environment.compile(scope, text) {
        Err(CompileFault::Refused { .. }) => return Some("refused".to_owned()),
        Err(CompileFault::Undetermined(_)) => return None,
        Ok(expression) => expression,
    };
    let input = if scope == Scope::User {
        Input::User(&user)
    } else {
        Input::Claims(&claims)
    };
    match expression.evaluate(input) {
        Ok(value) => Some(format!("{} = {}", expression.output_type(), show(&value))),
        Err(EvaluateFault::Undetermined(_)) => None,
        Err(_) => Some("fails".to_owned()),
    }
}

#[test]
fn in_1_30_all_uses_of_an_accumulator_of_a_list_are_one_node() {
    let refusal = |minor, text: &str| {
        let fault = Environment::new(minor).compile(Scope::Claims, text);
        fault.unwrap_err().to_string()
    };
    let text = "[1].map(__result__, true, 1) == [1]";
    let message = refusal(Minor::V1_30, text);
    assert_eq!(message.matches("ERROR: <input>:").count(), 3, "{message}");
    assert!(message.contains("'_==_' applied to '(int, list(int))'"));
    let message = refusal(Minor::V1_31, text);
    assert_eq!(message.matches("ERROR: <input>:").count(), 1, "{message}");
}

#[test]
fn refusals_are_in_the_words_of_the_api_server() {
    let cases = [
        (
            "foo",
            "ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')\n | foo\n | ^",
        ),
        (
            "'a' == 1",
            "ERROR: <input>:1:5: found no matching overload for '_==_' applied to '(string, \
             int)'\n | 'a' == 1\n | ....^",
        ),
        (
            "[claims.sub, 'b']",
            "ERROR: <input>:1:14: expected type 'any' but found 'string'\n | [claims.sub, 'b']\n | \
             .............^",
        ),
        (
            "int('x')",
            "program instantiation failed: type conversion error from 'string' to 'int'",
        ),
        (
            "claims.groups.map(g, g)",
            "ERROR: <input>:1:7: expression of type 'any' cannot be range of a comprehension (must \
             be list, map, or dynamic)\n | claims.groups.map(g, g)\n | ......^",
        ),
    ];
    for minor in MINORS {
        for (text, expected) in cases {
            let refused = Environment::new(minor)
                .compile(Scope::Claims, text)
                .unwrap_err();
            assert_eq!(
                refused,
                CompileFault::Refused {
                    message: expected.to_owned()
                }
            );
        }
    }
}

/// Returns the messages of a refusal, without the places in the text.
fn issues(minor: Minor, text: &str) -> Vec<String> {
    let Err(CompileFault::Refused { message }) =
        Environment::new(minor).compile(Scope::Claims, text)
    else {
        return Vec::new();
    };
    let lines = message
        .lines()
        .filter_map(|line| line.strip_prefix("ERROR: <input>:"));
    lines
        .map(|line| line.splitn(3, ':').nth(2).unwrap().trim().to_owned())
        .collect()
}

#[test]
fn every_issue_of_a_text_is_told() {
    for (text, expected) in [
        (
            "has(1) || as || 9223372036854775808",
            [
                "invalid argument to has() macro",
                "reserved identifier: as",
                "invalid int literal",
            ]
            .as_slice(),
        ),
        (
            "as(has(1), nope) == has(as)",
            &[
                "reserved identifier: as",
                "reserved identifier: as",
                "invalid argument to has() macro",
            ],
        ),
        (
            "[1].all(2, has(3))",
            &[
                "argument must be a simple name",
                "invalid argument to has() macro",
            ],
        ),
        (
            "claims.`a` || has(claims.`b`)",
            &["unsupported syntax: '`'", "unsupported syntax: '`'"],
        ),
        (
            "{9223372036854775808",
            &["Syntax error: mismatched input '<EOF>'"],
        ),
        (
            "[nope, other]",
            &[
                "undeclared reference to 'nope' (in container '')",
                "undeclared reference to 'other' (in container '')",
            ],
        ),
        (
            "timestamp('x') == duration('y')",
            &["found no matching overload for '_==_' applied to '(timestamp, duration)'"],
        ),
        (
            "[timestamp('x')] == [timestamp('y')]",
            &["invalid timestamp argument", "invalid timestamp argument"],
        ),
    ] {
        assert_eq!(issues(Minor::V1_36, text), expected, "{text}");
    }
    let many = vec!["nope"; 103].join(" || ");
    let Err(CompileFault::Refused { message }) =
        Environment::new(Minor::V1_36).compile(Scope::Claims, &many)
    else {
        panic!("{many}")
    };
    assert_eq!(
        (
            message.matches("ERROR: ").count(),
            message.lines().next_back()
        ),
        (100, Some("3 more errors were truncated"))
    );
}

#[test]
fn old_releases_read_texts_in_their_own_way() {
    assert_eq!(
        issues(Minor::V1_32, "claims.`a`"),
        ["Syntax error: token recognition error at: '`'"]
    );
    assert_eq!(
        issues(Minor::V1_33, "claims.`a`"),
        ["unsupported syntax: '`'"]
    );
    // The target of optMap is checked twice, and keeps the type of the first time.
    assert_eq!(
        issues(Minor::V1_31, "optional.of([]).optMap(z, z)").len(),
        1
    );
    assert_eq!(
        issues(Minor::V1_32, "optional.of([]).optMap(z, z)").len(),
        0
    );
    let range = "expression of type 'null' cannot be range of a comprehension (must be list, map, \
        or dynamic)";
    assert_eq!(issues(Minor::V1_32, "null.all(v, w, true)"), [range]);
    let open = Environment::new(Minor::V1_32).compile(Scope::Claims, "null.all(v, w, 1 == w)");
    assert!(
        matches!(open, Err(CompileFault::Undetermined(_))),
        "{open:?}"
    );
    assert_eq!(issues(Minor::V1_33, "null.all(v, w, 1 == w)"), [range]);
    assert_eq!(
        issues(Minor::V1_30, "'%s'.format([{'a': 'x', 'b': claims}])"),
        [""; 0]
    );
    assert_eq!(
        issues(Minor::V1_30, "'%s'.format([string([1, dyn('a')].size())])").len(),
        1
    );
    let message = |minor, text: &str| {
        let evaluated = Environment::new(minor)
            .compile(Scope::Claims, text)
            .map(|expression| expression.evaluate(Input::Claims(&inputs().0)));
        match evaluated {
            Ok(Err(EvaluateFault::Failed { message, .. }))
            | Err(CompileFault::Refused { message }) => message,
            other => format!("{other:?}"),
        }
    };
    assert_eq!(
        message(Minor::V1_31, "has(dyn(timestamp).a)"),
        "no such attribute(s): timestamp"
    );
    assert_eq!(
        message(Minor::V1_32, "has(dyn(timestamp).a)"),
        "program instantiation failed: reference to undefined type: timestamp"
    );
    let range = "1 in [['b']][3].transformList(v, w, v)";
    assert_eq!(
        message(Minor::V1_32, range),
        "unsupported comprehension range type: *types.Err"
    );
    assert_eq!(message(Minor::V1_33, range), "index out of bounds: 3");
    for (text, name) in [
        ("dyn(format.named('uuid').value()) in ['a']", "cel.Format"),
        ("dyn(semver('1.2.3')) in ['a']", "cel.Semver"),
    ] {
        assert_eq!(
            message(Minor::V1_36, text),
            format!("internal error: runtime error: hash of unhashable type {name}")
        );
    }
}

#[test]
fn an_optional_of_all_claims_has_no_value_to_select_from() {
    for text in [
        "optional.of(claims).sub",
        "optional.of(dyn(optional.of(claims))).sub",
    ] {
        assert_eq!(
            outcome(&Environment::new(Minor::V1_36), Scope::Claims, text).as_deref(),
            Some("fails"),
            "{text}"
        );
        assert_ne!(
            outcome(&Environment::new(Minor::V1_37), Scope::Claims, text),
            None,
            "{text}"
        );
    }
    let nothing = "optional.of(dyn(optional.none())).a.hasValue()";
    assert_eq!(
        outcome(&Environment::new(Minor::V1_36), Scope::Claims, nothing).as_deref(),
        Some("bool = bool:false")
    );
}

#[test]
fn selections_are_found_where_the_email_rule_looks() {
    let environment = Environment::new(Minor::V1_36);
    let selects_email = |text: &str| {
        environment
            .compile(Scope::Claims, text)
            .unwrap()
            .selects("claims", "email")
    };
    for text in [
        "claims.email",
        "has(claims.email)",
        "claims.?email",
        "[1].map(x, claims.email)",
        "'a' + string(claims.email)",
    ] {
        assert!(selects_email(text), "{text}");
    }
    for text in [
        "claims['email']",
        "claims[?'email']",
        "claims.sub",
        "claims.obj.email",
        "'claims.email'",
    ] {
        assert!(!selects_email(text), "{text}");
    }
}

#[test]
fn what_an_expression_may_use_is_never_too_little() {
    let environment = Environment::new(Minor::V1_36);
    let may = |text: &str| {
        environment
            .compile(Scope::Claims, text)
            .unwrap()
            .may_use("claims", "deep")
    };
    for text in [
        "claims.sub",
        "has(claims.sub)",
        "claims.?sub.orValue('')",
        "claims['sub']",
        "claims[?'sub'].hasValue()",
        "'deep'",
        "[1].map(x, claims.sub)",
    ] {
        assert!(!may(text), "{text}");
    }
    for text in [
        "claims.deep",
        "claims['deep']",
        "claims.?deep",
        "claims[claims.sub]",
        "claims",
        "dyn(claims).all(c, true)",
        "claims.sub == claims['de' + 'ep']",
        "claims.de__x__ep",
    ] {
        assert!(may(text), "{text}");
    }
}

#[test]
fn costs_are_counted_and_limited() {
    let environment = Environment::new(Minor::V1_36);
    let run = |text: &str| {
        environment
            .compile(Scope::Claims, text)
            .unwrap()
            .evaluate_with_cost(Input::Claims(&inputs().0))
    };
    for (text, cost) in [
        ("claims.sub", 2),
        ("has(claims.sub)", 1),
        ("dyn(claims.groups).exists(g, g == 'dev')", 13),
        ("[3, 1, 2].sort()", 29),
    ] {
        assert_eq!(run(text).1, cost..=cost, "{text}");
    }
    let loops = "lists.range(99).all(a, lists.range(99).all(b, lists.range(99).all(c, true)))";
    assert_eq!(run(loops).0, Err(EvaluateFault::CostLimit));
}
