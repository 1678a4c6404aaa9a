//! Shrinks a disagreement: tries smaller cases and keeps those that still disagree in the same way.

mod expression;
mod text;
mod tree;

use std::future::Future;

use super::case::{Case, Form};

/// The number of smaller cases that are tried for one disagreement.
const TRIES: usize = 1000;

/// Returns the smallest case found for which `still` is true. It must be true for the given case.
pub(crate) async fn minimise<F>(case: Case, mut still: impl FnMut(Case) -> F) -> Case
where
    F: Future<Output = bool>,
{
    let mut best = case;
    let mut left = TRIES;
    loop {
        let mut offers = candidates(&best);
        let mut place = 0;
        let mut better = false;
        // After a success, continue from the current place: parts that were needed before are
        // usually still needed.
        while let Some(candidate) = offers.get(place) {
            if left == 0 {
                return best;
            }
            left -= 1;
            if still(candidate.clone()).await {
                best = candidate.clone();
                offers = candidates(&best);
                better = true;
            } else {
                place += 1;
            }
        }
        if !better {
            return best;
        }
    }
}

/// Smaller cases, those that remove most first.
fn candidates(case: &Case) -> Vec<Case> {
    let mut all = Vec::new();
    let mut offer = |change: &mut dyn FnMut(&mut Case)| {
        let mut other = case.clone();
        change(&mut other);
        if other != *case {
            all.push(other);
        }
    };
    for keep in 0..case.tokens.len() {
        offer(&mut |other| other.tokens = other.tokens.get(keep).cloned().into_iter().collect());
    }
    offer(&mut |other| other.tokens.clear());
    offer(&mut |other| other.disallowed_issuers.clear());
    offer(&mut |other| other.config.before.clear());
    for smaller in text::smaller(&case.config.before) {
        offer(&mut |other| other.config.before.clone_from(&smaller));
    }
    offer(&mut |other| other.config.after.clear());
    offer(&mut |other| other.issuers.truncate(1));
    for (index, token) in case.tokens.iter().enumerate() {
        for damage in 0..token.damage.len() {
            offer(&mut |other| {
                if let Some(token) = other.tokens.get_mut(index) {
                    token.damage.remove(damage);
                }
            });
        }
    }
    for smaller in tree::smaller(&case.config.tree) {
        offer(&mut |other| other.config.tree = smaller.clone());
    }
    for (index, token) in case.tokens.iter().enumerate() {
        for smaller in tree::smaller(&token.claims) {
            offer(&mut |other| set(other, index, |token| token.claims = smaller.clone()));
        }
        for smaller in tree::smaller(&token.header) {
            offer(&mut |other| set(other, index, |token| token.header = smaller.clone()));
        }
    }
    for (index, published) in case.issuers.iter().enumerate() {
        for smaller in tree::smaller(&published.key_set) {
            offer(&mut |other| {
                if let Some(published) = other.issuers.get_mut(index) {
                    published.key_set = smaller.clone();
                }
            });
        }
    }
    if case.config.form == Form::Yaml {
        offer(&mut |other| other.config.form = Form::Json);
    }
    all
}

fn set(case: &mut Case, index: usize, change: impl Fn(&mut super::token::TokenSpec)) {
    if let Some(token) = case.tokens.get_mut(index) {
        change(token);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::super::generate;
    use super::super::keys::SigningKeys;
    use super::*;

    #[tokio::test]
    async fn what_matters_stays_and_the_rest_goes() {
        let keys = SigningKeys::generate().unwrap();
        // Simulates a judge that is wrong about one function.
        let wrong = |case: &Case| case.config.text().contains("size(");
        let found = (0..)
            .map(|number| generate::case(3, number, &keys))
            .find(|case| wrong(case) && case.config.text().len() > 600)
            .unwrap();
        let small = minimise(found, |case| {
            let is = wrong(&case);
            async move { is }
        })
        .await;
        assert!(small.config.text().len() < 120, "{}", small.config.text());
        assert!(small.tokens.is_empty());
    }
}
