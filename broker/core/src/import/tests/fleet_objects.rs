//! Objects of Flux, Open Cluster Management and Sveltos.

use super::*;

fn config_map(data: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "prod", "namespace": "apps" }, "data": data })
}

fn managed_cluster(configs: Value) -> Value {
    json!({
        "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster", "metadata": { "name": "prod" },
        "spec": { "hubAcceptsClient": true, "managedClusterClientConfigs": configs },
    })
}

fn sveltos(spec: Value) -> Value {
    json!({ "apiVersion": "lib.projectsveltos.io/v1beta1", "kind": "SveltosCluster", "metadata": { "name": "prod", "namespace": "fleet" }, "spec": spec })
}

fn sveltos_secret(name: &str, namespace: &str, keys: &[&str]) -> Value {
    let mut secret = secret(
        keys[0],
        &kubeconfig(cluster(), json!({ "token": "secret" })),
    );
    for key in &keys[1..] {
        secret["data"][*key] = json!("c2VjcmV0");
    }
    secret["metadata"] = json!({ "name": name, "namespace": namespace });
    secret
}

fn list(items: [Value; 2]) -> Value {
    json!({ "apiVersion": "v1", "kind": "List", "items": items })
}

/// Whether the TargetCluster has a CA, what was left out, and the warnings.
fn summary(document: &Value) -> Result<String, ImportError> {
    let mut read = read_import(document.to_string().as_bytes(), Choice::default())?;
    let text = read.render_target(None, &Audience::new("https://prod").unwrap(), now())?;
    assert!(
        !text.contains("secret") && text.contains("name: prod\n"),
        "{text}"
    );
    Ok(format!(
        "{}, left out: {}; {}",
        if text.contains("BEGIN CERTIFICATE") {
            "CA"
        } else {
            "no CA"
        },
        read.dropped.join(", "),
        read.warnings.join("; ")
    ))
}

#[test]
fn objects_of_flux_ocm_and_sveltos_give_address_and_ca_and_no_credential() {
    let address = "https://prod.example.com:6443";
    let ca64 = STANDARD.encode(ca());
    let usual = sveltos_secret("prod-sveltos-kubeconfig", "fleet", &["re-kubeconfig"]);
    let other = sveltos_secret("other", "fleet", &["mine", "token"]);
    let no_ca = "no CA certificates are named, so only the system's roots are trusted";
    let by_agent = "hubAcceptsClient is not true, so no admin has accepted the cluster that \
        reported this address";
    let by_flag = "audiences is not carried over: --audience must be the one that the target \
        accepts";
    let unaccepted = json!({
        "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster", "metadata": { "name": "prod" },
        "spec": { "managedClusterClientConfigs": [{ "url": address, "caBundle": ca64 }] },
    });
    let whole = json!({
        "provider": "generic", "address": address, "ca.crt": ca(), "audiences": "https://secret",
        "serviceAccountName": "secret", "token": "secret",
    });
    let named = json!({ "kubeconfigName": "other", "kubeconfigKeyName": "mine" });
    let of_sveltos = "CA, left out: a bearer token, disable-compression; ";
    for (document, expected) in [
        (
            config_map(whole),
            format!("CA, left out: audiences, serviceAccountName, token; {by_flag}"),
        ),
        (
            config_map(json!({ "provider": "generic", "address": address })),
            format!("no CA, left out: ; {no_ca}"),
        ),
        (
            managed_cluster(json!([{ "url": address, "caBundle": ca64, "token": "secret" }])),
            "CA, left out: token; ".to_owned(),
        ),
        (
            managed_cluster(json!([{ "url": address }])),
            format!("no CA, left out: ; {no_ca}"),
        ),
        (unaccepted, format!("CA, left out: ; {by_agent}")),
        (list([sveltos(json!({})), usual]), of_sveltos.to_owned()),
        (list([other, sveltos(named)]), of_sveltos.to_owned()),
    ] {
        assert_eq!(summary(&document).unwrap(), expected, "{document}");
    }
}

#[test]
fn what_cannot_be_imported_of_them_is_refused_with_its_reason() {
    let address = "https://prod.example.com:6443";
    let huge = "x".repeat(super::super::MAX_IMPORT_BYTES);
    let own = sveltos_secret("prod-sveltos-kubeconfig", "fleet", &["re-kubeconfig"]);
    let foreign = sveltos_secret("prod-sveltos-kubeconfig", "kube-system", &["re-kubeconfig"]);
    let two_keys = sveltos_secret("prod-sveltos-kubeconfig", "fleet", &["a", "b"]);
    let hostile = json!("x\u{1b}[2J$(reboot)\u{202e}");
    let key = |name| sveltos(json!({ "kubeconfigKeyName": name }));
    let generic = |mut data: Value| {
        data["provider"] = json!("generic");
        config_map(data)
    };
    let pem = json!([{ "url": address, "caBundle": ca() }]);
    let several = json!([{ "url": address }, { "url": hostile }]);
    let clear = format!(
        "several addresses; leave only the one that this hub reaches: {address}, x[2J$(reboot)"
    );
    for (document, problem) in [
        (
            json!({ "apiVersion": "v1", "kind": "ConfigMap" }),
            "data is missing",
        ),
        (
            config_map(json!({ "config.yaml": "a" })),
            "data.provider is missing",
        ),
        (
            config_map(json!({ "provider": "aws", "cluster": "arn" })),
            "data.provider is not generic",
        ),
        (generic(json!({})), "data.address is missing"),
        (
            generic(json!({ "address": 1 })),
            "data.address is not a text",
        ),
        (
            generic(json!({ "address": "http://prod" })),
            "is not an https URL",
        ),
        (
            generic(json!({ "address": address, "ca.crt": "secret" })),
            "the CA certificates: ",
        ),
        (
            generic(json!({ "address": address, "ca.crt": huge })),
            "at most 2 MiB",
        ),
        (managed_cluster(json!([])), "is empty: the cluster's agent"),
        (
            managed_cluster(json!(["secret"])),
            "has an item that is no object",
        ),
        (
            managed_cluster(json!([{ "caBundle": "" }])),
            "managedClusterClientConfigs[].url is missing",
        ),
        (managed_cluster(several), clear.as_str()),
        (managed_cluster(pem), "are PEM itself"),
        (
            sveltos(json!({ "kubeconfigName": hostile })),
            "is in Secret x[2J$(reboot) of its namespace",
        ),
        (
            sveltos(json!({ "pullMode": true })),
            "spec.pullMode is true",
        ),
        (
            list([sveltos(json!({ "kubeconfigName": "b" })), own.clone()]),
            "the Secret's name is not b",
        ),
        (
            list([sveltos(json!({})), foreign]),
            "the Secret's namespace is not that",
        ),
        (
            list([key(&hostile), own.clone()]),
            "data.x[2J$(reboot) is not there",
        ),
        (list([sveltos(json!({})), two_keys]), "with --key: a, b"),
        (list([own.clone(), own]), "List with 2 items"),
        (
            json!({ "apiVersion": "evil.example/v1", "kind": "ManagedCluster" }),
            "the input is no kubeconfig",
        ),
    ] {
        let refused = summary(&document).unwrap_err().to_string();
        assert!(refused.contains(problem), "{problem}: {refused}");
        let is_plain = |letter: char| letter.is_ascii() && !letter.is_ascii_control();
        assert!(refused.chars().all(is_plain), "{refused:?}");
        assert!(!refused.contains("c2VjcmV0"), "{refused}");
    }
}
