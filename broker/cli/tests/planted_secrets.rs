//! Secrets in inputs are in no output: 40 and more are planted where people and programs put them by
//! mistake, and looked for in all that the commands about a fleet print.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::Path;
use std::process::{Command, Stdio};

const HUB: &str = include_str!("planted_secrets/hub.yaml");
/// The files beside the objects of the hub.
const FILES: [(&str, &str); 14] = [
    (
        "snap/targets/planted/authentication.yaml",
        "# <<comment of an AuthenticationConfiguration>>
apiVersion: apiserver.config.k8s.io/v1beta1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: https://hub.test
    audiences: [https://prod.test]
    discoveryURL: https://a:<<password of a discovery URL>>@hub.test/.well-known/openid-configuration
    certificateAuthority: |
      -----BEGIN RSA PRIVATE KEY-----
      <<private key of an issuer's CA>>
      -----END RSA PRIVATE KEY-----
  claimMappings: {username: {claim: sub, prefix: 'hub:'}}
",
    ),
    (
        "snap/targets/prod/authentication.yaml",
        include_str!("../../reach/tests/doors/authentication.yaml"),
    ),
    ("snap/targets/prod/release", "v1.37.2\n"),
    (
        "snap/targets/prod/rbac/clusterroles.yaml",
        "apiVersion: v1
items:
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRole
  metadata: {name: view, annotations: {note: '<<annotation of a ClusterRole>>'}}
  rules: [{apiGroups: [''], resources: [secrets], verbs: [get]}]
- apiVersion: v1
  kind: Secret
  metadata: {name: a, namespace: b}
  data: {a: '<<Secret among the roles of a target>>'}
kind: List
metadata: {}
",
    ),
    (
        "snap/audit.jsonl",
        r#"{"time":"2026-01-02T00:03:00Z","decision":"denied","reason":"TargetNotGranted","caller":"eyJhbGciOiJSUzI1NiJ9.<<token as a caller>>.c2ln","access":"tenant-a/planted","headers":{"authorization":"Bearer <<bearer header of a request>>"}}
{"time":"2026-01-02T00:03:01Z","decision":"denied","reason":"TargetNotGranted","caller":"system:serviceaccount:tenant-a:ci","access":"Bearer <<bearer header as an access>>","body":"<<body of a request>>"}
<<line that is no audit record>>
"#,
    ),
    (
        "snap/keys.json",
        r#"{"issuer":"https://hub.test","seal":"<<seal of the keys>>","revoked":[],"keys":[{"kid":"k1","algorithm":"RS256","d":"<<private part of a key>>","signs":"lastSeen","signsSince":"2025-12-01T00:00:00Z","publishedAt":"2025-12-01T00:00:00Z","activeAt":"2025-12-01T00:00:00Z"}]}"#,
    ),
    (
        "snap/gaps.yaml",
        "schema: keyferry.dev/snapshot/v1
readAt: 2026-01-02T00:03:00Z
token: <<unknown member of gaps.yaml>>
gaps: [{resource: configmaps, cause: Failed, message: 'Get https://u:<<password of a URL in a gap>>@hub.test'}]
",
    ),
    ("snap/kubeconfig", "users: [{name: u, user: {token: <<file that is not of a snapshot>>}}]\n"),
    ("broken-json/hub/a.json", r#"{"kind": "TargetCluster", "metadata": "<<text instead of metadata>>"}"#),
    ("broken-yaml/hub/a.yaml", "kind: TargetCluster\nmetadata: <<text instead of metadata in YAML>>\n"),
    ("broken-rbac/hub/a.yaml", "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: a, namespace: b}\nrules: <<text instead of rules>>\n"),
    ("broken-release/targets/prod/release", "<<release that is a token>>\n"),
    ("opaque", "<<token that is no JWT>>\n"),
    (
        "target.log",
        r#"{"kind":"Event","auditID":"a","verb":"get","requestURI":"/api?token=<<token in a query>>","user":{"username":"hub:system:serviceaccount:a:b","extra":{"authentication.kubernetes.io/credential-id":["JTI=one"]}},"userAgent":"curl Bearer <<bearer header as an agent>>","sourceIPs":["10.0.0.1"],"requestReceivedTimestamp":"2026-01-02T00:00:00.000000Z","requestObject":{"data":"<<Secret in an audit event>>"}}
<<line that is no event>>
"#,
    ),
];

/// The commands whose output is searched; `OUT` is each of their formats.
const LINES: [(&str, &[&str]); 25] = [
    (
        "fleet --snapshot snap -o OUT",
        &["table", "json", "yaml", "html"],
    ),
    (
        "fleet --snapshot snap --redact -o OUT",
        &["table", "json", "yaml", "html"],
    ),
    (
        "fleet --snapshot snap -n tenant-a -o OUT",
        &["table", "json", "html"],
    ),
    (
        "who-can get secrets --all --snapshot snap -o OUT",
        &["tree", "table", "json", "yaml"],
    ),
    (
        "who-can create pods -n apps --target prod --snapshot snap -o OUT",
        &["tree", "json"],
    ),
    (
        "reach tenant-a/ci --snapshot snap -o OUT",
        &["tree", "table", "json", "yaml"],
    ),
    (
        "rehearse hub-outage --snapshot snap -o OUT",
        &["table", "json", "yaml"],
    ),
    (
        "rehearse key-rotation --sign-at-once --snapshot snap -o OUT",
        &["table", "json"],
    ),
    (
        "rehearse revoke k1 --snapshot snap -o OUT",
        &["table", "json"],
    ),
    (
        "rehearse ca-change target prod --snapshot snap -o OUT",
        &["table", "json"],
    ),
    (
        "tree tenant-a/planted -f snap/hub/planted.yaml -o OUT",
        &["text", "json", "yaml"],
    ),
    ("inspect token -o OUT", &["text", "json", "yaml"]),
    ("inspect opaque -o OUT", &["text", "json"]),
    ("inspect snap/kubeconfig -o OUT", &["text"]),
    (
        "inspect token --jwks snap/keys.json -o OUT",
        &["text", "json"],
    ),
    (
        "trace one --target-audit target.log --audit snap/audit.jsonl -o OUT",
        &["text", "json"],
    ),
    (
        "trace --target-audit target.log --keys opaque -o OUT",
        &["text"],
    ),
    ("fleet --snapshot broken-json -o OUT", &["table", "json"]),
    ("fleet --snapshot broken-yaml -o OUT", &["table", "json"]),
    (
        "fleet --snapshot broken-release -o OUT",
        &["table", "json", "html"],
    ),
    (
        "fleet --snapshot snap --keys opaque --audit snap/kubeconfig -o OUT",
        &["table"],
    ),
    ("fleet --config opaque -o OUT", &["table"]),
    (
        "who-can get pods --all --snapshot broken-OUT",
        &["json", "yaml", "rbac", "release"],
    ),
    (
        "reach a/b --snapshot broken-OUT",
        &["json", "yaml", "rbac", "release"],
    ),
    (
        "rehearse hub-outage --snapshot broken-OUT",
        &["json", "yaml", "release"],
    ),
];

/// The planted secrets: each place with its word.
#[derive(Default)]
struct Planted(Vec<(String, String)>);

impl Planted {
    /// Replaces each `<<place>>` of a text by a secret of its own.
    fn fill(&mut self, text: &str) -> String {
        let mut parts = text.split("<<");
        let mut filled = parts.next().unwrap().to_owned();
        for part in parts {
            let (place, rest) = part.split_once(">>").unwrap();
            let word = format!("S3cretOfTheTest{:02}", self.0.len());
            filled.push_str(&word);
            filled.push_str(rest);
            self.0.push((place.to_owned(), word));
        }
        filled
    }
}

/// A token with secrets where only its signer may read, and its signature.
fn token(planted: &mut Planted) -> String {
    use base64::Engine;
    let encode = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
    let header =
        planted.fill(r#"{"alg":"ES256","kid":"k1","x5u":"<<unknown member of a header>>"}"#);
    let claims = planted.fill(
        r#"{"iss":"https://hub.test","sub":"system:serviceaccount:tenant-a:reconciler","aud":["https://prod.test"],"exp":1790003600,"password":"<<unknown claim>>"}"#,
    );
    let signature = planted.fill("<<signature of a token>>");
    format!("{}.{}.{signature}", encode(&header), encode(&claims))
}

#[test]
fn no_output_has_a_planted_secret() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let mut planted = Planted::default();
    write("snap/hub/planted.yaml", &planted.fill(HUB));
    for (path, text) in FILES {
        write(path, &planted.fill(text));
    }
    write("token", &token(&mut planted));
    let doors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../reach/tests/doors/hub.yaml");
    write(
        "snap/hub/doors.yaml",
        &std::fs::read_to_string(doors).unwrap(),
    );
    assert!(planted.0.len() >= 40, "planted: {}", planted.0.len());
    let mut leaks = Vec::new();
    for (line, outputs) in LINES {
        for output in outputs {
            let line = line.replace("OUT", output);
            let run = Command::new(env!("CARGO_BIN_EXE_keyferry"))
                .args(line.split(' '))
                .current_dir(folder.path())
                .env_clear()
                .env("HOME", folder.path())
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let printed = [run.stdout, run.stderr].concat();
            let printed = String::from_utf8(printed).unwrap();
            assert!(
                !printed.contains("error: unexpected argument"),
                "{line}: {printed}"
            );
            let found = planted
                .0
                .iter()
                .filter(|(_, word)| printed.contains(word.as_str()));
            leaks.extend(found.map(|(place, _)| format!("{line}: {place}")));
        }
    }
    assert!(leaks.is_empty(), "{leaks:#?}");
}
