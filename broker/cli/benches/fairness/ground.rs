//! The server with its usual limits, a simulated hub, and the two tenants.

use std::net::SocketAddr;
use std::time::Duration;

use keyferry_core::inputs::credential::{InputToken, SHA256_KEY};
use keyferry_testing::HubOptions;
use secrecy::ExposeSecret;

use crate::harness::Outcome;
use crate::harness::policy::{self, Ports};
use crate::harness::server_process::ServerProcess;
use crate::harness::stage::{Ground, SELF, TENANT, exchange_request};
use crate::harness::tls_connection::{self, TlsConnection};

/// The tenant that floods.
pub const FLOODER: &str = "tenant-b";
/// How long the server may take to read the credential for inputs.
const CREDENTIAL_READ: Duration = Duration::from_secs(15);

/// A running server with its hub.
pub struct Stage {
    /// The hub and the files.
    pub ground: Ground,
    /// The server.
    pub server: ServerProcess,
    ports: Ports,
    input_token: InputToken,
}

impl Stage {
    /// Starts the hub and the server.
    pub async fn start() -> Outcome<Self> {
        let ground = Ground::prepare(HubOptions::default()).await?;
        let tenants = [TENANT, FLOODER].map(str::to_owned);
        let mut objects = policy::target("prod", "1h", &tenants, &[SELF.to_owned()]);
        for tenant in &tenants {
            ground.hub.add_namespace(tenant, &[]);
            ground.hub.add_service_account(tenant, SELF);
            objects += &policy::access(tenant, "warm", "prod", SELF, &[]);
        }
        let input_token = InputToken::of(&[7; 32]);
        let hash = input_token.sha256();
        ground.hub.add_secret(
            "keyferry-system",
            "flooder",
            &[(SHA256_KEY, hash.as_bytes())],
        );
        let ports = ground.configure(&objects)?;
        restore_limits(&ground)?;
        let server = ServerProcess::start_keyferry(&ground, ports).await?;
        let stage = Self {
            ground,
            server,
            ports,
            input_token,
        };
        let reading = async {
            while stage.status_of(&stage.inputs_request()).await? != 200 {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            Outcome::Ok(())
        };
        tokio::time::timeout(CREDENTIAL_READ, reading)
            .await
            .map_err(|_| "the credential for inputs is not accepted")??;
        Ok(stage)
    }

    /// The address of the token API.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports.api))
    }

    /// An exchange of this tenant's ServiceAccount, with a new token.
    pub fn exchange(&self, tenant: &str) -> Outcome<String> {
        Ok(exchange_request(&self.ground.form(tenant, SELF, "warm")?))
    }

    /// A request for the kubeconfig of the flooding tenant's access.
    pub fn kubeconfig_request(&self, token: &str) -> String {
        get_request(
            &format!("/v1/namespaces/{FLOODER}/accesses/warm/kubeconfig"),
            token,
        )
    }

    /// A request for the inputs of the flooding tenant's namespace.
    pub fn inputs_request(&self) -> String {
        get_request(
            &format!("/api/v2/flux/namespaces/{FLOODER}/targets"),
            self.input_token.secret().expose_secret(),
        )
    }

    /// The status of the answer to one request on a new connection.
    pub async fn status_of(&self, request: &str) -> Outcome<u16> {
        let config = tls_connection::trusting(&self.ground.ca_pem)?;
        let mut connection = TlsConnection::open(self.address(), config).await?;
        connection.ask_status(request.as_bytes()).await
    }
}

/// Takes the lines without limits out of the configuration of the benchmarks, so that the limits are
/// those of a server that sets none, and adds a credential for inputs.
fn restore_limits(ground: &Ground) -> Outcome<()> {
    let inputs = format!(
        "inputs:\n  enabled: true\n  credentials:\n    - {{name: flooder, scope: Read, namespace: \
         {FLOODER}, secretRef: {{name: flooder}}}}\nhealth:\n"
    );
    let file = ground.file("config.yaml");
    let text = std::fs::read_to_string(&file)?;
    let limited: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("limits:"))
        .collect();
    let text = limited.join("\n").replacen("health:\n", &inputs, 1);
    Ok(std::fs::write(&file, text + "\n")?)
}

fn get_request(path: &str, token: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n\r\n")
}
