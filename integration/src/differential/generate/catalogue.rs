//! The expressions whose results `keyferry-cel-kubernetes` replays: every leaf and every form of
//! the grammar, and random ones.

use std::collections::BTreeSet;

use super::expression::{Maker, Scope};
use super::grammar::{CLAIMS_LEAVES, FORMS, LEAVES, TYPES, USER_LEAVES};
use super::hostile;
use crate::random::Random;

/// How often each form is filled with random parts, from leaves on.
const FILLINGS: usize = 5;
/// How many random expressions follow, of each kind.
const RANDOM: u64 = 900;
/// The longest expression that is taken, in bytes: many short ones show more than a few long ones.
const LONGEST: usize = 160;

/// Returns the expressions, always the same ones, in an order that keeps forms together.
pub(crate) fn expressions() -> Vec<(Scope, String)> {
    let mut all = Collected::default();
    for (_, leaves) in LEAVES {
        leaves.iter().for_each(|leaf| all.add(Scope::Claims, leaf));
    }
    for (_, leaves) in CLAIMS_LEAVES.iter().chain(hostile::LEAVES) {
        leaves.iter().for_each(|leaf| all.add(Scope::Claims, leaf));
    }
    for (_, leaves) in USER_LEAVES {
        leaves.iter().for_each(|leaf| all.add(Scope::User, leaf));
    }
    for literal in hostile::LITERALS {
        all.add(Scope::Claims, literal);
    }
    let forms = FORMS.iter().chain(hostile::FORMS);
    for (number, form) in (0..).zip(forms.flat_map(|(_, forms)| forms.iter())) {
        let mut random = Random::of(1, number);
        for filling in 0..FILLINGS {
            let scope = if filling == 1 {
                Scope::User
            } else {
                Scope::Claims
            };
            let mut maker = Maker::new(&mut random, scope);
            all.add(scope, &maker.of_form(form, filling / 2));
        }
    }
    for number in 0..RANDOM {
        let mut random = Random::of(2, number);
        let scope = random.pick_copied(&[Scope::Claims, Scope::Claims, Scope::User]);
        let wanted = TYPES[random.below(TYPES.len())];
        let depth = 1 + random.below(2);
        let text = Maker::new(&mut random, scope).expression(wanted, depth);
        all.add(scope, &text);
        let wanted = TYPES[random.below(TYPES.len())];
        let text = hostile::expression(&mut random, scope, wanted);
        all.add(scope, &text);
    }
    all.list
}

#[derive(Default)]
struct Collected {
    collected: BTreeSet<(bool, String)>,
    list: Vec<(Scope, String)>,
}

impl Collected {
    fn add(&mut self, scope: Scope, text: &str) {
        if text.len() <= LONGEST
            && self
                .collected
                .insert((scope == Scope::User, text.to_owned()))
        {
            self.list.push((scope, text.to_owned()));
        }
    }
}
