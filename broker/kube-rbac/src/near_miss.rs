//! What a refused user lacks: the rules that come nearest to allowing the request.

use std::fmt;

use crate::decision::Way;
use crate::object::{Binding, Subject};
use crate::policy::Policy;
use crate::request::{Attributes, User};
use crate::rule::{ObjectMatch, PolicyRule};

/// A rule with more differences than this says nothing about the request.
const MAX_DIFFERENCES: usize = 2;

/// A rule that the user has, and that does not allow the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearMiss<'a> {
    /// The rule, and the binding that gives it.
    pub way: Way<'a>,
    /// What would have to be different; never empty.
    pub differences: Vec<Difference>,
}

/// What keeps a rule from allowing a request, the nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// The binding is in another namespace.
    Namespace,
    /// The rule is limited to other names.
    ResourceName,
    /// The rule has other verbs.
    Verb,
    /// The rule has other resources or subresources.
    Resource,
    /// The rule is for other API groups.
    ApiGroup,
    /// The rule is for other paths.
    Path,
}

impl Policy {
    /// Returns at most `limit` rules of the user that come near to allowing the request, the nearest
    /// first. A request that is allowed has none.
    pub fn nearest_misses<'a>(
        &'a self,
        user: &User,
        attributes: &Attributes,
        limit: usize,
    ) -> Vec<NearMiss<'a>> {
        if self.decide(user, attributes).is_allowed() {
            return Vec::new();
        }
        let namespace = attributes.namespace();
        let mut misses: Vec<NearMiss<'a>> = Vec::new();
        for bound in self.bindings_of(user, namespace) {
            misses.extend(self.misses_of(bound, attributes, None));
        }
        // No binding of a namespace counts for a path, so none is near.
        if matches!(attributes.target, crate::RequestTarget::Resource(_)) {
            for bound in self.bindings_elsewhere(user, namespace) {
                misses.extend(self.misses_of(bound, attributes, Some(Difference::Namespace)));
            }
        }
        // A stable sort: what is equally near stays in the order of the bindings.
        misses.sort_by_cached_key(|miss| (miss.differences.len(), miss.differences.clone()));
        misses.truncate(limit);
        misses
    }

    fn misses_of<'a>(
        &'a self,
        (binding, subject): (&'a Binding, &'a Subject),
        attributes: &Attributes,
        elsewhere: Option<Difference>,
    ) -> impl Iterator<Item = NearMiss<'a>> {
        let role = self.granted_role(binding);
        let ways = role
            .into_iter()
            .flat_map(move |role| Way::of(binding, subject, role));
        ways.filter_map(move |way| {
            let mut differences: Vec<Difference> = elsewhere.into_iter().collect();
            differences.extend(differences_of(way.rule, attributes)?);
            let is_near = (1..=MAX_DIFFERENCES).contains(&differences.len());
            is_near.then_some(NearMiss { way, differences })
        })
    }
}

/// What keeps the rule from allowing the request; `None` if one is about a path and the other about
/// a resource.
fn differences_of(rule: &PolicyRule, attributes: &Attributes) -> Option<Vec<Difference>> {
    let compared = rule.compare(attributes);
    let mut differences = Vec::new();
    let mut note = |matches: bool, difference: Difference| {
        if !matches {
            differences.push(difference);
        }
    };
    match compared.object {
        ObjectMatch::Path(path) => {
            if rule.non_resource_urls.is_empty() {
                return None;
            }
            note(compared.verb, Difference::Verb);
            note(path, Difference::Path);
        }
        ObjectMatch::Resource {
            group,
            resource,
            name,
        } => {
            if rule.resources.is_empty() {
                return None;
            }
            note(name, Difference::ResourceName);
            note(compared.verb, Difference::Verb);
            note(resource, Difference::Resource);
            note(group, Difference::ApiGroup);
        }
    }
    Some(differences)
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Namespace => "the binding is in another namespace",
            Self::ResourceName => "the rule is limited to other names",
            Self::Verb => "the rule has other verbs",
            Self::Resource => "the rule has other resources",
            Self::ApiGroup => "the rule is for other API groups",
            Self::Path => "the rule is for other paths",
        })
    }
}
