//! A list that is being read into the store, object by object. It keeps only the objects that
//! differ from the store's. After each failure of a watch the whole fleet is listed again, and must
//! not be in memory twice or in the API's format.

use std::collections::BTreeMap;

use keyferry_api::config::{StoredAccess, StoredTarget};
use keyferry_api::name::{AccessName, ObjectName};

/// A kind of object in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collection {
    /// TargetClusters.
    TargetClusters,
    /// TargetAccesses of all namespaces.
    TargetAccesses,
}

/// The objects that were listed so far.
pub struct Listing(pub(super) Listed);

pub(super) enum Listed {
    Targets(BTreeMap<ObjectName, ListedObject<StoredTarget>>),
    Accesses(BTreeMap<AccessName, ListedObject<StoredAccess>>),
}

pub(super) enum ListedObject<T> {
    /// The object equals the one in the store.
    AsKnown,
    /// The object is new or differs.
    New(Box<T>),
}

impl Listing {
    /// Creates an empty listing of a collection.
    pub fn of_collection(collection: Collection) -> Self {
        Self(match collection {
            Collection::TargetClusters => Listed::Targets(BTreeMap::new()),
            Collection::TargetAccesses => Listed::Accesses(BTreeMap::new()),
        })
    }
}

impl<T: PartialEq> ListedObject<T> {
    pub(super) fn merge_newer(known: Option<&T>, read: T) -> Self {
        if known == Some(&read) {
            Self::AsKnown
        } else {
            Self::New(Box::new(read))
        }
    }
}

/// Combines a complete list with the known objects; those that are not listed are dropped.
pub(super) fn merge_listing<K: Ord, T>(
    listed: BTreeMap<K, ListedObject<T>>,
    mut known: BTreeMap<K, T>,
) -> BTreeMap<K, T> {
    let one = |(name, seen)| match seen {
        ListedObject::New(read) => Some((name, *read)),
        ListedObject::AsKnown => known.remove(&name).map(|known| (name, known)),
    };
    listed.into_iter().filter_map(one).collect()
}
