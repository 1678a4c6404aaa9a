//! The tokens for one target that a subject can get, each with the way to it.

use std::collections::BTreeSet;

use crate::accounts::{AccountIndex, AccountSet};
use crate::actor::Actor;
use crate::doubt::Doubt;
use crate::fence::Issue;
use crate::hub_search::{Closure, HubSearch, NextNode, Node};
use crate::keyferry_mint::{Offer, token_request};
use crate::target_tokens::TargetTokens;
use crate::way::{Hop, Removal};

/// The shortest token that a TokenRequest can ask for, which every rule about lifetimes lets pass.
const SHORTEST: i64 = 600;

/// A token for a target.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) account: AccountIndex,
    pub(crate) lifetime: i64,
    pub(crate) hops: Vec<Hop>,
    pub(crate) doubts: BTreeSet<Doubt>,
}

/// The tokens of a subject for a target, and the nearest miss.
pub(crate) struct Arrivals<'a, 'w> {
    search: &'a HubSearch<'w>,
    target: &'a TargetTokens<'w>,
    closure: &'a Closure,
    /// The direct steps of the subject, so that each of them is a way.
    direct: &'a [NextNode],
    pub(crate) tokens: Vec<Arrival>,
    /// Why the access that came nearest gives no token.
    pub(crate) refused: Option<String>,
}

type WayTo = (Vec<Hop>, BTreeSet<Doubt>);

impl<'a, 'w> Arrivals<'a, 'w> {
    pub(crate) fn find(
        search: &'a HubSearch<'w>,
        target: &'a TargetTokens<'w>,
        closure: &'a Closure,
        direct: &'a [NextNode],
    ) -> Self {
        let mut arrivals = Self {
            search,
            target,
            closure,
            direct,
            tokens: Vec::new(),
            refused: None,
        };
        for offer in search.offers_for(target.name) {
            arrivals.add_offer(offer);
        }
        arrivals.add_tokens();
        arrivals.add_single_tokens();
        arrivals
    }

    /// Door 1: tokens that Keyferry issues on request.
    fn add_offer(&mut self, offer: &Offer) {
        for &caller in offer.callers.iter().chain([&offer.account]) {
            let ways = self.ways_to_account(caller, true);
            if ways.is_empty() {
                continue;
            }
            let terms = match &offer.terms {
                Ok(terms) => terms,
                Err(why) => {
                    self.refused = Some(format!("access {}: {why}", offer.access));
                    continue;
                }
            };
            let (review, review_doubts) = match self.review(caller, offer.account) {
                Ok(review) => review,
                Err(why) => {
                    self.refused = Some(format!("access {}: {why}", offer.access));
                    continue;
                }
            };
            for (mut hops, mut doubts) in ways {
                hops.extend(review.iter().cloned());
                hops.push(Hop {
                    door: Some(1),
                    text: format!(
                        "access {} (allow[{}] of TargetCluster {})",
                        offer.access, terms.rule, offer.target
                    ),
                    removal: Some(Removal::Access(offer.access.clone())),
                });
                doubts.extend(terms.doubts.iter().chain(&review_doubts).cloned());
                self.tokens.push(Arrival {
                    account: offer.account,
                    lifetime: terms.lifetime,
                    hops,
                    doubts,
                });
            }
        }
    }

    /// The hub's answer about a caller that asks for another account's token.
    fn review(
        &self,
        caller: AccountIndex,
        account: AccountIndex,
    ) -> Result<(Vec<Hop>, Vec<Doubt>), String> {
        let accounts = &self.search.accounts;
        let (Some(from), Some(to)) = (accounts.get(caller), accounts.get(account)) else {
            return Err("there is no such ServiceAccount".to_owned());
        };
        if caller == account {
            return Ok((Vec::new(), Vec::new()));
        }
        let rights = &self.search.rights;
        let actor = Actor::service_account(&from.namespace, &from.name);
        let granted = rights.granted(&actor);
        let request = token_request(&to.namespace, &to.name);
        // The hub reviews what is granted, not what the caller could grant itself.
        let review = granted
            .that_allow(&request)
            .find(|(set, _)| !matches!(set.source, crate::granted::Source::OwnGrant(_)));
        if let Some((set, rule)) = review {
            let distrusted = self.search.world.hub.distrusted.get(&actor);
            let doubts = distrusted.into_iter().cloned().collect();
            return Ok((set.hops(None, rule, 1), doubts));
        }
        if let Some((set, rule)) = granted.that_allow(&request).next() {
            return Ok((set.hops(None, rule, 1), Vec::new()));
        }
        let unread = rights.doubts.iter().chain(&granted.doubts);
        let distrusted = self.search.world.hub.distrusted.get(&actor);
        let doubts: Vec<Doubt> = unread.chain(distrusted).cloned().collect();
        match doubts.is_empty() {
            true => Err(format!(
                "caller {} may not create tokens of {}",
                from.full_name(),
                to.full_name()
            )),
            false => Ok((Vec::new(), doubts)),
        }
    }

    /// Tokens of accounts for any audience: those for the audience of the target.
    fn add_tokens(&mut self) {
        if self.target.cluster.is_none() {
            return;
        }
        let accounts = match &self.target.listed_accounts {
            Some(listed) => listed.clone(),
            None => self.accounts_with_tokens(),
        };
        for account in accounts {
            let ways = self.ways_to_account(account, false);
            if !ways.is_empty() {
                self.add_issued(account, ways);
            }
        }
    }

    /// Tokens that a Pod mounts or that a Secret holds.
    fn add_single_tokens(&mut self) {
        let audience = self.target.cluster.map(|cluster| cluster.audience.as_str());
        for node in &self.closure.single_tokens {
            match node {
                Node::Held(account, own) if Some(&**own) == audience => {
                    let ways = self.all_ways(node);
                    self.add_issued(*account, ways);
                }
                Node::Delivered(index) => {
                    let Some(delivered) = self.search.delivered.get(*index) else {
                        continue;
                    };
                    if delivered.target != *self.target.name {
                        continue;
                    }
                    for (hops, doubts) in self.all_ways(node) {
                        self.tokens.push(Arrival {
                            account: delivered.account,
                            lifetime: delivered.lifetime,
                            hops,
                            doubts,
                        });
                    }
                }
                _ => {}
            }
        }
    }

    /// Adds tokens for the target's audience, if the hub issues them for this account.
    fn add_issued(&mut self, account: AccountIndex, ways: Vec<WayTo>) {
        let (Some(cluster), Some(found)) = (self.target.cluster, self.search.accounts.get(account))
        else {
            return;
        };
        let (namespace, name) = (&*found.namespace, found.name.as_str());
        let audience = cluster.audience.as_str();
        let doubt = match self.search.fences.issue(namespace, name, audience) {
            Issue::Passes => None,
            Issue::Unknown(doubt) => Some(doubt),
            Issue::Refused(why) => {
                self.refused.get_or_insert(why);
                return;
            }
        };
        for (mut hops, mut doubts) in ways {
            hops.push(Hop::note(format!(
                "token of {} for the target's audience",
                found.full_name()
            )));
            doubts.extend(doubt.iter().chain(&found.doubt).cloned());
            self.tokens.push(Arrival {
                account,
                lifetime: SHORTEST,
                hops,
                doubts,
            });
        }
    }

    fn accounts_with_tokens(&self) -> Vec<AccountIndex> {
        let mut accounts = BTreeSet::new();
        for node in self.closure.nodes() {
            if let Node::Tokens(set) = node {
                accounts.extend(self.search.accounts.of_set(*set));
            }
        }
        accounts.into_iter().collect()
    }

    /// The ways to tokens of an account, and with `exchange` to a token for Keyferry.
    fn ways_to_account(&self, account: AccountIndex, exchange: bool) -> Vec<WayTo> {
        let one = Node::Tokens(AccountSet::One(account));
        let exchange = exchange.then_some(Node::Exchange(account));
        let wide = self.closure.wide_sets.iter().filter(|set| set.has(account));
        let wide = wide.map(|set| Node::Tokens(*set));
        let nodes = [one].into_iter().chain(wide).chain(exchange);
        let reached = nodes.filter_map(|node| Some((self.closure.cost(&node)?, node)));
        let reached: Vec<_> = reached.collect();
        let Some((_, best)) = reached.iter().min_by_key(|(cost, _)| *cost) else {
            return Vec::new();
        };
        let mut ways = vec![self.closure.way_to(best)];
        for (_, node) in &reached {
            self.add_direct(node, &mut ways);
        }
        ways
    }

    fn all_ways(&self, node: &Node) -> Vec<WayTo> {
        let mut ways = vec![self.closure.way_to(node)];
        self.add_direct(node, &mut ways);
        ways
    }

    /// Adds the direct steps to a node that are certain.
    fn add_direct(&self, node: &Node, ways: &mut Vec<WayTo>) {
        for (own, hops, doubts) in self.direct {
            if own != node || !doubts.is_empty() {
                continue;
            }
            let way: WayTo = (hops.to_vec(), BTreeSet::new());
            if !ways.contains(&way) {
                ways.push(way);
            }
        }
    }
}
