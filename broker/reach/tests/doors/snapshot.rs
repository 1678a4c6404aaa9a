//! Worlds for tests: a usual one, with objects added and lists taken away.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_kube_rbac::{Attributes, ResourceRequest};
use keyferry_reach::ListKind;
use keyferry_reach::world::{TargetFiles, World};
use serde_json::Value;

const HUB: &str = include_str!("hub.yaml");
const PROD: &str = include_str!("prod.yaml");
const AUTHENTICATION: &str = include_str!("authentication.yaml");
const POLICIES: [&str; 9] = [
    include_str!("../../../../examples/admission-policies/audience.yaml"),
    include_str!("../../../../examples/admission-policies/author.yaml"),
    include_str!("../../../../examples/admission-policies/kept.yaml"),
    include_str!("../../../../examples/admission-policies/labels.yaml"),
    include_str!("../../../../examples/admission-policies/pairing-binding.yaml"),
    include_str!("../../../../examples/admission-policies/pairing.yaml"),
    include_str!("../../../../examples/admission-policies/retarget.yaml"),
    include_str!("../../../../examples/admission-policies/rights.yaml"),
    include_str!("../../../../examples/admission-policies/self.yaml"),
];

/// The objects of a world, and the lists that were not read.
#[derive(Clone)]
pub(crate) struct Snapshot {
    pub(crate) hub: Vec<Value>,
    pub(crate) target: Vec<Value>,
    pub(crate) authentication: String,
    pub(crate) release: &'static str,
    pub(crate) unread: BTreeSet<ListKind>,
    pub(crate) unread_of_target: BTreeSet<ListKind>,
}

pub(crate) fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple::<Value>(text)
        .unwrap_or_else(|error| panic!("{error}: {text}"))
        .into_iter()
        .filter(|document| !document.is_null())
        .collect()
}

/// The time of every question.
pub(crate) fn now() -> Timestamp {
    "2026-06-01T00:00:00Z".parse().unwrap()
}

pub(crate) fn delete_deployments(namespace: &str) -> Attributes {
    Attributes::resource(
        "delete",
        ResourceRequest {
            group: "apps".to_owned(),
            resource: "deployments".to_owned(),
            namespace: namespace.to_owned(),
            ..ResourceRequest::default()
        },
    )
}

impl Snapshot {
    /// A hub with two tenants, their target, and all admission policies.
    pub(crate) fn usual() -> Self {
        let policies = POLICIES.iter().flat_map(|text| documents(text));
        Self {
            hub: documents(HUB).into_iter().chain(policies).collect(),
            target: documents(PROD),
            authentication: AUTHENTICATION.to_owned(),
            release: "v1.37.2",
            unread: BTreeSet::new(),
            unread_of_target: BTreeSet::new(),
        }
    }

    /// With more objects of the hub. One of a kind and name that is there replaces it.
    pub(crate) fn and(mut self, text: &str) -> Self {
        for document in documents(text) {
            let same = |other: &Value| is_same(other, &document);
            self.hub.retain(|other| !same(other));
            self.hub.push(document);
        }
        self
    }

    /// With more RBAC of the target.
    pub(crate) fn and_at_target(mut self, text: &str) -> Self {
        self.target.extend(documents(text));
        self
    }

    /// Without the objects of a kind whose name begins so.
    pub(crate) fn without(mut self, kind: &str, name: &str) -> Self {
        self.hub.retain(|object| {
            let own = object["metadata"]["name"].as_str().unwrap_or_default();
            object["kind"] != kind || !own.starts_with(name)
        });
        self
    }

    /// With a list of the hub that was not read.
    pub(crate) fn unread(mut self, kind: ListKind) -> Self {
        self.unread.insert(kind);
        self
    }

    pub(crate) fn to_world(&self) -> World {
        let mut world = World::new(Namespace::new("keyferry-system").unwrap());
        for kind in ListKind::ALL {
            if !self.unread.contains(&kind) {
                world.hub.lists.note_whole(kind);
            }
        }
        let is_unread = |unread: &BTreeSet<ListKind>, object: &Value| {
            unread
                .iter()
                .any(|kind| object["kind"] == kind.object_kind())
        };
        for object in &self.hub {
            if !is_unread(&self.unread, object) {
                world.hub.add(object.clone()).unwrap();
            }
        }
        let mut files = TargetFiles::default();
        files.authentication = Some(self.authentication.clone().into_bytes());
        files.release = self.release.parse().ok();
        for kind in ListKind::RBAC {
            if !self.unread_of_target.contains(&kind) {
                files.lists.note_whole(kind);
            }
        }
        for object in &self.target {
            if !is_unread(&self.unread_of_target, object) {
                files.add(object.clone()).unwrap();
            }
        }
        let name = ObjectName::new("prod").unwrap();
        world.targets.insert(name, Arc::new(files));
        world
    }
}

fn is_same(one: &Value, other: &Value) -> bool {
    one["kind"] == other["kind"]
        && one["metadata"]["name"] == other["metadata"]["name"]
        && one["metadata"]["namespace"] == other["metadata"]["namespace"]
}
