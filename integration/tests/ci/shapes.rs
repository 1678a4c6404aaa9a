//! The shapes of external issuers that `externalIssuers` supports: CI systems, rules, algorithms of
//! keys, CAs and paths.

use std::sync::Arc;

use keyferry_integration::ci_issuer::{CiAlgorithm, CiIssuer};
use keyferry_integration::pki::TestCa;
use keyferry_integration::runner::TestError;
use keyferry_integration::world::Ground;
use serde_json::{Map, Value, json};

use super::stage::AUDIENCE;

/// The audience of jobs whose issuer has an entry for another audience too.
pub(crate) const OTHER_AUDIENCE: &str = "https://keyferry-releases.keyferry.test";

/// One kind of external issuer.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    /// The server that signs its tokens.
    pub(crate) issuer: Arc<CiIssuer>,
    /// The claims of a job that its rule admits.
    pub(crate) claims: Value,
    /// The claims that the rule names.
    pub(crate) rule: Map<String, Value>,
    /// The claim with the number of the project.
    pub(crate) id: &'static str,
    /// The claim that names the ref or the environment.
    pub(crate) scope: &'static str,
    /// The claim that names the event.
    pub(crate) event: &'static str,
    /// The name of the ServiceAccount for which the tokens stand.
    pub(crate) account: &'static str,
    /// `maxTokenLifetime`, in seconds.
    pub(crate) longest: i64,
    /// Whether a token may be exchanged once only, so that it needs a `jti`.
    pub(crate) once: bool,
}

impl Shape {
    /// The access of the ServiceAccount for which the tokens stand.
    pub(crate) fn access(&self) -> [&'static str; 2] {
        match self.account {
            "notifier" => ["tenant-a", "own"],
            _ => ["tenant-a", "prod"],
        }
    }
}

/// A shape without the claims that depend on the time.
struct Plan {
    name: &'static str,
    issuer: Arc<CiIssuer>,
    url: String,
    audience: &'static str,
    /// PEM of the CA of the issuer's server.
    authority: String,
    rule: Value,
    /// Claims beside those of the rule.
    further: Value,
    account: &'static str,
    /// Further lines of the entry, as JSON.
    settings: Value,
    /// The claims of the project, of the scope and of the event, if they are not those of GitHub or
    /// GitLab. No event: an empty name.
    names: Option<[&'static str; 3]>,
}

/// The issuers of the shapes. Each server has another algorithm, and the same `kid`.
pub(crate) struct Shapes {
    plans: Vec<Plan>,
}

impl Shapes {
    /// Starts the servers. `main` serves the first three shapes, and some of the others.
    pub(crate) async fn start(
        ground: &Ground,
        main: &Arc<CiIssuer>,
        uid: &str,
    ) -> Result<Self, TestError> {
        let folder = ground.folder().join("private-ca");
        std::fs::create_dir_all(&folder)?;
        let private = TestCa::create("CI system", &folder)?;
        let start = async |ca, algorithm| -> Result<Arc<CiIssuer>, TestError> {
            Ok(Arc::new(CiIssuer::start(ca, algorithm).await?))
        };
        let rsa = start(&private, CiAlgorithm::Rs256).await?;
        let p384 = start(ground.ca(), CiAlgorithm::Es384).await?;
        let p521 = start(ground.ca(), CiAlgorithm::Es512).await?;
        let authority = ground.ca().cert_pem().to_owned();
        let plan = |name, issuer: &Arc<CiIssuer>, path: &str, rule: Value, further: Value| Plan {
            name,
            issuer: Arc::clone(issuer),
            url: issuer.publish(path),
            audience: AUDIENCE,
            authority: authority.clone(),
            rule,
            further,
            account: "reconciler",
            settings: json!({}),
            names: None,
        };
        let github = |rule: Value, further: Value| {
            let mut all = json!({ "event_name": "push", "repository": "example/app" });
            merge(&mut all, &further);
            (rule, all)
        };
        let gitlab = json!({ "job_id": "5", "pipeline_source": "push" });
        let mut plans = Vec::new();
        let (rule, further) = github(
            json!({ "repository_id": "42", "ref": "refs/heads/main" }),
            json!({ "sub": "repo:example/app:ref:refs/heads/main" }),
        );
        plans.push(plan("GitHub's ref", main, "/github", rule, further));
        let (rule, further) = github(
            json!({ "repository_id": "42", "environment": "production" }),
            json!({ "sub": "repo:example/app:environment:production" }),
        );
        plans.push(Plan {
            account: "notifier",
            ..plan("GitHub's environment", main, "/environments", rule, further)
        });
        plans.push(Plan {
            settings: json!({ "tokenUse": "UntilExpiry" }),
            ..plan(
                "GitLab's branch",
                main,
                "/gitlab",
                json!({
                    "project_id": "7", "ref": "main", "ref_type": "branch",
                    "ref_protected": "true",
                }),
                gitlab.clone(),
            )
        });
        let workflow = "example/app/.github/workflows/deploy.yaml@refs/heads/main";
        let (rule, further) = github(
            json!({ "repository_id": "42", "ref": "refs/heads/main" }),
            json!({}),
        );
        let server = "RSA keys, a CA of its own and no path";
        plans.push(Plan {
            authority: private.cert_pem().to_owned(),
            ..plan(server, &rsa, "", rule, further)
        });
        let (rule, further) = github(
            json!({
                "repository_id": "42", "ref": "refs/heads/main", "job_workflow_ref": workflow,
            }),
            json!({ "workflow_ref": "example/app/.github/workflows/all.yaml@refs/heads/main" }),
        );
        plans.push(Plan {
            authority: private.cert_pem().to_owned(),
            ..plan(
                "GitHub's reusable workflow",
                &rsa,
                "/workflows",
                rule,
                further,
            )
        });
        let (rule, further) = github(
            json!({ "repository_id": "42", "ref": "refs/tags/v1" }),
            json!({}),
        );
        plans.push(Plan {
            settings: json!({ "serviceAccount": {
                "namespace": "tenant-a", "name": "reconciler", "uid": uid,
            } }),
            ..plan(
                "GitHub's tag, for a pinned UID",
                &p384,
                "/ci/v1/example",
                rule,
                further,
            )
        });
        let (rule, further) = github(
            json!({
                "repository_id": "42", "environment": "staging", "event_name": "workflow_run",
            }),
            json!({ "ref": "refs/heads/main" }),
        );
        plans.push(plan(
            "GitHub's event by name",
            &p521,
            "/events",
            rule,
            further,
        ));
        plans.push(Plan {
            settings: json!({ "maxTokenLifetime": "2h", "tokenUse": "UntilExpiry" }),
            authority: private.cert_pem().to_owned(),
            ..plan(
                "GitLab's environment",
                &rsa,
                "/gitlab-environments",
                json!({
                    "project_id": "7", "environment": "production",
                    "environment_protected": "true",
                }),
                gitlab.clone(),
            )
        });
        plans.push(plan(
            "GitLab's tag, once",
            &p384,
            "/gitlab-tags",
            json!({ "project_id": "7", "ref": "v1", "ref_type": "tag", "ref_protected": "true" }),
            gitlab.clone(),
        ));
        // Another system, whose tokens have neither GitHub's nor GitLab's other claims.
        let rule = json!({ "repository_id": "42", "ref": "refs/heads/main", "workflow": "deploy" });
        let first = json!({ "repository_id": "41", "ref": "refs/heads/main", "workflow": "test" });
        plans.push(Plan {
            settings: json!({ "rules": [{ "claims": first }, { "claims": rule }] }),
            ..plan(
                "another CI system, with two rules",
                &p521,
                "/other",
                rule,
                json!({ "event_name": "push" }),
            )
        });
        // The issuer of the first shape again, with another audience and account.
        let (rule, further) = github(
            json!({ "repository_id": "42", "ref": "refs/heads/release" }),
            json!({}),
        );
        plans.push(Plan {
            audience: OTHER_AUDIENCE,
            account: "notifier",
            ..plan(
                "a second entry of an issuer",
                main,
                "/github",
                rule,
                further,
            )
        });
        for (name, path, names, settings, rule, further) in system_rows(&gitlab) {
            plans.push(Plan {
                settings,
                names,
                ..plan(name, main, path, rule, further)
            });
        }
        Ok(Self { plans })
    }

    /// The `externalIssuers` of the configuration.
    pub(crate) fn lines(&self) -> String {
        let entries: Vec<String> = self.plans.iter().map(|plan| plan.entry()).collect();
        format!("externalIssuers:\n{}", entries.concat())
    }

    /// The shapes with claims that are valid at this time, in seconds since 1970.
    pub(crate) fn at(&self, now: u64) -> Vec<Shape> {
        self.plans.iter().map(|plan| plan.at(now)).collect()
    }
}

impl Plan {
    /// The entry as a line of YAML, which JSON is.
    fn entry(&self) -> String {
        let mut entry = json!({
            "url": self.url,
            "audience": self.audience,
            "certificateAuthority": self.authority,
            "rules": [{ "claims": self.rule }],
            "serviceAccount": { "namespace": "tenant-a", "name": self.account },
        });
        merge(&mut entry, &self.settings);
        format!("  - {entry}\n")
    }

    fn at(&self, now: u64) -> Shape {
        let mut claims = json!({
            "iss": self.url, "aud": self.audience, "iat": now, "nbf": now - 5, "exp": now + 300,
            "jti": format!("{} {now}", self.url), "run_id": "99", "sub": format!("job of {}", self.name),
        });
        merge(&mut claims, &self.further);
        for (name, value) in self.rule.as_object().into_iter().flatten() {
            set_claim(&mut claims, name, value.clone());
        }
        let has = |name: &str| self.rule.get(name).is_some();
        let is_gitlab = has("project_id");
        let [id, scope, event] = self.names.unwrap_or([
            if is_gitlab {
                "project_id"
            } else {
                "repository_id"
            },
            if has("ref") { "ref" } else { "environment" },
            if is_gitlab {
                "pipeline_source"
            } else {
                "event_name"
            },
        ]);
        Shape {
            name: self.name,
            issuer: Arc::clone(&self.issuer),
            claims,
            rule: self.rule.as_object().cloned().unwrap_or_default(),
            id,
            scope,
            event,
            account: self.account,
            longest: if self.settings["maxTokenLifetime"] == "2h" {
                7200
            } else {
                3600
            },
            once: self.settings["tokenUse"] != "UntilExpiry",
        }
    }
}

/// The name, the path, the project's, the scope's and the event's claim, the settings, the rule and
/// the further claims of a shape.
type SystemRow = (
    &'static str,
    &'static str,
    Option<[&'static str; 3]>,
    Value,
    Value,
    Value,
);

/// A shape for each system that can have an issuer at an address of the tests. The issuers of Azure
/// DevOps, Bitbucket and Buildkite are at the vendors' hosts alone.
fn system_rows(gitlab: &Value) -> Vec<SystemRow> {
    let mut rows = project_rows(gitlab);
    rows.extend(subject_rows());
    rows
}

fn repeatable(system: &str) -> Value {
    json!({ "system": system, "tokenUse": "UntilExpiry" })
}

/// Those whose rules name a project, and what may run there.
fn project_rows(gitlab: &Value) -> Vec<SystemRow> {
    let [circleci_project, circleci_ref] =
        ["oidc.circleci.com/project-id", "oidc.circleci.com/vcs-ref"];
    let mut terraform = repeatable("TerraformCloud");
    terraform["maxTokenLifetime"] = json!("2h");
    vec![
        (
            "CircleCI",
            "/circleci",
            Some([circleci_project, circleci_ref, ""]),
            repeatable("CircleCI"),
            json!({ circleci_project: "1f0a", circleci_ref: "refs/heads/main" }),
            json!({}),
        ),
        (
            "Forgejo",
            "/forgejo",
            None,
            repeatable("Forgejo"),
            json!({ "repository_id": "42", "ref": "refs/heads/main", "ref_protected": "true" }),
            json!({ "event_name": "push" }),
        ),
        (
            "GitLab's system",
            "/gitlab-system",
            None,
            repeatable("GitLab"),
            json!({
                "project_id": "7", "ref": "main", "ref_type": "branch", "ref_protected": "true",
            }),
            gitlab.clone(),
        ),
        (
            "HCP Terraform",
            "/terraform",
            Some(["terraform_workspace_id", "terraform_run_phase", ""]),
            terraform,
            json!({ "terraform_workspace_id": "ws-1f0a", "terraform_run_phase": "apply" }),
            json!({}),
        ),
    ]
}

/// Those whose rules name an exact subject.
fn subject_rows() -> Vec<SystemRow> {
    let by_subject = |name, path, settings, subject: &str| -> SystemRow {
        let rule = json!({ "sub": subject });
        (
            name,
            path,
            Some(["sub", "sub", ""]),
            settings,
            rule,
            json!({}),
        )
    };
    let mut other = repeatable("Other");
    other["subject"] = json!("Immutable");
    let cluster_uid = "/kubernetes.io/serviceaccount/uid";
    vec![
        (
            "GitHub's subject with numbers",
            "/subjects",
            Some(["sub", "sub", "event_name"]),
            json!({ "system": "GitHub" }),
            json!({ "sub": "repo:acme@1/app@2:ref:refs/heads/main" }),
            json!({ "event_name": "push", "repository_id": "2" }),
        ),
        (
            "Kubernetes",
            "/cluster",
            Some(["sub", cluster_uid, ""]),
            repeatable("Kubernetes"),
            json!({ "sub": "system:serviceaccount:ci:runner", cluster_uid: "5c1f0a" }),
            json!({}),
        ),
        by_subject("another system", "/other-system", other, "f3a1"),
        by_subject(
            "Pulumi",
            "/pulumi",
            repeatable("Pulumi"),
            "pulumi:org:1f0a:env:2b",
        ),
        by_subject(
            "SPIFFE",
            "/spiffe",
            repeatable("SPIFFE"),
            "spiffe://keyferry.test/ns/ci/sa/runner",
        ),
    ]
}

/// Sets a claim by its name in a rule, which may be a JSON Pointer.
pub(crate) fn set_claim(claims: &mut Value, name: &str, value: Value) {
    let steps = name.strip_prefix('/');
    let mut member = claims;
    for step in steps.map_or_else(|| vec![name], |steps| steps.split('/').collect()) {
        member = &mut member[step];
    }
    *member = value;
}

fn merge(object: &mut Value, further: &Value) {
    for (name, value) in further.as_object().into_iter().flatten() {
        object[name] = value.clone();
    }
}
