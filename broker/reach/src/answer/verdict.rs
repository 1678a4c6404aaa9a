//! The three answers.

use std::collections::BTreeSet;

use crate::doubt::Doubt;
use crate::way::{Hop, Removal};

/// One way from a subject to a request at a target. Every step of it was seen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    /// The steps on the hub, up to the token.
    pub hub: Vec<Hop>,
    /// The user that the token is at the target.
    pub user: String,
    /// The steps at the target.
    pub target: Vec<Hop>,
}

/// Yes, no or undetermined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is a way.
    Yes {
        /// The ways: each direct one, and the shortest of the others.
        ways: Vec<Way>,
        /// Whether there are more than were kept.
        has_more: bool,
    },
    /// Every way is refuted.
    No {
        /// The way that came farthest; `None` if no door leads to a token for the target.
        nearest_miss: Option<String>,
    },
    /// Neither is known.
    Undetermined {
        /// The smallest set of what would decide it.
        doubts: BTreeSet<Doubt>,
    },
}

impl Verdict {
    /// What takes each way away.
    pub(crate) fn removals(&self) -> Vec<BTreeSet<Removal>> {
        let Self::Yes { ways, .. } = self else {
            return Vec::new();
        };
        ways.iter()
            .map(|way| {
                let hops = way.hub.iter().chain(&way.target);
                hops.filter_map(|hop| hop.removal.clone()).collect()
            })
            .collect()
    }
}
