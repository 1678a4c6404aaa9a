//! Doors 6 and 9 to 12: who holds one of their rights may reach anything, and nothing is decided.

use keyferry_api::config::NamespaceRule;

use crate::doubt::Doubt;
use crate::edge::{Edge, Reached};
use crate::fence::FenceState;
use crate::granted::{Granted, Scope};
use crate::hub_search::HubSearch;
use crate::list::ListKind;
use crate::right::{CONTROLLER_GROUPS, Names, Right};

/// What Keyferry keeps in Secrets of its own namespace.
const OWN_SECRETS: [&str; 2] = ["keyferry-seal", "keyferry-keys"];

impl<'w> HubSearch<'w> {
    pub(crate) fn other_doors(&self, granted: &Granted<'w>, edges: &mut Vec<Edge>) {
        for (door, right) in [
            (6, Right::UseController),
            (9, Right::WriteTargetCluster),
            (9, Right::WriteTargetAccess),
            (9, Right::WriteNamespace),
            (10, Right::WriteAdmission),
            (11, Right::ReadSecret),
            (11, Right::CreateSecret),
            (11, Right::EditSecret),
            (12, Right::ApproveSigner),
        ] {
            for (set, index, names) in self.rules_with(granted, right) {
                if self.is_shut(right, granted, set.scope, names) {
                    continue;
                }
                let hops = set.hops(None, index, door);
                let words: Vec<&str> = hops.iter().map(|hop| hop.text.as_str()).collect();
                let doubt = Doubt::Door {
                    door,
                    right: words.join(", "),
                };
                edges.push(Edge::doubtful(Reached::Anything, hops, doubt));
            }
        }
    }

    /// Whether the right opens nothing here.
    fn is_shut(
        &self,
        right: Right,
        granted: &Granted<'w>,
        scope: Scope<'w>,
        names: Names<'w>,
    ) -> bool {
        let hub = &self.world.hub;
        match right {
            // Without the definitions there is no such controller.
            Right::UseController => {
                hub.lists.is_whole(ListKind::Definitions)
                    && !hub.definitions.iter().any(|definition| {
                        let group = definition.split_once('.').map(|(_, group)| group);
                        group.is_some_and(|group| CONTROLLER_GROUPS.contains(&group))
                    })
            }
            // A TargetAccess gives a token of an account for which its author may mint anyway, but
            // for another target; without that right the author is refused.
            Right::WriteTargetAccess => {
                self.fences.author == FenceState::AsShipped
                    && granted.doubts.is_empty()
                    && self.rules_with(granted, Right::Mint).is_empty()
            }
            Right::WriteNamespace => {
                let selects = self.policy.targets.values().any(|target| {
                    let is_selected =
                        |rule: &NamespaceRule| matches!(rule, NamespaceRule::Selected(_));
                    target
                        .allow
                        .iter()
                        .any(|rule| is_selected(&rule.namespaces))
                });
                let is_guarded = self.fences.labels == FenceState::AsShipped
                    && granted.doubts.is_empty()
                    && self.rules_with(granted, Right::LabelAccess).is_empty();
                (hub.lists.is_whole(ListKind::TargetClusters) && !selects) || is_guarded
            }
            Right::ReadSecret | Right::CreateSecret | Right::EditSecret => {
                let is_own = |name: &String| {
                    OWN_SECRETS.contains(&name.as_str())
                        || name.starts_with("keyferry-issuer-")
                        || self.ca_secrets.contains(name)
                };
                let has_own = match names {
                    Names::Any => true,
                    Names::Only(names) => names.iter().any(is_own),
                };
                !scope.has(hub.namespace.as_str()) || !has_own
            }
            _ => false,
        }
    }
}
