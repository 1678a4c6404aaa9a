//! The folders and changes that `who-can`, `reach` and `what-if` are asked about.

use std::path::Path;

const EMPTY_LIST: &str = "apiVersion: v1\nitems: []\nkind: List\nmetadata: {resourceVersion: ''}\n";

/// Writes a snapshot of a hub and its target, one in which lists are missing, cut or have the data of
/// a Secret, and one that is no YAML.
pub(crate) fn write_snapshots(folder: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../reach/tests/doors");
    let read = |name: &str| std::fs::read_to_string(source.join(name)).unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let policies = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/admission-policies");
    let mut admission = Vec::new();
    for entry in std::fs::read_dir(policies).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            admission.push(std::fs::read_to_string(path).unwrap());
        }
    }
    write("fleet/hub/objects.yaml", &read("hub.yaml"));
    write("fleet/hub/policies.yaml", &admission.join("---\n"));
    for kind in keyferry_reach::ListKind::ALL {
        write(&format!("fleet/hub/{}.yaml", kind.resource()), EMPTY_LIST);
    }
    for snapshot in ["fleet", "partial"] {
        let target = format!("{snapshot}/targets/prod");
        write(
            &format!("{target}/authentication.yaml"),
            &read("authentication.yaml"),
        );
        write(&format!("{target}/release"), "v1.37.2\n");
        write(
            &format!("{target}/rbac/clusterroles.yaml"),
            &read("prod.yaml"),
        );
        for list in ["clusterrolebindings", "roles", "rolebindings"] {
            write(&format!("{target}/rbac/{list}.yaml"), EMPTY_LIST);
        }
    }
    write("partial/hub/objects.yaml", &read("hub.yaml"));
    write(
        "partial/hub/rolebindings.yaml",
        "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Pod\n",
    );
    write(
        "partial/hub/secrets.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: b}\ndata: {a: aHVudGVyMg==}\n",
    );
    write("broken/hub/pods.yaml", "a: [");
    write_changes(&write);
    let large = std::fs::File::create(folder.join("large.yaml")).unwrap();
    large.set_len(256 << 20).unwrap();
}

/// The changes that `what-if` is asked about.
fn write_changes(write: &dyn Fn(&str, &str)) {
    let rbac = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role";
    let role = |rules: &str| {
        format!("{rbac}\nmetadata: {{name: ci, namespace: tenant-a}}\nrules: [{rules}]\n")
    };
    let mint = role("{apiGroups: [''], resources: [serviceaccounts/token], verbs: [create]}");
    let binding = "---\n# The account of the pipeline.\n\n\
        apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: ci, namespace: tenant-a}\n\
        roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: ci}\nsubjects: [{kind: ServiceAccount, name: ci, namespace: tenant-a}]\n";
    write("change.yaml", &format!("{mint}{binding}"));
    write(
        "cut.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a, name",
    );
    write(
        "cut-list.yaml",
        "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Pod\n",
    );
    write("empty.yaml", "# nothing\n");
    write("twice.yaml", &format!("{mint}---\n{mint}"));
    write(
        "typing-error.yaml",
        &role("{apiGroup: [''], resources: [pods], verbs: [create]}"),
    );
    write(
        "labels.yaml",
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: a, labels: text}\n",
    );
    write(
        "unjudged.yaml",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: '[a](b) @all `c`', namespace: tenant-a}\n---\n\
         apiVersion: rbac.authorization.k8s.io/v2\nkind: ClusterRole\nmetadata: {name: later}\n---\n\
         apiVersion: v1\nkind: ConfigMap\nmetadata: {name: harmless, namespace: tenant-a}\n",
    );
    write(
        "target-change.yaml",
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: rbac.authorization.k8s.io/v1\n  kind: ClusterRole\n  metadata: {name: edit}\n  \
         rules: [{apiGroups: [apps], resources: [deployments], verbs: [get, create]}]\n",
    );
    write(
        "allow.yaml",
        "- {subject: tenant-a/ci, target: prod, door: 2}\n",
    );
}
