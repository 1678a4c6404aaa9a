//! Compares both sides on every file of `auth-configs/` with the tokens of every vector, at every
//! oracle. They must agree, and for a file's own tokens they must agree with its vectors.

use super::case::{Case, ConfigText, Form, NOW, Published};
use super::compare::{Tally, compare};
use super::generate::key_set;
use super::judge;
use super::keys::{KeyName, SigningKeys};
use super::node::Node;
use super::token::TokenSpec;
use crate::auth_configs::{self, AuthConfig, Expected, User};
use crate::oracle::{OracleVerdict, Oracles, Question};
use crate::runner::{TestError, TestResult};

const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Asks both sides, and fails on any difference or undetermined judgement.
///
/// # Errors
/// The differences.
pub async fn shipped(oracles: &Oracles) -> TestResult {
    let keys = SigningKeys::generate().map_err(|_| "no signing keys")?;
    let files = auth_configs::all()?;
    let tokens: Vec<TokenSpec> = files.iter().flat_map(tokens).collect();
    let cases = files
        .iter()
        .map(|file| case(file, &tokens, &keys))
        .collect::<Result<Vec<_>, _>>()?;
    let questions: Vec<Question> = cases
        .iter()
        .zip(0..)
        .map(|(case, id)| case.question(id, &keys))
        .collect();
    let answers = oracles.ask(&questions).await?;
    let (mut tally, mut wrong, mut held) = (Tally::default(), Vec::new(), 0);
    for (oracle, answers) in oracles.all().iter().zip(&answers) {
        let mut own = 0;
        for ((file, case), (question, answer)) in
            files.iter().zip(&cases).zip(questions.iter().zip(answers))
        {
            let compared = compare(&judge::rule(case, question, oracle.release()), answer);
            tally.add(compared.tally);
            wrong.extend(
                compared
                    .differences
                    .iter()
                    .map(|found| format!("{}, {:?}: {found:?}", file.name, oracle.release())),
            );
            // The tokens of all files are in the order of the files.
            for (vector, verdicts) in file
                .vectors
                .cases
                .iter()
                .zip(answer.tokens.iter().skip(own))
            {
                held += 1;
                if !is_as_written(verdicts, vector.expected()?) {
                    wrong.push(format!(
                        "{}, {}, {:?}: not as written: {verdicts:?}",
                        file.name,
                        vector.name,
                        oracle.release()
                    ));
                }
            }
            own += file.vectors.cases.len();
        }
    }
    eprintln!(
        "{} files, {} tokens each, {held} vectors: {tally}",
        files.len(),
        tokens.len()
    );
    if tally.agreed < files.len() * tokens.len() * oracles.all().len()
        || tally.undetermined + tally.unpublished + tally.panicked > 0
    {
        wrong.push(format!("not everything was compared: {tally}"));
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n").into())
    }
}

fn tokens(file: &AuthConfig) -> Vec<TokenSpec> {
    let token = |case| {
        let key = KeyName::P256A;
        TokenSpec {
            header: Node::map([
                ("alg", Node::text(key.algorithm())),
                ("kid", Node::text(key.kid())),
            ]),
            claims: Node::raw(
                serde_json::Value::Object(file.vectors.claims(case, NOW)).to_string(),
            ),
            key: if case.signed_by_issuer() {
                key
            } else {
                KeyName::P256B
            },
            algorithm: key.algorithm().to_owned(),
            damage: Vec::new(),
        }
    };
    file.vectors.cases.iter().map(token).collect()
}

fn case(file: &AuthConfig, tokens: &[TokenSpec], keys: &SigningKeys) -> Result<Case, TestError> {
    let issuers = file.issuers().into_iter().zip(file.discovery_urls()?);
    let published = |(issuer, discovery_url)| Published {
        issuer,
        discovery_url,
        key_set: key_set::sound(keys),
    };
    Ok(Case {
        // The file as it is, byte for byte except for the certificate.
        config: ConfigText {
            tree: Node::raw(""),
            form: Form::Json,
            before: file.with_certificate(keys.authority_pem()),
            after: String::new(),
        },
        disallowed_issuers: Vec::new(),
        issuers: issuers.map(published).collect(),
        tokens: tokens.to_vec(),
    })
}

fn is_as_written(verdicts: &[OracleVerdict], expected: Expected<'_>) -> bool {
    let user = verdicts.iter().find_map(|verdict| verdict.user.as_ref());
    let refused = verdicts.iter().any(|verdict| verdict.error.is_some());
    match (expected, user) {
        (
            Expected::Accepted(User {
                username,
                groups,
                uid,
                extra,
            }),
            Some(found),
        ) => {
            let mut found_extra = found.extra.clone();
            found_extra.remove(CREDENTIAL_ID);
            *username == found.name
                && *groups == found.groups
                && *uid == found.uid
                && *extra == found_extra
        }
        (Expected::Rejected(_), None) => refused,
        (Expected::Skipped(_), None) => !refused && verdicts.iter().all(|verdict| verdict.skipped),
        _ => false,
    }
}
