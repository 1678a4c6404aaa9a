//! Tests of STATUS, the one-line summary of an access.

use std::time::Duration;

use keyferry_core::access_status::TargetIdentity;
use keyferry_hub::admission_policy::Standing;
use keyferry_platform::target_probe::ProbeAnswer;
use serde_json::{Value, json};

use super::bench::{ACCESS, Bench, TARGET};
use crate::delivery::Next;

fn probed() -> Value {
    json!({ "deliveries": [{ "name": "s", "type": "KubeConfigSecret" }], "probe": "Report" })
}

fn accepted() -> ProbeAnswer {
    ProbeAnswer::Accepted(TargetIdentity {
        username: "hub:a".to_owned(),
        uid: String::new(),
        groups: Vec::new(),
    })
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
            ProbeAnswer::Unanswered("connection refused".into()),
            "Unknown",
            "delivered, but the target does not answer",
        ),
        (accepted(), "True", "authorised and delivered"),
    ];
    for (answer, authenticates, line) in answers {
        bench.begin_with(probed());
        bench.probe.set_answer(answer);
        bench.reconcile_all(&bench.process()).await;
        bench.assert_ready("Ready is Keyferry's own work");
        assert_eq!(bench.condition("TargetAuthenticates").0, authenticates);
        assert_eq!(summary(&bench), line);
    }
}

/// TARGET-OK was believed for ten minutes, whatever a person did.
#[tokio::test]
async fn a_requested_check_asks_the_target_at_once_and_the_status_says_when() {
    let mut bench = Bench::start().await;
    bench.begin_with(probed());
    bench.probe.set_answer(accepted());
    let process = bench.process();
    bench.reconcile_all(&process).await;
    let probed_at = || {
        let access = bench.objects.object(ACCESS).unwrap();
        access["status"]["lastProbeTime"]
            .as_str()
            .map(str::to_owned)
    };
    let first = probed_at().unwrap();
    for (path, value) in [(ACCESS, "1"), (TARGET, "2"), (ACCESS, "3")] {
        let asked = bench.probe.asked();
        bench.world.clock.advance(Duration::from_secs(5));
        bench.reconcile_all(&process).await;
        assert_eq!(bench.probe.asked(), asked, "the answer is cached");
        bench.probe.set_answer(ProbeAnswer::Refused);
        bench.objects.edit(path, |object| {
            object["metadata"]["annotations"] = json!({ "keyferry.dev/requestedAt": value });
        });
        bench.reconcile_all(&process).await;
        assert_eq!(bench.probe.asked(), asked + 1, "{path}");
        assert_eq!(bench.condition("TargetAuthenticates").0, "False", "{path}");
        bench.probe.set_answer(accepted());
        bench.world.clock.advance(Duration::from_secs(61));
        bench.reconcile_all(&process).await;
        assert_eq!(bench.condition("TargetAuthenticates").0, "True", "{path}");
    }
    assert!(probed_at().unwrap() > first);
}

/// A silent target is asked every minute; the time alone is not worth a write as often.
#[tokio::test]
async fn an_unchanged_answer_is_not_written_at_every_probe() {
    let mut bench = Bench::start().await;
    bench.begin_with(probed());
    bench
        .probe
        .set_answer(ProbeAnswer::Unanswered("nobody is there".into()));
    let process = bench.process();
    bench.reconcile_all(&process).await;
    let version = || bench.objects.object(ACCESS).unwrap()["metadata"]["resourceVersion"].clone();
    let (before, asked) = (version(), bench.probe.asked());
    for _ in 0..3 {
        bench.world.clock.advance(Duration::from_secs(61));
        bench.reconcile_all(&process).await;
    }
    assert_eq!((version(), bench.probe.asked()), (before, asked + 3));
}

/// Its callers learn for themselves what the target answers. No token is minted for nobody.
#[tokio::test]
async fn the_target_of_an_access_without_objects_is_asked_once_on_request() {
    let mut bench = Bench::start().await;
    bench.begin_with(json!({}));
    bench.probe.set_answer(accepted());
    let process = bench.process();
    bench.reconcile_all(&process).await;
    assert_eq!(bench.probe.asked(), 0);
    let probed_at = || {
        let access = bench.objects.object(ACCESS).unwrap();
        access["status"]["lastProbeTime"].clone()
    };
    assert_eq!(probed_at(), json!(null));
    assert_eq!(bench.condition("TargetAuthenticates").0, "");
    let request = |path: &str, value: &str| {
        bench.objects.edit(path, |object| {
            object["metadata"]["annotations"] = json!({ "keyferry.dev/requestedAt": value });
        });
    };
    // Without a checked author, no token is minted for it.
    bench
        .admission_policy
        .set_state(Standing::Gap("it is not there".to_owned()));
    request(ACCESS, "1");
    bench.reconcile_all(&process).await;
    assert_eq!(bench.probe.asked(), 0);
    // The status says why there is no answer.
    let unknown = ("Unknown".to_owned(), "AuthorUnchecked".to_owned());
    assert_eq!(bench.condition("TargetAuthenticates"), unknown);
    assert_eq!(bench.condition("TargetReachable").0, "");
    let line = summary(&bench);
    assert!(
        line.ends_with("no token could be tried at the target"),
        "{line}"
    );
    bench.admission_policy.set_state(Standing::Active);
    for (asked, path, answer, authenticates) in [
        (1, ACCESS, accepted(), "True"),
        (2, TARGET, accepted(), "True"),
    ] {
        bench.probe.set_answer(answer);
        request(path, &format!("request {asked}"));
        bench.reconcile_all(&process).await;
        assert_eq!(bench.probe.asked(), asked);
        assert_eq!(bench.condition("TargetAuthenticates").0, authenticates);
        assert!(probed_at().is_string());
        assert_eq!(bench.audit.tokens(), asked);
        let time = probed_at();
        bench.world.clock.advance(Duration::from_secs(1200));
        bench.reconcile_all(&process).await;
        assert_eq!(bench.probe.asked(), asked, "only a request asks again");
        assert_eq!(bench.condition("TargetAuthenticates").0, "");
        assert_eq!(bench.condition("TargetReachable").0, "");
        assert_eq!(probed_at(), time, "of an old answer, only its time stays");
    }
}

/// `onboard` requests a check also while the target still refuses the token. Its 401 stayed in the
/// status until the next request.
#[tokio::test]
async fn a_refusal_on_request_is_asked_about_again_for_a_bounded_time() {
    let mut bench = Bench::start().await;
    bench.begin_with(json!({}));
    bench.probe.set_answer(ProbeAnswer::Refused);
    let process = bench.process();
    bench.objects.edit(ACCESS, |object| {
        object["metadata"]["annotations"] = json!({ "keyferry.dev/requestedAt": "1" });
    });
    let next = bench.reconcile_all(&process).await;
    assert_eq!(next, Next::After(Duration::from_secs(60)));
    assert_eq!(bench.condition("TargetAuthenticates").0, "False");
    bench.probe.set_answer(accepted());
    bench.world.clock.advance(Duration::from_secs(61));
    bench.reconcile_all(&process).await;
    assert_eq!(bench.condition("TargetAuthenticates").0, "True");
    // A target that goes on refusing is asked for a quarter of an hour.
    bench.probe.set_answer(ProbeAnswer::Refused);
    let asked = bench.probe.asked();
    bench.objects.edit(ACCESS, |object| {
        object["metadata"]["annotations"] = json!({ "keyferry.dev/requestedAt": "2" });
    });
    for _ in 0..30 {
        bench.reconcile_all(&process).await;
        bench.world.clock.advance(Duration::from_secs(60));
    }
    assert_eq!(bench.probe.asked(), asked + 15);
    assert_eq!(bench.condition("TargetAuthenticates").0, "");
}

/// Each restart asked every annotated target again, with a token and an audit record for each.
#[tokio::test]
async fn a_new_process_repeats_no_handled_request() {
    let mut bench = Bench::start().await;
    bench.begin_with(json!({}));
    bench.probe.set_answer(accepted());
    for (path, value) in [(ACCESS, "1"), (TARGET, "2")] {
        let process = bench.process();
        bench.reconcile_all(&process).await;
        let asked = bench.probe.asked();
        bench.objects.edit(path, |object| {
            object["metadata"]["annotations"] = json!({ "keyferry.dev/requestedAt": value });
        });
        bench.reconcile_all(&process).await;
        assert_eq!(bench.probe.asked(), asked + 1, "{path}");
        // The status of the TargetCluster is written elsewhere.
        bench.objects.edit(TARGET, |object| {
            let annotations = &object["metadata"]["annotations"];
            let requested = annotations["keyferry.dev/requestedAt"].clone();
            object["status"]["lastHandledReconcileAt"] = requested;
        });
        let time = bench.objects.object(ACCESS).unwrap()["status"]["lastProbeTime"].clone();
        bench.reconcile_all(&bench.process()).await;
        process.not_leading();
        bench.reconcile_all(&process).await;
        assert_eq!(bench.probe.asked(), asked + 1, "{path}");
        let access = bench.objects.object(ACCESS).unwrap();
        assert_eq!(access["status"]["lastProbeTime"], time);
    }
}

#[tokio::test]
async fn a_replica_forgets_the_answers_when_another_leads() {
    let mut bench = Bench::start().await;
    bench.begin_with(probed());
    bench.probe.set_answer(accepted());
    let process = bench.process();
    bench.reconcile_all(&process).await;
    process.not_leading();
    bench.probe.set_answer(ProbeAnswer::Refused);
    bench.reconcile_all(&process).await;
    assert_eq!(bench.condition("TargetAuthenticates").0, "False");
}

/// A relying party has no address, so nothing is tried there, and none is asked while suspended.
#[tokio::test]
async fn a_requested_check_sends_no_token_where_none_may_go() {
    let mut bench = Bench::start().await;
    bench.begin_with(json!({}));
    bench.probe.set_answer(accepted());
    bench.objects.edit(ACCESS, |object| {
        object["metadata"]["annotations"] = json!({ "keyferry.dev/requestedAt": "1" });
    });
    for further in [
        json!({ "kind": "Audience", "address": null }),
        json!({ "suspend": true }),
        json!({ "allow": [] }),
    ] {
        bench.put_target(&further);
        bench.reconcile_all(&bench.process()).await;
        assert_eq!(bench.probe.asked(), 0, "{further}");
    }
    bench.put_target(&json!({}));
    bench.objects.edit(ACCESS, |object| {
        object["metadata"]["annotations"] = json!({ "keyferry.dev/requestedAt": "2" });
    });
    bench.reconcile_all(&bench.process()).await;
    assert_eq!(bench.probe.asked(), 1);
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
    bench.reconcile_once(&bench.process()).await;
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
