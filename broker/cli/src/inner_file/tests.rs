#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use insta::assert_snapshot;
use keyferry_kube_authn::Minor;
use keyferry_kube_authn::config;

use super::*;

const INNER: &str = "apiVersion: apiserver.config.k8s.io/v1beta1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: https://oidc.example.com
    audiences: [clusters]
  claimMappings:
    username:
      claim: sub
      prefix: \"org:\"
";

fn indented(by: usize) -> String {
    INNER
        .lines()
        .map(|line| format!("{}{line}\n", " ".repeat(by)))
        .collect()
}

fn in_base64(text: &str) -> String {
    STANDARD.encode(text)
}

/// What people have, with the line of `jwt:` in it, or the line of the value that is encoded.
fn wrappers() -> Vec<(&'static str, String, u64)> {
    let configmap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: oidc, namespace: garden}\n";
    let kubeadm =
        "kind: ClusterConfiguration\napiServer:\n  extraArgs:\n    authentication-config: /a\n";
    let kind_patch = format!("{kubeadm}---\n{INNER}");
    let kind_patch: String = kind_patch
        .lines()
        .map(|line| format!("    {line}\n"))
        .collect();
    vec![
        (
            "a ConfigMap",
            format!("{configmap}data:\n  config.yaml: |\n{}", indented(4)),
            8,
        ),
        (
            "a Secret",
            format!("kind: Secret\ndata:\n  a.yaml: {}\n", in_base64(INNER)),
            3,
        ),
        (
            "a Secret with text",
            format!("kind: Secret\nstringData:\n  a.yaml: |\n{}", indented(4)),
            6,
        ),
        (
            "the document of Talos",
            format!(
                "apiVersion: v1alpha1\nkind: KubeAuthenticationConfig\nconfiguration:\n{}",
                indented(2)
            ),
            6,
        ),
        (
            "a machine configuration, after another document",
            format!(
                "version: v1alpha1\nmachine: {{type: controlplane}}\n---\nmachine:\n  files:\n  - \
                 path: /var/a.yaml\n    content: |\n{}",
                indented(6)
            ),
            10,
        ),
        (
            "a KubeadmControlPlane",
            format!(
                "kind: KubeadmControlPlane\nspec:\n  kubeadmConfigSpec:\n    files:\n    - path: /a\n      \
                 content: |\n{}",
                indented(8)
            ),
            9,
        ),
        (
            "the same in base64",
            format!(
                "kind: KubeadmConfigTemplate\nspec:\n  template:\n    spec:\n      files:\n      - \
                 encoding: base64\n        content: {}\n",
                in_base64(INNER)
            ),
            7,
        ),
        (
            "a Cluster of kind",
            format!("kind: Cluster\nnodes:\n- kubeadmConfigPatches:\n  - |\n{kind_patch}"),
            12,
        ),
        (
            "cloud-init",
            format!(
                "#cloud-config\nwrite_files:\n- path: /a\n  content: |\n{}",
                indented(4)
            ),
            7,
        ),
        (
            "values of a chart",
            format!(
                "controlPlane:\n  apiServer:\n    authenticationConfig:\n{}",
                indented(6)
            ),
            6,
        ),
        (
            "a Secret with cloud-init",
            format!(
                "kind: Secret\ndata:\n  value: {}\n",
                in_base64(&format!("write_files:\n- content: |\n{}", indented(4)))
            ),
            3,
        ),
        (
            "a List",
            format!(
                "kind: List\nitems:\n- kind: ConfigMap\n  data:\n    a.yaml: |\n{}",
                indented(6)
            ),
            8,
        ),
        (
            "JSON",
            format!(
                "{}\n",
                serde_json::json!({"kind": "ConfigMap", "data": {"a": INNER}})
            ),
            1,
        ),
        (
            "line ends of Windows",
            format!("{configmap}data:\n  config.yaml: |\n{}", indented(4)).replace('\n', "\r\n"),
            8,
        ),
    ]
}

#[test]
fn an_inner_file_is_found_with_its_lines() {
    let wanted = config::load_configuration(INNER.as_bytes(), Minor::V1_34).unwrap();
    for (what, text, line) in wrappers() {
        let found = find(text.as_bytes());
        assert_eq!(found.len(), 1, "{what}");
        let inside = found[0].inside.as_ref().unwrap_or_else(|| panic!("{what}"));
        let loaded = config::load_configuration(&found[0].bytes, Minor::V1_34).unwrap();
        assert_eq!(loaded.configuration, wanted.configuration, "{what}");
        let position = loaded.positions["jwt"];
        let (found, _) = inside
            .lines
            .outer_position(Some(position.line), Some(position.column));
        assert_eq!(found, Some(line), "{what}: {inside:?}\n{text}");
        if matches!(inside.lines, InnerLines::Shifted { .. }) {
            let line = text
                .lines()
                .nth(usize::try_from(line).unwrap() - 1)
                .unwrap();
            assert_eq!(line.trim(), "jwt:", "{what}");
        }
    }
}

#[test]
fn the_place_is_named() {
    let places = wrappers().into_iter().map(|(what, text, _)| {
        let inside = find(text.as_bytes())[0].inside.clone().unwrap();
        format!("{what}: {}\n", inside.location)
    });
    assert_snapshot!("the-place-of-an-inner-file", places.collect::<String>());
}

#[test]
fn a_file_that_is_one_itself_stays_as_it_is() {
    let broken = INNER.replace("jwt:", "jwt: [");
    let with_more = format!(
        "{INNER}---\nkind: ConfigMap\ndata:\n  a: |\n{}",
        indented(4)
    );
    for text in [
        INNER,
        &broken,
        &with_more,
        "",
        "{}",
        "kind: ConfigMap\ndata: {a: b}\n",
        "a: [",
    ] {
        let found = find(text.as_bytes());
        assert_eq!(found.len(), 1);
        assert!(
            found[0].inside.is_none() && found[0].bytes == text.as_bytes(),
            "{text}"
        );
    }
}

#[test]
fn several_inner_files_are_all_found_and_none_is_chosen() {
    let text = format!(
        "kind: ConfigMap\ndata:\n  a.yaml: |\n{}  b.yaml: |\n{}",
        indented(4),
        indented(4)
    );
    assert_eq!(find(text.as_bytes()).len(), 2);
    let error = only(text.as_bytes(), Path::new("f"))
        .unwrap_err()
        .to_string();
    assert_snapshot!("several-inner-files", error);
}

#[test]
fn documents_inside_each_other_end_somewhere() {
    let mut text = INNER.to_owned();
    for _ in 0..40 {
        let inner: String = text.lines().map(|line| format!("  {line}\n")).collect();
        text = format!("kind: ConfigMap\ndata: |\n{inner}");
    }
    assert!(find(text.as_bytes())[0].inside.is_none());
}

#[test]
fn another_kind_is_named() {
    let fix = |text: &str| fix_for_other_file(text.as_bytes()).unwrap_or_default();
    let kubeadm = "kind: ClusterConfiguration\napiServer:\n  extraArgs:\n  - name: \
        authentication-config\n    value: /etc/kubernetes/auth.yaml\n";
    let kind = "kind: Cluster\nnodes:\n- kubeadmConfigPatches:\n  - |\n    apiServer:\n      \
        extraArgs:\n        authentication-config: /etc/a.yaml\n";
    let others = [
        "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthorizationConfiguration\n",
        kubeadm,
        kind,
        "kube-apiserver-arg:\n- authentication-config=/etc/rancher/a.yaml\n",
        "kind: ConfigMap\nmetadata: {name: x}\ndata: {a.yaml: b}\n",
        "{\"keys\": []}\n",
    ];
    let fixes = others.map(|text| format!("{text}fix: {}\n", fix(text)));
    assert_snapshot!("another-kind", fixes.join("\n"));
    for own in [INNER, "jwt: []\n", "- a\n", ""] {
        assert_eq!(fix(own), "", "{own}");
    }
}
