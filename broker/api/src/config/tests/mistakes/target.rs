//! Mistakes in a TargetCluster, except for its allow rules.

use super::{GOOD, case, check, edited, mistakes_of};

const ADDRESS: &str = "address: https://prod.example.com:6443";
const AUDIENCE: &str = "audience: https://prod.example.com";

#[test]
fn of_an_address() {
    let address = |url: &str, problem| {
        case(
            ADDRESS,
            format!("address: {url:?} #here"),
            "spec.address",
            problem,
            "https://host[:port][/path]",
        )
    };
    let proxy = |url: &str, problem| {
        case(
            "proxyURL: socks5://proxy.example.com:1080",
            format!("proxyURL: {url:?} #here"),
            "spec.proxyURL",
            problem,
            "socks5://host:port",
        )
    };
    check(vec![
        address("http://prod.example.com", "unencrypted"),
        address("prod.example.com:6443", "not an https URL"),
        address("", "not a URL"),
        address("https://admin@prod.example.com", "credentials"),
        address("https://admin:hunter2@prod.example.com", "credentials"),
        address("https://prod.example.com?token=x", "query"),
        address("https://prod.example.com#x", "fragment"),
        address("https://prod.example.com:0", "port"),
        address("https://pr\u{f6}d.example.com", "differently"),
        address("https://prod.example.com/a\\b", "differently"),
        address("https://prod.example.com/a%2fb", "differently"),
        address("https://prod.example.com/a/../b", "differently"),
        address("https://prod.example.com/./b", "differently"),
        address("https://prod.example.com/..", "differently"),
        address("https://0x7f000001", "differently"),
        proxy("socks4://proxy.example.com", "not an http, https or socks5"),
        proxy("http://user:hunter2@proxy.example.com", "credentials"),
        proxy("http://proxy.example.com/x", "plain host and port"),
        case(
            "tlsServerName: kubernetes.default.svc",
            "tlsServerName: '*.svc' #here",
            "spec.tlsServerName",
            "DNS name",
            "DNS name",
        ),
    ]);
    let text = edited(ADDRESS, "address: https://admin:hunter2@prod.example.com");
    assert!(
        !format!("{:?}", mistakes_of(&text)).contains("hunter2"),
        "a password is not repeated"
    );
}

#[test]
fn of_a_certificate() {
    const REFERENCE: &str = "  certSecretRef:\n    name: staging-ca\n";
    let reference = |to: &str, path, problem, fix| case(REFERENCE, to, path, problem, fix);
    check(vec![
        reference(
            "  certSecretRef:\n    name: staging-ca\n    namespace: tenant-a #here\n",
            "spec.certSecretRef.namespace",
            "unknown field",
            "remove",
        ),
        reference(
            "  certSecretRef:\n    name: tenant-a/ca #here\n",
            "spec.certSecretRef.name",
            "lower-case",
            "without a slash",
        ),
        reference(
            "  certSecretRef: {} #here\n",
            "spec.certSecretRef.name",
            "missing",
            "add it",
        ),
        reference(
            "  certSecretRef: staging-ca #here\n",
            "spec.certSecretRef",
            "mapping is expected",
            "write a mapping",
        ),
        reference(
            "  certSecretRef:\n    name: a\n  caBundle: x #here\n",
            "spec.caBundle",
            "together with certSecretRef",
            "keep one",
        ),
        reference(
            "  certSecretRef:\n    name: a\n  clusterTrustBundleRef: {name: b} #here\n",
            "spec.clusterTrustBundleRef",
            "together with certSecretRef",
            "keep one",
        ),
        reference(
            "  clusterTrustBundleRef:\n    name: a/b #here\n",
            "spec.clusterTrustBundleRef.name",
            "lower-case",
            "ClusterTrustBundle",
        ),
        reference(
            "  caBundle: LS0tLS1CRUdJTg== #here\n",
            "spec.caBundle",
            "no PEM certificate",
            "BEGIN CERTIFICATE",
        ),
        reference(
            "  caBundle: '' #here\n",
            "spec.caBundle",
            "no PEM certificate",
            "BEGIN CERTIFICATE",
        ),
    ]);
}

#[test]
fn of_an_audience() {
    let audience = |to: &str, problem, fix| {
        case(
            AUDIENCE,
            format!("audience: {to} #here"),
            "spec.audience",
            problem,
            fix,
        )
    };
    check(vec![
        audience("''", "is empty", "one audience"),
        audience("a,b", "without spaces, commas", "one audience"),
        audience("a b", "without spaces, commas", "one audience"),
        audience("", "where text is expected", "write text"),
        audience("5", "integer `5`", "quotes"),
        audience("1.5", "floating point", "quotes"),
        audience("on", "boolean `true`", "quotes"),
        audience("[a, b]", "a list", "write text"),
        audience("keyferry.dev", "callerAudience", "another audience"),
        // The later one in the file gets the mistake, whatever the names are.
        case(
            "audience: staging\n",
            "audience: https://prod.example.com #here\n",
            "spec.audience",
            "TargetCluster/prod",
            "of its own",
        ),
        case(
            "spec:\n  address: https://prod.example.com:6443\n  audience: \
             https://prod.example.com\n",
            "spec: #here\n  address: https://prod.example.com:6443\n",
            "spec.audience",
            "missing",
            "add it",
        ),
    ]);
    let own = GOOD.replace("hubName: hub", "hubName: hub\ncallerAudience: staging");
    assert_eq!(
        mistakes_of(&own)[0].path,
        "spec.audience",
        "the configured callerAudience counts, not the default"
    );
}

#[test]
fn of_an_issuer_and_a_lifetime() {
    let issuer = |to: &str, problem, fix| {
        case(
            "issuer: Hub\n",
            format!("issuer: {to} #here\n"),
            "spec.issuer",
            problem,
            fix,
        )
    };
    let target_issuer = |to: &str, problem| {
        case(
            "targetIssuer: https://issuer.staging.example.com",
            format!("targetIssuer: {to} #here"),
            "spec.targetIssuer",
            problem,
            "--service-account-issuer",
        )
    };
    let default = |to: &str, problem, fix| {
        case(
            "default: 30m",
            format!("default: {to} #here"),
            "spec.tokenLifetime.default",
            problem,
            fix,
        )
    };
    let max = |to: &str, problem, fix| {
        case(
            "max: 2h",
            format!("max: {to} #here"),
            "spec.tokenLifetime.max",
            problem,
            fix,
        )
    };
    check(vec![
        issuer("Keyferry", "not enabled", "--enable-keyferry-issuer"),
        issuer("hub", "not an issuer type", "use Hub or Keyferry"),
        issuer("''", "not an issuer type", "use Hub"),
        target_issuer("kubernetes/serviceaccount", "not an https URL"),
        target_issuer("https://a.example.com?x", "query"),
        default("9m59s", "shorter than 10m", "10m to 24h"),
        default("2h1s", "longer than max", "raise max"),
        default("1d", "not a duration", "10m to 24h"),
        default("''", "not a duration", "10m to 24h"),
        default("-1h", "not a duration", "10m to 24h"),
        default("3600", "integer `3600`", "quotes"),
        max("24h1s", "longer than 24h", "10m to 24h"),
        max("99999999999999999999h", "not a duration", "10m to 24h"),
        max("[2h]", "a list", "write text"),
        case(
            "default: 30m",
            "least: 30m #here",
            "spec.tokenLifetime.least",
            "unknown field",
            "spelling",
        ),
    ]);
}

#[test]
fn of_a_target_as_a_whole() {
    check(vec![
        case(
            "  name: staging\n  labels",
            "  name: staging\n  namespace: a #here\n  labels",
            "metadata.namespace",
            "cluster-scoped",
            "remove",
        ),
        case(
            "  name: staging\n  labels",
            "  name: Staging #here\n  labels",
            "metadata.name",
            "lower-case",
            "Kubernetes object",
        ),
        case(
            "  name: staging\n  labels",
            "  name: prod #here\n  labels",
            "metadata.name",
            "second TargetCluster",
            "rename",
        ),
        case(
            "name: staging\n  namespace: tenant-a",
            "name: prod #here\n  namespace: tenant-a",
            "metadata.name",
            "second TargetAccess",
            "rename",
        ),
        case(
            "  annotations: {note: a}",
            "  annotations: {note: 5} #here",
            "metadata.annotations.note",
            "integer",
            "quotes",
        ),
        case(
            "  annotations: {note: a}",
            "  annotations: {note: a}\nstatus: {} #here",
            "status",
            "unknown field",
            "remove",
        ),
        case(
            ADDRESS,
            format!("{ADDRESS}\n  insecureSkipTLSVerify: true #here"),
            "spec.insecureSkipTLSVerify",
            "unknown field",
            "remove",
        ),
        case(
            ADDRESS,
            "Address: https://prod.example.com:6443 #here\n  address: https://prod.example.com",
            "spec.Address",
            "unknown field",
            "spelling",
        ),
        case(
            "suspend: true\n  allow",
            "suspend: \"true\" #here\n  allow",
            "spec.suspend",
            "true or false is expected",
            "true or false",
        ),
        case(
            "suspend: true\n  allow",
            "suspend: 1 #here\n  allow",
            "spec.suspend",
            "true or false is expected",
            "true or false",
        ),
        // No access of a file requires a probe, and a target never does.
        case(
            "suspend: true\n  allow",
            "suspend: true\n  probe: Require #here\n  allow",
            "spec.probe",
            "is not a valid value",
            "use Off or Report",
        ),
    ]);
}

#[test]
fn of_a_target_that_is_the_hub() {
    let after_audience = |fields: &str| {
        let text = edited(AUDIENCE, &format!("{AUDIENCE}\n  {fields}"));
        format!("{:?}", mistakes_of(&text))
    };
    let tokens = after_audience("hub: true");
    assert!(
        tokens.contains("allows tokens for the hub's own apiserver"),
        "{tokens}"
    );
    let elsewhere = after_audience("clientCertificates: {}");
    assert!(elsewhere.contains("is not the hub"), "{elsewhere}");
    for rules in [
        "{ approval: Always }",
        "{ maxLifetime: 9m }",
        "{ maxLifetime: 25h }",
    ] {
        let text = after_audience(&format!("hub: true\n  clientCertificates: {rules}"));
        assert!(text.contains("spec.clientCertificates."), "{rules}: {text}");
    }
}
