//! A digest of the inputs of an object. It distinguishes an object that is up to date from one that
//! was edited or whose inputs changed.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keyferry_api::config::{Delivery, canonical};
use serde_json::{Value, json};

use super::Snapshot;
use super::ownership::{EXPIRES_AT, KEY_ID, RENEW_AT, TARGET_ANNOTATION, TOKEN_ID};

/// The inputs of an object apart from its token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form {
    inputs: String,
    labels: Vec<(String, String)>,
    annotations: Vec<(String, String)>,
}

impl Form {
    /// Computes the form of an object without annotations, and of those that the access asks for.
    /// If the object contains a token, its data counts only in [`Form::digest_with`].
    pub(super) fn of(
        object: &Value,
        annotations: &Value,
        delivery: &Delivery,
        snapshot: &Snapshot<'_>,
    ) -> Self {
        let target = snapshot.target;
        let mut inputs = json!({
            "metadata": object["metadata"], "kind": object["kind"], "type": object["type"], "spec": object["spec"],
            "address": target.address, "serverName": target.tls_server_name, "proxy": target.proxy_url, "ca": snapshot.ca_pem,
            "audience": target.audience.as_str(), "account": snapshot.access.service_account.as_str(),
            "accountUid": snapshot.account_uid.as_str(), "shape": delivery.delivery_type.as_str(), "project": delivery.argo_cd.as_ref().map(|argo_cd| &argo_cd.project),
        });
        if !delivery.holds_credential() {
            inputs["data"] = object["data"].clone();
        }
        // Absent for other types, whose digests would change with it.
        if let Some(rules) = &target.client_certificates {
            inputs["lifetime"] = json!(rules.max_lifetime.as_secs());
        }
        let annotations = sorted_texts(annotations);
        // Absent without any, because the digests of objects that exist would change with it.
        if !annotations.is_empty() {
            inputs["annotations"] = json!(annotations);
        }
        let labels = object
            .pointer("/metadata/labels")
            .map_or_else(Vec::new, sorted_texts);
        Self {
            inputs: canonical(&inputs),
            labels,
            annotations,
        }
    }

    /// The digest for an object of this form with its current data, and with its current
    /// annotations about the token.
    pub(super) fn digest_with(&self, object: &Value) -> String {
        let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
        context.update(self.inputs.as_bytes());
        for field in ["data", "spec", "type"] {
            context.update(b"\n");
            context.update(canonical(object.get(field).unwrap_or(&Value::Null)).as_bytes());
        }
        for annotation in [EXPIRES_AT, KEY_ID, RENEW_AT, TARGET_ANNOTATION, TOKEN_ID] {
            context.update(b"\n");
            let value = object
                .pointer("/metadata/annotations")
                .and_then(|annotations| annotations.get(annotation));
            context.update(canonical(value.unwrap_or(&Value::Null)).as_bytes());
        }
        URL_SAFE_NO_PAD.encode(context.finish())
    }

    /// Whether the object has every label and annotation of this form.
    pub(super) fn stands_at(&self, object: &Value) -> bool {
        [("labels", &self.labels), ("annotations", &self.annotations)]
            .into_iter()
            .all(|(field, wanted)| {
                let there = object.pointer(&format!("/metadata/{field}"));
                wanted.iter().all(|(key, value)| {
                    there
                        .and_then(|there| there.get(key))
                        .and_then(Value::as_str)
                        == Some(value)
                })
            })
    }
}

/// The texts of a mapping, sorted by their names.
fn sorted_texts(mapping: &Value) -> Vec<(String, String)> {
    let entries = mapping.as_object().into_iter().flatten();
    let mut texts: Vec<_> = entries
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect();
    texts.sort();
    texts
}
