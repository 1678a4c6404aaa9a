//! Commands that read a hub and a target which send without end, or stop in the middle; and commands
//! that a signal ends meanwhile.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures::stream::{self, StreamExt};
use keyferry_integration::https::HttpsServer;
use keyferry_integration::pki::TestCa;
use serde_json::json;

/// The most memory of a command, whatever a cluster sends.
const MAX_MEMORY_KIB: u64 = 600 * 1024;
/// How long a command may take, on a machine that does much else.
const MAX_DURATION: Duration = Duration::from_secs(180);

/// What a cluster sends for one list.
#[derive(Clone, Copy)]
enum Sending {
    /// A list without end, whatever limit was asked for.
    EndlessPage,
    /// One object whose rules do not end.
    EndlessObject,
    /// Pages of 2 MiB, each with a token for the next one.
    EndlessPages,
    /// An empty page, with a token for the next one.
    EmptyPages,
    /// Half a list, and then nothing on the open connection.
    Stall,
    /// Half a list, and then the end of the connection.
    Cut,
    /// The answer to a tenant, who may list in namespaces alone.
    Forbidden,
}

impl Sending {
    fn begin_answer(self) -> Response {
        let begin = r#"{"kind":"List","metadata":{"continue":"next"},"items":["#;
        let role =
            |rules: &str| format!(r#"{{"metadata":{{"name":"r","uid":"u"}},"rules":[{rules}"#);
        let rule = r#"{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}"#;
        let object = role(rule) + "]}";
        let endless = |first: String, next: String| {
            let first = stream::once(async { Bytes::from(first) });
            let next = Bytes::from(next);
            streamed(first.chain(stream::repeat(next)))
        };
        let part = format!("{begin}{object},");
        match self {
            Self::EndlessPage => endless(part, format!("{object},").repeat(500)),
            Self::EndlessObject => endless(format!("{begin}{}", role("[]")), ",[]".repeat(20_000)),
            Self::EndlessPages => {
                let large = role(rule) + &format!(",{rule}").repeat(7000) + "]}";
                format!("{begin}{large},{large},{large},{large}]}}").into_response()
            }
            Self::EmptyPages => format!("{begin}]}}").into_response(),
            Self::Stall => {
                let first = stream::once(async { Bytes::from(part) });
                streamed(first.chain(stream::pending()))
            }
            Self::Forbidden => {
                let status = json!({ "kind": "Status", "code": 403, "message": "no right" });
                (StatusCode::FORBIDDEN, status.to_string()).into_response()
            }
            Self::Cut => {
                let end = Err(std::io::Error::other("cut"));
                Body::from_stream(stream::iter([Ok(Bytes::from(part)), end])).into_response()
            }
        }
    }
}

fn streamed(chunks: impl stream::Stream<Item = Bytes> + Send + 'static) -> Response {
    Body::from_stream(chunks.map(Ok::<_, Infallible>)).into_response()
}

/// A hub with one target, or that target, of which one list is not as it should be.
async fn serve_cluster(
    ca: &TestCa,
    list: &'static str,
    sending: Option<Sending>,
    begun: &Arc<AtomicUsize>,
) -> HttpsServer {
    let begun = Arc::clone(begun);
    let target = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
        "metadata": { "name": "prod", "uid": "u", "resourceVersion": "1", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "address": "https://prod.test", "audience": "https://prod.test" },
    });
    let routes = Router::new().fallback(move |request: Request| {
        let items = match request.uri().path() {
            path if path.ends_with("/targetclusters") => vec![target.clone()],
            _ => Vec::new(),
        };
        let begun = Arc::clone(&begun);
        let is_odd = match sending {
            Some(Sending::Forbidden) => !request.uri().path().contains("/namespaces/"),
            _ => request.uri().path().ends_with(list),
        };
        async move {
            match (sending, is_odd) {
                (Some(sending), true) => {
                    begun.fetch_add(1, Relaxed);
                    sending.begin_answer()
                }
                _ => json!({ "kind": "List", "metadata": {}, "items": items })
                    .to_string()
                    .into_response(),
            }
        }
    });
    let certificate = ca.serving("cluster", &[]).unwrap();
    HttpsServer::start(&certificate, routes).await.unwrap()
}

fn write_kubeconfig(path: &Path, ca: &TestCa, server: &HttpsServer) {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": server.url(), "certificate-authority": ca.cert_path() } }],
        "users": [{ "name": "u", "user": { "token": "a.b.c" } }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
    });
    std::fs::write(path, kubeconfig.to_string()).unwrap();
}

/// A hub, its target and the folder with their kubeconfigs.
struct Clusters {
    folder: tempfile::TempDir,
    /// How many answers were begun that are not as they should be.
    begun: Arc<AtomicUsize>,
    _servers: [HttpsServer; 2],
}

impl Clusters {
    async fn start(list: &'static str, hub: Option<Sending>, target: Option<Sending>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ca = TestCa::create("live", folder.path()).unwrap();
        let begun = Arc::default();
        let servers = [
            serve_cluster(&ca, list, hub, &begun).await,
            serve_cluster(&ca, list, target, &begun).await,
        ];
        let targets = folder.path().join("targets");
        std::fs::create_dir(&targets).unwrap();
        std::fs::create_dir(folder.path().join("written")).unwrap();
        let [hub_server, target_server] = &servers;
        write_kubeconfig(&folder.path().join("hub"), &ca, hub_server);
        write_kubeconfig(&targets.join("prod"), &ca, target_server);
        Self {
            folder,
            begun,
            _servers: servers,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn spawn(&self, words: &[&str]) -> Child {
        // A shell that runs the tests in the background ignores SIGINT, which a command would inherit.
        Command::new("env")
            .arg("--default-signal=INT")
            .arg(env!("CARGO_BIN_EXE_keyferry"))
            .args(words)
            .arg("--kubeconfig")
            .arg(self.path("hub"))
            .current_dir(self.path("written"))
            .env("KEYFERRY_ALLOW_TARGET_CIDR", "127.0.0.0/8")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

/// Waits for the end of a command; returns also the most memory that it was seen to have.
pub(crate) async fn wait_for_end(mut child: Child) -> (Output, u64) {
    let status = format!("/proc/{}/status", child.id());
    let (start, mut peak) = (Instant::now(), 0);
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > MAX_DURATION {
            let _ = child.kill();
        }
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak_now = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        peak = peak.max(peak_now.unwrap_or_default());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    (child.wait_with_output().unwrap(), peak)
}

/// Each is cut at a limit, and is a list that was not read whole. Whether a page meets its limit or
/// its deadline first depends on the machine.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_sends_without_end_is_cut() {
    const ROLES: &str = "/clusterroles";
    const PODS: &str = "/pods";
    const PAGE_LIMIT: [&str; 2] = ["an object has more than 8 MiB", "took longer than"];
    let (hub, target) = (
        |sending| (Some(sending), None),
        |sending| (None, Some(sending)),
    );
    let rows = [
        (
            "endless object",
            ROLES,
            target(Sending::EndlessObject),
            PAGE_LIMIT,
        ),
        (
            "endless page",
            ROLES,
            target(Sending::EndlessPage),
            PAGE_LIMIT,
        ),
        (
            "endless pages",
            ROLES,
            target(Sending::EndlessPages),
            ["the list has more than 16 MiB"; 2],
        ),
        (
            "empty pages",
            ROLES,
            target(Sending::EmptyPages),
            ["could not be read", "took more than 60 s"],
        ),
        (
            "stall",
            ROLES,
            target(Sending::Stall),
            ["took longer than"; 2],
        ),
        (
            "cut",
            ROLES,
            target(Sending::Cut),
            ["broke off", "the connection failed"],
        ),
        (
            "hub, endless pages",
            PODS,
            hub(Sending::EndlessPages),
            ["the list has more than 128 MiB", "60 s"],
        ),
    ];
    for (case, list, (hub, target), wanted) in rows {
        let clusters = Clusters::start(list, hub, target).await;
        let folder = clusters.path("targets").display().to_string();
        let question = ["who-can", "get", "secrets", "--all", "-o", "json"];
        let words = [&question[..], &["--target-kubeconfigs", &folder]].concat();
        let (output, peak) = wait_for_end(clusters.spawn(&words)).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // No subject is known, so none is undetermined.
        assert_eq!(output.status.code(), Some(0), "{case}: {said}");
        let cluster = if hub.is_some() {
            "the hub"
        } else {
            "target prod"
        };
        let resource = list.trim_start_matches('/');
        let begin = format!("warning: {resource} of {cluster} were not read whole: ");
        let why = said.lines().find_map(|line| line.strip_prefix(&begin));
        let why = why.unwrap_or_else(|| panic!("{case}: {said}"));
        assert!(wanted.iter().any(|it| why.contains(it)), "{case}: {why}");
        assert!(peak > 0 && peak < MAX_MEMORY_KIB, "{case}: {peak} KiB");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_tenant_may_not_list_is_undetermined() {
    let clusters = Clusters::start("/", Some(Sending::Forbidden), None).await;
    let folder = clusters.path("targets").display().to_string();
    let question = ["who-can", "get", "secrets", "--all", "-o", "json"];
    let words = [&question[..], &["--target-kubeconfigs", &folder]].concat();
    let (output, _) = wait_for_end(clusters.spawn(&words)).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    for kind in keyferry_reach::ListKind::ALL {
        let resource = kind.resource();
        let warning = format!("warning: {resource} of the hub were not read whole: ");
        assert!(said.contains(&warning), "{resource}: {said}");
    }
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_ne!(report["unreadSubjects"], json!([]), "{report}");
}

/// Sends a signal to a command in the middle of a list that does not end.
async fn signal_in_the_middle(clusters: &Clusters, child: &Child, signal: &str) {
    let start = Instant::now();
    while clusters.begun.swap(0, Relaxed) == 0 {
        assert!(start.elapsed() < MAX_DURATION, "it does not read the list");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let id = child.id().to_string();
    let sent = Command::new("kill").args([signal, &id]).status().unwrap();
    assert!(sent.success(), "it had ended before");
}

/// A command that has taken over the signal ends with the code that a shell gives to one that the
/// signal ended. Neither leaves anything, and both end at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_a_signal_ends_leaves_nothing() {
    use std::os::unix::process::ExitStatusExt;
    let clusters = Clusters::start("/targetclusters", Some(Sending::Stall), None).await;
    let targets = clusters.path("targets").display().to_string();
    let rows: [(&[&str], _); 7] = [
        (&["snapshot", "folder/snap"], [Some(130), Some(143)]),
        (&["dashboard"], [Some(130), Some(143)]),
        (&["fleet"], [None; 2]),
        (
            &["fleet", "--prove", "--target-kubeconfigs", &targets],
            [None; 2],
        ),
        (&["who-can", "get", "pods", "--all"], [None; 2]),
        (&["reach", "a/b"], [None; 2]),
        (&["rehearse", "hub-outage"], [None; 2]),
    ];
    for (words, codes) in rows {
        for ((signal, number), code) in [("-INT", 2), ("-TERM", 15)].into_iter().zip(codes) {
            let child = clusters.spawn(words);
            signal_in_the_middle(&clusters, &child, signal).await;
            let start = Instant::now();
            let (output, _) = wait_for_end(child).await;
            let took = start.elapsed();
            let status = output.status;
            assert_eq!(status.code(), code, "{words:?} {signal}: {output:?}");
            assert_eq!(
                status.signal(),
                code.is_none().then_some(number),
                "{words:?}"
            );
            assert!(took < Duration::from_secs(3), "{words:?}: {took:?}");
            assert_eq!(output.stdout, b"", "{words:?}");
            let written = clusters.path("written");
            let left: Vec<_> = std::fs::read_dir(&written).unwrap().collect();
            for entry in left {
                let entry = entry.unwrap().path();
                let inner = std::fs::read_dir(&entry).unwrap().count();
                assert_eq!((entry.ends_with("folder"), inner), (true, 0), "{entry:?}");
            }
        }
    }
}
