//! Runs every file of `auth-configs/` on real kube-apiservers. The target must treat each token as
//! the vectors beside the file say, and as `keyferry verify` says.
//!
//! Only `discoveryURL` and `certificateAuthority` differ from the shipped file, because the test
//! serves the issuers' documents.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use keyferry_integration::auth_configs::{self, AuthConfig, Case, Expected, VectorSigner};
use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::document_server::DocumentServer;
use keyferry_integration::fleet::FleetError;
use keyferry_integration::parts::{Minor, Part};
use keyferry_integration::runner::{BoxedSuite, Fixture, NotStarted, Suite, TestError, TestResult};
use keyferry_integration::world::Ground;
use serde_json::{Value, json};

const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(Stage::start)
        .concurrent_tests(2)
        // A target needs about ten seconds for each change of the file, and `verify` runs once for
        // each token.
        .limit(Duration::from_secs(600))
        .test(
            "every_file_answers_as_written_on_the_newest",
            |stage| async move { stage.every_file(Minor::newest()).await },
        )
        .test(
            "every_file_answers_as_written_on_1_33",
            |stage| async move { stage.every_file(Minor::V1_33).await },
        )
        .boxed()
}

/// The number of ServiceAccounts in a file whose list does not fit into one expression.
const ACCOUNTS: usize = 2000;

/// A file of `keyferry trust` for many ServiceAccounts, with tokens around the bounds of its rules.
async fn many_accounts(ground: &Ground) -> Result<AuthConfig, TestError> {
    let mut arguments: Vec<String> = [
        "trust",
        "many",
        "--issuer=https://many.keyferry.test",
        "--audience=https://many.example.com",
        "--prefix=many:",
        "--kubernetes=1.33",
    ]
    .map(str::to_owned)
    .to_vec();
    arguments.extend(
        (0..ACCOUNTS).map(|number| format!("--allow={}/ci-{number:04}", namespace_of(number))),
    );
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = ground.binary().run(&arguments, &[]).await?;
    let text = String::from_utf8(output.stdout)?;
    let case = |namespace: &str, number: usize| {
        let account = format!("{namespace}:ci-{number:04}");
        let expected = if number < ACCOUNTS && namespace == namespace_of(number) {
            format!(
                "accepted: {{username: \"many:system:serviceaccount:{account}\", uid: u-1, groups: \
                 [\"many:system:serviceaccounts\", \"many:system:serviceaccounts:{namespace}\"]}}"
            )
        } else {
            "rejected: ClaimRuleFalse".to_owned()
        };
        format!(
            "- name: {account}\n  claims: {{sub: \"system:serviceaccount:{account}\"}}\n  {expected}\n"
        )
    };
    // The first, the last, and some of each range, with an account of the other namespace beside
    // it.
    let numbers = (0..ACCOUNTS).step_by(400).chain([ACCOUNTS - 1, ACCOUNTS]);
    let cases: String = numbers
        .flat_map(|number| [case("tenant", number), case("tenant-a", number)])
        .chain([case("a", 1), case("tenants", 1)])
        .collect();
    let vectors = format!(
        "lifetime: 3600\nclaims:\n  iss: https://many.keyferry.test\n  aud: \
         [https://many.example.com]\n  kubernetes.io: {{serviceaccount: {{uid: u-1}}}}\ncases:\n{cases}"
    );
    let file = AuthConfig::of("many-accounts.yaml".to_owned(), text, &vectors)?;
    let rules = file.text.matches("claims.sub in [").count();
    assert!(rules > 5, "{rules} rules");
    Ok(file)
}

/// The namespace of an account of [`many_accounts`].
fn namespace_of(number: usize) -> &'static str {
    if number.is_multiple_of(3) {
        "tenant"
    } else {
        "tenant-a"
    }
}

struct Stage {
    ground: Ground,
    documents: DocumentServer,
    signer: VectorSigner,
    files: Vec<AuthConfig>,
}

impl Fixture for Stage {
    fn log_tails(&self) -> String {
        self.ground.log_tails()
    }
}

impl Stage {
    async fn start() -> Result<Self, NotStarted> {
        let ground = Ground::start().await?;
        // Build the binaries now, because a build takes longer than a test may.
        for minor in [Minor::newest(), Minor::V1_33] {
            ground
                .parts()
                .locate(Part::ApiServer(minor))
                .await
                .map_err(FleetError::from)?;
        }
        Self::build(ground).await.map_err(NotStarted::failed)
    }

    async fn build(ground: Ground) -> Result<Self, TestError> {
        let documents = DocumentServer::start(ground.ca()).await?;
        let (signer, mut files) = (VectorSigner::new()?, auth_configs::all()?);
        files.push(many_accounts(&ground).await?);
        for file in &files {
            for (entry, issuer) in file.issuers().iter().enumerate() {
                let keys = format!("/{}/{entry}/keys", file.name);
                documents.put(&keys, &signer.key_set());
                let discovery =
                    json!({ "issuer": issuer, "jwks_uri": format!("{}{keys}", documents.url()) });
                documents.put(&format!("/{}/{entry}/discovery", file.name), &discovery);
            }
        }
        Ok(Self {
            ground,
            documents,
            signer,
            files,
        })
    }

    async fn every_file(&self, minor: Minor) -> TestResult {
        let mut target: Option<ControlPlane> = None;
        let (mut asked, mut wrong) = (0, Vec::new());
        for file in &self.files {
            let text = file.served_at(self.ground.ca().cert_pem(), |entry| {
                format!("{}/{}/{entry}/discovery", self.documents.url(), file.name)
            })?;
            let target = match &mut target {
                Some(target) => {
                    target.set_authentication_config(&text).await?;
                    target
                }
                none => none.insert(self.first(minor, &text).await?),
            };
            let path = target.folder().join(&file.name);
            std::fs::write(&path, &text)?;
            for case in &file.vectors.cases {
                let asking = Asking {
                    stage: self,
                    target,
                    file,
                    case,
                    path: path.display().to_string(),
                };
                wrong.extend(
                    asking
                        .ask()
                        .await?
                        .into_iter()
                        .map(|how| format!("{}, {}: {how}", file.name, case.name)),
                );
                asked += 1;
            }
            // This target has read the documents, so its answers are about these keys.
            let entries = 0..file.issuers().len();
            wrong.extend(
                entries
                    .filter(|entry| {
                        self.documents
                            .reads(&format!("/{}/{entry}/discovery", file.name))
                            == 0
                    })
                    .map(|entry| {
                        format!(
                            "{}: the discovery document of entry {entry} was never read",
                            file.name
                        )
                    }),
            );
        }
        assert!(asked >= 30, "only {asked} vectors");
        wrong.extend(
            self.lint_by_network(target.as_ref().ok_or("there are no files")?)
                .await?,
        );
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(wrong.join("\n").into())
        }
    }

    /// `lint --network` reads what the targets read. It also detects an issuer that refuses
    /// anonymous requests, as a kube-apiserver does.
    async fn lint_by_network(&self, refuser: &ControlPlane) -> Result<Vec<String>, TestError> {
        let file = self.files.first().ok_or("there are no files")?;
        let path = refuser.folder().join("linted.yaml");
        let lint = async |text: String| -> Result<(Option<i32>, Vec<String>), TestError> {
            std::fs::write(&path, text)?;
            let arguments = [
                "lint",
                "--network",
                "-o",
                "json",
                &path.display().to_string(),
            ];
            let output = self.ground.binary().run(&arguments, &[]).await?;
            let found: Value = serde_json::from_slice(&output.stdout)?;
            let findings = found[0]["findings"].as_array().ok_or("no findings")?;
            let codes = findings
                .iter()
                .map(|finding| finding["code"].as_str().unwrap_or_default().to_owned());
            let published = codes
                .filter(|code| code.starts_with("Discovery") || code.starts_with("Key"))
                .collect();
            Ok((output.status.code(), published))
        };
        let place = |path: &str| format!("{}/{}/0/{path}", self.documents.url(), file.name);
        let unserved = format!("/{}-without-keys", file.name);
        let discovery = json!({ "issuer": file.issuers().first(), "jwks_uri": format!("{}/nowhere", self.documents.url()) });
        self.documents.put(&unserved, &discovery);
        let (own, other) = (self.ground.ca().cert_pem(), refuser.ca_pem());
        let forbidding = format!("{}/.well-known/openid-configuration", refuser.url());
        let cases = [
            (own, place("discovery"), Some(0), vec![]),
            (
                other,
                place("discovery"),
                Some(1),
                vec!["DiscoveryUntrusted"],
            ),
            (own, place("nothing"), Some(1), vec!["DiscoveryNotServed"]),
            (
                own,
                format!("{}{unserved}", self.documents.url()),
                Some(1),
                vec!["KeysNotServed"],
            ),
            (other, forbidding, Some(1), vec!["DiscoveryForbidden"]),
        ];
        let mut wrong = Vec::new();
        for (pem, url, code, codes) in cases {
            let found = lint(file.served_at(pem, |_| url.clone())?).await?;
            if found.0 != code || found.1 != codes {
                wrong.push(format!(
                    "lint --network of {url} is to leave with {code:?} and {codes:?}: {found:?}"
                ));
            }
        }
        Ok(wrong)
    }

    async fn first(&self, minor: Minor, text: &str) -> Result<ControlPlane, TestError> {
        let name = format!("target-1-{}", minor.number());
        let spec = ControlPlaneSpec {
            minor,
            authentication_config: Some(text.to_owned()),
            ..ControlPlaneSpec::named(&name)
        };
        self.ground.control_plane(spec).await
    }
}

/// One vector to check at one target.
struct Asking<'a> {
    stage: &'a Stage,
    target: &'a ControlPlane,
    file: &'a AuthConfig,
    case: &'a Case,
    path: String,
}

impl Asking<'_> {
    /// The differences from the expected result.
    async fn ask(&self) -> Result<Vec<String>, TestError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let token = self
            .stage
            .signer
            .token(&self.file.vectors, self.case, i64::try_from(now)?)?;
        let status = self.review(&token).await?;
        let report = self.predicted(&token).await?;
        let mut wrong = differs_from_vector(&status, &report, self.case.expected()?);
        wrong.extend(differs_from_report(&status, &report));
        Ok(wrong)
    }

    /// The target's TokenReview. The first target was started with its file, so it may not have
    /// read the issuers' documents yet.
    async fn review(&self, token: &str) -> Result<Value, TestError> {
        let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token } });
        let limit = Instant::now() + Duration::from_secs(40);
        loop {
            let mut answer = self
                .target
                .admin()
                .create("/apis/authentication.k8s.io/v1/tokenreviews", &review)
                .await?;
            let late = answer["status"]["error"]
                .as_str()
                .is_some_and(|error| error.contains("not initialized"));
            if !late || Instant::now() > limit {
                return Ok(answer["status"].take());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// The result of `keyferry verify`, with the keys from the URL where the target reads them.
    async fn predicted(&self, token: &str) -> Result<Value, TestError> {
        let token_file = format!("{}.token", self.path);
        std::fs::write(&token_file, token)?;
        let minor = format!("1.{}", self.target.minor().number());
        let arguments = [
            "verify",
            "--auth-config",
            &self.path,
            "--target-token-file",
            &token_file,
            "--kubernetes",
            &minor,
            "--live",
            "-o",
            "json",
        ];
        let output = self.stage.ground.binary().run(&arguments, &[]).await?;
        let report: Value = serde_json::from_slice(&output.stdout).map_err(|error| {
            format!(
                "{arguments:?}: {error}: {}",
                String::from_utf8_lossy(&output.stderr)
            )
        })?;
        Ok(report)
    }
}

fn differs_from_vector(status: &Value, report: &Value, expected: Expected<'_>) -> Vec<String> {
    let accepted = status["authenticated"] == true;
    let code = report["reason"]["code"].as_str().unwrap_or_default();
    match expected {
        Expected::Accepted(user) => {
            let groups: Vec<&str> = user
                .groups
                .iter()
                .map(String::as_str)
                .chain(["system:authenticated"])
                .collect();
            let expected = json!({ "username": user.username, "uid": user.uid, "groups": groups, "extra": user.extra });
            let mut found = neutral(&status["user"]);
            if let Some(extra) = found["extra"].as_object_mut() {
                extra.remove(CREDENTIAL_ID);
            }
            (!accepted || found != expected)
                .then(|| format!("is to be {expected}, the target says {status}"))
                .into_iter()
                .collect()
        }
        Expected::Rejected(expected) | Expected::Skipped(expected) => (accepted
            || code != expected)
            .then(|| format!("is to be {expected}, the target says {status}, verify {code}"))
            .into_iter()
            .collect(),
    }
}

/// Compares the whole user, or the cause in the target's own text.
fn differs_from_report(status: &Value, report: &Value) -> Option<String> {
    let differs = || Some(format!("the target says {status}, verify {report}"));
    if status["authenticated"] == true {
        let mut predicted = neutral(&report["user"]);
        if let Some(groups) = predicted["groups"].as_array_mut() {
            groups.push("system:authenticated".into());
        }
        return if report["verdict"] == "Accepted" && neutral(&status["user"]) == predicted {
            None
        } else {
            differs()
        };
    }
    let (said, predicted) = (
        status["error"].as_str().unwrap_or_default(),
        &report["reason"],
    );
    let words = predicted["message"].as_str().unwrap_or_default();
    let same = match report["verdict"] == "Skipped" {
        true => said == words,
        // The apiserver asked its own token authenticator first, whose error is in the text too.
        false => predicted["exact"] == true && said == format!("[invalid bearer token, {words}]"),
    };
    let sound = match report["verdict"].as_str() {
        Some("Rejected") => same && report["signature"] == "Checked",
        Some("Skipped") => same,
        _ => false,
    };
    if sound { None } else { differs() }
}

/// A user with every field, in the form of the vectors.
fn neutral(user: &Value) -> Value {
    let or = |field: &str, empty: Value| {
        if user[field].is_null() {
            empty
        } else {
            user[field].clone()
        }
    };
    json!({ "username": or("username", "".into()), "uid": or("uid", "".into()), "groups": or("groups", json!([])), "extra": or("extra", json!({})) })
}
