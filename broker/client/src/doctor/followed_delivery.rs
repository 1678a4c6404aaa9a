//! Follows an access that gives no token on request: the object that it delivers has the token, or
//! names what a token is issued for.

use keyferry_api::audience::Audience;
use keyferry_api::config::{Delivery, DeliveryType, TargetAccess};
use keyferry_api::name::ObjectName;
use keyferry_api::reason::Reason;
use keyferry_api::service_account::ServiceAccount;
use keyferry_hub::client::HubAccess;
use keyferry_kube_authn::Code;

use crate::doctor::flux::read_config_map;
use crate::doctor::kubeconfig_secret::{SecretRef, read_secret};
use crate::doctor::plan::{Plan, TokenOrder, problem};

/// What a delivered object is to a diagnosis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeliveredForm {
    /// A Secret with a kubeconfig under `value`.
    Kubeconfig,
    /// A ConfigMap for Flux, which requests a token by itself.
    FluxConfigMap,
    /// Something else, for the same ServiceAccount and audience.
    Other,
}

fn form(delivery: &Delivery) -> Option<DeliveredForm> {
    Some(match delivery.delivery_type {
        DeliveryType::KubeConfigSecret | DeliveryType::ClusterAPISecret => {
            DeliveredForm::Kubeconfig
        }
        DeliveryType::FluxConfigMap => DeliveredForm::FluxConfigMap,
        DeliveryType::ArgoCDSecret | DeliveryType::ClusterProfile => DeliveredForm::Other,
        DeliveryType::ClientCertificateSecret | DeliveryType::Exec | DeliveryType::HTTP => {
            return None;
        }
    })
}

/// Continues at the first delivery that can be followed.
pub(crate) async fn follow_first_delivery(
    plan: &mut Plan,
    access: &TargetAccess,
    audience: &Audience,
    hub: &HubAccess,
) {
    let deliveries = access.deliveries.iter();
    let followed = deliveries
        .filter_map(|delivery| Some((delivery.object_name.as_ref()?, form(delivery)?)))
        .next();
    let Some((object, form)) = followed else {
        plan.problem = Some(problem(
            Reason::TargetNotGranted,
            "no delivery of the access has a token",
        ));
        return;
    };
    follow_object(plan, access, audience, (object, form), hub).await;
}

async fn follow_object(
    plan: &mut Plan,
    access: &TargetAccess,
    audience: &Audience,
    (object, form): (&ObjectName, DeliveredForm),
    hub: &HubAccess,
) {
    let client = match hub.client().await {
        Ok(client) => client,
        Err(error) => {
            plan.problem = Some(problem(Code::StartUnread, error.to_string()));
            return;
        }
    };
    let namespace = &access.name.namespace;
    match form {
        DeliveredForm::Kubeconfig => {
            plan.start = format!("{}, by secret/{object}", plan.start);
            let secret = SecretRef {
                name: object.as_str(),
                key: None,
                key_field: "--secret-key",
            };
            read_secret(&client, namespace, &secret, plan).await;
        }
        DeliveredForm::FluxConfigMap => {
            plan.start = format!("{}, by configmap/{object}", plan.start);
            read_config_map(&client, namespace, object.as_str(), plan).await;
        }
        DeliveredForm::Other => {
            plan.to_issue = Some(TokenOrder {
                account: ServiceAccount {
                    namespace: namespace.clone(),
                    name: access.service_account.clone(),
                },
                audience: audience.clone(),
            });
        }
    }
}
