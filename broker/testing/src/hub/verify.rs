//! How the hub itself verifies a token of its own ServiceAccounts.

use super::claims::LEGACY_ISSUER;
use super::object::Resource;
use super::state::HubState;
use crate::identity::{AUTHENTICATED, UserInfo};
use crate::jws::Jws;
use crate::locked;

/// A token that was accepted.
pub(super) struct Verified {
    pub(super) user: UserInfo,
    /// The requested audiences that the token has.
    pub(super) audiences: Vec<String>,
}

/// Verifies signature, issuer, audience, times (60 s leeway, as a hub gives its own tokens) and
/// that the ServiceAccount still lives. No wanted audience means the hub's own.
///
/// # Errors
/// The text of `status.error` in a TokenReview.
pub(super) fn token(hub: &HubState, token: &str, wanted: &[String]) -> Result<Verified, String> {
    let unclaimed = || "invalid bearer token".to_owned();
    let refused = |cause: String| format!("[invalid bearer token, {cause}]");

    let jws = Jws::parse(token).ok_or_else(unclaimed)?;
    let account = Account::named_in(&jws, hub).ok_or_else(unclaimed)?;
    let keys = locked(&hub.keys).published();
    if !keys.iter().any(|jwk| jws.verified_by(jwk)) {
        return Err(refused("failed to verify token signature".to_owned()));
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
        return Err(refused(format!(
            "token audiences {held:?} is invalid for the target audiences {wanted:?}"
        )));
    }
    if !account.legacy {
        check_times(&jws, hub.now().as_second()).map_err(|cause| refused(cause.to_owned()))?;
    }
    account.check_alive(hub).map_err(refused)?;
    Ok(Verified {
        user: account.user(&jws),
        audiences,
    })
}

const LEEWAY: i64 = 60;

fn check_times(jws: &Jws<'_>, now: i64) -> Result<(), &'static str> {
    let exp = jws.seconds("exp").unwrap_or(i64::MIN);
    if now > exp.saturating_add(LEEWAY) {
        return Err("service account token has expired");
    }
    let nbf = jws.seconds("nbf").unwrap_or(i64::MIN);
    if now < nbf.saturating_sub(LEEWAY) {
        return Err("service account token is not valid yet");
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
    fn named_in(jws: &Jws<'_>, hub: &HubState) -> Option<Self> {
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

    fn check_alive(&self, hub: &HubState) -> Result<(), String> {
        let live = hub
            .objects
            .get(Resource::ServiceAccounts, &self.namespace, &self.name);
        match live {
            None => Err(format!("serviceaccounts {:?} not found", self.name)),
            Some(live) if live.uid != self.uid => Err(format!(
                "service account UID ({}) does not match claim ({})",
                live.uid, self.uid
            )),
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
