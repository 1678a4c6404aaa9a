//! SPIRE's oidc-discovery-provider with a file as its source, so that it needs no SPIRE server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use keyferry_integration::parts::{Part, PartError, Parts};
use serde_json::{Value, json};

use crate::harness::Outcome;
use crate::harness::server_process::ServerProcess;
use crate::harness::stage::Ground;

/// Its name and version, as `integration/parts/spire` pins it.
pub const NAME: &str = "SPIRE oidc-discovery-provider 1.13.0";

/// The path of the binary, which is built once if Go is installed.
pub async fn locate() -> Result<PathBuf, PartError> {
    Parts::from_environment()
        .locate(Part::SpireDiscoveryProvider)
        .await
}

/// Starts it with the keys of this set, as a SPIFFE bundle.
pub fn start(program: &Path, ground: &Ground, keys: &[u8]) -> Outcome<(ServerProcess, SocketAddr)> {
    let mut bundle: Value = serde_json::from_slice(keys)?;
    for key in bundle
        .get_mut("keys")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(members) = key.as_object_mut() {
            members.insert("use".to_owned(), json!("jwt-svid"));
        }
    }
    std::fs::write(ground.file("bundle.json"), bundle.to_string())?;
    let address = std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
    let file = |name: &str| json!(ground.file(name)).to_string();
    let text = format!(
        "log_level = \"error\"\ndomains = [\"localhost\"]\nset_key_use = true\n\
         serving_cert_file {{\n  cert_file_path = {}\n  key_file_path = {}\n  addr = \"{address}\"\n}}\n\
         file {{\n  path = {}\n}}\n",
        file("tls.crt"),
        file("tls.key"),
        file("bundle.json"),
    );
    std::fs::write(ground.file("spire.conf"), text)?;
    let log = std::fs::File::create(ground.file("spire.log"))?;
    let mut command = Command::new(program);
    command
        .arg("-config")
        .arg(ground.file("spire.conf"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    Ok((ServerProcess::spawn(&mut command)?, address))
}
