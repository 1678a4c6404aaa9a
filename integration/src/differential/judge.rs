//! Runs keyferry-kube-authn on a case and converts its result for the comparison.

use jiff::Timestamp;
use keyferry_kube_authn::Minor;
use keyferry_kube_authn::config::{self, LoadFault};
use keyferry_kube_authn::token::Token;
use keyferry_kube_authn::validate::{self, Compiled, FieldError, Invalid};
use keyferry_kube_authn::verify::{self, Keys, Outcome};

use super::case::Case;
use super::verdict::{FieldFault, Ruling, User, Verdict};
use crate::oracle::Question;
use crate::parts::OracleRelease;

/// The ruling of keyferry-kube-authn for the minor version of the release.
pub(crate) fn rule(case: &Case, question: &Question, release: OracleRelease) -> Ruling {
    let minor = minor(release);
    let loaded = match config::load_configuration(question.config.as_bytes(), minor) {
        Ok(loaded) => loaded,
        Err(LoadFault::Refused(refusal)) => {
            return Ruling::NotLoaded {
                text: refusal.message,
                exact: refusal.exact,
            };
        }
        Err(LoadFault::Undetermined(undetermined)) => {
            return Ruling::Undetermined {
                why: undetermined.to_string(),
            };
        }
    };
    let compiled = match validate::validate_configuration(
        &loaded.configuration,
        minor,
        &question.disallowed_issuers,
    ) {
        Ok(compiled) => compiled,
        Err(invalid) => return not_valid(&invalid),
    };
    let keys = case.issuers.iter().fold(Keys::none(), |keys, published| {
        keys.with_key_set(&published.issuer, published.key_set.json().as_bytes())
    });
    let Ok(now) = Timestamp::from_second(question.now) else {
        return Ruling::Undetermined {
            why: "the time is out of range".to_owned(),
        };
    };
    Ruling::Verdicts(
        question
            .tokens
            .iter()
            .map(|token| verdicts(&compiled, token, &keys, now))
            .collect(),
    )
}

fn verdicts(compiled: &Compiled, token: &str, keys: &Keys, now: Timestamp) -> Vec<Verdict> {
    match Token::read(token.as_bytes()) {
        Ok(token) => verify::verify_token(compiled, &token, keys, now)
            .outcomes
            .into_iter()
            .map(verdict)
            .collect(),
        Err(undetermined) => compiled
            .issuers()
            .map(|_| Verdict::Undetermined {
                why: undetermined.to_string(),
            })
            .collect(),
    }
}

fn verdict(outcome: Outcome) -> Verdict {
    match outcome {
        Outcome::Skipped(_) => Verdict::Skipped,
        Outcome::Accepted(user) => Verdict::Accepted(User {
            name: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
        }),
        Outcome::Undetermined(undetermined) => Verdict::Undetermined {
            why: undetermined.to_string(),
        },
        Outcome::Rejected(rejection) if rejection.others.is_empty() => Verdict::Rejected {
            text: rejection.message,
            exact: rejection.exact,
        },
        Outcome::Rejected(rejection) => {
            let exact = rejection.exact;
            let texts = std::iter::once(rejection.message)
                .chain(rejection.others.into_iter().map(|(_, text)| text));
            Verdict::OneOf(
                texts
                    .map(|text| Verdict::Rejected { text, exact })
                    .collect(),
            )
        }
    }
}

fn not_valid(invalid: &Invalid) -> Ruling {
    let complete = invalid.undetermined.is_empty();
    match (invalid.errors.as_slice(), invalid.undetermined.first()) {
        ([], Some(undetermined)) => Ruling::Undetermined {
            why: undetermined.to_string(),
        },
        (errors, _) => Ruling::NotValid {
            errors: errors.iter().map(fault).collect(),
            complete,
        },
    }
}

fn fault(error: &FieldError) -> FieldFault {
    FieldFault {
        field: error.path.clone(),
        kind: error.kind.name().to_owned(),
        text: error.to_string(),
        exact: error.is_exact(),
    }
}

/// The minor version that a release of the oracle stands for; for one that the evaluator does not
/// know, the newest that it knows.
pub(crate) fn minor(release: OracleRelease) -> Minor {
    match release {
        OracleRelease::V0_30 => Minor::V1_30,
        OracleRelease::V0_31 => Minor::V1_31,
        OracleRelease::V0_32 => Minor::V1_32,
        OracleRelease::V0_33 => Minor::V1_33,
        OracleRelease::V0_34 => Minor::V1_34,
        OracleRelease::V0_35 => Minor::V1_35,
        OracleRelease::V0_36 => Minor::V1_36,
        OracleRelease::V0_37 | OracleRelease::V0_38 => Minor::V1_37,
    }
}
