//! Compares what a tenant can have written with the listed targets, before a token is issued or sent.

use keyferry_api::audience::Audience;
use keyferry_kube_authn::Code;
use keyferry_platform::target_connection::TargetAddress;

use super::{Permission, may_not_list, problem};
use crate::doctor::diagnosis::Problem;
use crate::doctor::listed::{FindError, ListError, ListedTargets, MissingTargets};

/// Compares the audience that a tenant has written with those of the listed targets.
pub(super) fn compare_audience(
    audience: &Audience,
    listed: &Result<ListedTargets, ListError>,
) -> Result<(), Refusal> {
    let known = listed.as_ref().map_err(Refusal::unread)?;
    if known.with_audience(audience).is_some() {
        return Ok(());
    }
    let detail = format!(
        "its audience {:?} is that of no TargetCluster of {}",
        audience.as_str(),
        known.list_description()
    );
    Err(Refusal::absent(known, detail))
}

/// Compares a target that a tenant can have written with the listed ones. Returns the name of the
/// listed target.
pub(super) async fn compare_tenants_target(
    target: &TargetAddress,
    audience: Option<&Audience>,
    listed: &Result<ListedTargets, ListError>,
    permission: Permission,
) -> Result<Option<String>, Refusal> {
    let listed_targets = match listed {
        Ok(targets) => targets,
        Err(_) if permission.unlisted_target => return Ok(None),
        Err(error) => return Err(Refusal::unread(error)),
    };
    let difference = match (listed_targets.find(target, audience).await, audience) {
        // The user's own audience need not match the list. It must not be that of another listed
        // target, though, because this target could use the token there.
        (Ok(found), Some(audience))
            if found.audience != *audience
                && (!permission.audience || listed_targets.may_have_audience(audience)) =>
        {
            let (name, theirs) = (&found.name, found.audience.as_str());
            format!(
                "its audience is {:?}, that of TargetCluster {name} with this address is \
                 {theirs:?}",
                audience.as_str()
            )
        }
        (Ok(found), _) => return Ok(Some(found.name.to_string())),
        (Err(difference @ FindError::OtherAddress { .. }), _)
            if listed_targets.missing().is_some() && !permission.unlisted_target =>
        {
            return Err(Refusal::absent(listed_targets, difference.to_string()));
        }
        (Err(difference), _) => difference.to_string(),
    };
    if !permission.unlisted_target {
        return Err(Refusal::unlisted(difference));
    }
    refuse_listed_audience(difference, audience, listed_targets).map(|()| None)
}

/// No token is issued for the audience of a listed target, not even for an unlisted target that the
/// user allows: that one could use it there.
fn refuse_listed_audience(
    difference: String,
    audience: Option<&Audience>,
    known: &ListedTargets,
) -> Result<(), Refusal> {
    let Some(audience) = audience else {
        return Ok(());
    };
    if let Some(other) = known.with_audience(audience) {
        let detail = format!(
            "{difference}; and its audience is that of TargetCluster {}, whose tokens are sent \
             only there",
            other.name
        );
        return Err(Refusal::Broken(problem(Code::TargetNotListed, detail)));
    }
    match known.missing() {
        Some(missing @ MissingTargets::TooLarge(_)) => Err(Refusal::Unknown(format!(
            "{difference}; and whether its audience is listed is unknown: {missing}"
        ))),
        _ => Ok(()),
    }
}

/// Why nothing may be issued for a target or sent there.
pub(super) enum Refusal {
    /// The object that leads there is at fault.
    Broken(Problem),
    /// The user may not read what it would be compared with.
    Unknown(String),
}

impl Refusal {
    fn unlisted(detail: String) -> Self {
        Self::Broken(problem(
            Code::TargetNotListed,
            format!("{detail}. If this target is meant, give --allow-unlisted-target as well"),
        ))
    }

    /// The list could not be read.
    fn unread(error: &ListError) -> Self {
        match error {
            ListError::MissingRight(right) => Self::Unknown(may_not_list(right)),
            error => Self::unlisted(format!(
                "it could not be compared with the listed targets: {error}"
            )),
        }
    }

    /// The list does not have it. A target that the user may not see is not known to be unlisted.
    fn absent(known: &ListedTargets, detail: String) -> Self {
        match known.missing() {
            Some(missing) => Self::Unknown(format!("{detail}; {missing}")),
            None => Self::unlisted(detail),
        }
    }
}
