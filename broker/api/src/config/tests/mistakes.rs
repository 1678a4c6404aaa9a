//! One case per rule: one edit of the good file makes one mistake, at its path, on its line, with
//! part of the problem and of the fix.

use super::{GOOD, edited, mistakes_of};

/// Marks the end of the line with the mistake.
const HERE: &str = "#here";

struct Case {
    from: &'static str,
    to: String,
    path: &'static str,
    problem: &'static str,
    fix: &'static str,
}

fn case(
    from: &'static str,
    to: impl Into<String>,
    path: &'static str,
    problem: &'static str,
    fix: &'static str,
) -> Case {
    Case {
        from,
        to: to.into(),
        path,
        problem,
        fix,
    }
}

fn check(cases: Vec<Case>) {
    let mut failures = Vec::new();
    for Case {
        from,
        to,
        path,
        problem,
        fix,
    } in cases
    {
        let text = edited(from, &to);
        let found = mistakes_of(&text);
        let line = text
            .lines()
            .position(|line| line.ends_with(HERE))
            .map(|line| line as u64 + 1);
        let right = matches!(found.as_slice(), [mistake] if mistake.path == path
            && Some(mistake.line) == line
            && mistake.problem.contains(problem)
            && mistake.fix.contains(fix)
            && !mistake.object.is_empty());
        if !right {
            failures.push(format!(
                "{to:?}\n  should say {path} on {line:?}, {problem:?}, \
                {fix:?}\n  but says {found:#?}"
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
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
        audience("[a, b]", "sequence", "write text"),
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
        max("[2h]", "sequence", "write text"),
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
fn of_an_allow_rule() {
    const RULE: &str = "    - namespaces: [tenant-a, kube-system]\n      serviceAccounts: \
        [reconciler, deployer]\n";
    let rule = |to: &str, path, problem, fix| {
        case(
            RULE,
            format!("    - {}\n", to.replace('\n', "\n      ")),
            path,
            problem,
            fix,
        )
    };
    check(vec![
        rule(
            "namespaces: [a] #here",
            "spec.allow[0].serviceAccounts",
            "missing",
            "add it",
        ),
        rule(
            "namespaces: [a]\nserviceAccounts: [] #here",
            "spec.allow[0].serviceAccounts",
            "is empty",
            "exact name",
        ),
        rule(
            "namespaces: [a]\nserviceAccounts: null #here",
            "spec.allow[0].serviceAccounts",
            "null",
            "a list",
        ),
        rule(
            "namespaces: [] #here\nserviceAccounts: [a]",
            "spec.allow[0].namespaces",
            "is empty",
            "exact name",
        ),
        rule(
            "namespaces: a #here\nserviceAccounts: [a]",
            "spec.allow[0].namespaces",
            "list is expected",
            "write a list",
        ),
        rule(
            "serviceAccounts: [a] #here",
            "spec.allow[0]",
            "neither namespaces nor",
            "by name",
        ),
        rule(
            "namespaces: ['*'] #here\nserviceAccounts: [a]",
            "spec.allow[0].namespaces[0]",
            "\"*\"",
            "patterns are not allowed",
        ),
        rule(
            "namespaces: [a, 'tenant-*'] #here\nserviceAccounts: [a]",
            "spec.allow[0].namespaces[1]",
            "tenant-*",
            "patterns are not allowed",
        ),
        rule(
            "namespaces: [a]\nserviceAccounts:\n  - a\n  - '*' #here",
            "spec.allow[0].serviceAccounts[1]",
            "\"*\"",
            "patterns are not allowed",
        ),
        rule(
            "namespaces: [a]\nserviceAccounts: [tenant-a/b] #here",
            "spec.allow[0].serviceAccounts[0]",
            "tenant-a/b",
            "exact name",
        ),
        rule(
            "namespaces: [a, a] #here\nserviceAccounts: [a]",
            "spec.allow[0].namespaces[1]",
            "listed twice",
            "once",
        ),
        rule(
            "namespaces: [a]\nserviceAccounts: [a, b, a] #here",
            "spec.allow[0].serviceAccounts[2]",
            "listed twice",
            "once",
        ),
        rule(
            "namespaces: [a]\nserviceAccounts: [a, 5] #here",
            "spec.allow[0].serviceAccounts[1]",
            "integer `5`",
            "quotes",
        ),
        rule(
            "namespaces: [a]\nserviceAccounts: [a]\ndeliveries: [] #here",
            "spec.allow[0].deliveries",
            "is empty",
            "at least one",
        ),
        rule(
            "namespaces: [a]\nserviceAccounts: [a]\ndeliveries: [http] #here",
            "spec.allow[0].deliveries[0]",
            "not a delivery; there are ArgoCDSecret",
            "exact",
        ),
        rule(
            "namespaces: [a]\nserviceAccounts: [a]\ndeliveries: ['*'] #here",
            "spec.allow[0].deliveries[0]",
            "not a delivery",
            "patterns are not allowed",
        ),
        rule(
            "namespaces: [a]\nserviceAccounts: [a]\ndeliveries: [HTTP, HTTP] #here",
            "spec.allow[0].deliveries[1]",
            "listed twice",
            "once",
        ),
        rule(
            "namespaces: [a]\nserviceAccounts: [a]\nuser: b #here",
            "spec.allow[0].user",
            "unknown field",
            "spelling",
        ),
        case(
            RULE,
            "    - everybody #here\n",
            "spec.allow[0]",
            "mapping is expected",
            "write a mapping",
        ),
    ]);
}

#[test]
fn of_a_selector() {
    const RULE: &str = "    - namespaces: [tenant-a, kube-system]\n      serviceAccounts: \
        [reconciler, deployer]\n";
    const SELECTOR: &str = "spec.allow[0].namespaceSelector";
    let with = |to: String, path, problem, fix| {
        case(
            RULE,
            format!("    - serviceAccounts: [a]\n      {to}\n"),
            path,
            problem,
            fix,
        )
    };
    let selector = |to: &str, path, problem, fix| {
        with(format!("namespaceSelector: {to} #here"), path, problem, fix)
    };
    let term = |to: &str, path, problem, fix| {
        with(
            format!("namespaceSelector: {{matchExpressions: [{{{to}}}]}} #here"),
            path,
            problem,
            fix,
        )
    };
    check(vec![
        selector("{}", SELECTOR, "every namespace", "by name"),
        selector(
            "{matchLabels: {}, matchExpressions: []}",
            SELECTOR,
            "every namespace",
            "by name",
        ),
        selector(
            "{matchLabels: {team: a}}",
            "spec.allow[0].namespaceSelector.matchLabels.team",
            "\"team\"",
            "access.keyferry.dev/",
        ),
        selector(
            "{matchLabels: {access.keyferry.dev: a}}",
            "spec.allow[0].namespaceSelector.matchLabels.access.keyferry.dev",
            "can be set",
            "guards",
        ),
        selector(
            "{matchLabels: {access.keyferry.dev/x: true}}",
            "spec.allow[0].namespaceSelector.matchLabels.access.keyferry.dev/x",
            "boolean",
            "quotes",
        ),
        selector(
            "{matchLabel: {}, matchLabels: {access.keyferry.dev/x: a}}",
            "spec.allow[0].namespaceSelector.matchLabel",
            "unknown field",
            "spelling",
        ),
        selector("[a]", SELECTOR, "mapping is expected", "write a mapping"),
        case(
            RULE,
            "    - serviceAccounts: [a] #here\n      namespaces: [a]\n      namespaceSelector: \
             {matchLabels: {access.keyferry.dev/x: a}}\n",
            "spec.allow[0]",
            "both",
            "keep one",
        ),
        term(
            "key: team, operator: In, values: [a]",
            "spec.allow[0].namespaceSelector.matchExpressions[0].key",
            "can be set",
            "guards",
        ),
        term(
            "key: access.keyferry.dev/x, operator: in, values: [a]",
            "spec.allow[0].namespaceSelector.matchExpressions[0].operator",
            "not an operator",
            "DoesNotExist",
        ),
        term(
            "key: access.keyferry.dev/x, operator: In",
            "spec.allow[0].namespaceSelector.matchExpressions[0].values",
            "is empty",
            "at least one",
        ),
        term(
            "key: access.keyferry.dev/x, operator: Exists, values: [a]",
            "spec.allow[0].namespaceSelector.matchExpressions[0].values",
            "not empty",
            "no values",
        ),
        term(
            "key: access.keyferry.dev/x, operator: NotIn, values: [a]",
            SELECTOR,
            "every new namespace",
            "In, or with Exists",
        ),
        term(
            "key: access.keyferry.dev/x, operator: DoesNotExist",
            SELECTOR,
            "every new namespace",
            "In, or with Exists",
        ),
        // Every namespace has this label, so its existence narrows nothing.
        term(
            "key: kubernetes.io/metadata.name, operator: Exists",
            SELECTOR,
            "every new namespace",
            "In, or with Exists",
        ),
        term(
            "key: kubernetes.io/metadata.name, operator: Exists}, {key: access.keyferry.dev/x, \
             operator: DoesNotExist",
            SELECTOR,
            "every new namespace",
            "guarded",
        ),
    ]);
}

#[test]
fn of_an_access() {
    const REFERENCE: &str = "  targetClusterRef:\n    name: prod\n";
    const DELIVERY: &str = "    - name: on-request\n      type: HTTP\n";
    let delivery = |to: &str, path, problem, fix| {
        case(
            DELIVERY,
            format!("    - {}\n", to.replace('\n', "\n      ")),
            path,
            problem,
            fix,
        )
    };
    check(vec![
        case(
            "metadata:\n  name: prod\n  namespace: tenant-a\n",
            "metadata: #here\n  name: prod\n",
            "metadata.namespace",
            "missing",
            "tenant's namespace",
        ),
        case(
            "name: prod\n  namespace: tenant-a",
            "name: prod\n  namespace: a.b #here",
            "metadata.namespace",
            "lower-case",
            "tenant's namespace",
        ),
        case(
            "name: prod\n  namespace: tenant-a",
            "name: Prod #here\n  namespace: tenant-a",
            "metadata.name",
            "lower-case",
            "Kubernetes object",
        ),
        case(
            "name: prod\n  namespace: tenant-a",
            "name: prod\n  namespace: tenant-a\n  uid: x #here",
            "metadata.uid",
            "unknown field",
            "remove",
        ),
        case(
            REFERENCE,
            "  targetClusterRef:\n    name: prod\n    namespace: tenant-b #here\n",
            "spec.targetClusterRef.namespace",
            "unknown field",
            "remove",
        ),
        case(
            REFERENCE,
            "  targetClusterRef: [prod] #here\n",
            "spec.targetClusterRef",
            "sequence where a mapping",
            "write a mapping",
        ),
        case(
            REFERENCE,
            "  targetClusterRef:\n    name: a/prod #here\n",
            "spec.targetClusterRef.name",
            "lower-case",
            "TargetCluster",
        ),
        case(
            "serviceAccountName: reconciler\n---",
            "serviceAccountName: tenant-b/reconciler #here\n---",
            "spec.serviceAccountName",
            "lower-case",
            "same namespace",
        ),
        case(
            "serviceAccountName: reconciler\n---",
            "serviceAccountName: true #here\n---",
            "spec.serviceAccountName",
            "boolean",
            "quotes",
        ),
        case(
            "callers: [notifier]",
            "callers: [a, tenant-b/notifier] #here",
            "spec.callers[1]",
            "lower-case",
            "without a namespace",
        ),
        case(
            "callers: [notifier]",
            "callers: [a, a] #here",
            "spec.callers[1]",
            "twice",
            "once",
        ),
        case(
            "callers: [notifier]",
            "callers: '*' #here",
            "spec.callers",
            "list is expected",
            "a list",
        ),
        case(
            "deletionPolicy: Drain",
            "deletionPolicy: Orphan #here",
            "spec.deletionPolicy",
            "not a valid value",
            "Drain or Immediate",
        ),
        case(
            "probe: Report",
            "probe: Require #here",
            "spec.probe",
            "is not a valid value",
            "Off or Report",
        ),
        case(
            "probe: Report",
            "probe: Sometimes #here",
            "spec.probe",
            "not a valid value",
            "Off or Report",
        ),
        case(
            "probe: Report",
            "probe: Off #here",
            "spec.probe",
            "boolean `false`",
            "quotes",
        ),
        case(
            "probe: Report\n  suspend: true",
            "probe: Report\n  suspend: \"yes\" #here",
            "spec.suspend",
            "true or false is expected",
            "true or false",
        ),
        delivery(
            "name: a\ntype: Http #here",
            "spec.deliveries[0].type",
            "not a delivery",
            "HTTP or Exec",
        ),
        delivery(
            "name: a\ntype: KubeConfigSecret #here",
            "spec.deliveries[0].type",
            "does not run on a file",
            "HTTP or Exec",
        ),
        delivery(
            "name: a\ntype: ArgoCDSecret #here\nobjectName: b\ntokenLifetime: 12h",
            "spec.deliveries[0].type",
            "does not run on a file",
            "HTTP or Exec",
        ),
        delivery(
            "name: a\ntype: HTTP\nobjectName: b #here",
            "spec.deliveries[0].objectName",
            "writes no object",
            "remove",
        ),
        delivery(
            "name: a\ntype: Exec\ntokenLifetime: 1h #here",
            "spec.deliveries[0].tokenLifetime",
            "from the target",
            "remove",
        ),
        delivery(
            "name: a\ntype: Exec\ntokenLifetime: 1d #here",
            "spec.deliveries[0].tokenLifetime",
            "from the target",
            "remove",
        ),
        delivery(
            "name: A #here\ntype: HTTP",
            "spec.deliveries[0].name",
            "lower-case",
            "name the delivery",
        ),
        delivery(
            "type: HTTP #here",
            "spec.deliveries[0].name",
            "missing",
            "add it",
        ),
        case(
            DELIVERY,
            "    - {name: a, type: HTTP}\n    - {name: a, type: Exec} #here\n",
            "spec.deliveries[1].name",
            "second delivery",
            "rename",
        ),
        case(
            "- name: on-request",
            "- nam: x #here\n      name: on-request",
            "spec.deliveries[0].nam",
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
    ]);
}

#[test]
fn of_a_missing_part() {
    // A missing part is reported once, not once for each field in it.
    for (from, to, path) in [
        ("metadata:\n  name: prod\nspec:\n", "spec:\n", "metadata"),
        (
            "metadata:\n  name: prod\nspec:\n",
            "metadata:\nspec:\n",
            "metadata",
        ),
        (
            "metadata:\n  name: prod\nspec:\n",
            "metadata: {}\nspec:\n",
            "metadata.name",
        ),
        (
            "discovery:\n  tls:\n    certFile: /tls/tls.crt\n    keyFile: /tls/tls.key\n",
            "",
            "discovery",
        ),
    ] {
        let found = mistakes_of(&edited(from, to));
        let paths: Vec<&str> = found.iter().map(|mistake| mistake.path.as_str()).collect();
        assert_eq!(paths, [path], "{to:?}: {found:#?}");
        assert!(found[0].line > 0);
    }
}

#[test]
fn are_all_told_at_once() {
    let mut text = GOOD.to_owned();
    let edits = [
        ("hubName: hub", "hubName: HUB", "hubName"),
        ("keyFile: /tls/api.key", "keyFile: 5", "api.tls.keyFile"),
        (
            "address: https://prod.example.com:6443",
            "address: http://prod.example.com:6443",
            "spec.address",
        ),
        (
            "audience: https://prod.example.com",
            "audience: keyferry.dev",
            "spec.audience",
        ),
        (
            "[tenant-a, kube-system]",
            "[A]",
            "spec.allow[0].namespaces[0]",
        ),
        (
            "[reconciler, deployer]",
            "['*', b, b]",
            "spec.allow[0].serviceAccounts[0]",
        ),
        ("", "", "spec.allow[0].serviceAccounts[2]"),
        (
            "  proxyURL: socks5://",
            "  proxyUrl: socks5://",
            "spec.proxyUrl",
        ),
        (
            "audience: staging",
            "audience: keyferry.dev",
            "spec.audience",
        ),
        ("", "", "spec.audience"),
        ("  issuer: Hub", "  issuer: 5", "spec.issuer"),
        ("default: 30m", "default: 1m", "spec.tokenLifetime.default"),
        ("max: 2h", "max: 48h", "spec.tokenLifetime.max"),
        (
            "suspend: true\n  allow",
            "suspend: maybe\n  allow",
            "spec.suspend",
        ),
        (
            "operator: NotIn",
            "operator: Not",
            "spec.allow[0].namespaceSelector.matchExpressions[0].operator",
        ),
        (
            "[HTTP, ArgoCDSecret]",
            "[HTTP, HTTP]",
            "spec.allow[0].deliveries[1]",
        ),
        (
            "  name: staging\n  namespace: tenant-a",
            "  name: prod\n  namespace: tenant-a",
            "metadata.name",
        ),
        ("callers: [notifier]", "callers: [a/b]", "spec.callers[0]"),
        ("probe: Report", "probe: Require", "spec.probe"),
    ];
    let mut expected = Vec::new();
    for (from, to, path) in edits {
        if !from.is_empty() {
            assert_eq!(text.matches(from).count(), 1, "{from:?}");
            text = text.replace(from, to);
        }
        expected.push(path);
    }
    text += "---\nkind: Secret\n";
    expected.push("kind");
    let found = mistakes_of(&text);
    let mut paths: Vec<&str> = found.iter().map(|mistake| mistake.path.as_str()).collect();
    paths.sort_unstable();
    expected.sort_unstable();
    assert_eq!(paths, expected, "{found:#?}");
    assert!(found.iter().all(|mistake| mistake.line > 0), "{found:#?}");
}

#[test]
fn stand_in_the_order_of_place_path_problem_fix() {
    let found = mistakes_of(&edited("issuer: Hub", "issuer: X"));
    assert_eq!(
        found[0].to_string(),
        "line 38: TargetCluster/staging: spec.issuer: \"X\" is not an issuer type; use Hub or Keyferry"
    );
    let found = mistakes_of(&edited("probe: Report", "probe: X"));
    assert!(
        found[0]
            .to_string()
            .starts_with("line 79: TargetAccess/tenant-a/staging: spec.probe: "),
        "{}",
        found[0]
    );
}
