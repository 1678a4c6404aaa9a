//! Runs one verifier program, and compares the verdicts of its libraries.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::parts::installed::Client;
use keyferry_integration::parts::{Part, Parts};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{ACCOUNT, TENANT};
use serde::Deserialize;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::hub::{AUDIENCE, PublishedHub};

const LIMIT: Duration = Duration::from_secs(60);

/// A program with verifiers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Program {
    /// A program built by `go build`.
    Go(Part),
    /// A program installed with its runtime's own tool.
    Other(Client),
}

/// The verdict of one library on one token.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Verdict {
    pub(super) verifier: String,
    pub(super) version: String,
    pub(super) token: usize,
    pub(super) subject: Option<String>,
    pub(super) refused: Option<String>,
}

/// The libraries that each program must answer for, so that none is silently skipped.
fn expected(program: Program) -> &'static [&'static str] {
    match program {
        Program::Go(Part::GoVerifiers) => &[
            "go-jose v2 v2.6.3",
            "go-jose v3 v3.0.5",
            "go-jose v4 v4.1.8",
            "go-oidc v2 v2.5.0",
            "go-oidc v3 v3.21.0",
            "jwx v3 v3.3.0",
        ],
        Program::Go(_) => &[
            "go-jose v2 v2.6.3",
            "go-jose v3 v3.0.0",
            "go-jose v4 v4.0.3",
            "go-oidc v2 v2.3.0",
            "go-oidc v3 v3.11.0",
            "jwx v3 v3.0.0",
        ],
        Program::Other(Client::PythonVerifiers) => {
            &["PyJWT 2.15.1", "authlib 1.9.9", "joserfc 1.8.0"]
        }
        Program::Other(Client::JavaScriptVerifiers) => {
            &["jose 6.2.17", "jsonwebtoken with jwks-rsa 3.2.2"]
        }
        Program::Other(Client::JavaVerifiers) => &["Nimbus JOSE+JWT 10.5", "jose4j 0.9.6"],
        // These verify nothing: they are clients of an API server.
        Program::Other(
            Client::PythonKubernetes
            | Client::JavaScriptKubernetes
            | Client::Schemathesis
            | Client::Axe
            | Client::Lighthouse
            | Client::McpServer,
        ) => &[],
    }
}

/// Every library must accept the three good tokens and refuse each bad one.
pub(super) async fn all_agree(hub: Arc<PublishedHub>, program: Program) -> TestResult {
    let tokens: Vec<&str> = hub
        .good
        .iter()
        .chain(&hub.bad)
        .map(String::as_str)
        .collect();
    let verdicts = ask(&hub, program, &hub.broker.discovery_url(), &tokens).await?;
    let subject = format!("system:serviceaccount:{TENANT}:{ACCOUNT}");
    for (library, verdicts) in by_library(program, verdicts, tokens.len())? {
        for verdict in verdicts {
            if verdict.token < hub.good.len() {
                assert_eq!(
                    verdict.subject.as_deref(),
                    Some(subject.as_str()),
                    "{library}: {verdict:?}"
                );
            } else {
                assert!(
                    verdict.refused.is_some() && verdict.subject.is_none(),
                    "{library} takes a bad token: {verdict:?}"
                );
                assert!(
                    !verdict
                        .refused
                        .as_ref()
                        .is_some_and(|why| why.starts_with("key set: ")),
                    "{library}: {verdict:?}"
                );
            }
        }
    }
    Ok(())
}

/// The verdicts of each expected library, one for each token.
pub(super) fn by_library(
    program: Program,
    verdicts: Vec<Verdict>,
    tokens: usize,
) -> Result<BTreeMap<String, Vec<Verdict>>, TestError> {
    let mut all: BTreeMap<String, Vec<Verdict>> = BTreeMap::new();
    for verdict in verdicts {
        all.entry(format!("{} {}", verdict.verifier, verdict.version))
            .or_default()
            .push(verdict);
    }
    let mut names: Vec<&str> = expected(program).to_vec();
    names.sort_unstable();
    let complete = all
        .values()
        .all(|verdicts| verdicts.iter().map(|verdict| verdict.token).eq(0..tokens));
    if !complete || all.keys().map(String::as_str).ne(names.iter().copied()) {
        return Err(
            format!("{program:?} did not answer for each library and token: {all:?}").into(),
        );
    }
    Ok(all)
}

/// Asks for verdicts on tokens, with the documents of an origin.
pub(super) async fn ask(
    hub: &PublishedHub,
    program: Program,
    origin: &str,
    tokens: &[&str],
) -> Result<Vec<Verdict>, TestError> {
    let parts = Parts::from_environment();
    let (program, arguments) = match program {
        Program::Go(part) => (parts.locate(part).await?, Vec::new()),
        Program::Other(client) => {
            let installed = parts.install(client).await?;
            (installed.program, installed.arguments)
        }
    };
    let ca = hub.ca.cert_path();
    let question = json!({ "origin": origin, "caFile": ca, "issuer": hub.issuer, "audience": AUDIENCE, "tokens": tokens });
    let mut child = Command::new(program)
        .args(arguments)
        .env("NODE_EXTRA_CA_CERTS", ca)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut stdin = child.stdin.take().ok_or("the program has no input")?;
    stdin.write_all(question.to_string().as_bytes()).await?;
    drop(stdin);
    let output = tokio::time::timeout(LIMIT, child.wait_with_output())
        .await
        .map_err(|_| "the program did not answer in time")??;
    if !output.status.success() {
        return Err(format!(
            "the program ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )
        .into());
    }
    let text = String::from_utf8(output.stdout)?;
    Ok(text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?)
}
