//! Finds the token that authenticates the caller of a command.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use keyferry_api::audience::{Audience, is_well_known_hub_audience};
use keyferry_api::foreign_text;
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_api::service_account::ServiceAccount;
use keyferry_hub::client::HubAccess;
use keyferry_keys::jwt::UnverifiedJwt;
use keyferry_platform::clock::{Clock, SystemClock};
use keyferry_platform::regular_file::{self, FileError};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::checked_mint::{self, CheckedMintError};
use super::ci_token::{CiTokenError, CiTokenSource};
use super::client_certificate::ClientCertificateFiles;

/// The file of the projected volume, as in every example.
pub const DEFAULT_TOKEN_FILE: &str = "/var/run/secrets/keyferry.dev/token";
/// The claims of a token.
type Claims = serde_json::Map<String, Value>;
/// The largest token file that is read.
const MAX_TOKEN_BYTES: u64 = 8192;

/// Why a token of the hub is not sent, whatever audience the flags ask for.
const HUB_TOKEN: &str = "is for the hub itself, so no server gets it";

/// The caller, as given on the command line.
#[derive(Clone, Debug, Default)]
pub struct CallerTokenSource {
    /// `--token-file` or `KEYFERRY_TOKEN_FILE`.
    pub token_file: Option<PathBuf>,
    /// `--github-oidc` or `--token-env`: the id-token of a CI job.
    pub ci: Option<CiTokenSource>,
    /// The ServiceAccount to mint a caller token for, through a hub kubeconfig. It is in the
    /// access's namespace.
    pub service_account: Option<ObjectName>,
    /// The audience of a minted caller token.
    pub audience: Option<Audience>,
    /// The hub that mints the caller token.
    pub hub: HubAccess,
    /// The client certificate that the caller has instead of a token.
    pub client_certificate: Option<ClientCertificateFiles>,
}

/// What proves to a server who the caller is.
#[derive(Debug)]
pub enum CallerProof {
    /// The caller's own token.
    Token(SecretString),
    /// The caller's client certificate.
    Certificate(ClientCertificateFiles),
}

/// No caller token was found.
#[derive(Debug, thiserror::Error)]
pub enum CallerTokenError {
    /// The file cannot be read.
    #[error("reading the caller's token from {path}: {problem}")]
    File {
        /// The token file.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The file contains a token that the server would refuse or must not see. The message repeats
    /// nothing of it but its expiry and its audiences.
    #[error("the caller token in {path} {problem}")]
    Unfit {
        /// The token file.
        path: PathBuf,
        /// The problem with the token, and the fix.
        problem: String,
    },
    /// The CI job has no id-token.
    #[error(transparent)]
    Ci(#[from] CiTokenError),
    /// The job's id-token is one that the server would refuse or must not see.
    #[error("the job's id-token {0}")]
    UnfitIdToken(String),
    /// Neither a flag nor a file names the caller.
    #[error(
        "finding the caller's token: there is none at {DEFAULT_TOKEN_FILE}; give --token-file, or \
         --service-account with a hub kubeconfig"
    )]
    NotFound,
    /// The hub did not mint a caller token.
    #[error("minting a caller token for ServiceAccount {service_account}: {error}")]
    Mint {
        /// The ServiceAccount that the token was for.
        service_account: String,
        /// Why the hub did not mint it.
        error: CheckedMintError,
    },
}

/// Finds the caller's proof: its client certificate, or its token, from a named file, from the projected volume, or by a TokenRequest
/// through a hub kubeconfig.
///
/// # Errors
/// [`CallerTokenError`].
pub async fn find_caller_proof(
    source: &CallerTokenSource,
    namespace: &str,
) -> Result<CallerProof, CallerTokenError> {
    match &source.client_certificate {
        Some(files) => Ok(CallerProof::Certificate(files.clone())),
        None => find_token(source, namespace).await.map(CallerProof::Token),
    }
}

async fn find_token(
    source: &CallerTokenSource,
    namespace: &str,
) -> Result<SecretString, CallerTokenError> {
    if let Some(ci) = &source.ci {
        let audience = source.audience.as_ref().ok_or(CallerTokenError::NotFound)?;
        let token = ci.fetch_token(audience).await?;
        let now = SystemClock::start().now().wall;
        return match unfit_for(&token, audience.as_str(), now) {
            None => Ok(token),
            Some(problem) => Err(CallerTokenError::UnfitIdToken(format!(
                "{problem}; fix: give --caller-audience the audience of the server's \
                 externalIssuers, and in GitLab write the same one as aud under id_tokens"
            ))),
        };
    }
    let default = || {
        Some(Path::new(DEFAULT_TOKEN_FILE))
            .filter(|path| source.service_account.is_none() && path.exists())
    };
    if let Some(path) = source.token_file.as_deref().or_else(default) {
        let token = read_token_file(path)?;
        let problem = unfit_reason(
            &token,
            source.audience.as_ref(),
            SystemClock::start().now().wall,
        );
        return problem.map_or(Ok(token), |problem| {
            Err(CallerTokenError::Unfit {
                path: path.to_owned(),
                problem,
            })
        });
    }
    match &source.service_account {
        Some(name) => mint_caller_token(source, namespace, name).await,
        None => Err(CallerTokenError::NotFound),
    }
}

/// Reads a file that contains one token.
///
/// # Errors
/// [`CallerTokenError::File`].
pub fn read_token_file(path: &Path) -> Result<SecretString, CallerTokenError> {
    let wrong = |problem| CallerTokenError::File {
        path: path.to_owned(),
        problem,
    };
    let text =
        regular_file::read_regular_file(path, MAX_TOKEN_BYTES).map_err(|error| match error {
            FileError::System(_) => wrong("it does not exist or may not be read"),
            FileError::NotRegular => wrong("it is not a regular file"),
            FileError::TooLong(_) => wrong("it is larger than a token can be"),
        })?;
    let text = String::from_utf8(text).map_err(|_| wrong("it is not readable text"))?;
    let token = text.trim_matches(['\n', '\r', ' ']);
    if token.is_empty() || token.bytes().any(|byte| !byte.is_ascii_graphic()) {
        return Err(wrong("it does not hold a token"));
    }
    Ok(token.to_owned().into())
}

/// Returns why the server would refuse this token, judged by its claims. It also stops a credential
/// of the hub from being sent to the server.
fn unfit_reason(
    token: &SecretString,
    audience: Option<&Audience>,
    now: Timestamp,
) -> Option<String> {
    let wanted = audience.map_or("keyferry.dev", Audience::as_str);
    let Ok(jwt) = UnverifiedJwt::parse(token.expose_secret()) else {
        return Some(format!(
            "is not a JWT; fix: kubectl create token NAME --audience {wanted}"
        ));
    };
    let claims = jwt.claims();
    if is_for_hub(claims) {
        let account = subject_arguments(claims);
        return Some(format!(
            "{HUB_TOKEN}; fix: kubectl create token {account} --audience keyferry.dev, or the \
             callerAudience of the server"
        ));
    }
    let fix = format!(
        "fix: kubectl create token {} --audience {wanted}",
        subject_arguments(claims)
    );
    let end = claims.get("exp").and_then(Value::as_i64);
    if let Some(ago) = end
        .map(|end| now.as_second().saturating_sub(end))
        .filter(|ago| *ago >= 0)
    {
        return Some(format!(
            "expired {} ago by this machine's clock; {fix}",
            format_duration(ago)
        ));
    }
    let audiences = claimed_audiences(claims);
    let named = || {
        audiences
            .iter()
            .take(3)
            .map(|one| foreign_text::visible_ascii(one, 100))
            .collect::<Vec<_>>()
            .join(", ")
    };
    match audiences.as_slice() {
        [one] if *one == wanted => None,
        [] => Some(format!(
            "names no audience, so the hub itself would accept it; {fix}"
        )),
        many if many.contains(&wanted) => Some(format!(
            "is for {}, and must be for {wanted} alone; {fix}",
            named()
        )),
        _ => Some(format!(
            "is for {}, not {wanted}; {fix}, or give --caller-audience if the server's \
             callerAudience is another",
            named()
        )),
    }
}

/// Whether this is a ServiceAccount token that an apiserver accepts as its own credential. The
/// default audience of a hub is its issuer (`--api-audiences` of kube-apiserver). The flags cannot
/// allow such a token: their author may be someone who wants to have it.
fn is_for_hub(claims: &Claims) -> bool {
    let issuer = claims.get("iss").and_then(Value::as_str);
    let bound = claims.contains_key("kubernetes.io");
    bound
        && claimed_audiences(claims)
            .iter()
            .any(|one| Some(*one) == issuer || is_well_known_hub_audience(one))
}

fn claimed_audiences(claims: &Claims) -> Vec<&str> {
    match claims.get("aud") {
        Some(Value::String(one)) => vec![one.as_str()],
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Formats the token's ServiceAccount as arguments of `kubectl create token`.
fn subject_arguments(claims: &Claims) -> String {
    let account = claims
        .get("sub")
        .and_then(Value::as_str)
        .and_then(|sub| sub.strip_prefix("system:serviceaccount:"));
    let named = account
        .and_then(|account| account.split_once(':'))
        .and_then(|(namespace, name)| {
            Some(format!(
                "{} -n {}",
                ObjectName::new(name).ok()?,
                Namespace::new(namespace).ok()?
            ))
        });
    named.unwrap_or_else(|| "NAME".to_owned())
}

fn format_duration(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        172_800.. => format!("{} days", seconds / 86_400),
    }
}

/// Returns why the server would refuse a CI job's token, without a fix.
fn unfit_for(token: &SecretString, wanted: &str, now: Timestamp) -> Option<String> {
    let Ok(jwt) = UnverifiedJwt::parse_id_token(token.expose_secret()) else {
        return Some("is not a JWT".to_owned());
    };
    let claims = jwt.claims();
    if is_for_hub(claims) {
        return Some(HUB_TOKEN.to_owned());
    }
    let end = claims.get("exp").and_then(Value::as_i64);
    if let Some(ago) = end
        .map(|end| now.as_second().saturating_sub(end))
        .filter(|ago| *ago >= 0)
    {
        return Some(format!(
            "expired {} ago by this machine's clock",
            format_duration(ago)
        ));
    }
    let alone = match claims.get("aud") {
        Some(Value::String(one)) => one == wanted,
        Some(Value::Array(all)) => matches!(all.as_slice(), [Value::String(one)] if one == wanted),
        _ => false,
    };
    (!alone).then(|| format!("is not for {wanted} alone"))
}

async fn mint_caller_token(
    source: &CallerTokenSource,
    namespace: &str,
    name: &ObjectName,
) -> Result<SecretString, CallerTokenError> {
    let audience = source.audience.as_ref().ok_or(CallerTokenError::NotFound)?;
    let failed = |error| CallerTokenError::Mint {
        service_account: format!("{namespace}/{name}"),
        error,
    };
    let namespace = Namespace::new(namespace).map_err(|_| CallerTokenError::NotFound)?;
    let account = ServiceAccount {
        namespace,
        name: name.clone(),
    };
    let for_hub = || CheckedMintError::AudienceIsHubs(audience.to_string());
    if is_well_known_hub_audience(audience.as_str()) {
        return Err(failed(for_hub()));
    }
    let token = checked_mint::mint_checked(&source.hub, &account, audience)
        .await
        .map_err(failed)?;
    match UnverifiedJwt::parse(token.expose_secret()) {
        Ok(jwt) if is_for_hub(jwt.claims()) => Err(failed(for_hub())),
        Ok(_) | Err(_) => Ok(token),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use jiff::Timestamp;
    use keyferry_api::audience::Audience;
    use keyferry_api::name::ObjectName;
    use secrecy::{ExposeSecret, SecretString};
    use serde_json::{Value, json};

    use super::{
        CallerTokenError, CallerTokenSource, find_token, read_token_file, unfit_for, unfit_reason,
    };

    fn jwt(claims: &Value) -> SecretString {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        format!(
            "{}.{}.{}",
            part(r#"{"alg":"ES256"}"#),
            part(&claims.to_string()),
            part("canary-signature")
        )
        .into()
    }

    #[tokio::test]
    async fn a_token_file_holds_one_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "a.b.c\r\n").unwrap();
        assert_eq!(read_token_file(&path).unwrap().expose_secret(), "a.b.c");
        for content in ["", "\n", "a.b.c d", "\u{feff}a.b.c", "a.b\n.c"] {
            std::fs::write(&path, content).unwrap();
            let error = read_token_file(&path).unwrap_err().to_string();
            assert!(!error.contains("a.b"), "{error}");
        }
        std::fs::write(&path, "a".repeat(8193)).unwrap();
        assert!(read_token_file(&path).is_err());
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(read_token_file(&path).is_err());
        std::fs::remove_dir(&path).unwrap();
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
        assert!(
            read_token_file(&path)
                .unwrap_err()
                .to_string()
                .contains("not a regular file"),
            "and it is not waited for"
        );
    }

    #[tokio::test]
    async fn a_token_that_the_server_would_refuse_is_not_sent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let source = CallerTokenSource {
            token_file: Some(path.clone()),
            ..CallerTokenSource::default()
        };
        std::fs::write(&path, "hello").unwrap();
        let error = find_token(&source, "tenant-a").await.unwrap_err();
        assert!(
            matches!(error, CallerTokenError::Unfit { .. })
                && error.to_string().contains("is not a JWT"),
            "{error}"
        );
        let good = jwt(&json!({ "aud": ["keyferry.dev"], "exp": Timestamp::MAX.as_second() }));
        std::fs::write(&path, good.expose_secret()).unwrap();
        assert_eq!(
            find_token(&source, "tenant-a")
                .await
                .unwrap()
                .expose_secret(),
            good.expose_secret()
        );
    }

    #[test]
    fn no_audience_that_is_asked_for_lets_a_token_of_the_hub_out() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let hubs = [
            "https://kubernetes.default.svc",
            "https://kubernetes.default.svc.cluster.local",
            "kubernetes.default.svc",
            "k3s",
            "https://issuer.example",
        ];
        for hub in hubs {
            for aud in [json!(hub), json!([hub]), json!(["keyferry.dev", hub])] {
                let token = jwt(&json!({
                    "iss": "https://issuer.example", "aud": aud, "exp": 1_000_001,
                    "sub": "system:serviceaccount:tenant-a:reconciler",
                    "kubernetes.io": { "namespace": "tenant-a" },
                }));
                for asked in [None, Some(hub), Some("keyferry.dev")] {
                    let audience = asked.map(|text| Audience::new(text).unwrap());
                    for said in [
                        unfit_reason(&token, audience.as_ref(), now),
                        unfit_for(&token, asked.unwrap_or(hub), now),
                    ] {
                        let said = said.unwrap_or_else(|| panic!("{aud} goes out by {asked:?}"));
                        assert!(said.starts_with("is for the hub itself"), "{said}");
                    }
                }
            }
        }
        // A token of another system may have its issuer as audience.
        let foreign = jwt(
            &json!({ "iss": "https://ci.example", "aud": "https://ci.example", "exp": 1_000_001 }),
        );
        assert_eq!(unfit_for(&foreign, "https://ci.example", now), None);
    }

    #[tokio::test]
    async fn no_token_of_the_hub_is_minted() {
        let source = CallerTokenSource {
            service_account: Some(ObjectName::new("reconciler").unwrap()),
            audience: Some(Audience::new("https://kubernetes.default.svc").unwrap()),
            ..CallerTokenSource::default()
        };
        let error = find_token(&source, "tenant-a").await.unwrap_err();
        assert!(
            error
                .to_string()
                .contains("an audience of the hub's own API"),
            "{error}"
        );
    }

    #[test]
    fn expired_and_foreign_tokens_are_told_apart() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let sub = "system:serviceaccount:tenant-a:reconciler";
        let said = |claims: Value, audience: Option<&str>| {
            let audience = audience.map(|text| Audience::new(text).unwrap());
            unfit_reason(&jwt(&claims), audience.as_ref(), now)
        };
        assert_eq!(
            said(json!({ "aud": ["keyferry.dev"], "exp": 1_000_001 }), None),
            None
        );
        assert_eq!(
            said(
                json!({ "aud": "k.example", "exp": 1_000_001 }),
                Some("k.example")
            ),
            None
        );
        let expired = said(
            json!({ "aud": ["keyferry.dev"], "exp": 999_987, "sub": sub }),
            None,
        );
        let fix = "fix: kubectl create token reconciler -n tenant-a --audience keyferry.dev";
        assert_eq!(
            expired.unwrap(),
            format!("expired 13 s ago by this machine's clock; {fix}")
        );
        let foreign = said(
            json!({ "aud": ["https://hub.example"], "exp": 1_000_001, "sub": sub }),
            None,
        )
        .unwrap();
        assert!(
            foreign.starts_with(&format!(
                "is for https://hub.example, not keyferry.dev; {fix}"
            )),
            "{foreign}"
        );
        let wide = said(
            json!({ "aud": ["keyferry.dev", "b\u{1b}"], "exp": 1_000_001 }),
            None,
        )
        .unwrap();
        assert!(
            wide.contains("keyferry.dev, b?, and must be for keyferry.dev alone"),
            "{wide}"
        );
        let legacy = said(json!({ "sub": "system:serviceaccount:a:b;rm -rf" }), None).unwrap();
        assert!(
            legacy.contains("names no audience") && legacy.contains("create token NAME --audience"),
            "{legacy}"
        );
        for said in [foreign, wide, legacy] {
            assert!(
                !said.contains("canary") && !said.contains("Y2FuYXJ5"),
                "{said}"
            );
        }
    }
}
