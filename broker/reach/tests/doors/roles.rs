//! A role at the cluster of a target: its tokens are another user there.

use super::asked::{line_at, with_target};
use super::snapshot::Snapshot;

const ROLE: &str = "
apiVersion: keyferry.dev/v1alpha1
kind: TargetCluster
metadata: {name: prod-view, uid: u-view, resourceVersion: '1', generation: 1, creationTimestamp: '2026-01-01T00:00:00Z'}
spec:
  sameAs: prod
  role: view
  audience: https://prod.test/roles/view
  allow: [{namespaces: [tenant-a], serviceAccounts: [reconciler], deliveries: [HTTP]}]
status: {issuer: https://hub.test}
---
apiVersion: keyferry.dev/v1alpha1
kind: TargetAccess
metadata: {name: view, namespace: tenant-a, uid: u-v, resourceVersion: '1', generation: 1, creationTimestamp: '2026-01-01T00:00:00Z'}
spec: {targetClusterRef: {name: prod-view}, serviceAccountName: reconciler, deliveries: [{name: http, type: HTTP}]}
---
apiVersion: keyferry.dev/v1alpha1
kind: AudiencePairing
metadata: {name: keyferry}
pairs:
  https://prod.test: [keyferry-system/keyferry-canary, tenant-a/reconciler, tenant-b/deployer]
  https://prod.test/roles/view: [tenant-a/reconciler]
";

const AUTHENTICATION: &str = "
apiVersion: apiserver.config.k8s.io/v1beta1
kind: AuthenticationConfiguration
jwt:
  - issuer:
      url: https://hub.test
      audiences: [https://prod.test, https://prod.test/roles/view]
      audienceMatchPolicy: MatchAny
    claimValidationRules: [{expression: claims.aud.size() == 1}]
    claimMappings:
      username: {expression: \"{'https://prod.test': 'hub:', 'https://prod.test/roles/view': 'hub:view:'}[claims.aud[0]] + claims.sub\"}
      groups: {expression: \"{'https://prod.test': ['hub:system:serviceaccounts'], 'https://prod.test/roles/view': ['hub:role:view']}[claims.aud[0]]\"}
";

const BOUND: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: viewers, namespace: apps}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: 'hub:role:view'}]
";

fn with_role() -> Snapshot {
    Snapshot {
        authentication: AUTHENTICATION.to_owned(),
        ..Snapshot::usual().and(ROLE)
    }
}

#[test]
fn a_role_has_the_rights_of_its_own_group_and_none_of_the_account() {
    let world = with_role().to_world();
    let account = "system:serviceaccount:tenant-a:reconciler";
    let base = line_at(&world, &with_target("prod"), account);
    assert!(base.starts_with("yes"), "{base}");
    let role = line_at(&world, &with_target("prod-view"), account);
    assert!(!role.starts_with("yes"), "{role}");
    let bound = with_role().and_at_target(BOUND).to_world();
    let role = line_at(&bound, &with_target("prod-view"), account);
    assert!(role.starts_with("yes"), "{role}");
    assert!(role.contains("RoleBinding apps/viewers"), "{role}");
}

#[test]
fn what_the_other_audiences_of_the_cluster_allow_is_asked_at_their_targets() {
    let world = with_role().to_world();
    let other = "system:serviceaccount:tenant-c:robot";
    let role = line_at(&world, &with_target("prod-view"), other);
    assert!(role.starts_with("undetermined"), "{role}");
    assert!(
        role.contains("accepts the audience https://prod.test too"),
        "{role}"
    );
}
