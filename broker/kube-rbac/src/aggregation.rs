//! Computes the rules of aggregated ClusterRoles, as the controller of Kubernetes writes them.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::label_selector::LabelSelector;
use crate::object::{AggregationRule, RbacObject, Role, RulesOwner};
use crate::policy::Policy;
use crate::rule::PolicyRule;

/// How often all aggregated ClusterRoles are computed until nothing changes: one may select another.
const MAX_ROUNDS: usize = 32;
/// The most rules that all aggregated ClusterRoles may gather. One object of 1.5 MiB, the limit of
/// etcd, has some 20,000.
const MAX_RULES: usize = 500_000;

/// An aggregated ClusterRole whose stored rules are not those that the controller writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AggregatedRole {
    /// The name of the ClusterRole.
    pub name: String,
    /// The rules that it gets.
    pub rules: Vec<PolicyRule>,
}

/// What the controller does with the aggregated ClusterRoles of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aggregation {
    /// The ClusterRoles whose rules it writes.
    pub changed: Vec<AggregatedRole>,
    /// ClusterRoles whose selectors select no rule, and of which it is not known who wrote the
    /// stored ones: these may stay or go. The policy keeps them.
    pub undetermined: Vec<String>,
}

/// Why the rules of aggregated ClusterRoles cannot be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AggregationFault {
    /// Aggregated ClusterRoles select each other in a circle, or in a very long line.
    #[error("the rules of aggregated ClusterRoles do not settle in {MAX_ROUNDS} rounds")]
    Unsettled,
    /// They gather too many rules.
    #[error("aggregated ClusterRoles gather more than {MAX_RULES} rules and roles")]
    TooManyRules,
}

impl Policy {
    /// Writes the rules of all aggregated ClusterRoles, and returns those that changed.
    ///
    /// A decision reads only stored rules. Use this for a policy that no controller has seen: a
    /// file, or a change that is not applied yet.
    ///
    /// The rules come selector by selector, then by the name of the ClusterRole, each rule once. If
    /// the selectors select no rule at all, the controller leaves the field out of its server-side
    /// apply, which removes only rules that it wrote itself.
    ///
    /// # Errors
    /// [`AggregationFault`]: the policy is as it was.
    pub fn aggregate(&mut self) -> Result<Aggregation, AggregationFault> {
        let mut after = self.clone();
        let mut settled = false;
        for _ in 0..MAX_ROUNDS {
            if !after.aggregate_once()? {
                settled = true;
                break;
            }
        }
        if !settled {
            return Err(AggregationFault::Unsettled);
        }
        let mut result = Aggregation::default();
        let by_label = LabelIndex::of(&after);
        let mut budget = MAX_RULES;
        for role in after.cluster_roles() {
            let Some(aggregation) = &role.aggregation else {
                continue;
            };
            if self
                .role(&role.id)
                .is_none_or(|before| before.rules != role.rules)
            {
                result.changed.push(AggregatedRole {
                    name: role.id.name.clone(),
                    rules: role.rules.clone(),
                });
            }
            if role.rules_owner == RulesOwner::Unknown
                && !role.rules.is_empty()
                && after
                    .gather_rules(role, aggregation, &by_label, &mut budget)?
                    .is_empty()
            {
                result.undetermined.push(role.id.name.clone());
            }
        }
        *self = after;
        Ok(result)
    }

    /// Computes each aggregated ClusterRole once. Returns whether one changed.
    fn aggregate_once(&mut self) -> Result<bool, AggregationFault> {
        let by_label = LabelIndex::of(self);
        let mut budget = MAX_RULES;
        let mut changed = Vec::new();
        for role in self.cluster_roles() {
            let Some(aggregation) = &role.aggregation else {
                continue;
            };
            let rules = self.gather_rules(role, aggregation, &by_label, &mut budget)?;
            let is_written = !rules.is_empty() || role.rules_owner == RulesOwner::Controller;
            if is_written && rules != role.rules {
                changed.push(Role {
                    rules,
                    rules_owner: RulesOwner::Controller,
                    ..role.clone()
                });
            }
        }
        let any_changed = !changed.is_empty();
        for role in changed {
            self.insert(RbacObject::Role(role));
        }
        Ok(any_changed)
    }

    /// The rules of all selected ClusterRoles, each once. The budget is of rules and of selected
    /// ClusterRoles: both cost time.
    fn gather_rules(
        &self,
        role: &Role,
        aggregation: &AggregationRule,
        by_label: &LabelIndex,
        budget: &mut usize,
    ) -> Result<Vec<PolicyRule>, AggregationFault> {
        let mut rules = Vec::new();
        let mut present = HashSet::new();
        for selector in &aggregation.cluster_role_selectors {
            for source in by_label.selected_by(selector, self) {
                let cost = source.rules.len().saturating_add(1);
                let rest = budget.checked_sub(cost);
                *budget = rest.ok_or(AggregationFault::TooManyRules)?;
                // Its own rules are the result, so it gives none, also if it selects itself.
                if source.id == role.id {
                    continue;
                }
                let further = source.rules.iter().filter(|&rule| present.insert(rule));
                rules.extend(further.cloned());
            }
        }
        Ok(rules)
    }
}

/// The names of ClusterRoles by their labels, in order.
struct LabelIndex(BTreeMap<String, BTreeMap<String, BTreeSet<String>>>);

impl LabelIndex {
    fn of(policy: &Policy) -> Self {
        let mut index: BTreeMap<_, BTreeMap<_, BTreeSet<_>>> = BTreeMap::new();
        for role in policy.cluster_roles() {
            for (key, value) in &role.labels {
                let values = index.entry(key.clone()).or_default();
                let names = values.entry(value.clone()).or_default();
                names.insert(role.id.name.clone());
            }
        }
        Self(index)
    }

    /// The ClusterRoles that the selector selects, by name.
    fn selected_by<'a>(&self, selector: &LabelSelector, policy: &'a Policy) -> Vec<&'a Role> {
        let selects = |role: &&Role| selector.selects(&role.labels);
        let Some((key, values)) = selector.indexed_values() else {
            return policy.cluster_roles().filter(selects).collect();
        };
        let by_value = self.0.get(key);
        let names: BTreeSet<&String> = values
            .into_iter()
            .filter_map(|value| by_value?.get(value))
            .flatten()
            .collect();
        names
            .into_iter()
            .filter_map(|name| policy.cluster_role(name))
            .filter(selects)
            .collect()
    }
}
