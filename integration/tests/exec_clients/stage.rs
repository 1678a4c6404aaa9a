//! A user's home folder, and the programs that run with it.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use keyferry_integration::parts::Part;
use keyferry_integration::parts::installed::Client;
use keyferry_integration::runner::TestError;
use keyferry_integration::user_home::{printed_client_file, program_at_home, write_client_file};
use keyferry_integration::world::{ACCOUNT, TENANT, World, caller_token};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

/// The tenant's ServiceAccount by the name that the target gives it.
pub(crate) const AT_TARGET: &str = "hub:system:serviceaccount:tenant-a:reconciler";
const LIMIT: Duration = Duration::from_secs(60);

/// The home folder of a user with a caller token.
pub(crate) struct Home {
    folder: TempDir,
    flags: Vec<String>,
}

impl Home {
    pub(crate) async fn new(world: &World) -> Result<Self, TestError> {
        let folder = tempfile::tempdir()?;
        let caller = folder.path().join("caller");
        std::fs::write(&caller, caller_token(world.hub(), TENANT, ACCOUNT).await?)?;
        let (url, ca) = (
            world.broker().api_url(),
            world.broker().ca_path().display().to_string(),
        );
        let caller = caller.display().to_string();
        let flags = [
            "--server",
            &url,
            "--certificate-authority",
            &ca,
            "--token-file",
            &caller,
        ]
        .map(str::to_owned)
        .to_vec();
        Ok(Self { folder, flags })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A program with this home folder and only PATH from the environment.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("HOME", self.path())
            .env("XDG_CACHE_HOME", self.path().join("cache"))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command
    }

    /// `keyferry` with these arguments, followed by the flags of the server.
    pub(crate) fn keyferry(&self, world: &World, arguments: &[&str]) -> Command {
        let mut command = self.command(world.binary().path());
        command.args(arguments).args(&self.flags);
        command
    }

    /// `keyferry` as a client runs it for this user: it finds the user's own file here.
    pub(crate) fn plugin(&self, world: &World) -> Result<PathBuf, TestError> {
        Ok(program_at_home(world.binary().path(), self.path())?)
    }

    /// A kubeconfig whose user is the exec plugin, and the user's own file as the command printed
    /// it.
    pub(crate) async fn exec_kubeconfig(
        &self,
        world: &World,
        access: &str,
    ) -> Result<(PathBuf, String), TestError> {
        let program = self.plugin(world)?;
        let mut command = self.command(&program);
        command
            .args(["kubeconfig", access, "--exec", "--exec-command"])
            .arg(&program)
            .args(&self.flags);
        let output = run(&mut command).await?;
        if let Some(file) = printed_client_file(&String::from_utf8_lossy(&output.stderr)) {
            write_client_file(self.path(), &file)?;
        }
        let text = succeeded(output)?;
        let path = self
            .path()
            .join(format!("{}.kubeconfig", access.replace('/', "-")));
        std::fs::write(&path, &text)?;
        Ok((path, text))
    }

    pub(crate) async fn kubectl(
        &self,
        world: &World,
        kubeconfig: &Path,
        arguments: &[&str],
    ) -> Result<Output, TestError> {
        let kubectl = world.fleet().parts().locate(Part::Kubectl).await?;
        run(self
            .command(&kubectl)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(arguments))
        .await
    }

    /// The client in another language.
    pub(crate) async fn client(
        &self,
        world: &World,
        client: Client,
        arguments: &[&str],
    ) -> Result<Command, TestError> {
        let installed = world.fleet().parts().install(client).await?;
        let mut command = self.command(&installed.program);
        command.args(&installed.arguments).args(arguments);
        Ok(command)
    }
}

pub(crate) async fn run(command: &mut Command) -> Result<Output, TestError> {
    Ok(tokio::time::timeout(LIMIT, command.output()).await??)
}

pub(crate) fn succeeded(output: Output) -> Result<String, TestError> {
    if !output.status.success() {
        return Err(format!(
            "{}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )
        .into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The `jti` by which a target distinguishes tokens.
pub(crate) fn credential(user: &Value) -> String {
    user["extra"]["authentication.kubernetes.io/credential-id"][0]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}
