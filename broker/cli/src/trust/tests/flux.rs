//! The RBAC by which Flux impersonates at the target.

use super::*;

/// What is printed for Flux at a target of this release, as documents.
fn for_flux(more: &[&str]) -> (String, Vec<serde_json::Value>) {
    let line = [&HUB[..], &["--flux-service-account=apps/deployer"], more].concat();
    let text = printed(&line).unwrap().text;
    let documents = serde_saphyr::from_multiple(&text).unwrap();
    (text, documents)
}

fn kinds(documents: &[serde_json::Value]) -> Vec<&str> {
    documents
        .iter()
        .map(|document| document["kind"].as_str().unwrap())
        .collect()
}

#[test]
fn flux_gets_what_it_needs_and_the_users_no_role() {
    let (_, documents) = for_flux(&["--kubernetes=1.35"]);
    assert_eq!(
        kinds(&documents),
        [
            "AuthenticationConfiguration",
            "Namespace",
            "ServiceAccount",
            "Role",
            "RoleBinding",
            "ClusterRole",
            "ClusterRoleBinding",
            "ClusterRoleBinding",
            "ServiceAccount"
        ]
    );
    assert_eq!(
        documents[3]["rules"],
        json!([{ "apiGroups": [""], "resources": ["serviceaccounts"],
            "resourceNames": ["deployer"], "verbs": ["impersonate"] }])
    );
    assert_eq!(
        documents[5]["rules"],
        json!([{ "nonResourceURLs": ["/livez/ping"], "verbs": ["head"] }])
    );
    let binding = &documents[7];
    assert_eq!(binding["roleRef"]["name"], "edit");
    assert_eq!(
        binding["subjects"],
        json!([{ "kind": "ServiceAccount", "namespace": "apps", "name": "deployer" }])
    );
}

#[test]
fn flux_finds_its_account_on_the_hub_too() {
    let line = [&HUB[..], &["--flux-service-account=apps/deployer"]].concat();
    let printed = printed(&line).unwrap();
    let file = printed
        .files
        .iter()
        .find(|file| file.name == "hub-service-account.yaml")
        .unwrap();
    let account: serde_json::Value = serde_saphyr::from_str(&file.text).unwrap();
    assert_eq!(
        account["metadata"],
        json!({ "name": "deployer", "namespace": "apps" })
    );
    assert!(
        printed.text.contains("Apply this on the hub too"),
        "{}",
        printed.text
    );
}

#[test]
fn a_role_is_bound_in_namespaces_unless_the_whole_cluster_is_named() {
    let with = |more: &[&str]| printed(&[&HUB[..8], &["--bind=edit"], more].concat());
    let error = with(&[]).unwrap_err();
    assert!(error.contains("does not say where to bind"), "{error}");
    let narrow = with(&["--bind-namespace=apps", "--bind-namespace=jobs"]).unwrap();
    let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(&narrow.text).unwrap();
    assert_eq!(
        kinds(&documents)[1..],
        ["Namespace", "RoleBinding", "Namespace", "RoleBinding"]
    );
    assert_eq!(documents[2]["roleRef"]["kind"], "ClusterRole");
    assert_eq!(documents[4]["metadata"]["namespace"], "jobs");
    let warned = |printed: &Printed, text: &str| printed.notes.iter().any(|it| it.contains(text));
    assert!(
        warned(&narrow, "impersonate ServiceAccounts"),
        "{:?}",
        narrow.notes
    );
    let wide = with(&["--bind-cluster-wide"]).unwrap();
    assert!(
        wide.text.contains("kind: ClusterRoleBinding"),
        "{}",
        wide.text
    );
    assert!(
        warned(&wide, "bound in the whole cluster"),
        "{:?}",
        wide.notes
    );
    assert!(with(&["--bind-cluster-wide", "--bind-namespace=apps"]).is_err());
}

#[test]
fn a_change_needs_neither_the_argument_nor_a_restart() {
    for format in ["kubeadm", "k3s", "rke2", "kind"] {
        let format = Format::from_str(format, false).unwrap();
        let text = |occasion| {
            let file = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n\
                        jwt: []\n";
            let output = distribution::render(format, file, &[], Minor::V1_36).unwrap();
            output.on(occasion).stream()
        };
        let (first, change) = (text(Occasion::First), text(Occasion::Change));
        assert!(first.contains("authentication-config"), "{first}");
        assert!(
            change.contains("No restart") && !change.contains("authentication-config"),
            "{change}"
        );
        assert!(change.contains("jwt: []"), "{change}");
    }
}

/// Rke2 mounts each existing file that an argument names, and such a mount hides a renamed file.
#[test]
fn rke2_gives_the_pod_a_path_that_the_node_does_not_have() {
    let text = printed(&[&HUB[..8], &["--format=rke2"]].concat())
        .unwrap()
        .text;
    assert!(text.contains("Write this document as /etc/rancher/rke2/keyferry/authentication.yaml"));
    let drop_in: serde_json::Value =
        serde_saphyr::from_str(text.rsplit("\n---\n").next().unwrap()).unwrap();
    assert_eq!(
        drop_in,
        json!({
            "kube-apiserver-arg+": ["authentication-config=/etc/kubernetes/keyferry/authentication.yaml"],
            "kube-apiserver-extra-mount+": ["/etc/rancher/rke2/keyferry:/etc/kubernetes/keyferry:ro"],
        })
    );
}

#[test]
fn from_1_36_flux_impersonates_by_the_constrained_right_alone() {
    let (text, documents) = for_flux(&["--kubernetes=1.36"]);
    assert_eq!(
        kinds(&documents),
        [
            "AuthenticationConfiguration",
            "Namespace",
            "ServiceAccount",
            "Role",
            "RoleBinding",
            "ClusterRole",
            "ClusterRoleBinding",
            "ClusterRole",
            "ClusterRoleBinding",
            "ClusterRoleBinding",
            "ServiceAccount"
        ]
    );
    let role = &documents[3];
    assert_eq!(role["metadata"]["namespace"], "apps");
    assert_eq!(
        role["rules"],
        json!([{ "apiGroups": ["authentication.k8s.io"], "resources": ["serviceaccounts"],
            "resourceNames": ["deployer"], "verbs": ["impersonate:serviceaccount"] }])
    );
    let on = documents[5]["rules"].as_array().unwrap();
    assert_eq!(
        (&on[0]["apiGroups"], &on[0]["resources"]),
        (&json!(["*"]), &json!(["*"]))
    );
    for verb in ["get", "list", "watch", "create", "patch", "delete"] {
        let verb = json!(format!("impersonate-on:serviceaccount:{verb}"));
        assert!(on[0]["verbs"].as_array().unwrap().contains(&verb), "{verb}");
    }
    assert_eq!(on[1]["verbs"], json!(["impersonate-on:serviceaccount:get"]));
    assert!(
        on[1]["nonResourceURLs"]
            .as_array()
            .unwrap()
            .contains(&json!("/apis"))
    );
    for bound in [&documents[4], &documents[6]] {
        let names: Vec<&str> = bound["subjects"]
            .as_array()
            .unwrap()
            .iter()
            .map(|subject| subject["name"].as_str().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "hub:system:serviceaccount:tenant-a:reconciler",
                "hub:system:serviceaccount:tenant-b:ci"
            ]
        );
    }
    // The legacy right is a comment, so that applying the stream does not grant it.
    let verbs = |document: &serde_json::Value| document["rules"].to_string();
    assert!(
        documents
            .iter()
            .all(|document| !verbs(document).contains("\"impersonate\""))
    );
    assert!(text.contains("\n#       - impersonate\n"), "{text}");
}

#[test]
fn for_an_unknown_release_both_rights_say_when_they_are_needed() {
    let (text, documents) = for_flux(&[]);
    let roles = kinds(&documents)
        .iter()
        .filter(|kind| **kind == "Role")
        .count();
    assert_eq!(roles, 2, "{text}");
    for said in [
        "# Kubernetes 1.36 and newer:",
        "# Before 1.36",
        "# Kubernetes before 1.36:",
    ] {
        assert!(text.contains(said), "{said} in {text}");
    }
    let names: Vec<String> = documents
        .iter()
        .skip(1)
        // The last one is for the hub, and has the name that it has at the target.
        .take(documents.len() - 2)
        .map(|document| format!("{}/{}", document["kind"], document["metadata"]["name"]))
        .collect();
    let unique: std::collections::BTreeSet<&String> = names.iter().collect();
    assert_eq!(unique.len(), names.len(), "{names:?}");
}
