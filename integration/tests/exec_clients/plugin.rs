//! Tests the exec plugin.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_integration::parts::Part;
use keyferry_integration::runner::TestResult;
use keyferry_integration::world::{ACCOUNT, Access, TENANT, World, caller_token, exchange_form};
use serde_json::Value;

use super::stage::{AT_TARGET, Home, run, succeeded};

const WHOAMI: [&str; 4] = [
    "auth",
    "whoami",
    "-o",
    "jsonpath={.status.userInfo.username}",
];

pub(crate) async fn kubectl_and_client_go_run_the_plugin(world: Arc<World>) -> TestResult {
    let home = Home::new(&world).await?;
    let (path, text) = home.exec_kubeconfig(&world, "tenant-a/a").await?;
    assert!(!text.contains("eyJ"), "it holds no token");
    assert!(
        !text.contains(&world.broker().api_url()) && !text.contains("--"),
        "it names no server: {text}"
    );
    assert_eq!(
        succeeded(home.kubectl(&world, &path, &WHOAMI).await?)?,
        AT_TARGET
    );
    assert_eq!(
        succeeded(home.kubectl(&world, &path, &WHOAMI).await?)?,
        AT_TARGET,
        "and from the cache"
    );
    let client_go = world.fleet().parts().locate(Part::ClientGo).await?;
    let user: Value =
        serde_json::from_str(&succeeded(run(home.command(&client_go).arg(&path)).await?)?)?;
    assert_eq!(user["username"], AT_TARGET);
    // The API version that clients before 1.24 and Argo CD use.
    let beta = path.with_extension("beta");
    std::fs::write(
        &beta,
        text.replace(
            "client.authentication.k8s.io/v1",
            "client.authentication.k8s.io/v1beta1",
        ),
    )?;
    assert_eq!(
        succeeded(home.kubectl(&world, &beta, &WHOAMI).await?)?,
        AT_TARGET
    );
    // Without the user's own file, a stanza's arguments and variables name no server.
    let own = home.path().join(".config/keyferry/client.yaml");
    let file = std::fs::read_to_string(&own)?;
    std::fs::remove_file(&own)?;
    std::fs::remove_dir_all(home.path().join("cache"))?;
    let (url, ca) = (
        world.broker().api_url(),
        world.broker().ca_path().display().to_string(),
    );
    let caller = home.path().join("caller").display().to_string();
    let argument = text.lines().find(|line| line.trim() == "- 'credential'");
    let argument = argument.ok_or_else(|| format!("no argument: {text}"))?;
    let flags = [
        format!("--server={url}"),
        format!("--certificate-authority={ca}"),
        format!("--token-file={caller}"),
    ];
    let flags = flags.map(|flag| argument.replace("credential", &flag));
    let named = text.replace(argument, &format!("{argument}\n{}", flags.join("\n")));
    let variable = format!("env: [{{name: KEYFERRY_SERVER, value: '{url}'}}]");
    let variables = text.replace("env: []", &variable);
    assert_ne!(variables, text, "{text}");
    for stanza in [named, variables] {
        std::fs::write(&path, stanza)?;
        let output = home.kubectl(&world, &path, &WHOAMI).await?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains("only from your own file"),
            "{said}"
        );
    }
    std::fs::write(&own, file)?;
    std::fs::write(&path, text)?;
    assert_eq!(
        succeeded(home.kubectl(&world, &path, &WHOAMI).await?)?,
        AT_TARGET
    );
    Ok(())
}

/// A `kuberc` that forbids plugins, one that lists another plugin, and one with the printed stanza.
pub(crate) async fn kubectls_own_rules_decide_about_the_plugin(world: Arc<World>) -> TestResult {
    let home = Home::new(&world).await?;
    let (path, _) = home.exec_kubeconfig(&world, "tenant-a/a").await?;
    let program = home.plugin(&world)?;
    let mut printed = home.command(&program);
    printed
        .args(["kubeconfig", "tenant-a/a", "--exec", "--exec-command"])
        .arg(&program);
    let printed = String::from_utf8(run(&mut printed).await?.stderr)?;
    let stanza = printed
        .find("credentialPluginPolicy:")
        .and_then(|start| printed.get(start..))
        .ok_or_else(|| format!("no stanza: {printed}"))?;
    // doctor speaks of the program itself, and not of what gives it a home folder here.
    let itself = world.binary().path().display();
    let stanza = format!("{}\n- command: {itself}\n", stanza.trim_end());
    let kubectl = world.fleet().parts().locate(Part::Kubectl).await?;
    let kuberc = home.path().join("kuberc");
    let others =
        "credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist:\n- command: kubelogin\n";
    for (rules, refusal, told) in [
        (
            "credentialPluginPolicy: DenyAll\n",
            Some("not allowed: policy set to \"DenyAll\""),
            "credentialPluginPolicy is DenyAll",
        ),
        (
            others,
            Some("is not permitted by the credential plugin allowlist"),
            "credentialPluginAllowlist does not name the plugin",
        ),
        (stanza.as_str(), None, ""),
    ] {
        let head = "apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\n";
        std::fs::write(&kuberc, format!("{head}{rules}"))?;
        let mut command = home.command(&kubectl);
        command
            .env("KUBERC", &kuberc)
            .arg("--kubeconfig")
            .arg(&path);
        let output = run(command.args(WHOAMI)).await?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let mut doctor = home.command(world.binary().path());
        let output_of_doctor = run(doctor.env("KUBERC", &kuberc).arg("doctor")).await?;
        let doctor = String::from_utf8(output_of_doctor.stderr)?;
        match refusal {
            Some(refusal) => {
                assert!(!output.status.success() && said.contains(refusal), "{said}");
                assert!(
                    doctor.contains(told) && doctor.contains(&kuberc.display().to_string()),
                    "{doctor}"
                );
            }
            None => {
                assert_eq!(succeeded(output)?, AT_TARGET);
                assert!(!doctor.contains("kubectl would refuse"), "{doctor}");
            }
        }
    }
    Ok(())
}

pub(crate) async fn kubectl_gets_no_token_for_another_server(world: Arc<World>) -> TestResult {
    let home = Home::new(&world).await?;
    let (path, text) = home.exec_kubeconfig(&world, "tenant-a/a").await?;
    let (a, b) = (world.target_a(), world.target_b());
    // Everything about the other cluster is right, so that kubectl would connect to it.
    let encode_pem = |pem: &str| STANDARD.encode(pem);
    let own = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("certificate-authority-data: "))
        .ok_or("a CA")?
        .to_owned();
    let other = text
        .replace(&a.url(), &b.url())
        .replace(&own, &format!("'{}'", encode_pem(b.ca_pem())));
    let insecure = text.replace(
        &format!("certificate-authority-data: {own}"),
        "insecure-skip-tls-verify: true",
    );
    let own_ca_elsewhere = text.replace(&a.url(), &b.url());
    let foreign_ca = text.replace(
        &own,
        &format!("'{}'", encode_pem(&format!("{}{}", a.ca_pem(), b.ca_pem()))),
    );
    let silent = text.replace("provideClusterInfo: true", "provideClusterInfo: false");
    for (changed, problem) in [
        (other, "server is not the address of the target"),
        (own_ca_elsewhere, "server is not the address of the target"),
        (insecure, "insecure-skip-tls-verify is set"),
        (foreign_ca, "a CA certificate that is not the target's"),
        (
            silent,
            "names no cluster, so the token could go to any server",
        ),
    ] {
        assert_ne!(changed, text, "{problem}");
        std::fs::write(&path, changed)?;
        let output = home.kubectl(&world, &path, &WHOAMI).await?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{said}"
        );
        assert!(said.contains(problem), "{problem}: {said}");
    }
    // Nothing was cached that a later call could issue.
    let kept = std::fs::read_dir(home.path().join("cache/keyferry/credentials"))?
        .flatten()
        .map(|entry| entry.path());
    assert_eq!(kept.filter(|path| path.extension().is_none()).count(), 0);
    std::fs::write(&path, &text)?;
    assert_eq!(
        succeeded(home.kubectl(&world, &path, &WHOAMI).await?)?,
        AT_TARGET
    );
    Ok(())
}

pub(crate) async fn many_kubectl_share_one_fetch(world: Arc<World>) -> TestResult {
    world
        .broker()
        .reconfigure(|_, accesses| accesses.push(Access::of(TENANT, "crowd", "target-a", ACCOUNT)))
        .await?;
    let home = Home::new(&world).await?;
    let (path, _) = home.exec_kubeconfig(&world, "tenant-a/crowd").await?;
    let fetches = || -> Result<usize, keyferry_integration::runner::TestError> {
        Ok(world
            .broker()
            .audit()?
            .iter()
            .filter(|record| record["access"] == "tenant-a/crowd")
            .count())
    };
    let before = fetches()?;
    let crowd =
        futures::future::try_join_all((0..8).map(|_| home.kubectl(&world, &path, &WHOAMI))).await?;
    for output in crowd {
        assert_eq!(succeeded(output)?, AT_TARGET);
    }
    assert_eq!(fetches()? - before, 1);
    Ok(())
}

pub(crate) async fn kubectl_finds_the_plugin_and_completes_it(world: Arc<World>) -> TestResult {
    let home = Home::new(&world).await?;
    let bin = home.path().join("bin");
    std::fs::create_dir(&bin)?;
    for name in ["kubectl-keyferry", "kubectl_complete-keyferry"] {
        std::os::unix::fs::symlink(world.binary().path(), bin.join(name))?;
    }
    let kubectl = world.fleet().parts().locate(Part::Kubectl).await?;
    let kubectl = async |arguments: &[&str]| {
        succeeded(run(home.command(&kubectl).env("PATH", &bin).args(arguments)).await?)
    };
    assert!(
        kubectl(&["plugin", "list"])
            .await?
            .contains("kubectl-keyferry")
    );
    assert!(
        kubectl(&["keyferry", "token", "--help"])
            .await?
            .contains("Usage: kubectl keyferry token")
    );
    let completed = kubectl(&["__complete", "keyferry", "cred"]).await?;
    assert!(
        completed.starts_with("credential\t") && completed.lines().any(|line| line == ":4"),
        "{completed}"
    );
    let completed = kubectl(&[
        "__complete",
        "keyferry",
        "token",
        "tenant-a/a",
        "--output",
        "",
    ])
    .await?;
    let names: Vec<&str> = completed
        .lines()
        .filter_map(|line| line.split('\t').next())
        .take(2)
        .collect();
    assert_eq!(names, ["token", "json"], "{completed}");
    let completed = kubectl(&["__complete", "keyferry", "token", "--token-file", ""]).await?;
    assert!(
        completed.lines().any(|line| line == ":0"),
        "file names: {completed}"
    );
    Ok(())
}

pub(crate) async fn who_asks_and_may_is_told_where_the_target_is(world: Arc<World>) -> TestResult {
    let caller = caller_token(world.hub(), TENANT, ACCOUNT).await?;
    let asking = |access: &str, value: &str| {
        [
            exchange_form(&caller, access),
            vec![("keyferry_cluster", value.to_owned())],
        ]
        .concat()
    };
    let told = world
        .broker()
        .post_form(&asking("tenant-a/a", "true"))
        .await?
        .json()?;
    let cluster = &told["keyferry_cluster"];
    assert_eq!(
        (cluster["name"].as_str(), cluster["server"].as_str()),
        (Some("target-a"), Some(world.target_a().url().as_str()))
    );
    let pem = STANDARD.decode(
        cluster["certificate-authority-data"]
            .as_str()
            .unwrap_or_default(),
    )?;
    let body = |pem: &str| {
        pem.lines()
            .filter(|line| !line.starts_with("-----"))
            .collect::<String>()
    };
    assert_eq!(
        body(&String::from_utf8(pem)?),
        body(world.target_a().ca_pem())
    );
    assert_eq!(
        cluster.as_object().map(|members| members.len()),
        Some(3),
        "nothing else: {cluster}"
    );
    let silent = world
        .broker()
        .exchange(&caller, "tenant-a/a")
        .await?
        .json()?;
    assert_eq!(
        silent.as_object().map(|members| members.len()),
        Some(4),
        "{:?}",
        silent.as_object().map(|it| it.keys().collect::<Vec<_>>())
    );
    let denied = world
        .broker()
        .post_form(&asking("tenant-a/b", "true"))
        .await?;
    assert_eq!(
        (denied.status, denied.body),
        (
            400,
            world.broker().exchange(&caller, "tenant-a/b").await?.body
        ),
        "denied, the same bytes"
    );
    let wrong = world
        .broker()
        .post_form(&asking("tenant-a/a", "yes"))
        .await?;
    assert!(
        wrong.status == 400
            && wrong
                .body
                .contains("keyferry_cluster must be true or absent"),
        "{}",
        wrong.body
    );
    Ok(())
}
