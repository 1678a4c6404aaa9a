//! Door 12: who may request, approve and name the signer of client certificates is any user of the
//! hub, in any groups but `system:masters`, which the apiserver refuses in such a request.
//!
//! `keyferry-self-certificates` limits Keyferry's own account alone, which is not evaluated.

use crate::accounts::AccountSet;
use crate::actor::{Actor, NODES};
use crate::doubt::Doubt;
use crate::edge::{Edge, Reached};
use crate::granted::{Granted, Scope};
use crate::hub_search::HubSearch;
use crate::right::Right;
use crate::way::Hop;
use keyferry_kube_rbac::SUPERUSER_GROUP;

const DOOR: u8 = 12;
/// The signer whose certificates the hub accepts from clients, by its name and by that of its
/// domain.
const SIGNERS: [&str; 2] = ["kubernetes.io/kube-apiserver-client", "kubernetes.io/*"];
const NODE_SIGNERS: [&str; 2] = [
    "kubernetes.io/kube-apiserver-client-kubelet",
    "kubernetes.io/*",
];

impl<'w> HubSearch<'w> {
    pub(crate) fn approve_certificates(&self, granted: &Granted<'w>, edges: &mut Vec<Edge>) {
        let mut hops = Vec::new();
        for right in [Right::RequestCertificate, Right::UpdateApproval] {
            let rules = self.rules_with(granted, right);
            let whole = rules.iter().find(|(set, ..)| set.scope == Scope::Cluster);
            let Some((set, index, _)) = whole else { return };
            hops.extend(set.hops(None, *index, DOOR));
        }
        for (set, index, names) in self.rules_with(granted, Right::ApproveSigner) {
            let may = |signers: [&str; 2]| signers.iter().any(|name| names.allow(name));
            if set.scope != Scope::Cluster {
                continue;
            }
            let mut hops = hops.clone();
            hops.extend(set.hops(None, index, DOOR));
            if may(NODE_SIGNERS) || may(SIGNERS) {
                let doubt = Doubt::fact(
                    "the Node authorizer is not evaluated, and it may be a node",
                    "take the right to approve its signers away",
                );
                edges.push(Edge::doubtful(Reached::Anything, hops.clone(), doubt));
            }
            if may(SIGNERS) {
                let groups = self.rights.groups.iter();
                let groups = groups.filter(|group| ![SUPERUSER_GROUP, NODES].contains(*group));
                let groups: Vec<String> = groups.map(|&group| group.to_owned()).collect();
                let users = self.rights.users.iter().copied();
                for user in users.chain(["any"]) {
                    let mut hops = hops.clone();
                    hops.push(Hop::note(format!("a certificate of {user} in any group")));
                    let actor = Actor::user(user, groups.iter().cloned());
                    edges.push(Edge::certain(Reached::Actor(actor), hops));
                }
                edges.push(Edge::certain(Reached::Accounts(AccountSet::All), hops));
            }
        }
    }
}
