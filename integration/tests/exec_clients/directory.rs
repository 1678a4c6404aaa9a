//! The token directory in clients that are not Keyferry's, and the plain kubeconfig in those of
//! other languages.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::parts::Part;
use keyferry_integration::parts::installed::Client;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{ACCOUNT, TENANT, World, caller_token};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::stage::{AT_TARGET, Home, credential, run, succeeded};

const LINE: Duration = Duration::from_secs(30);

/// A client that keeps running and prints one message a line.
struct Running {
    _child: Child,
    orders: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    fn start(command: &mut Command) -> Result<Self, TestError> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (orders, out) = (
            child.stdin.take().ok_or("stdin")?,
            child.stdout.take().ok_or("stdout")?,
        );
        Ok(Self {
            _child: child,
            orders,
            lines: BufReader::new(out).lines(),
        })
    }

    async fn next(&mut self) -> Result<Value, TestError> {
        let line = tokio::time::timeout(LINE, self.lines.next_line()).await??;
        Ok(serde_json::from_str(&line.ok_or("the client ended")?)?)
    }

    async fn request_again(&mut self) -> Result<Value, TestError> {
        self.orders.write_all(b"\n").await?;
        self.next().await
    }

    /// The next line that is the wanted event or answer. A watch that ends is an error.
    async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Result<Value, TestError> {
        let limit = Instant::now() + Duration::from_secs(100);
        while Instant::now() < limit {
            let line = self.next().await?;
            if line["end"] == true {
                return Err("the watch ended".into());
            }
            if wanted(&line) {
                return Ok(line);
            }
        }
        Err("what was waited for did not happen within 100 s".into())
    }
}

pub(crate) async fn a_plain_kubeconfig_in_python_and_javascript(world: Arc<World>) -> TestResult {
    let home = Home::new(&world).await?;
    let text = succeeded(run(&mut home.keyferry(&world, &["kubeconfig", "tenant-a/a"])).await?)?;
    let path = home.path().join("config");
    std::fs::write(&path, text)?;
    let path = path.display().to_string();
    for (client, arguments) in [
        (Client::PythonKubernetes, vec![path.as_str()]),
        (
            Client::JavaScriptKubernetes,
            vec!["kubeconfig", path.as_str()],
        ),
    ] {
        let user: Value = serde_json::from_str(&succeeded(
            run(&mut home.client(&world, client, &arguments).await?).await?,
        )?)?;
        assert_eq!(user["username"], AT_TARGET, "{client:?}");
    }
    Ok(())
}

async fn write(home: &Home, world: &World, directory: &Path) -> TestResult {
    let directory = directory.display().to_string();
    succeeded(
        run(&mut home.keyferry(
            world,
            &["agent", "tenant-a/a", "--once", "--dir", &directory],
        ))
        .await?,
    )?;
    Ok(())
}

pub(crate) async fn a_rotation_of_the_directory_disturbs_nobody(world: Arc<World>) -> TestResult {
    let home = Home::new(&world).await?;
    let directory = home.path().join("tokens");
    write(&home, &world, &directory).await?;
    let kubeconfig = directory.join("kubeconfig");
    let (folder, file) = (
        directory.display().to_string(),
        kubeconfig.display().to_string(),
    );
    let target = world.target_a();
    let reader = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": "namespace-watcher" },
        "rules": [{ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"] }],
    });
    target
        .admin()
        .apply(
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/namespace-watcher",
            &reader,
        )
        .await?;
    target
        .bind_user_to_cluster_role(AT_TARGET, "namespace-watcher")
        .await?;
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        let output = home
            .kubectl(&world, &kubeconfig, &["get", "namespaces"])
            .await?;
        if output.status.success() {
            break;
        }
        assert!(
            Instant::now() < limit,
            "the binding does not count: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }

    let client_go = world.fleet().parts().locate(Part::ClientGo).await?;
    let mut watch = Running::start(home.command(&client_go).arg("watch").arg(&kubeconfig))?;
    let mut python = Running::start(
        &mut home
            .client(&world, Client::PythonKubernetes, &[&file])
            .await?,
    )?;
    let mut javascript = Running::start(
        &mut home
            .client(
                &world,
                Client::JavaScriptKubernetes,
                &["directory", &folder],
            )
            .await?,
    )?;
    let first = credential(&watch.until(|line| line["user"].is_object()).await?["user"]);
    let (by_python, by_javascript) = (python.next().await?, javascript.next().await?);
    for user in [&by_python, &by_javascript] {
        assert_eq!(
            (user["username"].as_str(), credential(user)),
            (Some(AT_TARGET), first.clone())
        );
    }
    assert!(first.starts_with("JTI="), "{first}");

    // Another lifetime requires another token.
    world
        .broker()
        .reconfigure(|targets, _| {
            for target in targets
                .iter_mut()
                .filter(|target| target.name == "target-a")
            {
                target.further = "  tokenLifetime:\n    default: 30m\n".to_owned();
            }
        })
        .await?;
    // The target of the new configuration becomes ready a moment after it is known.
    let caller = caller_token(world.hub(), TENANT, ACCOUNT).await?;
    world
        .broker()
        .exchange_in_time(&caller, "tenant-a/a")
        .await?;
    write(&home, &world, &directory).await?;
    let shown = succeeded(
        home.kubectl(&world, &kubeconfig, &["auth", "whoami", "-o", "json"])
            .await?,
    )?;
    let second = credential(&serde_json::from_str::<Value>(&shown)?["status"]["userInfo"]);
    assert!(second != first && second.starts_with("JTI="), "{second}");
    // The watch is still the one that began with the first token.
    target.create_namespace("after-the-rotation").await?;
    watch
        .until(|line| line["name"] == "after-the-rotation")
        .await?;
    assert_eq!(
        credential(&python.request_again().await?),
        second,
        "loaded again"
    );
    // client-go and the JavaScript provider re-read the file within about a minute by themselves.
    watch
        .until(|line| credential(&line["user"]) == second)
        .await?;
    let limit = Instant::now() + Duration::from_secs(30);
    while credential(&javascript.request_again().await?) != second {
        assert!(Instant::now() < limit, "the file is not read again");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    target.create_namespace("with-the-second-token").await?;
    watch
        .until(|line| line["name"] == "with-the-second-token")
        .await?;

    // As docs/guides/tenant.md says, this client does not support tokenFile in a kubeconfig, and sends no
    // token.
    let output = run(&mut home
        .client(&world, Client::JavaScriptKubernetes, &["kubeconfig", &file])
        .await?)
    .await?;
    assert!(
        !output.status.success(),
        "it does by now: {}",
        String::from_utf8_lossy(&output.stdout)
    );
    Ok(())
}
