//! Reads a SveltosCluster, whose kubeconfig is in a Secret of its own namespace.

use serde_json::Value;

use super::{
    Choice, ImportError, Imported, field_error, metadata_text, printable_name, read_secret, text_of,
};

/// Whether a document is a SveltosCluster.
pub(super) fn is_cluster(document: &Value) -> bool {
    text_of(document, "kind") == "SveltosCluster"
        && text_of(document, "apiVersion").starts_with("lib.projectsveltos.io/")
}

/// The SveltosCluster and the Secret of a List that has these two.
pub(super) fn cluster_with_secret(document: &Value) -> Option<(&Value, &Value)> {
    if !text_of(document, "kind").ends_with("List") {
        return None;
    }
    let [first, second] = document.get("items")?.as_array()?.as_slice() else {
        return None;
    };
    let (cluster, secret) = if is_cluster(first) {
        (first, second)
    } else {
        (second, first)
    };
    let is_secret = text_of(secret, "kind") == "Secret" && text_of(secret, "apiVersion") == "v1";
    (is_cluster(cluster) && is_secret).then_some((cluster, secret))
}

/// Explains why a SveltosCluster without its Secret cannot be imported.
pub(super) fn lacking_secret(cluster: &Value) -> ImportError {
    match secret_name(cluster) {
        Ok(name) => field_error(
            "the SveltosCluster",
            format!(
                "has no address: its kubeconfig is in Secret {} of its namespace; give both in one \
                 List, as kubectl get sveltoscluster/NAME secret/NAME -o yaml prints it",
                printable_name(&name)
            ),
        ),
        Err(error) => error,
    }
}

/// Reads the kubeconfig in the Secret that the SveltosCluster names.
pub(super) fn read_sveltos_cluster(
    cluster: &Value,
    secret: &Value,
    choice: Choice<'_>,
) -> Result<Imported, ImportError> {
    let name = secret_name(cluster)?;
    if metadata_text(secret, "name") != name {
        let fix = format!(
            "is not {}, which the SveltosCluster names",
            printable_name(&name)
        );
        return Err(field_error("the Secret's name", fix));
    }
    if metadata_text(secret, "namespace") != metadata_text(cluster, "namespace") {
        let fix = "is not that of the SveltosCluster, which uses no Secret of another namespace";
        return Err(field_error("the Secret's namespace", fix));
    }
    let spec = cluster.get("spec").unwrap_or(&Value::Null);
    let key = Some(text_of(spec, "kubeconfigKeyName")).filter(|key| !key.is_empty());
    let choice = Choice {
        key: choice.key.or(key),
        ..choice
    };
    let mut imported = read_secret(secret, choice)?;
    metadata_text(cluster, "name").clone_into(&mut imported.name);
    Ok(imported)
}

fn secret_name(cluster: &Value) -> Result<String, ImportError> {
    let spec = cluster.get("spec").unwrap_or(&Value::Null);
    if spec.get("pullMode") == Some(&Value::Bool(true)) {
        let fix = "is true, so Sveltos itself has no kubeconfig; give one of the cluster";
        return Err(field_error("spec.pullMode", fix));
    }
    Ok(match text_of(spec, "kubeconfigName") {
        "" => format!("{}-sveltos-kubeconfig", metadata_text(cluster, "name")),
        name => name.to_owned(),
    })
}
