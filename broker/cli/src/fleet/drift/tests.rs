//! One folder with every mistake: each target has its own row, with its own error.

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use clap::Parser;
use http::StatusCode;
use keyferry_api::config::ReducedObject;
use keyferry_client::doctor::diagnosis::ActiveConfiguration;
use keyferry_fleet::facts::Source;
use keyferry_fleet::judge::{Verdict, judge};
use keyferry_integration::https::HttpsServer;
use keyferry_integration::pki::TestCa;
use keyferry_kube_authn::fetched::{Fetched, HttpResponse};
use keyferry_kube_authn::prediction::hash_of;
use serde_json::{Value, json};

use super::super::{exit_code, table};
use super::*;

const ISSUER: &str = "https://hub.test";
const KEYS: &str = r#"{"keys":[]}"#;
const TARGETS: [&str; 14] = [
    "absent",
    "broken",
    "command",
    "cut",
    "forbidden",
    "healthy",
    "none",
    "old",
    "other-file",
    "other-keys",
    "refused",
    "selected",
    "silent",
    "unfinished",
];

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: FleetArgs,
}

fn now() -> Timestamp {
    "2026-11-29T12:00:00Z".parse().unwrap()
}

fn target(name: &str, documents: &str, authority: &str) -> Value {
    let allow = match name {
        "selected" => {
            json!([{ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "tenant-a" } },
                               "serviceAccounts": ["reconciler"], "deliveries": ["HTTP"] }])
        }
        _ => {
            json!([{ "namespaces": ["tenant-a"], "serviceAccounts": ["reconciler"], "deliveries": ["HTTP"] }])
        }
    };
    json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
        "metadata": { "name": name, "uid": name, "resourceVersion": "7", "generation": 1,
                      "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "address": format!("https://{name}.test:6443"), "audience": format!("https://{name}.test"),
                  "issuer": "Hub", "allow": allow },
        "status": { "observedGeneration": if name == "unfinished" { 0 } else { 1 }, "issuer": ISSUER,
                    "usernamePrefix": "hub:", "discoveryURL": documents,
                    "discoveryCertificateAuthority": authority,
                    "clusterResourceNamespace": "keyferry-system", "conditions": [] },
    })
}

/// The metrics of a target that has loaded this file and these keys.
fn metrics(file: &str, keys: &str) -> String {
    let (file, keys) = (hash_of(file.as_bytes()), hash_of(keys.as_bytes()));
    let issuer = hash_of(ISSUER.as_bytes());
    format!(
        "apiserver_authentication_config_controller_last_config_info{{apiserver_id_hash=\"sha256:a\",hash=\"{file}\"}} 1\n\
         apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info{{apiserver_id_hash=\"sha256:a\",hash=\"{keys}\",jwt_issuer_hash=\"{issuer}\"}} 1\n"
    )
}

fn response_of(path: &str, host: &str, file: &str) -> Response {
    let text = match path {
        "/.well-known/openid-configuration" => {
            json!({ "issuer": ISSUER, "jwks_uri": format!("https://{host}/keys") }).to_string()
        }
        "/keys" => KEYS.to_owned(),
        "/old/version" => json!({ "gitVersion": "v1.33.1" }).to_string(),
        "/refused/metrics" => return StatusCode::UNAUTHORIZED.into_response(),
        "/forbidden/metrics" => return StatusCode::FORBIDDEN.into_response(),
        "/absent/metrics" | "/old/metrics" => "up 1\n".to_owned(),
        "/other-file/metrics" => metrics("another file", KEYS),
        "/other-keys/metrics" => metrics(file, "other keys"),
        path if path.ends_with("/metrics") => metrics(file, KEYS),
        _ => json!({ "gitVersion": "v1.37.0" }).to_string(),
    };
    text.into_response()
}

/// A server of documents and metrics, and a snapshot with targets that it stands for.
struct Stage {
    server: HttpsServer,
    authority: String,
    folder: tempfile::TempDir,
    snapshot: Snapshot,
}

impl Stage {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ca = TestCa::create("drift", folder.path()).unwrap();
        let certificate = ca.serving("targets", &[]).unwrap();
        let file = std::sync::Arc::new(std::sync::OnceLock::<String>::new());
        let known = std::sync::Arc::clone(&file);
        let routes = Router::new().fallback(async move |request: Request| {
            // HTTP/2 has it in the URI.
            let authority = request.uri().authority().map(ToString::to_string);
            let header = request
                .headers()
                .get("host")
                .map(|it| it.to_str().unwrap().to_owned());
            let host = authority.or(header).unwrap();
            response_of(request.uri().path(), &host, known.get().unwrap())
        });
        let server = HttpsServer::start(&certificate, routes).await.unwrap();
        let documents = format!("{}/.well-known/openid-configuration", server.url());
        let mut snapshot = Snapshot::new(Source::Generated { seed: 1 }, now());
        for name in TARGETS {
            let object = ReducedObject::of(&target(name, &documents, ca.cert_pem()));
            snapshot.add_object(&object);
        }
        let read = &snapshot.targets[&ObjectName::new("healthy").unwrap()];
        let desires = Desires::of_files(None);
        let desired = desires.desired_trust(&read.spec.as_ref().unwrap().name, read, &snapshot);
        let desired = desired.unwrap_or_else(|why| panic!("{why:?}"));
        file.set(desired.file(Minor::V1_37)).unwrap();
        Self {
            server,
            authority: ca.cert_pem().to_owned(),
            folder,
            snapshot,
        }
    }

    fn write(&self, name: &str, text: &str) {
        let folder = self.folder.path().join("targets");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(name), text).unwrap();
    }

    fn kubeconfig(&self, server: &str, user: &Value) -> String {
        use base64::Engine;
        let authority = base64::engine::general_purpose::STANDARD.encode(&self.authority);
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": { "server": server, "certificate-authority-data": authority } }],
            "users": [{ "name": "u", "user": user }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        })
        .to_string()
    }

    async fn compare(&mut self) -> Result<(), CommandError> {
        let folder = self.folder.path().join("targets");
        let line = format!(
            "fleet --snapshot=x --allow-target-cidr=127.0.0.0/8 --target-kubeconfigs={}",
            folder.display()
        );
        let args = Line::try_parse_from(line.split(' ')).unwrap().args;
        let desires = Desires::of_files(None);
        compare_live(&args, &folder, &mut self.snapshot, desires, now()).await
    }
}

#[tokio::test]
async fn each_bad_target_has_its_own_row() {
    let mut stage = Stage::start().await;
    let user = json!({ "token": "secret-token" });
    for name in TARGETS {
        let server = match name {
            "none" => continue,
            "silent" => "https://127.0.0.1:1".to_owned(),
            _ => format!("{}/{name}", stage.server.url()),
        };
        let text = match name {
            "broken" => "clusters: [".to_owned(),
            "command" => {
                let exec = json!({ "exec": { "apiVersion": "client.authentication.k8s.io/v1",
                                             "command": "/bin/false", "interactiveMode": "Never" } });
                stage.kubeconfig(&server, &exec)
            }
            _ => stage.kubeconfig(&server, &user),
        };
        let ending = ["", ".yaml", ".kubeconfig"][name.len() % 3];
        stage.write(&format!("{name}{ending}"), &text);
    }
    stage.write("ghost.yaml", "of no target");
    stage.write(
        "cut.authentication.yaml",
        "apiVersion: apiserver.config.k8s.io/v1\nkind: Auth",
    );
    stage.compare().await.unwrap();
    let fleet = judge(&stage.snapshot, now());
    let text = table::render(&fleet);
    let (_, trust) = text.split_once("TRUST ").unwrap();
    let port = stage.server.url();
    let trust = trust
        .replace(&port, "https://SERVER")
        .replace(&stage.folder.path().display().to_string(), "FOLDER");
    // The file has a new CA in each run.
    let hash = regex::Regex::new("sha256:[0-9a-f]{64}").unwrap();
    insta::assert_snapshot!("bad-targets", hash.replace_all(&trust, "sha256:HASH"));
    assert_eq!(exit_code(fleet.verdict()), 1);
    let document = serde_json::to_string(&fleet).unwrap();
    assert!(!document.contains("secret-token"));
}

#[tokio::test]
async fn what_could_not_be_asked_is_undetermined() {
    let mut stage = Stage::start().await;
    stage
        .snapshot
        .targets
        .retain(|name, _| name.as_str() == "silent");
    stage.write(
        "silent",
        &stage.kubeconfig("https://127.0.0.1:1", &json!({ "token": "t" })),
    );
    stage.compare().await.unwrap();
    assert_eq!(
        judge(&stage.snapshot, now()).verdict(),
        Verdict::Undetermined
    );
    std::fs::remove_dir_all(stage.folder.path().join("targets")).unwrap();
    let error = stage.compare().await.unwrap_err().to_string();
    assert!(
        error.starts_with("reading the folder of --target-kubeconfigs"),
        "{error}"
    );
}

#[test]
fn flags_that_contradict_are_refused() {
    for line in ["fleet --prove", "fleet --target-kubeconfigs=x -n tenant-a"] {
        assert!(Line::try_parse_from(line.split(' ')).is_err(), "{line}");
    }
}

/// A change of the file of a target, at a JSON pointer.
type FileEdit<'a> = (&'a str, Value);

fn edited(file: &Value, (pointer, value): &FileEdit<'_>) -> String {
    let mut file = file.clone();
    let (parent, last) = pointer.rsplit_once('/').unwrap();
    match file.pointer_mut(parent).unwrap() {
        Value::Array(items) if last == "-" => items.push(value.clone()),
        Value::Array(items) => items[last.parse::<usize>().unwrap()] = value.clone(),
        Value::Object(members) if value.is_null() => drop(members.remove(last)),
        parent => parent[last] = value.clone(),
    }
    file.to_string()
}

/// The file of a target with a managed issuer: each edit is named alone, and what changes no value is
/// silent.
#[test]
fn the_file_of_a_managed_issuer_is_compared_by_value() {
    let folder = tempfile::tempdir().unwrap();
    let [authority, other] = ["one", "other"].map(|name| {
        let folder = folder.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        TestCa::create(name, &folder).unwrap()
    });
    let issuer = format!("{ISSUER}/issuers/managed");
    let documents = format!("{issuer}/.well-known/openid-configuration");
    let mut object = target("managed", &documents, authority.cert_pem());
    object["spec"]["issuer"] = json!("Keyferry");
    object["status"]["issuer"] = json!(issuer);
    let mut snapshot = Snapshot::new(Source::Generated { seed: 1 }, now());
    snapshot.add_object(&ReducedObject::of(&object));
    let name = ObjectName::new("managed").unwrap();
    let desires = Desires::of_files(None);
    let desired = desires.desired_trust(&name, &snapshot.targets[&name], &snapshot);
    let desired = desired.unwrap_or_else(|why| panic!("{why:?}"));
    let issuers = desired.issuers();
    let issuers: Vec<_> = issuers
        .map(|(issuer, it)| (issuer, it.discovery_url))
        .collect();
    assert_eq!(issuers, [(issuer.as_str(), documents)]);
    let text = desired.file(Minor::V1_37);
    let file: Value = serde_saphyr::from_str(&text).unwrap();
    let compare = |text: &str| rows::file_row(Ok(&desired), Some(text), Minor::V1_37);
    let rule = json!({ "claim": "hd", "requiredValue": "example.com" });
    let edits: [FileEdit<'_>; 8] = [
        ("/jwt/0/issuer/url", json!(ISSUER)),
        ("/jwt/0/issuer/url", json!(format!("{issuer}/"))),
        ("/jwt/0/issuer/audiences/0", json!("https://healthy.test")),
        ("/jwt/0/issuer/audiences/-", json!("https://healthy.test")),
        ("/jwt/0/issuer/discoveryURL", json!("https://else.test/x")),
        (
            "/jwt/0/issuer/certificateAuthority",
            json!(other.cert_pem()),
        ),
        ("/jwt/0/issuer/certificateAuthority", Value::Null),
        ("/jwt/0/claimValidationRules/-", rule),
    ];
    let mut lines = Vec::new();
    for edit in &edits {
        let compared = compare(&edited(&file, edit));
        let Comparison::Differs { differences } = &compared else {
            panic!("{edit:?}: {compared:?}");
        };
        // A value in the place of another lacks and is too much; a second audience is refused too.
        assert!(differences.len() <= 2, "{edit:?}: {differences:?}");
        lines.extend(differences.iter().map(|it| format!("{}: {it}", edit.0)));
    }
    // Each run has other certificates.
    let without_digest = |line: String| match line.split_once("sha256:") {
        Some((begin, _)) => format!("{begin}sha256:…"),
        None => line,
    };
    let lines: Vec<String> = lines.into_iter().map(without_digest).collect();
    let shown = lines.join("\n").replace(ISSUER, "ISSUER");
    insta::assert_snapshot!("managed-issuer-edits", shown);

    // A foreign entry is the admin's own, and so is what another hub has there.
    let foreign = json!({ "issuer": { "url": "https://people.test", "audiences": ["x"] },
        "claimMappings": { "username": { "claim": "sub", "prefix": "people:" } } });
    for (case, text) in [
        ("as printed", text.clone()),
        ("comments", format!("# of ours\n{text}\n# end\n")),
        ("JSON, its members sorted", file.to_string()),
        ("a foreign entry", edited(&file, &("/jwt/-", foreign))),
        ("line ends of Windows", text.replace('\n', "\r\n")),
    ] {
        assert_eq!(compare(&text), Comparison::Matches, "{case}");
    }
}

/// A target whose role has a managed issuer of its own: the keys of both count.
#[test]
fn the_keys_of_each_issuer_of_a_file_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let authority = TestCa::create("one", folder.path()).unwrap();
    let issuer_of = |name: &str| format!("{ISSUER}/issuers/{name}");
    let mut snapshot = Snapshot::new(Source::Generated { seed: 1 }, now());
    for name in ["prod", "prod-view"] {
        let documents = format!("{}/.well-known/openid-configuration", issuer_of(name));
        let mut object = target(name, &documents, authority.cert_pem());
        object["spec"]["issuer"] = json!("Keyferry");
        object["status"]["issuer"] = json!(issuer_of(name));
        if name == "prod-view" {
            let allow = object["spec"]["allow"].clone();
            let audience = object["spec"]["audience"].clone();
            object["spec"] = json!({ "sameAs": "prod", "role": "view", "audience": audience,
                "allow": allow });
        }
        snapshot.add_object(&ReducedObject::of(&object));
    }
    let name = ObjectName::new("prod").unwrap();
    let desires = Desires::of_files(None);
    let desired = desires.desired_trust(&name, &snapshot.targets[&name], &snapshot);
    let desired = desired.unwrap_or_else(|why| panic!("{why:?}"));
    let issuers: Vec<String> = desired.issuers().map(|(it, _)| it.to_owned()).collect();
    assert_eq!(issuers, [issuer_of("prod"), issuer_of("prod-view")]);
    let served = |body: &str| {
        Fetched::Response(HttpResponse {
            status: 200,
            body: body.as_bytes().to_vec(),
        })
    };
    let published = Published {
        discovery: served("{}"),
        keys: served(KEYS),
    };
    let row = |of_base: &[&str], of_role: &[&str]| {
        let hashes = |keys: &[&str]| keys.iter().map(|it| hash_of(it.as_bytes())).collect();
        let loaded = LoadedTrust {
            minor: Some(Minor::V1_37),
            file: ActiveConfiguration::default(),
            key_sets: BTreeMap::from([
                (issuer_of("prod"), hashes(of_base)),
                (issuer_of("prod-view"), hashes(of_role)),
            ]),
        };
        rows::keys_row(
            Ok(&desired),
            |_| Some(&published),
            Ok(&loaded),
            Minor::V1_37,
        )
    };
    assert_eq!(row(&[KEYS], &[KEYS]), Comparison::Matches);
    for (of_base, of_role, differs, named) in [
        (
            &[KEYS][..],
            &["other"][..],
            true,
            "issuers/prod-view: it has",
        ),
        (&["other"], &[KEYS], true, "issuers/prod: it has"),
        (&[KEYS], &[], false, "issuers/prod-view: its metrics do not"),
        (&["other"], &[], true, "issuers/prod: it has"),
    ] {
        let row = row(of_base, of_role);
        assert_eq!(row.differs(), differs, "{row:?}");
        assert!(format!("{row:?}").contains(named), "{row:?}");
    }
}
