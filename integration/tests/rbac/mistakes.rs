//! Mistakes that an evaluator of RBAC could have, each of which the questions must find.
//!
//! No mistake is in the evaluator itself. Each one here is the evaluator behind a wrapper, which
//! changes the request, the user, the policy or the decision so that the result is that of the
//! mistake.

use std::sync::Arc;

use keyferry_integration::rbac_questions::{NAMESPACES, Question, Round};
use keyferry_integration::runner::TestResult;
use keyferry_kube_rbac::{
    Attributes, Binding, Policy, PolicyRule, RbacObject, RequestTarget, ResourceRequest, Role,
    RoleKind, SubjectKind, User,
};

use super::RbacFleet;

/// A mistake, by what is wrong with it.
struct Mistake {
    name: &'static str,
    kind: Kind,
}

/// What the wrapper of a mistake changes.
enum Kind {
    /// The question, before the evaluator sees it.
    Question(fn(&mut Question)),
    /// Each rule of each role.
    Rule(fn(&mut PolicyRule)),
    /// Each binding.
    Binding(fn(&mut Binding)),
    /// The whole policy.
    Policy(fn(&mut Policy)),
    /// The decision, from the evaluator and the unchanged policy.
    Decision(fn(&Policy, &Question) -> bool),
}

const MISTAKES: [Mistake; 26] = [
    Mistake {
        name: "the subresource is dropped",
        kind: Kind::Question(|question| {
            on_resource(question, |request| request.subresource.clear())
        }),
    },
    Mistake {
        name: "a resource also allows its subresources",
        kind: Kind::Decision(|policy, question| {
            let mut without = question.clone();
            on_resource(&mut without, |request| request.subresource.clear());
            decide(policy, question) || decide(policy, &without)
        }),
    },
    Mistake {
        name: "*/SUBRESOURCE matches nothing",
        kind: Kind::Rule(|rule| rule.resources.retain(|own| !own.starts_with("*/"))),
    },
    Mistake {
        name: "*/SUBRESOURCE matches every resource",
        kind: Kind::Rule(|rule| replace(&mut rule.resources, |own| own.starts_with("*/"), "*")),
    },
    Mistake {
        name: "RESOURCE/* matches every subresource",
        kind: Kind::Rule(|rule| {
            let resources = rule.resources.clone();
            let prefixes = resources.iter().filter_map(|own| own.strip_suffix("/*"));
            let subresources = ["scale", "status", "log", "exec", "token"];
            rule.resources.extend(prefixes.flat_map(|prefix| {
                subresources.map(|subresource| format!("{prefix}/{subresource}"))
            }));
        }),
    },
    Mistake {
        name: "the resource * has no subresources",
        kind: Kind::Decision(|policy, question| {
            let has_subresource = matches!(&question.attributes.target, RequestTarget::Resource(request) if !request.subresource.is_empty());
            let without = |rule: &mut PolicyRule| rule.resources.retain(|own| own != "*");
            match has_subresource {
                true => decide(&with_rules(policy, without), question),
                false => decide(policy, question),
            }
        }),
    },
    Mistake {
        name: "resourceNames are ignored",
        kind: Kind::Rule(|rule| rule.resource_names.clear()),
    },
    Mistake {
        name: "a request without a name matches all resourceNames",
        kind: Kind::Decision(|policy, question| {
            let is_nameless = matches!(&question.attributes.target, RequestTarget::Resource(request) if request.name.is_empty());
            let without = |rule: &mut PolicyRule| rule.resource_names.clear();
            match is_nameless {
                true => decide(&with_rules(policy, without), question),
                false => decide(policy, question),
            }
        }),
    },
    Mistake {
        name: "the empty resourceName is dropped",
        kind: Kind::Rule(|rule| rule.resource_names.retain(|own| !own.is_empty())),
    },
    Mistake {
        name: "the resourceName * matches all names",
        kind: Kind::Rule(|rule| {
            if rule.resource_names.iter().any(|own| own == "*") {
                rule.resource_names.clear();
            }
        }),
    },
    Mistake {
        name: "the verb * matches nothing",
        kind: Kind::Rule(|rule| rule.verbs.retain(|own| own != "*")),
    },
    Mistake {
        name: "API groups are ignored",
        kind: Kind::Rule(|rule| replace(&mut rule.api_groups, |_| true, "*")),
    },
    Mistake {
        name: "the core group is every group",
        kind: Kind::Rule(|rule| replace(&mut rule.api_groups, str::is_empty, "*")),
    },
    Mistake {
        name: "groups are forgotten",
        kind: Kind::Question(|question| question.user.groups.clear()),
    },
    Mistake {
        name: "system:masters is a group like others",
        kind: Kind::Question(|question| {
            question
                .user
                .groups
                .retain(|group| group != "system:masters");
        }),
    },
    Mistake {
        name: "a user is a member of the group of its name",
        kind: Kind::Question(|question| {
            let User { name, groups, .. } = &mut question.user;
            groups.push(name.clone());
        }),
    },
    Mistake {
        name: "a RoleBinding counts in every namespace",
        kind: Kind::Decision(|policy, question| {
            decide(policy, question) || decide_in_any_namespace(policy, question)
        }),
    },
    Mistake {
        name: "a RoleBinding counts for all namespaces at once",
        kind: Kind::Decision(|policy, question| {
            decide(policy, question)
                || (question.attributes.namespace().is_empty()
                    && decide_in_any_namespace(policy, question))
        }),
    },
    Mistake {
        name: "RoleBindings are ignored",
        kind: Kind::Question(|question| on_resource(question, |request| request.namespace.clear())),
    },
    Mistake {
        name: "a ServiceAccount without a namespace is nobody",
        kind: Kind::Binding(|binding| {
            binding.subjects.retain(|subject| {
                subject.kind != SubjectKind::ServiceAccount || !subject.namespace.is_empty()
            });
        }),
    },
    Mistake {
        name: "a ServiceAccount is always of the binding's namespace",
        kind: Kind::Binding(|binding| {
            if !binding.id.namespace.is_empty() {
                binding
                    .subjects
                    .iter_mut()
                    .for_each(|subject| subject.namespace.clear());
            }
        }),
    },
    Mistake {
        name: "a Role is looked for among ClusterRoles",
        kind: Kind::Binding(|binding| binding.role_ref.kind = RoleKind::ClusterRole),
    },
    Mistake {
        name: "a missing role ends the search",
        kind: Kind::Decision(|policy, question| {
            let Question { user, attributes } = question;
            let granted = policy.rules_of(user, attributes.namespace());
            decide(policy, question) && granted.faults.is_empty()
        }),
    },
    Mistake {
        name: "a path with a star at its end is no pattern",
        kind: Kind::Rule(|rule| {
            rule.non_resource_urls
                .retain(|own| own == "*" || !own.ends_with('*'));
        }),
    },
    Mistake {
        name: "a path allows what is below it",
        kind: Kind::Rule(|rule| {
            let below: Vec<String> = rule
                .non_resource_urls
                .iter()
                .map(|own| format!("{own}/*"))
                .collect();
            rule.non_resource_urls.extend(below);
        }),
    },
    Mistake {
        name: "an aggregated ClusterRole has the rules of its selectors at once",
        kind: Kind::Policy(|policy| {
            policy.aggregate().ok();
        }),
    },
];

pub(super) async fn each_planted_mistake_is_found(fixture: Arc<RbacFleet>) -> TestResult {
    let rounds = fixture.rounds_of_the_newest().await?;
    let mut missed = Vec::new();
    for Mistake { name, kind } in &MISTAKES {
        let differing: usize = rounds
            .iter()
            .map(|round| count_differing(round, kind))
            .sum();
        eprintln!("{name}: {differing} wrong answers");
        if differing == 0 {
            missed.push(*name);
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
    Ok(())
}

/// How many answers of the apiserver are not those of the evaluator with the mistake.
fn count_differing(round: &Round, kind: &Kind) -> usize {
    let changed = match kind {
        Kind::Rule(change) => with_rules(&round.policy, change),
        Kind::Binding(change) => with_bindings(&round.policy, change),
        Kind::Policy(change) => {
            let mut policy = round.policy.clone();
            change(&mut policy);
            policy
        }
        Kind::Question(_) | Kind::Decision(_) => round.policy.clone(),
    };
    let decide_wrongly = |question: &Question| match kind {
        Kind::Decision(decide) => decide(&changed, question),
        Kind::Question(change) => {
            let mut question = question.clone();
            change(&mut question);
            decide(&changed, &question)
        }
        Kind::Rule(_) | Kind::Binding(_) | Kind::Policy(_) => decide(&changed, question),
    };
    let truths = round.truths.iter();
    truths
        .filter(|truth| decide_wrongly(&truth.question) != truth.allowed)
        .count()
}

fn decide(policy: &Policy, Question { user, attributes }: &Question) -> bool {
    policy.decide(user, attributes).is_allowed()
}

fn decide_in_any_namespace(policy: &Policy, question: &Question) -> bool {
    NAMESPACES.iter().any(|namespace| {
        let mut elsewhere = question.clone();
        on_resource(&mut elsewhere, |request| {
            (*namespace).clone_into(&mut request.namespace)
        });
        decide(policy, &elsewhere)
    })
}

fn on_resource(question: &mut Question, change: impl FnOnce(&mut ResourceRequest)) {
    let Attributes { target, .. } = &mut question.attributes;
    if let RequestTarget::Resource(request) = target {
        change(request);
    }
}

fn replace(list: &mut [String], is_replaced: impl Fn(&str) -> bool, by: &str) {
    for value in list.iter_mut().filter(|value| is_replaced(value)) {
        by.clone_into(value);
    }
}

fn with_rules(policy: &Policy, change: impl Fn(&mut PolicyRule)) -> Policy {
    let roles: Vec<Role> = policy.roles().cloned().collect();
    let mut changed = policy.clone();
    for mut role in roles {
        role.rules.iter_mut().for_each(&change);
        changed.insert(RbacObject::Role(role));
    }
    changed
}

fn with_bindings(policy: &Policy, change: impl Fn(&mut Binding)) -> Policy {
    let bindings: Vec<Binding> = policy.bindings().cloned().collect();
    let mut changed = policy.clone();
    for mut binding in bindings {
        change(&mut binding);
        changed.insert(RbacObject::Binding(binding));
    }
    changed
}
