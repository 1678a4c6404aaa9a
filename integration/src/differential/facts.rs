//! Checks the oracles against facts that were observed on real kube-apiservers, because a wrong
//! oracle must not judge.

mod configuration;
mod expression;
mod next_release;
mod token;

use super::case::{Case, ConfigText, Form, Published};
use super::generate::key_set;
use super::keys::{KeyName, SigningKeys};
use super::node::Node;
use super::token::TokenSpec;
use crate::oracle::{Answer, Oracles};
use crate::runner::TestResult;

pub use next_release::next_release;

/// The expected answer. The texts are parts of the oracle's.
#[derive(Debug, Clone)]
enum Expected {
    /// The file cannot be decoded.
    Load(&'static str),
    /// The configuration has a validation error.
    Refused(&'static str),
    /// The configuration is accepted, but the token is of another issuer.
    Skipped,
    /// The token is refused.
    Rejected(&'static str),
    /// The token is accepted with this username.
    User(&'static str),
    /// The token is accepted with these groups, joined by `|`.
    Groups(&'static str),
    /// The token is accepted with one extra entry, `key=value|value`.
    Extra(&'static str),
}

/// One fact.
struct Fact {
    name: &'static str,
    case: Case,
    /// The expected answers of 1.33, 1.36 and 1.37.
    expected: [Expected; 3],
}

/// Checks every oracle against every fact.
pub async fn hold(oracles: &Oracles) -> TestResult {
    let keys = SigningKeys::generate().map_err(|_| "no signing keys")?;
    let facts = every_fact(&keys);
    let questions: Vec<_> = facts
        .iter()
        .zip(0..)
        .map(|(fact, id)| fact.case.question(id, &keys))
        .collect();
    let answers = oracles.ask(&questions).await?;
    let mut wrong = Vec::new();
    for (position, (oracle, answers)) in oracles.all().iter().zip(&answers).enumerate() {
        for (fact, answer) in facts.iter().zip(answers) {
            let expected = fact
                .expected
                .get(position)
                .ok_or("an oracle more than facts know")?;
            if !expected.is(answer) {
                wrong.push(format!(
                    "{}, {:?}: expected {expected:?}, got {answer:?}",
                    fact.name,
                    oracle.release()
                ));
            }
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n").into())
    }
}

/// Every fact, each with the keys of its issuers.
fn every_fact(keys: &SigningKeys) -> Vec<Fact> {
    [configuration::facts(), token::facts(), expression::facts()]
        .into_iter()
        .flatten()
        .map(|fact| fact.published(keys))
        .collect()
}

impl Fact {
    fn everywhere(name: &'static str, case: Case, expected: Expected) -> Self {
        Self {
            name,
            case,
            expected: [expected.clone(), expected.clone(), expected],
        }
    }

    /// A fact in which 1.33 differs from 1.36 and 1.37.
    fn skewed(name: &'static str, case: Case, before: Expected, since: Expected) -> Self {
        Self {
            name,
            case,
            expected: [before, since.clone(), since],
        }
    }

    /// Publishes the sound key set for a fact that has none of its own.
    fn published(mut self, keys: &SigningKeys) -> Self {
        for published in self
            .case
            .issuers
            .iter_mut()
            .filter(|published| published.key_set == Node::raw(""))
        {
            published.key_set = key_set::sound(keys);
        }
        self
    }
}

impl Expected {
    fn is(&self, answer: &Answer) -> bool {
        let verdict = answer.tokens.first().and_then(|verdicts| verdicts.first());
        let user = verdict.and_then(|verdict| verdict.user.as_ref());
        match self {
            Self::Load(part) => answer
                .load_error
                .as_ref()
                .is_some_and(|text| text.contains(part)),
            Self::Refused(part) => answer
                .validation_errors
                .iter()
                .any(|error| error.text.contains(part)),
            Self::Skipped => verdict.is_some_and(|verdict| verdict.skipped),
            Self::Rejected(part) => verdict
                .and_then(|verdict| verdict.error.as_ref())
                .is_some_and(|text| text.contains(part)),
            Self::User(name) => user.is_some_and(|user| user.name == *name),
            Self::Groups(joined) => user.is_some_and(|user| user.groups.join("|") == *joined),
            Self::Extra(entry) => {
                let (key, joined) = entry.split_once('=').unwrap_or((entry, ""));
                user.and_then(|user| user.extra.get(key))
                    .is_some_and(|values| values.join("|") == joined)
            }
        }
    }
}

/// A sound case whose user is named `hub:jane`.
fn sound() -> Case {
    let tree = Node::map([
        ("apiVersion", Node::text("apiserver.config.k8s.io/v1beta1")),
        ("kind", Node::text("AuthenticationConfiguration")),
        ("jwt", Node::List(vec![entry()])),
    ]);
    Case {
        config: ConfigText {
            tree,
            form: Form::Yaml,
            before: String::new(),
            after: String::new(),
        },
        disallowed_issuers: Vec::new(),
        issuers: vec![Published {
            issuer: "https://hub.test".to_owned(),
            discovery_url: None,
            key_set: Node::raw(""),
        }],
        tokens: vec![jane()],
    }
}

fn entry() -> Node {
    Node::map([
        (
            "issuer",
            Node::map([
                ("url", Node::text("https://hub.test")),
                ("audiences", Node::texts(&["my-client"])),
            ]),
        ),
        (
            "claimMappings",
            Node::map([(
                "username",
                Node::map([("claim", Node::text("sub")), ("prefix", Node::text("hub:"))]),
            )]),
        ),
    ])
}

fn jane() -> TokenSpec {
    let key = KeyName::P256A;
    TokenSpec {
        header: Node::map([("alg", Node::text("ES256")), ("kid", Node::text(key.kid()))]),
        claims: Node::map([
            ("iss", Node::text("https://hub.test")),
            ("aud", Node::text("my-client")),
            ("exp", Node::raw("1790000600")),
            ("iat", Node::raw("1790000000")),
            ("sub", Node::text("jane")),
        ]),
        key,
        algorithm: "ES256".to_owned(),
        damage: Vec::new(),
    }
}

/// A sound case whose configuration has the value at a path such as `jwt.0.issuer.url`. Missing
/// maps on the path are created.
fn with(path: &str, value: Node) -> Case {
    let mut case = sound();
    put(&mut case.config.tree, path, value);
    case
}

fn put(tree: &mut Node, path: &str, value: Node) {
    let (name, rest) = path.split_once('.').unwrap_or((path, ""));
    if let (Node::List(items), Ok(index)) = (&mut *tree, name.parse::<usize>()) {
        if let Some(item) = items.get_mut(index) {
            if rest.is_empty() {
                *item = value
            } else {
                put(item, rest, value)
            }
        }
        return;
    }
    if rest.is_empty() {
        tree.set(name, value);
        return;
    }
    if tree.get_mut(name).is_none() {
        tree.push(name, Node::Map(Vec::new()));
    }
    if let Some(inner) = tree.get_mut(name) {
        put(inner, rest, value);
    }
}

/// A sound case whose token has this claim.
fn claiming(name: &str, value: &str) -> Case {
    let mut case = sound();
    case.claim(name, value);
    case
}

impl Case {
    fn claim(&mut self, name: &str, value: &str) {
        for token in &mut self.tokens {
            token.claims.set(name, Node::raw(value));
        }
    }
}
