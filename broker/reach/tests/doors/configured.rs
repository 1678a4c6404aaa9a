//! A world whose targets and accesses are those of a configuration file.

use keyferry_api::config;
use keyferry_reach::ListKind;
use keyferry_reach::world::World;

use super::acts::web_may;
use super::asked::{line, rule, with_right};
use super::snapshot::Snapshot;

/// The same target and accesses as in the usual world.
const FILE: &str = r"
apiVersion: config.keyferry.dev/v1alpha1
kind: ServerConfiguration
hubName: hub
publicURL: https://keyferry.test
discovery: {tls: {secretName: tls}}
api: {tls: {secretName: tls}}
---
apiVersion: keyferry.dev/v1alpha1
kind: TargetCluster
metadata: {name: prod}
spec:
  address: https://prod.test:6443
  audience: https://prod.test
  allow:
    - {namespaces: [tenant-a], serviceAccounts: [reconciler], deliveries: [HTTP]}
---
apiVersion: keyferry.dev/v1alpha1
kind: TargetAccess
metadata: {name: prod, namespace: tenant-a}
spec: {targetClusterRef: {name: prod}, serviceAccountName: reconciler, callers: [caller, stranger], deliveries: [{name: http, type: HTTP}]}
";

fn configured(snapshot: Snapshot) -> World {
    let snapshot = snapshot
        .unread(ListKind::TargetClusters)
        .unread(ListKind::TargetAccesses);
    let mut world = snapshot.to_world();
    world.hub.issuer = Some("https://hub.test".to_owned());
    world.use_configuration(config::read(FILE).unwrap().policy);
    world
}

#[test]
fn a_file_gives_the_ways_that_the_same_objects_give() {
    let of_hub = Snapshot::usual().to_world();
    let of_file = configured(Snapshot::usual());
    for subject in ["tenant-a/caller", "tenant-a/reconciler", "tenant-a/other"] {
        assert_eq!(line(&of_file, subject), line(&of_hub, subject), "{subject}");
    }
    assert!(line(&of_file, "tenant-a/caller").starts_with("yes"));
}

/// Keyferry reads none of them then, so who writes them opens nothing.
#[test]
fn an_object_that_is_written_beside_a_file_opens_no_door() {
    let keyferry = "apiGroups: [keyferry.dev]";
    let rules = [
        rule(keyferry, "targetclusters", "patch"),
        rule(keyferry, "targetaccesses", "create"),
    ]
    .join(", ");
    let snapshot = || {
        web_may()
            .and(&with_right("", &rules))
            .without("ValidatingAdmissionPolicyBinding", "keyferry-author")
    };
    let of_hub = line(&snapshot().to_world(), "tenant-a/ci");
    assert!(of_hub.starts_with("yes"), "{of_hub}");
    let of_file = line(&configured(snapshot()), "tenant-a/ci");
    assert!(of_file.starts_with("no"), "{of_file}");
}
