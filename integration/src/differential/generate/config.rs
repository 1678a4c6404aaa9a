//! Generates AuthenticationConfigurations: sound ones with every field, and changes that people and
//! generators make.

use super::expression::{Maker, Scope};
use super::hostile;
use crate::differential::node::Node;
use crate::random::Random;

/// How much a configuration contains beyond the required fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wealth {
    /// Simple mappings by claims.
    Claims,
    /// Expressions, but few at a time, because a refused one hides the others.
    Expressions,
    /// Expressions that are each meant to find a difference.
    Hostile,
}

pub(crate) const HUB: &str = "https://hub.test";
pub(crate) const OTHER_ISSUER: &str = "https://other.test/path";
pub(crate) const AUDIENCE: &str = "aud-1";

/// A configuration that is meant to be accepted, with one or two entries.
pub(crate) fn sound(random: &mut Random, wealth: Wealth) -> Node {
    let mut entries = vec![entry(random, HUB, wealth)];
    if random.percent(10) {
        entries.push(entry(random, OTHER_ISSUER, wealth));
    }
    let version = random.pick(&["v1beta1", "v1beta1", "v1alpha1"]);
    Node::map([
        (
            "apiVersion",
            Node::text(format!("apiserver.config.k8s.io/{version}")),
        ),
        ("kind", Node::text("AuthenticationConfiguration")),
        ("jwt", Node::List(entries)),
    ])
}

fn entry(random: &mut Random, issuer: &str, wealth: Wealth) -> Node {
    let mut entry = Node::map([("issuer", issuer_of(random, issuer))]);
    let rules = match wealth {
        Wealth::Claims => required_claims(random),
        Wealth::Expressions | Wealth::Hostile => rules(random, wealth),
    };
    if !rules.is_empty() {
        entry.push("claimValidationRules", Node::List(rules));
    }
    let mappings = match wealth {
        Wealth::Claims => claim_mappings(random),
        Wealth::Expressions | Wealth::Hostile => expression_mappings(random, wealth),
    };
    entry.push("claimMappings", mappings);
    let user_rules = user_rules(random, wealth);
    if !user_rules.is_empty() {
        entry.push("userValidationRules", Node::List(user_rules));
    }
    entry
}

fn issuer_of(random: &mut Random, url: &str) -> Node {
    let mut issuer = Node::map([("url", Node::text(url))]);
    if random.percent(30) {
        issuer.push("audiences", Node::texts(&[AUDIENCE, "aud-2"]));
        issuer.push("audienceMatchPolicy", Node::text("MatchAny"));
    } else {
        issuer.push("audiences", Node::texts(&[AUDIENCE]));
    }
    issuer
}

fn required_claims(random: &mut Random) -> Vec<Node> {
    let mut rules = Vec::new();
    for name in ["hd", "sub", "empty", "n"] {
        if random.percent(8) {
            let mut rule = Node::map([("claim", Node::text(name))]);
            if random.percent(85) {
                rule.push(
                    "requiredValue",
                    Node::text(random.pick(&["example.org", "jane", "", "1"])),
                );
            }
            rules.push(rule);
        }
    }
    rules
}

fn claim_mappings(random: &mut Random) -> Node {
    let prefix = random.pick(&["hub:", "", "-", "system:", "ü:"]);
    let claim = random.pick(&[
        "sub",
        "sub",
        "sub",
        "email",
        "n",
        "kubernetes.io",
        "uid",
        "SUB",
    ]);
    let mut mappings = Node::map([(
        "username",
        Node::map([("claim", Node::text(claim)), ("prefix", Node::text(prefix))]),
    )]);
    if random.percent(60) {
        let claim = random.pick(&[
            "groups", "groups", "groups", "list", "mixed", "sub", "nested",
        ]);
        mappings.push(
            "groups",
            Node::map([
                ("claim", Node::text(claim)),
                ("prefix", Node::text(random.pick(&["hub:", ""]))),
            ]),
        );
    }
    if random.percent(40) {
        mappings.push(
            "uid",
            Node::map([(
                "claim",
                Node::text(random.pick(&["uid", "sub", "jti", "n"])),
            )]),
        );
    }
    if random.percent(30) {
        mappings.push(
            "extra",
            Node::List(vec![extra(
                random.pick(&["claims.sub", "claims.groups", "claims.jti", "'x'"]),
                "example.org/team",
            )]),
        );
    }
    mappings
}

fn expression_mappings(random: &mut Random, wealth: Wealth) -> Node {
    let mut mappings = Node::map([(
        "username",
        Node::map([("claim", Node::text("sub")), ("prefix", Node::text("hub:"))]),
    )]);
    if random.percent(35) {
        let text = expression(random, wealth, Scope::Claims, &["s", "s", "s", "a", "os"]);
        mappings.set("username", Node::map([("expression", Node::text(text))]));
    }
    if random.percent(35) {
        let text = expression(
            random,
            wealth,
            Scope::Claims,
            &["ls", "ls", "s", "a", "dyn", "ldyn"],
        );
        mappings.push("groups", Node::map([("expression", Node::text(text))]));
    } else if random.percent(50) {
        mappings.push(
            "groups",
            Node::map([("claim", Node::text("groups")), ("prefix", Node::text(""))]),
        );
    }
    if random.percent(20) {
        let text = expression(random, wealth, Scope::Claims, &["s", "s", "a"]);
        mappings.push("uid", Node::map([("expression", Node::text(text))]));
    }
    if random.percent(40) {
        let mut entries = Vec::new();
        for key in ["example.org/team", "example.org/x"]
            .iter()
            .take(1 + random.below(2))
        {
            // Extra values accept any type, so the result of every type is visible here.
            let wanted = [
                "s", "ls", "a", "dyn", "i", "d", "b", "D", "T", "mss", "ldyn", "os", "ols", "n",
                "y", "q", "ip",
            ];
            entries.push(extra(
                &expression(random, wealth, Scope::Claims, &wanted),
                key,
            ));
        }
        mappings.push("extra", Node::List(entries));
    }
    mappings
}

fn rules(random: &mut Random, wealth: Wealth) -> Vec<Node> {
    let mut rules = Vec::new();
    for _ in 0..random.pick_copied(&[0, 1, 1, 2]) {
        let mut rule = Node::map([(
            "expression",
            Node::text(expression(random, wealth, Scope::Claims, &["b"])),
        )]);
        if random.percent(30) {
            rule.push(
                "message",
                Node::text(random.pick(&["no", "claims do not fit", ""])),
            );
        }
        rules.push(rule);
    }
    rules
}

fn user_rules(random: &mut Random, wealth: Wealth) -> Vec<Node> {
    let chance = if wealth == Wealth::Claims { 10 } else { 35 };
    if !random.percent(chance) {
        return Vec::new();
    }
    let text = if wealth == Wealth::Claims {
        random
            .pick(&[
                "!user.username.startsWith('system:')",
                "user.groups.all(g, !g.startsWith('system:'))",
                "user.uid != ''",
            ])
            .to_owned()
    } else {
        expression(random, wealth, Scope::User, &["b"])
    };
    let mut rule = Node::map([("expression", Node::text(text))]);
    if random.percent(30) {
        rule.push("message", Node::text("not this user"));
    }
    vec![rule]
}

fn extra(expression: &str, key: &str) -> Node {
    Node::map([
        ("key", Node::text(key)),
        ("valueExpression", Node::text(expression)),
    ])
}

/// Mostly a generated expression, sometimes a line as people write it.
fn expression(random: &mut Random, wealth: Wealth, scope: Scope, wanted: &[&str]) -> String {
    if wealth == Wealth::Hostile {
        let wanted = random.pick(wanted);
        return hostile::expression(random, scope, wanted);
    }
    if random.percent(8) {
        let known: &[&str] = if scope == Scope::Claims {
            &HAND_WRITTEN
        } else {
            &HAND_WRITTEN_USER
        };
        return random.pick(known).to_owned();
    }
    let depth = random.pick_copied(&[1, 2, 2, 3]);
    let wanted = random.pick(wanted);
    Maker::new(random, scope).expression(wanted, depth)
}

const HAND_WRITTEN: [&str; 44] = [
    "claims.exp - claims.iat <= 3600",
    "claims.exp - claims.nbf <= 86400",
    "claims.sub in ['a', 'jane']",
    "claims.aud == ['aud-1']",
    "claims.aud.size() == 1",
    "claims.aud[0] == 'aud-1'",
    "claims.email_verified",
    "claims.email_verified == true",
    "claims.email.endsWith('@b.test') && claims.email_verified == true",
    "claims.?email_verified.orValue(true) == true",
    "has(claims.email) ? claims.email : claims.sub",
    "claims['email']",
    "'hub:' + claims.sub",
    "claims.sub",
    "claims.groups",
    "dyn(claims.groups).map(g, 'hub:' + g)",
    "claims.groups.map(g, 'hub:' + g)",
    "claims[?'kubernetes.io'].namespace.orValue('')",
    "claims['kubernetes.io'].serviceaccount.name",
    "claims.kubernetes__dot__io.namespace",
    "claims.n + 1 == 2",
    "claims.n + 1.0 == 2.0",
    "int(claims.n) + 1 == 2",
    "string(claims.big)",
    "timestamp(claims.exp) > timestamp(0)",
    "timestamp(int(claims.exp)) > timestamp(0)",
    "type(claims) == map",
    "size(claims) > 0",
    "'sub' in claims",
    "claims.all(k, k == k)",
    "claims.exists(k, k == 'sub')",
    "claims.sub.split(':')",
    "claims.sub.matches('^system:serviceaccount:tenant-a:')",
    "[claims.sub, 'b']",
    "[string(claims.sub), 'b']",
    "'%s'.format([claims.sub])",
    "claims.sub + 1",
    "true",
    "false",
    "1 + ",
    "unknown.x",
    "claims.sub ==",
    "claims.n == 1 || claims.n == 5",
    "claims.groups + ['z']",
];

const HAND_WRITTEN_USER: [&str; 14] = [
    "!user.username.startsWith('system:')",
    "user.groups.all(g, !g.startsWith('system:'))",
    "user.uid != ''",
    "user.extra['example.org/team'] == ['a', 'b']",
    "'example.org/team' in user.extra",
    "user.name == 'x'",
    "user.username",
    "claims.sub == 'x'",
    "user.groups.size() < 3",
    "user.extra.all(k, k.startsWith('example.org/'))",
    "has(user.extra)",
    "user.?extra[?'example.org/team'].hasValue()",
    "user.username.contains('hub:') && !user.username.contains('system:')",
    "user == user",
];
