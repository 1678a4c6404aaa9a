//! Kubeconfigs and the objects of other tools that describe a cluster.

use keyferry_api::audience::Audience;
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_core::import::{Choice, ImportError, MAX_IMPORT_BYTES, read_import};
use keyferry_core::received_kubeconfig::{
    MAX_KUBECONFIG_BYTES, parse_kubeconfig, rewrite_kubeconfig,
};
use keyferry_keys::ca_bundle::CaBundle;
use secrecy::ExposeSecret;
use serde_json::Value;
use url::Url;

use crate::{assert_shown, now, tokens};

/// A kubeconfig of a server that is accepted keeps its meaning when it is written again, and its
/// token is not printed.
pub(crate) fn kubeconfig(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let access = AccessName::parse("tenant-a/prod").expect("a name");
    let Ok(received) = parse_kubeconfig(text, &access) else {
        assert!(rewrite_kubeconfig(text, &access).is_err());
        return;
    };
    assert!(text.len() <= MAX_KUBECONFIG_BYTES);
    let token = received.token.expose_secret();
    assert!(!format!("{:?}", received.token).contains(token));
    let written = rewrite_kubeconfig(text, &access).expect("it can be written");
    let written = written.expose_secret();
    let again = parse_kubeconfig(written, &access).expect("what is written can be read");
    assert_eq!(again.cluster, received.cluster);
    assert_eq!(again.token.expose_secret(), token);
    let twice = rewrite_kubeconfig(written, &access).expect("it can be written");
    assert_eq!(twice.expose_secret(), written);
}

/// The TargetCluster of an import has an address, the way there and public certificates, and no
/// other member: nothing that could be a credential.
pub(crate) fn import(data: &[u8]) {
    let mut imported = match read_import(data, Choice::default()) {
        Ok(imported) => imported,
        Err(error) => return assert_shown(&error.to_string(), 4000),
    };
    assert!(data.len() <= MAX_IMPORT_BYTES);
    for message in imported.dropped.iter().chain(&imported.warnings) {
        assert_shown(message, 1000);
    }
    let (name, audience) = (
        ObjectName::new("imported").expect("a name"),
        Audience::new(tokens::AUDIENCE).expect("an audience"),
    );
    let object = match imported.target_cluster(&name, &audience, now()) {
        Ok(object) => object,
        // One line for each mistake.
        Err(ImportError::Mistakes(mistakes)) => {
            return mistakes.lines().for_each(|line| assert_shown(line, 4000));
        }
        Err(error) => return assert_shown(&error.to_string(), 4000),
    };
    let spec = object["spec"].as_object().expect("an object");
    for (member, value) in spec {
        let text = value.as_str().expect("a text");
        match member.as_str() {
            "address" => assert!(
                text.starts_with("https://") && !has_userinfo(text),
                "{text}"
            ),
            "proxyURL" => assert!(!has_userinfo(text), "{text}"),
            "tlsServerName" => assert!(ObjectName::new(text).is_ok(), "{text}"),
            "caBundle" => {
                let bundle = CaBundle::from_pem(text.as_bytes(), now()).expect("certificates");
                assert_eq!(bundle.to_pem(), text);
            }
            "audience" => assert_eq!(text, tokens::AUDIENCE),
            other => panic!("spec.{other} was imported"),
        }
    }
    let text = imported.render_target(Some("imported"), &audience, now());
    let text = text.expect("the same object can be rendered");
    let rendered: Value = serde_saphyr::from_str(&text).expect("YAML");
    assert_eq!(rendered, object);
}

fn has_userinfo(text: &str) -> bool {
    let url = Url::parse(text).expect("a URL");
    !url.username().is_empty() || url.password().is_some()
}
