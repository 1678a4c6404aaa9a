//! One step from an identity to others.

use std::rc::Rc;

use crate::accounts::AccountSet;
use crate::act::Act;
use crate::actor::Actor;
use crate::doubt::Doubt;
use crate::way::Hop;

/// What a step leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// Tokens of these accounts for any audience that the hub issues to them.
    Tokens(AccountSet),
    /// The hub's API as one of these accounts.
    Accounts(AccountSet),
    /// The hub's API as this user.
    Actor(Actor),
    /// The tokens that a Pod mounts, by its index.
    Pod(usize),
    /// The token in the object that a delivery writes, by the index of the delivered object.
    Delivered(usize),
    /// A change of the hub, after which more doors may be open.
    Act(Act),
    /// Perhaps everything: the step is not evaluated.
    Anything,
}

/// A step. Without doubts it is certain.
#[derive(Clone, Debug)]
pub(crate) struct Edge {
    pub(crate) reached: Reached,
    pub(crate) hops: Rc<[Hop]>,
    pub(crate) doubts: Rc<[Doubt]>,
}

impl Edge {
    pub(crate) fn certain(reached: Reached, hops: Vec<Hop>) -> Self {
        Self {
            reached,
            hops: hops.into(),
            doubts: Rc::from([]),
        }
    }

    pub(crate) fn doubtful(reached: Reached, hops: Vec<Hop>, doubt: Doubt) -> Self {
        Self {
            reached,
            hops: hops.into(),
            doubts: Rc::from([doubt]),
        }
    }
}
