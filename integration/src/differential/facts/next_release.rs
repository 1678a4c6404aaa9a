//! What the next release answers otherwise than the newest that the evaluator knows: exactly the
//! differences that `docs/development/conformance.md` lists, and no other.

use std::collections::BTreeMap;

use super::Expected::{Rejected, User};
use super::{Expected, Fact, claiming, every_fact, sound};
use crate::differential::generate::key_set;
use crate::differential::keys::SigningKeys;
use crate::differential::node::Node;
use crate::differential::shipped::shipped;
use crate::oracle::Oracles;
use crate::runner::TestResult;

/// The facts in which 1.38 differs from 1.37, by name, and what 1.38 answers.
const DIFFERENT: &[(&str, Expected)] = &[
    ("not_before", User("hub:jane")),
    (
        "unsigned",
        Rejected(
            "oidc: malformed jwt: unexpected signature algorithm \"none\"; expected [\"ES256\"",
        ),
    ),
    (
        "a_public_key_as_secret",
        Rejected("oidc: malformed jwt: unexpected signature algorithm \"HS256\"; expected ["),
    ),
    (
        "one_unknown_kty_spoils_all",
        Rejected("failed to verify signature: failed to verify id token signature"),
    ),
];

/// What the facts of earlier releases do not ask.
fn further(keys: &SigningKeys) -> Vec<Fact> {
    let mut beside = sound();
    for published in &mut beside.issuers {
        published.key_set = key_set::sound(keys);
        if let Node::Map(members) = &mut published.key_set {
            for (_, member) in members {
                if let Node::List(keys) = member {
                    keys.push(Node::raw("{\"kty\":\"AKP\"}"));
                }
            }
        }
    }
    vec![
        Fact::everywhere("an_unknown_kty_beside_others", beside, User("hub:jane")),
        Fact::everywhere(
            "five_minutes_before_nbf",
            claiming("nbf", "1790000300"),
            User("hub:jane"),
        ),
        Fact::everywhere(
            "more_than_five_minutes_before_nbf",
            claiming("nbf", "1790000301"),
            Rejected("before the nbf (not before) time: "),
        ),
    ]
}

/// Asks the oracles, of the next release, about every fact and every vector of the shipped files.
///
/// # Errors
/// A difference that is not listed, or a listed one that is not there.
pub async fn next_release(oracles: &Oracles) -> TestResult {
    let keys = SigningKeys::generate().map_err(|_| "no signing keys")?;
    let mut facts = every_fact(&keys);
    facts.extend(further(&keys).into_iter().map(|fact| fact.published(&keys)));
    let questions: Vec<_> = facts
        .iter()
        .zip(0..)
        .map(|(fact, id)| fact.case.question(id, &keys))
        .collect();
    let answers = oracles.ask(&questions).await?;
    let mut listed: BTreeMap<&str, &Expected> =
        DIFFERENT.iter().map(|(name, now)| (*name, now)).collect();
    let mut wrong = Vec::new();
    for (fact, answer) in facts.iter().zip(answers.iter().flatten()) {
        let [_, _, newest] = &fact.expected;
        match listed.remove(fact.name) {
            None if !newest.is(answer) => wrong.push(format!(
                "{}: a difference that is not listed: 1.37 answers {newest:?}, 1.38 {answer:?}",
                fact.name
            )),
            Some(_) if newest.is(answer) => wrong.push(format!(
                "{}: listed as different, but 1.38 answers as 1.37",
                fact.name
            )),
            Some(now) if !now.is(answer) => {
                wrong.push(format!("{}: expected {now:?}, got {answer:?}", fact.name));
            }
            _ => {}
        }
    }
    wrong.extend(listed.keys().map(|name| format!("{name} is no fact")));
    if !wrong.is_empty() {
        return Err(wrong.join("\n").into());
    }
    eprintln!(
        "{} facts, of which {} differ in 1.38",
        facts.len(),
        DIFFERENT.len()
    );
    shipped(oracles).await
}
