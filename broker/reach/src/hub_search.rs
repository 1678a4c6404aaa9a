//! What a subject can become on the hub: a search over steps, the surest and shortest first.

mod by_door;

use std::cell::{OnceCell, RefCell};
use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::rc::Rc;

use keyferry_api::config::{AllowRule, CertificateSource, NamespaceRule, Policy, TokenIssuer};
use keyferry_api::name::ObjectName;

use crate::accounts::{AccountIndex, AccountSet, Accounts};
use crate::act::Act;
use crate::actor::{Actor, MetActor, MetActors};
use crate::cluster_rights::ClusterRights;
use crate::doors::impersonate::Impersonated;
use crate::doubt::Doubt;
use crate::edge::{Edge, Reached};
use crate::fence::Fences;
use crate::granted::{Granted, RuleSet, Scope};
use crate::keyferry_mint::{DeliveredSecret, Minting, Offer};
use crate::list::ListKind;
use crate::right::{Names, Right};
use crate::subject::Subject;
use crate::way::Hop;
use crate::world::World;

/// What was read of the hub, indexed for questions.
pub(crate) struct HubSearch<'w> {
    pub(crate) world: &'w World,
    pub(crate) policy: &'w Policy,
    pub(crate) rights: ClusterRights<'w>,
    pub(crate) fences: Fences<'w>,
    pub(crate) accounts: Accounts,
    pub(crate) pods_by_namespace: HashMap<&'w str, Vec<usize>>,
    pods_by_account: HashMap<AccountIndex, Vec<usize>>,
    pub(crate) delivered: Vec<DeliveredSecret>,
    pub(crate) offers: Vec<Offer>,
    offers_by_target: HashMap<ObjectName, Vec<usize>>,
    /// The names of the Secrets with CAs of targets.
    pub(crate) ca_secrets: BTreeSet<String>,
    keyferry: Actor,
    actors: MetActors,
    edges: RefCell<HashMap<MetActor, Rc<[Edge]>>>,
    steps_to_accounts: Vec<OnceCell<NextNode>>,
    /// Whether every TargetCluster was read, and has no mistake.
    pub(crate) are_targets_read: bool,
    /// Whether a rule of any TargetCluster goes by the labels of namespaces.
    pub(crate) selects_namespaces: bool,
    /// Whether any TargetCluster may have an issuer whose keys Keyferry manages.
    pub(crate) has_managed_issuer: bool,
}

/// Something that a subject has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Node {
    /// The hub's API as this user.
    Actor(MetActor),
    /// Tokens of accounts for any audience that the hub issues to them.
    Tokens(AccountSet),
    /// A token of an account for Keyferry.
    Exchange(AccountIndex),
    /// A token that a Pod mounts.
    Held(AccountIndex, Rc<str>),
    /// The token in a delivered Secret.
    Delivered(usize),
    /// A change of the hub.
    Act(Act),
    /// Perhaps everything.
    Anything,
}

/// How many doubts and steps a way has.
type Cost = (usize, usize);
/// The nodes whose steps are still to be followed, the best first.
type StepQueue = BinaryHeap<Reverse<(Cost, Node)>>;

/// The last step of the best way to a node.
#[derive(Debug)]
struct Step {
    cost: Cost,
    from: Option<Node>,
    hops: Rc<[Hop]>,
    doubts: Rc<[Doubt]>,
}

/// All that a subject has, with the best way to each.
#[derive(Debug, Default)]
pub(crate) struct Closure {
    steps: HashMap<Node, Step>,
    /// The nodes that are one token each.
    pub(crate) single_tokens: BTreeSet<Node>,
    /// The sets of accounts, but those of one, of which it has tokens, in order.
    pub(crate) wide_sets: Vec<AccountSet>,
    /// Whether any node is a token, and not a user of the hub's API alone.
    pub(crate) has_token: bool,
}

impl<'w> HubSearch<'w> {
    pub(crate) fn new(world: &'w World, policy: &'w Policy) -> Self {
        let hub = &world.hub;
        let rights = ClusterRights::new(None, &hub.rbac, &hub.lists);
        let fences = Fences::new(hub);
        let accounts = Accounts::new(hub, policy, &rights);
        let minting = Minting {
            hub,
            policy,
            rights: &rights,
            fences: &fences,
            accounts: &accounts,
        };
        let (offers, delivered) = (minting.offers(), minting.delivered());
        let mut pods_by_namespace: HashMap<&str, Vec<usize>> = HashMap::new();
        let mut pods_by_account: HashMap<AccountIndex, Vec<usize>> = HashMap::new();
        for (index, pod) in hub.pods.iter().enumerate() {
            let pods = pods_by_namespace.entry(&pod.namespace).or_default();
            pods.push(index);
            if let Some(account) = accounts.find(&pod.namespace, &pod.account) {
                pods_by_account.entry(account).or_default().push(index);
            }
        }
        let mut offers_by_target: HashMap<ObjectName, Vec<usize>> = HashMap::new();
        for (index, offer) in offers.iter().enumerate() {
            let of_target = offers_by_target.entry(offer.target.clone()).or_default();
            of_target.push(index);
        }
        let ca_secret = |source: &CertificateSource| match source {
            CertificateSource::Secret(name) => Some(name.to_string()),
            _ => None,
        };
        let targets = policy.targets.values();
        let is_whole = hub.lists.is_whole(ListKind::TargetClusters);
        let selects = |rule: &AllowRule| matches!(rule.namespaces, NamespaceRule::Selected(_));
        Self {
            are_targets_read: is_whole
                && (hub.target_names()).all(|name| policy.targets.contains_key(name)),
            selects_namespaces: !is_whole
                || (targets.clone()).any(|target| target.allow.iter().any(selects)),
            has_managed_issuer: !is_whole
                || (targets.clone()).any(|target| target.issuer != TokenIssuer::Hub),
            world,
            policy,
            fences,
            pods_by_namespace,
            pods_by_account,
            delivered,
            offers,
            offers_by_target,
            ca_secrets: targets
                .filter_map(|it| ca_secret(&it.certificate))
                .collect(),
            keyferry: Actor::user_named(&hub.account),
            actors: MetActors::default(),
            edges: RefCell::default(),
            steps_to_accounts: accounts.iter().map(|_| OnceCell::new()).collect(),
            accounts,
            rights,
        }
    }

    /// The offers for a target.
    pub(crate) fn offers_for(&self, target: &ObjectName) -> impl Iterator<Item = &Offer> {
        let indexes = self.offers_by_target.get(target).into_iter().flatten();
        indexes.filter_map(|index| self.offers.get(*index))
    }

    /// The rules with a right, and the names to which they are limited.
    pub(crate) fn rules_with<'a>(
        &self,
        granted: &'a Granted<'w>,
        right: Right,
    ) -> Vec<(&'a RuleSet<'w>, usize, Names<'w>)> {
        let mut found = Vec::new();
        if !granted.rights.has(right) {
            return found;
        }
        for set in &granted.sets {
            for (index, rule) in set.rules.iter().enumerate() {
                if self.rights.rights_of(rule).has(right) {
                    found.push((set, index, Names::of_rule(rule)));
                }
            }
        }
        found
    }

    /// Every subject that was read, or that a binding names, but Keyferry's own account.
    pub(crate) fn subjects(&self) -> BTreeSet<Subject> {
        let accounts = self.accounts.iter().map(|(_, account)| {
            Subject::ServiceAccount(account.namespace.to_string(), account.name.clone())
        });
        let users = self.rights.users.iter().map(|name| Subject::of_user(name));
        let groups = self.rights.groups.iter();
        let groups = groups.map(|name| Subject::Group((*name).to_owned()));
        let anybody = Subject::Group(crate::actor::AUTHENTICATED.to_owned());
        let all = accounts.chain(users).chain(groups).chain([anybody]);
        all.filter(|subject| Actor::of_subject(subject) != self.keyferry)
            .collect()
    }

    /// A user of the hub's API, as a node.
    pub(crate) fn node_of(&self, actor: Actor) -> Node {
        Node::Actor(self.actors.meet(actor))
    }

    /// The steps from a user of the hub's API.
    pub(crate) fn edges_of(&self, actor: &MetActor) -> Rc<[Edge]> {
        if let Some(known) = self.edges.borrow().get(actor) {
            return Rc::clone(known);
        }
        let edges: Rc<[Edge]> = self.find_edges(actor).into();
        let mut memo = self.edges.borrow_mut();
        memo.insert(actor.clone(), Rc::clone(&edges));
        edges
    }

    fn find_edges(&self, actor: &Actor) -> Vec<Edge> {
        let mut edges = Vec::new();
        if *actor == self.keyferry {
            let doubt = Doubt::fact(
                "Keyferry's own account is not evaluated",
                "docs/concepts/security.md says what a stolen one can do",
            );
            edges.push(Edge::doubtful(Reached::Anything, Vec::new(), doubt));
            return edges;
        }
        let granted = self.rights.granted(actor);
        for doubt in self.rights.doubts.iter().chain(&granted.doubts) {
            edges.push(Edge::doubtful(Reached::Anything, Vec::new(), doubt.clone()));
        }
        self.token_requests(&granted, &mut edges);
        self.run_pods(&granted, &mut edges);
        self.enter_pods(&granted, &mut edges);
        self.read_secrets(&granted, &mut edges);
        self.impersonate(&granted, &mut edges);
        self.use_controllers(&granted, &mut edges);
        self.change_policy(&granted, &mut edges);
        self.use_keys(&granted, &mut edges);
        self.approve_certificates(&granted, &mut edges);
        if let Some(doubt) = self.world.hub.distrusted.get(actor) {
            for edge in &mut edges {
                edge.doubts = edge.doubts.iter().chain([doubt]).cloned().collect();
            }
            let all = Edge::doubtful(Reached::Anything, Vec::new(), doubt.clone());
            edges.push(all);
        }
        edges
    }

    fn impersonate(&self, granted: &Granted<'w>, edges: &mut Vec<Edge>) {
        for (whom, hops) in self.rights.impersonated(granted) {
            let add_unread = |edges: &mut Vec<Edge>, scope: Scope<'w>| {
                self.add_unread_accounts(scope, &hops, edges);
            };
            match whom {
                Impersonated::Accounts(scope) => {
                    let accounts = Reached::Accounts(self.accounts.in_scope(scope));
                    edges.push(Edge::certain(accounts, hops.clone()));
                    add_unread(edges, scope);
                }
                Impersonated::Named(scope, name) => {
                    for account in self.accounts.named(scope, name) {
                        let accounts = Reached::Accounts(AccountSet::One(account));
                        edges.push(Edge::certain(accounts, hops.clone()));
                    }
                    add_unread(edges, scope);
                }
                Impersonated::Actor(actor) => {
                    let mut hops = hops;
                    hops.push(Hop::note(words_of(&actor)));
                    edges.push(Edge::certain(Reached::Actor(actor), hops));
                }
                Impersonated::Unknown(doubt) => {
                    edges.push(Edge::doubtful(Reached::Anything, hops, doubt));
                }
            }
        }
    }

    /// All that the subject can have.
    pub(crate) fn closure(&self, subject: &Subject) -> Closure {
        let (mut closure, mut queue) = self.start(subject);
        let actor = Actor::of_subject(subject);
        let is_superuser = self.rights.granted(&actor).is_superuser();
        self.extend(&mut closure, &mut queue, is_superuser);
        closure
    }

    /// What the subject has without a step.
    fn start(&self, subject: &Subject) -> (Closure, StepQueue) {
        let mut closure = Closure::default();
        let mut queue = BinaryHeap::new();
        let mut doubts: Rc<[Doubt]> = Rc::from([]);
        if let Subject::ServiceAccount(namespace, name) = subject {
            match self.accounts.find(namespace, name) {
                Some(account) => {
                    let known = self.accounts.get(account);
                    doubts = known.and_then(|it| it.doubt.clone()).into_iter().collect();
                    let node = Node::Exchange(account);
                    closure.begin(&mut queue, node, Rc::from([]), Rc::clone(&doubts));
                    self.start_pods(&mut closure, &mut queue, account);
                }
                None => {
                    let lists = &self.world.hub.lists;
                    if lists.is_whole_in(ListKind::ServiceAccounts, namespace) {
                        // It does not exist, so there is no token of it.
                        return (closure, queue);
                    }
                    doubts = Rc::from([Doubt::list_in(ListKind::ServiceAccounts, namespace)]);
                    let hops = Rc::from([]);
                    closure.begin(&mut queue, Node::Anything, hops, Rc::clone(&doubts));
                }
            }
        }
        let node = self.node_of(Actor::of_subject(subject));
        closure.begin(&mut queue, node, Rc::from([]), doubts);
        (closure, queue)
    }

    /// Adds all that the nodes of the queue lead to.
    fn extend(&self, closure: &mut Closure, queue: &mut StepQueue, is_superuser: bool) {
        while let Some(Reverse((cost, node))) = queue.pop() {
            if closure.steps.get(&node).is_none_or(|step| step.cost < cost) {
                continue;
            }
            for (next, hops, doubts) in self.next(&node, is_superuser) {
                closure.offer(queue, next, Some(&node), cost, hops, doubts);
            }
        }
    }

    /// The tokens that Pods of the account mount already.
    fn start_pods(&self, closure: &mut Closure, queue: &mut StepQueue, account: AccountIndex) {
        for &pod in self.pods_by_account.get(&account).into_iter().flatten() {
            let Some(found) = self.world.hub.pods.get(pod) else {
                continue;
            };
            let note = Hop {
                door: Some(3),
                text: format!("its Pod {}/{}", found.namespace, found.name),
                removal: None,
            };
            for (node, _, doubts) in self.tokens_of_pod(pod) {
                if matches!(node, Node::Held(..) | Node::Tokens(_)) {
                    closure.begin(queue, node, Rc::from([note.clone()]), doubts);
                }
            }
        }
        let Some(found) = self.accounts.get(account) else {
            return;
        };
        let lists = &self.world.hub.lists;
        if !lists.is_whole_in(ListKind::Pods, &found.namespace) {
            let doubts = Rc::from([Doubt::list_in(ListKind::Pods, &found.namespace)]);
            let node = Node::Tokens(AccountSet::One(account));
            closure.begin(queue, node, Rc::from([]), doubts);
        }
    }

    /// The nodes one step on, with the hops and doubts of the step.
    pub(crate) fn next(&self, node: &Node, is_superuser: bool) -> Vec<NextNode> {
        match node {
            Node::Actor(actor) => {
                let mut next = Vec::new();
                for edge in self.edges_of(actor).iter() {
                    self.push_nodes(edge, is_superuser, &mut next);
                }
                next
            }
            // Whoever has every right already gains none as an account.
            Node::Tokens(AccountSet::All | AccountSet::Namespace(..)) if is_superuser => Vec::new(),
            Node::Tokens(set) => {
                let mut next = Vec::new();
                for index in self.accounts.of_set(*set) {
                    let Some((actor, note, doubts)) = self.step_to(index) else {
                        continue;
                    };
                    let exchange = Node::Exchange(index);
                    next.push((actor.clone(), Rc::clone(note), Rc::clone(doubts)));
                    next.push((exchange, Rc::clone(note), Rc::clone(doubts)));
                }
                next
            }
            Node::Exchange(_)
            | Node::Held(..)
            | Node::Delivered(_)
            | Node::Act(_)
            | Node::Anything => Vec::new(),
        }
    }

    pub(crate) fn push_nodes(&self, edge: &Edge, is_superuser: bool, next: &mut Vec<NextNode>) {
        let as_is = |node| (node, Rc::clone(&edge.hops), Rc::clone(&edge.doubts));
        match &edge.reached {
            Reached::Tokens(set) => next.push(as_is(Node::Tokens(*set))),
            Reached::Accounts(_) if is_superuser => {}
            Reached::Accounts(set) => {
                for index in self.accounts.of_set(*set) {
                    if let Some((actor, note, doubts)) = self.step_to(index) {
                        let hops = edge.hops.iter().chain(note.iter());
                        let hops = hops.cloned().collect();
                        next.push((actor.clone(), hops, joined(&edge.doubts, doubts)));
                    }
                }
            }
            Reached::Actor(actor) => next.push(as_is(self.node_of(actor.clone()))),
            Reached::Pod(pod) => {
                for (node, hops, doubts) in self.tokens_of_pod(*pod) {
                    let hops = edge.hops.iter().chain(hops.iter()).cloned().collect();
                    next.push((node, hops, joined(&edge.doubts, &doubts)));
                }
            }
            Reached::Delivered(index) => next.push(as_is(Node::Delivered(*index))),
            Reached::Act(act) => next.push(as_is(Node::Act(act.clone()))),
            Reached::Anything => next.push(as_is(Node::Anything)),
        }
    }

    /// What the tokens that a Pod mounts give.
    fn tokens_of_pod(&self, pod: usize) -> Vec<NextNode> {
        let Some(found) = self.world.hub.pods.get(pod) else {
            return Vec::new();
        };
        let account = self.accounts.find(&found.namespace, &found.account);
        let Some((account, (actor, note, doubts))) =
            account.and_then(|account| Some((account, self.step_to(account)?)))
        else {
            return Vec::new();
        };
        let Some(audiences) = &found.tokens else {
            let name = format!("{}/{}", found.namespace, found.name);
            let unread = Doubt::fact(
                format!("the volumes of Pod {name} were not read"),
                format!(
                    "kubectl get pod {} -n {} -o yaml",
                    found.name, found.namespace
                ),
            );
            let node = Node::Tokens(AccountSet::One(account));
            return vec![(node, Rc::clone(note), Rc::from([unread]))];
        };
        audiences
            .iter()
            .map(|audience| {
                let node = match audience {
                    None => actor.clone(),
                    Some(audience) if *audience == self.world.hub.caller_audience => {
                        Node::Exchange(account)
                    }
                    Some(audience) => Node::Held(account, audience.as_str().into()),
                };
                (node, Rc::clone(note), Rc::clone(doubts))
            })
            .collect()
    }

    /// The step to the hub's API as an account.
    fn step_to(&self, index: AccountIndex) -> Option<&NextNode> {
        let (account, step) = (
            self.accounts.get(index)?,
            self.steps_to_accounts.get(index)?,
        );
        Some(step.get_or_init(|| {
            let actor = Actor::service_account(&account.namespace, &account.name);
            let note = Hop::note(format!("as {}", account.full_name()));
            let doubts = account.doubt.iter().cloned().collect();
            (self.node_of(actor), Rc::from([note]), doubts)
        }))
    }
}

/// A node, and the hops and doubts of the step to it.
pub(crate) type NextNode = (Node, Rc<[Hop]>, Rc<[Doubt]>);

/// The doubts of both, without a copy if one has none.
fn joined(one: &Rc<[Doubt]>, other: &Rc<[Doubt]>) -> Rc<[Doubt]> {
    match (one.is_empty(), other.is_empty()) {
        (true, _) => Rc::clone(other),
        (_, true) => Rc::clone(one),
        _ => one.iter().chain(other.iter()).cloned().collect(),
    }
}

fn words_of(actor: &Actor) -> String {
    let groups: Vec<&str> = actor
        .groups
        .iter()
        .map(String::as_str)
        .filter(|group| *group != crate::actor::AUTHENTICATED)
        .collect();
    match (actor.user.as_str(), groups.as_slice()) {
        ("", []) => "as any user".to_owned(),
        ("", groups) => format!("as a member of {}", groups.join(", ")),
        (user, []) => format!("as User {user}"),
        (user, groups) => format!("as User {user} of {}", groups.join(", ")),
    }
}

impl Closure {
    fn begin(&mut self, queue: &mut StepQueue, node: Node, hops: Rc<[Hop]>, doubts: Rc<[Doubt]>) {
        self.offer(queue, node, None, (0, 0), hops, doubts);
    }

    fn offer(
        &mut self,
        queue: &mut StepQueue,
        node: Node,
        from: Option<&Node>,
        before: Cost,
        hops: Rc<[Hop]>,
        doubts: Rc<[Doubt]>,
    ) {
        let cost = (before.0 + doubts.len(), before.1 + 1);
        let step = Step {
            cost,
            from: from.cloned(),
            hops,
            doubts,
        };
        match self.steps.entry(node.clone()) {
            Entry::Occupied(known) if known.get().cost <= cost => return,
            Entry::Occupied(mut known) => {
                known.insert(step);
            }
            Entry::Vacant(free) => {
                free.insert(step);
            }
        }
        self.has_token |= !matches!(node, Node::Actor(_) | Node::Act(_) | Node::Anything);
        match node {
            Node::Held(..) | Node::Delivered(_) => {
                self.single_tokens.insert(node.clone());
            }
            Node::Tokens(set @ (AccountSet::Namespace(..) | AccountSet::All)) => {
                if let Err(place) = self.wide_sets.binary_search(&set) {
                    self.wide_sets.insert(place, set);
                }
            }
            _ => {}
        }
        queue.push(Reverse((cost, node)));
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.steps.keys()
    }

    pub(crate) fn cost(&self, node: &Node) -> Option<(usize, usize)> {
        self.steps.get(node).map(|step| step.cost)
    }

    /// The steps to a node, and their doubts.
    pub(crate) fn way_to(&self, node: &Node) -> (Vec<Hop>, BTreeSet<Doubt>) {
        let (mut parts, mut doubts) = (Vec::new(), BTreeSet::new());
        let mut next = Some(node);
        while let Some(step) = next.and_then(|node| self.steps.get(node)) {
            parts.push(Rc::clone(&step.hops));
            doubts.extend(step.doubts.iter().cloned());
            next = step.from.as_ref();
        }
        let hops = parts.iter().rev().flat_map(|part| part.iter().cloned());
        (hops.collect(), doubts)
    }
}
