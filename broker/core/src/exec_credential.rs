//! The exec plugin's side of `client.authentication.k8s.io`: the input of kubectl and client-go in
//! `KUBERNETES_EXEC_INFO`, and the output for them on standard output.

use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::lifetime;
use keyferry_api::name::AccessName;
use keyferry_keys::json::{JsonLimits, read_object};
use keyferry_keys::jwt::UnverifiedJwt;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::public_cluster::ClaimedCluster;

/// The environment variable in which the client passes its input.
pub const EXEC_INFO: &str = "KUBERNETES_EXEC_INFO";
/// The most bytes of that variable that are read. Linux passes no more than 128 KiB in one
/// variable.
pub const MAX_EXEC_INFO_BYTES: usize = 256 * 1024;

const EXEC_INFO_LIMITS: JsonLimits = JsonLimits {
    bytes: MAX_EXEC_INFO_BYTES,
    depth: 32,
};

/// The version of the contract that the client uses. The response must have the same version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecVersion {
    /// `client.authentication.k8s.io/v1`.
    V1,
    /// `client.authentication.k8s.io/v1beta1`, which clients before 1.24 and Argo CD use.
    V1Beta1,
}

/// The input that the client passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecInfo {
    /// The version of the contract.
    pub version: ExecVersion,
    /// `spec.cluster`; the client sets it only with `provideClusterInfo`.
    pub cluster: Option<ClaimedCluster>,
    /// `spec.cluster.config.clusterName`. The rest of `config` is never used: its author may not be
    /// the user.
    pub named: NamedByCluster,
}

/// The access that the cluster's entry names, as in a ClusterProfile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedByCluster {
    /// The entry names no access.
    Nothing,
    /// The entry names this access.
    Access(AccessName),
    /// The entry has a name that is not `<namespace>/<name>`.
    Unreadable,
}

/// Why the client's input is refused. The error repeats no part of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecInfoError {
    /// The input is not a JSON object, or is too large.
    #[error("{EXEC_INFO}: {0}")]
    Json(#[from] keyferry_keys::json::JsonError),
    /// The input has another kind.
    #[error("{EXEC_INFO}: kind is not ExecCredential")]
    Kind,
    /// The input has an unsupported version.
    #[error(
        "{EXEC_INFO}: apiVersion is neither client.authentication.k8s.io/v1 nor v1beta1; write one \
         of them into the exec stanza"
    )]
    Version,
    /// A member has a type other than in Kubernetes.
    #[error("{EXEC_INFO}: {0} is not of its type")]
    Member(&'static str),
}

impl ExecVersion {
    /// The `apiVersion`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "client.authentication.k8s.io/v1",
            Self::V1Beta1 => "client.authentication.k8s.io/v1beta1",
        }
    }
}

impl ExecInfo {
    /// Reads the variable. `None` means that the client passes no input; the response is then in
    /// `v1beta1`.
    ///
    /// # Errors
    /// [`ExecInfoError`]. Unknown members are ignored, because newer clients may send more.
    pub fn read(text: Option<&[u8]>) -> Result<Self, ExecInfoError> {
        let Some(text) = text else {
            return Ok(Self {
                version: ExecVersion::V1Beta1,
                cluster: None,
                named: NamedByCluster::Nothing,
            });
        };
        let object = read_object(text, EXEC_INFO_LIMITS)?;
        if object.get("kind").and_then(Value::as_str) != Some("ExecCredential") {
            return Err(ExecInfoError::Kind);
        }
        let version = match object.get("apiVersion").and_then(Value::as_str) {
            Some("client.authentication.k8s.io/v1") => ExecVersion::V1,
            Some("client.authentication.k8s.io/v1beta1") => ExecVersion::V1Beta1,
            _ => return Err(ExecInfoError::Version),
        };
        let spec = match object.get("spec") {
            None | Some(Value::Null) => None,
            Some(Value::Object(spec)) => Some(spec),
            Some(_) => return Err(ExecInfoError::Member("spec")),
        };
        let (cluster, named) = match spec.and_then(|spec| spec.get("cluster")) {
            None | Some(Value::Null) => (None, NamedByCluster::Nothing),
            Some(Value::Object(cluster)) => (
                Some(read_claimed_cluster(cluster)?),
                NamedByCluster::read(cluster),
            ),
            Some(_) => return Err(ExecInfoError::Member("spec.cluster")),
        };
        Ok(Self {
            version,
            cluster,
            named,
        })
    }
}

impl NamedByCluster {
    /// Reads `config.clusterName`. A `config` of another form belongs to another plugin, so it is
    /// not an error.
    fn read(cluster: &Map<String, Value>) -> Self {
        match cluster
            .get("config")
            .and_then(|config| config.get("clusterName"))
        {
            None | Some(Value::Null) => Self::Nothing,
            Some(Value::String(name)) => {
                AccessName::parse(name).map_or(Self::Unreadable, NamedByCluster::Access)
            }
            Some(_) => Self::Unreadable,
        }
    }
}

fn read_claimed_cluster(cluster: &Map<String, Value>) -> Result<ClaimedCluster, ExecInfoError> {
    let text = |member: &str, path: &'static str| match cluster.get(member) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(ExecInfoError::Member(path)),
    };
    let insecure_skip_tls_verify = match cluster.get("insecure-skip-tls-verify") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(insecure)) => *insecure,
        Some(_) => {
            return Err(ExecInfoError::Member(
                "spec.cluster.insecure-skip-tls-verify",
            ));
        }
    };
    Ok(ClaimedCluster {
        server: text("server", "spec.cluster.server")?,
        tls_server_name: text("tls-server-name", "spec.cluster.tls-server-name")?,
        insecure_skip_tls_verify,
        certificate_authority_data: text(
            "certificate-authority-data",
            "spec.cluster.certificate-authority-data",
        )?,
        proxy_url: text("proxy-url", "spec.cluster.proxy-url")?,
    })
}

/// When the client must request a new token: 60 s before the token expires, and no later than the
/// server says. `None` if that is less than 10 s away by this machine's clock.
pub fn refresh_time(token: &UnverifiedJwt, usable: Duration, now: Timestamp) -> Option<Timestamp> {
    let exp = Timestamp::from_second(token.claims().get("exp")?.as_i64()?).ok()?;
    let by_token = exp.checked_sub(lifetime::MARGIN).ok()?;
    let expiration = by_token.min(now.checked_add(usable).ok()?);
    leaves_time(expiration, now).then_some(expiration)
}

/// Whether a client that may use a token until `expiration` has enough time left to use it.
pub fn leaves_time(expiration: Timestamp, now: Timestamp) -> bool {
    now.checked_add(lifetime::LEAST_USE)
        .is_ok_and(|least| expiration >= least)
}

/// The response could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("writing the ExecCredential failed")]
pub struct AnswerError;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredentialResponse<'a> {
    api_version: &'static str,
    kind: &'static str,
    status: Status<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    expiration_timestamp: String,
    token: &'a str,
}

/// Renders the JSON object for standard output. The expiry is in whole seconds, UTC. Without an
/// expiry, clients keep a token until they get a 401.
///
/// # Errors
/// Only if the serialiser fails. An empty output would be read as one without a credential.
pub fn render_credential(
    version: ExecVersion,
    token: &SecretString,
    expiration: Timestamp,
) -> Result<SecretString, AnswerError> {
    let expiration = Timestamp::from_second(expiration.as_second()).unwrap_or(expiration);
    let status = Status {
        expiration_timestamp: expiration.to_string(),
        token: token.expose_secret(),
    };
    let answer = ExecCredentialResponse {
        api_version: version.as_str(),
        kind: "ExecCredential",
        status,
    };
    serde_json::to_string(&answer)
        .map(SecretString::from)
        .map_err(|_| AnswerError)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;
    use keyferry_keys::jwt::{SigningAlgorithm, UnverifiedJwt};
    use keyferry_keys::testing::{claims, key};
    use proptest::prelude::*;
    use secrecy::ExposeSecret;
    use serde_json::json;

    use super::{
        ExecInfo, ExecInfoError, ExecVersion, NamedByCluster, refresh_time, render_credential,
    };

    fn read_exec_info(spec: serde_json::Value) -> Result<ExecInfo, ExecInfoError> {
        let text = json!({ "kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "spec": spec });
        ExecInfo::read(Some(text.to_string().as_bytes()))
    }

    #[test]
    fn the_client_is_answered_in_its_own_version() {
        let silent = ExecInfo {
            version: ExecVersion::V1Beta1,
            cluster: None,
            named: NamedByCluster::Nothing,
        };
        assert_eq!(ExecInfo::read(None).unwrap(), silent);
        for (version, read) in [
            ("v1", Some(ExecVersion::V1)),
            ("v1beta1", Some(ExecVersion::V1Beta1)),
            ("v1alpha1", None),
            ("v2", None),
        ] {
            let text = format!(
                r#"{{"apiVersion":"client.authentication.k8s.io/{version}","kind":"ExecCredential","spec":{{}}}}"#
            );
            assert_eq!(
                ExecInfo::read(Some(text.as_bytes()))
                    .map(|info| info.version)
                    .ok(),
                read,
                "{version}"
            );
        }
        let found = render_credential(
            ExecVersion::V1,
            &"a.b.c".to_owned().into(),
            "2026-08-01T10:00:00.75Z".parse().unwrap(),
        )
        .unwrap();
        let expected = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"expirationTimestamp":"2026-08-01T10:00:00Z","token":"a.b.c"}}"#;
        assert_eq!(found.expose_secret(), expected);
    }

    #[test]
    fn the_cluster_is_read_and_its_config_is_not() {
        let read = read_exec_info(json!({ "interactive": true, "cluster": {
            "server": "https://t", "certificate-authority-data": "QQ==", "tls-server-name": "n", "proxy-url": "http://p",
            "config": { "server": "https://evil", "audience": "other" }, "disable-compression": true,
        } }));
        let cluster = read.unwrap().cluster.unwrap();
        assert_eq!(
            (
                cluster.server.as_str(),
                cluster.certificate_authority_data.as_str()
            ),
            ("https://t", "QQ==")
        );
        assert_eq!(
            (cluster.tls_server_name.as_str(), cluster.proxy_url.as_str()),
            ("n", "http://p")
        );
        assert!(!cluster.insecure_skip_tls_verify);
        assert_eq!(read_exec_info(json!({})).unwrap().cluster, None);
    }

    #[test]
    fn the_cluster_may_name_the_access_and_nothing_else() {
        let named = |config: serde_json::Value| {
            read_exec_info(json!({ "cluster": { "server": "https://t", "config": config } }))
                .unwrap()
                .named
        };
        let access =
            NamedByCluster::Access(keyferry_api::name::AccessName::parse("tenant-a/apps").unwrap());
        assert_eq!(
            named(
                json!({ "clusterName": "tenant-a/apps", "server": "https://evil", "access": "tenant-b/x" })
            ),
            access
        );
        for nothing in [
            json!(null),
            json!({}),
            json!({ "clusterName": null }),
            json!([]),
            json!("tenant-a/apps"),
            json!({ "access": "a/b" }),
        ] {
            assert_eq!(named(nothing.clone()), NamedByCluster::Nothing, "{nothing}");
        }
        let long = format!("tenant-a/{}", "a".repeat(10_000));
        for wrong in [
            json!("apps"),
            json!(""),
            json!("a/b/c"),
            json!("../b"),
            json!("A/b"),
            json!("a/b\n"),
            json!(1),
            json!([]),
            json!(long),
        ] {
            assert_eq!(
                named(json!({ "clusterName": wrong })),
                NamedByCluster::Unreadable,
                "{wrong}"
            );
        }
    }

    #[test]
    fn hostile_information_is_refused_without_being_repeated() {
        let long = format!(
            r#"{{"kind":"ExecCredential","x":"{}"}}"#,
            "a".repeat(1 << 20)
        );
        let doubled = r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"cluster":{"server":"https://a","server":"https://secret"}}}"#;
        for text in ["", "[]", "{", "secret", r#"{"kind":"Pod"}"#, &long, doubled] {
            let error = ExecInfo::read(Some(text.as_bytes()))
                .unwrap_err()
                .to_string();
            assert!(!error.contains("secret") && error.len() < 200, "{error}");
        }
        for spec in [
            json!("x"),
            json!({ "cluster": [] }),
            json!({ "cluster": { "server": 1 } }),
            json!({ "cluster": { "insecure-skip-tls-verify": "true" } }),
            json!({ "cluster": { "proxy-url": {} } }),
        ] {
            assert!(
                matches!(read_exec_info(spec.clone()), Err(ExecInfoError::Member(_))),
                "{spec}"
            );
        }
    }

    #[test]
    fn the_expiry_is_sixty_seconds_early_and_never_past() {
        let mut claims = claims();
        let now: Timestamp = "2026-08-01T10:00:00Z".parse().unwrap();
        claims["exp"] = json!(now.as_second() + 600);
        let token = UnverifiedJwt::parse(&key(SigningAlgorithm::Es256).token(&claims)).unwrap();
        let at = |seconds: i64| Timestamp::from_second(now.as_second() + seconds).unwrap();
        assert_eq!(
            refresh_time(&token, Duration::from_secs(540), now),
            Some(at(540))
        );
        assert_eq!(
            refresh_time(&token, Duration::from_secs(100), now),
            Some(at(100)),
            "the server's word, where it is shorter"
        );
        assert_eq!(
            refresh_time(&token, Duration::from_secs(9000), now),
            Some(at(540))
        );
        assert_eq!(
            refresh_time(&token, Duration::from_secs(540), at(530)),
            Some(at(540))
        );
        assert_eq!(
            refresh_time(&token, Duration::from_secs(540), at(531)),
            None
        );
        assert_eq!(
            refresh_time(&token, Duration::from_secs(540), at(3600)),
            None,
            "a clock that is an hour ahead"
        );
        for exp in [json!("never"), json!(null), json!(1e40)] {
            claims["exp"] = exp;
            let token = UnverifiedJwt::parse(&key(SigningAlgorithm::Es256).token(&claims)).unwrap();
            assert_eq!(refresh_time(&token, Duration::from_secs(540), now), None);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = ExecInfo::read(Some(&bytes));
        }
    }
}
