//! The binary under the names by which kubectl calls it, its completion scripts, and the template
//! of krew's manifest.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::Path;
use std::process::{Command, Output};

use insta::assert_snapshot;
use keyferry_integration::transcript::{Transcript, joined};
use keyferry_integration::user_home::{program_at_home, write_client_file};

fn called(name: &str, words: &[&str]) -> Output {
    called_with(name, words, &[])
}

fn called_with(name: &str, words: &[&str], env: &[(&str, &str)]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join(name);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_keyferry"), &link).unwrap();
    let mut command = Command::new(link);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
        .args(words)
        .envs(env.iter().copied())
        .output()
        .unwrap()
}

/// All that a person sees who calls it by this name.
fn transcript_of(name: &str, words: &[&str], env: &[(&str, &str)]) -> Transcript {
    let output = called_with(name, words, env);
    let printed = text(&output.stdout) + &text(&output.stderr);
    assert!(!printed.contains("canary"), "a token is printed: {printed}");
    Transcript::new(name, words, &output).with_variables(env)
}

/// A kubeconfig of a hub where nothing listens.
fn dead_hub(path: &Path, port: u16) {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: hub\ncontexts: [{{name: hub, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:{port}'}}}}]\nusers: [{{name: u, user: {{token: canary}}}}]\n"
    );
    std::fs::write(path, text).unwrap();
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn as_a_plugin_it_speaks_of_itself_as_kubectl_does() {
    let calls = [
        ("kubectl-keyferry", &["token", "-h"][..]),
        ("kubectl-keyferry", &["exec", "a/b"]),
        ("keyferry", &["token", "-h"]),
        ("keyferry", &["exec", "a/b"]),
    ];
    let shown = calls.map(|(name, words)| transcript_of(name, words, &[]));
    assert_snapshot!("it-speaks-of-itself-as-kubectl-does", joined(&shown));
    let explained = called("kubectl-keyferry", &["explain", "TargetNotGranted"]);
    assert!(explained.status.success(), "and does the same");
}

#[test]
fn it_answers_completion() {
    let answer = text(&called("kubectl_complete-keyferry", &["tok"]).stdout);
    let (candidate, directive) = answer.trim_end().split_once('\n').unwrap();
    assert!(candidate.starts_with("token\t"), "{answer}");
    assert_eq!(directive, ":4");
    for (shell, sign) in [
        ("bash", "complete -F"),
        ("zsh", "#compdef keyferry"),
        ("fish", "complete -c keyferry"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let output = called("keyferry", &["completion", shell]);
        let script = text(&output.stdout);
        assert!(
            output.status.success() && script.contains(sign) && script.contains("credential"),
            "{shell}"
        );
    }
    // A file: as an argument the script would be longer than Linux takes.
    let script = called("keyferry", &["completion", "bash"]).stdout;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), script).unwrap();
    let checked = Command::new("bash").arg("-n").arg(file.path()).status();
    assert!(checked.unwrap().success());
}

#[test]
fn the_krew_template_is_a_manifest_once_it_is_filled_in() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/kubectl/krew.yaml");
    let template = std::fs::read_to_string(path).unwrap();
    let filled: String = template
        .lines()
        .map(|line| match line.trim().strip_prefix("{{addURIAndSha \"") {
            Some(rest) => {
                let uri = rest
                    .split("\" ")
                    .next()
                    .unwrap()
                    .replace("{{ .TagName }}", "v0.1.0");
                format!("      uri: {uri}\n      sha256: {}\n", "0".repeat(64))
            }
            None => format!("{}\n", line.replace("{{ .TagName }}", "v0.1.0")),
        })
        .collect();
    assert!(!filled.contains("{{"), "{filled}");
    let manifest: serde_json::Value = serde_saphyr::from_str(&filled).unwrap();
    assert_eq!(
        (&manifest["kind"], &manifest["spec"]["version"]),
        (&"Plugin".into(), &"v0.1.0".into())
    );
    let platforms = manifest["spec"]["platforms"].as_array().unwrap();
    assert!(
        !platforms.is_empty()
            && platforms.iter().all(|it| it["uri"]
                .as_str()
                .is_some_and(|uri| uri.contains("/v0.1.0/")))
    );
    assert!(
        template.starts_with("# A template, not a manifest"),
        "it says what it is"
    );
}

#[test]
fn the_hub_is_found_as_kubectl_finds_it() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".kube")).unwrap();
    dead_hub(&home.path().join(".kube/config"), 1);
    let by_variable = home.path().join("by-variable");
    dead_hub(&by_variable, 2);
    let by_flag = home.path().join("by-flag");
    dead_hub(&by_flag, 3);
    let paths = [home.path(), &by_variable, &by_flag].map(|path| path.display().to_string());
    let [home, by_variable, by_flag] = paths.each_ref().map(String::as_str);
    let missing_first = format!("/no/such/kubeconfig:{by_variable}");
    let default = [("HOME", home)];
    let variable = [("HOME", home), ("KUBECONFIG", missing_first.as_str())];
    let own = [
        ("HOME", home),
        ("KUBECONFIG", by_variable),
        ("KEYFERRY_KUBECONFIG", by_flag),
    ];
    let nowhere = [("HOME", home), ("KUBECONFIG", "/no/such/kubeconfig")];
    let by_flag_and_variable = ["keys", "--kubeconfig", by_flag];
    let cases = [
        (&["keys"][..], &default[..]),
        (&["keys"], &variable),
        (&["keys"], &own),
        (&by_flag_and_variable, &variable),
        (&["keys"], &nowhere),
        // What changes something on the hub says first which one it is.
        (&["revoke", "--kid", "a"], &variable),
    ];
    for name in ["keyferry", "kubectl-keyferry"] {
        let shown = cases.map(|(words, env)| {
            let shown = transcript_of(name, words, env);
            shown.with_name(home, "/home/jane")
        });
        assert_snapshot!(format!("the-hub-of-{name}"), joined(&shown));
    }
}

/// kubectl may have the target's own kubeconfig in `KUBECONFIG`, whose user is the plugin: reading
/// it would call the plugin again, and again.
#[test]
fn the_exec_plugin_does_not_read_kubeconfig() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("config");
    dead_hub(&kubeconfig, 2);
    let kubeconfig = kubeconfig.display().to_string();
    let own = "apiVersion: config.keyferry.dev/v1alpha1\nkind: ClientConfiguration\n\
               server: https://127.0.0.1:9\nserviceAccount: c\n";
    write_client_file(folder.path(), own).unwrap();
    let program = program_at_home(Path::new(env!("CARGO_BIN_EXE_keyferry")), folder.path());
    let info = r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"interactive":false,"cluster":{"server":"https://t:6443"}}}"#;
    let cache = folder.path().join("cache").display().to_string();
    let output = Command::new(program.unwrap())
        .args(["credential", "a/b", "--cache-dir", &cache])
        .envs([
            ("KUBECONFIG", kubeconfig.as_str()),
            ("KUBERNETES_EXEC_INFO", info),
        ])
        .output()
        .unwrap();
    assert!(!text(&output.stderr).contains("127.0.0.1:2"), "{output:?}");
    let shown = Transcript::new(
        "keyferry",
        &["credential", "a/b", "--cache-dir", &cache],
        &output,
    );
    let folder = folder.path().display().to_string();
    assert_snapshot!(
        "the-exec-plugin-does-not-read-kubeconfig",
        shown.with_name(&folder, "FOLDER")
    );
}

#[test]
fn a_forgotten_double_dash_is_named() {
    let words = ["exec", "tenant-a/prod", "kubectl", "get", "pods"];
    assert_snapshot!(
        "a-forgotten-double-dash",
        transcript_of("keyferry", &words, &[])
    );
}

/// Completion asks the hub. A hub that never answers, and one where nothing listens, cost little
/// time and print nothing.
#[test]
fn completion_without_a_hub_is_silent_and_short() {
    let folder = tempfile::tempdir().unwrap();
    let (dead, silent) = (folder.path().join("dead"), folder.path().join("silent"));
    dead_hub(&dead, 1);
    // The kernel accepts the connection, and nobody answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    dead_hub(&silent, listener.local_addr().unwrap().port());
    let broken = folder.path().join("broken");
    std::fs::write(&broken, "not: a: kubeconfig").unwrap();
    for kubeconfig in [&dead, &silent, &broken, &folder.path().join("none")] {
        let kubeconfig = kubeconfig.display().to_string();
        #[allow(clippy::disallowed_methods, reason = "the real time counts")]
        let started = std::time::Instant::now();
        for words in [&["__names", "token", ""][..], &["__names", "trust", "p"]] {
            let output = called_with("keyferry", words, &[("KUBECONFIG", &kubeconfig)]);
            assert!(output.status.success(), "{kubeconfig}");
            assert_eq!(
                text(&output.stdout).trim().to_owned() + &text(&output.stderr),
                "",
                "{kubeconfig}"
            );
        }
        let answer = called_with(
            "kubectl_complete-keyferry",
            &["token", ""],
            &[("KUBECONFIG", &kubeconfig)],
        );
        assert_eq!(text(&answer.stdout), ":4\n", "{kubeconfig}");
        assert!(started.elapsed() < std::time::Duration::from_secs(30));
    }
}

/// Who gives the caller's token and forgets the server gets no token by other rights than meant.
#[test]
fn a_forgotten_server_is_named() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".kube")).unwrap();
    dead_hub(&home.path().join(".kube/config"), 1);
    let home = home.path().display().to_string();
    let commands = [
        &["token", "a/b"][..],
        &["kubeconfig", "a/b"],
        &["exec", "a/b", "--", "true"],
    ];
    let flags = [
        ["--token-file", "/caller", "KEYFERRY_TOKEN_FILE"],
        [
            "--service-account",
            "reconciler",
            "KEYFERRY_SERVICE_ACCOUNT",
        ],
        [
            "--certificate-authority",
            "/ca.crt",
            "KEYFERRY_CERTIFICATE_AUTHORITY",
        ],
        [
            "--caller-audience",
            "keyferry.dev",
            "KEYFERRY_CALLER_AUDIENCE",
        ],
    ];
    for command in commands {
        let (name, rest) = command.split_first().unwrap();
        let mut shown = Vec::new();
        for [flag, value, variable] in flags {
            let by_flag = transcript_of(
                "keyferry",
                &[&[*name, flag, value][..], rest].concat(),
                &[("HOME", &home)],
            );
            let env = [("HOME", home.as_str()), (variable, value)];
            let both = [by_flag, transcript_of("keyferry", command, &env)];
            shown.extend(both.map(|it| it.with_name(&home, "/home/jane")));
        }
        assert_snapshot!(format!("{name}-without-a-server"), joined(&shown));
    }
}

/// The hub's objects from standard input, and mistakes in them.
#[test]
fn objects_are_read_from_standard_input() {
    use std::io::Write;
    use std::process::Stdio;

    let piped = |words: &[&str], input: &str| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_keyferry"))
            .env_clear()
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The command may end before it has read everything.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    };
    let list = r#"{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"keyferry.dev/v1alpha1","kind":"TargetCluster",
        "metadata":{"name":"prod","uid":"u","generation":1,"resourceVersion":"1","creationTimestamp":"2026-01-01T00:00:00Z"},
        "spec":{"address":"https://prod.example.com:6443","audience":"https://prod.example.com","allow":[{"namespaces":["tenant-a"],"serviceAccounts":["reconciler"]}]},
        "status":{"observedGeneration":1,"usernamePrefix":"hub:","issuer":"https://hub.example.com","clusterResourceNamespace":"keyferry-system",
        "discoveryURL":"https://keys.example.com/.well-known/openid-configuration"}},
        {"apiVersion":"keyferry.dev/v1alpha1","kind":"TargetAccess","metadata":{"name":"apps","namespace":"tenant-a","uid":"v","generation":1,"resourceVersion":"1","creationTimestamp":"2026-01-01T00:00:00Z"},
        "spec":{"targetClusterRef":{"name":"prod"},"serviceAccountName":"reconciler"}}]}"#;
    let shown =
        |words: &[&str], input: &str| Transcript::new("keyferry", words, &piped(words, input));
    let read = ["targets", "-f", "-"];
    assert_snapshot!("targets-of-objects", shown(&read, list));
    assert_snapshot!(
        "trust-of-objects",
        shown(&["trust", "prod", "-f", "-"], list)
    );
    for (case, input) in [
        ("no-object", String::new()),
        ("a-secret", "kind: Secret\ndata: {a: hunter2}\n".to_owned()),
        ("an-object-of-no-hub", list.replace("\"generation\":1,", "")),
        (
            "an-old-status",
            list.replace("\"observedGeneration\":1", "\"observedGeneration\":2"),
        ),
        ("a-long-text", "x".repeat(9 << 20)),
    ] {
        let refused = shown(&read, &input);
        assert!(!refused.to_string().contains("hunter2"), "{refused}");
        assert_snapshot!(format!("targets-of-{case}"), refused);
    }
}

#[test]
fn a_hub_that_is_not_reached_is_no_mistake_of_a_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let hub = folder.path().join("hub");
    dead_hub(&hub, 1);
    let hub = hub.to_str().unwrap();
    for command in ["doctor", "whoami"] {
        let output = called_with(
            "keyferry",
            &[command, "tenant-a/prod"],
            &[("KUBECONFIG", hub)],
        );
        let told = text(&output.stdout) + &text(&output.stderr);
        assert!(
            told.contains("StartUnread") && !told.contains("serve --config"),
            "{command}: {told}"
        );
    }
}
