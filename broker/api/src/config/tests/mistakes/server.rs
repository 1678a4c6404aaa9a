//! Mistakes in the ServerConfiguration.

use super::super::{GOOD, mistakes_of, read};
use super::{case, check};

/// A rule for client certificates that has no mistake.
const CERTIFICATE: &str = "
  clientCertificates:
    - caSecretRef:
        name: ca
      uriSAN: a:b
      serviceAccount:
        namespace: tenant-a
        name: reconciler
        uid: u
";

/// A mistake in the rule.
fn certificate(from: &str, to: &str, path: &'static str, problem: &'static str) -> super::Case {
    let path = Box::leak(format!("api.clientCertificates{path}").into_boxed_str());
    let text = format!("api:{}", CERTIFICATE.replace(from, to));
    case("api:\n", text, path, problem, "")
}

#[test]
fn a_certificate_is_one_caller_and_is_bound_to_no_pod() {
    let with = |rules: &str| GOOD.replace("api:\n", &format!("api:{rules}"));
    let server = read(&with(CERTIFICATE)).unwrap().server;
    let rule = &server.client_certificates[0];
    assert_eq!(rule.rule.uri, "a:b");
    assert_eq!(
        rule.service_account.account.to_string(),
        "tenant-a/reconciler"
    );
    assert!(!rule.rule.allow_hub_client_ca);
    let (_, entry) = CERTIFICATE.split_once("    - ").unwrap();
    let twice = with(&format!("{CERTIFICATE}    - {entry}"));
    assert_eq!(
        mistakes_of(&twice)[0].path,
        "api.clientCertificates[1].uriSAN"
    );
    let other = entry.replace("name: ca", "name: other-ca");
    let moving = with(&format!("{CERTIFICATE}    - {other}"));
    assert_eq!(read(&moving).unwrap().server.client_certificates.len(), 2);
    let bound = with(CERTIFICATE).replace("hubName: hub", "hubName: hub\nrequirePodBound: true");
    assert_eq!(mistakes_of(&bound)[0].path, "requirePodBound");
}

#[test]
fn of_the_server() {
    const HUB: &str = "hubName: hub";
    const URL: &str = "publicURL: https://keyferry.example.com";
    let set =
        |to: &str, path, problem, fix| case(HUB, format!("{HUB}\n{to} #here"), path, problem, fix);
    check(vec![
        case(
            HUB,
            "hubName: Hub #here",
            "hubName",
            "lower-case",
            "short name",
        ),
        case(
            HUB,
            "hubName: a.b #here",
            "hubName",
            "lower-case",
            "short name",
        ),
        case(
            HUB,
            "hubName: yes #here",
            "hubName",
            "boolean",
            "yes, no, on and off",
        ),
        case(HUB, "hubName: 0755 #here", "hubName", "integer", "quotes"),
        case(
            URL,
            "publicURL: https://keyferry.example.com/x #here",
            "publicURL",
            "not an https origin",
            "origin",
        ),
        case(
            URL,
            "publicURL: http://keyferry.example.com #here",
            "publicURL",
            "not an https origin",
            "origin",
        ),
        set(
            "callerAudience: a b",
            "callerAudience",
            "without spaces",
            "one audience",
        ),
        set(
            "callerAudience: ''",
            "callerAudience",
            "is empty",
            "one audience",
        ),
        set(
            "clusterResourceNamespace: a/b",
            "clusterResourceNamespace",
            "lower-case",
            "namespace",
        ),
        set(
            "canaryServiceAccount: keyferry-system/bird",
            "canaryServiceAccount",
            "lower-case",
            "ServiceAccount",
        ),
        set(
            "hub: {issuer: 'http://hub'}",
            "hub.issuer",
            "not an https URL",
            "--service-account-issuer",
        ),
        set(
            "callerAudience: keyferry.dev/inert",
            "callerAudience",
            "that nothing accepts",
            "another",
        ),
        set(
            "managedIssuers: {rotateEvery: 23h}",
            "managedIssuers.rotateEvery",
            "out of range",
            "24h to 8760h",
        ),
        set(
            "managedIssuers: {enable: true}",
            "managedIssuers.enable",
            "unknown field",
            "spelling",
        ),
        set(
            "hub: {issuers: 'http://hub'}",
            "hub.issuers",
            "unknown field",
            "spelling",
        ),
        set(
            "hub: {endpoints: ['https://a', 'https://a/b']}",
            "hub.endpoints[1]",
            "not an https origin",
            "each apiserver",
        ),
        set(
            "health: {address: localhost}",
            "health.address",
            "not an address",
            "ip:port",
        ),
        set(
            "health: {adress: x}",
            "health.adress",
            "unknown field",
            "spelling",
        ),
        set(
            "maxStaleAuthorization: 61m",
            "maxStaleAuthorization",
            "out of range",
            "from 0s to 1h",
        ),
        set(
            "maxStaleAuthorization: 5",
            "maxStaleAuthorization",
            "integer",
            "quotes",
        ),
        set(
            "maxStaleAuthorization: 5 min",
            "maxStaleAuthorization",
            "not a duration",
            "from 0s to 1h",
        ),
        set(
            "requirePodBound: 'yes'",
            "requirePodBound",
            "true or false is expected",
            "true or false",
        ),
        set(
            "audit: {path: x}",
            "audit.path",
            "unknown field",
            "spelling",
        ),
        set("audit: {maxSize: 100}", "audit", "no file", "audit.file"),
        set(
            "audit: {file: /x, maxBackups: 3}",
            "audit.maxBackups",
            "without audit.maxSize",
            "MiB",
        ),
        set(
            "audit: {file: /x, maxSize: 0}",
            "audit.maxSize",
            "out of range",
            "from 1 to 10240",
        ),
        set(
            "audit: {file: /x, maxSize: 1, maxBackups: 1001}",
            "audit.maxBackups",
            "out of range",
            "from 1 to 1000",
        ),
        set(
            "metadata: {nam: x}",
            "metadata.nam",
            "unknown field",
            "spelling",
        ),
        set("spec: {}", "spec", "unknown field", "spelling"),
        case(
            "discovery:\n",
            "discovery:\n  maxAge: 29s #here\n",
            "discovery.maxAge",
            "out of range",
            "from 30s to 1h",
        ),
        case(
            "discovery:\n",
            "discovery:\n  maxAge: 1h1s #here\n",
            "discovery.maxAge",
            "out of range",
            "from 30s to 1h",
        ),
        case(
            "discovery:\n",
            "discovery:\n  address: '8443' #here\n",
            "discovery.address",
            "not an address",
            "ip:port",
        ),
        certificate(
            "uriSAN: a:b",
            "uriSAN: reconciler #here",
            "[0].uriSAN",
            "not a URI",
        ),
        certificate(
            "uriSAN: a:b",
            "uriSAN: 'a:' #here",
            "[0].uriSAN",
            "not a URI",
        ),
        certificate(
            "uriSAN: a:b",
            "uriSAN: 'a:b c' #here",
            "[0].uriSAN",
            "cannot have",
        ),
        certificate(
            "uriSAN: a:b",
            "uriSAN: 'a://b/*' #here",
            "[0].uriSAN",
            "byte for byte",
        ),
        certificate(
            "uid: u",
            "uid: '' #here",
            "[0].serviceAccount.uid",
            "is empty",
        ),
        certificate(
            "name: ca",
            "name: a/b #here",
            "[0].caSecretRef.name",
            "lower-case",
        ),
        case(
            "discovery:\n",
            format!(
                "discovery:{}",
                CERTIFICATE.replace("Certificates:", "Certificates: #here")
            ),
            "discovery.clientCertificates",
            "does not authenticate",
            "under api",
        ),
        case(
            "api:\n",
            "api:\n  maxAge: 60s #here\n",
            "api.maxAge",
            "never store",
            "discovery.maxAge",
        ),
        case(
            "api:\n",
            "api:\n  limits: {connectionsPerAddress: 65537} #here\n",
            "api.limits.connectionsPerAddress",
            "65537 is out of range",
            "from 1 to 65536, or 0 for no limit",
        ),
        case(
            "api:\n",
            "api:\n  limits: {newCallersPerAddress: 100001} #here\n",
            "api.limits.newCallersPerAddress",
            "out of range",
            "from 1 to 100000",
        ),
        case(
            "api:\n",
            "api:\n  limits: {newCallersPerNamespace: many} #here\n",
            "api.limits.newCallersPerNamespace",
            "where a whole number is expected",
            "write a whole number",
        ),
        case(
            "discovery:\n",
            "discovery:\n  limits: {newCallersPerAddress: 5} #here\n",
            "discovery.limits.newCallersPerAddress",
            "does not authenticate",
            "api.limits",
        ),
        case(
            "api:\n  tls:\n",
            "api:\n  tls:\n    minVersion: x #here\n",
            "api.tls.minVersion",
            "not a TLS version",
            "\"1.3\"",
        ),
        case(
            "api:\n  tls:\n",
            "api:\n  tls:\n    minVersion: '1.2' #here\n",
            "api.tls.minVersion",
            "accepts only TLS 1.3",
            "remove it",
        ),
        case(
            "api:\n  tls:\n",
            "api:\n  tls:\n    ciphers: x #here\n",
            "api.tls.ciphers",
            "unknown field",
            "spelling",
        ),
        case(
            "api:\n  tls:\n",
            "api:\n  tls:\n    secretName: keyferry-api-tls #here\n",
            "api.tls.secretName",
            "beside certFile or keyFile",
            "keep either",
        ),
        case(
            "api:\n  tls:\n    certFile: /tls/api.crt\n    keyFile: /tls/api.key\n",
            "api:\n  tls:\n    secretName: ../other #here\n",
            "api.tls.secretName",
            "",
            "kubernetes.io/tls",
        ),
        case(
            "api:\n",
            "api:\n  httpAddress: 0.0.0.0:80 #here\n",
            "api.httpAddress",
            "never speaks plain HTTP",
            "remove it",
        ),
        case(
            "api:\n",
            "metrics: #here\n  authentication: None\n  tls: {secretName: metrics-tls}\napi:\n",
            "metrics.address",
            "is missing beside tls",
            "add it",
        ),
        case(
            "api:\n",
            "metrics: #here\n  address: 0.0.0.0:8444\napi:\n",
            "metrics.tls",
            "names no certificate",
            "set secretName",
        ),
        case(
            "api:\n",
            "metrics:\n  authentication: Basic #here\napi:\n",
            "metrics.authentication",
            "\"Basic\" is not a way",
            "use TokenReview or None",
        ),
        case(
            "api:\n",
            "metrics: {address: ':1', tls: {secretName: a, minVersion: '1.2'}} #here\napi:\n",
            "metrics.tls.minVersion",
            "accepts only TLS 1.3",
            "remove it",
        ),
        case(
            "discovery:\n",
            "discovery:\n  httpAddress: keyferry:80 #here\n",
            "discovery.httpAddress",
            "is not an address",
            "write ip:port",
        ),
        case(
            "api:\n  tls:\n    certFile: /tls/api.crt\n",
            "api:\n  tls: #here\n",
            "api.tls.certFile",
            "missing",
            "add it",
        ),
        case(
            "    keyFile: /tls/api.key",
            "    keyFile: [a] #here",
            "api.tls.keyFile",
            "text is expected",
            "write text",
        ),
    ]);
}
