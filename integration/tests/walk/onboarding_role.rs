//! A role of a target that is onboarded: added to its file, proven, and removed before it.

use keyferry_integration::runner::TestResult;

use super::onboarding::Journey;

impl Journey {
    /// Its token has the role's user, and none of what is bound to the tenant.
    pub(super) async fn a_role_of_the_target(&self) -> TestResult {
        let (base, [tenant, _]) = (self.name, self.tenants());
        let role = format!("{base}-view");
        // As the target's admin copies it from a node.
        let present = self.plane.authentication_config_path()?;
        std::fs::copy(present, self.shell.folder().join("with-base.yaml"))?;
        let command = format!(
            "keyferry onboard target {role} --same-as {base} --role view --target-kubeconfig \
             fresh.kubeconfig --tenant {tenant}/app --bind-role view=pod-reader@kube-system \
             --merge with-base.yaml --apply"
        );
        self.guided(&command, "role").await?;
        let user = async |access: &str| {
            let whoami = format!("keyferry exec {tenant}/{access} -- kubectl auth whoami");
            self.run(&whoami).await
        };
        let (code, said) = user(&role).await?;
        assert_eq!(code, Some(0), "{said}");
        for wanted in [
            format!("hub:view:system:serviceaccount:{tenant}:app"),
            "hub:role:view".to_owned(),
        ] {
            assert!(said.contains(&wanted), "{wanted}: {said}");
        }
        assert!(!said.contains("hub:system:"), "{said}");
        let (code, said) = user(base).await?;
        assert_eq!(code, Some(0), "{said}");
        assert!(!said.contains("hub:view:"), "{said}");
        // The tenant reads Pods in `default`, and the role those in `kube-system`.
        for (access, namespace, expected) in [
            (role.as_str(), "kube-system", Some(0)),
            (&role, "default", Some(1)),
            (base, "default", Some(0)),
            (base, "kube-system", Some(1)),
        ] {
            let pods =
                format!("keyferry exec {tenant}/{access} -- kubectl get pods -n {namespace}");
            let (code, said) = self.run(&pods).await?;
            assert_eq!(code, expected, "{said}");
        }
        // A second run finds everything in place, and proves it again.
        let (code, said) = self.run(&command).await?;
        assert_eq!(code, Some(0), "{said}");
        assert!(
            said.contains(&format!("TargetCluster {role} unchanged")),
            "{said}"
        );

        let (code, said) = self
            .run(&format!(
                "keyferry offboard target {base} --with-accesses --entry-removed --remove"
            ))
            .await?;
        assert_eq!(code, Some(1), "{said}");
        assert!(
            said.contains(&format!("offboard them first: {role}")),
            "{said}"
        );
        let (code, said) = self
            .run(&format!(
                "keyferry offboard target {role} --with-accesses --entry-removed --remove"
            ))
            .await?;
        assert_eq!(code, Some(0), "{said}");
        let (code, said) = user(&role).await?;
        assert_ne!(code, Some(0), "{said}");
        let (code, said) = user(base).await?;
        assert_eq!(code, Some(0), "{said}");
        Ok(())
    }
}
