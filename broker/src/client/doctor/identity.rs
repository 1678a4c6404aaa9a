//! Who a token is to a target, and who it was predicted to be.

use keyferry_trust::doctor::{Fetched, Held, Identity, Prediction, entry_for, predict};
use keyferry_trust::token::Token;
use serde_json::Value;

use super::fetch::{Fetcher, jwks_uri};
use super::start::Plan;
use super::target_calls::TargetCalls;
use crate::clock::{Clock, SystemClock};

/// What the target answered.
pub struct Answered {
    /// The bearer's `userInfo`.
    pub user: Result<Value, Identity>,
    /// The `userInfo` as the impersonated ServiceAccount, where one is named.
    pub impersonated: Option<Result<Value, Identity>>,
    /// What the file predicts.
    pub predicted: Option<Prediction>,
}

/// Asks the target.
///
/// # Errors
/// What is missing, or what failed before the target was asked.
pub async fn ask(plan: &Plan, auth_config: Option<&[u8]>) -> Result<Answered, String> {
    let calls = calls(plan).await?;
    let clock = SystemClock::start();
    let user = calls.review(None).await;
    let impersonated = match (plan.impersonated_user(), &user) {
        (Some(name), Ok(_)) => Some(calls.review(Some(&name)).await),
        _ => None,
    };
    let predicted = match auth_config {
        Some(file) => Some(prediction(plan, file, &calls, &clock).await?),
        None => None,
    };
    Ok(Answered { user, impersonated, predicted })
}

/// Calls to the plan's target with its token.
///
/// # Errors
/// What is missing.
pub async fn calls(plan: &Plan) -> Result<TargetCalls, String> {
    if let Some(problem) = &plan.problem {
        return Err(format!("starting from {}: {}: {}", plan.start, problem.cause.name(), problem.detail));
    }
    let target = plan.target.as_ref().ok_or("the target is not known: give --target-address, or something to start from")?;
    match &plan.held {
        Held::Failed(problem) => return Err(format!("getting the token: {}: {}", problem.cause.name(), problem.detail)),
        Held::None => return Err("there is no token: give --target-token-file".to_owned()),
        Held::Token(_) => {}
    }
    let token = plan.secret().ok_or("reading the token: it is no signed JWT")?;
    TargetCalls::new(target, Some(token)).await.map_err(|error| error.to_string())
}

async fn prediction(plan: &Plan, file: &[u8], calls: &TargetCalls, clock: &SystemClock) -> Result<Prediction, String> {
    let Held::Token(bytes) = &plan.held else { return Err("there is no token".to_owned()) };
    let token = Token::read(bytes).map_err(|undetermined| undetermined.to_string())?;
    let minor = calls.greet(clock).await.minor.ok_or("predicting: the target does not say a release of 1.30 to 1.37")?;
    let issuer = plan.token_issuer();
    let mut keys = Fetched::NotTried;
    if let Some(place) = plan.discovery_place(entry_for(file, issuer.as_deref()), issuer.as_deref()) {
        let fetcher = Fetcher::new(place.ca_pem.as_deref()).map_err(|error| error.to_string())?;
        if let Some(uri) = jwks_uri(&fetcher.get(&place.url).await) {
            keys = fetcher.get(&uri).await;
        }
    }
    let body = match &keys {
        Fetched::Answer(answer) if answer.status == 200 => Some(answer.body.as_slice()),
        _ => None,
    };
    Ok(predict(file, minor, &plan.own_issuers, &token, body, clock.now().wall))
}

impl Answered {
    /// The fields in which answer and prediction differ; none where there is nothing to compare.
    #[must_use]
    pub fn differences(&self) -> Option<Vec<&'static str>> {
        match (self.predicted.as_ref()?, &self.user) {
            (Prediction::Undetermined(..), _) | (_, Err(Identity::Failed(_) | Identity::NotAsked)) => None,
            (Prediction::Accepted(user), Ok(answer)) => {
                let predicted = serde_json::to_value(user).unwrap_or_default();
                let mut differences = Vec::new();
                for field in ["username", "uid"] {
                    let text = |value: &Value| value[field].as_str().unwrap_or_default().to_owned();
                    differences.extend((text(&predicted) != text(answer)).then_some(field));
                }
                // The target adds this one itself.
                let groups = |value: &Value| {
                    let all = value["groups"].as_array().cloned().unwrap_or_default();
                    all.into_iter().filter(|group| group != "system:authenticated").collect::<Vec<_>>()
                };
                differences.extend((groups(&predicted) != groups(answer)).then_some("groups"));
                let extra = |value: &Value| value["extra"].as_object().cloned().unwrap_or_default();
                differences.extend((extra(&predicted) != extra(answer)).then_some("extra"));
                Some(differences)
            }
            (Prediction::Accepted(_), Err(_)) => Some(vec!["verdict"]),
            (Prediction::Rejected(..) | Prediction::Refused(..), Err(Identity::Refused)) => Some(Vec::new()),
            (Prediction::Rejected(..) | Prediction::Refused(..), _) => Some(vec!["verdict"]),
        }
    }
}

#[cfg(test)]
mod tests {
    use keyferry_trust::Code;
    use keyferry_trust::doctor::{Identity, Prediction};
    use serde_json::json;

    use super::Answered;

    #[test]
    fn what_the_target_adds_is_no_difference() {
        let user = keyferry_trust::verify::User { username: "hub:a".to_owned(), ..Default::default() };
        let mut answered = Answered {
            user: Ok(json!({ "username": "hub:a", "groups": ["system:authenticated"] })),
            impersonated: None,
            predicted: Some(Prediction::Accepted(user)),
        };
        assert_eq!(answered.differences(), Some(vec![]));
        answered.user = Ok(json!({ "username": "hub:b", "groups": ["g", "system:authenticated"] }));
        assert_eq!(answered.differences(), Some(vec!["username", "groups"]));
        answered.user = Err(Identity::Refused);
        assert_eq!(answered.differences(), Some(vec!["verdict"]));
        answered.predicted = Some(Prediction::Rejected(Code::TokenExpired, String::new()));
        assert_eq!(answered.differences(), Some(vec![]));
        answered.predicted = None;
        assert_eq!(answered.differences(), None);
    }
}
