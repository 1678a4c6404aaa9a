//! One rule of a role, and what it allows.

use crate::request::{Attributes, RequestTarget, ResourceRequest};

/// Stands for every verb, group, resource or path.
pub(crate) const WILDCARD: &str = "*";

/// One rule of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PolicyRule {
    /// The verbs; `*` is any.
    pub verbs: Vec<String>,
    /// The API groups; `*` is any, and the empty text is the core group.
    pub api_groups: Vec<String>,
    /// The resources: `*`, `RESOURCE`, `RESOURCE/SUBRESOURCE` or `*/SUBRESOURCE`.
    pub resources: Vec<String>,
    /// The names to which the rule is limited; none is no limit.
    pub resource_names: Vec<String>,
    /// The paths outside the API's resources; `*` at the end is any rest.
    pub non_resource_urls: Vec<String>,
}

/// Which parts of a rule match a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuleMatch {
    pub(crate) verb: bool,
    pub(crate) object: ObjectMatch,
}

/// Which parts of a rule match what a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectMatch {
    Resource {
        group: bool,
        resource: bool,
        name: bool,
    },
    Path(bool),
}

impl PolicyRule {
    /// Whether the rule allows the request, wherever it is granted.
    pub fn allows(&self, attributes: &Attributes) -> bool {
        matches(&self.verbs, &attributes.verb)
            && match &attributes.target {
                RequestTarget::Path(path) => self.allows_path(path),
                RequestTarget::Resource(request) => {
                    matches(&self.api_groups, &request.group)
                        && self.allows_resource(request)
                        && self.allows_name(&request.name)
                }
            }
    }

    /// Which parts of the rule match the request.
    pub(crate) fn compare(&self, attributes: &Attributes) -> RuleMatch {
        RuleMatch {
            verb: matches(&self.verbs, &attributes.verb),
            object: match &attributes.target {
                RequestTarget::Path(path) => ObjectMatch::Path(self.allows_path(path)),
                RequestTarget::Resource(request) => ObjectMatch::Resource {
                    group: matches(&self.api_groups, &request.group),
                    resource: self.allows_resource(request),
                    name: self.allows_name(&request.name),
                },
            },
        }
    }

    /// A subresource is only matched by its own name: `pods` does not allow `pods/log`, and `*` does.
    fn allows_resource(&self, request: &ResourceRequest) -> bool {
        self.resources.iter().any(|resource| {
            if resource == WILDCARD {
                return true;
            }
            if request.subresource.is_empty() {
                return *resource == request.resource;
            }
            resource.strip_prefix("*/") == Some(request.subresource.as_str())
                || is_combined(resource, &request.resource, &request.subresource)
        })
    }

    /// A request without a name, such as a list, matches no `resourceNames` but the empty one.
    fn allows_name(&self, name: &str) -> bool {
        self.resource_names.is_empty() || self.resource_names.iter().any(|own| own == name)
    }

    fn allows_path(&self, path: &str) -> bool {
        self.non_resource_urls
            .iter()
            .any(|url| url_covers(url, path))
    }
}

/// Whether a rule's path allows another path, or covers that of another rule. All stars at the end
/// count as one; a star elsewhere is a plain character.
pub(crate) fn url_covers(url: &str, path: &str) -> bool {
    url == path || (url.ends_with('*') && path.starts_with(url.trim_end_matches('*')))
}

/// Whether the list has the value or the wildcard.
fn matches(list: &[String], value: &str) -> bool {
    list.iter().any(|own| own == WILDCARD || own == value)
}

/// Whether the text is `RESOURCE/SUBRESOURCE`, without building it.
fn is_combined(text: &str, resource: &str, subresource: &str) -> bool {
    text.strip_prefix(resource)
        .and_then(|rest| rest.strip_prefix('/'))
        == Some(subresource)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    fn on(resource: &str, subresource: &str, name: &str) -> Attributes {
        Attributes::resource(
            "get",
            ResourceRequest {
                group: "apps".to_owned(),
                resource: resource.to_owned(),
                subresource: subresource.to_owned(),
                name: name.to_owned(),
                ..ResourceRequest::default()
            },
        )
    }

    #[test]
    fn resources_match_as_in_kubernetes() {
        for (own, resource, subresource, allowed) in [
            ("*", "deployments", "", true),
            ("*", "deployments", "scale", true),
            ("deployments", "deployments", "", true),
            ("deployments", "deployments", "scale", false),
            ("deployments/scale", "deployments", "scale", true),
            ("deployments/scale", "deployments", "", false),
            ("*/scale", "deployments", "scale", true),
            ("*/scale", "deployments", "", false),
            ("*/scale", "deployments", "status", false),
            ("*/*", "deployments", "scale", false),
            ("*/*", "deployments", "*", true),
            ("deployments/*", "deployments", "scale", false),
            ("*deployments", "deployments", "", false),
            ("deploy*", "deployments", "", false),
            // A review may send the whole text as the resource.
            ("deployments/scale", "deployments/scale", "", true),
            ("*/scale", "deployments/scale", "", false),
            ("a/b/c", "a/b", "c", true),
            ("a/b/c", "a", "b/c", true),
            ("*/b/c", "a", "b/c", true),
            ("", "", "", true),
            ("/scale", "", "scale", true),
        ] {
            let rule = PolicyRule {
                verbs: list(&["get"]),
                api_groups: list(&["apps"]),
                resources: list(&[own]),
                ..PolicyRule::default()
            };
            let attributes = on(resource, subresource, "");
            assert_eq!(rule.allows(&attributes), allowed, "{own}: {attributes:?}");
        }
    }

    #[test]
    fn names_limit_a_rule() {
        for (own, name, allowed) in [
            (&[][..], "", true),
            (&[], "a", true),
            (&["a"], "a", true),
            (&["a"], "b", false),
            (&["a"], "", false),
            (&[""], "", true),
            (&[""], "a", false),
            (&["*"], "a", false),
            (&["*"], "*", true),
        ] {
            let rule = PolicyRule {
                verbs: list(&["*"]),
                api_groups: list(&["*"]),
                resources: list(&["*"]),
                resource_names: list(own),
                ..PolicyRule::default()
            };
            assert_eq!(
                rule.allows(&on("deployments", "", name)),
                allowed,
                "{own:?}"
            );
        }
    }

    #[test]
    fn paths_match_up_to_the_last_star() {
        for (own, path, allowed) in [
            ("*", "/x", true),
            ("*", "", true),
            ("/x", "/x", true),
            ("/x", "/x/", false),
            ("/x", "/x/y", false),
            ("/x/*", "/x/y/z", true),
            ("/x/*", "/x/", true),
            ("/x/*", "/x", false),
            ("/x*", "/xyz", true),
            ("/x**", "/xyz", true),
            ("/*/y", "/x/y", false),
            ("/*/y", "/*/y", true),
            ("/x/*", "/x/*", true),
        ] {
            let rule = PolicyRule {
                verbs: list(&["get"]),
                non_resource_urls: list(&[own]),
                ..PolicyRule::default()
            };
            let allows = rule.allows(&Attributes::path("get", path));
            assert_eq!(allows, allowed, "{own} {path}");
            assert!(!rule.allows(&Attributes::path("head", path)));
        }
    }

    #[test]
    fn a_rule_about_paths_allows_no_resource_and_the_reverse() {
        let rule = PolicyRule {
            verbs: list(&["*"]),
            api_groups: list(&["*"]),
            resources: list(&["*"]),
            ..PolicyRule::default()
        };
        assert!(!rule.allows(&Attributes::path("get", "/x")));
        let rule = PolicyRule {
            verbs: list(&["*"]),
            non_resource_urls: list(&["*"]),
            ..PolicyRule::default()
        };
        assert!(!rule.allows(&on("deployments", "", "")));
    }
}
