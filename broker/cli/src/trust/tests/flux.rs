//! The RBAC by which Flux impersonates at the target.

use insta::assert_snapshot;

use super::*;

/// What is printed for Flux at a target of this release: the text, and its documents.
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
    for release in ["1.35", "1.36"] {
        let (text, documents) = for_flux(&[&format!("--kubernetes={release}")]);
        assert_snapshot!(format!("for-flux-at-{release}"), text);
        let is_legacy = |document: &&serde_json::Value| {
            document["rules"].to_string().contains("\"impersonate\"")
        };
        // From 1.36 the legacy right is a comment, so that applying the stream does not grant it.
        let rights = documents.iter().filter(is_legacy).count();
        assert_eq!(rights, usize::from(release == "1.35"), "{release}");
    }
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
    assert_snapshot!("a-role-in-namespaces", with_notes(&narrow));
    let wide = with(&["--bind-cluster-wide"]).unwrap();
    assert_snapshot!("a-role-in-the-cluster", with_notes(&wide));
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
        assert!(!change.contains("authentication-config"), "{change}");
        let name = format.to_possible_value().unwrap();
        assert_snapshot!(
            format!("a-change-for-{}", name.get_name()),
            format!("first:\n{first}\nchange:\n{change}")
        );
    }
}

/// Rke2 mounts each existing file that an argument names, and such a mount hides a renamed file.
#[test]
fn rke2_gives_the_pod_a_path_that_the_node_does_not_have() {
    let text = printed(&[&HUB[..8], &["--format=rke2"]].concat())
        .unwrap()
        .text;
    assert_snapshot!("a-file-for-rke2", text);
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
fn for_an_unknown_release_both_rights_say_when_they_are_needed() {
    let (text, documents) = for_flux(&[]);
    let roles = kinds(&documents)
        .iter()
        .filter(|kind| **kind == "Role")
        .count();
    assert_eq!(roles, 2, "{text}");
    assert_snapshot!("for-flux-at-an-unknown-release", text);
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
