//! A list on its way into the store: what each object means, read as it comes, and only for those
//! that are not known so already. A whole fleet is listed anew after each failure of a watch, and
//! must not stand in memory twice, or as the API wrote it.

use std::collections::BTreeMap;

use keyferry_core::config::{StoredAccess, StoredTarget};
use keyferry_core::name::{AccessName, ObjectName};

use super::Collection;

/// Objects that have come so far.
pub struct Listing(pub(super) Listed);

pub(super) enum Listed {
    Targets(BTreeMap<ObjectName, Seen<StoredTarget>>),
    Accesses(BTreeMap<AccessName, Seen<StoredAccess>>),
}

pub(super) enum Seen<T> {
    /// It is in every part as the store has it.
    AsKnown,
    /// The store has none, or another.
    New(Box<T>),
}

impl Listing {
    /// None of a collection.
    pub fn of(collection: Collection) -> Self {
        Self(match collection {
            Collection::TargetClusters => Listed::Targets(BTreeMap::new()),
            Collection::TargetAccesses => Listed::Accesses(BTreeMap::new()),
        })
    }
}

impl<T: PartialEq> Seen<T> {
    pub(super) fn beside(known: Option<&T>, read: T) -> Self {
        if known == Some(&read) {
            Self::AsKnown
        } else {
            Self::New(Box::new(read))
        }
    }
}

/// What a list makes of what was known; what is not in it is gone.
pub(super) fn taken<K: Ord, T>(
    listed: BTreeMap<K, Seen<T>>,
    mut known: BTreeMap<K, T>,
) -> BTreeMap<K, T> {
    let one = |(name, seen)| match seen {
        Seen::New(read) => Some((name, *read)),
        Seen::AsKnown => known.remove(&name).map(|known| (name, known)),
    };
    listed.into_iter().filter_map(one).collect()
}
