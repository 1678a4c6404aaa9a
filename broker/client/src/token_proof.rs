//! Proves what a target does with tokens: with the own token of an access, with the same token under
//! a forged signature, and with a token for an audience that no target has.
//!
//! # Guarantees
//! A target is sent [`ProofToken`]s alone. Only [`AudienceOwners`] makes one, for one target, and only
//! if no other target that is known accepts its audience. A target that lies or is taken over can use
//! none of them elsewhere. They go to the address of the TargetCluster, whatever a kubeconfig or an
//! object of a tenant says.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keyferry_api::audience::{Audience, AudienceError};
use keyferry_api::config::TargetCluster;
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_api::service_account::ServiceAccount;
use keyferry_hub::client::HubAccess;
use keyferry_keys::jwt::UnverifiedJwt;
use keyferry_platform::address_guard::AddressGuard;
use keyferry_platform::random::{Random, SystemRandomness};
use keyferry_platform::target_connection::TargetAddress;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use crate::checked_mint::{CheckedMintError, mint_checked};
use crate::doctor::diagnosis::Identity;
use crate::doctor::start::{SecretAuthorityError, target_authority};
use crate::doctor::target_calls::TargetCalls;

/// How long a target may take for one token.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);

/// Which targets accept which audience, as far as their objects and files say.
#[derive(Clone, Debug, Default)]
pub struct AudienceOwners(BTreeMap<String, BTreeSet<ObjectName>>);

/// A token is not one that may be sent to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofTokenError {
    /// Its audience cannot be read, or there are several.
    #[error("the token does not have exactly one audience, so it was not sent")]
    SeveralAudiences,
    /// A target other than the one that is to get the token accepts it.
    #[error("another target accepts the token's audience, so it was not sent")]
    AcceptedElsewhere,
    /// The target does not have the token's audience.
    #[error("the token's audience is not that of the target, so it was not sent")]
    NotOfTarget,
    /// No signature could be made up.
    #[error("there is no token with a forged signature, because no random number could be read")]
    NotForged,
}

/// A token that may be sent to one target, because no other target accepts it.
pub struct ProofToken {
    target: ObjectName,
    token: SecretString,
}

impl AudienceOwners {
    /// Notes that a target accepts an audience.
    pub fn add_audience(&mut self, target: &ObjectName, audience: &str) {
        let owners = self.0.entry(audience.to_owned()).or_default();
        owners.insert(target.clone());
    }

    /// Admits a token whose audience is that of its target, and of no other.
    ///
    /// # Errors
    /// [`ProofTokenError`].
    pub fn admit_own(
        &self,
        target: &ObjectName,
        token: SecretString,
    ) -> Result<ProofToken, ProofTokenError> {
        match self.owners_of(&token)? {
            Some(owners) if owners.contains(target) && owners.len() == 1 => Ok(ProofToken {
                target: target.clone(),
                token,
            }),
            Some(owners) if owners.contains(target) => Err(ProofTokenError::AcceptedElsewhere),
            _ => Err(ProofTokenError::NotOfTarget),
        }
    }

    /// Admits a token whose audience no target has.
    ///
    /// # Errors
    /// [`ProofTokenError`].
    pub fn admit_foreign(
        &self,
        target: &ObjectName,
        token: SecretString,
    ) -> Result<ProofToken, ProofTokenError> {
        match self.owners_of(&token)? {
            None => Ok(ProofToken {
                target: target.clone(),
                token,
            }),
            Some(_) => Err(ProofTokenError::AcceptedElsewhere),
        }
    }

    fn owners_of(
        &self,
        token: &SecretString,
    ) -> Result<Option<&BTreeSet<ObjectName>>, ProofTokenError> {
        let audience = only_audience(token).ok_or(ProofTokenError::SeveralAudiences)?;
        Ok(self.0.get(&audience))
    }
}

impl ProofToken {
    /// Returns the token with random bytes for a signature: the key's id stays, and nothing of the
    /// real signature is in it.
    ///
    /// # Errors
    /// [`ProofTokenError::NotForged`].
    pub fn with_forged_signature(&self) -> Result<Self, ProofTokenError> {
        let forged = self.token.expose_secret().rsplit_once('.');
        let forged = forged.and_then(|(signed, signature)| {
            let mut bytes = URL_SAFE_NO_PAD.decode(signature).ok()?;
            let is_filled = SystemRandomness::default().fill_bytes(&mut bytes);
            is_filled.then(|| format!("{signed}.{}", URL_SAFE_NO_PAD.encode(bytes)))
        });
        Ok(Self {
            target: self.target.clone(),
            token: forged.ok_or(ProofTokenError::NotForged)?.into(),
        })
    }
}

/// The audience of a token that has exactly one.
fn only_audience(token: &SecretString) -> Option<String> {
    let jwt = UnverifiedJwt::parse(token.expose_secret()).ok()?;
    match jwt.claims().get("aud")? {
        Value::String(audience) => Some(audience.clone()),
        Value::Array(all) => match all.as_slice() {
            [Value::String(audience)] => Some(audience.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// Which target is tried, and by the token of which access. Nothing of it may come from an object that
/// a tenant writes.
#[derive(Debug)]
pub struct ProofOrder<'a> {
    /// The target.
    pub target: &'a TargetCluster,
    /// The namespace of its CA certificates.
    pub namespace: &'a Namespace,
    /// The ServiceAccount of an access that may use it.
    pub account: &'a ServiceAccount,
    /// The user that the target should name for it.
    pub user: &'a str,
}

/// What a target did with tokens, and what could not be tried.
#[derive(Debug, Default)]
pub struct TokenProof {
    /// What it did otherwise than it should.
    pub differences: Vec<String>,
    /// What is not known.
    pub unknown: Vec<String>,
}

/// The target that gets the tokens.
struct ProofTarget<'a> {
    name: &'a ObjectName,
    address: &'a TargetAddress,
    guard: &'a AddressGuard,
}

/// Why a token was not tried.
#[derive(Debug, thiserror::Error)]
enum ProofFault {
    #[error(transparent)]
    Token(#[from] ProofTokenError),
    #[error("no token was issued: {0}")]
    Mint(#[from] CheckedMintError),
    #[error("no token was issued: {0}")]
    Audience(#[from] AudienceError),
    #[error("its CA certificates could not be read: {0}")]
    Authority(#[from] SecretAuthorityError),
}

/// How a target answered a token.
enum ProofAnswer {
    /// It accepted the token, as the one of this user; empty if it does not return the name.
    Accepted(String),
    /// It answered with 401.
    Refused,
    /// It did not answer, or something else.
    Unknown(String),
}

impl ProofTarget<'_> {
    async fn review_token(&self, token: &ProofToken) -> ProofAnswer {
        if token.target != *self.name {
            return ProofAnswer::Unknown(ProofTokenError::NotOfTarget.to_string());
        }
        let review = async {
            let token = Some(token.token.clone());
            match TargetCalls::new(self.address, token, self.guard).await {
                Ok(calls) => calls.who(None).await,
                Err(error) => Identity::Failed(error.to_string()),
            }
        };
        match tokio::time::timeout(REVIEW_TIMEOUT, review).await {
            Err(_) => ProofAnswer::Unknown("it did not answer within 5 s".to_owned()),
            Ok(Identity::Refused) => ProofAnswer::Refused,
            Ok(Identity::Known(user)) => ProofAnswer::Accepted(user),
            Ok(Identity::Forbidden(why) | Identity::Failed(why)) => ProofAnswer::Unknown(why),
            Ok(Identity::NotAsked) => ProofAnswer::Unknown("it was not asked".to_owned()),
        }
    }
}

impl TokenProof {
    /// Judges a token that the target has to refuse. `what` describes the token.
    fn judge_refused(&mut self, what: &str, answer: Result<ProofAnswer, ProofFault>) {
        match answer {
            Ok(ProofAnswer::Refused) => {}
            Ok(ProofAnswer::Accepted(_)) => self.differences.push(format!("it accepts {what}")),
            Ok(ProofAnswer::Unknown(why)) => self.unknown.push(format!("{what}: {why}")),
            Err(fault) => self.unknown.push(format!("{what}: {fault}")),
        }
    }

    /// Judges a token that the target has to accept.
    fn judge_own(&mut self, account: &ServiceAccount, wanted: &str, answer: ProofAnswer) {
        let what = format!("the token of {account}");
        match answer {
            ProofAnswer::Accepted(user) if user == wanted => {}
            ProofAnswer::Accepted(user) if user.is_empty() => self
                .unknown
                .push(format!("{what}: it accepts it and does not name the user")),
            ProofAnswer::Accepted(user) => self.differences.push(format!(
                "it takes {what} for user {user:?}, which should be {wanted:?}"
            )),
            ProofAnswer::Refused => self
                .differences
                .push(format!("it refuses {what} with status 401")),
            ProofAnswer::Unknown(why) => self.unknown.push(format!("{what}: {why}")),
        }
    }
}

/// Sends a target a token that it has to accept, and two that it has to refuse. They are issued with
/// the user's own rights on the hub.
pub async fn prove_tokens(
    order: &ProofOrder<'_>,
    owners: &AudienceOwners,
    hub: &HubAccess,
    guard: &AddressGuard,
) -> TokenProof {
    let mut proof = TokenProof::default();
    let (own, address) = match own_token(order, owners, hub).await {
        Ok(found) => found,
        Err(fault) => {
            proof.unknown.push(fault.to_string());
            return proof;
        }
    };
    let target = ProofTarget {
        name: &order.target.name,
        address: &address,
        guard,
    };
    let answer = target.review_token(&own).await;
    proof.judge_own(order.account, order.user, answer);
    let answer = match own.with_forged_signature() {
        Ok(forged) => Ok(target.review_token(&forged).await),
        Err(error) => Err(error.into()),
    };
    proof.judge_refused("a token with a forged signature", answer);
    let answer = match foreign_token(order, owners, hub).await {
        Ok(foreign) => Ok(target.review_token(&foreign).await),
        Err(fault) => Err(fault),
    };
    proof.judge_refused("a token for an audience of no target", answer);
    proof
}

/// Issues the own token, and returns it with the address to which it may be sent.
async fn own_token(
    order: &ProofOrder<'_>,
    owners: &AudienceOwners,
    hub: &HubAccess,
) -> Result<(ProofToken, TargetAddress), ProofFault> {
    let target = order.target;
    let address = TargetAddress {
        url: target.address.clone(),
        ca_pem: target_authority(hub, order.namespace, target).await?,
        tls_server_name: target.tls_server_name.clone(),
        proxy_url: target.proxy_url.clone(),
    };
    let token = mint_checked(hub, order.account, &target.audience).await?;
    Ok((owners.admit_own(&target.name, token)?, address))
}

/// Issues a token for an audience that nothing can have, because it is made up now.
async fn foreign_token(
    order: &ProofOrder<'_>,
    owners: &AudienceOwners,
    hub: &HubAccess,
) -> Result<ProofToken, ProofFault> {
    let random = SystemRandomness::default();
    let (first, second) = (random.request_id(), random.request_id());
    let audience = Audience::new(format!("https://{first}{second}.proof.invalid"))?;
    let token = mint_checked(hub, order.account, &audience).await?;
    Ok(owners.admit_foreign(&order.target.name, token)?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn name(text: &str) -> ObjectName {
        ObjectName::new(text).unwrap()
    }

    fn token(audience: &Value) -> SecretString {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let header = part(&json!({ "alg": "RS256", "kid": "real" }));
        let claims = part(&json!({ "aud": audience, "sub": "a" }));
        format!("{header}.{claims}.{}", URL_SAFE_NO_PAD.encode([7; 256])).into()
    }

    /// The wall: every token that is sent passes one of these two.
    #[test]
    fn a_token_is_admitted_only_where_no_other_target_accepts_it() {
        let mut owners = AudienceOwners::default();
        for (target, audience) in [
            ("prod", "https://prod"),
            ("stage", "https://stage"),
            // The file of this target accepts what another one has.
            ("stage", "https://both"),
            ("prod", "https://both"),
        ] {
            owners.add_audience(&name(target), audience);
        }
        use ProofTokenError::{AcceptedElsewhere, NotOfTarget, SeveralAudiences};
        for (audience, own, foreign) in [
            (json!("https://prod"), Ok(()), Err(AcceptedElsewhere)),
            (json!(["https://prod"]), Ok(()), Err(AcceptedElsewhere)),
            (
                json!(["https://stage"]),
                Err(NotOfTarget),
                Err(AcceptedElsewhere),
            ),
            (
                json!(["https://both"]),
                Err(AcceptedElsewhere),
                Err(AcceptedElsewhere),
            ),
            (json!(["https://new"]), Err(NotOfTarget), Ok(())),
            (json!(["https://prod/"]), Err(NotOfTarget), Ok(())),
            (
                json!(["https://prod", "https://new"]),
                Err(SeveralAudiences),
                Err(SeveralAudiences),
            ),
            (json!([]), Err(SeveralAudiences), Err(SeveralAudiences)),
            (json!([1]), Err(SeveralAudiences), Err(SeveralAudiences)),
            (json!(null), Err(SeveralAudiences), Err(SeveralAudiences)),
        ] {
            let admitted = owners.admit_own(&name("prod"), token(&audience));
            assert_eq!(admitted.map(drop), own, "own, {audience}");
            let admitted = owners.admit_foreign(&name("prod"), token(&audience));
            assert_eq!(admitted.map(drop), foreign, "foreign, {audience}");
        }
        let none = owners.admit_own(&name("prod"), "no token".to_owned().into());
        assert_eq!(none.map(drop), Err(SeveralAudiences));
    }

    #[tokio::test]
    async fn a_token_for_one_target_is_not_sent_to_another() {
        let mut owners = AudienceOwners::default();
        owners.add_audience(&name("prod"), "https://prod");
        let token = owners.admit_own(&name("prod"), token(&json!("https://prod")));
        let stage = ProofTarget {
            name: &name("stage"),
            address: &TargetAddress {
                url: "https://127.0.0.1:1".to_owned(),
                ca_pem: None,
                tls_server_name: None,
                proxy_url: None,
            },
            guard: &keyferry_platform::testing::loopback_guard(),
        };
        let answer = stage.review_token(&token.unwrap()).await;
        assert!(matches!(answer, ProofAnswer::Unknown(why) if why.contains("was not sent")));
    }

    #[test]
    fn a_forged_token_has_the_key_id_and_nothing_of_the_signature() {
        let mut owners = AudienceOwners::default();
        owners.add_audience(&name("prod"), "https://prod");
        let own = owners
            .admit_own(&name("prod"), token(&json!("https://prod")))
            .unwrap();
        let forged = own.with_forged_signature().unwrap();
        let split = |token: &ProofToken| {
            let (signed, signature) = token.token.expose_secret().rsplit_once('.').unwrap();
            (
                signed.to_owned(),
                URL_SAFE_NO_PAD.decode(signature).unwrap(),
            )
        };
        let ((signed, real), (forged_signed, made_up)) = (split(&own), split(&forged));
        assert_eq!((signed, real.len()), (forged_signed, made_up.len()));
        let same = real.iter().zip(&made_up).filter(|(a, b)| a == b).count();
        assert!(same < 32, "{same} bytes of 256 are the same");
    }

    #[test]
    fn each_answer_has_its_verdict() {
        let account = ServiceAccount {
            namespace: Namespace::new("tenant-a").unwrap(),
            name: name("apps"),
        };
        let mut rows = Vec::new();
        let answers = || {
            [
                ("accepted", ProofAnswer::Accepted("hub:u".to_owned())),
                ("as another", ProofAnswer::Accepted("u".to_owned())),
                ("unnamed", ProofAnswer::Accepted(String::new())),
                ("refused", ProofAnswer::Refused),
                (
                    "silent",
                    ProofAnswer::Unknown("it answers with status 500".to_owned()),
                ),
            ]
        };
        for (case, answer) in answers() {
            let mut proof = TokenProof::default();
            proof.judge_own(&account, "hub:u", answer);
            rows.push(format!("own {case}: {proof:?}"));
        }
        for (case, answer) in answers() {
            let mut proof = TokenProof::default();
            proof.judge_refused("a forged token", Ok(answer));
            rows.push(format!("forged {case}: {proof:?}"));
        }
        insta::assert_snapshot!("proof-answers", rows.join("\n"));
    }
}
