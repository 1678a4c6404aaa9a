//! Writes the TargetCluster for an imported cluster.

use jiff::Timestamp;
use keyferry_api::audience::Audience;
use keyferry_api::config;
use keyferry_api::name::ObjectName;
use keyferry_keys::ca_bundle::CaBundle;
use serde::Serialize;
use serde_json::Value;

use super::encoding::{base64_problem, decode_base64};
use super::proposals::{proposed_address, proposed_name};
use super::{ImportError, Imported, field_error};
use crate::address_warning::address_warning;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Object<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    name: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    address: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_server_name: Option<&'a str>,
    #[serde(rename = "proxyURL", skip_serializing_if = "Option::is_none")]
    proxy_url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ca_bundle: Option<&'a str>,
    audience: &'a str,
}

/// The configuration that precedes the object when it is checked.
pub(crate) const CONFIG_HEADER: &str = "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nhubName: hub\npublicURL: https://keyferry.example\n\
                    discovery: {tls: {certFile: a, keyFile: b}}\napi: {tls: {certFile: a, keyFile: b}}\n---\n";

impl Imported {
    /// The apiserver's address as the input states it.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The TargetCluster as YAML, checked with the configuration reader. It has no allow rules, so
    /// it grants no access.
    ///
    /// # Errors
    /// [`ImportError`] names the value that a TargetCluster cannot have.
    pub fn render_target(
        &mut self,
        name: Option<&str>,
        audience: &Audience,
        now: Timestamp,
    ) -> Result<String, ImportError> {
        self.write_target(name, audience, now).map(|(text, _)| text)
    }

    /// The same TargetCluster as a value, with its CA certificates in `spec.caBundle`.
    ///
    /// # Errors
    /// As [`Imported::render_target`].
    pub fn target_cluster(
        &mut self,
        name: &ObjectName,
        audience: &Audience,
        now: Timestamp,
    ) -> Result<Value, ImportError> {
        self.write_target(Some(name.as_str()), audience, now)
            .map(|(_, object)| object)
    }

    fn write_target(
        &mut self,
        name: Option<&str>,
        audience: &Audience,
        now: Timestamp,
    ) -> Result<(String, Value), ImportError> {
        let name = name.unwrap_or(&self.name);
        ObjectName::new(name).map_err(|error| {
            let fix = proposed_name(name).map_or_else(
                || "give another with --name".to_owned(),
                |proposed| format!("give another with --name, such as --name {proposed}"),
            );
            field_error("the cluster's name", format!("{error}; {fix}"))
        })?;
        let address = config::server_address(&self.server).map_err(|problem| {
            let problem = match proposed_address(&self.server) {
                Some(proposed) if config::server_address(&proposed).is_ok() => {
                    format!("{problem}; write {proposed}")
                }
                _ => problem.to_string(),
            };
            field_error("server", problem)
        })?;
        self.warnings.extend(address_warning(&address));
        let proxy_url = self
            .proxy_url
            .as_deref()
            .map(config::proxy_address)
            .transpose();
        let proxy_url = proxy_url.map_err(|problem| field_error("the proxy's URL", problem))?;
        let ca_bundle = match &self.ca {
            None => None,
            Some(data) => {
                let pem = decode_base64(data)
                    .map_err(|_| field_error("the CA certificates", base64_problem(data)))?;
                let bundle = CaBundle::from_pem(&pem, now).map_err(ImportError::Authority)?;
                if bundle.ignored_blocks() > 0 {
                    self.dropped
                        .push("the text beside the CA certificates".to_owned());
                }
                Some(bundle.to_pem())
            }
        };
        let object = Object {
            api_version: "keyferry.dev/v1alpha1",
            kind: "TargetCluster",
            metadata: Metadata { name },
            spec: Spec {
                address: &address,
                tls_server_name: self.tls_server_name.as_deref(),
                proxy_url: proxy_url.as_deref(),
                ca_bundle: ca_bundle.as_deref(),
                audience: audience.as_str(),
            },
        };
        let unwritten = || ImportError::Mistakes("it cannot be written".to_owned());
        let text = serde_saphyr::to_string(&object).map_err(|_| unwritten())?;
        let value = serde_json::to_value(&object).map_err(|_| unwritten())?;
        // Sorted, because the order of a map is not guaranteed.
        self.dropped.sort();
        match config::read(&format!("{CONFIG_HEADER}{text}")) {
            Ok(_) => Ok((text, value)),
            Err(error) => Err(ImportError::Mistakes(error.to_string())),
        }
    }
}
