//! Cases of TargetAccesses.

use serde_json::{Value, json};

use super::case::Taken::{self, ByApi, ByFile, No, Yes};
use super::case::{Case, access, all, each, spec, without};

const CONTROLLER: &str = "written by the controller, which does not run on a file";
const BOUND: &str = "the cost of the API's rules needs a bound; a file has its own, 8 MiB";

pub(super) fn cases() -> Vec<Case> {
    [references(), callers(), answered(), written(), choices()].concat()
}

fn references() -> Vec<Case> {
    let base = access();
    let mut cases = each(&base, "targetClusterRef", [(json!({ "name": "a.b" }), Yes)]);
    let bad = [
        json!({}),
        json!({ "name": "" }),
        json!({ "name": "A" }),
        json!({ "name": "a..b" }),
        json!("prod"),
        json!(["prod"]),
    ];
    cases.extend(each(
        &base,
        "targetClusterRef",
        all(No("spec.targetClusterRef"), bad),
    ));
    for member in ["namespace", "kind", "uid"] {
        cases.extend(each(
            &base,
            "targetClusterRef",
            [(json!({ "name": "prod", member: "x" }), No(member))],
        ));
    }
    cases.extend(each(&base, "serviceAccountName", all(Yes, ["a.b", "0"])));
    let bad = [
        "",
        "A",
        "tenant-b/reconciler",
        "system:serviceaccount:tenant-b:reconciler",
        "a..b",
        "*",
    ];
    cases.extend(each(
        &base,
        "serviceAccountName",
        all(No("spec.serviceAccountName"), bad),
    ));
    cases.push(without(
        &base,
        "serviceAccountName",
        No("spec.serviceAccountName"),
    ));
    cases.push(without(
        &base,
        "targetClusterRef",
        No("spec.targetClusterRef"),
    ));
    cases.push(spec(&base, json!({}), No("spec")));
    for member in [
        "serviceAccountNamespace",
        "address",
        "audience",
        "tokenLifetime",
    ] {
        cases.extend(each(&base, member, all(No(member), ["x"])));
    }
    cases.extend(each(
        &base,
        "/metadata/name",
        all(No("metadata.name"), ["A", "a/b"]),
    ));
    cases
}

fn callers() -> Vec<Case> {
    let base = access();
    let mut cases = each(
        &base,
        "callers",
        [(json!([]), Yes), (json!(["a", "b.c", "reconciler"]), Yes)],
    );
    let bad = [
        json!(["a", "a"]),
        json!(["tenant-b/a"]),
        json!([""]),
        json!(["*"]),
        json!("a"),
        json!([{ "name": "a" }]),
    ];
    cases.extend(each(&base, "callers", all(No("spec.callers"), bad)));
    let many: Vec<String> = (0..65).map(|number| format!("c{number}")).collect();
    cases.extend(each(
        &base,
        "callers",
        [(json!(many), ByFile("spec.callers", BOUND))],
    ));
    cases
}

/// Deliveries that only answer requests.
fn answered() -> Vec<Case> {
    let base = access();
    let of = |more: Value| {
        let mut delivery = json!({ "name": "a", "type": "HTTP" });
        if let (Some(delivery), Value::Object(more)) = (delivery.as_object_mut(), more) {
            delivery.extend(more);
        }
        json!([delivery])
    };
    let good = [
        json!([]),
        of(json!({})),
        json!([{ "name": "a", "type": "HTTP" }, { "name": "b", "type": "Exec" }, { "name": "c", "type": "Exec" }]),
    ];
    let mut cases = each(&base, "deliveries", all(Yes, good));
    let bad = [
        of(json!({ "type": "http" })),
        of(json!({ "type": "" })),
        of(json!({ "type": "Secret" })),
        of(json!({ "name": "" })),
        of(json!({ "name": "A" })),
        of(json!({ "name": "a/b" })),
        of(json!({ "objectName": "x" })),
        of(json!({ "tokenLifetime": "1h" })),
        of(json!({ "argoCD": { "project": "x" } })),
        of(json!({ "namespace": "x" })),
        json!([{ "name": "a", "type": "HTTP" }, { "name": "a", "type": "Exec" }]),
        json!([{ "type": "HTTP" }]),
        json!([{ "name": "a" }]),
        json!(["HTTP"]),
        json!({ "name": "a", "type": "HTTP" }),
    ];
    cases.extend(each(&base, "deliveries", all(No("spec.deliveries"), bad)));
    let label = ByFile(
        "spec.deliveries",
        "the API keeps the names of deliveries to labels of 63 characters",
    );
    cases.extend(each(
        &base,
        "deliveries",
        all(
            label,
            [
                of(json!({ "name": "a.b" })),
                of(json!({ "name": "a".repeat(64) })),
            ],
        ),
    ));
    let many: Vec<Value> = (0..17)
        .map(|number| json!({ "name": format!("d{number}"), "type": "HTTP" }))
        .collect();
    cases.extend(each(
        &base,
        "deliveries",
        [(json!(many), ByFile("spec.deliveries", BOUND))],
    ));
    cases
}

/// Deliveries that write objects. The file's reader refuses all of them, the API those that make no
/// sense.
fn written() -> Vec<Case> {
    let base = access();
    let by_controller = ByApi("spec.deliveries", CONTROLLER);
    let one = |kind: &str, more: Value, taken: Taken| {
        let mut delivery = json!({ "name": "a", "type": kind });
        if let (Some(delivery), Value::Object(more)) = (delivery.as_object_mut(), more) {
            delivery.extend(more);
        }
        (json!([delivery]), taken)
    };
    let refused = No("spec.deliveries");
    let argo = json!({ "argoCD": { "project": "apps" } });
    let table = [
        one("FluxConfigMap", json!({}), by_controller),
        one("FluxConfigMap", json!({ "objectName": "x" }), by_controller),
        one("FluxConfigMap", json!({ "tokenLifetime": "1h" }), refused),
        one("KubeConfigSecret", json!({}), by_controller),
        one(
            "KubeConfigSecret",
            json!({ "objectName": "x.y", "tokenLifetime": "24h" }),
            by_controller,
        ),
        one("KubeConfigSecret", json!({ "objectName": "X" }), refused),
        one("KubeConfigSecret", json!({ "objectName": "a..b" }), refused),
        one(
            "KubeConfigSecret",
            json!({ "objectName": "tenant-b/x" }),
            refused,
        ),
        one(
            "KubeConfigSecret",
            json!({ "tokenLifetime": "9m" }),
            refused,
        ),
        one(
            "KubeConfigSecret",
            json!({ "tokenLifetime": "25h" }),
            refused,
        ),
        one("KubeConfigSecret", json!({ "tokenLifetime": "" }), refused),
        one("KubeConfigSecret", argo.clone(), refused),
        one("ClusterAPISecret", json!({}), by_controller),
        one(
            "ClusterAPISecret",
            json!({ "objectName": "x-kubeconfig" }),
            by_controller,
        ),
        one("ClusterAPISecret", json!({ "objectName": "x" }), refused),
        one("ClusterProfile", json!({}), by_controller),
        one("ClusterProfile", json!({ "tokenLifetime": "1h" }), refused),
        one("ArgoCDSecret", argo, by_controller),
        one("ArgoCDSecret", json!({}), refused),
        one("ArgoCDSecret", json!({ "argoCD": {} }), refused),
        one(
            "ArgoCDSecret",
            json!({ "argoCD": { "project": "" } }),
            refused,
        ),
        one(
            "ArgoCDSecret",
            json!({ "argoCD": { "project": "team-a.apps" } }),
            by_controller,
        ),
        one(
            "ArgoCDSecret",
            json!({ "argoCD": { "project": "Apps" } }),
            refused,
        ),
        one(
            "ArgoCDSecret",
            json!({ "argoCD": { "project": "team_a" } }),
            refused,
        ),
        one(
            "ArgoCDSecret",
            json!({ "argoCD": { "project": "*" } }),
            refused,
        ),
        one(
            "ArgoCDSecret",
            json!({ "argoCD": { "project": "a b" } }),
            refused,
        ),
        one(
            "ArgoCDSecret",
            json!({ "argoCD": { "project": "-a" } }),
            refused,
        ),
        one(
            "ArgoCDSecret",
            json!({ "argoCD": { "project": "a", "form": "BearerToken" }, "tokenLifetime": "2h" }),
            by_controller,
        ),
        one(
            "ArgoCDSecret",
            json!({ "argoCD": { "project": "a", "form": "bearer" } }),
            refused,
        ),
        one(
            "ArgoCDSecret",
            json!({ "argoCD": { "project": "a", "server": "x" } }),
            refused,
        ),
    ];
    each(&base, "deliveries", table)
}

fn choices() -> Vec<Case> {
    let base = access();
    let mut cases = each(&base, "deletionPolicy", all(Yes, ["Drain", "Immediate"]));
    cases.extend(each(
        &base,
        "deletionPolicy",
        all(No("spec.deletionPolicy"), ["", "drain", "Orphan"]),
    ));
    cases.extend(each(&base, "probe", all(Yes, ["Off", "Report"])));
    cases.extend(each(
        &base,
        "probe",
        all(No("spec.probe"), ["", "off", "Always"]),
    ));
    cases.extend(each(&base, "probe", [(json!(false), No("spec.probe"))]));
    let later = ByApi(
        "spec.probe",
        "Require holds back what the controller writes, which does not run on a file",
    );
    cases.extend(each(&base, "probe", all(later, ["Require"])));
    cases.extend(each(
        &base,
        "suspend",
        [(json!(true), Yes), (json!(1), No("spec.suspend"))],
    ));
    cases
}
