//! Folders with mistakes: each has a row.

use super::*;

const TARGET: &str = "apiVersion: keyferry.dev/v1alpha1\nkind: TargetCluster\nmetadata: {name: prod, uid: u, generation: 1}\n";
const ACCESS: &str = "apiVersion: keyferry.dev/v1alpha1\nkind: TargetAccess\nmetadata: {name: apps, namespace: tenant-a}\n";

fn read(files: &[(&str, &str)]) -> FolderReading {
    let mut reader = FolderReader::new("snap");
    for (name, text) in files {
        let size = u64::try_from(text.len()).unwrap();
        if reader.accept_file(name, size).unwrap() {
            reader.add_file(name, text.as_bytes());
        }
    }
    reader.finish(Timestamp::UNIX_EPOCH).unwrap()
}

/// The gaps about objects, and the warnings, one a line.
fn findings(files: &[(&str, &str)]) -> String {
    let reading = read(files);
    let gaps = reading.snapshot.gaps.iter();
    let gaps = gaps
        .filter(|gap| gap.is_of_objects())
        .map(|gap| format!("{:?} {}: {}", gap.cause, gap.resource, gap.message));
    gaps.chain(reading.warnings).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_folder_says_what_is_missing_from_it() {
    let both = format!("{TARGET}---\n{ACCESS}");
    let list = |items: &str| format!("apiVersion: v1\nitems:\n{items}kind: List\n");
    let other_generation = TARGET.replace("generation: 1", "generation: 2");
    let later = TARGET.replace("v1alpha1", "v1");
    let cut = format!(
        "items:\n- {{{}}}\n",
        "apiVersion: keyferry.dev/v1alpha1, kind: TargetAccess, metadata: {name: a, namespace: b}"
    );
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: n}\ndata: {token: aHVudGVyMg==}\n";
    let hostile = "kind: \"Role\\n\\u202e\"\nmetadata: {name: a}\n";
    let cases: Vec<(&str, Vec<(&str, String)>)> = vec![
        ("whole", vec![("hub/all.yaml", both.clone())]),
        (
            "empty lists",
            vec![
                ("hub/targetclusters.yaml", list("")),
                (
                    "hub/targetaccesses.json",
                    r#"{"kind":"List","items":[]}"#.to_owned(),
                ),
            ],
        ),
        ("no accesses", vec![("hub/all.yaml", TARGET.to_owned())]),
        ("no hub", vec![("keys.json", "{\"keys\":[]}".to_owned())]),
        (
            "twice the same",
            vec![("hub/a.yaml", both.clone()), ("hub/b.yaml", both.clone())],
        ),
        (
            "contradiction",
            vec![
                ("hub/a.yaml", both.clone()),
                ("hub/b.yaml", other_generation),
            ],
        ),
        (
            "later version",
            vec![("hub/a.yaml", format!("{both}---\n{later}"))],
        ),
        (
            "cut list",
            vec![
                ("hub/targetaccesses.yaml", cut),
                ("hub/targetclusters.yaml", list("")),
            ],
        ),
        (
            "cut JSON",
            vec![(
                "hub/a.json",
                r#"{"kind":"List","items":[{"kind":"TargetCl"#.to_owned(),
            )],
        ),
        (
            "one page",
            vec![(
                "hub/a.json",
                r#"{"kind":"List","metadata":{"continue":"x"},"items":[]}"#.to_owned(),
            )],
        ),
        ("not YAML", vec![("hub/a.yaml", "a: [\n".to_owned())]),
        (
            "no name",
            vec![(
                "hub/a.yaml",
                format!("{both}---\n{}", ACCESS.replace("name: apps", "name: ../x")),
            )],
        ),
        (
            "a Secret with its content",
            vec![("hub/a.yaml", format!("{both}---\n{secret}"))],
        ),
        (
            "a Secret without",
            vec![(
                "hub/a.yaml",
                format!("{both}---\n{}", secret.replace("\ndata:", "\nother:")),
            )],
        ),
        (
            "unknown kinds",
            vec![("hub/a.yaml", format!("{both}---\n{hostile}"))],
        ),
        (
            "other files",
            vec![
                ("hub/a.yaml", both.clone()),
                ("README.md", String::new()),
                ("targets/../x/release", String::new()),
                ("targets/prod/rbac/a/b.yaml", String::new()),
            ],
        ),
        (
            "cut audit log",
            vec![
                ("hub/a.yaml", both.clone()),
                ("audit.jsonl", "{\"time\"".to_owned()),
            ],
        ),
        (
            "keys of another form",
            vec![("hub/a.yaml", both.clone()), ("keys.json", "[]".to_owned())],
        ),
        (
            "gaps of another version",
            vec![
                ("hub/a.yaml", both.clone()),
                ("gaps.yaml", "schema: x\n".to_owned()),
            ],
        ),
        (
            "gaps that are not YAML",
            vec![
                ("hub/a.yaml", both.clone()),
                ("gaps.yaml", "a: [".to_owned()),
            ],
        ),
        (
            "a long release",
            vec![
                ("hub/a.yaml", both),
                ("targets/prod/release", "v".repeat(300)),
            ],
        ),
    ];
    let table: Vec<String> = cases
        .iter()
        .map(|(case, files)| {
            let files: Vec<(&str, &str)> = files
                .iter()
                .map(|(name, text)| (*name, text.as_str()))
                .collect();
            format!("== {case}\n{}", findings(&files))
        })
        .collect();
    let table = table.join("\n");
    assert!(!table.contains("aHVudGVyMg"), "{table}");
    insta::assert_snapshot!("folders-with-mistakes", table);
}

#[test]
fn the_limits_of_a_folder_are_errors() {
    let mut reader = FolderReader::new("snap");
    assert_eq!(reader.accept_file("hub/a.yaml", MAX_FOLDER_BYTES), Ok(true));
    assert_eq!(
        reader.accept_file("hub/b.yaml", 1),
        Err(FolderError::TooLarge)
    );
    let mut reader = FolderReader::new("snap");
    let accepted: Result<Vec<bool>, FolderError> = (0..=MAX_FILES)
        .map(|_| reader.accept_file("x", 0))
        .collect();
    assert_eq!(accepted, Err(FolderError::TooManyFiles));
    let empty = FolderReader::new("snap").finish(Timestamp::UNIX_EPOCH);
    assert!(matches!(empty, Err(FolderError::NoSnapshot)));
}

#[test]
fn files_of_targets_and_gaps_are_kept() {
    let gaps = "# note\nschema: keyferry.dev/snapshot/v1\nreadAt: 2026-01-01T00:00:00Z\nuser: jane\ntenant: tenant-a\ngaps:\n- {resource: secrets, cause: Refused, message: \"no\\nfix: run rm\", fix: run rm}\n- {resource: nodes, cause: Later}\n";
    let reading = read(&[
        ("hub/targetaccesses.yaml", ACCESS),
        ("gaps.yaml", gaps),
        ("targets/prod/release", "# note\nv1.36.2\n"),
        (
            "targets/prod/authentication.yaml",
            "kind: AuthenticationConfiguration\n",
        ),
        ("targets/prod/rbac/roles.yaml", "kind: Role\n"),
    ]);
    let snapshot = reading.snapshot;
    assert_eq!(snapshot.read_at.to_string(), "2026-01-01T00:00:00Z");
    assert_eq!(
        snapshot.tenant.as_ref().map(|it| it.as_str()),
        Some("tenant-a")
    );
    let files = snapshot.target_files.values().next().unwrap();
    assert_eq!(files.release.as_deref(), Some("v1.36.2"));
    assert!(files.authentication.is_some() && files.rbac.contains_key("roles.yaml"));
    let causes: Vec<String> = snapshot
        .gaps
        .iter()
        .map(|gap| format!("{} {:?} {}", gap.resource, gap.cause, gap.message))
        .collect();
    assert_eq!(
        causes,
        [
            "secrets Refused no\\u{a}fix: run rm",
            "nodes Failed ",
            "pods/log Absent the folder has no audit.jsonl"
        ]
    );
    assert!(snapshot.gaps.iter().all(|gap| !gap.fix.contains("run rm")));
    let written = GapsFile::document_of(&snapshot).to_string();
    let read_again = GapsFile::read(written.as_bytes()).unwrap();
    assert_eq!(read_again.gaps, snapshot.gaps);
}
