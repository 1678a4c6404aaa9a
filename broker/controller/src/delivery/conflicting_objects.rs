//! Finds foreign objects that a consumer would mistake for one of ours; if there is one, ours is
//! not written.

use keyferry_api::config::{Delivery, DeliveryType, TargetAccess, TargetCluster};
use keyferry_api::reason::Reason;
use keyferry_core::authorise;
use keyferry_core::delivery::{self, ObjectPlace};

use super::error::DeliveryError;
use super::{Deliveries, Reconciliation};

impl Deliveries {
    /// Checks that no foreign object would be mistaken for this one.
    pub(super) async fn check_conflicting_objects(
        &self,
        run: &Reconciliation<'_>,
        delivery: &Delivery,
        place: &ObjectPlace,
        target: &TargetCluster,
    ) -> Result<(), DeliveryError> {
        let namespace = &place.namespace;
        let paths = match delivery.delivery_type {
            DeliveryType::ClusterAPISecret => {
                let cluster = delivery::cluster_api_cluster(&place.name);
                // A release of Cluster API serves one of these versions, or both.
                ["v1beta2", "v1beta1"]
                    .map(|version| format!("/apis/cluster.x-k8s.io/{version}/namespaces/{namespace}/clusters/{cluster}"))
                    .to_vec()
            }
            DeliveryType::ArgoCDSecret => {
                if let Some(other) = self.older_for_same_server(run, delivery, target) {
                    let message = format!(
                        "TargetAccess {other} writes a Secret for {} already; Argo CD would use \
                         either",
                        target.address
                    );
                    return Err(DeliveryError::new(Reason::ObjectNotOurs, message));
                }
                match delivery::argo_cd_own_name(&target.address)
                    .filter(|name| *name != place.name.as_str())
                {
                    Some(name) => vec![format!("/api/v1/namespaces/{namespace}/secrets/{name}")],
                    None => return Ok(()),
                }
            }
            _ => return Ok(()),
        };
        for path in paths {
            if self.context.objects.get(&path).await?.is_some() {
                let message =
                    format!("{path} has the same cluster for its consumers; delete one of them");
                return Err(DeliveryError::new(Reason::ObjectNotOurs, message));
            }
        }
        Ok(())
    }

    /// Returns an older access of the namespace that writes an Argo CD Secret for the same server.
    fn older_for_same_server(
        &self,
        run: &Reconciliation<'_>,
        delivery: &Delivery,
        target: &TargetCluster,
    ) -> Option<keyferry_api::name::AccessName> {
        let seniority = |name| {
            self.context
                .store
                .access(name)
                .map(|stored| (stored.record.created, stored.record.uid.as_str().to_owned()))
        };
        let own = seniority(run.name)?;
        let same_server = |name: &keyferry_api::name::ObjectName| {
            run.policy
                .targets
                .get(name)
                .is_some_and(|other| other.address == target.address)
        };
        // Considers only accesses that are granted themselves: else a tenant could find out which
        // targets share an address.
        let granted = |other: &TargetAccess, one: &Delivery| {
            authorise::delivery_pair(&run.policy, &*self.context.live, &other.name, &one.name)
                .is_ok()
        };
        let others = run.policy.accesses.values().filter(|other| {
            other.name.namespace == run.name.namespace && same_server(&other.target)
        });
        for other in others {
            let argo = other.deliveries.iter().filter(|one| {
                one.delivery_type == DeliveryType::ArgoCDSecret && granted(other, one)
            });
            let before = argo
                .take_while(|one| other.name != *run.name || one.name != delivery.name)
                .count()
                > 0;
            if before
                && (other.name == *run.name
                    || seniority(&other.name).is_some_and(|theirs| theirs < own))
            {
                return Some(other.name.clone());
            }
        }
        None
    }
}
