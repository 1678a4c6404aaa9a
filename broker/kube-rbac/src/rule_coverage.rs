//! Whether the rules that a user has cover the rules that the user wants to grant.

use crate::rule::{PolicyRule, WILDCARD, url_covers};

/// A rule that breaks into more parts than this is not judged. Kubernetes' own roles have at most
/// some thousands.
const MAX_PARTS: usize = 200_000;
/// The most missing parts that an answer lists.
const MAX_MISSING: usize = 1000;

/// Whether rules cover others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Each part is covered.
    Covered,
    /// These parts are not covered, one verb on one resource each; at most 1,000 are listed.
    Missing(Vec<PolicyRule>),
    /// The rules break into too many parts to compare.
    Undetermined,
}

/// One verb on one resource or path, which one rule of the owner must cover as a whole.
enum Part<'a> {
    Resource {
        verb: &'a str,
        group: &'a str,
        resource: &'a str,
        name: Option<&'a str>,
    },
    Path {
        verb: &'a str,
        url: &'a str,
    },
}

/// Decides whether the rules of an owner cover other rules, as the check against escalation does.
///
/// Each wanted rule is broken into parts of one verb, group, resource and name, and one rule of the
/// owner must cover a part: two rules that cover it together do not.
pub fn rules_cover<'a>(
    owned: impl IntoIterator<Item = &'a PolicyRule>,
    wanted: &[PolicyRule],
) -> Coverage {
    let parts = wanted
        .iter()
        .map(count_parts)
        .try_fold(0_usize, |sum, count| sum.checked_add(count?));
    if parts.is_none_or(|parts| parts > MAX_PARTS) {
        return Coverage::Undetermined;
    }
    let owned: Vec<&PolicyRule> = owned.into_iter().collect();
    let missing: Vec<PolicyRule> = wanted
        .iter()
        .flat_map(parts_of)
        .filter(|part| !owned.iter().any(|rule| covers(rule, part)))
        .take(MAX_MISSING)
        .map(|part| part.to_rule())
        .collect();
    match missing.is_empty() {
        true => Coverage::Covered,
        false => Coverage::Missing(missing),
    }
}

/// The number of parts; `None` if it is beyond all bounds.
fn count_parts(rule: &PolicyRule) -> Option<usize> {
    let resources = rule
        .api_groups
        .len()
        .checked_mul(rule.resources.len())?
        .checked_mul(rule.resource_names.len().max(1))?;
    let objects = resources.checked_add(rule.non_resource_urls.len())?;
    objects.checked_mul(rule.verbs.len())
}

fn parts_of(rule: &PolicyRule) -> impl Iterator<Item = Part<'_>> {
    let names = match rule.resource_names.as_slice() {
        [] => vec![None],
        names => names.iter().map(|name| Some(name.as_str())).collect(),
    };
    let mut parts = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                parts.extend(names.iter().map(|&name| Part::Resource {
                    verb,
                    group,
                    resource,
                    name,
                }));
            }
        }
    }
    for url in &rule.non_resource_urls {
        parts.extend(rule.verbs.iter().map(|verb| Part::Path { verb, url }));
    }
    parts.into_iter()
}

fn covers(rule: &PolicyRule, part: &Part<'_>) -> bool {
    let has = |list: &[String], value: &str| list.iter().any(|own| own == value);
    let has_or_all = |list: &[String], value: &str| has(list, value) || has(list, WILDCARD);
    match part {
        Part::Resource {
            verb,
            group,
            resource,
            name,
        } => {
            has_or_all(&rule.verbs, verb)
                && has_or_all(&rule.api_groups, group)
                && covers_resource(&rule.resources, resource)
                && (rule.resource_names.is_empty()
                    || name.is_some_and(|name| has(&rule.resource_names, name)))
        }
        Part::Path { verb, url } => {
            has_or_all(&rule.verbs, verb)
                && rule.non_resource_urls.iter().any(|own| url_covers(own, url))
                // A part about a path has no names, so a rule with names does not cover it.
                && rule.resource_names.is_empty()
        }
    }
}

/// `*/SUBRESOURCE` covers each `RESOURCE/SUBRESOURCE`, and only `*` covers it.
fn covers_resource(owned: &[String], resource: &str) -> bool {
    owned.iter().any(|own| own == WILDCARD || own == resource)
        || resource.split_once('/').is_some_and(|(_, subresource)| {
            let mut owned = owned.iter();
            owned.any(|own| own.strip_prefix("*/") == Some(subresource))
        })
}

impl Part<'_> {
    fn to_rule(&self) -> PolicyRule {
        let list = |text: &str| vec![text.to_owned()];
        match *self {
            Part::Resource {
                verb,
                group,
                resource,
                name,
            } => PolicyRule {
                verbs: list(verb),
                api_groups: list(group),
                resources: list(resource),
                resource_names: name.into_iter().map(str::to_owned).collect(),
                ..PolicyRule::default()
            },
            Part::Path { verb, url } => PolicyRule {
                verbs: list(verb),
                non_resource_urls: list(url),
                ..PolicyRule::default()
            },
        }
    }
}
