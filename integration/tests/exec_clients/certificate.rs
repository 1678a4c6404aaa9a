//! `keyferry exec`, `keyferry agent` and the exec plugin with a client certificate, whose files are
//! replaced as a workload's are.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use jiff::Timestamp;
use keyferry_integration::parts::Part;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::transcript::Transcript;
use keyferry_integration::user_home::{printed_client_file, program_at_home, write_client_file};
use keyferry_integration::world::{
    ACCOUNT, AUDIENCE_A, Access, Broker, BrokerSpec, TENANT, Target, World, put_secret,
};
use keyferry_keys::testing::client_certificates::{TestCertificate, valid};
use tokio::process::Command;

use super::stage::AT_TARGET;
use crate::caller_certificates::caller::{URI, authority, grant, rule, uid};

const WHOAMI: [&str; 4] = [
    "auth",
    "whoami",
    "-o",
    "jsonpath={.status.userInfo.username}",
];
const SOON: Duration = Duration::from_secs(60);

/// The files of a caller, and the flags that name them.
struct Caller {
    folder: PathBuf,
    flags: Vec<String>,
}

impl Caller {
    fn new(world: &World, broker: &Broker) -> Result<Self, TestError> {
        let folder = world.fleet().folder().join("commands-caller");
        std::fs::create_dir_all(&folder)?;
        let file = |name: &str| folder.join(name).display().to_string();
        let flags = [
            "--server".to_owned(),
            broker.api_url(),
            "--certificate-authority".to_owned(),
            broker.ca_path().display().to_string(),
            "--client-certificate".to_owned(),
            file("tls.crt"),
            "--client-key".to_owned(),
            file("tls.key"),
        ];
        Ok(Self {
            folder,
            flags: flags.to_vec(),
        })
    }

    /// Replaces both files, the key first.
    fn writes(&self, certificate: &TestCertificate) -> TestResult {
        let pem = certificate.to_pem();
        let key = pem.find("-----BEGIN PRIVATE KEY").ok_or("no key")?;
        let (chain, key) = pem.split_at(key);
        for (name, text) in [("tls.key", key), ("tls.crt", chain)] {
            let fresh = self.folder.join("fresh");
            std::fs::write(&fresh, text)?;
            std::fs::rename(&fresh, self.folder.join(name))?;
        }
        Ok(())
    }

    /// A command with no token, no kubeconfig and no cache of another user.
    fn keyferry(&self, world: &World, arguments: &[&str]) -> Command {
        let mut command = Command::new(world.binary().path());
        command
            .env_clear()
            .env("HOME", &self.folder)
            .env("XDG_CACHE_HOME", self.folder.join("cache"))
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .args(arguments)
            .args(&self.flags)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }
}

async fn output(command: &mut Command) -> Result<(bool, String, String), TestError> {
    let output = tokio::time::timeout(SOON, command.output()).await??;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((
        output.status.success(),
        text(&output.stdout),
        text(&output.stderr),
    ))
}

pub(crate) async fn commands_read_a_renewed_certificate(world: Arc<World>) -> TestResult {
    let (hub, secret) = (world.hub(), "commands-callers-ca");
    let callers = authority("callers of commands");
    put_secret(hub, secret, &[("ca.crt", callers.pem())]).await?;
    grant(&world, secret).await?;
    let account = [TENANT, ACCOUNT];
    let uid = uid(hub, account).await?;
    let spec = BrokerSpec::of_hub("commands", hub)
        .with_api_lines(&rule(secret, account, &uid, ""))
        .with_target(
            Target::of(world.target_a(), AUDIENCE_A)
                .named("a")
                .allowing(TENANT, &[ACCOUNT]),
        )
        .with_access(Access::of(TENANT, "a", "a", ACCOUNT));
    let broker = world.start_broker(hub, spec).await?;
    let caller = Caller::new(&world, &broker)?;
    let now = Timestamp::now();
    let expired = callers.issue(URI, |params| valid(params, now, -7200, -3600));
    caller.writes(&expired)?;

    let kubectl = world.fleet().parts().locate(Part::Kubectl).await?;
    let kubectl = kubectl.display().to_string();
    let exec = |further: &[&str]| {
        let mut arguments = vec!["exec", "tenant-a/a"];
        arguments.extend_from_slice(further);
        let mut command = caller.keyferry(&world, &arguments);
        command.arg("--").arg(&kubectl).args(WHOAMI);
        command
    };
    let refused = tokio::time::timeout(SOON, exec(&[]).output()).await??;
    assert!(!refused.status.success());
    let refused = Transcript::new("keyferry", &["exec", "tenant-a/a"], &refused)
        .with_name(&broker.api_url(), "https://KEYFERRY")
        .without_random_words();
    assert_snapshot!("an-expired-certificate", refused);

    // The agent goes on by itself once its files are renewed.
    let tokens = caller.folder.join("tokens");
    let place = tokens.display().to_string();
    let mut agent = caller
        .keyferry(&world, &["agent", "tenant-a/a", "--dir", &place])
        .stderr(Stdio::piped())
        .spawn()?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(agent.try_wait()?.is_none() && !tokens.join("token").exists());
    caller.writes(&callers.issue(URI, |_| {}))?;
    let limit = Instant::now() + SOON;
    while !tokens.join("token").exists() {
        assert!(
            Instant::now() < limit && agent.try_wait()?.is_none(),
            "the agent does not read the renewed certificate"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    agent.start_kill()?;
    let said = agent.wait_with_output().await?;
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("the previous token stays"), "{said}");
    is_at_target(&kubectl, &tokens.join("kubeconfig")).await?;

    let (good, printed, said) = output(&mut exec(&[])).await?;
    assert!(good, "{said}");
    assert_eq!(printed, AT_TARGET);

    // The exec plugin of a user whose own file names the files; a renewal needs no new kubeconfig.
    let program = program_at_home(world.binary().path(), &caller.folder)?;
    let program = program.display().to_string();
    let arguments = [
        "kubeconfig",
        "tenant-a/a",
        "--exec",
        "--exec-command",
        &program,
    ];
    let (good, kubeconfig, said) = output(&mut caller.keyferry(&world, &arguments)).await?;
    let own = printed_client_file(&said).ok_or_else(|| said.clone())?;
    assert!(good && own.contains("clientCertificate: "), "{said}");
    write_client_file(&caller.folder, &own)?;
    let file = caller.folder.join("exec.kubeconfig");
    std::fs::write(&file, kubeconfig)?;
    is_at_target(&kubectl, &file).await?;
    caller.writes(&callers.issue(URI, |_| {}))?;
    is_at_target(&kubectl, &file).await?;
    // No cached token outlives the certificate that it was issued for.
    caller.writes(&expired)?;
    let ran = whoami(&kubectl, &file).await?;
    assert!(!ran.0, "{}", ran.1);

    // Two proofs are refused before either is sent.
    let arguments = ["token", "tenant-a/a", "--token-env", "ID_TOKEN"];
    let mut ci = caller.keyferry(&world, &arguments);
    let refused = tokio::time::timeout(SOON, ci.output()).await??;
    assert!(!refused.status.success());
    let refused = Transcript::new("keyferry", &arguments, &refused).without_random_words();
    assert_snapshot!("two-proofs", refused);
    Ok(())
}

async fn is_at_target(kubectl: &str, kubeconfig: &Path) -> TestResult {
    let (good, printed, said) = whoami(kubectl, kubeconfig).await?;
    assert!(good, "{said}");
    assert_eq!(printed, AT_TARGET);
    Ok(())
}

async fn whoami(kubectl: &str, kubeconfig: &Path) -> Result<(bool, String, String), TestError> {
    let home = kubeconfig.parent().ok_or("no folder")?;
    let mut command = Command::new(kubectl);
    command
        .env_clear()
        .env("HOME", home)
        .env("XDG_CACHE_HOME", home.join("cache"))
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(WHOAMI)
        .kill_on_drop(true);
    output(&mut command).await
}
