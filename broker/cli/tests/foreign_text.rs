//! No command lets a target or a server print a line, or speak to the terminal.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    missing_docs
)]

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use futures::StreamExt;
use keyferry_integration::https::HttpsServer;
use keyferry_integration::pki::TestCa;
use keyferry_integration::user_home::{program_at_home, write_client_file};
use keyferry_reach::ListKind;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Ends its line in every way that a terminal knows, turns the reading direction around, clears the
/// screen, and then speaks like Keyferry.
const HOSTILE: &str = "denied\nfix: INJECTED\r\nhint: INJECTED\rfix: INJECTED\u{b}fix: INJECTED\
                       \u{85}fix: INJECTED\u{2028}fix: INJECTED\u{2029}fix: INJECTED\
                       \u{202e}INJECTED\u{2066}\u{200f}\u{1b}[2J\u{1b}]0;INJECTED\u{7}\u{0}";
/// How long one command may take. A command that waits for something is stopped.
const LIMIT: Duration = Duration::from_secs(8);

/// What the server answers to every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answers {
    /// As a token API that refuses.
    Refusal,
    /// As an apiserver that forbids.
    Forbidden,
    /// As an apiserver that fails.
    Failure,
    /// As one that succeeds, with all texts of the object.
    Success,
    /// No JSON at all.
    Text,
}

impl Answers {
    const ALL: [Self; 5] = [
        Self::Refusal,
        Self::Forbidden,
        Self::Failure,
        Self::Success,
        Self::Text,
    ];

    fn response(self, path: &str) -> Response {
        let status = |code: u16, reason: &str| {
            json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": HOSTILE,
                "reason": reason, "code": code,
                "details": { "name": HOSTILE, "kind": HOSTILE, "causes": [{ "message": HOSTILE, "field": HOSTILE, "reason": HOSTILE }] },
            })
        };
        let (code, body) = match self {
            Self::Refusal => {
                let body =
                    json!({ "error": HOSTILE, "error_description": HOSTILE, "error_uri": HOSTILE });
                (400, body.to_string())
            }
            Self::Forbidden => (403, status(403, "Forbidden").to_string()),
            Self::Failure => (500, status(500, HOSTILE).to_string()),
            Self::Success => (200, object(path).to_string()),
            Self::Text => (200, HOSTILE.to_owned()),
        };
        let kind = [(header::CONTENT_TYPE, "application/json")];
        (StatusCode::from_u16(code).unwrap(), kind, body).into_response()
    }
}

/// One object that is a user review, an access review, a version, a discovery document, an answer
/// of the token API, an object with a status, and a list of such.
fn object(path: &str) -> Value {
    let condition = json!({
        "type": "Ready", "status": "False", "reason": HOSTILE, "message": HOSTILE,
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
    });
    let metadata = json!({
        "name": "prod", "namespace": "tenant-a", "uid": "u", "resourceVersion": "1", "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": { "a": HOSTILE },
    });
    let status = json!({
        "allowed": false, "denied": true, "reason": HOSTILE, "evaluationError": HOSTILE,
        "userInfo": { "username": HOSTILE, "uid": HOSTILE, "groups": [HOSTILE], "extra": { HOSTILE: [HOSTILE] } },
        "conditions": [condition], "issuer": HOSTILE, "discoveryURL": HOSTILE, "usernamePrefix": HOSTILE,
        "audiences": [HOSTILE], "authenticated": true, "user": { "username": HOSTILE },
        "deliveries": [{ "name": "http", "type": "HTTP", "reason": HOSTILE, "message": HOSTILE }],
    });
    let spec = json!({
        "address": "https://prod.example.com", "audience": "https://prod.example.com",
        "targetClusterRef": { "name": "prod" }, "serviceAccountName": "reconciler",
    });
    let kind = if path.contains("targetaccess") {
        "TargetAccess"
    } else {
        "TargetCluster"
    };
    let group = "rbac.authorization.k8s.io";
    let mut item = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": kind, "metadata": metadata,
        "spec": spec, "status": status,
        "rules": [{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }],
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "prod" },
        "subjects": [{ "kind": "User", "apiGroup": group, "name": HOSTILE }],
    });
    if path.contains("/clusterrole") {
        item["metadata"]["namespace"] = Value::Null;
    }
    let mut object = item.clone();
    let list = path.ends_with('s');
    if list {
        object["items"] = json!([item]);
        object["kind"] = format!("{kind}List").into();
    }
    object["gitVersion"] = HOSTILE.into();
    object["issuer"] = HOSTILE.into();
    object["jwks_uri"] = HOSTILE.into();
    object["keys"] = json!([{ "kid": HOSTILE, "kty": HOSTILE, "alg": HOSTILE }]);
    object["access_token"] = HOSTILE.into();
    object["token_type"] = "Bearer".into();
    object["expires_in"] = 600.into();
    object["groups"] = json!([{ "name": HOSTILE }]);
    object["resources"] = json!([{ "name": HOSTILE, "kind": HOSTILE, "verbs": [HOSTILE] }]);
    object
}

/// A server, and a user's files that lead to it.
struct Setup {
    folder: TempDir,
    server: HttpsServer,
    program: PathBuf,
}

impl Setup {
    async fn start(answers: Answers) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ca = TestCa::create("hostile", folder.path()).unwrap();
        let routes =
            Router::new().fallback(move |uri: Uri| async move { answers.response(uri.path()) });
        let server = HttpsServer::start(&ca.serving("hostile", &[]).unwrap(), routes)
            .await
            .unwrap();
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_keyferry"));
        let program = program_at_home(program, folder.path()).unwrap();
        let setup = Self {
            folder,
            server,
            program,
        };
        setup.write(ca.cert_path());
        setup
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn write(&self, ca: &std::path::Path) {
        let (url, pem) = (self.server.url(), std::fs::read_to_string(ca).unwrap());
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let token = |audience: &str| {
            let claims = json!({ "iss": url, "sub": "system:serviceaccount:tenant-a:reconciler",
                "aud": [audience], "iat": 1_700_000_000, "exp": 4_000_000_000_u64 });
            format!(
                "{}.{}.{}",
                part(json!({ "alg": "ES256", "kid": "a" })),
                part(claims),
                URL_SAFE_NO_PAD.encode("s")
            )
        };
        let write = |name: &str, text: &str| std::fs::write(self.file(name), text).unwrap();
        write("ca.crt", &pem);
        write("caller", &token("keyferry.dev"));
        write("token", &token("https://prod.example.com"));
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u, namespace: tenant-a}}}}]\n\
                 clusters: [{{name: c, cluster: {{server: '{url}', certificate-authority-data: {}}}}}]\nusers: [{{name: u, user: {{token: a.b.c}}}}]\n",
            STANDARD.encode(&pem)
        );
        write("hub.kubeconfig", &kubeconfig);
        std::fs::create_dir(self.file("targets")).unwrap();
        write("targets/prod", &kubeconfig);
        let indented: String = pem.lines().map(|line| format!("      {line}\n")).collect();
        write(
            "authentication.yaml",
            &format!(
                "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer:\n    url: {url}\n    \
                 audiences: [https://prod.example.com]\n    certificateAuthority: |\n{indented}  claimMappings:\n    \
                 username: {{claim: sub, prefix: 'hub:'}}\n"
            ),
        );
        write(
            "apps.yaml",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default}}",
        );
        let own = format!(
            "apiVersion: config.keyferry.dev/v1alpha1\nkind: ClientConfiguration\nserver: {url}\n\
             certificateAuthority: {}\ntokenFile: {}\n",
            self.file("ca.crt"),
            self.file("caller"),
        );
        write_client_file(self.folder.path(), &own).unwrap();
        self.write_snapshot();
    }

    /// A snapshot of a hub, and a change that lets someone in.
    fn write_snapshot(&self) {
        std::fs::create_dir_all(self.file("read/hub")).unwrap();
        let list = |kind: ListKind, items: Value| {
            let list = json!({ "apiVersion": kind.api_version(), "kind": format!("{}List", kind.object_kind()),
                "metadata": {}, "items": items });
            let file = self.file(&format!("read/hub/{}.json", kind.resource()));
            std::fs::write(file, list.to_string()).unwrap();
        };
        for kind in ListKind::ALL {
            let account = json!([{ "metadata": { "name": "reconciler", "namespace": "tenant-a", "uid": "u" } }]);
            match kind {
                ListKind::TargetClusters => list(kind, json!([object("/targetcluster")])),
                ListKind::ServiceAccounts => list(kind, account),
                _ => list(kind, json!([])),
            }
        }
        let rbac = "rbac.authorization.k8s.io";
        let named = json!({ "name": "mint", "annotations": { HOSTILE: HOSTILE } });
        let change = [
            json!({ "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": named,
                "rules": [{ "apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"] }] }),
            json!({ "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": named,
                "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": "mint" },
                "subjects": [{ "kind": "User", "apiGroup": rbac, "name": HOSTILE }] }),
        ];
        let change = change.map(|object| object.to_string()).join("\n---\n");
        std::fs::write(self.file("change.yaml"), change).unwrap();
    }

    /// Runs a command, and returns all that it prints.
    async fn run(&self, words: &[String]) -> String {
        let exec_info = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
            "spec": { "interactive": false, "cluster": { "server": "https://prod.example.com" } },
        });
        let (printed, path) = tempfile::NamedTempFile::new().unwrap().into_parts();
        let mut child = tokio::process::Command::new(&self.program)
            .args(words)
            .current_dir(self.folder.path())
            .env_clear()
            .env("HOME", self.folder.path())
            // Of another command than the exec plugin, a client sets no such variable.
            .envs(
                words
                    .first()
                    .is_some_and(|word| *word == "credential")
                    .then(|| ("KUBERNETES_EXEC_INFO", exec_info.to_string())),
            )
            .env("KEYFERRY_ALLOW_TARGET_CIDR", "127.0.0.0/8")
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .stdin(Stdio::null())
            .stdout(printed.try_clone().unwrap())
            .stderr(printed)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        if tokio::time::timeout(LIMIT, child.wait()).await.is_err() {
            child.kill().await.unwrap();
        }
        String::from_utf8(std::fs::read(&path).unwrap()).unwrap()
    }
}

/// Every command that talks to a target or a server, with the flags that lead it here.
fn commands(setup: &Setup) -> Vec<Vec<String>> {
    let url = setup.server.url();
    let server = format!("--server {url} --certificate-authority ca.crt --token-file caller");
    let target = format!(
        "--target-address {url} --target-certificate-authority ca.crt --target-token-file token"
    );
    let hub = "--kubeconfig hub.kubeconfig";
    let by_server = [
        "token",
        "kubeconfig",
        "kubeconfig --exec",
        "agent --once --dir tokens",
    ];
    let by_server = by_server.map(|command| format!("{command} tenant-a/prod {server}"));
    let at_target = [
        "whoami",
        "whoami --as bob",
        "whoami -o json --as bob",
        "whoami --auth-config authentication.yaml",
        "can-i get pods",
        "can-i get pods -o json",
        "can-i get pods --as bob",
        "can-i get pods --as bob -o json",
        "can-i --list",
        "can-i --list --as bob",
        "can-i --list -o json",
        "can-i apply -f apps.yaml",
        "can-i apply -f apps.yaml --as bob",
        "can-i apply -f apps.yaml -o json",
        "doctor",
        "doctor -o json",
        "doctor --auth-config authentication.yaml",
    ];
    let at_target = at_target.map(|command| format!("{command} {target}"));
    let at_hub = [
        "token tenant-a/prod",
        "kubeconfig tenant-a/prod",
        "token -n tenant-a",
        "targets",
        "targets -o json",
        "keys",
        "keys -o json",
        "keys -o timeline",
        "keys rotate --target prod",
        "revoke --kid a",
        "revoke --kid a --yes",
        "trust prod",
        "export out",
        "admission-policies",
        "admission-policies --check",
        "runtime-info prod --internal-api-url https://keyferry.example.com",
        "doctor targetaccess/prod -n tenant-a",
        "doctor targetaccess/prod -n tenant-a -o json",
        "doctor targetcluster/prod",
        "doctor secret/prod-kubeconfig -n tenant-a",
        "doctor configmap/prod -n tenant-a",
        "doctor kustomization/apps -n tenant-a",
        "whoami targetaccess/prod -n tenant-a",
        "can-i get pods --from targetaccess/prod -n tenant-a",
        "onboard target prod --target-kubeconfig hub.kubeconfig --tenant tenant-a/reconciler",
        "onboard target prod --target-kubeconfig hub.kubeconfig --tenant tenant-a/reconciler --apply",
        "onboard tenant tenant-a --service-account reconciler --target prod",
        "offboard target prod",
        "offboard target prod --with-accesses --remove",
        "offboard tenant tenant-a --target prod",
        "fleet",
        "fleet -o json",
        "fleet -n tenant-a",
        "fleet --target-kubeconfigs targets --prove",
        "snapshot written",
        "tree tenant-a/prod",
        "rehearse hub-outage",
        "rehearse hub-outage -o json",
        "who-can get secrets --all --target-kubeconfigs targets",
        "who-can get secrets --all -o table",
        "who-can get secrets --all -o json",
        "reach user:bob",
    ];
    let at_hub = at_hub.map(|command| format!("{command} {hub}"));
    let others = [
        "credential tenant-a/prod".to_owned(),
        format!("exec tenant-a/prod {server} -- true"),
        format!("exec tenant-a/prod {hub} -- true"),
        "lint --network authentication.yaml".to_owned(),
        "lint --network -o json authentication.yaml".to_owned(),
        "verify --auth-config authentication.yaml --live --target-token-file token".to_owned(),
        "verify --auth-config authentication.yaml --live --target-token-file token -o json"
            .to_owned(),
        "what-if --snapshot read -f change.yaml".to_owned(),
        "what-if --snapshot read -f change.yaml -o json".to_owned(),
        "what-if --snapshot read -f change.yaml -o markdown".to_owned(),
    ];
    let all = by_server
        .into_iter()
        .chain(at_target)
        .chain(at_hub)
        .chain(others);
    all.flat_map(|line| {
        let as_yaml = line.replace("-o json", "-o yaml");
        let differs = as_yaml != line;
        std::iter::once(line).chain(differs.then_some(as_yaml))
    })
    .map(|line| line.split(' ').map(str::to_owned).collect())
    .collect()
}

/// What is wrong with what a command printed.
fn fault(printed: &str) -> Option<&'static str> {
    let misleads = |c: char| {
        c.is_control() && c != '\n'
            || matches!(
                c,
                '\u{2028}' | '\u{2029}' | '\u{202e}' | '\u{2066}' | '\u{200f}'
            )
    };
    let speaks = |line: &str| {
        let line = line.trim_start();
        line.starts_with("fix: INJECTED") || line.starts_with("hint: INJECTED")
    };
    if printed.chars().any(misleads) {
        Some("a control or direction character")
    } else if printed.lines().any(speaks) {
        Some("a line of its own")
    } else if printed.contains("panicked") {
        Some("a panic")
    } else {
        None
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_text_of_a_target_or_a_server_makes_a_line_or_moves_the_cursor() {
    let (mut wrong, mut shown) = (Vec::new(), 0);
    for answers in Answers::ALL {
        let setup = Setup::start(answers).await;
        let setup = &setup;
        let runs = commands(setup).into_iter().map(|words| async move {
            let printed = setup.run(&words).await;
            (words, printed)
        });
        let runs: Vec<(Vec<String>, String)> = futures::stream::iter(runs)
            .buffer_unordered(4)
            .collect()
            .await;
        for (words, printed) in runs {
            assert!(!printed.contains("Usage: "), "{words:?}: {printed}");
            shown += usize::from(printed.contains("INJECTED"));
            if let Some(fault) = fault(&printed) {
                wrong.push(format!(
                    "{answers:?}: {}: {fault}:\n{printed}",
                    words.join(" ")
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(shown >= 20, "only {shown} commands showed any of it");
}

#[test]
fn the_table_finds_what_it_looks_for() {
    for printed in [
        "error: denied\nfix: INJECTED",
        "a\n  hint: INJECTED",
        "a\u{1b}[2J",
        "a\rfix: x",
        "a\u{2028}b",
    ] {
        assert!(fault(printed).is_some(), "{printed:?}");
    }
    assert_eq!(fault("error: denied\\u{a}fix: INJECTED\nfix: ours\n"), None);
}
