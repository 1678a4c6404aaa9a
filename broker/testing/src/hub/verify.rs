//! How the hub itself verifies a token of its own ServiceAccounts.

use super::claims::LEGACY_ISSUER;
use super::object::Resource;
use super::policy::HubPolicy;
use crate::apiserver::policy::ReviewedToken;
use crate::identity::{AUTHENTICATED, UserInfo};
use crate::jws::Jws;
use crate::locked;

/// Why the hub does not accept a token; displayed as the text of `status.error` in a TokenReview.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The token is not one of this hub's ServiceAccounts.
    #[error("invalid bearer token")]
    Unclaimed,
    #[error("[invalid bearer token, failed to verify token signature]")]
    Signature,
    #[error(
        "[invalid bearer token, token audiences {held:?} is invalid for the target audiences \
         {wanted:?}]"
    )]
    Audiences {
        held: Vec<String>,
        wanted: Vec<String>,
    },
    #[error("[invalid bearer token, service account token has expired]")]
    Expired,
    #[error("[invalid bearer token, service account token is not valid yet]")]
    NotYetValid,
    #[error("[invalid bearer token, serviceaccounts {0:?} not found]")]
    NoAccount(String),
    #[error(
        "[invalid bearer token, service account UID ({live}) does not match claim ({claimed})]"
    )]
    OtherUid { live: String, claimed: String },
}

/// Verifies signature, issuer, audience, times (60 s leeway, as a hub gives its own tokens) and
/// that the ServiceAccount still lives. No wanted audience means the hub's own.
///
/// # Errors
/// [`Refusal`].
pub(super) fn token(
    hub: &HubPolicy,
    token: &str,
    wanted: &[String],
) -> Result<ReviewedToken, Refusal> {
    let jws = Jws::parse(token).ok_or(Refusal::Unclaimed)?;
    let account = Account::named_in(&jws, hub).ok_or(Refusal::Unclaimed)?;
    let keys = locked(&hub.keys).published();
    if !keys.iter().any(|jwk| jws.verified_by(jwk)) {
        return Err(Refusal::Signature);
    }
    let own = [hub.issuer.clone()];
    let held = if account.legacy {
        own.to_vec()
    } else {
        jws.audiences().unwrap_or_default()
    };
    let wanted = if wanted.is_empty() { &own } else { wanted };
    let audiences: Vec<String> = held
        .iter()
        .filter(|audience| wanted.contains(audience))
        .cloned()
        .collect();
    if audiences.is_empty() {
        return Err(Refusal::Audiences {
            held,
            wanted: wanted.to_vec(),
        });
    }
    if !account.legacy {
        check_times(&jws, hub.now().as_second())?;
    }
    account.check_alive(hub)?;
    Ok(ReviewedToken {
        user: account.user(&jws),
        audiences,
    })
}

const LEEWAY: i64 = 60;

fn check_times(jws: &Jws<'_>, now: i64) -> Result<(), Refusal> {
    let exp = jws.seconds("exp").unwrap_or(i64::MIN);
    if now > exp.saturating_add(LEEWAY) {
        return Err(Refusal::Expired);
    }
    let nbf = jws.seconds("nbf").unwrap_or(i64::MIN);
    if now < nbf.saturating_sub(LEEWAY) {
        return Err(Refusal::NotYetValid);
    }
    Ok(())
}

/// The ServiceAccount that a token names.
struct Account {
    namespace: String,
    name: String,
    uid: String,
    legacy: bool,
}

impl Account {
    /// Reads the private claims of either form; `None` when the token is not of this hub.
    fn named_in(jws: &Jws<'_>, hub: &HubPolicy) -> Option<Self> {
        let issuer = jws.claim("iss")?;
        if issuer == LEGACY_ISSUER {
            let claim = |name: &str| {
                jws.claim(&format!("kubernetes.io/serviceaccount/{name}"))
                    .map(str::to_owned)
            };
            return Some(Self {
                namespace: claim("namespace")?,
                name: claim("service-account.name")?,
                uid: claim("service-account.uid")?,
                legacy: true,
            });
        }
        if issuer != hub.issuer {
            return None;
        }
        let private = jws.claims.get("kubernetes.io")?;
        let account = private.get("serviceaccount")?;
        let text = |value: Option<&serde_json::Value>| Some(value?.as_str()?.to_owned());
        Some(Self {
            namespace: text(private.get("namespace"))?,
            name: text(account.get("name"))?,
            uid: text(account.get("uid"))?,
            legacy: false,
        })
    }

    fn check_alive(&self, hub: &HubPolicy) -> Result<(), Refusal> {
        let live = hub
            .objects
            .get(Resource::ServiceAccounts, &self.namespace, &self.name);
        match live {
            None => Err(Refusal::NoAccount(self.name.clone())),
            Some(live) if live.uid != self.uid => Err(Refusal::OtherUid {
                live: live.uid.clone(),
                claimed: self.uid.clone(),
            }),
            Some(_) => Ok(()),
        }
    }

    fn user(&self, jws: &Jws<'_>) -> UserInfo {
        let mut user = UserInfo {
            username: super::claims::subject(&self.namespace, &self.name),
            uid: self.uid.clone(),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{}", self.namespace),
                AUTHENTICATED.to_owned(),
            ],
            ..UserInfo::default()
        }
        .with_credential_id(jws.claim("jti"));
        let pod = jws.claims.get("kubernetes.io").and_then(|it| it.get("pod"));
        for field in ["name", "uid"] {
            let value = pod
                .and_then(|pod| pod.get(field))
                .and_then(|it| it.as_str());
            if let Some(value) = value {
                let key = format!("authentication.kubernetes.io/pod-{field}");
                user.extra.insert(key, vec![value.to_owned()]);
            }
        }
        user
    }
}
