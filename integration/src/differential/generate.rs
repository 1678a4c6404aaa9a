//! Generates the case of a seed and a number.

pub(crate) mod catalogue;
mod claims;
mod config;
mod expression;
mod grammar;
mod hostile;
pub(crate) mod key_set;
mod mutation;
mod optional;
mod several;
mod token;
mod yaml;

pub(crate) use expression::Scope;

use super::case::{Case, ConfigText, Form, Published};
use super::keys::SigningKeys;
use super::node::Node;
use crate::random::Random;
use config::{AUDIENCE, HUB, OTHER_ISSUER, Wealth};
use token::Aim;

/// A kind of cases, whose results are counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    Configurations,
    Expressions,
    HostileExpressions,
    Tokens,
    KeySets,
    Texts,
}

impl Family {
    /// Returns the family of the case with that number.
    pub(crate) fn of(seed: u64, number: u64) -> Self {
        Self::drawn(&mut Random::of(seed, number))
    }

    fn drawn(random: &mut Random) -> Self {
        match random.below(110) {
            0..25 => Self::Configurations,
            25..50 => Self::Expressions,
            50..75 => Self::HostileExpressions,
            75..90 => Self::Tokens,
            90..100 => Self::KeySets,
            _ => Self::Texts,
        }
    }
}

/// Generates a case. The same seed and number give the same case, except for the keys.
pub(crate) fn case(seed: u64, number: u64, keys: &SigningKeys) -> Case {
    let mut random = Random::of(seed, number);
    match Family::drawn(&mut random) {
        Family::Configurations => configuration(&mut random, keys),
        Family::Expressions => expressions(&mut random, keys),
        Family::HostileExpressions => hostile_expressions(&mut random, keys),
        Family::Tokens => tokens(&mut random, keys),
        Family::KeySets => key_sets(&mut random, keys),
        Family::Texts => texts(&mut random, keys),
    }
}

/// As [`case`], but only configurations, written as YAML of every kind or as nearly valid YAML.
pub(crate) fn yaml_case(seed: u64, number: u64, keys: &SigningKeys) -> Case {
    texts(&mut Random::of(seed, number), keys)
}

fn texts(random: &mut Random, keys: &SigningKeys) -> Case {
    let mut case = plain(random, keys, Wealth::Claims);
    if random.percent(20) {
        mutation::change(random, &mut case.config, keys);
    }
    let text = yaml::text(random, &case.config.tree);
    case.config = ConfigText {
        tree: Node::raw(""),
        form: Form::Json,
        before: text,
        after: String::new(),
    };
    case.tokens = vec![token::sound(
        random,
        Aim {
            issuer: HUB,
            audience: AUDIENCE,
        },
    )];
    case
}

fn configuration(random: &mut Random, keys: &SigningKeys) -> Case {
    let mut case = plain(random, keys, Wealth::Claims);
    mutation::change(random, &mut case.config, keys);
    case.disallowed_issuers = match random.below(4) {
        0 => vec!["https://disallowed.test".to_owned(), "https://a".to_owned()],
        1 => vec![HUB.to_owned()],
        _ => Vec::new(),
    };
    let aim = Aim {
        issuer: HUB,
        audience: AUDIENCE,
    };
    case.tokens = vec![token::sound(random, aim)];
    case
}

fn expressions(random: &mut Random, keys: &SigningKeys) -> Case {
    let mut case = plain(random, keys, Wealth::Expressions);
    let aim = Aim {
        issuer: HUB,
        audience: AUDIENCE,
    };
    case.tokens = (0..3).map(|_| token::sound(random, aim)).collect();
    if random.percent(20) {
        case.tokens.push(token::changed(random, aim));
    }
    case
}

fn hostile_expressions(random: &mut Random, keys: &SigningKeys) -> Case {
    let mut case = plain(random, keys, Wealth::Hostile);
    let aim = Aim {
        issuer: HUB,
        audience: AUDIENCE,
    };
    for _ in 0..3 {
        let mut token = token::sound(random, aim);
        hostile::claims(random, &mut token.claims);
        case.tokens.push(token);
    }
    case
}

fn tokens(random: &mut Random, keys: &SigningKeys) -> Case {
    let mut case = plain(random, keys, Wealth::Claims);
    for _ in 0..5 {
        let aim = Aim {
            issuer: random.pick(&[HUB, HUB, HUB, OTHER_ISSUER]),
            audience: random.pick(&[AUDIENCE, AUDIENCE, AUDIENCE, "aud-2"]),
        };
        case.tokens.push(token::changed(random, aim));
    }
    case
}

fn key_sets(random: &mut Random, keys: &SigningKeys) -> Case {
    let mut case = plain(random, keys, Wealth::Claims);
    for published in &mut case.issuers {
        published.key_set = key_set::odd(random, keys);
    }
    case.tokens = (0..4)
        .map(|_| {
            token::of_any_key(
                random,
                Aim {
                    issuer: HUB,
                    audience: AUDIENCE,
                },
            )
        })
        .collect();
    case
}

/// A sound configuration whose issuers publish the right documents, without tokens.
fn plain(random: &mut Random, keys: &SigningKeys, wealth: Wealth) -> Case {
    let mut config = ConfigText {
        tree: config::sound(random, wealth),
        form: Form::Yaml,
        before: String::new(),
        after: String::new(),
    };
    if random.percent(50) {
        config.form = Form::Json;
    }
    let sound = |issuer: &str| Published {
        issuer: issuer.to_owned(),
        discovery_url: None,
        key_set: key_set::sound(keys),
    };
    let mut case = Case {
        config,
        disallowed_issuers: Vec::new(),
        issuers: vec![sound(HUB), sound(OTHER_ISSUER)],
        tokens: Vec::new(),
    };
    if random.percent(8) {
        elsewhere(&mut case, random);
    }
    case
}

/// Moves the first issuer's discovery document to another URL.
fn elsewhere(case: &mut Case, random: &mut Random) {
    let url = random.pick(&[
        "https://broker.test/.well-known/openid-configuration",
        "https://broker.test/doc",
        "https://hub.test/doc",
    ]);
    if let (Some(Node::List(entries)), Some(published)) =
        (case.config.tree.get_mut("jwt"), case.issuers.first_mut())
        && let Some(issuer) = entries
            .first_mut()
            .and_then(|entry| entry.get_mut("issuer"))
    {
        issuer.set("discoveryURL", Node::text(url));
        published.discovery_url = Some(url.to_owned());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn a_number_names_a_case() {
        let keys = SigningKeys::generate().unwrap();
        for number in 0..200 {
            assert_eq!(case(7, number, &keys), case(7, number, &keys));
            assert_eq!(yaml_case(7, number, &keys), yaml_case(7, number, &keys));
        }
        assert_ne!(case(7, 1, &keys), case(7, 2, &keys));
        assert_ne!(case(7, 1, &keys), case(8, 1, &keys));
    }
}
