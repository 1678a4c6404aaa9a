//! Generates random expressions of a wanted type, mostly well typed.

use super::grammar::{CLAIMS_LEAVES, FORMS, LEAVES, TYPES, USER_LEAVES};
use super::hostile;
use crate::random::Random;

/// The variable that an expression sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Claims,
    User,
}

/// Generates one expression.
pub(crate) struct Maker<'a> {
    random: &'a mut Random,
    scope: Scope,
    /// The loop variables and their types, innermost last.
    variables: Vec<(String, String)>,
    made: usize,
    /// The percentage of parts that have another type than the wanted one.
    slips: usize,
    /// The percentage of parts that come from [`hostile`].
    hostile: usize,
}

/// The length above which an expression is cut short.
const MAX_LENGTH: usize = 400;

impl<'a> Maker<'a> {
    pub(crate) fn new(random: &'a mut Random, scope: Scope) -> Self {
        let slips = random.pick_copied(&[0, 0, 1, 4]);
        Self {
            random,
            scope,
            variables: Vec::new(),
            made: 0,
            slips,
            hostile: 0,
        }
    }

    /// A maker whose expressions are meant to find differences.
    pub(crate) fn hostile(random: &'a mut Random, scope: Scope) -> Self {
        Self {
            hostile: 55,
            ..Self::new(random, scope)
        }
    }

    /// An expression of this form, whose parts are nested at most `depth` levels.
    pub(crate) fn of_form(&mut self, form: &str, depth: usize) -> String {
        self.filled(form, depth)
    }

    /// An expression of the type, nested at most `depth` levels.
    pub(crate) fn expression(&mut self, wanted: &str, depth: usize) -> String {
        let wanted = if self.random.percent(self.slips) {
            self.random.pick(TYPES)
        } else {
            wanted
        };
        if depth == 0 || self.random.percent(15) {
            return self.leaf(wanted);
        }
        if self.random.percent(self.hostile)
            && let Some(form) = hostile::form(self.random, wanted)
        {
            return self.filled(form, depth - 1);
        }
        match find(FORMS, wanted) {
            Some(forms) => {
                let form = self.random.pick(forms);
                self.filled(form, depth - 1)
            }
            None => self.leaf(wanted),
        }
    }

    fn leaf(&mut self, wanted: &str) -> String {
        let bound: Vec<String> = self
            .variables
            .iter()
            .filter(|(_, kind)| kind == wanted || kind == "dyn")
            .map(|(name, _)| name.clone())
            .collect();
        if !bound.is_empty() && self.random.percent(60) {
            return bound[self.random.below(bound.len())].clone();
        }
        if self.random.percent(self.hostile)
            && let Some(leaf) = hostile::leaf(self.random, self.scope, wanted)
        {
            return leaf.to_owned();
        }
        let scoped = match self.scope {
            Scope::Claims => find(CLAIMS_LEAVES, wanted),
            Scope::User => find(USER_LEAVES, wanted),
        };
        match (scoped, find(LEAVES, wanted)) {
            (Some(scoped), Some(_)) if self.random.percent(55) => {
                self.random.pick(scoped).to_owned()
            }
            (Some(scoped), None) => self.random.pick(scoped).to_owned(),
            (_, Some(plain)) => self.random.pick(plain).to_owned(),
            // A scope without leaves of this type, such as any in the user's scope.
            (None, None) => self.filled("dyn({s})", 0),
        }
    }

    fn filled(&mut self, form: &str, depth: usize) -> String {
        let (first, second) = (format!("v{}", self.made), format!("w{}", self.made));
        self.made += 1;
        let mut out = String::new();
        let mut rest = form;
        while let Some((start, length)) = hole(rest) {
            out.push_str(&rest[..start]);
            let inside = &rest[start + 1..start + length - 1];
            let (wanted, bindings) = inside.split_once('|').unwrap_or((inside, ""));
            let before = self.variables.len();
            for binding in bindings.split(',').filter(|binding| !binding.is_empty()) {
                let (name, kind) = binding.split_once(':').unwrap_or((binding, "dyn"));
                self.variables.push((
                    if name == "v" {
                        first.clone()
                    } else {
                        second.clone()
                    },
                    kind.to_owned(),
                ));
            }
            let depth = if out.len() > MAX_LENGTH { 0 } else { depth };
            out.push_str(&self.expression(wanted, depth));
            self.variables.truncate(before);
            rest = &rest[start + length..];
        }
        out.push_str(rest);
        out.replace("%v", &first).replace("%w", &second)
    }
}

/// The position and length of the next `{type}` or `{type|bindings}`. Any other brace belongs to
/// CEL.
fn hole(text: &str) -> Option<(usize, usize)> {
    text.match_indices('{').find_map(|(start, _)| {
        let inside = text[start + 1..].split(['}', '{']).next()?;
        let kind = inside.split('|').next()?;
        let closed = text[start + 1 + inside.len()..].starts_with('}');
        (closed && TYPES.contains(&kind)).then_some((start, inside.len() + 2))
    })
}

fn find<'t>(table: &'t [(&str, &'t [&'t str])], wanted: &str) -> Option<&'t [&'t str]> {
    table
        .iter()
        .find(|(kind, _)| *kind == wanted)
        .map(|(_, entries)| *entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hole_is_filled() {
        for case in 0..2000 {
            let mut random = Random::of(1, case);
            let wanted = TYPES[random.below(TYPES.len())];
            let scope = random.pick_copied(&[Scope::Claims, Scope::User]);
            let text = Maker::new(&mut random, scope).expression(wanted, 3);
            assert_eq!(hole(&text), None, "{text}");
            assert!(
                !text.contains('|') || text.contains("||") || text.contains("'a|b'"),
                "{text}"
            );
        }
    }

    #[test]
    fn every_hole_of_a_hostile_form_is_filled() {
        for case in 0..2000 {
            let mut random = Random::of(2, case);
            let wanted = TYPES[random.below(TYPES.len())];
            let scope = random.pick_copied(&[Scope::Claims, Scope::User]);
            let text = Maker::hostile(&mut random, scope).expression(wanted, 3);
            assert_eq!(hole(&text), None, "{text}");
            assert!(!text.contains("%v") && !text.contains("%w"), "{text}");
        }
    }

    #[test]
    fn a_map_of_cel_is_no_hole() {
        assert_eq!(hole("{'a': {s}}"), Some((6, 3)));
        assert_eq!(hole("{{s}: {i}}"), Some((1, 3)));
        assert_eq!(hole("x{2,3}"), None);
        assert_eq!(hole("{ls}.all(%v, {b|v:s})"), Some((0, 4)));
    }
}
