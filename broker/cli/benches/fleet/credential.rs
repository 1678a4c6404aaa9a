//! Compares the exec plugin as kubectl runs it, with a cached token, and an exchange by `keyferry
//! token` with `kubectl create token`. Each run is a whole process.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_integration::parts::Part;
use keyferry_integration::user_home::{program_at_home, write_client_file};
use keyferry_integration::world::caller_token;
use serde_json::json;

use super::hub::Hub;
use super::plan::{self, ACCOUNT, Access};
use crate::harness::Outcome;
use crate::harness::process::{self, now};
use crate::harness::spread::Spread;

/// The number of timed processes of each program, which alternate.
const RUNS: usize = 100;
/// The number of processes whose memory is measured. They are not timed, because reading their
/// memory takes time.
const WEIGHED: usize = 10;

/// The figures of the programs.
pub struct Credential {
    /// `keyferry credential`, with its token in its own cache.
    pub plugin: Program,
    /// `keyferry token`, which asks the server each time.
    pub token: Program,
    /// `kubectl create token`.
    pub kubectl: Program,
}

/// Measurements of whole processes of one program.
pub struct Program {
    /// Milliseconds from the start of a process to its end.
    pub took: Option<Spread>,
    /// The highest resident memory of any process, in KiB.
    pub resident: Option<u64>,
}

/// Runs the programs repeatedly.
pub async fn measure(hub: &Hub, access: &Access) -> Outcome<Credential> {
    let folder = tempfile::tempdir()?;
    let caller = folder.path().join("caller");
    std::fs::write(
        &caller,
        caller_token(&hub.plane, &access.namespace, ACCOUNT).await?,
    )?;
    let kubectl = hub.parts().locate(Part::Kubectl).await?;
    let audience = format!("https://{}.keyferry.test", plan::target(access.target()));
    let own = format!(
        "apiVersion: config.keyferry.dev/v1alpha1\nkind: ClientConfiguration\nserver: {}\n\
         certificateAuthority: {}\ntokenFile: {}\n",
        hub.broker.api_url(),
        hub.broker.ca_path().display(),
        caller.display(),
    );
    write_client_file(folder.path(), &own)?;
    // Its time includes that of `unshare` and `mount`, which give it this home folder.
    let program = program_at_home(hub.binary(), folder.path())?;
    let plugin = || plugin(hub, access, folder.path(), &program);
    let create = || create_token(hub, access, &kubectl, &audience, folder.path());
    let exchange = || exchange_command(hub, access, &caller, folder.path());
    for mut first in [plugin(), exchange(), create()] {
        let output = first.stderr(Stdio::piped()).output()?;
        if !output.status.success() {
            return Err(format!(
                "{:?}: {}",
                first.get_program(),
                String::from_utf8_lossy(&output.stderr)
            )
            .into());
        }
    }
    let (mut plugins, mut exchanges, mut creates) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        plugins.push(time(plugin())?);
        exchanges.push(time(exchange())?);
        creates.push(time(create())?);
    }
    Ok(Credential {
        plugin: Program {
            took: Spread::of(plugins),
            resident: weigh(plugin)?,
        },
        token: Program {
            took: Spread::of(exchanges),
            resident: weigh(exchange)?,
        },
        kubectl: Program {
            took: Spread::of(creates),
            resident: weigh(create)?,
        },
    })
}

fn exchange_command(hub: &Hub, access: &Access, caller: &Path, home: &Path) -> Command {
    let mut command = Command::new(hub.binary());
    command
        .args(["token", &access.id(), "--server", &hub.broker.api_url()])
        .arg("--certificate-authority")
        .arg(hub.broker.ca_path())
        .arg("--token-file")
        .arg(caller);
    command.env_clear().env("HOME", home);
    quiet(command)
}

fn plugin(hub: &Hub, access: &Access, home: &Path, program: &Path) -> Command {
    let cluster = json!({ "server": hub.plane.url(), "certificate-authority-data": STANDARD.encode(hub.plane.ca_pem()) });
    let info = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "spec": { "interactive": false, "cluster": cluster },
    });
    let mut command = Command::new(program);
    command.args(["credential", &access.id()]);
    command
        .env_clear()
        .env("HOME", home)
        .env("KUBERNETES_EXEC_INFO", info.to_string());
    quiet(command)
}

fn create_token(
    hub: &Hub,
    access: &Access,
    kubectl: &Path,
    audience: &str,
    home: &Path,
) -> Command {
    let mut command = Command::new(kubectl);
    command
        .arg("--kubeconfig")
        .arg(hub.plane.admin_kubeconfig());
    command.args([
        "create",
        "token",
        ACCOUNT,
        "-n",
        &access.namespace,
        "--audience",
        audience,
    ]);
    command.env_clear().env("HOME", home);
    quiet(command)
}

fn quiet(mut command: Command) -> Command {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn time(mut command: Command) -> Outcome<f64> {
    let begin = now();
    let status = command.status()?;
    let took = now() - begin;
    if status.success() {
        Ok(took.as_secs_f64() * 1000.0)
    } else {
        Err(format!("{:?} failed", command.get_program()).into())
    }
}

/// The system discards a process's peak when the process ends, so it is read repeatedly until then.
fn weigh(command: impl Fn() -> Command) -> Outcome<Option<u64>> {
    let mut most = None;
    for _ in 0..WEIGHED {
        let mut child = command().spawn()?;
        while child.try_wait()?.is_none() {
            most = most.max(process::peak_kib(child.id()));
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    Ok(most)
}
