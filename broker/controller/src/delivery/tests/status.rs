//! Tests of STATUS, the one-line summary of an access.

use keyferry_core::access_status::TargetIdentity;
use keyferry_hub::ports::ProbeAnswer;
use serde_json::{Value, json};

use super::bench::{ACCESS, Bench};

fn probed() -> Value {
    json!({ "deliveries": [{ "name": "s", "type": "KubeConfigSecret" }], "probe": "Report" })
}

fn summary(bench: &Bench) -> String {
    let access = bench.objects.object(ACCESS).unwrap();
    access["status"]["summary"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test]
async fn ready_beside_a_401_is_not_all_well() {
    let mut bench = Bench::start().await;
    let answers = [
        (
            ProbeAnswer::Refused,
            "False",
            "delivered, but the target refuses the token (401)",
        ),
        (
            ProbeAnswer::Unanswered("connection refused"),
            "Unknown",
            "delivered, but the target does not answer",
        ),
        (
            ProbeAnswer::Accepted(TargetIdentity {
                username: "hub:a".to_owned(),
                uid: String::new(),
                groups: Vec::new(),
            }),
            "True",
            "authorised and delivered",
        ),
    ];
    for (answer, authenticates, line) in answers {
        bench.begin_with(probed());
        bench.probe.answer(answer);
        bench.reconcile_all(&bench.process()).await;
        bench.assert_ready("Ready is Keyferry's own work");
        assert_eq!(bench.condition("TargetAuthenticates").0, authenticates);
        assert_eq!(summary(&bench), line);
    }
}

#[tokio::test]
async fn what_the_hub_says_at_length_is_in_the_condition_alone() {
    let mut bench = Bench::start().await;
    bench.begin_with(probed());
    let long = format!("theirs\n{}", "x".repeat(5000));
    bench.put_access(json!({ "deliveries": [{ "name": "s", "type": "KubeConfigSecret", "tokenLifetime": long }] }));
    bench.reconcile_all(&bench.process()).await;
    assert_eq!(
        bench.condition("Ready"),
        ("False".to_owned(), "SpecInvalid".to_owned())
    );
    let line = summary(&bench);
    assert!(
        (1..=80).contains(&line.chars().count()) && !line.contains('x') && !line.contains('\n'),
        "{line}"
    );
}

#[tokio::test]
async fn a_drain_says_how_it_is_ended() {
    let mut bench = Bench::start().await;
    bench.begin_with(probed());
    bench.reconcile_all(&bench.process()).await;
    bench.delete_access();
    bench.look(&bench.process()).await;
    let line = summary(&bench);
    assert!(
        line.starts_with("deleted; stays until 2")
            && line.ends_with("deletionPolicy: Immediate ends it"),
        "{line}"
    );
    let access = bench.objects.object(ACCESS).unwrap();
    let message = access["status"]["conditions"][0]["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let patch = r#"kubectl patch targetaccess apps -n tenant-a --type=merge -p '{"spec":{"deletionPolicy":"Immediate"}}'"#;
    assert!(message.contains(patch), "{message}");
}
