//! The tables of broken federations.

use std::sync::Arc;

use Says::{Broken, Undetermined, Well};
use keyferry_integration::control_plane::ControlPlaneSpec;
use keyferry_integration::runner::{TestError, TestResult};
use serde_json::{Value, json};

use super::cases::{Case, Says};
use super::federation::{AUDIENCE, Federation};

/// What is broken, the target's file, the URL of its issuer's document with the CA trusted there,
/// and the expected report of each mode.
type Row<'a> = (&'a str, String, (&'a str, &'a str), [Says; 3]);

/// The hop that only the target's file and the target itself can show.
const HIDDEN: &str = "Configuration";

fn hidden(reason: &'static str) -> [Says; 3] {
    [Undetermined, Broken(HIDDEN, reason), Broken(HIDDEN, reason)]
}

fn everywhere(hop: &'static str, reason: &'static str) -> [Says; 3] {
    [Broken(hop, reason); 3]
}

fn now() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

fn conclude(wrong: Vec<String>) -> TestResult {
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n\n").into())
    }
}

/// The target and what it reads are sound, but the token, the flags or the rights are not.
pub(super) async fn tokens(federation: Arc<Federation>) -> TestResult {
    let federation = &*federation;
    federation
        .target
        .restart_with_authentication_config(&federation.configuration)
        .await?;
    federation.until_initialized().await?;
    let good = || federation.token("reconciler", &[AUDIENCE]);
    let flags = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
    let other_ca = federation
        .file("other-ca.crt", federation.ground.ca().cert_pem())?
        .display()
        .to_string();
    let other_issuer = format!("{}/", "https://hub.keyferry.test");
    let forged = async |edit: fn(&mut Value)| -> Result<String, TestError> {
        Ok(federation.hub.sign_again(&good().await?, edit).await?)
    };
    let elsewhere = federation.configuration.replace("hub:", "elsewhere:");
    let rows: Vec<(&str, String, Vec<String>, [Says; 3])> = vec![
        ("all is well", good().await?, vec![], [Well; 3]),
        (
            "wrong audience",
            federation
                .token("reconciler", &["https://other.keyferry.test"])
                .await?,
            vec![],
            hidden("AudienceDiffers"),
        ),
        (
            "wrong audience, and the right one is known",
            federation
                .token("reconciler", &["https://other.keyferry.test"])
                .await?,
            flags(&["--audience", AUDIENCE]),
            everywhere("Claims", "AudienceDiffers"),
        ),
        (
            "another issuer is expected",
            good().await?,
            flags(&["--issuer", &other_issuer]),
            everywhere("Issuer", "IssuerDiffers"),
        ),
        (
            "expired",
            forged(|claims| claims["exp"] = json!(now() - 20)).await?,
            vec![],
            everywhere("Claims", "TokenExpired"),
        ),
        (
            "not yet valid",
            forged(|claims| claims["nbf"] = json!(now() + 900)).await?,
            vec![],
            everywhere("Claims", "TokenNotYetValid"),
        ),
        (
            "subject not allowed",
            federation.token("stranger", &[AUDIENCE]).await?,
            vec![],
            hidden("ClaimRuleFalse"),
        ),
        (
            "lives too long",
            forged(|claims| claims["exp"] = json!(now() + 50_000)).await?,
            vec![],
            hidden("ClaimRuleFalse"),
        ),
        (
            "two audiences",
            federation
                .token("reconciler", &[AUDIENCE, "https://b.keyferry.test"])
                .await?,
            vec![],
            hidden("ClaimRuleFalse"),
        ),
        (
            "no rights",
            federation.token("rightless", &[AUDIENCE]).await?,
            flags(&["--target-namespace", "default"]),
            everywhere("Rights", "NoRights"),
        ),
        // Authenticated but without rights: a warning, because no one has said which rights are
        // needed.
        (
            "no rights are seen, nor where to look",
            federation.token("rightless", &[AUDIENCE]).await?,
            vec![],
            [Well; 3],
        ),
        (
            "the name begins with another hub's prefix",
            good().await?,
            flags(&["--hub-name", "elsewhere"]),
            everywhere("Authentication", "IdentityUnexpected"),
        ),
        (
            "the name begins with the hub's prefix",
            good().await?,
            flags(&["--hub-name", "hub"]),
            [Well; 3],
        ),
        (
            "a right is missing",
            good().await?,
            flags(&["--needs", "patch/deployments.apps"]),
            everywhere("Rights", "NoRights"),
        ),
        (
            "a right is there",
            good().await?,
            flags(&["--needs", "get/pods"]),
            [Well; 3],
        ),
        (
            "impersonation denied",
            good().await?,
            flags(&["--as", "tenant-a:deployer"]),
            everywhere("Impersonation", "ImpersonationDenied"),
        ),
        (
            "wrong CA of the target",
            good().await?,
            flags(&["--target-certificate-authority", &other_ca]),
            everywhere("Connection", "TargetUntrusted"),
        ),
    ];
    let mut wrong = Vec::new();
    for (name, token, flags, says) in rows {
        let discovery = (
            federation.discovery_url.as_str(),
            federation.ground.ca().cert_pem(),
        );
        let case = Case {
            name,
            token,
            discovery,
            configuration: &federation.configuration,
            flags,
            says,
        };
        wrong.extend(case.check(federation, &federation.target).await?);
    }
    // Another file than the active one. The file alone cannot show this; with rights at the target,
    // the hashes do.
    let refused = federation.token("stranger", &[AUDIENCE]).await?;
    let kubeconfig = federation.target.admin_kubeconfig().display().to_string();
    let file = federation.file(
        "elsewhere.yaml",
        &elsewhere.replace("'system:serviceaccount:tenant-a:rightless'", "'x'"),
    )?;
    let mut arguments = federation.target_flags(&federation.target)?;
    arguments.extend([
        "--target-token-file".to_owned(),
        federation.file("token", &refused)?.display().to_string(),
    ]);
    arguments.extend([
        "--auth-config".to_owned(),
        file.display().to_string(),
        "--target-kubeconfig".to_owned(),
        kubeconfig,
    ]);
    let (code, report) = federation.doctor(&arguments, &refused).await?;
    // The TokenReview has the exact cause, so it takes precedence over the hash.
    wrong.extend(super::cases::differs(
        Broken(HIDDEN, "ClaimRuleFalse"),
        code,
        &report,
    ));
    wrong.extend(active(federation).await?);
    wrong.extend(not_reloaded(federation).await?);
    wrong.extend(bound_as_the_targets_own(federation).await?);
    conclude(wrong)
}

/// A RoleBinding of kind ServiceAccount names an account of the target itself. It gives the user
/// from the hub no right.
async fn bound_as_the_targets_own(it: &Federation) -> Result<Vec<String>, TestError> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": "slip" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader" },
        "subjects": [{ "kind": "ServiceAccount", "namespace": "tenant-a", "name": "rightless" }],
    });
    it.target
        .admin()
        .create(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
            &binding,
        )
        .await?;
    let token = it.token("rightless", &[AUDIENCE]).await?;
    let (file, kubeconfig) = (
        it.file("token", &token)?.display().to_string(),
        it.target.admin_kubeconfig().display().to_string(),
    );
    let discovery_ca = it
        .file("discovery-ca.crt", it.ground.ca().cert_pem())?
        .display()
        .to_string();
    let further = [
        "--target-token-file",
        &file,
        "--target-kubeconfig",
        &kubeconfig,
        "--target-namespace",
        "default",
        "--discovery-url",
        &it.discovery_url,
        "--discovery-ca",
        &discovery_ca,
    ];
    let further = further.map(str::to_owned).to_vec();
    let (code, report) = it
        .doctor(&[it.target_flags(&it.target)?, further].concat(), &token)
        .await?;
    let mut wrong: Vec<String> = super::cases::differs(Broken("Rights", "NoRights"), code, &report)
        .into_iter()
        .collect();
    let said = report["broken"]["detail"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let expected = "RoleBinding default/slip names kind ServiceAccount tenant-a/rightless";
    if !said.contains(expected)
        || !said.contains("kind User and name hub:system:serviceaccount:tenant-a:rightless")
    {
        wrong.push(format!("{expected}: {said}"));
    }
    Ok(wrong)
}

/// Whether the file is the active one is checked by the target's metrics.
async fn active(it: &Federation) -> Result<Vec<String>, TestError> {
    let good = it.token("reconciler", &[AUDIENCE]).await?;
    let token = it.file("token", &good)?.display().to_string();
    let kubeconfig = it.target.admin_kubeconfig().display().to_string();
    let mut wrong = Vec::new();
    for (text, status, said) in [
        (it.configuration.clone(), "Well", "this file is active"),
        (
            format!("{}# another byte\n", it.configuration),
            "Warning",
            "with another file: this file has the hash sha256:",
        ),
    ] {
        let file = it.file("in-force.yaml", &text)?.display().to_string();
        let further = [
            "--target-token-file",
            &token,
            "--auth-config",
            &file,
            "--target-kubeconfig",
            &kubeconfig,
        ]
        .map(str::to_owned);
        let (_, report) = it
            .doctor(
                &[it.target_flags(&it.target)?, further.to_vec()].concat(),
                &good,
            )
            .await?;
        let hop = report["hops"]
            .as_array()
            .and_then(|hops| hops.iter().find(|hop| hop["hop"] == HIDDEN))
            .cloned()
            .unwrap_or_default();
        if hop["status"] != status
            || !hop["detail"]
                .as_str()
                .is_some_and(|detail| detail.contains(said))
        {
            wrong.push(format!("{said}: {hop:#}"));
        }
    }
    Ok(wrong)
}

/// A file that the target refuses to reload is not active. That takes no token to see.
async fn not_reloaded(it: &Federation) -> Result<Vec<String>, TestError> {
    let kubeconfig = it.target.admin_kubeconfig().display().to_string();
    // Only a restart can change this section.
    let refused = format!("{}anonymous:\n  enabled: true\n", it.configuration);
    let mut wrong = Vec::new();
    if it.target.set_authentication_config(&refused).await.is_ok() {
        wrong.push("the target reloaded another anonymous section".to_owned());
    }
    for (text, code, said) in [
        (&refused, 1, "; its last reload failed at 20"),
        (
            &it.configuration,
            3,
            "this file is active; there is no token",
        ),
    ] {
        let file = it.file("not-reloaded.yaml", text)?.display().to_string();
        let further = ["--auth-config", &file, "--target-kubeconfig", &kubeconfig];
        let further = further.map(str::to_owned).to_vec();
        let (found, report) = it
            .doctor(&[it.target_flags(&it.target)?, further].concat(), "")
            .await?;
        let reason = report["broken"]["reason"].as_str();
        let detail = report["hops"]
            .as_array()
            .and_then(|hops| hops.iter().find(|hop| hop["hop"] == HIDDEN))
            .and_then(|hop| hop["detail"].as_str())
            .unwrap_or_default();
        let expected = (code == 1).then_some("ConfigurationNotActive");
        if found != Some(code) || reason != expected || !detail.contains(said) {
            wrong.push(format!("{said}: {found:?} {report:#}"));
        }
    }
    it.target
        .restart_with_authentication_config(&it.configuration)
        .await?;
    it.until_initialized().await?;
    Ok(wrong)
}

/// The target's configuration, or what it reads, is broken.
pub(super) async fn configurations(federation: Arc<Federation>) -> TestResult {
    let federation = &*federation;
    let (issuer, url) = (
        "https://hub.keyferry.test",
        federation.discovery_url.as_str(),
    );
    let keys: Value = federation.hub.admin().get("/openid/v1/jwks").await?;
    let document = |name: &str, issuer: &str, jwks_uri: &str| {
        let path = format!("/{name}/.well-known/openid-configuration");
        federation.documents.put(&path, &json!({ "issuer": issuer, "jwks_uri": jwks_uri, "id_token_signing_alg_values_supported": ["RS256"] }));
        format!("{}{path}", federation.documents.url())
    };
    let set = |name: &str, keys: &Value| {
        federation.documents.put(&format!("/{name}/keys"), keys);
        document(
            name,
            issuer,
            &format!("{}/{name}/keys", federation.documents.url()),
        )
    };
    let (ours, hubs) = (federation.ground.ca().cert_pem(), federation.hub.ca_pem());
    let at = |place: &str| federation.configuration.replace(url, place);
    let indented = |pem: &str| {
        pem.lines()
            .map(|line| format!("        {line}\n"))
            .collect::<String>()
    };
    let with_ca = |text: String, pem: &str| text.replace(&indented(ours), &indented(pem));
    let slash = federation
        .configuration
        .replace(&format!("url: {issuer}\n"), &format!("url: {issuer}/\n"));
    let mapping = federation
        .configuration
        .replace("claim: sub", "claim: email");
    assert!(
        slash != federation.configuration
            && mapping != federation.configuration
            && with_ca(at(url), hubs) != federation.configuration
    );
    let itself = format!("{}/.well-known/openid-configuration", federation.hub.url());
    let nowhere = "https://127.0.0.1:1/.well-known/openid-configuration".to_owned();
    let poisoned = json!({ "keys": [keys["keys"][0], { "kty": "odd", "kid": "x" }] });
    let other = document(
        "other",
        "https://other.keyferry.test",
        "https://127.0.0.1:1/keys",
    );
    let dead = document("dead", issuer, "https://127.0.0.1:1/keys");
    let (empty, odd) = (set("empty", &json!({ "keys": [] })), set("odd", &poisoned));
    let removed = document(
        "removed",
        issuer,
        &format!("{}/removed/keys", federation.documents.url()),
    );
    let prefix = federation
        .configuration
        .replace("prefix: \"hub:\"", "prefix: \"\"");
    assert!(prefix != federation.configuration);
    let nameless = [
        Broken("Authentication", "EmptyPrefix"),
        Broken(HIDDEN, "EmptyPrefix"),
        Broken("Authentication", "EmptyPrefix"),
    ];
    let uninitialized = [
        Undetermined,
        Broken("Discovery", "DiscoveryUntrusted"),
        Broken("TargetKeys", "AuthenticatorNotInitialized"),
    ];
    let rows: Vec<Row<'_>> = vec![
        ("an empty prefix", prefix, (url, ours), nameless),
        (
            "a slash at the end of the issuer",
            slash,
            (url, ours),
            hidden("IssuerDiffers"),
        ),
        (
            "a claim that tokens do not have",
            mapping,
            (url, ours),
            hidden("UsernameClaimMissing"),
        ),
        (
            "the wrong CA in the file",
            with_ca(at(url), hubs),
            (url, ours),
            uninitialized,
        ),
        (
            "the hub itself as discoveryURL",
            with_ca(at(&itself), hubs),
            (&itself, hubs),
            everywhere("Discovery", "DiscoveryForbidden"),
        ),
        (
            "nothing at the discoveryURL",
            at(&nowhere),
            (&nowhere, ours),
            everywhere("Discovery", "DiscoveryUnreachable"),
        ),
        (
            "another issuer's document",
            at(&other),
            (&other, ours),
            everywhere("Discovery", "DiscoveryIssuerDiffers"),
        ),
        (
            "nothing at the jwks_uri",
            at(&dead),
            (&dead, ours),
            everywhere("Keys", "KeysUnreachable"),
        ),
        (
            "404 at the jwks_uri",
            at(&removed),
            (&removed, ours),
            everywhere("Keys", "KeysNotServed"),
        ),
        (
            "a key set that one key spoils",
            at(&odd),
            (&odd, ours),
            everywhere("Keys", "KeySetUndecodable"),
        ),
        (
            "the key is not published",
            at(&empty),
            (&empty, ours),
            everywhere("KeyId", "KeyNotPublished"),
        ),
    ];
    let mut wrong = Vec::new();
    for (name, configuration, discovery, says) in rows {
        federation
            .target
            .restart_with_authentication_config(&configuration)
            .await?;
        if matches!(says[0], Undetermined | Broken("Authentication", _))
            && !matches!(says[1], Broken("Discovery", _))
        {
            federation.until_initialized().await?;
        }
        let token = federation.token("reconciler", &[AUDIENCE]).await?;
        let case = Case {
            name,
            token,
            discovery,
            configuration: &configuration,
            flags: vec![],
            says,
        };
        wrong.extend(case.check(federation, &federation.target).await?);
        if name == "a slash at the end of the issuer" {
            wrong.extend(not_restarted(federation).await?);
        }
    }
    federation
        .target
        .restart_with_authentication_config(&federation.configuration)
        .await?;
    conclude(wrong)
}

/// A sound file that the target was not started with: the file knows the issuer, but the target
/// does not.
async fn not_restarted(it: &Federation) -> Result<Vec<String>, TestError> {
    let token = it.token("reconciler", &[AUDIENCE]).await?;
    let kubeconfig = it.target.admin_kubeconfig().display().to_string();
    let (file, sound) = (
        it.file("token", &token)?,
        it.file("sound.yaml", &it.configuration)?,
    );
    let (file, sound) = (file.display().to_string(), sound.display().to_string());
    let further = [
        "--target-token-file",
        &file,
        "--auth-config",
        &sound,
        "--target-kubeconfig",
        &kubeconfig,
    ]
    .map(str::to_owned)
    .to_vec();
    let (code, report) = it
        .doctor(&[it.target_flags(&it.target)?, further].concat(), &token)
        .await?;
    Ok(
        super::cases::differs(Broken(HIDDEN, "ConfigurationNotActive"), code, &report)
            .into_iter()
            .collect(),
    )
}

/// Another cluster whose own issuer equals the hub's, so it accepts no file that names the hub.
pub(super) async fn collision(federation: Arc<Federation>) -> TestResult {
    let federation = &*federation;
    let issuer = "https://hub.keyferry.test".to_owned();
    let twin = federation
        .ground
        .control_plane(ControlPlaneSpec {
            issuers: vec![issuer.clone()],
            ..ControlPlaneSpec::named("twin")
        })
        .await?;
    let discovery = (
        federation.discovery_url.as_str(),
        federation.ground.ca().cert_pem(),
    );
    let stated = vec!["--own-issuer".to_owned(), issuer];
    let mut wrong = Vec::new();
    for (name, flags, says) in [
        (
            "the target's own issuer is not known",
            vec![],
            [
                Undetermined,
                Undetermined,
                Broken(HIDDEN, "IssuerIsTargets"),
            ],
        ),
        (
            "it is stated",
            stated,
            everywhere(HIDDEN, "IssuerIsTargets"),
        ),
    ] {
        let token = federation.token("reconciler", &[AUDIENCE]).await?;
        let case = Case {
            name,
            token,
            discovery,
            configuration: &federation.configuration,
            flags,
            says,
        };
        wrong.extend(case.check(federation, &twin).await?);
    }
    conclude(wrong)
}
