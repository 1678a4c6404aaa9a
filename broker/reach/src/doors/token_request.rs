//! Door 2: who may create `serviceaccounts/token` gets tokens of the account.

use crate::accounts::AccountSet;
use crate::doubt::Doubt;
use crate::edge::{Edge, Reached};
use crate::granted::{Granted, Scope};
use crate::hub_search::HubSearch;
use crate::list::ListKind;
use crate::right::{Names, Right};

const DOOR: u8 = 2;

impl<'w> HubSearch<'w> {
    pub(crate) fn token_requests(&self, granted: &Granted<'w>, edges: &mut Vec<Edge>) {
        for (set, index, names) in self.rules_with(granted, Right::Mint) {
            let hops = set.hops(None, index, DOOR);
            match names {
                Names::Any => {
                    let accounts = self.accounts.in_scope(set.scope);
                    edges.push(Edge::certain(Reached::Tokens(accounts), hops.clone()));
                    self.add_unread_accounts(set.scope, &hops, edges);
                }
                Names::Only(names) => {
                    for name in names {
                        let found = self.accounts.named(set.scope, name);
                        for account in found {
                            let account = AccountSet::One(account);
                            edges.push(Edge::certain(Reached::Tokens(account), hops.clone()));
                        }
                    }
                    if names.iter().any(|name| !name.is_empty()) {
                        self.add_unread_accounts(set.scope, &hops, edges);
                    }
                }
            }
        }
    }

    /// Adds that there may be accounts which were not read.
    pub(crate) fn add_unread_accounts(
        &self,
        scope: Scope<'w>,
        hops: &[crate::way::Hop],
        edges: &mut Vec<Edge>,
    ) {
        let lists = &self.world.hub.lists;
        let doubt = match scope {
            Scope::Namespace(namespace) => {
                if lists.is_whole_in(ListKind::ServiceAccounts, namespace) {
                    return;
                }
                Doubt::list_in(ListKind::ServiceAccounts, namespace)
            }
            _ if lists.is_whole(ListKind::ServiceAccounts) => return,
            _ => Doubt::list(ListKind::ServiceAccounts),
        };
        edges.push(Edge::doubtful(Reached::Anything, hops.to_vec(), doubt));
    }
}
