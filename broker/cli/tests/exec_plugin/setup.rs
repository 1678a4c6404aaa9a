//! A server that answers exchanges as it is told, and the plugin called as kubectl calls it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use keyferry_integration::https::HttpsServer;
use keyferry_integration::pki::TestCa;
use keyferry_integration::transcript::Transcript;
use keyferry_integration::user_home::{program_at_home, write_client_file};
use serde_json::{Value, json};
use tempfile::TempDir;

/// What the server answers.
pub(crate) type Answer = Arc<dyn Fn() -> Response + Send + Sync>;

#[derive(Clone, Default)]
struct Shelf {
    answer: Arc<Mutex<Option<Answer>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

pub(crate) struct Setup {
    folder: TempDir,
    server: HttpsServer,
    ca: PathBuf,
    program: PathBuf,
    shelf: Shelf,
}

/// The variables that every call has, and no transcript shows.
const OF_EVERY_CALL: [&str; 2] = ["HOME", "XDG_CACHE_HOME"];

/// What the plugin said.
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// The whole call, for a snapshot.
    pub(crate) shown: Transcript,
}

/// A token that ends after so many seconds. Its signature is what must not be found where no token
/// belongs.
pub(crate) fn token(seconds: i64) -> String {
    jwt(&json!({ "aud": ["https://prod.example.com"], "exp": ends(seconds) }))
}

/// When such a token ends, in seconds since 1970.
pub(crate) fn ends(seconds: i64) -> i64 {
    // Steady within a test, whatever second it is.
    static NOW: std::sync::OnceLock<i64> = std::sync::OnceLock::new();
    NOW.get_or_init(|| jiff::Timestamp::now().as_second()) + seconds
}

pub(crate) fn jwt(claims: &Value) -> String {
    let part = |text: String| URL_SAFE_NO_PAD.encode(text);
    format!(
        "{}.{}.{}",
        part(r#"{"alg":"ES256"}"#.to_owned()),
        part(claims.to_string()),
        part("canary-signature".to_owned())
    )
}

/// base64 of PEM of something that stands for a certificate.
pub(crate) fn authority(name: &str) -> String {
    STANDARD.encode(format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        STANDARD.encode(name)
    ))
}

/// `KUBERNETES_EXEC_INFO` as client-go writes it.
pub(crate) fn exec_info_json(version: &str, cluster: Value) -> String {
    let spec = json!({ "cluster": cluster, "interactive": false });
    json!({ "kind": "ExecCredential", "apiVersion": format!("client.authentication.k8s.io/{version}"), "spec": spec }).to_string()
}

/// The answer to an exchange.
pub(crate) fn good(token: &str, expires_in: u64) -> Value {
    let cluster = json!({
        "name": "prod", "server": "https://prod.example.com:6443", "certificate-authority-data": authority("prod"),
        "tls-server-name": "kubernetes", "proxy-url": "http://proxy.example.com:3128",
    });
    json!({
        "access_token": token, "issued_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_type": "Bearer",
        "expires_in": expires_in, "keyferry_cluster": cluster,
    })
}

async fn exchange(State(shelf): State<Shelf>, body: Bytes) -> Response {
    let form: Vec<(String, String)> = url::form_urlencoded::parse(&body).into_owned().collect();
    let value = |name: &str| {
        form.iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.clone())
            .unwrap_or_default()
    };
    assert_eq!(value("keyferry_cluster"), "true");
    shelf.asked.lock().unwrap().push(value("audience"));
    // Long enough for every process of a crowd to be there.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let answer = shelf.answer.lock().unwrap().clone();
    match answer {
        Some(answer) => answer(),
        None => axum::Json(good(&token(600), 540)).into_response(),
    }
}

impl Setup {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ca = TestCa::create("keyferry", folder.path()).unwrap();
        let shelf = Shelf::default();
        let routes = Router::new()
            .route("/v1/token", axum::routing::post(exchange))
            .with_state(shelf.clone());
        let server = HttpsServer::start(&ca.serving("server", &[]).unwrap(), routes)
            .await
            .unwrap();
        let caller = jwt(
            &json!({ "iss": "https://hub", "aud": ["keyferry.dev"], "sub": "system:serviceaccount:tenant-a:reconciler" }),
        );
        std::fs::write(folder.path().join("caller"), caller).unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_keyferry"));
        let setup = Self {
            ca: ca.cert_path().to_owned(),
            program: program_at_home(program, folder.path()).unwrap(),
            folder,
            server,
            shelf,
        };
        setup.client_file("");
        setup
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    pub(crate) fn ca(&self) -> String {
        self.ca.display().to_string()
    }

    pub(crate) fn set_response(&self, answer: impl Fn() -> Response + Send + Sync + 'static) {
        *self.shelf.answer.lock().unwrap() = Some(Arc::new(answer));
    }

    pub(crate) fn asked_for(&self) -> Vec<String> {
        self.shelf.asked.lock().unwrap().clone()
    }

    pub(crate) fn token_file(&self) -> PathBuf {
        self.folder.path().join("caller")
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.folder.path().join("cache/keyferry/credentials")
    }

    /// The target as kubectl would say it.
    pub(crate) fn cluster(&self) -> Value {
        json!({
            "server": "https://prod.example.com:6443", "certificate-authority-data": authority("prod"), "tls-server-name": "kubernetes",
            "proxy-url": "http://proxy.example.com:3128", "config": null,
        })
    }

    /// Writes the user's own file with the server, the caller's token and further lines.
    pub(crate) fn client_file(&self, further: &str) -> String {
        let token = self.token_file();
        self.client_file_of(&format!("tokenFile: {}\n{further}", token.display()))
    }

    /// Writes the user's own file with the server and these lines.
    pub(crate) fn client_file_of(&self, lines: &str) -> String {
        let text = format!(
            "apiVersion: config.keyferry.dev/v1alpha1\nkind: ClientConfiguration\nserver: \
             {}\ncertificateAuthority: {}\n{lines}",
            self.server.url(),
            self.ca.display(),
        );
        let path = write_client_file(self.folder.path(), &text).unwrap();
        path.display().to_string()
    }

    pub(crate) fn remove_client_file(&self) {
        std::fs::remove_file(self.folder.path().join(".config/keyferry/client.yaml")).unwrap();
    }

    /// Runs the plugin with further arguments of an exec stanza.
    pub(crate) async fn run(&self, further: &[&str], exec_info: &str) -> Said {
        self.run_with(further, Some(exec_info), &[]).await
    }

    pub(crate) async fn run_with(
        &self,
        further: &[&str],
        exec_info: Option<&str>,
        env: &[(&str, &str)],
    ) -> Said {
        self.call(further, exec_info, env).await
    }

    /// Runs another command of the program.
    pub(crate) async fn run_command(&self, arguments: &[&str], env: &[(&str, &str)]) -> Said {
        let mut command = self.bare(arguments, None);
        self.ended(command.envs(env.iter().copied())).await
    }

    /// Runs the plugin with the user's own file and without an ACCESS.
    pub(crate) async fn run_unnamed(&self, client_file: &str, exec_info: Option<&str>) -> Said {
        let words = ["credential", "--client-config", client_file];
        self.ended(&mut self.bare(&words, exec_info)).await
    }

    pub(crate) fn command(
        &self,
        arguments: &[&str],
        exec_info: Option<&str>,
    ) -> tokio::process::Command {
        self.bare(
            &[&["credential", "tenant-a/prod"], arguments].concat(),
            exec_info,
        )
    }

    fn bare(&self, arguments: &[&str], exec_info: Option<&str>) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(&self.program);
        command
            .args(arguments)
            .env_clear()
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
            .env("HOME", self.folder.path())
            .env("XDG_CACHE_HOME", self.folder.path().join("cache"));
        command.envs(exec_info.map(|text| ("KUBERNETES_EXEC_INFO", text)));
        command
    }

    async fn ended(&self, command: &mut tokio::process::Command) -> Said {
        let output = tokio::time::timeout(Duration::from_secs(60), command.output());
        let output = output.await.unwrap().unwrap();
        let command = command.as_std();
        let arguments: Vec<&str> = command.get_args().filter_map(OsStr::to_str).collect();
        let variables: Vec<(&str, &str)> = command
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?)))
            .filter(|(name, _)| !OF_EVERY_CALL.contains(name))
            .collect();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Said {
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
            shown: Transcript::new("keyferry", &arguments, &output)
                .with_variables(&variables)
                .with_name(&self.folder.path().display().to_string(), "/home/jane")
                // What kubectl says of the right target; the tests are about other ones.
                .with_name(&exec_info_json("v1", self.cluster()), "OF_THE_TARGET")
                .without_random_words(),
        }
    }

    async fn call(
        &self,
        arguments: &[&str],
        exec_info: Option<&str>,
        env: &[(&str, &str)],
    ) -> Said {
        let mut command = self.command(arguments, exec_info);
        self.ended(command.envs(env.iter().copied())).await
    }
}

/// What must have failed: nothing on standard output, one error and no token on the other.
pub(crate) fn failed(said: Said) -> Said {
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (Some(1), ""),
        "{}",
        said.stderr
    );
    assert!(
        said.stderr.contains("error: ") && !said.stderr.contains("panicked"),
        "{}",
        said.stderr
    );
    assert!(
        !said
            .stderr
            .contains(&URL_SAFE_NO_PAD.encode("canary-signature")),
        "{}",
        said.stderr
    );
    said
}
