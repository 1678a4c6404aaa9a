//! An embedded hub, and the broker as `keyferry serve` runs it, in this process.

use std::path::PathBuf;
use std::time::Duration;

use keyferry::wiring::{ServeError, ServeOptions, Server};
use keyferry_api::config::Overrides;
use keyferry_core::exchange::{
    ASSERTION_TYPE_JWT, GRANT_TYPE, GRANT_TYPE_CREDENTIALS, TOKEN_TYPE_JWT,
};
use keyferry_core::target_address::AddressRules;
use keyferry_hub::client::HubAccess;
use keyferry_platform::reload_signal::ReloadSignal;
use keyferry_testing::{Authority, EmbeddedHub, Grant, HubOptions, Subject};
use secrecy::ExposeSecret;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::Outcome;
use super::policy::{self, CALLER_AUDIENCE, Ports};

/// The tenant of every benchmark except the one of memory.
pub const TENANT: &str = "tenant-a";
/// The ServiceAccount of the access `warm`.
pub const SELF: &str = "reconciler";
/// A ServiceAccount that may ask for the access `delegated`.
pub const DELEGATE: &str = "robot";
/// The number of accesses `slow-0`, `slow-1`, ... whose keys are cold.
pub const COLD: usize = 3;

const CALLER_LIFETIME: Duration = Duration::from_secs(3600);
const READY: Duration = Duration::from_secs(15);

/// How a form presents the caller's token: the fixed parameters, and the name of the token's.
type Presentation = ([(&'static str, &'static str); 2], &'static str);

const SUBJECT_TOKEN: Presentation = (
    [
        ("grant_type", GRANT_TYPE),
        ("subject_token_type", TOKEN_TYPE_JWT),
    ],
    "subject_token",
);
const CLIENT_ASSERTION: Presentation = (
    [
        ("grant_type", GRANT_TYPE_CREDENTIALS),
        ("client_assertion_type", ASSERTION_TYPE_JWT),
    ],
    "client_assertion",
);

/// Certificates, and a hub with its kubeconfig, in a separate folder.
pub struct Ground {
    /// The hub.
    pub hub: EmbeddedHub,
    /// The CA of the serving certificate.
    pub ca_pem: String,
    folder: TempDir,
}

/// The ground with a running broker.
pub struct Stage {
    /// The hub and the files.
    pub ground: Ground,
    /// The ports that the broker listens on.
    pub ports: Ports,
    stop: oneshot::Sender<()>,
    server: JoinHandle<Result<(), ServeError>>,
}

impl Ground {
    /// Prepares a hub that contains only the canary.
    pub async fn prepare(options: HubOptions) -> Outcome<Self> {
        let folder = tempfile::Builder::new()
            .prefix("keyferry-bench-")
            .tempdir()?;
        let authority = Authority::new("keyferry benchmark CA")?;
        let serving = authority.server_identity(&["localhost", "127.0.0.1"])?;
        let hub = EmbeddedHub::start(options).await?;
        hub.add_service_account("keyferry-system", "keyferry-canary");
        let ground = Self {
            hub,
            ca_pem: authority.ca_pem().to_owned(),
            folder,
        };
        std::fs::write(ground.file("tls.crt"), &serving.certificate_pem)?;
        std::fs::write(ground.file("tls.key"), serving.key_pem.expose_secret())?;
        std::fs::write(
            ground.file("hub.kubeconfig"),
            ground.hub.kubeconfig().expose_secret(),
        )?;
        Ok(ground)
    }

    /// Adds a ServiceAccount, and returns its UID and the objects of one access with its target.
    pub fn add_one_access(&self) -> (String, String) {
        self.hub.add_namespace(TENANT, &[]);
        let uid = self.hub.add_service_account(TENANT, SELF);
        let access = policy::access(TENANT, "warm", "prod", SELF, &[]);
        let target = policy::target("prod", "1h", &[TENANT.to_owned()], &[SELF.to_owned()]);
        (uid, access + &target)
    }

    /// The path of a file in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Truncates the audit log. The log is opened for appending, so truncating it only keeps disk
    /// use small.
    pub fn empty_audit_log(&self) -> Outcome<()> {
        Ok(std::fs::OpenOptions::new()
            .write(true)
            .open(self.file("audit.jsonl"))?
            .set_len(0)?)
    }

    /// Writes `config.yaml` with a new ServerConfiguration and these objects.
    pub fn configure(&self, objects: &str) -> Outcome<Ports> {
        let ports = Ports::free()?;
        std::fs::write(
            self.file("config.yaml"),
            policy::server(self.folder.path(), ports) + objects,
        )?;
        Ok(ports)
    }

    /// The address and the credentials of the hub.
    pub fn hub_access(&self) -> HubAccess {
        HubAccess {
            kubeconfig: Some(self.file("hub.kubeconfig")),
            ..HubAccess::default()
        }
    }

    /// The form of an exchange, with a new token of the ServiceAccount.
    pub fn form(&self, namespace: &str, service_account: &str, access: &str) -> Outcome<String> {
        self.form_of(SUBJECT_TOKEN, namespace, service_account, access)
    }

    fn form_of(
        &self,
        presentation: Presentation,
        namespace: &str,
        service_account: &str,
        access: &str,
    ) -> Outcome<String> {
        let token = self
            .hub
            .token(namespace, service_account, CALLER_AUDIENCE, CALLER_LIFETIME)?;
        let (fixed, token_name) = presentation;
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(fixed)
            .append_pair("audience", &format!("{namespace}/{access}"))
            .append_pair(token_name, token.expose_secret());
        Ok(form.finish())
    }

    /// The requests of as many connections, each with its own token of the ServiceAccount, like
    /// those of a Deployment's Pods.
    pub fn exchange_requests(
        &self,
        count: usize,
        service_account: &str,
        access: &str,
    ) -> Outcome<Vec<String>> {
        self.requests_of(SUBJECT_TOKEN, count, service_account, access)
    }

    /// As [`Self::exchange_requests`], with the tokens as client assertions.
    pub fn assertion_requests(
        &self,
        count: usize,
        service_account: &str,
        access: &str,
    ) -> Outcome<Vec<String>> {
        self.requests_of(CLIENT_ASSERTION, count, service_account, access)
    }

    fn requests_of(
        &self,
        presentation: Presentation,
        count: usize,
        service_account: &str,
        access: &str,
    ) -> Outcome<Vec<String>> {
        let request = |_| {
            let form = self.form_of(presentation, TENANT, service_account, access)?;
            Ok(exchange_request(&form))
        };
        (0..count).map(request).collect()
    }

    /// A client that trusts the broker's certificate.
    pub fn client(&self) -> Outcome<reqwest::Client> {
        client(&self.ca_pem)
    }

    /// Waits until the broker answers.
    pub async fn until_ready(&self, ports: Ports) -> Outcome<()> {
        let (client, url) = (
            self.client()?,
            format!("http://127.0.0.1:{}/readyz", ports.health),
        );
        let ready = async {
            while !client
                .get(&url)
                .send()
                .await
                .is_ok_and(|answer| answer.status().is_success())
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(READY, ready)
            .await
            .map_err(|_| "the broker did not become ready".into())
    }
}

impl Stage {
    /// Starts the hub and the broker.
    pub async fn start() -> Outcome<Self> {
        let ground = Ground::prepare(HubOptions::default()).await?;
        ground.hub.add_namespace(TENANT, &[]);
        let mut accounts = vec![SELF.to_owned(), "worker".to_owned(), "crowd".to_owned()];
        let mut objects = policy::access(TENANT, "warm", "prod", SELF, &[]);
        objects += &policy::access(TENANT, "delegated", "prod", "worker", &[DELEGATE]);
        objects += &policy::access(TENANT, "stampede", "prod", "crowd", &[]);
        for cold in (0..COLD).map(|index| format!("slow-{index}")) {
            objects += &policy::access(TENANT, &cold, "prod", &cold, &[]);
            accounts.push(cold);
        }
        objects += &policy::target("prod", "1h", &[TENANT.to_owned()], &accounts);
        for account in accounts.iter().map(String::as_str).chain([DELEGATE]) {
            ground.hub.add_service_account(TENANT, account);
        }
        let delegate = Subject::User(format!("system:serviceaccount:{TENANT}:{DELEGATE}"));
        ground.hub.grant(
            Grant::new(delegate, "create", "serviceaccounts/token")
                .in_namespace(TENANT)
                .named("worker"),
        );
        let ports = ground.configure(&objects)?;
        let server = Server::bind(ServeOptions {
            config: ground.file("config.yaml"),
            hub: ground.hub_access(),
            state_dir: None,
            overrides: Overrides::default(),
            target_addresses: AddressRules::default(),
            pod: None,
            reload_signal: ReloadSignal::never(),
        })
        .await?;
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(server.run(async move {
            let _ = stopped.await;
        }));
        ground.until_ready(ports).await?;
        Ok(Self {
            ground,
            ports,
            stop,
            server,
        })
    }

    /// Stops the hub and the broker.
    pub async fn stop(self) -> Outcome<()> {
        let _ = self.stop.send(());
        self.server.await??;
        self.ground.hub.stop().await;
        Ok(())
    }

    /// The URL of the token API.
    pub fn token_url(&self) -> String {
        format!("https://127.0.0.1:{}/v1/token", self.ports.api)
    }

    /// Exchanges once; anything but 200 is an error.
    pub async fn exchange(&self, client: &reqwest::Client, form: String) -> Outcome<()> {
        exchange(client, &self.token_url(), form).await
    }
}

/// A complete exchange request over HTTP/1.1 with this form.
pub fn exchange_request(form: &str) -> String {
    format!(
        "POST /v1/token HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: \
         application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n{form}",
        form.len()
    )
}

/// Exchanges once; anything but 200 is an error.
pub async fn exchange(client: &reqwest::Client, url: &str, form: String) -> Outcome<()> {
    let request = client
        .post(url)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(form);
    let answer = request.send().await?;
    let status = answer.status();
    let body = answer.text().await?;
    if status.is_success() {
        Ok(())
    } else {
        Err(format!("an exchange was answered with {status}: {body}").into())
    }
}

/// A client that trusts this CA alone.
pub fn client(ca_pem: &str) -> Outcome<reqwest::Client> {
    Ok(client_builder(ca_pem)?.build()?)
}

/// The beginning of a client that trusts this CA alone.
pub fn client_builder(ca_pem: &str) -> Outcome<reqwest::ClientBuilder> {
    let certificate = reqwest::Certificate::from_pem(ca_pem.as_bytes())?;
    Ok(reqwest::Client::builder()
        .tls_certs_only([certificate])
        .no_proxy()
        .timeout(Duration::from_secs(30)))
}
