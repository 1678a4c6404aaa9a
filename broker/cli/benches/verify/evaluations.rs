//! Keyferry's own evaluations: from the token's text to the user or the reason, including signature
//! and CEL. The files are compiled beforehand.

use std::time::Duration;

use jiff::Timestamp;
use keyferry_kube_authn::Minor;
use keyferry_kube_authn::config;
use keyferry_kube_authn::token::Token;
use keyferry_kube_authn::validate::{Compiled, validate_configuration};
use keyferry_kube_authn::verify::{Keys, Union, verify_token};

use super::work::{NOW, Work};
use crate::harness::{Outcome, process};

const ROUND: Duration = Duration::from_secs(2);

/// Evaluations per second of this thread.
pub fn rate(work: &Work) -> Outcome<f64> {
    let keys = Keys::for_all(work.keys.to_string().as_bytes());
    let now = Timestamp::from_second(NOW)?;
    let compiled: Vec<Compiled> = work
        .files
        .iter()
        .map(|file| compiled(&file.config))
        .collect::<Outcome<_>>()?;
    let (mut evaluations, mut accepted) = (0_u64, 0_u64);
    let start = process::now();
    while start.elapsed() < ROUND {
        for (file, compiled) in work.files.iter().zip(&compiled) {
            for token in &file.tokens {
                let token = Token::read(token.as_bytes())
                    .map_err(|undetermined| undetermined.to_string())?;
                match verify_token(compiled, &token, &keys, now).union() {
                    Union::Accepted(_) => accepted += 1,
                    Union::Undetermined(why) => return Err(why.to_string().into()),
                    Union::Rejected(_) | Union::Skipped => {}
                }
                evaluations += 1;
            }
        }
    }
    let rate = evaluations as f64 / start.elapsed().as_secs_f64();
    // Guard against measuring nothing: some tokens must be accepted, but not all.
    if accepted == 0 || accepted == evaluations {
        Err("the tokens are not evaluated".into())
    } else {
        Ok(rate)
    }
}

fn compiled(text: &str) -> Outcome<Compiled> {
    let loaded = config::load_configuration(text.as_bytes(), Minor::V1_36)
        .map_err(|_| "a shipped file is not loaded")?;
    Ok(
        validate_configuration(&loaded.configuration, Minor::V1_36, &[])
            .map_err(|invalid| invalid.message())?,
    )
}
