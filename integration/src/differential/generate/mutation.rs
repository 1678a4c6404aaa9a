//! Changes a sound configuration.

use super::config::HUB;
use super::several;
use crate::differential::case::{ConfigText, Form};
use crate::differential::keys::SigningKeys;
use crate::differential::node::Node;
use crate::random::Random;

/// Makes one to three changes to the tree or to the way it is written.
pub(crate) fn change(random: &mut Random, config: &mut ConfigText, keys: &SigningKeys) {
    for _ in 0..random.pick_copied(&[1, 1, 1, 2, 3]) {
        match random.below(22) {
            0..=3 => anywhere(random, &mut config.tree),
            4 => top(random, &mut config.tree),
            5 => writing(random, config),
            6..=10 => issuer(random, &mut config.tree, keys),
            11..=13 => mappings(random, &mut config.tree),
            14..=15 => extras(random, &mut config.tree),
            16..=17 => rules(random, &mut config.tree),
            18 => anonymous(random, &mut config.tree),
            19..=20 => {
                if let Some(entry) = first(&mut config.tree) {
                    several::change(random, entry);
                }
            }
            _ => entries(random, &mut config.tree),
        }
    }
}

/// Makes a change that needs no knowledge of the field.
fn anywhere(random: &mut Random, tree: &mut Node) {
    let place = random.below(tree.count());
    let Some(node) = tree.at_mut(place) else {
        return;
    };
    match (random.below(8), node) {
        (0, Node::Map(entries)) => {
            let name = random.pick(&[
                "unknown",
                "expresion",
                "Claim",
                "",
                "apiVersion",
                "kind",
                "0",
            ]);
            entries.push((name.to_owned(), Node::raw(random.pick(&SCALARS))));
        }
        (1, Node::Map(entries)) if !entries.is_empty() => {
            let mut again = entries[random.below(entries.len())].clone();
            if random.percent(50) {
                again.1 = Node::raw(random.pick(&SCALARS));
            }
            entries.push(again);
        }
        (2, Node::Map(entries)) if !entries.is_empty() => {
            let index = random.below(entries.len());
            entries.remove(index);
        }
        (3, Node::Map(entries)) if !entries.is_empty() => {
            let index = random.below(entries.len());
            let (name, _) = &mut entries[index];
            *name = if random.percent(50) {
                name.to_uppercase()
            } else {
                format!("{name}s")
            };
        }
        (4, Node::List(items)) if !items.is_empty() => {
            let again = items[random.below(items.len())].clone();
            items.push(again);
        }
        (5, Node::List(items)) => items.clear(),
        (6, node) => {
            *node = Node::text(random.pick(&["", " ", "x", "a\nb", "ü", "\u{0}", "\u{2028}"]))
        }
        (_, node) => *node = Node::raw(random.pick(&SCALARS)),
    }
}

fn top(random: &mut Random, tree: &mut Node) {
    match random.below(5) {
        0 | 1 => tree.set("apiVersion", Node::raw(random.pick(&VERSIONS))),
        2 => tree.set(
            "kind",
            Node::raw(random.pick(&[
                "\"AuthenticationConfigurations\"",
                "\"authenticationconfiguration\"",
                "\"AuthorizationConfiguration\"",
                "\"EncryptionConfiguration\"",
                "\"\"",
                "null",
                "1",
            ])),
        ),
        3 => tree.remove(random.pick(&["apiVersion", "kind", "jwt"])),
        _ => tree.push(
            "metadata",
            Node::raw(random.pick(&["{}", "{\"name\":\"x\"}", "null"])),
        ),
    }
}

/// Changes the text around the tree, and the format. Some changes only make sense in YAML.
fn writing(random: &mut Random, config: &mut ConfigText) {
    match random.below(4) {
        0 => random.pick(&FILE_PREFIXES).clone_into(&mut config.before),
        1 => random.pick(&FILE_SUFFIXES).clone_into(&mut config.after),
        2 => {
            config.form = Form::Yaml;
            let place = random.below(config.tree.count());
            if let Some(node) = config.tree.at_mut(place) {
                *node = Node::raw(random.pick(&YAML_SCALARS));
            }
        }
        _ => config.form = Form::Json,
    }
}

fn issuer(random: &mut Random, tree: &mut Node, keys: &SigningKeys) {
    let Some(issuer) = first(tree).and_then(|entry| entry.get_mut("issuer")) else {
        return;
    };
    match random.below(9) {
        0 | 1 => issuer.set("url", Node::text(random.pick(&URLS))),
        2 => issuer.set("discoveryURL", Node::text(random.pick(&URLS))),
        3 => issuer.set(
            "discoveryURL",
            Node::text(random.pick(&[
                HUB,
                "https://hub.test/",
                "https://hub.test//",
                "https://broker.test/doc",
                "",
            ])),
        ),
        4 => issuer.set("certificateAuthority", authority(random, keys)),
        5 => issuer.set(
            "audiences",
            Node::raw(random.pick(&[
                "[]",
                "null",
                "[\"\"]",
                "[\"a\",\"a\"]",
                "[\"a\",\"\"]",
                "[\"a\",\"b\",\"a\"]",
                "\"a\"",
                "[1]",
                "[null]",
                "[\"aud-1\",\"aud-2\"]",
            ])),
        ),
        6 => issuer.set(
            "audienceMatchPolicy",
            Node::raw(random.pick(&[
                "\"MatchAny\"",
                "\"MatchAll\"",
                "\"\"",
                "null",
                "\"matchany\"",
                "1",
            ])),
        ),
        7 => issuer.set(
            "egressSelectorType",
            Node::raw(random.pick(&[
                "\"controlplane\"",
                "\"cluster\"",
                "\"\"",
                "null",
                "\"etcd\"",
                "\"Cluster\"",
            ])),
        ),
        _ => issuer.remove(random.pick(&["url", "audiences", "audienceMatchPolicy"])),
    }
}

fn authority(random: &mut Random, keys: &SigningKeys) -> Node {
    let pem = keys.authority_pem();
    Node::text(match random.below(12) {
        0 => format!("{pem}{pem}"),
        1 => format!("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n{pem}"),
        2 => pem.replace(
            "-----BEGIN CERTIFICATE-----\n",
            "-----BEGIN CERTIFICATE-----\nProc-Type: x\n\n",
        ),
        3 => format!("{pem}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        4 => pem.replace("CERTIFICATE", "TRUSTED CERTIFICATE"),
        5 => format!("text before\n{pem}text after"),
        6 => pem.replace('\n', "\r\n"),
        7 => pem.chars().take(pem.len() / 2).collect(),
        8 => random
            .pick(&[
                "x",
                "",
                "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n",
            ])
            .to_owned(),
        9 => pem.trim_end().to_owned(),
        10 => pem.replace("BEGIN CERTIFICATE-----\n", "BEGIN CERTIFICATE-----\n\n"),
        _ => pem.to_owned(),
    })
}

fn mappings(random: &mut Random, tree: &mut Node) {
    let Some(mappings) = first(tree).and_then(|entry| entry.get_mut("claimMappings")) else {
        return;
    };
    let name = random.pick(&["username", "groups", "uid"]);
    let mut mapping = Node::Map(Vec::new());
    if random.percent(60) {
        mapping.push(
            "claim",
            Node::raw(random.pick(&["\"sub\"", "\"sub\"", "\"\"", "null", "1"])),
        );
    }
    if random.percent(50) {
        mapping.push(
            "prefix",
            Node::raw(random.pick(&["\"p:\"", "\"\"", "null", "5", "true"])),
        );
    }
    if random.percent(50) {
        mapping.push("expression", Node::text(random.pick(&EXPRESSIONS)));
    }
    match random.below(8) {
        0 => mappings.remove(name),
        1 => mappings.set(
            name,
            Node::raw(random.pick(&["null", "{}", "[]", "\"sub\"", "1"])),
        ),
        _ => mappings.set(name, mapping),
    }
}

fn extras(random: &mut Random, tree: &mut Node) {
    let Some(mappings) = first(tree).and_then(|entry| entry.get_mut("claimMappings")) else {
        return;
    };
    let mut entries = Vec::new();
    for _ in 0..random.pick_copied(&[1, 1, 2, 3]) {
        let mut extra = Node::Map(Vec::new());
        if random.percent(95) {
            extra.push("key", Node::text(random.pick(&EXTRA_KEYS)));
        }
        if random.percent(95) {
            extra.push("valueExpression", Node::text(random.pick(&EXPRESSIONS)));
        }
        entries.push(extra);
    }
    mappings.set("extra", Node::List(entries));
}

fn rules(random: &mut Random, tree: &mut Node) {
    let Some(entry) = first(tree) else { return };
    let mut made = Vec::new();
    for _ in 0..random.pick_copied(&[1, 2, 2, 3]) {
        let mut rule = Node::Map(Vec::new());
        for (name, chance, values) in RULE_FIELDS {
            if random.percent(*chance) {
                rule.push(name, Node::text(random.pick(values)));
            }
        }
        made.push(rule);
    }
    if random.percent(60) {
        entry.set("claimValidationRules", Node::List(made));
        return;
    }
    let expressions = made.into_iter().map(|_| {
        let text = random.pick(&[
            "user.username == 'x'",
            "user.uid != ''",
            "user.uid",
            "claims.sub == 'a'",
            "",
            "true",
            "user.foo == 1",
        ]);
        Node::map([("expression", Node::text(text))])
    });
    let expressions = expressions.collect();
    entry.set("userValidationRules", Node::List(expressions));
}

fn anonymous(random: &mut Random, tree: &mut Node) {
    tree.set(
        "anonymous",
        Node::raw(random.pick(&[
            "{\"enabled\":true}",
            "{\"enabled\":false}",
            "{}",
            "null",
            "{\"enabled\":true,\"conditions\":[{\"path\":\"/livez\"}]}",
            "{\"enabled\":false,\"conditions\":[{\"path\":\"/livez\"}]}",
            "{\"conditions\":[]}",
            "{\"conditions\":[{}]}",
            "{\"enabled\":\"true\"}",
            "{\"enabled\":true,\"conditions\":[{\"path\":\"\"},{\"path\":\"\"}]}",
            "{\"enabled\":true,\"paths\":[]}",
            "true",
        ])),
    );
}

fn entries(random: &mut Random, tree: &mut Node) {
    let Some(Node::List(entries)) = tree.get_mut("jwt") else {
        return;
    };
    let Some(one) = entries.first().cloned() else {
        return;
    };
    match random.below(6) {
        0 => entries.clear(),
        1 => *entries = vec![one; 65],
        2 => *entries = vec![one; 64],
        3 => {
            let mut other = one;
            if let Some(issuer) = other.get_mut("issuer") {
                issuer.set(
                    "url",
                    Node::text(random.pick(&[
                        "https://hub.test/",
                        "https://b.test",
                        "https://hub.test",
                    ])),
                );
                issuer.set("discoveryURL", Node::text("https://broker.test/doc"));
            }
            entries.push(other);
        }
        4 => entries.push(Node::raw(random.pick(&["null", "{}", "1", "[]"]))),
        _ => entries.push(one),
    }
}

fn first(tree: &mut Node) -> Option<&mut Node> {
    match tree.get_mut("jwt") {
        Some(Node::List(entries)) => entries.first_mut(),
        _ => None,
    }
}

const RULE_FIELDS: &[(&str, usize, &[&str])] = &[
    ("claim", 50, &["hd", "sub", "", "hd"]),
    ("requiredValue", 40, &["example.org", ""]),
    ("expression", 50, &EXPRESSIONS),
    ("message", 30, &["m", ""]),
];

const EXPRESSIONS: [&str; 24] = [
    "claims.sub",
    "'x'",
    "claims.sub == 'a'",
    "true",
    "1",
    "claims.email",
    "claims.?email.orValue('')",
    "has(claims.email) ? claims.email : ''",
    "claims.email_verified == true",
    "claims['email']",
    "claims.email_verified || true",
    "",
    " ",
    "claims.sub +",
    "claims.groups.map(g, g)",
    "user.username",
    "[claims.email]",
    "dyn(claims.groups).map(g, claims.email)",
    "string(claims.email) + (claims.email_verified == true ? '' : 'x')",
    "claims.?nested.email",
    "claims.nested.email",
    "[1, 'a']",
    "null",
    "{'claims': {'email': 'x'}}.claims.email",
];

const EXTRA_KEYS: [&str; 30] = [
    "example.org/team",
    "example.org/team",
    "example.org/x",
    "Example.org/x",
    "example.org/X",
    "example",
    "/x",
    "example.org/",
    "example.org",
    "k8s.io/x",
    "a.k8s.io/x",
    "kubernetes.io/x",
    "authentication.kubernetes.io/credential-id",
    "notk8s.io/x",
    "ak8s.io/x",
    "single/x",
    "exa_mple.org/x",
    "example.org/a/b",
    "example.org/a b",
    "example.org/ü",
    "example.org/%41",
    "-a.org/x",
    "a..b/x",
    "",
    "example.org/x?y",
    "example.org/~!$&'()*+,;=:.-_",
    "1.2.3.4/x",
    "example.org:80/x",
    "http://example.org/x",
    "k8s.io.example.org/x",
];

const URLS: [&str; 48] = [
    "",
    "http://hub.test",
    "https://",
    "https:///x",
    "https://a?",
    "https://a#",
    "HTTPS://hub.test",
    "https://a:99999",
    "https://a:x",
    "https://a:",
    "https://[::1]:443",
    "https://[::1",
    "https://a b",
    "https://a/ b",
    "https://a/%zz",
    "https://a/%20",
    "https://u:p@a",
    "https://u@a",
    "https://a/?q=1",
    "https://a/#f",
    "https://a/x/",
    "https://a//",
    "a",
    "//a",
    "https:a",
    "https:/a",
    ":",
    "://",
    " https://a",
    "https://a ",
    "https://a\n",
    "https://a\u{7f}",
    "https://ü.test",
    "https://a/ü",
    "https://disallowed.test",
    "https://disallowed.test/",
    "https://hub.test",
    "https://hub.test/",
    "ftp://a",
    "https://a%41",
    "https://a%2f",
    "https://[fe80::1%25en0]",
    "https://a\\b",
    "https://<a>",
    "https://a/\"",
    "1https://a",
    "https://a:-1",
    "https://@a",
];

const VERSIONS: [&str; 12] = [
    "\"apiserver.config.k8s.io/v1\"",
    "\"apiserver.config.k8s.io/v1\"",
    "\"apiserver.config.k8s.io/v1alpha1\"",
    "\"apiserver.config.k8s.io/v1beta1\"",
    "\"apiserver.config.k8s.io/v2\"",
    "\"apiserver.k8s.io/v1beta1\"",
    "\"v1\"",
    "\"\"",
    "null",
    "1",
    "\"a/b/c\"",
    "\"Apiserver.config.k8s.io/v1beta1\"",
];

const SCALARS: [&str; 16] = [
    "null",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "1.5",
    "1e3",
    "\"\"",
    "\"x\"",
    "[]",
    "{}",
    "[null]",
    "{\"a\":1}",
    "\"true\"",
    "12345678901234567890",
];

const YAML_SCALARS: [&str; 40] = [
    "~",
    "yes",
    "no",
    "on",
    "off",
    "y",
    "True",
    "TRUE",
    "0x10",
    "010",
    "0o10",
    "1_000",
    "0b1",
    ".5",
    "1.",
    ".inf",
    ".nan",
    "2024-01-01",
    "2024-01-01T00:00:00Z",
    "12:30:45",
    "plain text",
    "'single ''quoted'",
    "!!str 1",
    "!!int \"1\"",
    "!!binary aGk=",
    "&anchor x",
    "*unknown",
    "|\n      block\n      text",
    ">-\n      folded\n      text",
    "a: b",
    "- x",
    "{a: 1, a: 2}",
    "[a, b,]",
    "\"\\x41\\u00e9\\t\"",
    "\"unclosed",
    "@at",
    "`tick`",
    "%percent",
    "null # comment",
    "x # comment",
];

const FILE_PREFIXES: [&str; 14] = [
    "---\n",
    "# comment\n",
    "\u{feff}",
    "%YAML 1.1\n---\n",
    "%YAML 1.2\n---\n",
    "\n\n",
    "\t",
    "---\n---\n",
    "a: 1\n---\n",
    " ",
    "...\n",
    "!!map\n",
    "--- # x\n",
    "{}\n---\n",
];

const FILE_SUFFIXES: [&str; 16] = [
    "\n---\nkind: Other\n",
    "\n---\n{ not yaml",
    "...\n",
    "\n...\ngarbage: [\n",
    "# comment",
    "\n\n",
    "\u{0}",
    "}",
    "x",
    "\nunknown: 1\n",
    "\n\tx: 1\n",
    "\n<<: {a: 1}\n",
    "\nx: &a {b: 1}\ny: *a\n",
    "\n---\n",
    "  \n",
    "\nkind: AuthenticationConfiguration\n",
];
