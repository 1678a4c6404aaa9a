//! Doors 6 and 11, which are undetermined for whoever holds a right that may open them: what a
//! controller of another project does with an object is set by its flags, and what Keyferry's own
//! keys and CAs give depends on the network and on time.

use crate::doubt::Doubt;
use crate::edge::{Edge, Reached};
use crate::granted::Granted;
use crate::hub_search::HubSearch;
use crate::list::ListKind;
use crate::right::{Names, Right, controller_definitions};

const CONTROLLERS: u8 = 6;
const KEYS: u8 = 11;
/// The Secret that seals Keyferry's key journal, and the Secret with the journal.
const SEAL: &str = "keyferry-seal";
const JOURNAL: &str = "keyferry-keys";

impl<'w> HubSearch<'w> {
    /// Door 6: without the definition of the object there is no controller that acts on it.
    pub(crate) fn use_controllers(&self, granted: &Granted<'w>, edges: &mut Vec<Edge>) {
        let hub = &self.world.hub;
        let is_whole = hub.lists.is_whole(ListKind::Definitions);
        for (set, index, _) in self.rules_with(granted, Right::UseController) {
            let Some(rule) = set.rules.get(index) else {
                continue;
            };
            let mut definitions = controller_definitions(rule);
            if !is_whole || definitions.any(|name| hub.definitions.contains(&name)) {
                let hops = set.hops(None, index, CONTROLLERS);
                let doubt = Doubt::door(CONTROLLERS, &hops);
                edges.push(Edge::doubtful(Reached::Anything, hops, doubt));
            }
        }
    }

    /// Door 11. A key journal that was written needs the seal; a managed issuer's key signs for its
    /// target; a CA that was replaced trusts another server.
    pub(crate) fn use_keys(&self, granted: &Granted<'w>, edges: &mut Vec<Edge>) {
        let namespace = self.world.hub.namespace.as_str();
        let may = |right: Right, name: &str| {
            let rules = self.rules_with(granted, right);
            let mut rules = rules.into_iter();
            rules.any(|(set, _, names)| set.scope.has(namespace) && names.allow(name))
        };
        let may_write = |name: &str| may(Right::EditSecret, name) || may(Right::CreateSecret, "");
        let writes_journal =
            may_write(JOURNAL) && (may(Right::ReadSecret, SEAL) || may_write(SEAL));
        for right in [Right::ReadSecret, Right::CreateSecret, Right::EditSecret] {
            for (set, index, names) in self.rules_with(granted, right) {
                let opens = |name: &String| match name.as_str() {
                    SEAL | JOURNAL => writes_journal,
                    name if name.starts_with("keyferry-issuer-") => self.has_managed_issuer,
                    // A CA is public: only replacing it matters.
                    name => right != Right::ReadSecret && self.ca_secrets.contains(name),
                };
                let is_open = match names {
                    // Serving keys may be among them, under any name.
                    Names::Any => true,
                    Names::Only(names) => names.iter().any(opens),
                };
                if set.scope.has(namespace) && is_open {
                    let hops = set.hops(None, index, KEYS);
                    let doubt = Doubt::door(KEYS, &hops);
                    edges.push(Edge::doubtful(Reached::Anything, hops, doubt));
                }
            }
        }
    }
}
