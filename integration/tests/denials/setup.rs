//! One world for all denials: the tenants, the targets and the accesses.

use keyferry_integration::runner::{NotStarted, TestResult};
use keyferry_integration::world::{Access, Target, World, make_tenant};

/// Starts the world. Every test has its own namespace, so that it can count what is minted there.
pub(crate) async fn start() -> Result<World, NotStarted> {
    let world = World::start().await?;
    prepare(&world).await.map_err(NotStarted::failed)?;
    Ok(world)
}

async fn prepare(world: &World) -> TestResult {
    let hub = world.hub();
    make_tenant(hub, "allowed-name", &["owner", "other"]).await?;
    make_tenant(hub, "owned", &["owner"]).await?;
    make_tenant(hub, "strangers", &["owner", "deployer"]).await?;
    make_tenant(hub, "unlisted", &["owner", "deployer", "passer-by"]).await?;
    make_tenant(hub, "listed", &["owner", "deployer"]).await?;
    make_tenant(hub, "grouped", &["owner", "deployer"]).await?;
    make_tenant(hub, "bad-tokens", &["owner"]).await?;
    make_tenant(hub, "minted", &["owner"]).await?;
    make_tenant(hub, "selected", &["owner"]).await?;
    make_tenant(hub, "kube-system", &["owner"]).await?;
    make_tenant(hub, "metadata-name", &["owner"]).await?;
    world
        .broker()
        .reconfigure(|targets, accesses| {
            let mut target =
                Target::of(world.target_a(), "https://denials.keyferry.test").named("denials");
            for namespace in [
                "allowed-name",
                "owned",
                "unlisted",
                "listed",
                "grouped",
                "bad-tokens",
                "minted",
                "keyferry-system",
            ] {
                target = target.allowing(namespace, &["owner", "keyferry"]);
            }
            targets.push(target);
            targets.push(selecting(
                world,
                "by-label",
                "matchLabels: { access.keyferry.dev/denials: \
                'yes' }",
            ));
            let suspended =
                Target::of(world.target_a(), "https://suspended.keyferry.test").named("suspended");
            targets.push(Target {
                further: "  suspend: true\n".to_owned(),
                ..suspended.allowing("allowed-name", &["owner"])
            });
            let broken =
                Target::of(world.target_a(), "https://broken.keyferry.test").named("broken");
            targets.push(Target {
                ca_secret: Some("no-such-secret".to_owned()),
                ..broken.allowing("allowed-name", &["owner"])
            });
            accesses.push(Access::of(
                "allowed-name",
                "suspended",
                "suspended",
                "owner",
            ));
            accesses.push(Access::of("allowed-name", "broken", "broken", "owner"));
            let both = "matchExpressions: [{ key: kubernetes.io/metadata.name, operator: In, \
                values: [kube-system, metadata-name] }]";
            targets.push(selecting(world, "by-name", both));
            accesses.push(Access::of("allowed-name", "mine", "denials", "owner"));
            accesses.push(Access::of("allowed-name", "others", "denials", "other"));
            accesses.push(Access::of(
                "allowed-name",
                "nowhere",
                "no-such-target",
                "owner",
            ));
            accesses.push(Access::of(
                "allowed-name",
                "nobody",
                "denials",
                "no-such-account",
            ));
            accesses.push(Access::of("strangers", "mine", "denials", "owner"));
            for namespace in ["owned", "bad-tokens", "minted"] {
                accesses.push(Access::of(namespace, "mine", "denials", "owner"));
            }
            for namespace in ["unlisted", "listed", "grouped"] {
                accesses.push(
                    Access::of(namespace, "mine", "denials", "owner").for_callers(&["deployer"]),
                );
            }
            accesses.push(Access::of("selected", "mine", "by-label", "owner"));
            accesses.push(Access::of("kube-system", "mine", "by-name", "owner"));
            accesses.push(Access::of("metadata-name", "mine", "by-name", "owner"));
            accesses.push(Access::of("keyferry-system", "mine", "denials", "keyferry"));
        })
        .await
}

fn selecting(world: &World, name: &str, selector: &str) -> Target {
    let mut target =
        Target::of(world.target_a(), &format!("https://{name}.keyferry.test")).named(name);
    target.further = format!(
        "  allow:\n    - namespaceSelector: {{ {selector} }}\n      serviceAccounts: [owner]\n"
    );
    target
}
