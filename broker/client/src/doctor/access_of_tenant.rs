//! Builds a plan from an access for a user who may read it, but not its TargetCluster: a tenant.
//! Keyferry writes the target's address, CA and audience into the status of the access, and no role
//! of a tenant may change a status.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_api::audience::Audience;
use keyferry_api::config::{DeliveryType, StoredAccess, TargetAccess};
use keyferry_api::name::AccessName;
use keyferry_api::reason::Reason;
use keyferry_api::service_account::ServiceAccount;
use keyferry_hub::ports::HubError;
use keyferry_kube_authn::Code;
use keyferry_platform::clock::{Clock, SystemClock};
use keyferry_platform::target_connection::TargetAddress;

use crate::ClientError;
use crate::checked_mint::issuer_of_hub;
use crate::direct::Direct;
use crate::doctor::plan::{Plan, TokenOrder, problem};
use crate::doctor::{client_certificate, followed_delivery};
use crate::object_view::{AccessStatusView, AccessView};
use crate::objects_of_hub::access_value;
use crate::stated_condition::StatedCondition;

/// Continues a plan whose TargetCluster the user may not read. `right` is the hub's message.
pub(crate) async fn plan(plan: Plan, access: &AccessName, direct: &Direct, right: &str) -> Plan {
    let client = match direct.hub.client().await {
        Ok(client) => client,
        Err(error) => {
            return Plan {
                problem: Some(problem(Code::StartUnread, error.to_string())),
                ..plan
            };
        }
    };
    let object = match access_value(&client, access).await {
        Ok(Some(object)) => object,
        Ok(None) => {
            let detail = "there is no TargetAccess of this name";
            return Plan {
                problem: Some(problem(Reason::TargetNotGranted, detail)),
                ..plan
            };
        }
        Err(ClientError::HubCall {
            error: HubError::Forbidden(_),
            ..
        }) => {
            return Plan {
                unknown: Some(format!(
                    "you may not read the access ({right}): ask for get on \
                     targetaccesses.keyferry.dev in {}, or add --server URL",
                    access.namespace
                )),
                ..plan
            };
        }
        Err(error) => {
            return Plan {
                problem: Some(problem(Code::StartUnread, error.to_string())),
                ..plan
            };
        }
    };
    let read = StoredAccess::read(&object).and_then(|(_, stored)| stored.read.ok());
    let Some(access) = read else {
        let detail = "its spec has a mistake: see the condition Ready of the access";
        return Plan {
            problem: Some(problem(Reason::SpecInvalid, detail)),
            ..plan
        };
    };
    let is_certificate = |kind| kind == DeliveryType::ClientCertificateSecret;
    let mut deliveries = access.deliveries.iter();
    if deliveries.any(|delivery| is_certificate(delivery.delivery_type)) {
        let now = SystemClock::start().now().wall;
        return match client_certificate::read(&client, &access, now).await {
            Ok(valid) => Plan {
                warning: Some(valid),
                ..plan
            },
            Err(fault) => Plan {
                problem: Some(fault),
                ..plan
            },
        };
    }
    let status = AccessView::of(&object).status;
    from_status(plan, &access, &status, direct, right).await
}

async fn from_status(
    mut plan: Plan,
    access: &TargetAccess,
    status: &AccessStatusView,
    direct: &Direct,
    right: &str,
) -> Plan {
    let authorized = StatedCondition::find(&status.conditions, "Authorized");
    if let Some(refused) = authorized.filter(|condition| condition.status == "False") {
        let reason = &refused.reason;
        let detail = format!("the condition Authorized of the access is False: {reason}");
        plan.problem = Some(problem(Reason::TargetNotGranted, detail));
        return plan;
    }
    let Some((target, audience)) = cluster(status) else {
        plan.unknown = Some(format!(
            "you may not read the TargetCluster ({right}), and the status of the access does not \
             say where its target is yet: ask for get on targetclusters.keyferry.dev, or add \
             --server URL"
        ));
        return plan;
    };
    plan.issuer = issuer_of_hub(&direct.hub).await;
    plan.audiences = vec![audience.as_str().to_owned()];
    plan.target_name = Some(access.target.to_string());
    plan.target = target;
    if gives_on_request(access) {
        plan.to_issue = Some(token_order(access, audience));
    } else {
        followed_delivery::follow_first_delivery(&mut plan, access, &audience, &direct.hub).await;
    }
    plan
}

fn token_order(access: &TargetAccess, audience: Audience) -> TokenOrder {
    TokenOrder {
        account: ServiceAccount {
            namespace: access.name.namespace.clone(),
            name: access.service_account.clone(),
        },
        audience,
    }
}

/// Reads the target and its audience from the status of an access. A relying party that is no
/// cluster has an audience and no address.
fn cluster(status: &AccessStatusView) -> Option<(Option<TargetAddress>, Audience)> {
    let cluster = status.cluster.clone()?;
    let audience = Audience::new(cluster.audience?).ok()?;
    let ca_pem = match cluster.certificate_authority_data {
        Some(data) => Some(STANDARD.decode(data).ok()?),
        None => None,
    };
    let address = cluster.server.map(|url| TargetAddress {
        url,
        ca_pem,
        tls_server_name: cluster.tls_server_name,
        proxy_url: cluster.proxy_url,
    });
    Some((address, audience))
}

/// Whether a token can be requested for the access.
pub(crate) fn gives_on_request(access: &TargetAccess) -> bool {
    access.offers(DeliveryType::HTTP) || access.offers(DeliveryType::Exec)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::AccessStatusView;

    fn cluster(status: &Value) -> Option<(Option<super::TargetAddress>, super::Audience)> {
        let status = serde_json::from_value::<AccessStatusView>(status.clone()).unwrap();
        super::cluster(&status)
    }

    #[test]
    fn the_status_of_an_access_says_where_its_target_is() {
        let status = json!({ "cluster": {
            "server": "https://t", "audience": "a", "certificate-authority-data": "eA==", "proxy-url": "http://p",
        } });
        let (address, audience) = cluster(&status).unwrap();
        let address = address.unwrap();
        assert_eq!(
            (address.url.as_str(), audience.as_str()),
            ("https://t", "a")
        );
        assert_eq!(address.ca_pem.as_deref(), Some(b"x".as_slice()));
        assert_eq!(address.proxy_url.as_deref(), Some("http://p"));
        assert!(cluster(&json!({})).is_none());
        let broken = json!({ "cluster": { "server": "https://t", "audience": "a", "certificate-authority-data": "%" } });
        assert!(
            cluster(&broken).is_none(),
            "it would trust the system's CAs"
        );
        let party = json!({ "cluster": { "audience": "vault" } });
        assert!(cluster(&party).unwrap().0.is_none());
    }
}
