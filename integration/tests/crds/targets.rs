//! Cases of TargetClusters, except their URLs.

use serde_json::{Value, json};

use super::case::Taken::{ByApi, ByFile, No, Yes};
use super::case::{Case, all, each, spec, target, without};

const BOUND: &str = "the cost of the API's rules needs a bound; a file has its own, 8 MiB";
const BY_THE_API: &str = "what the API itself writes or drops has no place in a file";
const PEM: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

pub(super) fn cases() -> Vec<Case> {
    [
        identity(),
        certificates(),
        audience(),
        issuer(),
        lifetimes(),
        allow(),
        of_the_hub(),
        selectors(),
        shape(),
    ]
    .concat()
}

fn identity() -> Vec<Case> {
    let base = target();
    let mut cases = each(&base, "/metadata/name", all(Yes, ["a", "a.b-c", "0"]));
    cases.extend(each(
        &base,
        "/metadata/name",
        all(No("metadata.name"), ["A", "a_b", "a..b", "a/b", "-a"]),
    ));
    cases.extend(each(
        &base,
        "/metadata/name",
        all(No("metadata.name"), ["a".repeat(254)]),
    ));
    cases.extend(each(
        &base,
        "/metadata/labels",
        [(json!({ "a": "b" }), Yes)],
    ));
    cases.extend(each(
        &base,
        "/metadata/finalizers",
        [(
            json!(["example.com/x"]),
            ByApi("metadata.finalizers", BY_THE_API),
        )],
    ));
    cases.extend(each(
        &base,
        "/status",
        [(json!({}), ByApi("status", BY_THE_API))],
    ));
    cases
}

fn certificates() -> Vec<Case> {
    let base = target();
    let mut cases = each(
        &base,
        "certSecretRef",
        [(json!({ "name": "prod-ca" }), Yes)],
    );
    let bad = [
        json!({}),
        json!({ "name": "" }),
        json!({ "name": "a/b" }),
        json!({ "name": "a..b" }),
        json!("prod-ca"),
        json!(["prod-ca"]),
    ];
    cases.extend(each(
        &base,
        "certSecretRef",
        all(No("spec.certSecretRef"), bad),
    ));
    let elsewhere = json!({ "name": "prod-ca", "namespace": "tenant-b" });
    cases.extend(each(
        &base,
        "certSecretRef",
        [(elsewhere, No("spec.certSecretRef.namespace"))],
    ));
    cases.extend(each(&base, "caBundle", all(Yes, [PEM])));
    cases.extend(each(
        &base,
        "caBundle",
        all(
            No("spec.caBundle"),
            ["", "MIIB", "-----BEGIN PRIVATE KEY-----\n"],
        ),
    ));
    let long = format!("{PEM}{}", "x".repeat(131_072));
    cases.extend(each(
        &base,
        "caBundle",
        all(ByFile("spec.caBundle", BOUND), [long]),
    ));
    let mut both = base.clone();
    both["spec"]["certSecretRef"] = json!({ "name": "prod-ca" });
    cases.extend(each(&both, "caBundle", all(No("certSecretRef"), [PEM])));
    let bundle = json!({ "name": "example.com:serving:prod-ca" });
    cases.extend(each(
        &base,
        "clusterTrustBundleRef",
        [(bundle.clone(), Yes)],
    ));
    cases.extend(each(
        &base,
        "clusterTrustBundleRef",
        all(
            No("spec.clusterTrustBundleRef"),
            [json!({}), json!({ "name": "a/b" }), json!({ "name": ":a" })],
        ),
    ));
    let both = all(No("clusterTrustBundleRef"), [bundle]);
    let mut secret = base.clone();
    secret["spec"]["certSecretRef"] = json!({ "name": "prod-ca" });
    cases.extend(each(&secret, "clusterTrustBundleRef", both));
    cases
}

fn audience() -> Vec<Case> {
    let base = target();
    let mut cases = each(
        &base,
        "audience",
        all(
            Yes,
            [
                "https://prod.example.com:6443",
                "a",
                "!#$%&()*+-./:;<=>?@[]^_{|}~",
            ],
        ),
    );
    cases.extend(each(&base, "audience", all(Yes, ["a".repeat(256)])));
    let bad = [
        "",
        "a b",
        "a,b",
        "a\"b",
        "a'b",
        "a`b",
        "a\\b",
        "a\nb",
        "a\n",
        "\u{e9}",
        "keyferry.dev/inert",
    ];
    cases.extend(each(&base, "audience", all(No("spec.audience"), bad)));
    cases.extend(each(
        &base,
        "audience",
        all(No("spec.audience"), ["a".repeat(257)]),
    ));
    // YAML itself does not allow this character.
    cases.extend(each(&base, "audience", all(No(""), ["a\u{7f}"])));
    let own = ByApi(
        "spec.audience",
        "callerAudience is a setting of the server, so for an object the server says it by a \
         condition",
    );
    cases.extend(each(&base, "audience", all(own, ["keyferry.dev"])));
    cases.push(without(&base, "audience", No("spec.audience")));
    cases
}

fn issuer() -> Vec<Case> {
    let base = target();
    let mut cases = each(&base, "issuer", all(Yes, ["Hub", "Keyferry"]));
    cases.extend(each(
        &base,
        "issuer",
        all(No("spec.issuer"), ["", "hub", "Other"]),
    ));
    let mut own = base.clone();
    own["spec"]["issuer"] = json!("Keyferry");
    cases.extend(each(&own, "/metadata/name", all(Yes, ["a".repeat(200)])));
    cases.extend(each(&own, "/metadata/name", all(No(""), ["a".repeat(240)])));
    let room = ByFile(
        "",
        "200 is what the message promises; the reader counts the Secret's name and the URL",
    );
    cases.extend(each(&own, "/metadata/name", all(room, ["a".repeat(201)])));
    let twice = ByApi(
        "spec.targetIssuer",
        "publicURL is a setting of the server, so for an object the server says it by a condition",
    );
    cases.extend(each(
        &own,
        "targetIssuer",
        all(twice, ["https://keyferry.example.com/issuers/prod"]),
    ));
    cases
}

fn lifetimes() -> Vec<Case> {
    let base = target();
    let field = "spec.tokenLifetime";
    let mut cases = each(
        &base,
        "tokenLifetime.max",
        all(
            Yes,
            [
                "10m",
                "24h",
                "1h30m",
                "600s",
                "23h59m60s",
                "0h10m",
                "010m",
                "1h",
            ],
        ),
    );
    let bad = [
        "",
        "9m59s",
        "24h1s",
        "1d",
        "90",
        "-1h",
        "1.5h",
        "30m1h",
        "1h1h",
        "1h ",
        "999999999999h",
        "99999999999999h",
    ];
    cases.extend(each(&base, "tokenLifetime.max", all(No(field), bad)));
    cases.extend(each(
        &base,
        "tokenLifetime.default",
        all(Yes, ["10m", "12h", "1h"]),
    ));
    cases.extend(each(
        &base,
        "tokenLifetime.default",
        all(No(field), ["", "9m", "25h", "12h1s", "13h", "1ms"]),
    ));
    cases.extend(each(
        &base,
        "tokenLifetime.default",
        [(json!(3600), No(field))],
    ));
    cases.extend(each(
        &base,
        "tokenLifetime.least",
        all(No("spec.tokenLifetime.least"), ["1h"]),
    ));
    for (default, max, taken) in [
        ("1h", "1h", Yes),
        ("24h", "24h", Yes),
        ("2h", "1h", No(field)),
        ("1h1s", "60m", No(field)),
    ] {
        cases.extend(each(
            &base,
            "tokenLifetime",
            [(json!({ "default": default, "max": max }), taken)],
        ));
    }
    cases.extend(each(
        &base,
        "tokenLifetime",
        [(json!({ "max": "30m" }), Yes), (json!({}), Yes)],
    ));
    cases.extend(each(
        &base,
        "tokenLifetime.max",
        all(ByFile(field, BOUND), ["00000000000000010h"]),
    ));
    cases
}

fn allow() -> Vec<Case> {
    let base = target();
    let rule = |namespaces: Value, accounts: Value| json!([{ "namespaces": namespaces, "serviceAccounts": accounts }]);
    let mut good = vec![json!([]), rule(json!(["a", "b"]), json!(["x", "y.z"]))];
    // Whether these namespaces may have tokens is decided at a request. The objects are
    // well-formed.
    good.push(rule(json!(["kube-system"]), json!(["x"])));
    good.push(rule(json!(["keyferry-system"]), json!(["x"])));
    good.push(json!([
        { "namespaces": ["a"], "serviceAccounts": ["x"], "deliveries": ["ArgoCDSecret", "ClusterAPISecret", "ClusterProfile", "Exec"] },
        { "namespaces": ["a"], "serviceAccounts": ["x"], "deliveries": ["FluxConfigMap", "HTTP", "KubeConfigSecret"] },
    ]));
    let mut cases = each(&base, "allow", all(Yes, good));
    let bad = [
        rule(json!([]), json!(["x"])),
        rule(json!(["a"]), json!([])),
        rule(json!(["a", "a"]), json!(["x"])),
        rule(json!(["a"]), json!(["x", "x"])),
        rule(json!(["a.b"]), json!(["x"])),
        rule(json!(["*"]), json!(["x"])),
        rule(json!([""]), json!(["x"])),
        rule(json!(["a"]), json!(["*"])),
        rule(json!(["a"]), json!([""])),
        rule(json!(["a"]), json!(["b/x"])),
        rule(json!(["a"]), json!(["system:serviceaccount:a:x"])),
        rule(json!(["a".repeat(64)]), json!(["x"])),
        rule(json!("a"), json!(["x"])),
        rule(json!([1]), json!(["x"])),
        json!([{ "namespaces": ["a"] }]),
        json!([{ "serviceAccounts": ["x"] }]),
        json!([{ "namespaces": ["a"], "serviceAccounts": ["x"], "deliveries": [] }]),
        json!([{ "namespaces": ["a"], "serviceAccounts": ["x"], "deliveries": ["http"] }]),
        json!([{ "namespaces": ["a"], "serviceAccounts": ["x"], "deliveries": ["HTTP", "HTTP"] }]),
        json!([{ "namespaces": ["a"], "serviceAccounts": ["x"], "groups": ["y"] }]),
        json!([{ "namespaces": ["a"], "serviceAccounts": ["x"], "namespaceSelector": { "matchLabels": { "access.keyferry.dev/a": "b" } } }]),
        json!([["a"]]),
        json!({ "namespaces": ["a"], "serviceAccounts": ["x"] }),
    ];
    cases.extend(each(&base, "allow", all(No("spec.allow"), bad)));
    let many = |count: usize| {
        (0..count)
            .map(|number| format!("n{number}"))
            .collect::<Vec<_>>()
    };
    cases.extend(each(
        &base,
        "allow",
        all(Yes, [rule(json!(many(256)), json!(many(64)))]),
    ));
    let much = [
        rule(json!(many(257)), json!(["x"])),
        rule(json!(["a"]), json!(many(65))),
    ];
    cases.extend(each(&base, "allow", all(ByFile("spec.allow", BOUND), much)));
    cases
}

/// The hub itself as a target: its clients get certificates, and no other target's do.
fn of_the_hub() -> Vec<Case> {
    let base = target();
    let allowing = |hub: bool, deliveries: Option<Value>| {
        let mut rule = json!({ "namespaces": ["a"], "serviceAccounts": ["x"] });
        if let Some(deliveries) = deliveries {
            rule["deliveries"] = deliveries;
        }
        json!({ "address": "https://prod.example.com", "audience": "https://prod", "hub": hub, "allow": [rule] })
    };
    let certificate = || Some(json!(["ClientCertificateSecret"]));
    let both = || Some(json!(["ClientCertificateSecret", "Exec"]));
    let refused = No("spec.allow");
    [
        (true, certificate(), Yes),
        (true, None, refused),
        (true, both(), refused),
        (true, Some(json!(["Exec"])), refused),
        (false, certificate(), refused),
        (false, both(), refused),
        (false, Some(json!(["Exec"])), Yes),
    ]
    .into_iter()
    .map(|(hub, deliveries, taken)| spec(&base, allowing(hub, deliveries), taken))
    .collect()
}

fn selectors() -> Vec<Case> {
    let base = target();
    let of = |selector: Value| json!([{ "namespaceSelector": selector, "serviceAccounts": ["x"] }]);
    let term = |key: &str, operator: &str, values: &[&str]| json!({ "key": key, "operator": operator, "values": values });
    let bare = |key: &str, operator: &str| json!({ "key": key, "operator": operator });
    let (guarded, name) = ("access.keyferry.dev/team", "kubernetes.io/metadata.name");
    let terms = |terms: Vec<Value>| of(json!({ "matchExpressions": terms }));
    let good = [
        of(json!({ "matchLabels": { guarded: "a" } })),
        of(json!({ "matchLabels": { name: "a" } })),
        terms(vec![term(guarded, "In", &["a", "b"])]),
        terms(vec![bare(guarded, "Exists")]),
        terms(vec![
            bare(guarded, "Exists"),
            bare("access.keyferry.dev/off", "DoesNotExist"),
        ]),
        terms(vec![
            term(name, "In", &["a"]),
            term(guarded, "NotIn", &["b"]),
        ]),
        of(
            json!({ "matchLabels": { guarded: "a" }, "matchExpressions": [bare("access.keyferry.dev/off", "DoesNotExist")] }),
        ),
    ];
    let bad = [
        of(json!({})),
        of(json!({ "matchLabels": {} })),
        of(json!({ "matchExpressions": [] })),
        of(json!({ "matchLabels": { "team": "a" } })),
        of(json!({ "matchLabels": { guarded: "a", "team": "a" } })),
        of(json!({ "matchLabels": { "access.keyferry.dev": "a" } })),
        of(json!({ "matchLabels": { "x.access.keyferry.dev/team": "a" } })),
        of(json!({ "matchLabels": { "kubernetes.io/metadata.names": "a" } })),
        of(json!({ "matchLabels": { guarded: true } })),
        of(json!({ "matchNames": ["a"] })),
        terms(vec![bare(name, "Exists")]),
        terms(vec![term(name, "NotIn", &["a"])]),
        terms(vec![bare(guarded, "DoesNotExist")]),
        terms(vec![term(guarded, "NotIn", &["a"])]),
        terms(vec![term(guarded, "NotIn", &["a"]), bare(name, "Exists")]),
        terms(vec![bare("team", "Exists")]),
        terms(vec![term(guarded, "In", &[])]),
        terms(vec![bare(guarded, "In")]),
        terms(vec![term(guarded, "Exists", &["a"])]),
        terms(vec![term(guarded, "exists", &[])]),
        terms(vec![json!({ "operator": "Exists" })]),
        terms(vec![json!({ "key": guarded })]),
        terms(vec![
            json!({ "key": guarded, "operator": "In", "value": "a", "values": ["a"] }),
        ]),
    ];
    let mut cases = each(&base, "allow", all(Yes, good));
    cases.extend(each(
        &base,
        "allow",
        all(No("spec.allow[0].namespaceSelector"), bad),
    ));
    let long = ByFile(
        "spec.allow[0].namespaceSelector",
        "no label of a namespace is so long, so it would select nothing",
    );
    cases.extend(each(
        &base,
        "allow",
        all(
            long,
            [terms(vec![term(guarded, "In", &["a".repeat(64).as_str()])])],
        ),
    ));
    cases
}

fn shape() -> Vec<Case> {
    let base = target();
    let mut cases = vec![
        spec(
            &base,
            json!({ "address": "https://prod.example.com", "audience": "a" }),
            Yes,
        ),
        spec(&base, json!({ "audience": "a" }), No("spec.address")),
        spec(&base, json!({}), No("spec")),
        spec(&base, json!([]), No("spec")),
        spec(&base, Value::Null, No("spec")),
    ];
    cases.extend(each(
        &base,
        "deletionPolicy",
        [
            (json!("Drain"), Yes),
            (json!("Immediate"), Yes),
            (json!("Orphan"), No("spec.deletionPolicy")),
        ],
    ));
    cases.extend(each(
        &base,
        "suspend",
        [
            (json!(true), Yes),
            (json!(false), Yes),
            (json!("true"), No("spec.suspend")),
        ],
    ));
    for member in [
        "adress",
        "namespace",
        "insecureSkipTLSVerify",
        "caFile",
        "Address",
    ] {
        cases.extend(each(&base, member, all(No(member), ["x"])));
    }
    cases.extend(each(
        &base,
        "address",
        [
            (json!(1), No("spec.address")),
            (json!(["https://prod.example.com"]), No("spec.address")),
        ],
    ));
    cases.extend(each(&base, "address", [(Value::Null, No("spec.address"))]));
    cases
}
