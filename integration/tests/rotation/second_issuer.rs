//! Two clusters as kubeadm creates them, with one issuer for both. A second issuer at the hub fixes
//! this.

use std::sync::Arc;

use keyferry_integration::control_plane::{ControlPlaneSpec, TokenSigning};
use keyferry_integration::pki::SigningKeyKind;
use keyferry_integration::runner::TestResult;
use keyferry_integration::world::{
    Access, BrokerSpec, Ground, Subject, Target, authentication_configuration, caller_token,
    let_mint, until_trusted,
};

use super::stage::{Judge, TENANT};

/// The issuer that kubeadm, k3s and kind give every cluster.
const DEFAULT: &str = "https://kubernetes.default.svc.cluster.local";
const NEW: &str = "https://hub.keyferry.test";
const AUDIENCE: &str = "https://second.keyferry.test";

pub(super) async fn fixes(ground: Arc<Ground>) -> TestResult {
    let default = |name: &str| ControlPlaneSpec {
        issuers: vec![DEFAULT.to_owned()],
        ..ControlPlaneSpec::named(name)
    };
    let hub = ground.hub(default("second-hub")).await?;
    let spec = BrokerSpec::of_hub("second", &hub).alone();
    let discovery = spec.discovery_url()?;
    // The documented fix: a new https issuer first, the old one second.
    let before = hub
        .token_request(TENANT, "reconciler", &[DEFAULT], 600)
        .await?
        .token;
    let signing = hub.signing().await;
    hub.set_signing(TokenSigning {
        issuers: vec![NEW.to_owned(), DEFAULT.to_owned()],
        ..signing
    })
    .await;
    hub.restart().await?;
    assert_eq!(
        Judge::of(&hub)?.status(&before).await?,
        201,
        "tokens of the old issuer stay valid on the hub"
    );

    let namespace = spec.namespace().to_owned();
    let broker = ground.start_broker(&hub, spec).await?;
    let_mint(
        &hub,
        "second-minter",
        Subject::ServiceAccount(&namespace, "keyferry"),
        TENANT,
        &["reconciler"],
    )
    .await?;
    // The target's own issuer is still the default one. With that issuer in its configuration, the
    // target would not even start.
    let configuration = authentication_configuration(AUDIENCE, &discovery, ground.ca().cert_pem())?;
    let target = ControlPlaneSpec {
        signing_key: SigningKeyKind::EcdsaP256,
        authentication_config: Some(configuration),
        ..default("second-target")
    };
    let target = ground.control_plane(target).await?;
    broker
        .reconfigure(|targets, accesses| {
            targets.push(Target::of(&target, AUDIENCE).allowing(TENANT, &["reconciler"]));
            accesses.push(Access::of(TENANT, "second", target.name(), "reconciler"));
        })
        .await?;
    until_trusted(&hub, &target).await?;
    let caller = caller_token(&hub, TENANT, "reconciler").await?;
    let token = broker
        .exchange_in_time(&caller, &format!("{TENANT}/second"))
        .await?
        .token()?;
    assert_eq!(Judge::of(&target)?.status(&token).await?, 201);
    Ok(())
}
