#![allow(clippy::unwrap_used)]

use keyferry_api::config::{Policy, read};
use keyferry_api::name::{ClusterDns, Namespace, ObjectName};
use keyferry_api::reason::Reason;
use serde_json::{Value, json};

use super::{Collection, FleetIndex, InputsError};
use crate::authorise::tests::hub;

const DNS: &str = "prod.fleet.example.com";

fn policy(identity: &str, more: &str) -> Policy {
    let text = format!(
        "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nhubName: hub\n\
         publicURL: https://keyferry.example.com\n\
         discovery: {{tls: {{certFile: a, keyFile: b}}}}\napi: {{tls: {{certFile: a, keyFile: b}}}}\n---\n\
         apiVersion: keyferry.dev/v1alpha1\nkind: TargetCluster\nmetadata: {{name: prod}}\n\
         spec:\n  address: https://prod.example.com\n  audience: prod\n{identity}\
         \x20 allow:\n    - {{namespaces: [tenant-a], serviceAccounts: [reconciler]}}\n{more}"
    );
    read(&text).unwrap_or_else(|error| panic!("{error}")).policy
}

fn access(namespace: &str, name: &str) -> String {
    format!(
        "---\napiVersion: keyferry.dev/v1alpha1\nkind: TargetAccess\n\
         metadata: {{name: {name}, namespace: {namespace}}}\n\
         spec: {{targetClusterRef: {{name: prod}}, serviceAccountName: reconciler}}\n"
    )
}

fn identity() -> String {
    format!("  identity: {{clusterName: prod, clusterDNS: {DNS}, environment: production}}\n")
}

fn fleet() -> Policy {
    let accesses = [
        access("tenant-b", "x"),
        access("tenant-a", "b"),
        access("tenant-a", "a"),
        access("tenant-ab", "a"),
    ];
    policy(&identity(), &accesses.concat())
}

fn json_of(collection: Result<Collection, InputsError>) -> Value {
    serde_json::from_slice(collection.unwrap().bytes()).unwrap()
}

#[test]
fn a_cluster_reads_its_names() {
    let policy = fleet();
    let target = policy.targets.values().next().unwrap();
    let read = super::cluster_inputs(&target.name, target.identity.as_ref().unwrap());
    let wanted = json!({ "inputs": [{
        "id": "prod", "clusterDNS": DNS, "clusterName": "prod", "environment": "production",
    }] });
    assert_eq!(json_of(read), wanted);
}

#[test]
fn a_cluster_reads_the_accesses_that_policy_grants() {
    let policy = fleet();
    let target = policy.targets.values().next().unwrap();
    let read = super::access_inputs(&policy, &FleetIndex::of(&policy), &hub(), "hub", target);
    let entry = |name: &str| {
        json!({
            "id": format!("tenant-a.{name}"), "name": name, "namespace": "tenant-a",
            "serviceAccountName": "reconciler",
            "username": "hub:system:serviceaccount:tenant-a:reconciler",
        })
    };
    assert_eq!(json_of(read), json!({ "inputs": [entry("a"), entry("b")] }));
}

#[test]
fn a_namespace_reads_its_own_granted_targets_alone() {
    let policy = fleet();
    let targets = |namespace: &str| {
        let namespace = Namespace::new(namespace).unwrap();
        json_of(super::target_inputs(&policy, &hub(), "hub", &namespace))
    };
    let read = targets("tenant-a");
    let ids: Vec<&Value> = read["inputs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["id"])
        .collect();
    assert_eq!(ids, ["a", "b"]);
    assert_eq!(
        read["inputs"][0],
        json!({
            "id": "a", "access": "a", "target": "prod", "address": "https://prod.example.com",
            "audience": "prod", "serviceAccountName": "reconciler",
            "username": "hub:system:serviceaccount:tenant-a:reconciler",
            "clusterName": "prod", "clusterDNS": DNS, "environment": "production",
        })
    );
    for empty in ["tenant-b", "tenant-ab", "nowhere"] {
        assert_eq!(targets(empty), json!({ "inputs": [] }), "{empty}");
    }
}

#[test]
fn a_dns_name_of_two_targets_belongs_to_neither() {
    let mut policy = fleet();
    let dns = ClusterDns::new(DNS).unwrap();
    let index = FleetIndex::of(&policy);
    assert_eq!(index.target(&dns).unwrap().unwrap().as_str(), "prod");
    assert!(!index.conflicts(&dns));
    let mut other = policy.targets.values().next().unwrap().clone();
    other.name = ObjectName::new("aaa").unwrap();
    policy.targets.insert(other.name.clone(), other);
    let index = FleetIndex::of(&policy);
    assert_eq!(
        index.target(&dns).unwrap_err().reason(),
        Reason::IdentityConflict
    );
    assert!(index.conflicts(&dns));
    let unknown = ClusterDns::new("other.example.com").unwrap();
    assert_eq!(index.target(&unknown), Ok(None));
}
