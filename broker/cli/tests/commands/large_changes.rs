//! The largest changes that a tenant can put into a pull request: `what-if` answers them, or refuses
//! them by a clear error, in bounded time and memory.

use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::live::wait_for_end;

/// The most memory of a command in a debug build.
const MAX_MEMORY_KIB: u64 = 1024 * 1024;
/// How long a command may take in a debug build, on a machine that does much else.
const MAX_DURATION: Duration = Duration::from_secs(120);
/// The accounts that the hub has already.
const ACCOUNTS: usize = 20_000;

/// A hub of which every list was read, with many accounts.
fn write_hub(folder: &Path) {
    let hub = folder.join("hub");
    std::fs::create_dir_all(&hub).unwrap();
    for kind in keyferry_reach::ListKind::ALL {
        let items: Vec<String> = match kind {
            keyferry_reach::ListKind::ServiceAccounts => (0..ACCOUNTS)
                .map(|number| {
                    format!(r#"{{"metadata":{{"name":"s{number}","namespace":"a","uid":"u"}}}}"#)
                })
                .collect(),
            _ => Vec::new(),
        };
        let list = format!(
            r#"{{"apiVersion":"{}","kind":"{}List","metadata":{{}},"items":[{}]}}"#,
            kind.api_version(),
            kind.object_kind(),
            items.join(",")
        );
        let path = hub.join(format!("{}.json", kind.resource()));
        std::fs::write(path, list).unwrap();
    }
}

fn accounts(count: usize) -> String {
    (0..count).fold(String::new(), |mut text, number| {
        let _ = write!(text, "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: n{number}, namespace: a}}\n");
        text
    })
}

/// Each name stands for ten of the one before: ten levels are ten billion values.
fn alias_bomb() -> String {
    let mut text = "a0: &a0 [x, x]\n".to_owned();
    for level in 1..=10 {
        let before = format!("*a{}, ", level - 1).repeat(10);
        let _ = writeln!(text, "a{level}: &a{level} [{before}]");
    }
    text
}

#[tokio::test]
async fn the_largest_change_is_answered_or_refused_in_bounded_time_and_memory() {
    let folder = tempfile::tempdir().unwrap();
    write_hub(folder.path());
    let role = |rules: &str| {
        format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: r}}\nrules:\n{rules}"
        )
    };
    let rule = "- {apiGroups: [''], resources: [pods], verbs: [get]}\n";
    let deep = (0..20_000).fold(String::new(), |mut text, depth| {
        let _ = writeln!(text, "{}a:", " ".repeat(depth % 200));
        text
    });
    let roles = (0..1_000).fold(String::new(), |text, number| {
        let named = role(&rule.repeat(130)).replace("name: r", &format!("name: r{number}"));
        text + "---\n" + &named
    });
    let not_read = "this document cannot be read as YAML or JSON";
    let rows = [
        ("4,999 new accounts", accounts(4_999), 0, ""),
        ("1,000 roles of 7 KB", roles, 0, ""),
        (
            "10,000 accounts",
            accounts(10_000),
            2,
            "it has more than 5000 objects\nfix: split it",
        ),
        (
            "one role of 20,000 rules",
            role(&rule.repeat(20_000)),
            0,
            "",
        ),
        (
            "one role of 140,000 rules",
            role(&rule.repeat(140_000)),
            2,
            not_read,
        ),
        ("sequences in sequences", "[".repeat(1_000_000), 2, not_read),
        (
            "mappings in mappings",
            "{a: ".repeat(1_000_000),
            2,
            not_read,
        ),
        ("JSON in JSON", r#"{"a":"#.repeat(1_000_000), 2, not_read),
        ("keys in keys", deep, 2, not_read),
        ("aliases of aliases", alias_bomb(), 2, not_read),
        ("an alias in itself", "a: &a [*a]\n".to_owned(), 2, not_read),
        (
            "a key of 7 MiB",
            format!("{}: 1\n", "k".repeat(7 << 20)),
            2,
            not_read,
        ),
        (
            "a name of 7 MiB",
            accounts(1).replace("n0", &"n".repeat(7 << 20)),
            0,
            "",
        ),
        (
            "a name of 7 MiB without a kind",
            format!("metadata: {{name: {}}}\n", "n".repeat(7 << 20)),
            2,
            "lacks its apiVersion",
        ),
        (
            "two million documents of nothing",
            "---\n".repeat(2_000_000),
            2,
            "it has no object",
        ),
        (
            "comments of 8 MB",
            "# a\n".repeat(2_000_000),
            2,
            "it has no object",
        ),
    ];
    for (case, text, code, wanted) in rows {
        let path = folder.path().join("change.yaml");
        std::fs::write(&path, text).unwrap();
        ask(folder.path(), case, code, wanted).await;
    }
    // A file without content on the disk: none of it may be read.
    let file = File::create(folder.path().join("change.yaml")).unwrap();
    file.set_len(256 << 20).unwrap();
    ask(folder.path(), "256 MiB", 2, "8388608").await;
}

async fn ask(folder: &Path, case: &str, code: i32, wanted: &str) {
    let start = Instant::now();
    let child = Command::new(env!("CARGO_BIN_EXE_keyferry"))
        .args(["what-if", "--snapshot", ".", "-f", "change.yaml"])
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (output, peak) = wait_for_end(child).await;
    let took = start.elapsed();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let shown: String = said.chars().take(500).collect();
    let exit_code = output.status.code();
    assert_eq!(exit_code, Some(code), "{case}: {took:?}, {shown}");
    assert!(said.contains(wanted), "{case}: {shown}");
    assert!(said.len() < 2_000, "{case}: {} bytes of error", said.len());
    assert!(took < MAX_DURATION, "{case}: {took:?}");
    assert!(peak < MAX_MEMORY_KIB, "{case}: {peak} KiB");
}
