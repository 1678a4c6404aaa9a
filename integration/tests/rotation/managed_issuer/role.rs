//! A role of a target with a managed issuer: an issuer and keys of its own, and an entry of its own
//! in the file that `keyferry trust` prints for the target.

use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use keyferry_integration::control_plane::{ControlPlane, Whom};
use keyferry_integration::parts::Minor;
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::until;
use keyferry_integration::world::{Access, Target, caller_token, claims};
use serde_json::{Value, json};

use super::stage::{LOAD, Stage, WITH_ROLE, account, audience, whoami};
use super::stolen::{Stolen, refusal};

const DOCUMENTS_WITHIN: Duration = Duration::from_secs(30);
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Everything for the accounts, and reading ConfigMaps for the role, by what `trust` prints.
const RBAC: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: role-view}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: accounts}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: "hub:system:serviceaccounts"}
"#;

/// On both minors: a role's token is a user of its own by the role's managed issuer, may do what the role may, and
/// is refused elsewhere. Its stolen key signs for the accounts, the audience and the life of the
/// role alone.
pub(super) async fn a_role_has_a_managed_issuer_of_its_own(stage: Arc<Stage>) -> TestResult {
    let minors = [Minor::newest(), Minor::V1_33];
    let starting = WITH_ROLE
        .into_iter()
        .zip(minors)
        .map(|((name, _), minor)| stage.start_target(name, minor));
    let planes = try_join_all(starting).await?;
    let (user, outsider) = (account(0), account(1));
    let reconfigured = stage.broker.reconfigure(|targets, accesses| {
        for ((name, role), plane) in WITH_ROLE.into_iter().zip(&planes) {
            let base = Target {
                further: "  issuer: Keyferry\n".to_owned(),
                ..Target::of(plane, &audience(name))
            };
            targets.push(base.allowing(LOAD, &[&user, &outsider]));
            let of_role = Target {
                name: role.to_owned(),
                address: String::new(),
                further: format!("  sameAs: {name}\n  role: view\n  tokenLifetime: {{max: 1h}}\n"),
                ..Target::of(plane, &audience(role))
            };
            targets.push(of_role.allowing(LOAD, &[&user]));
            for target in [name, role] {
                accesses.push(Access::of(LOAD, target, target, &user));
            }
            let outside = format!("outside-{role}");
            accesses.push(Access::of(LOAD, &outside, role, &outsider));
        }
    });
    reconfigured.await?;
    let checked = planes
        .iter()
        .zip(WITH_ROLE)
        .map(|(plane, names)| role_is_held(&stage, plane, names));
    try_join_all(checked).await?;
    Ok(())
}

async fn role_is_held(
    stage: &Stage,
    plane: &ControlPlane,
    (name, role): (&'static str, &'static str),
) -> TestResult {
    trust_both(stage, plane, (name, role)).await?;
    let caller = caller_token(&stage.hub, LOAD, &account(0)).await?;
    let access = |target: &str| format!("{LOAD}/{target}");
    let all = stage.until_granted(&caller, &access(name)).await?;
    let view = stage.until_granted(&caller, &access(role)).await?;

    let of_view = claims(&view)?;
    assert_eq!(
        (&of_view["iss"], &of_view["aud"]),
        (&json!(stage.issuer(role)), &json!([audience(role)]))
    );
    let subject = format!("system:serviceaccount:{LOAD}:account-0");
    assert_eq!(
        whoami(plane, &all).await?["username"],
        format!("hub:{subject}")
    );
    let user = whoami(plane, &view).await?;
    assert_eq!(user["username"], format!("hub:view:{subject}"));
    let groups = [
        "hub:role:view",
        "hub:role:view:load",
        "system:authenticated",
    ];
    assert_eq!(user["groups"], json!(groups));

    let (all, by_role) = (plane.as_bearer(&all)?, plane.as_bearer(&view)?);
    all.create(CONFIGMAPS, &config_map("by-the-account"))
        .await?;
    by_role.get(CONFIGMAPS).await?;
    let refused = by_role.create(CONFIGMAPS, &config_map("by-the-role")).await;
    assert_eq!(refused.err().and_then(|error| error.status()), Some(403));
    let outsider = caller_token(&stage.hub, LOAD, &account(1)).await?;
    let outside = format!("{LOAD}/outside-{role}");
    let denied = stage.broker.exchange(&outsider, &outside).await?;
    assert_eq!(denied.status, 400, "not in the role's allow");
    for elsewhere in [&*stage.hub, &stage.targets[0], &stage.targets[1]] {
        refusal(elsewhere, &view).await?;
    }
    stolen_key_is_held(stage, plane, (name, role)).await
}

/// Gives the target what `keyferry trust` prints for it and its role, once Keyferry publishes both
/// issuers.
async fn trust_both(stage: &Stage, plane: &ControlPlane, (name, role): (&str, &str)) -> TestResult {
    for target in [name, role] {
        let url = format!("{}/.well-known/openid-configuration", stage.issuer(target));
        until(&url, DOCUMENTS_WITHIN, || async {
            let answer = stage.broker.http().get(&url).send().await?;
            Ok(answer.status() == 200)
        })
        .await?;
    }
    let folder = tempfile::tempdir_in(stage.folder())?;
    let output = folder.path().display().to_string();
    let (config, authority) = (stage.broker.config(), stage.broker.ca_path());
    let (config, authority) = (
        config.display().to_string(),
        authority.display().to_string(),
    );
    let kubernetes = format!("1.{}", plane.minor().number());
    let arguments = [
        "trust",
        name,
        "--config",
        &config,
        "--discovery-ca",
        &authority,
        "--kubernetes",
        &kubernetes,
        "--bind-role",
        "view=role-view",
        "--output-dir",
        &output,
    ];
    let printed = stage.binary.run(&arguments, &[]).await?;
    let notes = String::from_utf8_lossy(&printed.stderr).into_owned();
    assert!(printed.status.success(), "{notes}");
    let file = std::fs::read_to_string(folder.path().join("authentication.yaml"))?;
    assert_eq!(file.matches("- issuer:").count(), 2, "{file}");
    plane.set_authentication_config(&file).await?;
    let roles = folder.path().join("roles.yaml");
    std::fs::write(&roles, RBAC)?;
    apply_manifests(plane, &[&roles, &folder.path().join("rbac.yaml")]).await?;
    let list = json!({ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"] });
    let all = json!({ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] });
    for (group, rule) in [("hub:role:view", list), ("hub:system:serviceaccounts", all)] {
        plane.until_it_counts(Whom::Group(group), "", &rule).await?;
    }
    Ok(())
}

/// Signs with the role's own key. What is refused names the rule of the target's file.
async fn stolen_key_is_held(
    stage: &Stage,
    plane: &ControlPlane,
    (name, role): (&str, &str),
) -> Result<(), TestError> {
    let stolen = Stolen::from(&stage.stored(role).await?)?;
    let (issuer, aud) = (stage.issuer(role), audience(role));
    let (of_base, user) = (audience(name), account(0));
    let sign = |issuer: &str, audiences: &[&str], account: (&str, &str), seconds| {
        stolen.sign(issuer, audiences, account, seconds)
    };
    let allowed = (LOAD, user.as_str());
    let good = sign(&issuer, &[&aud], allowed, 3600)?;
    let admitted = whoami(plane, &good).await?["username"].take();
    assert_eq!(admitted, "hub:view:system:serviceaccount:load:account-0");
    for (what, issuer, audiences, account, seconds, cause) in [
        (
            "another account",
            &issuer,
            vec![&*aud],
            (LOAD, "account-1"),
            600,
            "may not use this role",
        ),
        (
            "another namespace",
            &issuer,
            vec![&*aud],
            ("kube-system", "account-0"),
            600,
            "may not use this role",
        ),
        (
            "a longer life",
            &issuer,
            vec![&*aud],
            allowed,
            3601,
            "lives longer than this role allows",
        ),
        (
            "the base's audience",
            &issuer,
            vec![&*of_base],
            allowed,
            600,
            "expected audience",
        ),
        (
            "two audiences",
            &issuer,
            vec![&*aud, &*of_base],
            allowed,
            600,
            "several audiences",
        ),
        (
            "the base's issuer",
            &stage.issuer(name),
            vec![&*of_base],
            allowed,
            600,
            "failed to verify",
        ),
    ] {
        let token = sign(issuer, &audiences, account, seconds)?;
        let said = refusal(plane, &token).await;
        let said = said.map_err(|error| format!("{what}: {error}"))?;
        assert!(said.contains(cause), "{what}: {said}");
    }
    Ok(())
}

fn config_map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } })
}
