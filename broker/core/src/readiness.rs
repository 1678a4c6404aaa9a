//! Whether tokens can be issued for a target: one decision for exchanges, deliveries, statuses and
//! commands, each of which words it for its reader.

use keyferry_api::config::TargetCluster;
use keyferry_api::issuer::Issuer;
use keyferry_api::reason::Reason;

use crate::authorise::issuer_collides;

/// How to fix [`NotReady::IssuerCollision`]: gives the hub an issuer that no target uses itself, or
/// the target an issuer of Keyferry's.
pub const ISSUER_COLLISION_FIX: &str = "give the hub's kube-apiserver a new https \
    --service-account-issuer first and keep the old one second: new tokens carry the new issuer, and \
    old ones stay valid on the hub; or start Keyferry with --enable-keyferry-issuer and set issuer: \
    Keyferry on the TargetCluster: then the target trusts <publicURL>/issuers/<its name>, with keys \
    of its own, and the hub stays as it is";

/// Why no token is issued for a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// The TargetCluster, or the TargetAccess that leads to it, is suspended.
    #[error("the TargetCluster or the TargetAccess is suspended")]
    Suspended,
    /// The hub's issuer is not known, so it cannot be compared with the target's own.
    #[error("the hub's keys are not known yet")]
    IssuerUnknown,
    /// The hub's issuer is also the target's own, so the target refuses the hub's tokens.
    #[error("a target whose own issuer is {0} refuses it")]
    IssuerCollision(Issuer),
    /// Its CA certificates are missing or invalid, or were not read yet.
    #[error("{message}")]
    Certificates {
        /// The stable code.
        reason: Reason,
        /// The explanation for an authorised caller.
        message: String,
    },
}

impl NotReady {
    /// The stable code.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Suspended => Reason::TargetSuspended,
            Self::IssuerUnknown => Reason::HubUnreachable,
            Self::IssuerCollision(_) => Reason::IssuerCollision,
            Self::Certificates { reason, .. } => *reason,
        }
    }

    /// What to do, unless the message says it.
    pub fn fix(&self) -> Option<&'static str> {
        matches!(self, Self::IssuerCollision(_)).then_some(ISSUER_COLLISION_FIX)
    }
}

/// Checks everything but the target's CA certificates, which the caller reads. `hub_issuer` is
/// `None` as long as it is not known.
///
/// # Errors
/// [`NotReady`], with the reason that is fixed first.
pub fn check_readiness(
    target: &TargetCluster,
    hub_issuer: Option<&Issuer>,
) -> Result<(), NotReady> {
    if target.suspend {
        return Err(NotReady::Suspended);
    }
    let hub_issuer = hub_issuer.ok_or(NotReady::IssuerUnknown)?;
    if issuer_collides(hub_issuer, target) {
        return Err(NotReady::IssuerCollision(hub_issuer.clone()));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::authorise::tests::{policy, target};

    #[test]
    fn a_target_is_ready_unless_it_is_suspended_or_its_issuer_unknown_or_its_own() {
        let hub = Issuer::new("https://hub.example.com").unwrap();
        let of = |fields: &str| {
            let policy = policy(&target(&format!("  audience: prod\n{fields}")));
            policy.targets.into_values().next().unwrap()
        };
        let colliding = of("  targetIssuer: https://hub.example.com\n");
        assert_eq!(check_readiness(&of(""), Some(&hub)), Ok(()));
        let suspended = TargetCluster {
            suspend: true,
            ..colliding.clone()
        };
        for (target, issuer, refused, reason) in [
            (
                &of(""),
                None,
                NotReady::IssuerUnknown,
                Reason::HubUnreachable,
            ),
            (
                &colliding,
                Some(&hub),
                NotReady::IssuerCollision(hub.clone()),
                Reason::IssuerCollision,
            ),
            (
                &suspended,
                Some(&hub),
                NotReady::Suspended,
                Reason::TargetSuspended,
            ),
        ] {
            assert_eq!(refused.reason(), reason);
            assert_eq!(refused.fix().is_some(), reason == Reason::IssuerCollision);
            assert_eq!(check_readiness(target, issuer), Err(refused));
        }
    }
}
