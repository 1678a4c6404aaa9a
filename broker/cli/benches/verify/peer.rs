//! kube-apiserver's own authenticator, in a process that reads questions as lines: each file once,
//! with its tokens repeated.

use std::collections::BTreeMap;
use std::time::Duration;

use keyferry_integration::oracle::{Document, Oracle, Question};
use keyferry_integration::parts::{OracleRelease, Parts};
use serde_json::json;
use tokio::runtime::Runtime;

use super::work::{File, NOW, Work};
use crate::harness::{Outcome, process};

/// The name and version of the authenticator.
pub const NAME: &str = "k8s.io/apiserver 0.36.6 (one question at a time)";
/// The number of tokens in a question: enough that compiling its file hardly matters. The remaining
/// share is subtracted.
const TOKENS: usize = 4000;

/// A running authenticator of kube-apiserver.
pub struct Peer {
    runtime: Runtime,
    oracle: Oracle,
}

impl Peer {
    /// Starts the authenticator, and builds it if necessary.
    pub fn start() -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        let oracle = runtime
            .block_on(Oracle::start(
                &Parts::from_environment(),
                OracleRelease::V0_36,
            ))
            .map_err(|error| error.to_string())?;
        Ok(Self { runtime, oracle })
    }

    /// Evaluations per second of the process: one question at a time, with the time of questions
    /// without tokens subtracted.
    pub fn rate(&mut self, work: &Work) -> Outcome<f64> {
        let (mut evaluations, mut time) = (0_usize, Duration::ZERO);
        for file in &work.files {
            let tokens: Vec<String> = file.tokens.iter().cycle().take(TOKENS).cloned().collect();
            let empty = self.ask(&question(work, file, Vec::new()), 0)?;
            time += self
                .ask(&question(work, file, tokens), TOKENS)?
                .saturating_sub(empty);
            evaluations += TOKENS;
        }
        Ok(evaluations as f64 / time.as_secs_f64())
    }

    fn ask(&self, question: &Question, verdicts: usize) -> Outcome<Duration> {
        let start = process::now();
        let answers = self
            .runtime
            .block_on(self.oracle.ask(std::slice::from_ref(question)))?;
        let time = start.elapsed();
        let answer = answers.first().ok_or("the peer does not answer")?;
        let ready = answer
            .authenticators
            .iter()
            .all(|state| state.new_error.is_none() && state.not_ready.is_none());
        if answer.load_error.is_some() || !ready || answer.tokens.len() != verdicts {
            return Err(format!("the peer does not evaluate {}", question.config).into());
        }
        Ok(time)
    }
}

fn question(work: &Work, file: &File, tokens: Vec<String>) -> Question {
    let document = |body: String| Document {
        status: 200,
        content_type: "application/json".to_owned(),
        body,
    };
    let mut http = BTreeMap::new();
    for (issuer, discovery_url) in &file.issuers {
        let place = discovery_url
            .clone()
            .unwrap_or_else(|| format!("{issuer}/.well-known/openid-configuration"));
        http.insert(
            place,
            document(json!({ "issuer": issuer, "jwks_uri": format!("{issuer}/keys") }).to_string()),
        );
        http.insert(format!("{issuer}/keys"), document(work.keys.to_string()));
    }
    Question {
        id: 1,
        config: file.config.clone(),
        disallowed_issuers: Vec::new(),
        now: NOW,
        http,
        tokens,
    }
}
