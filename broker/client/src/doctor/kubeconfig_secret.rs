//! Reads the kubeconfig in a Secret of the hub, as Flux does.

use base64::Engine;
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_hub::client::HubClient;
use keyferry_kube_authn::Code;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::doctor::diagnosis::Problem;
use crate::doctor::found_kubeconfig;
use crate::doctor::plan::{Plan, problem};

/// A Secret with a kubeconfig.
pub(crate) struct SecretRef<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// The key of the kubeconfig; without it, `value` or `value.yaml`.
    pub(crate) key: Option<&'a str>,
    /// What names the key.
    pub(crate) key_field: &'static str,
}

#[derive(Deserialize)]
struct Secret {
    #[serde(default)]
    data: std::collections::BTreeMap<String, SecretString>,
}

/// Reads the Secret as Flux does: the named key, else `value`, else `value.yaml`.
pub(crate) async fn read_secret(
    client: &HubClient,
    namespace: &Namespace,
    secret: &SecretRef<'_>,
    plan: &mut Plan,
) {
    // A tenant can write this name: in a path, it could lead to another namespace.
    let Ok(name) = ObjectName::new(secret.name) else {
        plan.problem = Some(problem(
            Code::FluxReferenceUnusable,
            format!("{:?} is not the name of a Secret", secret.name),
        ));
        return;
    };
    let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
    let read: Secret = match client.get_object(&path, "Secret").await {
        Ok(read) => read,
        Err(error) => return plan.note_unread(&format!("secret/{name}"), &error),
    };
    let unusable =
        |detail: String| problem(Code::KubeconfigUnusable, format!("secret/{name}: {detail}"));
    let text = match text_in(&read, secret) {
        Ok(text) => text,
        Err(fault) => {
            let fix = "name the key of the kubeconfig, or write the kubeconfig under value";
            plan.problem = Some(unusable(fault.to_string()).with_fix(fix));
            return;
        }
    };
    match found_kubeconfig::read(&text) {
        Ok(found) => {
            plan.take(found);
            plan.problem = plan.problem.take().map(|fault| Problem {
                detail: format!("secret/{name}: {}", fault.detail),
                ..fault
            });
            plan.target_is_tenants = true;
        }
        Err(error) => plan.problem = Some(unusable(error.to_string()).with_fix(error.fix())),
    }
}

/// Why a Secret has no text of a kubeconfig.
#[derive(Debug, thiserror::Error)]
enum SecretTextError {
    #[error("it has no key {wanted}; it has {there}: the key is named by {key_field}")]
    NoKey {
        wanted: String,
        there: String,
        key_field: &'static str,
    },
    #[error("its {0} is not text")]
    NotText(String),
}

fn text_in(read: &Secret, secret: &SecretRef<'_>) -> Result<String, SecretTextError> {
    let keys: &[&str] = match &secret.key {
        Some(key) => &[*key],
        None => &["value", "value.yaml"],
    };
    let found = keys
        .iter()
        .find_map(|key| Some((*key, read.data.get(*key)?)));
    let Some((key, data)) = found else {
        let there: Vec<&str> = read.data.keys().take(10).map(String::as_str).collect();
        return Err(SecretTextError::NoKey {
            wanted: keys.join(" or "),
            there: match there.as_slice() {
                [] => "no key at all".to_owned(),
                there => there.join(", "),
            },
            key_field: secret.key_field,
        });
    };
    base64::engine::general_purpose::STANDARD
        .decode(data.expose_secret())
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or_else(|| SecretTextError::NotText(key.to_owned()))
}
