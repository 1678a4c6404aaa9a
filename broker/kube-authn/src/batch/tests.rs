#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;

const CONFIG: &str = "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\njwt:\n- issuer: {url: https://hub, audiences: \
                      [a]}\n  claimMappings:\n    username: {claim: sub, prefix: 'hub:'}\n";

fn ask(case: Value) -> Value {
    serde_json::from_str(&Batch::new().report_line(&case.to_string())).unwrap()
}

fn account() -> Value {
    json!({"namespace": "ns", "name": "sa", "issuer": "https://hub", "audience": "a"})
}

#[test]
fn a_service_account_is_answered_before_its_token_exists() {
    let report = ask(
        json!({"id": 7, "minor": "1.33", "config": CONFIG, "now": 1_790_000_000, "serviceAccount": account()}),
    );
    assert_eq!(report["id"], 7);
    assert_eq!(report["schema"], SCHEMA_VERSION);
    assert_eq!(report["verdict"], "Accepted");
    assert_eq!(
        report["user"]["username"],
        "hub:system:serviceaccount:ns:sa"
    );
    assert_eq!(report["signature"], "NotChecked");
    assert_eq!(
        report["assumed"],
        json!(["jti", "kubernetes.io.serviceaccount.uid"])
    );
    assert_eq!(report["authenticators"][0]["verdict"], "Accepted");
}

#[test]
fn rejections_and_refusals_name_their_reason() {
    let mut wrong = account();
    wrong["audience"] = json!("b");
    let report = ask(json!({"minor": "1.36", "config": CONFIG, "now": 1, "serviceAccount": wrong}));
    assert_eq!(report["verdict"], "Rejected");
    assert_eq!(report["reason"]["code"], "AudienceDiffers");
    assert_eq!(report["reason"]["stage"], "Audience");
    assert_eq!(report["reason"]["exact"], true);
    let refused = CONFIG.replace("https", "http");
    let report = ask(json!({"minor": "1.36", "config": refused, "now": 1, "token": "x"}));
    assert_eq!(report["verdict"], "ConfigurationRefused");
    assert_eq!(report["errors"][0]["code"], "UrlNotHttps");
    assert_eq!(report["errors"][0]["type"], "FieldValueInvalid");
    let report = ask(json!({"minor": "1.36", "config": "kind: 5", "now": 1, "token": "x"}));
    assert_eq!(
        (&report["verdict"], &report["reason"]["code"]),
        (&json!("ConfigurationRefused"), &json!("WrongFieldType"))
    );
    let report = ask(json!({"minor": "1.36", "config": CONFIG, "now": 1, "token": "x"}));
    assert_eq!(
        (&report["verdict"], &report["reason"]["code"]),
        (&json!("Skipped"), &json!("NotThreeParts"))
    );
}

#[test]
fn a_line_that_is_no_case_is_answered_too() {
    for line in [
        "",
        "{}",
        "[]",
        "{\"minor\":\"1.29\",\"config\":\"\",\"now\":1,\"token\":\"\"}",
        "{\"minor\":\"1.33\",\"config\":\"\",\"now\":1}",
    ] {
        let report: Value = serde_json::from_str(&Batch::new().report_line(line)).unwrap();
        assert_eq!(
            (&report["verdict"], &report["reason"]["code"]),
            (&json!("Undetermined"), &json!("NotACase")),
            "{line}"
        );
    }
}

#[test]
fn a_configuration_that_changes_is_compiled_again() {
    let mut batch = Batch::new();
    let mut verdict = |config: &str, minor: &str| {
        let case = json!({"minor": minor, "config": config, "now": 1, "serviceAccount": account()});
        serde_json::from_str::<Value>(&batch.report_line(&case.to_string())).unwrap()["verdict"]
            .clone()
    };
    assert_eq!(verdict(CONFIG, "1.33"), "Accepted");
    assert_eq!(verdict(CONFIG, "1.33"), "Accepted");
    assert_eq!(
        verdict(&CONFIG.replace("https", "http"), "1.33"),
        "ConfigurationRefused"
    );
    assert_eq!(
        verdict(&CONFIG.replace("v1beta1", "v1"), "1.33"),
        "ConfigurationRefused"
    );
    assert_eq!(
        verdict(&CONFIG.replace("v1beta1", "v1"), "1.34"),
        "Accepted"
    );
    // What a newer release decides is unknown, though 1.37 accepts the token.
    assert_eq!(verdict(CONFIG, "1.37"), "Accepted");
    assert_eq!(verdict(CONFIG, "1.38"), "Undetermined");
}
