//! The search from one subject, apart for each door that the subject opens itself.

use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;

use super::{Closure, HubSearch, NextNode, Node, Step};
use crate::actor::Actor;
use crate::doubt::Doubt;
use crate::subject::Subject;
use crate::way::Hop;

impl HubSearch<'_> {
    /// What each door leads the subject to; `None` is any door. No search goes on as the subject
    /// itself, so what another door gives is under that door alone.
    pub(crate) fn closures_by_door(&self, subject: &Subject) -> Vec<(Option<u8>, Closure)> {
        let (start, _) = self.start(subject);
        let own_actor = Actor::of_subject(subject);
        let is_superuser = self.rights.granted(&own_actor).is_superuser();
        let own = self.node_of(own_actor);
        let mut nodes: Vec<(&Node, &Step)> = start.steps.iter().collect();
        nodes.sort_by_key(|(node, _)| *node);
        let mut by_door: BTreeMap<Option<u8>, Vec<NextNode>> = BTreeMap::new();
        for (node, step) in nodes {
            if *node != own {
                let first = (node.clone(), Rc::clone(&step.hops), Rc::clone(&step.doubts));
                by_door.entry(first_door(&first)).or_default().push(first);
                continue;
            }
            for (next, hops, doubts) in self.next(node, false) {
                let doubts = step.doubts.iter().chain(doubts.iter()).cloned().collect();
                let next = (next, hops, doubts);
                by_door.entry(first_door(&next)).or_default().push(next);
            }
        }
        let search = |(door, first): (Option<u8>, Vec<NextNode>)| {
            let (mut closure, mut queue) = (Closure::default(), BinaryHeap::new());
            closure.block(own.clone());
            for (node, hops, doubts) in first {
                closure.begin(&mut queue, node, hops, doubts);
            }
            self.extend(&mut closure, &mut queue, is_superuser);
            closure.steps.remove(&own);
            (door, closure)
        };
        by_door.into_iter().map(search).collect()
    }
}

/// The door of a first step.
fn first_door((node, hops, doubts): &NextNode) -> Option<u8> {
    let stated = hops.iter().find_map(|hop| hop.door);
    let doubted = || {
        doubts.iter().find_map(|doubt| match doubt {
            Doubt::Door { door, .. } => Some(*door),
            _ => None,
        })
    };
    stated.or_else(doubted).or(match node {
        Node::Exchange(_) => Some(1),
        // The Pods of an account, of which some were not read.
        Node::Tokens(_) | Node::Held(..) => Some(3),
        Node::Actor(_) | Node::Act(_) | Node::Delivered(_) | Node::Anything => None,
    })
}

impl Closure {
    /// Keeps the search from a node.
    fn block(&mut self, node: Node) {
        let step = Step {
            cost: (0, 0),
            from: None,
            hops: Rc::<[Hop]>::from([]),
            doubts: Rc::<[Doubt]>::from([]),
        };
        self.steps.insert(node, step);
    }
}
