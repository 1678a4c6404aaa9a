//! Joins large audit logs. Built with `--release` they have 1,000,000 lines, and it prints how long that takes and how much
//! memory: `cargo test --release -p keyferry-fleet --test trace -- --nocapture`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs
)]

use std::fmt::Write;
use std::time::{Duration, Instant};

use keyferry_fleet::trail::{RecordKind, TraceCode, TraceOptions, Trail};

/// What the process may have at most, with the pieces of the files in memory.
const MAX_KIBIBYTES: u64 = 200 * 1024;
/// How many lines are made before they are read, so that making them is not measured.
const LINES_AT_ONCE: usize = 10_000;

/// The lines of the target's, Keyferry's and the hub's file.
fn counts() -> [usize; 3] {
    match cfg!(debug_assertions) {
        true => [8_000, 1_000, 1_000],
        false => [800_000, 100_000, 100_000],
    }
}

/// The times of the lines are a second apart every hundred lines.
fn time_of(number: usize) -> String {
    let second = number / 100;
    format!(
        "2026-11-{:02}T{:02}:{:02}:{:02}.{:06}Z",
        1 + second / 86_400,
        second / 3600 % 24,
        second / 60 % 60,
        second % 60,
        number % 100 * 10_000
    )
}

fn jti(number: usize) -> String {
    format!("6f2ee0f7-1ab9-4d7a-8f4e-{number:012x}")
}

/// An event as kube-apiserver writes it at level Metadata: each token is used by eight requests, and
/// every second request is of one of the target's own accounts.
fn write_use(lines: &mut String, number: usize) {
    let user = match number % 2 {
        0 => format!(
            "hub:system:serviceaccount:tenant-{}:reconciler",
            number / 16 % 500
        ),
        _ => "system:serviceaccount:kube-system:generic-garbage-collector".to_owned(),
    };
    let id = jti(if number.is_multiple_of(2) {
        number / 16
    } else {
        1 << 40
    });
    let time = time_of(number);
    writeln!(
        lines,
        r#"{{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"5b8a7f5e-9d0f-4b5c-8a55-{number:012x}","stage":"ResponseComplete","requestURI":"/apis/apps/v1/namespaces/apps-{number}/deployments/web?fieldManager=kustomize-controller&force=true&timeout=30s","verb":"patch","user":{{"username":"{user}","uid":"0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0","groups":["hub:system:serviceaccounts","hub:system:serviceaccounts:tenant","system:authenticated"],"extra":{{"authentication.kubernetes.io/credential-id":["JTI={id}"]}}}},"sourceIPs":["10.3.7.{}"],"userAgent":"kustomize-controller/v0.0.0 (linux/amd64) kubernetes/$Format","objectRef":{{"resource":"deployments","namespace":"apps-{number}","name":"web","apiGroup":"apps","apiVersion":"v1"}},"responseStatus":{{"metadata":{{}},"code":200}},"requestReceivedTimestamp":"{time}","stageTimestamp":"{time}","annotations":{{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":"RBAC: allowed by ClusterRoleBinding \"hub-tenants\" of ClusterRole \"edit\" to Group \"hub:system:serviceaccounts\""}}}}"#,
        number % 250
    )
    .unwrap();
}

fn write_record(lines: &mut String, number: usize) {
    let (id, time) = (jti(number), time_of(number * 8));
    let tenant = number % 500;
    // One token in a thousand is none of Keyferry's.
    let id = if number % 1000 == 300 {
        jti(1 << 41)
    } else {
        id
    };
    writeln!(
        lines,
        r#"{{"time":"{time}","requestId":"{number:016x}","route":"exchange","decision":"granted","reason":"Ready","caller":"system:serviceaccount:tenant-{tenant}:ci","callerUid":"0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0","callerTokenId":"6f2ee0f7-1ab9-4d7a-8f4e-ffffffffffff","access":"tenant-{tenant}/prod","serviceAccount":"tenant-{tenant}/reconciler","serviceAccountUid":"1b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0","target":"prod","audience":"https://prod.example.com","rule":0,"tokenId":"{id}","keyId":"5QgYmOqfTj0vT1Yx4pE3Jq0pA3o2bJw1mJ0v3xW9d2A","expiresAt":"2026-11-30T00:00:00Z","cache":"miss"}}"#
    )
    .unwrap();
}

fn write_request(lines: &mut String, number: usize) {
    let (id, time, tenant) = (jti(number), time_of(number * 8), number % 500);
    writeln!(
        lines,
        r#"{{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"6b8a7f5e-9d0f-4b5c-8a55-{number:012x}","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/tenant-{tenant}/serviceaccounts/reconciler/token","verb":"create","user":{{"username":"system:serviceaccount:keyferry-system:keyferry","groups":["system:serviceaccounts","system:authenticated"]}},"sourceIPs":["10.0.0.9"],"userAgent":"keyferry","objectRef":{{"resource":"serviceaccounts","namespace":"tenant-{tenant}","name":"reconciler","apiVersion":"v1","subresource":"token"}},"responseStatus":{{"metadata":{{}},"code":201}},"requestReceivedTimestamp":"{time}","stageTimestamp":"{time}","annotations":{{"authentication.kubernetes.io/issued-credential-id":"JTI={id}","authorization.k8s.io/decision":"allow"}}}}"#
    )
    .unwrap();
}

/// Writes the line of this number.
type WriteLine = fn(&mut String, usize);

/// The most memory that the process has had since the last reset.
fn peak_kibibytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.unwrap().split_whitespace().nth(1).unwrap();
    number.parse().unwrap()
}

#[test]
fn a_million_lines_are_joined_in_bounded_time_and_memory() {
    // Resets the peak (proc(5)).
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let mut trail = Trail::new(TraceOptions::default());
    let (mut reading, mut bytes) = (Duration::ZERO, 0);
    let files: [(RecordKind, WriteLine); 3] = [
        (RecordKind::Target, write_use),
        (RecordKind::Keyferry, write_record),
        (RecordKind::Hub, write_request),
    ];
    for ((record, write_line), count) in files.into_iter().zip(counts()) {
        trail.begin_file(record, "audit.log");
        for first in (0..count).step_by(LINES_AT_ONCE) {
            let mut lines = String::new();
            (first..count.min(first + LINES_AT_ONCE))
                .for_each(|number| write_line(&mut lines, number));
            bytes += lines.len();
            let begun = Instant::now();
            for piece in lines.as_bytes().chunks(256 * 1024) {
                trail.add_bytes(piece);
            }
            reading += begun.elapsed();
        }
    }
    let begun = Instant::now();
    let report = trail.finish();
    let judging = begun.elapsed();
    let peak = peak_kibibytes();
    println!(
        "{} lines, {} MiB, {} tokens: read in {reading:?}, judged in {judging:?}, peak {} MiB",
        counts().iter().sum::<usize>(),
        bytes >> 20,
        report.used_tokens,
        peak >> 10
    );
    let [uses, ..] = counts();
    assert_eq!((report.used_tokens, report.other_tokens), (uses / 16, 1));
    let findings = report.tokens.iter().flat_map(|token| &token.notes);
    let missing = findings.filter(|note| note.code == TraceCode::NotRecorded);
    assert_eq!(
        missing.count(),
        (uses / 16).div_ceil(1000),
        "{:#?}",
        report.undetermined
    );
    if !cfg!(debug_assertions) {
        assert!(peak < MAX_KIBIBYTES, "{peak} KiB");
    }
}
