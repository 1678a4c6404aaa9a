//! The impersonation matrix on real kube-apiservers and on the embedded target, which must answer
//! every cell alike. It shares the fleet of `control_planes`.
//!
//! `KEYFERRY_WRITE_COPIES=1 cargo test --workspace --test suites -- control_planes::impersonation`
//! records what kube-apiserver answers, for the unit test of the embedded target.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use futures::future::try_join_all;
use http::Method;
use keyferry_integration::control_plane::{ControlPlane, Whom};
use keyferry_integration::documents::repository;
use keyferry_integration::fleet::Fleet;
use keyferry_integration::parts::Minor;
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::rest::RestClient;
use keyferry_integration::runner::{Suite, TestError, TestResult};
use keyferry_testing::impersonation_matrix::{
    Answer, NAMESPACES, NODE, RBAC, REQUESTORS, REQUESTORS_NAMESPACE, Requestor, answers,
    comparable, differences, recorded, recorded_since, to_lines,
};
use keyferry_testing::{Authority, EmbeddedTarget, RbacPolicy, TargetOptions};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

type Answers = BTreeMap<String, Answer>;
/// The rules that a SelfSubjectRulesReview gives each requestor.
type Rules = BTreeMap<String, Vec<String>>;

/// Adds the tests to the suite that owns the fleet.
pub(crate) fn tests(suite: Suite<Fleet>) -> Suite<Fleet> {
    suite
        .test("impersonation_matches_the_newest", |fleet| {
            matches(fleet, "target-new", Minor::newest())
        })
        .test("impersonation_matches_1_33", |fleet| {
            matches(fleet, "target-old", Minor::V1_33)
        })
        .test("impersonation_example_legacy_on_the_newest", |fleet| {
            example(fleet, "target-new", &LEGACY, true)
        })
        .test("impersonation_example_legacy_on_1_33", |fleet| {
            example(fleet, "target-old", &LEGACY, true)
        })
        .test("impersonation_example_constrained_on_the_newest", |fleet| {
            example(fleet, "target-new", &CONSTRAINED, true)
        })
        .test("impersonation_example_constrained_on_1_33", |fleet| {
            example(fleet, "target-old", &CONSTRAINED, false)
        })
}

async fn matches(fleet: Arc<Fleet>, target: &'static str, minor: Minor) -> TestResult {
    let minor = minor.number();
    let plane = fleet.control_plane(target)?;
    let started = Instant::now();
    let (real, real_rules) = of_real(&plane).await?;
    let (embedded, embedded_rules) = of_embedded(minor).await?;
    assert!(real_rules.values().any(|rules| !rules.is_empty()));
    assert_eq!(real_rules, embedded_rules, "kubectl auth can-i --list");
    let (real, embedded) = (comparable(minor, real), comparable(minor, embedded));
    eprintln!("1.{minor}: {} cells, {:?}", real.len(), started.elapsed());
    must_be_equal(&real, &embedded, "kube-apiserver", "the embedded target")?;
    if std::env::var_os("KEYFERRY_WRITE_COPIES").is_some_and(|value| value == "1") {
        std::fs::write(recorded_file(minor), to_lines(&real)?)?;
        return Ok(());
    }
    must_be_equal(
        &real,
        &recorded(minor),
        "kube-apiserver",
        "the recorded file",
    )
}

async fn of_real(plane: &ControlPlane) -> Result<(Answers, Rules), TestError> {
    for namespace in NAMESPACES {
        plane.create_namespace(namespace).await?;
    }
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE } });
    let path = format!("/api/v1/nodes/{NODE}");
    let node_uid = plane.admin().apply(&path, &node).await?["metadata"]["uid"].clone();
    let manifest = plane.folder().join("impersonation-matrix.yaml");
    std::fs::write(&manifest, RBAC)?;
    apply_manifests(plane, &[&manifest]).await?;
    until_all_count(plane).await?;
    let node_uid = node_uid.as_str().unwrap_or_default();
    let tokens = REQUESTORS
        .into_iter()
        .map(|requestor| token(plane, requestor, node_uid));
    let tokens = try_join_all(tokens).await?.into_iter().collect();
    let anonymous = RestClient::anonymous(&plane.url(), plane.ca_pem())?;
    let answers = answers(anonymous.http(), &plane.url(), &tokens).await?;
    Ok((answers, rules(&anonymous, &plane.url(), &tokens).await?))
}

/// What `kubectl auth can-i --list` shows each requestor, without what it shows every ServiceAccount
/// there: a real target also has roles of Kubernetes that the embedded one does without.
async fn rules(
    client: &RestClient,
    server: &str,
    tokens: &BTreeMap<String, SecretString>,
) -> Result<Rules, TestError> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": { "namespace": "apps" },
    });
    let mut all = BTreeMap::new();
    for (name, token) in tokens {
        let answer = client
            .http()
            .post(format!(
                "{server}/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
            ))
            .bearer_auth(token.expose_secret())
            .json(&review)
            .send()
            .await?;
        assert_eq!(answer.status(), 201, "{name}");
        let status = answer.json::<Value>().await?["status"].clone();
        assert_eq!(status["incomplete"], false, "{name}: {status}");
        assert!(status["evaluationError"].is_null(), "{name}: {status}");
        let mut rules: Vec<String> = ["resourceRules", "nonResourceRules"]
            .iter()
            .filter_map(|kind| status[kind].as_array())
            .flatten()
            .map(described)
            .collect();
        rules.sort();
        all.insert(name.clone(), rules);
    }
    let everybodys = all.remove("nobody").unwrap_or_default();
    assert!(!everybodys.is_empty(), "each may ask about itself");
    for rules in all.values_mut() {
        rules.retain(|rule| !everybodys.contains(rule));
    }
    Ok(all)
}

/// Waits for the last object of each kind. The authorizer sees the objects of one kind in the order
/// in which they were written.
async fn until_all_count(plane: &ControlPlane) -> TestResult {
    let last = format!("system:serviceaccount:{REQUESTORS_NAMESPACE}:legacy-and-constrained");
    let group = "authentication.k8s.io";
    for (user, namespace, rule) in [
        (
            last.as_str(),
            "apps",
            json!({
                "apiGroups": [group], "resources": ["serviceaccounts"],
                "resourceNames": ["deployer"], "verbs": ["impersonate:serviceaccount"],
            }),
        ),
        (
            last.as_str(),
            "",
            json!({
                "apiGroups": [group], "resources": ["selfsubjectreviews"],
                "verbs": ["impersonate-on:serviceaccount:create"],
            }),
        ),
        (
            "jane",
            "",
            json!({ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["list"] }),
        ),
    ] {
        plane
            .until_it_counts(Whom::User(user), namespace, &rule)
            .await?;
    }
    Ok(())
}

async fn token(
    plane: &ControlPlane,
    requestor: Requestor,
    node_uid: &str,
) -> Result<(String, SecretString), TestError> {
    plane
        .create_service_account(REQUESTORS_NAMESPACE, requestor.name)
        .await?;
    let mut request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": { "expirationSeconds": 600 },
    });
    if requestor.on_node {
        request["spec"]["boundObjectRef"] =
            json!({ "apiVersion": "v1", "kind": "Node", "name": NODE, "uid": node_uid });
    }
    let path = format!(
        "/api/v1/namespaces/{REQUESTORS_NAMESPACE}/serviceaccounts/{}/token",
        requestor.name
    );
    let answer = plane.admin().create(&path, &request).await?;
    let token = answer["status"]["token"].as_str().unwrap_or_default();
    Ok((requestor.name.to_owned(), SecretString::from(token)))
}

/// The parts of a rule, in one order.
fn described(rule: &Value) -> String {
    let parts = [
        "verbs",
        "apiGroups",
        "resources",
        "resourceNames",
        "nonResourceURLs",
    ];
    parts.map(|part| rule[part].to_string()).join(" ")
}

async fn of_embedded(minor: u16) -> Result<(Answers, Rules), TestError> {
    let authority = Authority::new("keyferry impersonation CA")?;
    // No token of an issuer is sent, so its issuer is never asked.
    let issuer = "https://hub.keyferry.test";
    let target = EmbeddedTarget::start(TargetOptions {
        rbac: Some(RbacPolicy::from_yaml(RBAC)?),
        minor,
        ..TargetOptions::new(issuer, "none", "hub:", authority.ca_pem())
    })
    .await?;
    let mut tokens = BTreeMap::new();
    for requestor in REQUESTORS {
        let token = target.add_own_user(requestor.user())?;
        tokens.insert(requestor.name.to_owned(), token);
    }
    let anonymous = RestClient::anonymous(target.url(), target.ca_pem())?;
    let answers = answers(anonymous.http(), target.url(), &tokens).await?;
    Ok((answers, rules(&anonymous, target.url(), &tokens).await?))
}

fn must_be_equal(left: &Answers, right: &Answers, one: &str, other: &str) -> TestResult {
    let differences = differences(left, right);
    if differences.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} of {} cells differ; first {one}, then {other}\n{}",
        differences.len(),
        left.len(),
        differences.join("\n")
    )
    .into())
}

fn recorded_file(minor: u16) -> PathBuf {
    repository().join(format!(
        "broker/testing/src/impersonation_matrix/1.{}.jsonl",
        recorded_since(minor)
    ))
}

/// A file of examples/impersonation.
struct Example {
    file: &'static str,
    /// The namespace that replaces `tenant-a`, so that both files fit on one target.
    tenant: &'static str,
    /// Whether a right that the ServiceAccount gets later is the hub user's too.
    passes_later_rights_on: bool,
}

const LEGACY: Example = Example {
    file: "legacy.yaml",
    tenant: "imp-legacy",
    passes_later_rights_on: true,
};
const CONSTRAINED: Example = Example {
    file: "constrained.yaml",
    tenant: "imp-constrained",
    passes_later_rights_on: false,
};

impl Example {
    fn apps(&self) -> String {
        format!("{}-apps", self.tenant)
    }

    fn hub_user(&self) -> String {
        format!("hub:system:serviceaccount:{}:reconciler", self.tenant)
    }

    fn deployer(&self) -> String {
        format!("system:serviceaccount:{}:deployer", self.tenant)
    }

    /// The file with the names of this test.
    fn manifest(&self) -> std::io::Result<String> {
        let path = repository().join("examples/impersonation").join(self.file);
        let text = std::fs::read_to_string(path)?;
        Ok(text
            .replace("tenant-a", self.tenant)
            .replace(
                "namespace: apps\n",
                &format!("namespace: {}\n", self.apps()),
            )
            .replace("name: apps\n", &format!("name: {}\n", self.apps())))
    }

    /// The rules after which everything of the file and of [`LATER`] counts.
    fn last_rules(&self) -> Vec<(String, String, Value)> {
        let rule = |group: &str, resource: &str, verb: &str| json!({ "apiGroups": [group], "resources": [resource], "verbs": [verb] });
        let (user, deployer) = (self.hub_user(), self.deployer());
        let ping = json!({ "nonResourceURLs": ["/livez/ping"], "verbs": ["head"] });
        let mut rules = vec![
            (user.clone(), String::new(), ping),
            (
                deployer.clone(),
                self.apps(),
                rule("", "configmaps", "create"),
            ),
            (deployer, self.apps(), rule("", "secrets", "list")),
        ];
        if !self.passes_later_rights_on {
            let on = rule("", "configmaps", "impersonate-on:serviceaccount:create");
            rules.push((user, self.apps(), on));
        }
        rules
    }
}

/// A right that the ServiceAccount gets after the example was applied.
const LATER: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: later, namespace: APPS}
rules:
- {apiGroups: [''], resources: [secrets], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: later, namespace: APPS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: later}
subjects:
- {kind: ServiceAccount, name: deployer, namespace: TENANT}
";

async fn example(
    fleet: Arc<Fleet>,
    target: &'static str,
    example: &'static Example,
    works: bool,
) -> TestResult {
    let plane = fleet.control_plane(target)?;
    let (tenant, apps) = (example.tenant, example.apps());
    let file = plane.folder().join(format!("{tenant}.yaml"));
    let later = LATER.replace("APPS", &apps).replace("TENANT", tenant);
    std::fs::write(&file, format!("{}---{later}", example.manifest()?))?;
    apply_manifests(&plane, &[&file]).await?;
    for (user, namespace, rule) in example.last_rules() {
        plane
            .until_it_counts(Whom::User(&user), &namespace, &rule)
            .await?;
    }
    let certificate = plane.ca().client(&example.hub_user(), "tenants")?;
    let hub_user = RestClient::with_certificate(&plane.url(), plane.ca_pem(), &certificate)?;
    let send = async |method: Method, path: &str, user: &str, body: Option<Value>| {
        let mut request = hub_user.request(method, path);
        if !user.is_empty() {
            request = request.header("Impersonate-User", user);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        let status = request.send().await?.status().as_u16();
        Ok::<u16, TestError>(status)
    };
    let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review =
        || Some(json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" }));
    let core = |resource: &str| format!("/api/v1/namespaces/{apps}/{resource}");
    let config_map = |name: &str| {
        Some(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } }))
    };
    let deployer = example.deployer();
    let other = format!("system:serviceaccount:{tenant}:other");
    let when = |allowed: bool, status: u16| if allowed { status } else { 403 };
    let later = works && example.passes_later_rights_on;
    let config_maps = core("configmaps");
    let object_path = format!("{config_maps}/one");
    let probe = "/livez/ping";
    for (what, found, expected) in [
        (
            "be the deployer",
            send(Method::POST, reviews, &deployer, review()).await?,
            when(works, 201),
        ),
        (
            "be another",
            send(Method::POST, reviews, &other, review()).await?,
            403,
        ),
        (
            "be a master",
            send(Method::POST, reviews, "kubernetes-admin", review()).await?,
            403,
        ),
        (
            "read the API's groups as the deployer",
            send(Method::GET, "/apis", &deployer, None).await?,
            when(works, 200),
        ),
        (
            "create a ConfigMap as the deployer",
            send(Method::POST, &config_maps, &deployer, config_map("one")).await?,
            when(works, 201),
        ),
        (
            "delete it as the deployer",
            send(Method::DELETE, &object_path, &deployer, None).await?,
            when(works, 200),
        ),
        (
            "create a ConfigMap as itself",
            send(Method::POST, &config_maps, "", config_map("two")).await?,
            403,
        ),
        (
            "use a later right of the deployer",
            send(Method::GET, &core("secrets"), &deployer, None).await?,
            when(later, 200),
        ),
        (
            "list all namespaces as the deployer",
            send(Method::GET, "/api/v1/namespaces", &deployer, None).await?,
            403,
        ),
        ("probe", send(Method::HEAD, probe, "", None).await?, 200),
    ] {
        if found != expected {
            let file = example.file;
            return Err(format!("{file}: to {what} gives {found}, not {expected}").into());
        }
    }
    Ok(())
}
