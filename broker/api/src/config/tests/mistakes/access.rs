//! Mistakes in a TargetAccess.

use super::{case, check};

#[test]
fn of_an_access() {
    const REFERENCE: &str = "  targetClusterRef:\n    name: prod\n";
    const DELIVERY: &str = "    - name: on-request\n      type: HTTP\n";
    let delivery = |to: &str, path, problem, fix| {
        case(
            DELIVERY,
            format!("    - {}\n", to.replace('\n', "\n      ")),
            path,
            problem,
            fix,
        )
    };
    check(vec![
        case(
            "metadata:\n  name: prod\n  namespace: tenant-a\n",
            "metadata: #here\n  name: prod\n",
            "metadata.namespace",
            "missing",
            "tenant's namespace",
        ),
        case(
            "name: prod\n  namespace: tenant-a",
            "name: prod\n  namespace: a.b #here",
            "metadata.namespace",
            "lower-case",
            "tenant's namespace",
        ),
        case(
            "name: prod\n  namespace: tenant-a",
            "name: Prod #here\n  namespace: tenant-a",
            "metadata.name",
            "lower-case",
            "Kubernetes object",
        ),
        case(
            "name: prod\n  namespace: tenant-a",
            "name: prod\n  namespace: tenant-a\n  uid: x #here",
            "metadata.uid",
            "unknown field",
            "remove",
        ),
        case(
            REFERENCE,
            "  targetClusterRef:\n    name: prod\n    namespace: tenant-b #here\n",
            "spec.targetClusterRef.namespace",
            "unknown field",
            "remove",
        ),
        case(
            REFERENCE,
            "  targetClusterRef: [prod] #here\n",
            "spec.targetClusterRef",
            "a list where a mapping",
            "write a mapping",
        ),
        case(
            REFERENCE,
            "  targetClusterRef:\n    name: a/prod #here\n",
            "spec.targetClusterRef.name",
            "lower-case",
            "TargetCluster",
        ),
        case(
            "serviceAccountName: reconciler\n---",
            "serviceAccountName: tenant-b/reconciler #here\n---",
            "spec.serviceAccountName",
            "lower-case",
            "same namespace",
        ),
        case(
            "serviceAccountName: reconciler\n---",
            "serviceAccountName: true #here\n---",
            "spec.serviceAccountName",
            "boolean",
            "quotes",
        ),
        case(
            "callers: [notifier]",
            "callers: [a, tenant-b/notifier] #here",
            "spec.callers[1]",
            "lower-case",
            "without a namespace",
        ),
        case(
            "callers: [notifier]",
            "callers: [a, a] #here",
            "spec.callers[1]",
            "twice",
            "once",
        ),
        case(
            "callers: [notifier]",
            "callers: '*' #here",
            "spec.callers",
            "list is expected",
            "a list",
        ),
        case(
            "deletionPolicy: Drain",
            "deletionPolicy: Orphan #here",
            "spec.deletionPolicy",
            "not a valid value",
            "Drain or Immediate",
        ),
        case(
            "probe: Report",
            "probe: Require #here",
            "spec.probe",
            "is not a valid value",
            "Off or Report",
        ),
        case(
            "probe: Report",
            "probe: Sometimes #here",
            "spec.probe",
            "not a valid value",
            "Off or Report",
        ),
        case(
            "probe: Report",
            "probe: Off #here",
            "spec.probe",
            "boolean `false`",
            "quotes",
        ),
        case(
            "probe: Report\n  suspend: true",
            "probe: Report\n  suspend: \"yes\" #here",
            "spec.suspend",
            "true or false is expected",
            "true or false",
        ),
        delivery(
            "name: a\ntype: Http #here",
            "spec.deliveries[0].type",
            "not a delivery",
            "HTTP or Exec",
        ),
        delivery(
            "name: a\ntype: KubeConfigSecret #here",
            "spec.deliveries[0].type",
            "does not run on a file",
            "HTTP or Exec",
        ),
        delivery(
            "name: a\ntype: ArgoCDSecret #here\nobjectName: b\ntokenLifetime: 12h",
            "spec.deliveries[0].type",
            "does not run on a file",
            "HTTP or Exec",
        ),
        delivery(
            "name: a\ntype: HTTP\nobjectName: b #here",
            "spec.deliveries[0].objectName",
            "writes no object",
            "remove",
        ),
        delivery(
            "name: a\ntype: Exec\ntokenLifetime: 1h #here",
            "spec.deliveries[0].tokenLifetime",
            "from the target",
            "remove",
        ),
        delivery(
            "name: a\ntype: Exec\ntokenLifetime: 1d #here",
            "spec.deliveries[0].tokenLifetime",
            "from the target",
            "remove",
        ),
        delivery(
            "name: A #here\ntype: HTTP",
            "spec.deliveries[0].name",
            "lower-case",
            "name the delivery",
        ),
        delivery(
            "type: HTTP #here",
            "spec.deliveries[0].name",
            "missing",
            "add it",
        ),
        case(
            DELIVERY,
            "    - {name: a, type: HTTP}\n    - {name: a, type: Exec} #here\n",
            "spec.deliveries[1].name",
            "second delivery",
            "rename",
        ),
        case(
            "- name: on-request",
            "- nam: x #here\n      name: on-request",
            "spec.deliveries[0].nam",
            "unknown field",
            "spelling",
        ),
    ]);
}
