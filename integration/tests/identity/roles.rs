//! A role: another audience at the cluster of a target, with a user and a group of its own.

use std::fmt::Write;
use std::sync::Arc;

use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec, Whom};
use keyferry_integration::rest::RestClient;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{
    Access, Broker, BrokerSpec, Target, caller_token, exchange_form, make_tenant, until_trusted,
};
use serde_json::{Value, json};

use super::stage::{NOT_GRANTED, Stage, reason};
use crate::previous_version::load::Load;

const BASE: &str = "https://role-target.keyferry.test";
const ROLE: &str = "https://role-target.keyferry.test/roles/view";
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// What a target's file says of a base and of its role `view`.
pub(crate) struct RoleTrust<'a> {
    pub(crate) issuer: &'a str,
    pub(crate) discovery_url: &'a str,
    pub(crate) discovery_ca: &'a str,
    pub(crate) base: &'a str,
    pub(crate) role: &'a str,
    /// The users of each audience, without `system:serviceaccount:`.
    pub(crate) base_accounts: &'a [&'a str],
    pub(crate) role_accounts: &'a [&'a str],
}

impl RoleTrust<'_> {
    /// One entry for both audiences, with accounts, life, user and groups by audience.
    pub(crate) fn configuration(&self) -> String {
        let Self { base, role, .. } = self;
        self.configuration_mapping(
            &format!("{{'{base}': 'hub:', '{role}': 'hub:view:'}}[claims.aud[0]] + claims.sub"),
            &format!(
                "{{'{base}': ['hub:system:serviceaccounts', 'hub:system:serviceaccounts:' + \
                 claims.sub.split(':')[2]], '{role}': ['hub:role:view', 'hub:role:view:' + \
                 claims.sub.split(':')[2]]}}[claims.aud[0]]"
            ),
        )
    }

    /// The mistake that a probe finds: the user does not depend on the audience.
    pub(crate) fn without_mapping(&self) -> String {
        self.configuration_mapping("'hub:' + claims.sub", "['hub:system:serviceaccounts']")
    }

    fn configuration_mapping(&self, username: &str, groups: &str) -> String {
        let Self { base, role, .. } = self;
        let accounts = |accounts: &[&str]| {
            let quoted = accounts
                .iter()
                .map(|account| format!("'system:serviceaccount:{account}'"));
            quoted.collect::<Vec<_>>().join(", ")
        };
        let mut text = format!(
            "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\n\
             jwt:\n- issuer:\n    url: {}\n    discoveryURL: {}\n    certificateAuthority: |\n",
            self.issuer, self.discovery_url
        );
        for line in self.discovery_ca.lines() {
            let _ = writeln!(text, "      {line}");
        }
        let _ = write!(
            text,
            "    audiences: ['{base}', '{role}']\n    audienceMatchPolicy: MatchAny\n  \
             claimValidationRules:\n  - expression: \"claims.aud.size() == 1\"\n    message: \
             several audiences\n  - expression: \"claims.aud[0] != '{base}' || claims.sub in \
             [{}]\"\n    message: not in the base\n  - expression: \"claims.aud[0] != '{role}' || \
             claims.sub in [{}]\"\n    message: not in the role\n  - expression: \"claims.aud[0] != \
             '{role}' || claims.exp - claims.iat <= 3600\"\n    message: too long for the role\n  \
             claimMappings:\n    username:\n      expression: \"{username}\"\n    groups:\n      \
             expression: \"{groups}\"\n",
            accounts(self.base_accounts),
            accounts(self.role_accounts),
        );
        text
    }
}

/// The user as which an apiserver authenticates a client.
pub(crate) async fn user_of(client: &RestClient) -> Result<Value, TestError> {
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    Ok(client.create(path, &review).await?["status"]["userInfo"].take())
}

/// Asserts that a token is the user of the role, in the role's groups alone.
pub(crate) async fn assert_role(target: &ControlPlane, token: &str, account: &str) -> TestResult {
    let user = user_of(&target.as_bearer(token)?).await?;
    let (namespace, name) = account.split_once(':').ok_or("no account")?;
    assert_eq!(
        user["username"],
        format!("hub:view:system:serviceaccount:{namespace}:{name}")
    );
    let expected = [
        "hub:role:view".to_owned(),
        format!("hub:role:view:{namespace}"),
        "system:authenticated".to_owned(),
    ];
    assert_eq!(user["groups"], json!(expected));
    Ok(())
}

fn config_map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } })
}

/// Binds a ClusterRole of the target to a group.
pub(crate) async fn bind(target: &ControlPlane, role: &str, group: &str) -> TestResult {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": format!("test-{role}") },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group }],
    });
    target.admin().create(BINDINGS, &binding).await?;
    let rule = json!({ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"] });
    target
        .until_it_counts(Whom::Group(group), "default", &rule)
        .await?;
    Ok(())
}

fn status_of(answer: Result<Value, keyferry_integration::rest::RestError>) -> Option<u16> {
    answer.err().and_then(|error| error.status())
}

pub(crate) async fn a_role_has_no_right_of_its_account_on_the_newest(
    stage: Arc<Stage>,
) -> TestResult {
    a_role_has_no_right_of_its_account(&stage, stage.hub(), "roles-newest").await
}

pub(crate) async fn a_role_has_no_right_of_its_account_on_1_33(stage: Arc<Stage>) -> TestResult {
    a_role_has_no_right_of_its_account(&stage, stage.old_hub(), "roles-oldest").await
}

/// The target is of the hub's minor version.
async fn a_role_has_no_right_of_its_account(
    stage: &Stage,
    hub: &Arc<ControlPlane>,
    namespace: &str,
) -> TestResult {
    make_tenant(hub, namespace, &["agent", "outsider"]).await?;
    let (agent, outsider) = (
        format!("{namespace}:agent"),
        format!("{namespace}:outsider"),
    );
    let spec = BrokerSpec::of_hub(namespace, hub);
    let discovery_url = spec.discovery_url()?;
    let trust = RoleTrust {
        issuer: &format!("https://{}.keyferry.test", hub.name()),
        discovery_url: &discovery_url,
        discovery_ca: stage.ca().cert_pem(),
        base: BASE,
        role: ROLE,
        base_accounts: &[&agent, &outsider],
        role_accounts: &[&agent],
    };
    let target = ControlPlaneSpec {
        minor: hub.minor(),
        authentication_config: Some(trust.configuration()),
        ..ControlPlaneSpec::named(&format!("{namespace}-target"))
    };
    let target = stage.fleet().start_control_plane(target).await?;
    let role = Target {
        name: "prod-view".to_owned(),
        address: String::new(),
        audience: ROLE.to_owned(),
        further: "  sameAs: prod\n  role: view\n  tokenLifetime: {max: 1h}\n".to_owned(),
        ..Target::of(&target, ROLE)
    };
    let accounts = ["agent", "outsider"];
    let spec = spec
        .with_target(
            Target::of(&target, BASE)
                .named("prod")
                .allowing(namespace, &accounts),
        )
        .with_target(role.allowing(namespace, &accounts))
        .with_access(Access::of(namespace, "all", "prod", "agent"))
        .with_access(Access::of(namespace, "view", "prod-view", "agent"))
        .with_access(Access::of(namespace, "outside", "prod-view", "outsider"));
    let broker = stage.start_broker(hub, spec).await?;
    until_trusted(hub, &target).await?;
    bind(&target, "cluster-admin", "hub:system:serviceaccounts").await?;
    // What `view` aggregates, which takes a controller.
    bind(&target, "system:aggregate-to-view", "hub:role:view").await?;
    let own = caller_token(hub, namespace, "agent").await?;

    let access = |name: &str| format!("{namespace}/{name}");
    let all = broker
        .exchange_in_time(&own, &access("all"))
        .await?
        .token()?;
    let view = broker
        .exchange_in_time(&own, &access("view"))
        .await?
        .token()?;
    assert_role(&target, &view, &agent).await?;
    let user = user_of(&target.as_bearer(&all)?).await?;
    assert_eq!(
        user["username"],
        format!("hub:system:serviceaccount:{agent}")
    );
    let (all, view) = (target.as_bearer(&all)?, target.as_bearer(&view)?);
    all.create(CONFIGMAPS, &config_map("by-the-account"))
        .await?;
    view.get(CONFIGMAPS).await?;
    let refused = view.create(CONFIGMAPS, &config_map("by-the-role")).await;
    assert_eq!(status_of(refused), Some(403));
    let secrets = view.get("/api/v1/namespaces/default/secrets").await;
    assert_eq!(status_of(secrets), Some(403));

    // What Keyferry would never issue, the file refuses: the hub's key alone is not enough.
    let file_refuses = async |account: &str, audiences: &[&str], seconds| -> TestResult {
        let token = hub
            .token_request(namespace, account, audiences, seconds)
            .await?;
        let answer = target.as_bearer(&token.token)?.get(CONFIGMAPS).await;
        assert_eq!(
            status_of(answer),
            Some(401),
            "{account} {audiences:?} {seconds}"
        );
        Ok(())
    };
    file_refuses("outsider", &[ROLE], 600).await?;
    file_refuses("agent", &[BASE, ROLE], 600).await?;
    file_refuses("agent", &[ROLE], 7200).await?;
    let stranger = caller_token(hub, namespace, "outsider").await?;
    let granted = broker
        .exchange_in_time(&stranger, &access("outside"))
        .await?;
    let answer = target.as_bearer(&granted.token()?)?.get(CONFIGMAPS).await;
    assert_eq!(
        status_of(answer),
        Some(401),
        "allow[] of the hub is not enough"
    );
    let denied = broker.exchange(&stranger, &access("view")).await?;
    assert_eq!((denied.status, denied.body.as_str()), (400, NOT_GRANTED));

    let scoped = async |token: &str, name: &str, scope: &str| {
        let mut form = exchange_form(token, &access(name));
        form.push(("scope", scope.to_owned()));
        broker.post_form(&form).await
    };
    assert_eq!(scoped(&own, "view", "view").await?.status, 200);
    for (name, scope) in [("view", "edit"), ("view", "view edit"), ("all", "view")] {
        let answer = scoped(&own, name, scope).await?;
        assert_eq!(answer.status, 400, "{name} {scope}");
        assert!(
            answer.body.contains("scope is not supported"),
            "{}",
            answer.body
        );
    }
    let stranger = scoped(&stranger, "view", "edit").await?;
    assert_eq!(
        stranger.body, NOT_GRANTED,
        "a stranger learns nothing of the role"
    );

    it_comes_and_goes_under_load(&broker, &own, &[access("all"), access("view")]).await?;
    broker
        .reconfigure(|targets, _| targets[0].further.push_str("  suspend: true\n"))
        .await?;
    for name in ["all", "view"] {
        let answer = broker.exchange(&own, &access(name)).await?;
        assert_eq!(
            (answer.status, reason(&broker, &answer)?.as_str()),
            (503, "TargetSuspended")
        );
    }
    Ok(())
}

/// Suspends the role, removes it with its access, and adds both again, while a caller exchanges for
/// the base without a pause.
async fn it_comes_and_goes_under_load(
    broker: &Broker,
    own: &str,
    [all, view]: &[String; 2],
) -> TestResult {
    let load = Load::start(broker, vec![(own.to_owned(), all.clone()); 4]);
    let answers = async |expected: &str| -> TestResult {
        let answer = broker.exchange(own, view).await?;
        let reason = reason(broker, &answer)?;
        assert_eq!(reason, expected, "{}", answer.body);
        Ok(())
    };
    for _ in 0..3 {
        broker
            .reconfigure(|targets, _| targets[1].further.push_str("  suspend: true\n"))
            .await?;
        answers("TargetSuspended").await?;
        let mut removed = None;
        broker
            .reconfigure(|targets, accesses| {
                let role_of = |access: &Access| access.target == targets[1].name;
                let (of_role, others) = accesses.drain(..).partition(role_of);
                *accesses = others;
                removed = Some((targets.remove(1), of_role));
            })
            .await?;
        answers("TargetNotGranted").await?;
        let (mut role, of_role): (Target, Vec<Access>) = removed.ok_or("no role")?;
        role.further = role.further.replace("  suspend: true\n", "");
        broker
            .reconfigure(|targets, accesses| {
                targets.push(role);
                accesses.extend(of_role);
            })
            .await?;
        assert_eq!(broker.exchange(own, view).await?.status, 200);
    }
    let exchanges = load.stop().await?;
    assert!(
        exchanges > 10,
        "{exchanges} exchanges for the base meanwhile"
    );
    Ok(())
}
