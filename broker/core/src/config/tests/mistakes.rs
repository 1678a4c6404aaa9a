//! One rule, one edit of the good file, one mistake: at its path, on its line, with a word of what is wrong and of the mend.

use super::{GOOD, edited, mistakes_of};

/// The line that holds the mistake ends with this.
const HERE: &str = "#here";

struct Case {
    from: &'static str,
    to: String,
    path: &'static str,
    problem: &'static str,
    mend: &'static str,
}

fn case(from: &'static str, to: impl Into<String>, path: &'static str, problem: &'static str, mend: &'static str) -> Case {
    Case { from, to: to.into(), path, problem, mend }
}

fn check(cases: Vec<Case>) {
    for Case { from, to, path, problem, mend } in cases {
        let text = edited(from, &to);
        let found = mistakes_of(&text);
        let [mistake] = found.as_slice() else { panic!("{to:?} makes {} mistakes:\n{found:#?}", found.len()) };
        assert_eq!(mistake.path, path, "{to:?}: {mistake}");
        let line = text.lines().position(|line| line.ends_with(HERE)).map(|line| line as u64 + 1);
        assert_eq!(Some(mistake.line), line, "{to:?}: {mistake}");
        assert!(mistake.problem.contains(problem), "{to:?} is said to be: {}", mistake.problem);
        assert!(mistake.mend.contains(mend), "{to:?} is mended by: {}", mistake.mend);
        assert!(!mistake.object.is_empty(), "{to:?} is no object's");
    }
}

#[test]
fn of_the_server() {
    const HUB: &str = "hubName: hub";
    let set = |to: &str, path, problem, mend| case(HUB, format!("{HUB}\n{to} #here"), path, problem, mend);
    check(vec![
        case(HUB, "hubName: Hub #here", "hubName", "lower-case", "short name"),
        case(HUB, "hubName: a.b #here", "hubName", "lower-case", "short name"),
        case("apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nhubName: hub\n", "#here\napiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\n", "hubName", "missing", "add it").starting_below(),
        case("publicURL: https://keyferry.example.com", "publicURL: https://keyferry.example.com/x #here", "publicURL", "not an https origin", "origin"),
        case("publicURL: https://keyferry.example.com", "publicURL: http://keyferry.example.com #here", "publicURL", "not an https origin", "origin"),
        set("callerAudience: a b", "callerAudience", "without spaces", "one audience"),
        set("callerAudience: ''", "callerAudience", "is empty", "one audience"),
        set("clusterResourceNamespace: a/b", "clusterResourceNamespace", "lower-case", "namespace"),
        set("canaryServiceAccount: keyferry-system/bird", "canaryServiceAccount", "lower-case", "ServiceAccount"),
        set("hub: {issuer: 'http://hub'}", "hub.issuer", "not an https URL", "--service-account-issuer"),
        set("hub: {issuers: 'http://hub'}", "hub.issuers", "unknown field", "spelling"),
        set("health: {address: localhost}", "health.address", "not an address", "ip:port"),
        set("health: {adress: x}", "health.adress", "unknown field", "spelling"),
        set("maxStaleAuthorization: 61m", "maxStaleAuthorization", "out of range", "from 0s to 1h"),
        set("maxStaleAuthorization: 5", "maxStaleAuthorization", "integer", "quotes"),
        set("maxStaleAuthorization: 5 min", "maxStaleAuthorization", "not a duration", "from 0s to 1h"),
        set("requirePodBound: 'yes'", "requirePodBound", "true or false is expected", "true or false"),
        set("audit: {path: x}", "audit.path", "unknown field", "spelling"),
        set("metadata: {nam: x}", "metadata.nam", "unknown field", "spelling").but("metadata.name"),
        set("spec: {}", "spec", "unknown field", "spelling"),
        case("discovery:\n", "discovery:\n  maxAge: 29s #here\n", "discovery.maxAge", "out of range", "from 30s to 1h"),
        case("discovery:\n", "discovery:\n  maxAge: 1h1s #here\n", "discovery.maxAge", "out of range", "from 30s to 1h"),
        case("discovery:\n", "discovery:\n  address: ':8443' #here\n", "discovery.address", "not an address", "ip:port"),
        case("api:\n", "api:\n  maxAge: 60s #here\n", "api.maxAge", "never store", "discovery.maxAge"),
        case("api:\n  tls:\n", "api:\n  tls: #here\n    minVersion: x\n", "api.tls.minVersion", "unknown field", "spelling").one_below(),
        case("api:\n  tls:\n    certFile: /tls/api.crt\n", "api:\n  tls: #here\n", "api.tls.certFile", "missing", "add it"),
        case("    keyFile: /tls/api.key", "    keyFile: [a] #here", "api.tls.keyFile", "text is expected", "write text"),
    ]);
}
