//! The fleet inputs of a ServerConfiguration, and the identity of a TargetCluster.

use std::num::NonZeroU32;

use super::{GOOD, edited, mistakes_of, read, target};
use crate::config::InputScope;
use crate::name::{ClusterDns, Namespace};

const HUB: &str = "hubName: hub";
const AUDIENCE: &str = "audience: https://prod.example.com";

fn with(credentials: &str) -> String {
    let inputs = format!("{HUB}\ninputs: {{enabled: true, credentials: [{credentials}]}}");
    edited(HUB, &inputs)
}

#[test]
fn inputs_are_off_by_default_and_credentials_have_one_scope() {
    assert!(!read(GOOD).unwrap().server.inputs.enabled);
    let written = with(
        "{name: a, scope: Read, cluster: a.example.com, secretRef: {name: one}}, \
         {name: b, scope: Read, namespace: tenant-a, secretRef: {name: two}}, \
         {name: c, scope: Admin, secretRef: {name: three}}",
    );
    let inputs = read(&written).unwrap().server.inputs;
    assert!(inputs.enabled);
    assert_eq!(inputs.requests_per_second, NonZeroU32::new(5));
    let limited = |line: &str| {
        edited(
            HUB,
            &format!("{HUB}\ninputs: {{requestsPerSecond: {line}}}"),
        )
    };
    let unlimited = read(&limited("0")).unwrap().server.inputs;
    assert_eq!(unlimited.requests_per_second, None);
    let mistakes = mistakes_of(&limited("100001"));
    assert!(matches!(mistakes.as_slice(), [only] if only.path == "inputs.requestsPerSecond"));
    let scopes: Vec<InputScope> = inputs
        .credentials
        .into_iter()
        .map(|one| one.scope)
        .collect();
    assert_eq!(
        scopes,
        [
            InputScope::Cluster(ClusterDns::new("a.example.com").unwrap()),
            InputScope::Namespace(Namespace::new("tenant-a").unwrap()),
            InputScope::Admin,
        ]
    );
}

#[test]
fn a_bad_credential_is_a_mistake_at_its_place() {
    for (credentials, path) in [
        (
            "{name: a, scope: Read, secretRef: {name: one}}",
            "[0].scope",
        ),
        (
            "{name: a, scope: Read, cluster: a, namespace: b, secretRef: {name: one}}",
            "[0].scope",
        ),
        (
            "{name: a, scope: Admin, cluster: a, secretRef: {name: one}}",
            "[0].scope",
        ),
        (
            "{name: a, scope: Write, secretRef: {name: one}}",
            "[0].scope",
        ),
        (
            "{name: a, scope: Read, cluster: A.example.com, secretRef: {name: one}}",
            "[0].cluster",
        ),
        (
            "{name: a, scope: Read, namespace: a.b, secretRef: {name: one}}",
            "[0].namespace",
        ),
        (
            "{name: a/b, scope: Admin, secretRef: {name: one}}",
            "[0].name",
        ),
        (
            "{name: a, scope: Admin, secretRef: {name: one/two}}",
            "[0].secretRef.name",
        ),
        (
            "{name: a, scope: Admin, secretRef: {name: one}}, {name: a, scope: Admin, secretRef: {name: two}}",
            "[1].name",
        ),
        (
            "{name: a, scope: Admin, secretRef: {name: one}}, {name: b, scope: Admin, secretRef: {name: one}}",
            "[1].secretRef.name",
        ),
    ] {
        let mistakes = mistakes_of(&with(credentials));
        let paths: Vec<&str> = mistakes
            .iter()
            .map(|mistake| mistake.path.as_str())
            .collect();
        assert_eq!(
            paths,
            [format!("inputs.credentials{path}")],
            "{credentials}"
        );
    }
    let of = |name: &str, uri: &str| {
        format!(
            "{{name: {name}, scope: Admin, clientCertificate: {{caSecretRef: {{name: ca}}, uriSAN: '{uri}'}}}}"
        )
    };
    for (credentials, path) in [
        ("{name: a, scope: Admin}".to_owned(), "[0].secretRef"),
        (
            of("a", "a:b").replace("scope", "secretRef: {name: one}, scope"),
            "[0].secretRef",
        ),
        (of("a", "no uri"), "[0].clientCertificate.uriSAN"),
        (of("a", "a:*"), "[0].clientCertificate.uriSAN"),
        (
            of("a", "a:b").replace("name: ca", "name: c/a"),
            "[0].clientCertificate.caSecretRef.name",
        ),
        (
            format!("{}, {}", of("a", "a:b"), of("b", "a:b")),
            "[1].clientCertificate.uriSAN",
        ),
        (
            of("a", "a:b").replace("uriSAN", "uriSan"),
            "[0].clientCertificate.uriSan",
        ),
    ] {
        let mistakes = mistakes_of(&with(&credentials));
        let paths: Vec<&str> = mistakes.iter().map(|one| one.path.as_str()).collect();
        assert!(
            paths.contains(&format!("inputs.credentials{path}").as_str()),
            "{credentials}: {paths:?}"
        );
    }
    let off = edited(
        HUB,
        &format!(
            "{HUB}\ninputs: {{credentials: [{{name: a, scope: Admin, secretRef: {{name: one}}}}]}}"
        ),
    );
    assert_eq!(mistakes_of(&off)[0].path, "inputs.credentials");
}

#[test]
fn a_certificate_of_a_credential_is_no_caller_of_tokens() {
    let credential = "{name: a, scope: Read, cluster: a.example.com, \
                      clientCertificate: {caSecretRef: {name: ca}, uriSAN: 'a:b'}}";
    let server = read(&with(credential)).unwrap().server;
    let rule = server.inputs.credentials[0].certificate().unwrap();
    assert_eq!(
        (rule.authority_secret.as_str(), rule.uri.as_str()),
        ("ca", "a:b")
    );
    assert!(!rule.allow_hub_client_ca && server.inputs.credentials[0].token_secret().is_none());
    let secrets: Vec<&str> = server
        .caller_authority_secrets()
        .into_iter()
        .map(|secret| secret.as_str())
        .collect();
    assert_eq!(secrets, ["ca"]);
    let caller = |uri: &str| {
        format!(
            "api:\n  clientCertificates:\n    - {{caSecretRef: {{name: other}}, uriSAN: '{uri}', \
             serviceAccount: {{namespace: a, name: b, uid: c}}}}\n"
        )
    };
    // Under another CA too: the URI alone decides.
    let both = with(credential).replace("api:\n", &caller("a:b"));
    let mistakes = mistakes_of(&both);
    assert_eq!(
        mistakes[0].path,
        "inputs.credentials[0].clientCertificate.uriSAN"
    );
    assert_eq!(mistakes[0].problem, "is also in api.clientCertificates");
    let apart = read(&with(credential).replace("api:\n", &caller("a:c")))
        .unwrap()
        .server;
    assert_eq!(apart.caller_authority_secrets().len(), 2);
    assert_eq!(
        apart.inputs.uri_of_a_caller(&apart.client_certificates),
        None
    );
}

#[test]
fn an_identity_has_three_names() {
    let with = |identity: &str| edited(AUDIENCE, &format!("{AUDIENCE}\n  identity: {identity}"));
    let text = with("{clusterName: prod, clusterDNS: prod.example.com, environment: production}");
    let identity = target(&read(&text).unwrap().policy, "prod")
        .identity
        .unwrap();
    assert_eq!(identity.cluster_name, "prod");
    assert_eq!(identity.cluster_dns.as_str(), "prod.example.com");
    assert_eq!(identity.environment, "production");
    for (identity, path) in [
        (
            "{clusterName: a.b, clusterDNS: a, environment: c}",
            "clusterName",
        ),
        (
            "{clusterName: a, clusterDNS: A.example.com, environment: c}",
            "clusterDNS",
        ),
        (
            "{clusterName: a, clusterDNS: a.example.com., environment: c}",
            "clusterDNS",
        ),
        (
            "{clusterName: a, clusterDNS: a, environment: ''}",
            "environment",
        ),
    ] {
        let mistakes = mistakes_of(&with(identity));
        assert_eq!(
            mistakes[0].path,
            format!("spec.identity.{path}"),
            "{identity}"
        );
    }
}

#[test]
fn two_targets_of_a_file_have_two_names() {
    let identity = "identity: {clusterName: a, clusterDNS: a.example.com, environment: c}";
    let text = edited(AUDIENCE, &format!("{AUDIENCE}\n  {identity}"));
    let text = format!(
        "{text}\n---\napiVersion: keyferry.dev/v1alpha1\nkind: TargetCluster\n\
         metadata: {{name: second}}\n\
         spec:\n  address: https://second.example.com\n  audience: second\n  {identity}\n"
    );
    let mistakes = mistakes_of(&text);
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    assert_eq!(mistakes[0].path, "spec.identity.clusterDNS");
    assert!(
        mistakes[0]
            .problem
            .contains("is also the DNS name of TargetCluster/prod")
    );
}
