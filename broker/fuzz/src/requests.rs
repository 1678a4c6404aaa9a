//! What a client sends or is given: the form of the token API, kubectl's input, the client file.

use keyferry_api::foreign_text::escape_json;
use keyferry_core::client_document::{ClientDocument, MAX_CLIENT_FILE_BYTES};
use keyferry_core::exchange::{ClientCertificate, MAX_FORM_BYTES, parse_exchange};
use keyferry_core::exec_credential::{ExecInfo, MAX_EXEC_INFO_BYTES};
use serde_json::{Value, json};

use crate::{assert_shown, tokens};

/// A form that is accepted means what another parser of forms reads, and its token is not printed.
/// What is refused without a certificate may be accepted with one, and never the other way.
pub(crate) fn exchange_form(data: &[u8]) {
    let read = parse_exchange(data, ClientCertificate::Absent);
    let certified = parse_exchange(data, ClientCertificate::Presented);
    if let Err(error) = &read {
        assert_shown(&error.to_string(), 200);
    }
    assert!(read.is_err() || certified.is_ok());
    let Ok(request) = certified else {
        return;
    };
    assert!(data.len() <= MAX_FORM_BYTES);
    // Of a parameter that is given twice, at most one has a value.
    let value = |name: &str| {
        let mut values = url::form_urlencoded::parse(data)
            .filter(|(key, value)| key == name && !value.is_empty())
            .map(|(_, value)| value.into_owned());
        let value = values.next();
        assert_eq!(values.next(), None, "{name} has two values");
        value
    };
    assert_eq!(value("audience"), Some(request.access.to_string()));
    assert_eq!(value("scope").as_deref(), request.scope.as_deref());
    assert_eq!(value("keyferry_cluster").is_some(), request.tell_cluster);
    assert_eq!(
        value("min_ttl").and_then(|text| text.parse().ok()),
        request.min_ttl.map(|ttl| ttl.as_secs())
    );
    if let Some(token) = &request.subject_token {
        let sent = value("client_assertion").or(value("subject_token"));
        assert_eq!(sent.as_deref(), Some(token.expose()));
        assert_eq!(format!("{token:?}"), "PresentedToken([redacted])");
    }
}

/// What is accepted says what serde_json reads in the same text, and no error repeats the text.
pub(crate) fn exec_info(data: &[u8]) {
    let info = match ExecInfo::read(Some(data)) {
        Ok(info) => info,
        Err(error) => return assert_shown(&error.to_string(), 200),
    };
    assert!(data.len() <= MAX_EXEC_INFO_BYTES);
    let document: Value = serde_json::from_slice(data).expect("JSON");
    assert_eq!(document["kind"], "ExecCredential");
    assert_eq!(document["apiVersion"], info.version.as_str());
    let written = &document["spec"]["cluster"];
    let Some(cluster) = info.cluster else {
        assert!(written.is_null());
        return;
    };
    for (member, read) in [
        ("server", cluster.server),
        ("tls-server-name", cluster.tls_server_name),
        (
            "certificate-authority-data",
            cluster.certificate_authority_data,
        ),
        ("proxy-url", cluster.proxy_url),
    ] {
        assert_eq!(
            written[member].as_str().unwrap_or_default(),
            read,
            "{member}"
        );
    }
    let insecure = &written["insecure-skip-tls-verify"];
    assert_eq!(insecure == true, cluster.insecure_skip_tls_verify);
}

/// A client file that is accepted means the same when its members are written again.
pub(crate) fn client_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let document = match ClientDocument::read(text, tokens::AUDIENCE) {
        Ok(document) => document,
        Err(error) => return assert_shown(&error.to_string(), 1000),
    };
    assert!(text.len() <= MAX_CLIENT_FILE_BYTES);
    let pair = document.client_certificate.clone();
    let (certificate, key) = pair.unzip();
    let mut written = json!({
        "apiVersion": "config.keyferry.dev/v1alpha1", "kind": "ClientConfiguration",
        "server": document.server, "certificateAuthority": document.certificate_authority,
        "tokenFile": document.token_file, "githubOIDC": document.github_oidc,
        "githubOIDCHost": document.github_oidc_host, "tokenEnv": document.token_env,
        "serviceAccount": document.service_account.as_ref().map(ToString::to_string),
        "callerAudience": document.caller_audience.as_str(),
        "clientCertificate": certificate, "clientKey": key,
        "kubeconfig": document.kubeconfig, "context": document.context,
        "allowUnpinnedServer": document.allow_unpinned_server, "cacheDir": document.cache_dir,
    });
    let members = written.as_object_mut().expect("an object");
    members.retain(|_, value| !value.is_null());
    let again = ClientDocument::read(&escape_json(&written.to_string()), "another")
        .expect("it can be read");
    assert_eq!(again, document);
}
