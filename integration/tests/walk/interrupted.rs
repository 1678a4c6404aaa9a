//! The hub, then the target, stops answering in the middle of `keyferry onboard`. Each time the
//! command names the step, what it has done, and the command that continues; and that command
//! continues.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use insta::assert_snapshot;
use keyferry_integration::chaos_proxy::{ChaosProxy, Fault, Rule};
use keyferry_integration::control_plane::{ControlPlane, Whom};
use keyferry_integration::rbac::{ServiceAccountKubeconfig, service_account_kubeconfig_at};
use keyferry_integration::runner::{TestError, TestResult};
use serde_json::json;
use tokio::sync::watch;

use super::onboarding::{Journey, TRUSTS_NOBODY};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

impl Journey {
    pub(super) async fn goes_on_after_an_interruption(&self) -> TestResult {
        // The admin takes the file back, so that this target trusts nobody again.
        self.plane.set_authentication_config(TRUSTS_NOBODY).await?;
        let hub = ChaosProxy::in_front_of(&self.site.world.hub).await?;
        let target = ChaosProxy::in_front_of(&self.plane).await?;
        let hub_user = admin(&self.site.world.hub, &hub.url()).await?;
        let target_user = admin(&self.plane, &target.url()).await?;
        let (name, tenant) = ("interrupted", "interrupted-one");
        let command = format!(
            "keyferry onboard target {name} --target-kubeconfig {} --tenant {tenant}/app --bind \
             pod-reader --bind-cluster-wide --merge present.yaml --apply --kubeconfig {}",
            target_user.path().display(),
            hub_user.path().display(),
        );
        self.a_binding_of_another_role(&command, name, tenant)
            .await?;

        hub.add(Rule::on(Method::PATCH, "/targetaccesses/", Fault::Drop).times(1));
        let (code, said) = self.run(&command).await?;
        assert_eq!(code, Some(1), "{said}");
        for wanted in [
            format!(
                "error: applying TargetAccess {name} in {tenant}: the hub could not be reached"
            ),
            "fix: run this command again once the cluster answers".to_owned(),
            "stopped at: applying the objects of the hub".to_owned(),
            format!("TargetCluster {name} created, Namespace {tenant} exists"),
            format!("next: the same command, which leaves what is in place as it is: {command}"),
        ] {
            assert!(said.contains(&wanted), "{wanted}: {said}");
        }

        target.add(Rule::on(Method::PATCH, "/clusterrolebindings/", Fault::Drop).times(1));
        let (code, said) = self.run(&command).await?;
        assert_eq!(code, Some(1), "{said}");
        for wanted in [
            "the target could not be reached".to_owned(),
            "stopped at: applying the RBAC at the target".to_owned(),
            format!("TargetCluster {name} unchanged"),
            format!("TargetAccess {name} in {tenant} created"),
        ] {
            assert!(said.contains(&wanted), "{wanted}: {said}");
        }

        self.waits_on_while_the_hub_is_away(&hub, &command, name)
            .await?;
        self.guided(&command, "interrupted").await?;
        let kubeconfig = hub_user.path().display().to_string();
        self.another_version_while_it_is_changed(&hub, &kubeconfig, name)
            .await?;
        let remove = format!("keyferry offboard target {name} --with-accesses --entry-removed");
        let (code, said) = self.run(&format!("{remove} --dry-run=server")).await?;
        assert_eq!(code, Some(0), "{said}");
        for wanted in [
            format!("TargetAccess {tenant}/{name} would be deleted (server dry run)"),
            format!("TargetCluster {name} would be deleted (server dry run)"),
            "nothing was removed".to_owned(),
        ] {
            assert!(said.contains(&wanted), "{wanted}: {said}");
        }
        let path = format!("/apis/keyferry.dev/v1alpha1/targetclusters/{name}");
        let object = self.site.world.hub.admin().get(&path).await?;
        assert!(object["metadata"]["deletionTimestamp"].is_null());
        let (code, said) = self.run(&format!("{remove} --remove")).await?;
        assert_eq!(code, Some(0), "{said}");
        Ok(())
    }

    /// The hub stops answering while the command waits for a status. The command reports it, waits
    /// within its limit, and continues when the hub answers. Otherwise the error names the hub.
    async fn waits_on_while_the_hub_is_away(
        &self,
        hub: &ChaosProxy,
        command: &str,
        name: &str,
    ) -> TestResult {
        let path = format!("/targetaccesses/{name}");
        let away = "the hub could not be reached";
        // One read comes before the object is applied; the others are those of the wait.
        let first = || Rule::on(Method::GET, &path, Fault::Delay(Duration::ZERO)).times(1);
        hub.add(first());
        let rule = hub.add(Rule::on(Method::GET, &path, Fault::Drop));
        let (code, said) = self.run(&format!("{command} --timeout 3s")).await?;
        hub.remove(rule);
        assert_eq!(code, Some(1), "{said}");
        for wanted in [
            format!("it is not Ready after 3 s: {away}"),
            "fix: run this command again once the hub answers".to_owned(),
            "next: the same command, which leaves what is in place as it is".to_owned(),
        ] {
            assert!(said.contains(&wanted), "{wanted}: {said}");
        }

        hub.add(first());
        hub.add(Rule::on(Method::GET, &path, Fault::Drop).times(3));
        // The target has no file yet, so no token is proven within the time.
        let (code, said) = self.run(&format!("{command} --timeout 20s")).await?;
        assert_ne!(code, Some(0), "{said}");
        assert!(
            said.contains(&format!(
                "waiting for TargetAccess interrupted-one/{name}: {away}"
            )) && said.contains("trying a token of TargetAccess"),
            "{said}"
        );
        Ok(())
    }

    /// A new version with the same spec, as each status update makes, is not a conflict. A new spec
    /// is: the command leaves it as another user wrote it.
    async fn another_version_while_it_is_changed(
        &self,
        hub: &ChaosProxy,
        kubeconfig: &str,
        name: &str,
    ) -> TestResult {
        let admin = self.site.world.hub.admin();
        let path = format!("/apis/keyferry.dev/v1alpha1/targetclusters/{name}");
        for (tenant, new_spec, wanted) in [
            (
                "interrupted-two",
                false,
                format!("TargetCluster {name} configured"),
            ),
            (
                "interrupted-three",
                true,
                format!("error: applying TargetCluster {name}: it was changed since"),
            ),
        ] {
            let mut allow = admin.get(&path).await?["spec"]["allow"].clone();
            let rules = allow.as_array_mut().ok_or("it has rules")?;
            rules.push(json!({ "namespaces": ["anothers"], "serviceAccounts": ["app"] }));
            let changes = if new_spec {
                vec![json!({ "spec": { "allow": allow } })]
            } else {
                // A second one, while the change is sent again because of the first.
                ["first", "second"]
                    .map(|version| {
                        let annotations = json!({ "example.com/version": version });
                        json!({ "metadata": { "annotations": annotations } })
                    })
                    .to_vec()
            };
            let releases: Vec<_> = changes
                .iter()
                .map(|_| {
                    let (release, held) = watch::channel(false);
                    hub.add(Rule::on(Method::PATCH, &path, Fault::Hold(held)).times(1));
                    release
                })
                .collect();
            let before = hub.count(&Method::PATCH, &path);
            let command = format!(
                "keyferry onboard tenant {tenant} --service-account app --target {name} --apply \
                 --timeout 1s --kubeconfig {kubeconfig}"
            );
            let in_between = async {
                for (sent, (change, release)) in (0_u64..).zip(changes.iter().zip(&releases)) {
                    let limit = Instant::now() + Duration::from_secs(60);
                    while hub.count(&Method::PATCH, &path) == before + sent {
                        if Instant::now() > limit {
                            return Err("the TargetCluster is not written".into());
                        }
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    admin.patch(&path, change).await?;
                    release.send_replace(true);
                }
                Ok::<_, TestError>(())
            };
            let (ended, changed) = tokio::join!(self.run(&command), in_between);
            changed?;
            let (code, said) = ended?;
            // The target's file does not name the tenant, so no token is proven within a second.
            assert_ne!(code, Some(0), "{said}");
            assert!(said.contains(&wanted), "{wanted}: {said}");
        }
        let rules = admin.get(&path).await?["spec"]["allow"].to_string();
        assert!(
            rules.contains("interrupted-two")
                && rules.contains("anothers")
                && !rules.contains("interrupted-three"),
            "{rules}"
        );
        Ok(())
    }

    /// The tenant's namespace has the binding of `examples/in-cluster`, whose role the API never
    /// changes.
    async fn a_binding_of_another_role(
        &self,
        command: &str,
        name: &str,
        tenant: &str,
    ) -> TestResult {
        let world = &self.site.world;
        world.hub.create_namespace(tenant).await?;
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": "keyferry-minter", "namespace": tenant },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "keyferry-minter",
            },
        });
        let path = format!("{RBAC}/namespaces/{tenant}/rolebindings/keyferry-minter");
        world.hub.admin().apply(&path, &binding).await?;
        let words: Vec<&str> = command.split(' ').collect();
        let kubeconfig_after = |flag: &str| {
            let mut rest = words.iter().skip_while(|word| **word != flag);
            rest.nth(1).copied().ok_or(format!("no {flag}"))
        };
        let (of_target, of_hub) = (
            kubeconfig_after("--target-kubeconfig")?,
            kubeconfig_after("--kubeconfig")?,
        );
        let refused = self.refused(command).await?;
        assert_snapshot!(
            "a-binding-of-another-role",
            refused
                .with_name(of_target, "target.kubeconfig")
                .with_name(of_hub, "hub.kubeconfig")
        );
        let target = format!("/apis/keyferry.dev/v1alpha1/targetclusters/{name}");
        assert!(!world.is_there(&target).await?, "nothing is written before");
        world.hub.admin().delete(&path).await?;
        Ok(())
    }
}

/// A kubeconfig of an admin whose requests go through the proxy.
async fn admin(
    plane: &Arc<ControlPlane>,
    server: &str,
) -> Result<ServiceAccountKubeconfig, TestError> {
    let (namespace, name) = ("default", "interrupted-admin");
    plane.create_service_account(namespace, name).await?;
    let user = format!("system:serviceaccount:{namespace}:{name}");
    plane
        .bind_user_to_cluster_role(&user, "cluster-admin")
        .await?;
    let rule = json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": ["patch"] });
    plane.until_it_counts(Whom::User(&user), "", &rule).await?;
    Ok(service_account_kubeconfig_at(plane, server, namespace, name, 3600).await?)
}
