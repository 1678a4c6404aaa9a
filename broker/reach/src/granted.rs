//! What an actor is granted in a cluster: sets of rules, each with its scope and its origin.

use std::rc::Rc;
use std::sync::LazyLock;

use keyferry_api::name::ObjectName;
use keyferry_kube_rbac::{Attributes, Binding, PolicyRule, RequestTarget, Role};

use crate::doubt::Doubt;
use crate::right::RightSet;
use crate::way::{Hop, Removal};

/// Where a set of rules counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope<'w> {
    /// In all namespaces, and for what is in none.
    Cluster,
    /// In each namespace: who may bind in all of them takes one after the other.
    EachNamespace,
    /// In one namespace.
    Namespace(&'w str),
}

impl<'w> Scope<'w> {
    pub(crate) fn has(self, namespace: &str) -> bool {
        match self {
            Self::Cluster => true,
            Self::EachNamespace => !namespace.is_empty(),
            Self::Namespace(own) => own == namespace,
        }
    }

    /// The namespaces of both; `None` if there are none.
    pub(crate) fn in_both(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Namespace(one), Self::Namespace(two)) => {
                (one == two).then_some(Self::Namespace(one))
            }
            (Self::Namespace(one), _) | (_, Self::Namespace(one)) => Some(Self::Namespace(one)),
            _ => Some(Self::EachNamespace),
        }
    }

    pub(crate) fn holds_all_of(self, other: Self) -> bool {
        match (self, other) {
            (Self::Cluster, _) | (Self::EachNamespace, Self::EachNamespace) => true,
            (Self::EachNamespace, Self::Namespace(_)) => true,
            (Self::Namespace(one), Self::Namespace(two)) => one == two,
            _ => false,
        }
    }

    pub(crate) fn words(self) -> String {
        match self {
            Self::Cluster => "in the whole cluster".to_owned(),
            Self::EachNamespace => "in each namespace".to_owned(),
            Self::Namespace(name) => format!("in {name}"),
        }
    }
}

/// Where a set of rules comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source<'w> {
    /// Membership of the group that RBAC does not ask.
    Superuser,
    /// A binding that exists.
    Binding(&'w Binding),
    /// A binding or role that the actor can write itself: door 8.
    OwnGrant(Rc<[Hop]>),
}

/// Rules that count together.
#[derive(Clone, Debug)]
pub(crate) struct RuleSet<'w> {
    pub(crate) scope: Scope<'w>,
    pub(crate) rules: &'w [PolicyRule],
    pub(crate) role: Option<&'w Role>,
    pub(crate) source: Source<'w>,
}

/// All that an actor is granted, and what may hide more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Granted<'w> {
    pub(crate) sets: Vec<RuleSet<'w>>,
    /// The rights of all rules that open doors.
    pub(crate) rights: RightSet,
    pub(crate) doubts: Vec<Doubt>,
}

/// The rule that allows everything.
pub(crate) static EVERYTHING: LazyLock<[PolicyRule; 1]> = LazyLock::new(|| {
    let any = || vec!["*".to_owned()];
    [PolicyRule {
        verbs: any(),
        api_groups: any(),
        resources: any(),
        resource_names: Vec::new(),
        non_resource_urls: any(),
    }]
});

impl<'w> RuleSet<'w> {
    pub(crate) fn of_superuser() -> Self {
        Self {
            scope: Scope::Cluster,
            rules: &*EVERYTHING,
            role: None,
            source: Source::Superuser,
        }
    }

    /// Whether it allows everything in its scope.
    pub(crate) fn allows_everything(&self) -> bool {
        self.rules.iter().any(is_everything)
    }

    /// The steps by which an actor has the rule.
    pub(crate) fn hops(&self, target: Option<&ObjectName>, rule: usize, door: u8) -> Vec<Hop> {
        let door = (door != 0).then_some(door);
        match &self.source {
            Source::Superuser => vec![Hop {
                door,
                text: "Group system:masters, which RBAC does not ask".to_owned(),
                removal: None,
            }],
            Source::Binding(binding) => vec![Hop {
                door,
                text: format!(
                    "{} → {} {}, rule {rule}",
                    binding.id,
                    binding.role_ref.kind.name(),
                    binding.role_ref.name
                ),
                removal: Some(Removal::Binding(target.cloned(), binding.id.clone())),
            }],
            Source::OwnGrant(hops) => {
                let mut hops = hops.to_vec();
                if door.is_some() {
                    hops.push(Hop {
                        door,
                        ..Hop::note("with the rights of that role")
                    });
                }
                hops
            }
        }
    }
}

pub(crate) fn is_everything(rule: &PolicyRule) -> bool {
    let any = |texts: &[String]| texts.iter().any(|text| text == "*");
    any(&rule.verbs)
        && any(&rule.api_groups)
        && any(&rule.resources)
        && rule.resource_names.is_empty()
}

impl<'w> Granted<'w> {
    /// The rules that allow a request: each set with the index of its first such rule.
    pub(crate) fn that_allow(
        &self,
        attributes: &Attributes,
    ) -> impl Iterator<Item = (&RuleSet<'w>, usize)> {
        let namespace = attributes.namespace();
        let is_path = matches!(attributes.target, RequestTarget::Path(_));
        self.sets.iter().filter_map(move |set| {
            if !set.scope.has(namespace) || (is_path && set.scope != Scope::Cluster) {
                return None;
            }
            let allows = |rule: &PolicyRule| rule.allows(attributes);
            Some((set, set.rules.iter().position(allows)?))
        })
    }

    /// Whether it is everything in the whole cluster, so that nothing adds to it.
    pub(crate) fn is_superuser(&self) -> bool {
        self.sets
            .iter()
            .any(|set| set.scope == Scope::Cluster && set.allows_everything())
    }
}
