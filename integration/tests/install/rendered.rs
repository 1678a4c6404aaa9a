//! Tests the rendered manifests, before they reach a cluster.

use std::sync::Arc;

use keyferry_integration::keyferry_process::KeyferryBinary;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::shipped;
use serde_json::{Value, json};

use super::helm::{helm, template};
use super::manifests::{Objects, assert_same, objects, of_kinds, without_packaging};
use super::setup::{Hubs, NAMESPACE, chart, kubectl, values};

const RBAC: [&str; 4] = ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];

pub(crate) async fn the_chart_passes_lint(hubs: Arc<Hubs>) -> TestResult {
    for name in ["minimal", "tenants", "everywhere", "everything"] {
        let said = helm(
            hubs.fleet(),
            None,
            &["lint", "--strict", &chart(), "-f", &values(name)],
        )
        .await?
        .success()?;
        assert!(
            said.contains("1 chart(s) linted, 0 chart(s) failed") && !said.contains("[WARNING]"),
            "{name}: {said}"
        );
    }
    Ok(())
}

/// Settings beside the minimal values, each with a part of Helm's error.
const BAD: &[(&str, &str)] = &[
    ("hubName=", "hubName"),
    ("hubName=Hub_1", "hubName"),
    ("publicURL=http://keyferry.example.com", "publicURL"),
    ("publicURL=https://keyferry.example.com/path", "publicURL"),
    ("publicURL=https://user@keyferry.example.com", "publicURL"),
    ("unknown=1", "unknown"),
    ("rbac.mint=Everywhere", "mint"),
    ("rbac.tenantNamespaces={Tenant-A}", "tenantNamespaces"),
    ("rbac.tenantNamespaces={*}", "tenantNamespaces"),
    (
        "rbac.tenantNamespaces={keyferry-system}",
        "Keyferry's own namespace",
    ),
    ("replicas=0", "replicas"),
    ("replicas=two", "replicas"),
    ("crds.install=true", "install"),
    ("config.api.address=0.0.0.0:1", "api"),
    (
        "config.maxStaleAuthorization=5 minutes",
        "maxStaleAuthorization",
    ),
    ("config.callerAudience=a b", "callerAudience"),
    ("config.audit.file=/etc/passwd", "file"),
    ("image.digest=sha256:abc", "digest"),
    ("tls.api.certificate.enabled=true", "issuerRef"),
    ("tls.metrics.certificate.enabled=true", "issuerRef"),
    ("tls.metrics.enabled=perhaps", "enabled"),
    ("service.discovery.type=ExternalName", "type"),
    ("service.discovery.httpRedirect=8081", "httpRedirect"),
    ("hubToken.expirationSeconds=60", "expirationSeconds"),
    ("networkPolicy.metricsFrom[0].everybody=true", "metricsFrom"),
    ("clusterResourceNamespace=a/b", "clusterResourceNamespace"),
];

pub(crate) async fn bad_values_are_refused(hubs: Arc<Hubs>) -> TestResult {
    let minimal = values("minimal");
    for (set, expected) in BAD {
        let said = template(hubs.fleet(), &["-f", &minimal, "--set", set]).await?;
        assert!(
            !said.good && said.stderr.contains(expected),
            "{set}: {}{}",
            said.stdout,
            said.stderr
        );
    }
    let said = template(hubs.fleet(), &["--set", "hubName=hub"]).await?;
    assert!(
        !said.good && said.stderr.contains("publicURL"),
        "without publicURL: {}",
        said.stderr
    );
    Ok(())
}

pub(crate) async fn base_and_chart_are_the_same_objects(hubs: Arc<Hubs>) -> TestResult {
    let mut base = without_packaging(kustomized(&hubs, "base").await?)?;
    let namespace = base.remove(&("Namespace".to_owned(), String::new(), NAMESPACE.to_owned()));
    assert!(namespace.is_some_and(
        |namespace| namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
            == "restricted"
    ));
    let chart = without_packaging(
        charted(
            &hubs,
            &["-f", &values("minimal"), "--set", "crds.enabled=true"],
        )
        .await?,
    )?;
    assert_same(&base, &chart);
    assert!(base.len() > 15, "{} objects were compared", base.len());
    Ok(())
}

pub(crate) async fn mint_everywhere_is_cluster_wide_minting(hubs: Arc<Hubs>) -> TestResult {
    let overlay = of_kinds(&kustomized(&hubs, "mint-everywhere").await?, &RBAC);
    let chart = of_kinds(
        &charted(&hubs, &["-f", &values("everywhere")]).await?,
        &RBAC,
    );
    assert_same(
        &without_packaging(overlay.clone())?,
        &without_packaging(chart)?,
    );
    let minter = overlay.get(&(
        "ClusterRoleBinding".to_owned(),
        String::new(),
        "keyferry-minter".to_owned(),
    ));
    assert!(
        minter.is_some_and(|binding| binding["roleRef"]["name"] == "keyferry-minter"),
        "{minter:?}"
    );
    Ok(())
}

pub(crate) async fn a_tenant_is_bound_alike(hubs: Arc<Hubs>) -> TestResult {
    let own = kustomized(&hubs, "tenant").await?;
    let chart = charted(&hubs, &["-f", &values("tenants")]).await?;
    let name = (
        "RoleBinding".to_owned(),
        "tenant-a".to_owned(),
        "keyferry-minter".to_owned(),
    );
    let only = |objects: &Objects| {
        objects
            .iter()
            .filter(|(key, _)| **key == name)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    assert_same(&without_packaging(own)?, &without_packaging(only(&chart))?);
    let none = charted(
        &hubs,
        &["-f", &values("tenants"), "--set", "rbac.mint=None"],
    )
    .await?;
    assert!(
        !none
            .keys()
            .any(|(kind, _, name)| kind.ends_with("Binding") && name == "keyferry-minter"),
        "None binds nothing"
    );
    Ok(())
}

pub(crate) async fn the_chart_renders_the_shipped_crds(hubs: Arc<Hubs>) -> TestResult {
    let kept = charted(&hubs, &["-f", &values("tenants")]).await?;
    let crds = of_kinds(&kept, &["CustomResourceDefinition"]);
    let mut shipped_crds = Objects::new();
    for name in ["audiencepairings", "targetaccesses", "targetclusters"] {
        shipped_crds.extend(objects(&std::fs::read_to_string(
            shipped("broker/crds").join(format!("{name}.yaml")),
        )?)?);
    }
    let policies: Vec<&Value> = crds
        .values()
        .map(|crd| &crd["metadata"]["annotations"]["helm.sh/resource-policy"])
        .collect();
    assert_eq!(policies, vec!["keep"; 3]);
    assert_same(&shipped_crds, &without_labels(&crds)?);
    let gone = of_kinds(
        &charted(&hubs, &["-f", &values("everywhere")]).await?,
        &["CustomResourceDefinition"],
    );
    assert!(
        gone.len() == 3
            && gone
                .values()
                .all(|crd| crd["metadata"]["annotations"].is_null()),
        "crds.keep=false keeps nothing"
    );
    let absent = of_kinds(
        &charted(&hubs, &["-f", &values("minimal")]).await?,
        &["CustomResourceDefinition"],
    );
    assert!(absent.is_empty(), "crds.enabled is off by default");
    Ok(())
}

fn without_labels(objects: &Objects) -> Result<Objects, TestError> {
    let mut plain = without_packaging(objects.clone())?;
    for object in plain.values_mut() {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("labels");
        }
    }
    Ok(plain)
}

pub(crate) async fn all_values_are_rendered_and_taken(hubs: Arc<Hubs>) -> TestResult {
    let file = values("everything");
    let all = charted(&hubs, &["-f", &file]).await?;
    let object = |kind: &str, name: &str| {
        let found = all
            .iter()
            .find(|((k, _, n), _)| k == kind && n == name)
            .map(|(_, object)| object);
        found.ok_or_else(|| TestError::from(format!("no {kind} {name}")))
    };
    let values: Value = serde_saphyr::from_str(&std::fs::read_to_string(&file)?)?;
    let config: Value = serde_saphyr::from_str(
        object("ConfigMap", "keyferry-config")?["data"]["config.yaml"]
            .as_str()
            .unwrap_or_default(),
    )?;
    for field in [
        "callerAudience",
        "canaryServiceAccount",
        "hub",
        "maxStaleAuthorization",
        "requirePodBound",
        "managedIssuers",
        "inputs",
        "audit",
    ] {
        assert_eq!(config[field], values["config"][field], "{field}");
    }
    assert_eq!(
        config["discovery"]["maxAge"],
        values["config"]["discovery"]["maxAge"]
    );
    for listener in ["discovery", "api"] {
        assert_eq!(
            config[listener]["limits"], values["config"][listener]["limits"],
            "{listener}"
        );
    }
    assert_eq!(
        config["clusterResourceNamespace"],
        values["clusterResourceNamespace"]
    );
    assert_eq!(
        (&config["hubName"], &config["publicURL"]),
        (&values["hubName"], &values["publicURL"])
    );

    let pod = &object("Deployment", "keyferry")?["spec"]["template"]["spec"];
    // Keyferry reads the serving certificates from the hub, so their Secrets are not mounted.
    let token = &pod["volumes"][1]["projected"]["sources"][0]["serviceAccountToken"];
    assert_eq!(
        *token,
        json!({ "path": "token", "expirationSeconds": 600, "audience": "https://hub.example.com" })
    );
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert!(
        pod["containers"][0]["image"]
            .as_str()
            .is_some_and(|image| image.starts_with("keyferry@sha256:0000"))
    );
    assert_eq!(
        object("ServiceAccount", "canary")?["metadata"]["namespace"],
        "keyferry-state"
    );
    assert_eq!(
        object("Role", "keyferry")?["metadata"]["namespace"],
        "keyferry-state"
    );
    assert_eq!(
        (&config["discovery"]["tls"], &config["api"]["tls"]),
        (
            &json!({ "minVersion": "1.2", "secretName": "keyferry-discovery-tls" }),
            &json!({ "secretName": "own-tls" })
        )
    );
    let watched = object("Role", "keyferry-tls-secrets")?;
    assert_eq!(
        (
            &watched["metadata"]["namespace"],
            &watched["rules"][0]["resourceNames"],
            &watched["rules"][0]["verbs"]
        ),
        (
            &json!("keyferry-state"),
            &json!(["keyferry-discovery-tls", "own-tls", "keyferry-metrics-tls"]),
            &json!(["get", "watch"])
        )
    );
    assert_eq!(
        object("Certificate", "keyferry-api")?["metadata"]["namespace"],
        "keyferry-state"
    );
    let own_keys = &object("Role", "keyferry-managed-issuers")?["rules"];
    assert_eq!(
        own_keys[0]["resourceNames"],
        json!(["keyferry-issuer-prod", "keyferry-issuer-edge-1"])
    );
    assert_eq!(
        object("Certificate", "keyferry-discovery")?["spec"]["dnsNames"],
        json!(["keyferry.example.com"])
    );
    assert_eq!(
        object("Certificate", "keyferry-api")?["spec"]["dnsNames"],
        json!(["keyferry.internal"])
    );
    let scrape = &object("ServiceMonitor", "keyferry")?["spec"]["endpoints"][0];
    assert_eq!(scrape["interval"], "1m");
    assert_eq!(
        (&scrape["scheme"], &scrape["tlsConfig"]),
        (
            &json!("https"),
            &json!({
                "serverName": "keyferry-metrics.keyferry-system.svc",
                "ca": { "secret": { "name": "keyferry-metrics-tls", "key": "ca.crt" } },
            })
        )
    );
    assert_eq!(
        object("Certificate", "keyferry-metrics")?["spec"]["dnsNames"],
        json!(["keyferry-metrics.keyferry-system.svc"])
    );
    assert_eq!(
        (&config["metrics"], &config["discovery"]["httpAddress"]),
        (
            &json!({ "address": "0.0.0.0:8444", "tls": { "secretName": "keyferry-metrics-tls" } }),
            &json!("0.0.0.0:8081")
        )
    );
    let redirect = json!({ "name": "http", "port": 80, "targetPort": "http" });
    assert_eq!(
        object("Service", "keyferry-discovery")?["spec"]["ports"][1],
        redirect
    );
    let ports =
        object("Deployment", "keyferry")?["spec"]["template"]["spec"]["containers"][0]["ports"]
            .to_string();
    for port in ["\"http\"", "\"metrics\""] {
        assert!(ports.contains(port), "{port}: {ports}");
    }
    let admitted = object("NetworkPolicy", "keyferry")?["spec"]["ingress"].to_string();
    assert!(
        admitted.contains("\"http\"")
            && admitted.contains("\"metrics\"")
            && !admitted.contains("health"),
        "{admitted}"
    );
    let aggregated = all.values().any(|object| {
        object["metadata"]["labels"]
            .to_string()
            .contains("aggregate-to")
    });
    assert!(!aggregated, "rbac.aggregate is false");

    // A real apiserver accepts all of it, except for the two kinds that other projects define.
    let known: Vec<Value> = all
        .into_values()
        .filter(|object| {
            !["Certificate", "ServiceMonitor"]
                .contains(&object["kind"].as_str().unwrap_or_default())
        })
        .collect();
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": known });
    let file = hubs.fleet().folder().join("everything.json");
    std::fs::write(&file, list.to_string())?;
    hubs.base.create_namespace("keyferry-state").await?;
    let said = kubectl(
        &hubs.base,
        &[
            "apply",
            "--server-side",
            "--force-conflicts",
            "--dry-run=server",
            "-f",
            &file.display().to_string(),
        ],
    )
    .await?;
    assert!(
        said.contains("deployment.apps/keyferry serverside-applied"),
        "{said}"
    );
    Ok(())
}

pub(crate) async fn keyferry_takes_the_configurations(hubs: Arc<Hubs>) -> TestResult {
    let keyferry = KeyferryBinary::build().await?;
    let mut configurations = vec![(
        "base".to_owned(),
        std::fs::read_to_string(shipped("examples/install/base/config.yaml"))?,
    )];
    for name in ["minimal", "tenants", "everywhere", "everything"] {
        let rendered = charted(&hubs, &["-f", &values(name)]).await?;
        let config = rendered.get(&(
            "ConfigMap".to_owned(),
            NAMESPACE.to_owned(),
            "keyferry-config".to_owned(),
        ));
        let text = config
            .and_then(|config| config["data"]["config.yaml"].as_str())
            .ok_or("no ConfigMap")?;
        configurations.push((name.to_owned(), text.to_owned()));
    }
    for (name, text) in configurations {
        let file = hubs.fleet().folder().join(format!("{name}-config.yaml"));
        std::fs::write(&file, text)?;
        let output = keyferry
            .run(
                &["serve", "--check", "--config", &file.display().to_string()],
                &[],
            )
            .await?;
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(
            output.status.success() && said.contains("no mistakes"),
            "{name}: {said}"
        );
    }
    Ok(())
}

pub(crate) async fn admission_policies_are_rendered_for_the_release(hubs: Arc<Hubs>) -> TestResult {
    let (chart, minimal) = (chart(), values("minimal"));
    let served = ["--api-versions", "keyferry.dev/v1alpha1/AudiencePairing"];
    let mut render = vec![
        "template",
        "keyferry",
        &chart,
        "-n",
        "elsewhere",
        "-f",
        &minimal,
        "--set",
        "admissionPolicies.enabled=true",
    ];
    let too_early = helm(hubs.fleet(), None, &render).await?;
    assert!(
        !too_early.good && too_early.stderr.contains("the CRDs to be there"),
        "the pairing kind is not served yet"
    );
    render.extend(served);
    let said = helm(hubs.fleet(), None, &render).await?;
    let folder = shipped("examples/helm/keyferry/files/admission-policies");
    if !folder.exists() {
        assert!(
            !said.good
                && said
                    .stderr
                    .contains("this chart holds no admission policies"),
            "an admission policy that is not there is not left out in silence"
        );
        return Ok(());
    }
    let text = said.success()?;
    let rendered = objects(&text)?;
    let admission_policies: Vec<&Value> = rendered
        .values()
        .filter(|object| object["kind"].to_string().contains("ValidatingAdmission"))
        .collect();
    let file = hubs.fleet().folder().join("admission policies.json");
    std::fs::write(
        &file,
        json!({ "apiVersion": "v1", "kind": "List", "items": admission_policies }).to_string(),
    )?;
    let said = kubectl(
        &hubs.base,
        &[
            "apply",
            "--server-side",
            "--dry-run=server",
            "-f",
            &file.display().to_string(),
        ],
    )
    .await?;
    assert_eq!(
        said.lines().count(),
        admission_policies.len(),
        "a real apiserver takes each: {said}"
    );
    for entry in std::fs::read_dir(folder)? {
        for ((kind, _, name), object) in objects(&std::fs::read_to_string(entry?.path())?)? {
            let found = rendered
                .iter()
                .find(|((k, _, n), _)| *k == kind && *n == name)
                .map(|(_, found)| found.to_string());
            assert_eq!(
                found,
                Some(object.to_string().replace(NAMESPACE, "elsewhere")),
                "{kind} {name}"
            );
        }
    }
    // The hub's own audiences and Keyferry's, if they are given.
    let own = "admissionPolicies.hubAudiences={https://hub.example.com,api},config.callerAudience=callers.example.com";
    render.extend(["--set", own]);
    let filled = helm(hubs.fleet(), None, &render).await?.success()?;
    assert_eq!(
        filled.matches("['https://hub.example.com', 'api']").count(),
        3,
        "{filled}"
    );
    assert_eq!(
        filled.matches("\"'callers.example.com'\"").count(),
        2,
        "{filled}"
    );
    assert!(!filled.contains("'k3s'"), "{filled}");
    assert!(filled.contains("resources: [audiences], verbs: [mint]"));
    render.extend([
        "--set",
        "admissionPolicies.mintableAudiences={https://a.example.com}",
    ]);
    let limited = helm(hubs.fleet(), None, &render).await?.success()?;
    let expected =
        "resources: [audiences], resourceNames: [\"https://a.example.com\"], verbs: [mint]";
    assert!(limited.contains(expected), "{limited}");
    assert!(!limited.contains("resources: [audiences], verbs: [mint]"));
    for (set, expected) in [
        ("crds.enabled=true,crds.keep=false", "needs crds.keep"),
        ("clusterResourceNamespace=state", "one namespace"),
        ("config.canaryServiceAccount=canary", "keyferry-canary"),
        ("admissionPolicies.hubAudiences={a'b}", "hubAudiences"),
    ] {
        let said = template(
            hubs.fleet(),
            &[
                "-f",
                &minimal,
                "--set",
                "admissionPolicies.enabled=true",
                "--set",
                set,
                served[0],
                served[1],
            ],
        )
        .await?;
        assert!(
            !said.good && said.stderr.contains(expected),
            "{set}: {}",
            said.stderr
        );
    }
    Ok(())
}

/// The objects that `helm template` renders.
pub(crate) async fn charted(hubs: &Hubs, more: &[&str]) -> Result<Objects, TestError> {
    objects(&template(hubs.fleet(), more).await?.success()?)
}

/// The objects that `kubectl kustomize` builds from a folder of examples/install.
pub(crate) async fn kustomized(hubs: &Hubs, folder: &str) -> Result<Objects, TestError> {
    let folder = shipped("examples/install")
        .join(folder)
        .display()
        .to_string();
    objects(&kubectl(&hubs.base, &["kustomize", &folder]).await?)
}
