//! A SPIRE server and its discovery provider on loopback: an issuer of JWT-SVIDs as a SPIFFE shop runs it.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use crate::http_client::trusting;
use crate::parts::{Part, Parts};
use crate::pki::TestCa;
use crate::ports::free_port;
use crate::process::{Process, ProcessSpec};
use crate::readiness::wait_until_ready;
use crate::runner::TestError;

const READY_WITHIN: Duration = Duration::from_secs(60);
const TRUST_DOMAIN: &str = "keyferry.test";

/// A running pair. Dropping it ends both.
#[derive(Debug)]
pub struct Spire {
    program: PathBuf,
    socket: PathBuf,
    url: String,
    _server: Process,
    _provider: Process,
}

impl Spire {
    /// Starts a server of the trust domain `keyferry.test`, and the provider of its documents with a
    /// certificate of this CA. Their files are in `<folder>/spire`.
    ///
    /// # Errors
    /// A part is missing, or one of the two does not become ready.
    pub async fn start(parts: &Parts, folder: &Path, ca: &TestCa) -> Result<Self, TestError> {
        let folder = folder.join("spire");
        std::fs::create_dir_all(&folder)?;
        let (program, provider) = tokio::try_join!(
            parts.locate(Part::SpireServer),
            parts.locate(Part::SpireDiscoveryProvider),
        )?;
        let address = format!("{}:{}", Ipv4Addr::LOCALHOST, free_port()?);
        let url = format!("https://{address}");
        let socket = folder.join("api.sock");
        let text = server_file(&folder, &socket, &url, free_port()?);
        let mut server = spawn("spire-server", program.clone(), "run", &folder, &text).await?;
        until_listening(&mut server, &socket).await?;
        let text = provider_file(&socket, &address, ca)?;
        let mut provider = spawn("provider", provider, "", &folder, &text).await?;
        let http = trusting(ca.cert_pem())?;
        let keys = format!("{url}/keys");
        wait_until_ready("provider", &mut provider, &http, &keys, READY_WITHIN).await?;
        Ok(Self {
            program,
            socket,
            url,
            _server: server,
            _provider: provider,
        })
    }

    /// The `iss` of its JWT-SVIDs, below which its discovery document is.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Mints a JWT-SVID of a quarter of an hour for `spiffe://keyferry.test<path>`.
    ///
    /// # Errors
    /// The server refuses it.
    pub async fn mint(&self, path: &str, audience: &str) -> Result<String, TestError> {
        let id = format!("spiffe://{TRUST_DOMAIN}{path}");
        let words = [
            "jwt",
            "mint",
            "-spiffeID",
            &id,
            "-audience",
            audience,
            "-ttl",
            "15m",
        ];
        Ok(self.run(&words).await?.trim().to_owned())
    }

    /// Signs with a new key from now on, and publishes the one before too. Returns its ID.
    ///
    /// # Errors
    /// The server refuses it.
    pub async fn rotate(&self) -> Result<String, TestError> {
        let prepared = self.authority(&["prepare"]).await?;
        let new = authority_id(&prepared, "prepared_authority")?;
        let activated = self.authority(&["activate", "-authorityID", &new]).await?;
        authority_id(&activated, "activated_authority")?;
        let shown = self.authority(&["show"]).await?;
        authority_id(&shown, "old")
    }

    /// Withdraws a key that no longer signs.
    ///
    /// # Errors
    /// The server refuses it.
    pub async fn revoke(&self, id: &str) -> Result<(), TestError> {
        for step in ["taint", "revoke"] {
            self.authority(&[step, "-authorityID", id]).await?;
        }
        Ok(())
    }

    async fn authority(&self, words: &[&str]) -> Result<Value, TestError> {
        let mut all = vec!["localauthority", "jwt"];
        all.extend(words);
        all.extend(["-output", "json"]);
        Ok(serde_json::from_str(&self.run(&all).await?)?)
    }

    async fn run(&self, words: &[&str]) -> Result<String, TestError> {
        let mut command = Command::new(&self.program);
        command.args(words).arg("-socketPath").arg(&self.socket);
        let output = command.kill_on_drop(true).output().await?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("spire-server {}: {said}", words.join(" ")).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}

fn authority_id(answer: &Value, member: &str) -> Result<String, TestError> {
    let id = answer[member]["authority_id"].as_str();
    let id = id.ok_or_else(|| format!("no {member} in {answer}"))?;
    Ok(id.to_owned())
}

/// Without agents, no workload is attested: each process that may use its socket mints.
fn server_file(folder: &Path, socket: &Path, url: &str, port: u16) -> String {
    let quoted = |path: PathBuf| Value::from(path.display().to_string()).to_string();
    format!(
        "server {{\n  bind_address = \"127.0.0.1\"\n  bind_port = \"{port}\"\n  socket_path = {}\n  \
         trust_domain = \"{TRUST_DOMAIN}\"\n  data_dir = {}\n  log_level = \"WARN\"\n  jwt_issuer = \"{url}\"\n}}\n\
         plugins {{\n  DataStore \"sql\" {{ plugin_data {{ database_type = \"sqlite3\" connection_string = {} }} }}\n  \
         KeyManager \"memory\" {{ plugin_data {{}} }}\n}}\n",
        quoted(socket.to_owned()),
        quoted(folder.join("data")),
        quoted(folder.join("data.sqlite3")),
    )
}

fn provider_file(socket: &Path, address: &str, ca: &TestCa) -> Result<String, TestError> {
    let certificate = ca.serving("spire", &[])?;
    let quoted = |path: &Path| Value::from(path.display().to_string()).to_string();
    let socket = Value::from(format!("unix://{}", socket.display()));
    Ok(format!(
        "log_level = \"WARN\"\ndomains = [\"127.0.0.1\"]\njwt_issuer = \"https://{address}\"\n\
         jwks_uri = \"https://{address}/keys\"\nset_key_use = true\n\
         serving_cert_file {{\n  cert_file_path = {}\n  key_file_path = {}\n  addr = \"{address}\"\n}}\n\
         server_api {{\n  address = {socket}\n  poll_interval = \"1s\"\n}}\n",
        quoted(&certificate.cert_path),
        quoted(&certificate.key_path),
    ))
}

async fn spawn(
    name: &str,
    program: PathBuf,
    word: &str,
    folder: &Path,
    text: &str,
) -> Result<Process, TestError> {
    let file = folder.join(format!("{name}.conf"));
    std::fs::write(&file, text)?;
    let word = (!word.is_empty()).then(|| OsString::from(word));
    let file = ["-config".into(), file.into()];
    let spec = ProcessSpec {
        name: name.to_owned(),
        program,
        args: word.into_iter().chain(file).collect(),
        env: Vec::new(),
        log: folder.join(format!("{name}.log")),
    };
    Ok(Process::spawn(&spec).await?)
}

async fn until_listening(server: &mut Process, socket: &Path) -> Result<(), TestError> {
    let limit = tokio::time::Instant::now() + READY_WITHIN;
    while tokio::net::UnixStream::connect(socket).await.is_err() {
        if tokio::time::Instant::now() > limit || server.exit_status().is_some() {
            return Err(format!("spire-server does not listen: {}", server.logs_tail(20)).into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
