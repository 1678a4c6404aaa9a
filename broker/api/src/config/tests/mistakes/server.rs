//! Mistakes in the ServerConfiguration.

use super::{case, check};

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
            "discovery:\n  address: ':8443' #here\n",
            "discovery.address",
            "not an address",
            "ip:port",
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
            "unknown field",
            "spelling",
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
