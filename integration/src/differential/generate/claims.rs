//! Generates claims of tokens: sound ones with values for the expressions, and changed ones.

use crate::differential::case::NOW;
use crate::differential::node::Node;
use crate::random::Random;

/// Claims that pass every check of an issuer and an audience, with random values for the rest.
pub(crate) fn sound(random: &mut Random, issuer: &str, audience: &str) -> Node {
    let mut claims = Node::map([
        ("iss", Node::text(issuer)),
        ("aud", sound_audience(random, audience)),
    ]);
    claims.push(
        "exp",
        Node::raw((NOW + random.pick_copied(&[600, 3600, 1, 0, 86_400])).to_string()),
    );
    claims.push(
        "iat",
        Node::raw((NOW - random.pick_copied(&[0, 60, 3600])).to_string()),
    );
    if random.percent(40) {
        claims.push(
            "nbf",
            Node::raw((NOW - random.pick_copied(&[0, 60, 3600])).to_string()),
        );
    }
    claims.push(
        "sub",
        Node::text(random.pick(&[
            "system:serviceaccount:tenant-a:reconciler",
            "jane",
            "a",
            "abc",
            "tenant-a",
        ])),
    );
    if random.percent(60) {
        claims.push("jti", Node::text(random.pick(&["6f1b", "x", ""])));
    }
    for (name, values) in OTHER_CLAIMS {
        if random.percent(80) {
            claims.push(name, Node::raw(random.pick(values)));
        }
    }
    claims
}

/// The claims that Kubernetes itself puts into a token, and no others.
pub(crate) fn kubernetes(random: &mut Random, issuer: &str, audience: &str) -> Node {
    let mut claims = Node::map([
        ("aud", Node::texts(&[audience])),
        ("exp", Node::raw((NOW + 3600).to_string())),
        ("iat", Node::raw(NOW.to_string())),
        ("iss", Node::text(issuer)),
        ("jti", Node::text("0d5e1f3a-6a40-4f0c-8a37-1f6f2f1f4b11")),
    ]);
    let account = random.pick(&["reconciler", "default"]);
    claims.push(
        "kubernetes.io",
        Node::map([
            ("namespace", Node::text("tenant-a")),
            (
                "serviceaccount",
                Node::map([
                    ("name", Node::text(account)),
                    ("uid", Node::text("5f0c-11")),
                ]),
            ),
        ]),
    );
    claims.push("nbf", Node::raw(NOW.to_string()));
    claims.push(
        "sub",
        Node::text(format!("system:serviceaccount:tenant-a:{account}")),
    );
    claims
}

/// Makes one change that a careless or hostile issuer could make.
pub(crate) fn change(random: &mut Random, claims: &mut Node) {
    let name = random.pick(&[
        "iss",
        "aud",
        "exp",
        "nbf",
        "iat",
        "sub",
        "jti",
        "groups",
        "email",
        "email_verified",
        "nonce",
        "at_hash",
        "azp",
        "_claim_names",
        "_claim_sources",
        "hd",
        "uid",
        "n",
        "kubernetes.io",
        "nested",
    ]);
    match random.below(10) {
        0 => claims.remove(name),
        1 => claims.push(name, Node::raw(value_for(random, name))),
        2 => claims.push(
            &other_case(random, name),
            Node::raw(value_for(random, name)),
        ),
        3 => rename(random, claims, name),
        4 => claims.set(name, Node::raw(random.pick(ODD_VALUES))),
        5 => distributed(random, claims),
        _ => claims.set(name, Node::raw(value_for(random, name))),
    }
}

fn sound_audience(random: &mut Random, audience: &str) -> Node {
    match random.below(4) {
        0 => Node::texts(&["other", audience]),
        1 => Node::texts(&[audience]),
        2 => Node::texts(&[audience, audience]),
        _ => Node::text(audience),
    }
}

fn value_for(random: &mut Random, name: &str) -> String {
    let at = |offset: i64| (NOW + offset).to_string();
    match name {
        "exp" | "nbf" | "iat" => match random.below(16) {
            0 => at(-1),
            1 => at(0),
            2 => at(1),
            3 => at(60),
            4 => at(61),
            5 => at(-61),
            6 => format!("\"{}\"", at(3600)),
            7 => format!("{}.75", at(-1)),
            8 => format!("{}.99", at(0)),
            9 => format!("\"{}.5\"", at(30)),
            10 => at(5_000_000_000),
            _ => random.pick(&TIMES).to_owned(),
        },
        "iss" => random.pick(&ISSUERS).to_owned(),
        "aud" => random.pick(&AUDIENCES).to_owned(),
        "sub" => random
            .pick(&[
                "\"jane\"",
                "\"\"",
                "null",
                "1",
                "[\"a\"]",
                "{}",
                "\"a\\u0000b\"",
                "\" jane \"",
                "true",
                "\"\\ud800\"",
                "\"ünï\"",
            ])
            .to_owned(),
        "jti" => random
            .pick(&["\"j\"", "\"\"", "null", "5", "[\"j\"]", "{}"])
            .to_owned(),
        "groups" => random.pick(&GROUPS).to_owned(),
        "email" => random
            .pick(&["\"a@b.test\"", "\"\"", "null", "3"])
            .to_owned(),
        "email_verified" => random
            .pick(&["true", "false", "null", "\"true\"", "1", "[]"])
            .to_owned(),
        "_claim_names" | "_claim_sources" => random
            .pick(&[
                "{}",
                "null",
                "[]",
                "\"x\"",
                "{\"groups\":\"s\"}",
                "{\"groups\":1}",
                "{\"s\":{\"endpoint\":\"https://x.test\"}}",
                "{\"s\":{}}",
            ])
            .to_owned(),
        _ => random.pick(ODD_VALUES).to_owned(),
    }
}

fn other_case(random: &mut Random, name: &str) -> String {
    match random.below(4) {
        0 => name.to_uppercase(),
        1 => {
            name.chars()
                .next()
                .map(|first| first.to_uppercase().collect::<String>())
                .unwrap_or_default()
                + &name.chars().skip(1).collect::<String>()
        }
        // These letters fold to ASCII ones: U+017F to s, U+212A to k.
        2 => name.replacen('s', "\u{17f}", 1),
        _ => name.replacen('k', "\u{212a}", 1),
    }
}

fn rename(random: &mut Random, claims: &mut Node, name: &str) {
    let other = other_case(random, name);
    if let Node::Map(entries) = claims {
        for (key, _) in entries.iter_mut().filter(|(key, _)| key == name) {
            key.clone_from(&other);
        }
    }
}

/// Distributed claims, OpenID Connect Core 1.0, section 5.6.2.
fn distributed(random: &mut Random, claims: &mut Node) {
    if random.percent(70) {
        claims.remove("groups");
    }
    let named = random.pick(&["groups", "roles", "sub"]);
    let source = random.pick(&["src1", "src2"]);
    claims.set("_claim_names", Node::map([(named, Node::text(source))]));
    if random.percent(80) {
        claims.set(
            "_claim_sources",
            Node::raw(random.pick(&[
                "{\"src1\":{\"endpoint\":\"https://nowhere.test/c\",\"access_token\":\"t\"}}",
                "{\"src1\":{}}",
                "{}",
            ])),
        );
    }
}

/// Claim names that expressions and mappings use, with values as JSON. The type is mostly the one
/// that the name suggests.
const OTHER_CLAIMS: &[(&str, &[&str])] = &[
    (
        "groups",
        &[
            "[\"a\",\"b\"]",
            "[\"tenant-a\"]",
            "[]",
            "\"one\"",
            "[\"b\",\"a\",\"\"]",
        ],
    ),
    ("email", &["\"a@b.test\"", "\"jane@example.org\""]),
    (
        "email_verified",
        &["true", "true", "true", "false", "\"true\""],
    ),
    ("n", &["1", "5", "3.0", "0", "1e3"]),
    (
        "big",
        &[
            "9007199254740993",
            "1234567890123",
            "1e21",
            "12345678901234567890",
        ],
    ),
    (
        "neg",
        &[
            "-7",
            "-1.5",
            "-3",
            "-7",
            "-1.5",
            "-100",
            "-2.25",
            "-1",
            "-7",
            "-5",
            "-0.5",
            "-9007199254740993",
            "-0",
        ],
    ),
    (
        "frac",
        &[
            "1.5",
            "0.1",
            "1e-7",
            "123456.789",
            "100000000000000000000.5",
        ],
    ),
    ("list", &["[\"x\",\"y\"]", "[\"a\"]", "[]"]),
    ("nums", &["[1,2,3]", "[1.5,2]", "[3,1]"]),
    (
        "mixed",
        &[
            "[1,\"a\",true]",
            "[null,\"a\"]",
            "[[\"x\"],{\"k\":1},\"z\"]",
        ],
    ),
    (
        "nested",
        &[
            "{\"a\":\"va\",\"deep\":{\"b\":\"vb\"}}",
            "{\"a\":[\"x\"]}",
            "{\"a\":1,\"deep\":{}}",
            "{\"a\":\"va\"}",
        ],
    ),
    (
        "kubernetes.io",
        &[
            "{\"namespace\":\"tenant-a\",\"serviceaccount\":{\"name\":\"reconciler\",\"uid\":\"u1\"}}",
            "{\"namespace\":\"x\"}",
        ],
    ),
    ("nul", &["null"]),
    ("empty", &["\"\""]),
    ("flag", &["true", "false"]),
    ("ts", &["\"2024-02-29T01:02:03Z\"", "1700000000", "\"bad\""]),
    ("dur", &["\"1h30m\"", "\"90\"", "\"-5ms\""]),
    (
        "ip",
        &[
            "\"10.0.0.1\"",
            "\"::1\"",
            "\"::ffff:1.2.3.4\"",
            "\"fe80::1%eth0\"",
            "\"010.0.0.1\"",
        ],
    ),
    ("cidr", &["\"10.0.0.0/8\"", "\"10.0.0.1/8\"", "\"bad\""]),
    (
        "url",
        &[
            "\"https://h.test:8443/p?x=1\"",
            "\"rel/path\"",
            "\"/abs\"",
            "\"://\"",
        ],
    ),
    ("qty", &["\"1.5Gi\"", "\"200m\"", "\"abc\"", "\"1\""]),
    ("sem", &["\"1.2.3\"", "\"v1.2\"", "\"1.2.3-rc.1\""]),
    ("emptylist", &["[]"]),
    ("emptymap", &["{}"]),
    ("uni", &["\"ünï☃😀\"", "\"\\u00e9\\ud83d\\ude00\""]),
    ("objs", &["[{\"k\":\"v\"}]", "[{\"k\":\"v\"},{\"k\":2}]"]),
    ("dash-ed", &["\"d\""]),
    ("namespace", &["\"ns\""]),
    ("numstr", &["\"42\"", "\"1e3\"", "\" 1\"", "\"0x10\""]),
    (
        "hd",
        &[
            "\"example.org\"",
            "\"other\"",
            "1",
            "null",
            "[\"example.org\"]",
        ],
    ),
    ("uid", &["\"u-1\"", "\"\"", "null", "7"]),
];

const ODD_VALUES: &[&str] = &[
    "null",
    "true",
    "false",
    "0",
    "-1",
    "1.5",
    "1e400",
    "1E2",
    "\"\"",
    "\"x\"",
    "\"5\"",
    "[]",
    "[null]",
    "[[]]",
    "[1,\"a\"]",
    "{}",
    "{\"a\":null}",
    "{\"a\":{\"a\":{\"a\":1}}}",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "[\"a\",\"a\"]",
    "12345678901234567890123",
    "-0",
];

const TIMES: [&str; 24] = [
    "null",
    "\"\"",
    "\"abc\"",
    "true",
    "[]",
    "{}",
    "0",
    "-1",
    "1e10",
    "\"1e10\"",
    "1.9e9",
    "1E+10",
    "9223372036854775807",
    "9223372036854775808",
    "1e19",
    "1e400",
    "\"1e400\"",
    "\" 1\"",
    "\"+1900000000\"",
    "\"0x7fffffff\"",
    "\"1_900_000_000\"",
    "\"inf\"",
    "\"NaN\"",
    "253402300800",
];

const ISSUERS: [&str; 14] = [
    "\"https://hub.test/\"",
    "\"HTTPS://hub.test\"",
    "\"https://hub.test\"",
    "\"https://other.test\"",
    "\"\"",
    "null",
    "1",
    "[\"https://hub.test\"]",
    "\"https:\\/\\/hub.test\"",
    "\"https://hub.tes\\u0074\"",
    "\"accounts.google.com\"",
    "\"https://accounts.google.com\"",
    "{}",
    "\"https://hub.test \"",
];

const AUDIENCES: [&str; 20] = [
    "\"aud-1\"",
    "[\"aud-1\"]",
    "[\"aud-2\"]",
    "[\"x\",\"aud-2\"]",
    "\"x\"",
    "[]",
    "null",
    "\"\"",
    "[\"\"]",
    "[null]",
    "[1]",
    "1",
    "{}",
    "[\"aud-1\",null]",
    "[[\"aud-1\"]]",
    "\"AUD-1\"",
    "[\"aud-1\",\"aud-1\"]",
    "true",
    "[\"x\",\"y\"]",
    "\"aud-1 \"",
];

const GROUPS: [&str; 16] = [
    "[\"a\",\"b\"]",
    "\"a\"",
    "[]",
    "null",
    "\"\"",
    "[\"\"]",
    "[null]",
    "[null,\"a\"]",
    "[1]",
    "1",
    "{}",
    "[\"a\",[\"b\"]]",
    "true",
    "[\"system:masters\"]",
    "[\"a\",\"a\"]",
    "{\"a\":1}",
];
