//! A TargetCluster that is a role at the cluster of another one, which is onboarded already.

use clap::Args;
use keyferry_api::audience::Audience;
use keyferry_api::name::{ObjectName, RoleName};
use keyferry_client::object_view::TargetView;
use keyferry_client::objects_of_hub::target_value;
use keyferry_hub::client::HubClient;
use serde_json::Value;

use super::guided_args::GuidedArgs;
use super::place::KeyferryObjects;
use crate::args::names::{object_name, role_name};
use crate::command_error::CommandError;
use crate::onboarding::objects;

#[derive(Args)]
pub(super) struct RoleArgs {
    /// The TargetCluster at whose cluster this one is a role.
    ///
    /// Its address, CA and issuer count for this one too.
    #[arg(
        long,
        value_name = "NAME",
        value_parser = object_name,
        requires = "role",
        conflicts_with = "managed_issuer",
        hide_short_help = true
    )]
    same_as: Option<ObjectName>,
    /// The role, whose tokens have users and groups of their own.
    ///
    /// Bind RBAC to its group by --bind-role.
    #[arg(long, value_name = "ROLE", value_parser = role_name, requires = "same_as", hide_short_help = true)]
    role: Option<RoleName>,
}

impl RoleArgs {
    /// Whether the new TargetCluster is a role.
    pub(super) fn is_given(&self) -> bool {
        self.role.is_some()
    }

    /// The TargetCluster whose file has the rules of `name`.
    pub(super) fn owner_of_file<'a>(&'a self, name: &'a ObjectName) -> &'a ObjectName {
        self.same_as.as_ref().unwrap_or(name)
    }

    /// Fails where flags contradict each other, before anything is read.
    ///
    /// # Errors
    /// `--bind` is given with a role.
    pub(super) fn check(&self, guided: &GuidedArgs) -> Result<(), CommandError> {
        if self.is_given() && guided.binding()?.is_some() {
            return Err(CommandError::with_fix(
                "--bind binds to the users of the ServiceAccounts, which a role does not have",
                "give --bind-role ROLE=CLUSTERROLE",
            ));
        }
        Ok(())
    }

    /// Reads the TargetCluster at whose cluster the role is to be. `imported` is where the target's
    /// kubeconfig leads, which must be that cluster. `None` if no role is wanted.
    ///
    /// # Errors
    /// There is no such TargetCluster, or the kubeconfig leads elsewhere.
    pub(super) async fn read(
        &self,
        imported: &Value,
        place: &KeyferryObjects,
        client: &HubClient,
    ) -> Result<Option<WantedRole>, CommandError> {
        let (Some(base), Some(role)) = (&self.same_as, &self.role) else {
            return Ok(None);
        };
        let object = match place.file() {
            Some(_) => place.target_in_file(base),
            None => target_value(client, base).await?,
        };
        let object = object.ok_or_else(|| {
            CommandError::with_fix(
                format!("--same-as: there is no TargetCluster {base}"),
                "onboard it first: keyferry onboard target",
            )
        })?;
        let elsewhere = objects::elsewhere(&object, imported);
        if elsewhere.is_empty() {
            return Ok(Some(WantedRole {
                base: object,
                role: role.clone(),
            }));
        }
        Err(CommandError::with_fix(
            format!(
                "--target-kubeconfig leads to another cluster than TargetCluster {base}: it differs \
                 in spec.{}; nothing was written",
                elsewhere.join(", spec.")
            ),
            "give the kubeconfig of the cluster that --same-as names",
        ))
    }
}

/// A role that is to be onboarded.
pub(super) struct WantedRole {
    /// The TargetCluster at whose cluster it is.
    base: Value,
    role: RoleName,
}

impl WantedRole {
    /// Whether its tokens are signed by an issuer of its own.
    pub(super) fn has_managed_issuer(&self) -> bool {
        TargetView::of(&self.base).spec.has_managed_issuer()
    }

    /// Returns its TargetCluster.
    ///
    /// # Errors
    /// The audience is none.
    pub(super) fn target(
        &self,
        name: &ObjectName,
        audience: Option<&str>,
    ) -> Result<Value, CommandError> {
        let (base, role) = (&self.base, &self.role);
        let of_base = || format!("{}/roles/{role}", TargetView::of(base).spec.audience);
        let audience = Audience::new(audience.map_or_else(of_base, str::to_owned))
            .map_err(|error| CommandError::new(format!("--audience {error}")))?;
        Ok(objects::role_target(name, base, role, &audience))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_role_takes_its_audience_and_its_life_from_the_base() {
        let base = |spec: Value| json!({ "metadata": { "name": "prod" }, "spec": spec });
        let target = |spec: Value, audience: Option<&str>| {
            let role = WantedRole {
                base: base(spec),
                role: RoleName::new("view").unwrap(),
            };
            role.target(&ObjectName::new("prod-view").unwrap(), audience)
        };
        let spec = json!({
            "address": "https://a", "audience": "https://a", "tokenLifetime": { "max": "1h" },
        });
        assert_eq!(
            target(spec.clone(), None).unwrap()["spec"],
            json!({
                "sameAs": "prod", "role": "view", "audience": "https://a/roles/view",
                "tokenLifetime": { "max": "1h" },
            })
        );
        let own = target(json!({ "audience": "https://a" }), Some("v")).unwrap();
        assert_eq!(
            own["spec"],
            json!({ "sameAs": "prod", "role": "view", "audience": "v" })
        );
        assert!(target(spec.clone(), Some("a b")).is_err());
        let imported = |address: &str| json!({ "spec": { "address": address, "audience": "x" } });
        let elsewhere = |address| objects::elsewhere(&base(spec.clone()), &imported(address));
        assert_eq!(elsewhere("https://a"), [""; 0]);
        assert_eq!(elsewhere("https://b"), ["address"]);
    }
}
