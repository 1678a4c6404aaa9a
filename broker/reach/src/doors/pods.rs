//! Doors 3 and 4: who may run a Pod gets tokens of every account of the namespace, and who may
//! enter a Pod gets those that it mounts.
//!
//! A running Pod of these rights is assumed to pass other admission policies and webhooks, and its
//! image to have a program that reads a file.

use std::rc::Rc;

use crate::doubt::Doubt;
use crate::edge::{Edge, Reached};
use crate::granted::{Granted, RuleSet, Scope};
use crate::hub_search::HubSearch;
use crate::list::ListKind;
use crate::right::{Names, Right};
use crate::way::Hop;
use crate::world::Pod;

const RUN: u8 = 3;
const ENTER: u8 = 4;

impl<'w> HubSearch<'w> {
    pub(crate) fn run_pods(&self, granted: &Granted<'w>, edges: &mut Vec<Edge>) {
        for (set, index, names) in self.rules_with(granted, Right::RunPod) {
            if names.allow_unnamed() {
                let hops = set.hops(None, index, RUN);
                let accounts = self.accounts.in_scope(set.scope);
                edges.push(Edge::certain(Reached::Tokens(accounts), hops.clone()));
                self.add_unread_accounts(set.scope, &hops, edges);
            }
        }
        // Which workloads exist is not read.
        for (set, index, _) in self.rules_with(granted, Right::EditWorkload) {
            let doubt = Doubt::fact(
                format!("workloads {} were not read", set.scope.words()),
                "look for Deployments and the like whose Pods it could change",
            );
            let hops = set.hops(None, index, RUN);
            let accounts = self.accounts.in_scope(set.scope);
            edges.push(Edge::doubtful(Reached::Tokens(accounts), hops, doubt));
        }
    }

    pub(crate) fn enter_pods(&self, granted: &Granted<'w>, edges: &mut Vec<Edge>) {
        for (set, index, names) in self.rules_with(granted, Right::EnterPod) {
            self.add_pods(set, index, names, None, edges);
        }
        for (set, index, names) in self.rules_with(granted, Right::MayEnterPod) {
            let doubt = Doubt::fact(
                "get on pods/exec is enough on some releases, and pods/attach with some programs",
                "use create on pods/exec, or take the right away",
            );
            self.add_pods(set, index, names, Some(&doubt), edges);
        }
        for (set, index, names) in self.rules_with(granted, Right::NodeProxy) {
            if set.scope == Scope::Cluster {
                self.add_node_pods(set, index, names, None, edges);
            }
        }
        for (set, index, names) in self.rules_with(granted, Right::MayNodeProxy) {
            if set.scope == Scope::Cluster {
                let doubt = Doubt::fact(
                    "get on nodes/proxy is enough for the kubelet's WebSockets on some releases",
                    "take the right away",
                );
                self.add_node_pods(set, index, names, Some(&doubt), edges);
            }
        }
    }

    fn add_pods(
        &self,
        set: &RuleSet<'w>,
        index: usize,
        names: Names<'w>,
        doubt: Option<&Doubt>,
        edges: &mut Vec<Edge>,
    ) {
        let hops = set.hops(None, index, ENTER);
        let pods = match set.scope {
            Scope::Namespace(namespace) => self.pods_by_namespace.get(namespace).cloned(),
            _ => Some((0..self.world.hub.pods.len()).collect()),
        };
        for pod in pods.into_iter().flatten() {
            let found = self.world.hub.pods.get(pod);
            if let Some(found) = found.filter(|found| names.allow(&found.name)) {
                self.add_pod(pod, found, &hops, doubt, edges);
            }
        }
        self.add_unread_pods(set.scope, &hops, edges);
    }

    fn add_node_pods(
        &self,
        set: &RuleSet<'w>,
        index: usize,
        names: Names<'w>,
        doubt: Option<&Doubt>,
        edges: &mut Vec<Edge>,
    ) {
        let hops = set.hops(None, index, ENTER);
        for (pod, found) in self.world.hub.pods.iter().enumerate() {
            let is_there = match &found.node {
                Some(node) => names.allow(node),
                None => false,
            };
            if is_there {
                self.add_pod(pod, found, &hops, doubt, edges);
            }
        }
        self.add_unread_pods(Scope::Cluster, &hops, edges);
    }

    fn add_pod(
        &self,
        index: usize,
        pod: &Pod,
        hops: &[Hop],
        doubt: Option<&Doubt>,
        edges: &mut Vec<Edge>,
    ) {
        let mut doubts: Vec<Doubt> = doubt.into_iter().cloned().collect();
        match pod.phase.as_deref() {
            Some("Succeeded" | "Failed") => return,
            Some("Running") => {}
            _ => doubts.push(Doubt::fact(
                format!("Pod {}/{} is not known to run", pod.namespace, pod.name),
                "read it again once it runs",
            )),
        }
        let mut hops = hops.to_vec();
        hops.push(Hop::note(format!("Pod {}/{}", pod.namespace, pod.name)));
        edges.push(Edge {
            reached: Reached::Pod(index),
            hops: hops.into(),
            doubts: Rc::from(doubts),
        });
    }

    fn add_unread_pods(&self, scope: Scope<'w>, hops: &[Hop], edges: &mut Vec<Edge>) {
        let lists = &self.world.hub.lists;
        let doubt = match scope {
            Scope::Namespace(namespace) if lists.is_whole_in(ListKind::Pods, namespace) => return,
            Scope::Namespace(namespace) => Doubt::list_in(ListKind::Pods, namespace),
            _ if lists.is_whole(ListKind::Pods) => return,
            _ => Doubt::list(ListKind::Pods),
        };
        let accounts = self.accounts.in_scope(scope);
        let reached = Reached::Tokens(accounts);
        edges.push(Edge::doubtful(reached, hops.to_vec(), doubt));
        self.add_unread_accounts(scope, hops, edges);
    }
}
