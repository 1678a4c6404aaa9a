//! What is found, what is not known, and what a hostile log can do.

use keyferry_core::audit::record_schema;
use serde_json::{Value, json};

use super::*;

const JTI: &str = "6f2ee0f7-1ab9-4d7a-8f4e-0e2f1b1f0c55";
const USER: &str = "hub:system:serviceaccount:tenant-a:reconciler";

/// A time of the day of all records.
fn at(time: &str) -> String {
    format!("2026-11-29T{time}Z")
}

fn use_event(jti: &str, user: &str, time: &str, address: &str) -> Value {
    json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata",
        "auditID": format!("use-{jti}-{time}"), "stage": "ResponseComplete",
        "requestURI": "/api/v1/namespaces/apps/pods?limit=500", "verb": "list",
        "user": { "username": user, "groups": ["system:authenticated"],
            "extra": { "authentication.kubernetes.io/credential-id": [format!("JTI={jti}")] } },
        "sourceIPs": [address], "userAgent": "kubectl/v1.36", "responseStatus": { "code": 200 },
        "objectRef": { "resource": "pods", "namespace": "apps" },
        "requestReceivedTimestamp": at(time), "stageTimestamp": at("23:59:59"),
    })
}

fn request_event(jti: &str, user: &str, time: &str) -> Value {
    json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata",
        "auditID": format!("request-{time}"), "stage": "ResponseComplete", "verb": "create",
        "requestURI": "/api/v1/namespaces/tenant-a/serviceaccounts/reconciler/token",
        "user": { "username": user }, "sourceIPs": ["10.0.0.9"],
        "objectRef": { "resource": "serviceaccounts", "namespace": "tenant-a", "name": "reconciler", "subresource": "token" },
        "requestReceivedTimestamp": at(time),
        "annotations": { "authentication.kubernetes.io/issued-credential-id": format!("JTI={jti}") },
    })
}

fn record(jti: &str, time: &str) -> Value {
    json!({
        "time": at(time), "requestId": "000000000000000a", "route": "exchange",
        "decision": "granted", "reason": "Ready", "caller": "system:serviceaccount:tenant-a:ci",
        "access": "tenant-a/prod", "serviceAccount": "tenant-a/reconciler", "target": "prod",
        "tokenId": jti, "keyId": "key-1", "expiresAt": at("11:00:00"),
    })
}

fn denial(time: &str) -> Value {
    json!({ "time": at(time), "requestId": "b", "route": "exchange", "decision": "denied", "reason": "TargetNotGranted" })
}

/// The value with another member.
fn with(mut value: Value, pointer: &str, member: Value) -> Value {
    *value.pointer_mut(pointer).unwrap() = member;
    value
}

fn keys_revoked_at(time: &str) -> TraceOptions {
    let keys = json!({ "keys": [], "revoked": [{ "kid": "key-1", "at": at(time) }] });
    TraceOptions {
        keys: KeysDocument::read(keys.to_string().as_bytes()).ok(),
        ..TraceOptions::default()
    }
}

fn trace(options: TraceOptions, files: &[(RecordKind, &[Value])]) -> TraceReport {
    let mut trail = Trail::new(options);
    for (record, lines) in files {
        trail.begin_file(*record, &format!("{record:?}.log"));
        for line in *lines {
            trail.add_bytes(format!("{line}\n").as_bytes());
        }
    }
    trail.finish()
}

/// The codes of all notes, of tokens and of files.
fn codes(report: &TraceReport) -> Vec<TraceCode> {
    let of_tokens = report.tokens.iter().flat_map(|token| &token.notes);
    let notes = of_tokens.chain(&report.undetermined);
    notes.map(|note| note.code).collect()
}

use RecordKind::{Hub, Keyferry, Target};
use TraceCode::{
    FileIncomplete, KeyUnknown, NotRecorded, NotSeen, RecordUnknown, RequestedTwice,
    SeveralNetworks, SeveralUsers, UsedAfterEnd, UsedAfterRevocation,
};

/// What Keyferry's file has around a token that is issued at ten.
fn whole_day(records: &[Value]) -> Vec<Value> {
    let around = [denial("00:00:00"), denial("23:59:00")];
    [&around[..1], records, &around[1..]].concat()
}

type Case = (
    &'static str,
    TraceOptions,
    Vec<(RecordKind, Vec<Value>)>,
    &'static [TraceCode],
);

fn cases_of_records() -> Vec<Case> {
    let usual = || use_event(JTI, USER, "10:00:02", "10.0.1.2");
    let keyferry = "system:serviceaccount:keyferry-system:keyferry";
    let requested = || request_event(JTI, keyferry, "10:00:00");
    let by_admin = || request_event(JTI, "kubernetes-admin", "10:00:00");
    let none = TraceOptions::default;
    let minter = || TraceOptions {
        minters: ["kubernetes-admin".to_owned()].into(),
        ..none()
    };
    let other_hub = || TraceOptions {
        hub_name: Some("hub-2".to_owned()),
        ..none()
    };
    let without_key = with(record(JTI, "10:00:00"), "/keyId", json!(null));
    vec![
        (
            "in all three",
            keys_revoked_at("10:30:00"),
            vec![
                (Target, vec![usual()]),
                (Keyferry, whole_day(&[record(JTI, "10:00:01")])),
                (Hub, vec![requested()]),
            ],
            &[],
        ),
        (
            "never recorded",
            none(),
            vec![
                (Target, vec![usual()]),
                (Keyferry, whole_day(&[])),
                (Hub, vec![by_admin()]),
            ],
            &[NotRecorded],
        ),
        (
            "never recorded, and the request is not known: the day before is missing",
            none(),
            vec![(Target, vec![usual()]), (Keyferry, whole_day(&[]))],
            &[RecordUnknown],
        ),
        (
            "requested by an account that may",
            minter(),
            vec![
                (Target, vec![usual()]),
                (Keyferry, whole_day(&[])),
                (Hub, vec![by_admin()]),
            ],
            &[],
        ),
        (
            "the file begins later",
            none(),
            vec![
                (Target, vec![usual()]),
                (Keyferry, vec![denial("10:00:05"), denial("11:00:00")]),
                (Hub, vec![by_admin()]),
            ],
            &[RecordUnknown],
        ),
        (
            "the file ends earlier",
            none(),
            vec![
                (Target, vec![usual()]),
                (Keyferry, vec![denial("09:00:00"), denial("10:00:05")]),
                (Hub, vec![by_admin()]),
            ],
            &[RecordUnknown],
        ),
        (
            "between two files",
            none(),
            vec![
                (Target, vec![usual()]),
                (Keyferry, vec![denial("08:00:00"), denial("09:58:00")]),
                (Keyferry, vec![denial("10:05:00"), denial("11:00:00")]),
                (Hub, vec![by_admin()]),
            ],
            &[RecordUnknown],
        ),
        (
            "files that follow each other are one",
            none(),
            vec![
                (Target, vec![usual()]),
                (Keyferry, vec![denial("10:01:00"), denial("11:00:00")]),
                (Keyferry, vec![denial("08:00:00"), denial("09:58:00")]),
                (Hub, vec![by_admin()]),
            ],
            &[NotRecorded],
        ),
        (
            "other JSON in the file",
            none(),
            vec![
                (Target, vec![usual()]),
                (Keyferry, whole_day(&[json!("text"), json!([])])),
                (Hub, vec![by_admin()]),
            ],
            &[NotRecorded],
        ),
        (
            "no file of Keyferry",
            none(),
            vec![(Target, vec![usual()])],
            &[RecordUnknown],
        ),
        (
            "its record names no key",
            keys_revoked_at("09:00:00"),
            vec![
                (Target, vec![usual()]),
                (Keyferry, whole_day(&[without_key])),
            ],
            &[KeyUnknown],
        ),
        (
            "a token of another issuer",
            other_hub(),
            vec![(Target, vec![usual()]), (Keyferry, whole_day(&[]))],
            &[],
        ),
        (
            "the target's own account",
            none(),
            vec![
                (
                    Target,
                    vec![use_event(
                        JTI,
                        "system:serviceaccount:a:b",
                        "10:00:00",
                        "10.0.0.1",
                    )],
                ),
                (Keyferry, whole_day(&[])),
            ],
            &[],
        ),
    ]
}

fn cases_of_uses() -> Vec<Case> {
    let usual = || use_event(JTI, USER, "10:00:02", "10.0.1.2");
    let late = |time: &str| use_event(JTI, USER, time, "10.0.1.2");
    let from = |address: &str| use_event(JTI, USER, "10:00:03", address);
    let recorded = || (Keyferry, whole_day(&[record(JTI, "10:00:01")]));
    let review = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let probe = |address: &str| {
        let event = with(from(address), "/requestURI", json!(review));
        with(event, "/verb", json!("create"))
    };
    let probed = with(record(JTI, "09:59:00"), "/route", json!("probe"));
    let all_probed = || {
        (
            Keyferry,
            whole_day(&[probed.clone(), record(JTI, "10:00:01")]),
        )
    };
    let none = TraceOptions::default;
    let one_network = || TraceOptions {
        networks: vec!["10.0.0.0/8".parse().unwrap()],
        ..none()
    };
    let forged = json!(["203.0.113.7", "198.51.100.1", "10.0.1.9"]);
    let account = json!("tenant-b/reconciler");
    let keyferry = "system:serviceaccount:keyferry-system:keyferry";
    let requests = |second: &str| {
        vec![
            request_event(JTI, keyferry, "10:00:00"),
            request_event(JTI, keyferry, second),
        ]
    };
    let case = |name, options, uses, keyferry, codes| {
        (name, options, vec![(Target, uses), keyferry], codes)
    };
    let mut cases: Vec<Case> = vec![
        case(
            "within the tolerance",
            none(),
            vec![late("11:00:09")],
            recorded(),
            &[][..],
        ),
        case(
            "after its end",
            none(),
            vec![usual(), late("11:00:11")],
            recorded(),
            &[UsedAfterEnd],
        ),
        case(
            "after its key was revoked",
            keys_revoked_at("10:30:00"),
            vec![late("10:30:11")],
            recorded(),
            &[UsedAfterRevocation],
        ),
        case(
            "as its key is revoked",
            keys_revoked_at("10:30:00"),
            vec![late("10:30:10")],
            recorded(),
            &[],
        ),
        case(
            "two addresses of a network",
            none(),
            vec![usual(), from("10.0.1.200")],
            recorded(),
            &[],
        ),
        case(
            "an address in two forms",
            none(),
            vec![usual(), from("::ffff:10.0.1.3")],
            recorded(),
            &[],
        ),
        case(
            "two networks",
            none(),
            vec![usual(), from("10.0.2.2")],
            recorded(),
            &[SeveralNetworks],
        ),
        case(
            "two networks of IPv6",
            none(),
            vec![from("2001:db8:0:1::1"), from("2001:db8:0:2::1")],
            recorded(),
            &[SeveralNetworks],
        ),
        case(
            "two networks that count as one",
            one_network(),
            vec![usual(), from("10.9.9.9")],
            recorded(),
            &[],
        ),
        case(
            "addresses that the client wrote",
            none(),
            vec![usual(), with(usual(), "/sourceIPs", forged)],
            recorded(),
            &[],
        ),
        case(
            "the probe is elsewhere",
            none(),
            vec![usual(), probe("10.9.9.9")],
            all_probed(),
            &[],
        ),
        case(
            "a review from elsewhere, never probed",
            none(),
            vec![usual(), probe("10.9.9.9")],
            recorded(),
            &[SeveralNetworks],
        ),
        case(
            "two users",
            none(),
            vec![usual(), use_event(JTI, "admin", "10:00:03", "10.0.1.2")],
            recorded(),
            &[SeveralUsers],
        ),
        case(
            "two accounts in Keyferry's file",
            none(),
            vec![usual()],
            (
                Keyferry,
                whole_day(&[
                    record(JTI, "10:00:01"),
                    with(record(JTI, "10:00:02"), "/serviceAccount", account),
                ]),
            ),
            &[SeveralUsers],
        ),
        case(
            "another account at the target",
            none(),
            vec![use_event(
                JTI,
                "hub:system:serviceaccount:tenant-b:reconciler",
                "10:00:02",
                "10.0.1.2",
            )],
            recorded(),
            &[SeveralUsers],
        ),
    ];
    for (name, second, codes) in [
        ("one request in two files", "10:00:00", &[][..]),
        ("one id for two requests", "10:00:01", &[RequestedTwice]),
    ] {
        let files = vec![(Target, vec![usual()]), recorded(), (Hub, requests(second))];
        cases.push((name, none(), files, codes));
    }
    cases
}

#[test]
fn only_what_the_records_prove_is_a_finding() {
    for (name, options, files, expected) in cases_of_records().into_iter().chain(cases_of_uses()) {
        let files: Vec<(RecordKind, &[Value])> = files
            .iter()
            .map(|(record, lines)| (*record, lines.as_slice()))
            .collect();
        for token in [None, Some(JTI.to_owned())] {
            if token.is_some()
                && ["another issuer", "own account"]
                    .iter()
                    .any(|it| name.ends_with(it))
            {
                continue;
            }
            let options = TraceOptions {
                token,
                ..options.clone()
            };
            let report = trace(options, &files);
            assert_eq!(codes(&report), expected, "{name}: {report:#?}");
            assert_eq!(
                report.has_findings,
                expected.iter().any(|code| code.is_finding()),
                "{name}"
            );
            assert_eq!(
                report.has_undetermined,
                expected.iter().any(|code| !code.is_finding()),
                "{name}"
            );
        }
    }
}

#[test]
fn a_token_in_three_records_is_one_document() {
    let options = TraceOptions {
        token: Some(JTI.to_owned()),
        ..TraceOptions::default()
    };
    let keyferry = "system:serviceaccount:keyferry-system:keyferry";
    let report = trace(
        options,
        &[
            (
                Target,
                &[
                    use_event(JTI, USER, "10:00:02", "10.0.1.2"),
                    use_event("another", USER, "10:00:02", "10.0.1.2"),
                    use_event(JTI, USER, "11:30:00", "10.0.2.2"),
                ],
            ),
            (
                Keyferry,
                &[record(JTI, "10:00:01"), record(JTI, "10:20:00")],
            ),
            (Hub, &[request_event(JTI, keyferry, "10:00:00")]),
        ],
    );
    insta::assert_snapshot!(serde_json::to_string_pretty(&report).unwrap());
}

/// The reader's records are the writer's.
#[test]
fn every_member_that_is_read_is_one_of_the_published_schema() {
    let schema = record_schema();
    for member in record(JTI, "10:00:00").as_object().unwrap().keys() {
        assert!(schema["properties"][member].is_object(), "{member}");
    }
}

#[test]
fn lines_of_another_form_are_counted_and_make_no_answer_sure() {
    let usual = || use_event(JTI, USER, "10:00:02", "10.0.1.2");
    let deep = format!("{{\"kind\":\"Event\",\"user\":{}", "[".repeat(100_000));
    let doubled = usual().to_string().replacen('{', "{\"user\":{},", 1);
    let bad: [(&str, String); 11] = [
        ("no JSON", "x".to_owned()),
        ("a cut line", usual().to_string()[..100].to_owned()),
        ("deep JSON", deep),
        ("a doubled member", doubled),
        (
            "another kind",
            with(usual(), "/kind", json!("EventList")).to_string(),
        ),
        (
            "a time that is a number",
            with(usual(), "/requestReceivedTimestamp", json!(1)).to_string(),
        ),
        (
            "a user that is a text",
            with(usual(), "/user", json!("a")).to_string(),
        ),
        (
            "an id that is a text",
            with(
                usual(),
                "/user/extra/authentication.kubernetes.io~1credential-id",
                json!("JTI=a"),
            )
            .to_string(),
        ),
        (
            "a code that is a text",
            with(usual(), "/responseStatus/code", json!("200")).to_string(),
        ),
        ("a record of Keyferry", record(JTI, "10:00:00").to_string()),
        ("too long", format!("\"{}\"", "x".repeat(MAX_EVENT_BYTES))),
    ];
    for (name, line) in bad {
        let mut trail = Trail::new(TraceOptions::default());
        trail.begin_file(Target, "target.log");
        trail.add_bytes(format!("{line}\n{}\n", usual()).as_bytes());
        trail.begin_file(Keyferry, "audit.log");
        let records: Vec<String> = whole_day(&[record(JTI, "10:00:01")])
            .iter()
            .map(Value::to_string)
            .collect();
        trail.add_bytes(records.join("\n").as_bytes());
        let report = trail.finish();
        assert_eq!(codes(&report), [FileIncomplete], "{name}: {report:#?}");
        assert_eq!(
            report.files[0].unreadable + report.files[0].too_long,
            1,
            "{name}"
        );
        assert_eq!(
            (report.used_tokens, report.files[0].lines),
            (1, 1),
            "{name}"
        );
    }
}

#[test]
fn a_torn_record_may_be_the_one_that_is_missing() {
    let mut trail = Trail::new(TraceOptions::default());
    trail.begin_file(Target, "target.log");
    trail.add_bytes(
        use_event(JTI, USER, "10:00:02", "10.0.1.2")
            .to_string()
            .as_bytes(),
    );
    trail.begin_file(Keyferry, "audit.log");
    let torn = &record(JTI, "10:00:01").to_string()[..60];
    trail.add_bytes(format!("{}\n{torn}\n{}\n", denial("09:00:00"), denial("11:00:00")).as_bytes());
    trail.begin_file(Hub, "hub.log");
    trail.add_bytes(
        request_event(JTI, "kubernetes-admin", "10:00:00")
            .to_string()
            .as_bytes(),
    );
    assert_eq!(codes(&trail.finish()), [RecordUnknown, FileIncomplete]);
}

#[test]
fn no_file_and_no_line_is_never_nothing() {
    let asked = || TraceOptions {
        token: Some(JTI.to_owned()),
        ..TraceOptions::default()
    };
    let x509 = with(
        use_event(JTI, USER, "10:00:00", "10.0.0.1"),
        "/user/extra/authentication.kubernetes.io~1credential-id",
        json!(["X509SHA256=ab"]),
    );
    let cases: [(&str, TraceOptions, &[(RecordKind, &[Value])], &[TraceCode]); 6] = [
        ("nothing", asked(), &[], &[NotSeen]),
        (
            "empty files",
            asked(),
            &[(Target, &[]), (Keyferry, &[]), (Hub, &[])],
            &[NotSeen, FileIncomplete, FileIncomplete, FileIncomplete],
        ),
        (
            "a target that names no token",
            TraceOptions::default(),
            &[(Target, &[x509.clone()])],
            &[FileIncomplete],
        ),
        (
            "a user of the hub without a token",
            TraceOptions::default(),
            &[(
                Target,
                &[use_event("another", "jane", "10:00:00", "10.0.0.1"), x509],
            )],
            &[FileIncomplete],
        ),
        (
            "logs in each other's place",
            TraceOptions::default(),
            &[
                (Target, &[record(JTI, "10:00:00")]),
                (Keyferry, &[use_event(JTI, USER, "10:00:00", "10.0.0.1")]),
            ],
            &[FileIncomplete, FileIncomplete, FileIncomplete],
        ),
        (
            "other lines in Keyferry's log",
            TraceOptions::default(),
            &[(
                Keyferry,
                &[json!({ "level": "INFO" }), record(JTI, "10:00:00")],
            )],
            &[],
        ),
    ];
    for (name, options, files, expected) in cases {
        assert_eq!(codes(&trace(options, files)), expected, "{name}");
    }
}

/// Ends lines, turns the reading direction around, and speaks like Keyferry.
const HOSTILE: &str =
    "<script>alert(1)</script>\u{1b}[2J\nfix: INJECTED\u{202e}\u{2028}Bearer abc-1234567890-DEF";

#[test]
fn what_others_wrote_is_one_line_and_no_credential() {
    let user = format!("hub:system:serviceaccount:{HOSTILE}");
    let mut event = use_event(JTI, &user, "10:00:02", "10.0.1.2");
    event["requestURI"] = format!("/api/{HOSTILE}?token=S3cret").into();
    event["userAgent"] = HOSTILE.into();
    event["verb"] = HOSTILE.into();
    let mut granted = record(JTI, "10:00:01");
    for member in [
        "caller",
        "access",
        "serviceAccount",
        "target",
        "keyId",
        "route",
    ] {
        granted[member] = HOSTILE.into();
    }
    let request = request_event(JTI, HOSTILE, "10:00:00");
    let request = with(request, "/objectRef/namespace", json!(HOSTILE));
    let id = format!("{JTI}{}", &HOSTILE[..40]);
    let forged = use_event(&id, &user, "10:00:02", "10.0.1.2");
    for token in [None, Some(JTI.to_owned())] {
        let options = TraceOptions {
            token,
            ..keys_revoked_at("09:00:00")
        };
        let report = trace(
            options,
            &[
                (Target, &[event.clone(), forged.clone()]),
                (Keyferry, &[granted.clone()]),
                (Hub, &[request.clone()]),
            ],
        );
        assert!(report.has_findings);
        let document = serde_json::to_value(&report).unwrap();
        let mut texts = Vec::new();
        collect_texts(&document, &mut texts);
        assert!(texts.len() > 30, "{texts:?}");
        for text in texts {
            assert!(!foreign_text::misleads(&text), "{text:?}");
            assert!(
                !text.contains("1234567890") && !text.contains("S3cret"),
                "{text}"
            );
        }
    }
}

fn collect_texts(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, texts)),
        Value::Object(members) => members.values().for_each(|item| collect_texts(item, texts)),
        _ => {}
    }
}

/// A target that makes up a token and a user for each line.
#[test]
fn a_flood_of_tokens_is_bounded_and_said() {
    let mut trail = Trail::new(TraceOptions::default());
    trail.begin_file(Target, "target.log");
    let user = format!("hub:system:serviceaccount:{}:", "a".repeat(2 * MAX_TEXT));
    let (before, after) = {
        let line = use_event("JTI-HERE", &user, "10:00:02", "10.0.1.2").to_string();
        let (before, after) = line.split_once("JTI=JTI-HERE").unwrap();
        (before.to_owned(), after.to_owned())
    };
    let count = if cfg!(debug_assertions) {
        3_000
    } else {
        300_000
    };
    trail.memory = MAX_MEMORY_BYTES - 1_000_000 * count / 300_000;
    for number in 0..count {
        let line = before.replacen(&user, &format!("{number}{user}"), 1);
        trail.add_bytes(format!("{line}JTI={number}{after}\n").as_bytes());
    }
    assert!(trail.memory <= MAX_MEMORY_BYTES);
    let report = trail.finish();
    assert!(report.has_undetermined);
    let note = report.undetermined.last().unwrap();
    assert_eq!(note.code, TraceCode::TooManyTokens);
    assert!(note.detail.contains("were left out"), "{}", note.detail);
    assert!(report.tokens.len() <= 2_000);
    let shown = codes(&report);
    assert!(
        !shown.contains(&NotRecorded),
        "no claim is made of what was left out"
    );
}
