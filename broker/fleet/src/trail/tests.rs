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
use TraceCode::{FileIncomplete, NotRecorded, NotSeen, RecordUnknown};

/// What Keyferry's file has around a token that is issued at ten.
fn whole_day(records: &[Value]) -> Vec<Value> {
    let around = [denial("00:00:00"), denial("23:59:00")];
    [&around[..1], records, &around[1..]].concat()
}

/// A name, the options, the files and the codes. A file is T, K or H for its record, and its lines. A use
/// has a time, and what differs from the usual one. A record of Keyferry's has a time, `+` if it is an
/// issuance, and what differs; `day` is the whole day around the others.
const CASES: &str = "
in all three                                   | revoked=10:30:00 | T 10:00:02; K day, 10:00:01 +; H 10:00:00 keyferry |
never recorded                                 |                  | T 10:00:02; K day; H 10:00:00 jane | NotRecorded
the day before its use is missing              |                  | T 10:00:02; K day | RecordUnknown
requested by a user that may                   | minter=jane      | T 10:00:02; K day; H 10:00:00 jane |
the file begins later                          |                  | T 10:00:02; K 10:00:05, 11:00:00; H 10:00:00 jane | RecordUnknown
the file ends earlier                          |                  | T 10:00:02; K 09:00:00, 10:00:05; H 10:00:00 jane | RecordUnknown
between two files                              |                  | T 10:00:02; K 08:00:00, 09:58:00; K 10:05:00, 11:00:00; H 10:00:00 jane | RecordUnknown
files that follow each other are one           |                  | T 10:00:02; K 10:01:00, 11:00:00; K 08:00:00, 09:58:00; H 10:00:00 jane | NotRecorded
no file of Keyferry                            |                  | T 10:00:02 | RecordUnknown
a denial names it                              |                  | T 10:00:02; K day, 10:00:01 + decision=denied; H 10:00:00 jane | NotRecorded
its record names no key                        | revoked=09:00:00 | T 10:00:02; K day, 10:00:01 + keyId= | KeyUnknown
a token of another hub                         | hub=hub-2        | T 10:00:02; K day |
the target's own account                       |                  | T 10:00:02 user=system:serviceaccount:a:b; K day |
another hub's, with a record                   | hub=hub-2        | T 10:00:02; K day, 10:00:01 + |
within the tolerance of its end                |                  | T 11:00:09; K day, 10:00:01 + |
after its end                                  |                  | T 10:00:02, 11:00:11; K day, 10:00:01 + | UsedAfterEnd
as its key is revoked                          | revoked=10:30:00 | T 10:30:10; K day, 10:00:01 + |
after its key was revoked                      | revoked=10:30:00 | T 10:30:11; K day, 10:00:01 + | UsedAfterRevocation
two addresses of a network                     |                  | T 10:00:02, 10:00:03 from=10.0.1.200; K day, 10:00:01 + |
an address in two forms                        |                  | T 10:00:02, 10:00:03 from=::ffff:10.0.1.3; K day, 10:00:01 + |
two networks                                   |                  | T 10:00:02, 10:00:03 from=10.0.2.2; K day, 10:00:01 + | SeveralNetworks
two networks of IPv6                           |                  | T 10:00:02 from=2001:db8:0:1::1, 10:00:03 from=2001:db8:0:2::1; K day, 10:00:01 + | SeveralNetworks
two networks that count as one                 | net=10.0.0.0/8   | T 10:00:02, 10:00:03 from=10.9.9.9; K day, 10:00:01 + |
addresses that the client wrote                |                  | T 10:00:02, 10:00:03 from=203.0.113.7>10.0.1.9; K day, 10:00:01 + |
the probe is elsewhere                         |                  | T 10:00:02, 10:00:03 from=10.9.9.9 review; K day, 09:59:00 + route=probe, 10:00:01 + |
a review from elsewhere, never probed          |                  | T 10:00:02, 10:00:03 from=10.9.9.9 review; K day, 10:00:01 + | SeveralNetworks
a request from elsewhere, though probed        |                  | T 10:00:02, 10:00:03 from=10.9.9.9; K day, 09:59:00 + route=probe | SeveralNetworks
two users                                      |                  | T 10:00:02, 10:00:03 user=jane; K day, 10:00:01 + | SeveralUsers
two accounts in Keyferry's file                |                  | T 10:00:02; K day, 10:00:01 +, 10:00:02 + serviceAccount=b/c | SeveralUsers
another account at the target                  |                  | T 10:00:02 user=hub:system:serviceaccount:b:c; K day, 10:00:01 + | SeveralUsers
one request in two files                       |                  | T 10:00:02; K day, 10:00:01 +; H 10:00:00 keyferry; H 10:00:00 keyferry |
one id for two requests                        |                  | T 10:00:02; K day, 10:00:01 +; H 10:00:00 keyferry, 10:00:01 keyferry | RequestedTwice
";

fn options_of(text: &str) -> TraceOptions {
    let none = TraceOptions::default();
    match text.split_once('=') {
        Some(("revoked", time)) => keys_revoked_at(time),
        Some(("minter", user)) => TraceOptions {
            minters: [user.to_owned()].into(),
            ..none
        },
        Some(("hub", name)) => TraceOptions {
            hub_name: Some(name.to_owned()),
            ..none
        },
        Some(("net", network)) => TraceOptions {
            networks: vec![network.parse().unwrap()],
            ..none
        },
        other => {
            assert_eq!(other, None);
            none
        }
    }
}

fn file_of(text: &str) -> (RecordKind, Vec<Value>) {
    let (record_kind, lines) = text.split_once(' ').unwrap();
    let lines: Vec<&str> = lines.split(", ").filter(|line| *line != "day").collect();
    let read = |line_of: fn(&str) -> Value| -> Vec<Value> {
        lines.iter().map(|line| line_of(line)).collect()
    };
    match record_kind {
        "T" => (Target, read(use_of)),
        "H" => (
            Hub,
            read(|line| {
                let (time, user) = line.split_once(' ').unwrap();
                request_event(JTI, user, time)
            }),
        ),
        _ if text.contains("day") => (Keyferry, whole_day(&read(record_of))),
        _ => (Keyferry, read(record_of)),
    }
}

fn use_of(line: &str) -> Value {
    let mut words = line.split(' ');
    let mut event = use_event(JTI, USER, words.next().unwrap(), "10.0.1.2");
    for word in words {
        match word.split_once('=') {
            Some(("from", addresses)) => event["sourceIPs"] = addresses.split('>').collect(),
            Some((_, user)) => event["user"]["username"] = user.into(),
            None => {
                event["requestURI"] = "/apis/authentication.k8s.io/v1/selfsubjectreviews".into();
                event["verb"] = "create".into();
            }
        }
    }
    event
}

fn record_of(line: &str) -> Value {
    let mut words = line.split(' ');
    let time = words.next().unwrap();
    if words.next().is_none() {
        return denial(time);
    }
    let mut record = record(JTI, time);
    for word in words {
        let (member, value) = word.split_once('=').unwrap();
        record[member] = if value.is_empty() {
            Value::Null
        } else {
            value.into()
        };
    }
    record
}

#[test]
fn only_what_the_records_prove_is_a_finding() {
    let cases: Vec<&str> = CASES.trim().lines().collect();
    assert!(cases.len() > 30);
    for case in cases {
        let columns: Vec<&str> = case.split('|').map(str::trim).collect();
        let [name, options, files, expected] = columns[..] else {
            panic!("{case}");
        };
        let files: Vec<_> = files.split("; ").map(file_of).collect();
        let files: Vec<(RecordKind, &[Value])> = files
            .iter()
            .map(|(record, lines)| (*record, lines.as_slice()))
            .collect();
        for token in [None, Some(JTI.to_owned())] {
            // Who asks for a token says that it is one of the hub's.
            if token.is_some()
                && ["a token of another hub", "the target's own account"].contains(&name)
            {
                continue;
            }
            let report = trace(
                TraceOptions {
                    token,
                    ..options_of(options)
                },
                &files,
            );
            let printed: Vec<String> = codes(&report)
                .iter()
                .map(|code| format!("{code:?}"))
                .collect();
            assert_eq!(printed.join(" "), expected, "{name}: {report:#?}");
            let is_open = expected.ends_with("Unknown");
            let flags = (report.has_findings, report.has_undetermined);
            assert_eq!(flags, (!expected.is_empty() && !is_open, is_open), "{name}");
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

/// A name, the options, the files and the codes.
type FilesCase<'a> = (
    &'a str,
    TraceOptions,
    &'a [(RecordKind, &'a [Value])],
    &'a [TraceCode],
);

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
    let cases: [FilesCase<'_>; 6] = [
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
            &[(Target, std::slice::from_ref(&x509))],
            &[FileIncomplete],
        ),
        (
            "a user of the hub without a token",
            TraceOptions::default(),
            &[(
                Target,
                &[
                    use_event("another", "jane", "10:00:00", "10.0.0.1"),
                    x509.clone(),
                ],
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
                (Hub, std::slice::from_ref(&request)),
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
