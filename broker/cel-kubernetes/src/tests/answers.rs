//! Replays what kube-apiserver's own packages returned for expressions on claims of their own, in
//! `answers.tsv`.
//!
//! Each line has the claims, an expression as a JSON string, and the observations, in the form of
//! `observed.tsv`. Most expressions depend on the order of a map, on names in CEL's escaped form,
//! or are close to a limit.

use super::observed::{compare, observation};
use super::*;

/// The largest share of results that may be undetermined here, although the API server's is fixed,
/// in per mille.
const MOST_UNDETERMINED: usize = 20;

#[test]
fn every_minor_answers_as_the_api_server_does() {
    on_a_small_stack(|| {
        let (_, user) = inputs();
        let (mut wrong, mut undetermined, mut all) = (Vec::new(), Vec::new(), 0);
        for minor in Minor::ALL {
            let environment = Environment::new(minor);
            for line in include_str!("answers.tsv").lines() {
                let mut fields = line.split('\t');
                let claims: Json = serde_json::from_str(fields.next().unwrap()).unwrap();
                let text: String = serde_json::from_str(fields.next().unwrap()).unwrap();
                let theirs = observation(fields, minor);
                let (scope, input) = match &claims {
                    Json::String(_) => (Scope::User, Input::User(&user)),
                    claims => (Scope::Claims, Input::Claims(claims.as_object().unwrap())),
                };
                all += 1;
                match compare(&environment, input, (scope, &text), theirs) {
                    Ok(true) => {}
                    Ok(false) if matches!(theirs, "~" | "panics") => {}
                    Ok(false) => undetermined.push(format!("{minor} {text}: {theirs}")),
                    Err(ours) => wrong.push(format!(
                        "{minor} {text}\n  API server: {theirs}\n  ours:       {ours}"
                    )),
                }
            }
        }
        assert!(
            wrong.is_empty(),
            "{} differ:\n{}",
            wrong.len(),
            wrong.join("\n")
        );
        assert!(
            undetermined.len() * 1000 <= all * MOST_UNDETERMINED,
            "{} of {all} are undetermined:\n{}",
            undetermined.len(),
            undetermined.join("\n")
        );
    });
}
