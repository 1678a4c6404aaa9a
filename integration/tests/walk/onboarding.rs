//! Onboards targets that trust no issuer yet, and tenants, as a platform admin would, and offboards
//! them. The files that the command shows are written to the targets unchanged.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::parts::Minor;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::transcript::Transcript;
use keyferry_integration::world::on_hub::{ISSUER, access_path, has_condition};
use serde_json::{Value, json};

use super::onboarding_by_file::by_configuration_file;
use super::place::{Here, Shell};

/// A target whose apiserver reads a file without any issuer.
pub(super) const TRUSTS_NOBODY: &str =
    "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\n";
const NODES: &str = "== on the control plane nodes of the target\n";

/// A target and its tenants on the way from nothing to the first request.
pub(super) struct Journey {
    pub(super) site: Here,
    pub(super) plane: Arc<ControlPlane>,
    pub(super) shell: Shell,
    pub(super) name: &'static str,
}

pub(crate) async fn onboards_from_nothing(place: Here) -> TestResult {
    tokio::try_join!(
        journey(place.clone(), "fresh-newest", Minor::newest()),
        journey(place, "fresh-oldest", Minor::V1_33),
    )?;
    Ok(())
}

async fn journey(place: Here, name: &'static str, minor: Minor) -> TestResult {
    let spec = ControlPlaneSpec {
        minor,
        authentication_config: Some(TRUSTS_NOBODY.to_owned()),
        ..ControlPlaneSpec::named(name)
    };
    let plane = Arc::new(place.world.ground.control_plane(spec).await?);
    // Without a controller manager, `view` and `edit` hold no rules.
    let reader = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "pod-reader" },
        "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"] }],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/pod-reader";
    plane.admin().apply(path, &reader).await?;
    let shell = place.shell(name, &place.world.broker, "tenant-a").await?;
    let journey = Journey::new(place, plane, shell, name)?;
    journey.nothing_is_written_unasked().await?;
    journey.a_collision_is_refused().await?;
    journey
        .a_file_in_use_is_never_replaced_unseen(minor)
        .await?;
    journey.a_target_with_its_first_tenant().await?;
    journey.a_target_that_starts_is_asked_again().await?;
    journey.fewer_flags_remove_nothing().await?;
    journey.only_pruning_removes().await?;
    journey.another_tenant().await?;
    journey.a_role_of_the_target().await?;
    journey.off_again().await?;
    // Each on one target, for time.
    match minor {
        Minor::V1_33 => by_configuration_file(journey.site, journey.plane).await,
        _ => journey.goes_on_after_an_interruption().await,
    }
}

/// A target whose apiserver has the hub's issuer, as all of kind, k3s and kubeadm: Keyferry signs
/// for it, and only the server can prove it.
pub(crate) async fn onboards_a_managed_issuer(place: Here) -> TestResult {
    let (name, tenant) = ("managed", "managed-one");
    let spec = ControlPlaneSpec {
        issuers: vec![ISSUER.to_owned()],
        authentication_config: Some(TRUSTS_NOBODY.to_owned()),
        ..ControlPlaneSpec::named(name)
    };
    let plane = Arc::new(place.world.ground.control_plane(spec).await?);
    let shell = place.shell(name, &place.world.broker, "tenant-a").await?;
    let journey = Journey::new(place, plane, shell, name)?;
    let command = format!(
        "keyferry onboard target {name} --target-kubeconfig fresh.kubeconfig --tenant {tenant}/app \
         --managed-issuer --merge present.yaml --apply"
    );
    let (code, said) = journey
        .run(&command.replace(" --managed-issuer", ""))
        .await?;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("IssuerCollision"), "{said}");
    // The wait ends at once, not after --timeout: no token can be tried without the server.
    let (code, said) = journey.run(&command).await?;
    assert_eq!(code, Some(1), "{said}");
    for wanted in [
        "+ Role keyferry-issuer-managed in keyferry-system",
        "NOT PROVEN: ",
        "managed issuer",
        "add --server URL",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    journey.write_file_of_managed_issuer(&said).await?;
    journey.proven_by_the_server(&command).await?;
    super::drift::compares_a_managed_issuer(&journey.shell, &journey.plane, name).await?;
    let remove =
        format!("keyferry offboard target {name} --with-accesses --entry-removed --remove");
    let (code, said) = journey.run(&remove).await?;
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("Secret keyferry-issuer-managed") && said.contains("private keys"),
        "{said}"
    );
    Ok(())
}

impl Journey {
    /// Writes the file that a command has shown to the target.
    pub(super) async fn write_file_of_managed_issuer(&self, said: &str) -> TestResult {
        let (_, file) = said.split_once(NODES).ok_or("no file is shown")?;
        let file = file.split("\n== ").next().unwrap_or_default();
        let file = file.split("\nhub: ").next().unwrap_or_default();
        assert!(file.contains(&format!("/issuers/{}", self.name)), "{file}");
        self.plane
            .set_authentication_config(&format!("{file}\n"))
            .await?;
        Ok(())
    }

    /// Runs a command until the server's token is proven.
    pub(super) async fn proven_by_the_server(&self, command: &str) -> TestResult {
        let server = format!(
            "{command} --server {} --certificate-authority ca.crt --timeout 90s",
            self.shell.api_url
        );
        // A new key is published for two minutes before it signs.
        let limit = Instant::now() + Duration::from_secs(240);
        loop {
            let (code, said) = self.run(&server).await?;
            if code == Some(0) {
                assert!(
                    said.contains("proven: the target accepted a token"),
                    "{said}"
                );
                return Ok(());
            }
            assert!(said.contains("IssuerKeysSettling"), "{said}");
            if Instant::now() > limit {
                return Err(format!("no token was proven: {said}").into());
            }
        }
    }

    /// Begins with a kubeconfig of the target, as a platform admin has one.
    pub(super) fn new(
        place: Here,
        plane: Arc<ControlPlane>,
        shell: Shell,
        name: &'static str,
    ) -> Result<Self, TestError> {
        std::fs::copy(
            plane.admin_kubeconfig(),
            shell.folder().join("fresh.kubeconfig"),
        )?;
        std::fs::write(shell.folder().join("present.yaml"), TRUSTS_NOBODY)?;
        Ok(Self {
            site: place,
            plane,
            shell,
            name,
        })
    }

    fn target_path(&self) -> String {
        format!("/apis/keyferry.dev/v1alpha1/targetclusters/{}", self.name)
    }

    pub(super) fn tenants(&self) -> [String; 2] {
        [format!("{}-one", self.name), format!("{}-two", self.name)]
    }

    async fn nothing_is_written_unasked(&self) -> TestResult {
        let [tenant, _] = self.tenants();
        let command = format!(
            "keyferry onboard target {} --target-kubeconfig fresh.kubeconfig --tenant {tenant}/app",
            self.name
        );
        for flags in ["", " --dry-run=server"] {
            let (code, said) = self.run(&format!("{command}{flags}")).await?;
            for wanted in [
                "== on the hub",
                "kind: TargetCluster",
                "kind: TargetAccess",
                "NOT PROVEN",
            ] {
                assert!(said.contains(wanted), "{wanted}: {said}");
            }
            assert_eq!(code, Some(3), "{said}");
            assert!(!said.contains("PRIVATE KEY"), "{said}");
            assert!(!self.site.world.is_there(&self.target_path()).await?);
        }
        Ok(())
    }

    /// The hub, taken for a target, has the hub's issuer.
    async fn a_collision_is_refused(&self) -> TestResult {
        let command = "keyferry onboard target itself --target-kubeconfig hub.kubeconfig --apply";
        let refused = self.refused(command).await?;
        assert_snapshot!("the-hub-taken-for-a-target", refused);
        let path = "/apis/keyferry.dev/v1alpha1/targetclusters/itself";
        assert!(!self.site.world.is_there(path).await?);
        Ok(())
    }

    async fn a_target_with_its_first_tenant(&self) -> TestResult {
        let [tenant, _] = self.tenants();
        let command = format!(
            "keyferry onboard target {} --target-kubeconfig fresh.kubeconfig --tenant {tenant}/app \
             --bind pod-reader --bind-namespace default --merge present.yaml --apply",
            self.name
        );
        self.guided(&command, "first").await?;
        let target = self.site.world.hub.admin().get(&self.target_path()).await?;
        assert_eq!(
            target["spec"]["targetIssuer"],
            format!("https://{}.keyferry.test", self.name)
        );
        let wanted = json!({ "name": format!("{}-ca", self.name) });
        assert_eq!(target["spec"]["certSecretRef"], wanted);
        // It delivers on request alone, and onboard has asked Keyferry to try a token.
        let authenticates = |access: &Value| {
            access["metadata"]["annotations"]["keyferry.dev/requestedAt"].is_string()
                && has_condition(access, "TargetAuthenticates", "True", "Ready")
        };
        let access = access_path(&tenant, self.name);
        self.site
            .world
            .until(&access, "accepted at the target", authenticates)
            .await?;
        // The next command, as it is printed.
        let (code, said) = self
            .run(&format!(
                "keyferry exec {tenant}/{} -- kubectl get pods -n default",
                self.name
            ))
            .await?;
        assert_eq!(code, Some(0), "{said}");
        // A second run finds everything in place, and proves it again.
        let (code, said) = self.run(&command).await?;
        assert_eq!(code, Some(0), "{said}");
        assert!(
            said.contains(&format!("TargetCluster {} unchanged", self.name)),
            "{said}"
        );
        Ok(())
    }

    /// In its first second, an apiserver accepts tokens and forbids everything, SelfSubjectReview
    /// too, because its authorizer has not read the roles.
    async fn a_target_that_starts_is_asked_again(&self) -> TestResult {
        const BINDING: &str =
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/system:basic-user";
        let admin = self.plane.admin();
        let mut binding = admin.get(BINDING).await?;
        binding["metadata"] = json!({ "name": "system:basic-user" });
        admin.delete(BINDING).await?;
        let whoami = [
            "auth",
            "whoami",
            "--as=anybody",
            "--as-group=system:authenticated",
        ];
        let limit = Instant::now() + Duration::from_secs(30);
        while self.plane.kubectl(&whoami).await?.status.success() {
            assert!(Instant::now() < limit, "SelfSubjectReview is not forbidden");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let [tenant, _] = self.tenants();
        let command = format!(
            "keyferry onboard target {} --target-kubeconfig fresh.kubeconfig --tenant {tenant}/app \
             --bind pod-reader --bind-namespace default --merge present.yaml --timeout 90s --apply",
            self.name
        );
        let started = async {
            let notes = self.shell.folder().join("starting");
            let limit = Instant::now() + Duration::from_secs(60);
            let waits = || {
                let notes = std::fs::read_to_string(&notes).unwrap_or_default();
                notes.contains("refuses SelfSubjectReview: it may still be starting")
            };
            while !waits() && Instant::now() < limit {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            admin
                .create(
                    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
                    &binding,
                )
                .await?;
            Ok::<bool, TestError>(waits())
        };
        let onboarded = async { self.run(&format!("{command} 2> starting")).await };
        let (waited, (code, said)) = tokio::try_join!(started, onboarded)?;
        assert_eq!(code, Some(0), "{said}");
        assert!(waited, "it did not say that the target is starting: {said}");
        let user = format!("hub:system:serviceaccount:{tenant}:app");
        assert!(said.contains(&user), "the last answer has the user: {said}");
        Ok(())
    }

    /// The target has a file. Where its hash can be seen, and it is not the one of --merge, nothing
    /// is shown that would end other logins.
    async fn a_file_in_use_is_never_replaced_unseen(&self, minor: Minor) -> TestResult {
        let name = format!("{}-bare", self.name);
        let command = format!(
            "keyferry onboard target {name} --target-kubeconfig fresh.kubeconfig --audience \
             https://{name}.example.com --apply"
        );
        let (code, said) = self
            .run(&format!("{command} --allow {}-one/app", self.name))
            .await?;
        assert_eq!(code, Some(3), "{said}");
        if minor != Minor::V1_33 {
            assert!(
                said.contains("has loaded another AuthenticationConfiguration")
                    && said.contains("left to do:")
                    && said.contains("--merge FILE"),
                "{said}"
            );
            assert!(!said.contains(NODES), "{said}");
        } else {
            assert!(said.contains("undetermined: "), "{said}");
        }
        let bind = format!("{command} --bind edit --allow {}-one/app", self.name);
        assert_snapshot!("a-role-without-its-namespaces", self.refused(&bind).await?);
        let remove = format!("keyferry offboard target {name} --entry-removed --remove");
        let (code, said) = self.run(&remove).await?;
        assert_eq!(code, Some(0), "{said}");
        Ok(())
    }

    /// The command again, without what it named before.
    async fn fewer_flags_remove_nothing(&self) -> TestResult {
        let [tenant, _] = self.tenants();
        let command = format!(
            "keyferry onboard target {} --target-kubeconfig fresh.kubeconfig --tenant {tenant}/app \
             --apply",
            self.name
        );
        let flux = format!("{command} --delivery FluxConfigMap --delivery HTTP");
        let (code, said) = self.run(&flux).await?;
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("  + spec.deliveries[]: "), "{said}");
        let map = format!("/api/v1/namespaces/{tenant}/configmaps/{}", self.name);
        assert!(self.site.world.is_there(&map).await?, "it was delivered");
        let (code, said) = self.run(&command).await?;
        assert_eq!(code, Some(0), "{said}");
        assert!(
            said.contains(&format!(
                "TargetAccess {} in {tenant}: unchanged",
                self.name
            )),
            "{said}"
        );
        assert!(self.site.world.is_there(&map).await?, "{said}");
        let admin = self.site.world.hub.admin();
        let access = admin.get(&access_path(&tenant, self.name)).await?;
        let deliveries = access["spec"]["deliveries"].to_string();
        for kept in ["FluxConfigMap", "HTTP", "Exec"] {
            assert!(deliveries.contains(kept), "{deliveries}");
        }
        Ok(())
    }

    /// Without a terminal, and without --yes, not even --prune removes.
    async fn only_pruning_removes(&self) -> TestResult {
        let [tenant, _] = self.tenants();
        let command = format!(
            "keyferry onboard target {} --target-kubeconfig fresh.kubeconfig --tenant {tenant}/app \
             --delivery HTTP --prune --apply < /dev/null",
            self.name
        );
        let (code, said) = self.run(&command).await?;
        assert_eq!(code, Some(1), "{said}");
        assert!(
            said.contains("  - spec.deliveries[]: ") && said.contains("add --yes"),
            "{said}"
        );
        let admin = self.site.world.hub.admin();
        let path = access_path(&tenant, self.name);
        let types = async || -> Result<String, TestError> {
            Ok(admin.get(&path).await?["spec"]["deliveries"].to_string())
        };
        assert!(types().await?.contains("FluxConfigMap"));
        let (code, said) = self.run(&command.replace(" < ", " --yes < ")).await?;
        assert_eq!(code, Some(0), "{said}");
        assert!(!types().await?.contains("FluxConfigMap"), "{said}");
        Ok(())
    }

    async fn another_tenant(&self) -> TestResult {
        let [_, tenant] = self.tenants();
        let command = format!(
            "keyferry onboard tenant {tenant} --service-account ci --target {} --delivery \
             KubeConfigSecret --author alice --flux-service-account {tenant}/applier --apply",
            self.name
        );
        self.guided(&command, "second").await?;
        // Flux looks for the account on the hub before it prunes at the target.
        let applier = format!("/api/v1/namespaces/{tenant}/serviceaccounts/applier");
        assert!(self.site.world.is_there(&applier).await?);
        let (code, said) = self
            .run(&format!(
                "kubectl auth can-i create serviceaccounts/ci --subresource token -n {tenant} --as \
                 alice"
            ))
            .await?;
        assert_eq!(code, Some(0), "{said}");
        let (code, said) = self
            .run(&format!(
                "kubectl get secret {}-kubeconfig -n {tenant} -o name",
                self.name
            ))
            .await?;
        assert_eq!(code, Some(0), "{said}");
        Ok(())
    }

    async fn off_again(&self) -> TestResult {
        let [first, second] = self.tenants();
        let world = &self.site.world;
        let group = "kustomize.toolkit.fluxcd.io";
        let apps = json!({
            "apiVersion": format!("{group}/v1"), "kind": "Kustomization",
            "metadata": { "name": "apps", "namespace": second },
            "spec": { "kubeConfig": { "secretRef": { "name": format!("{}-kubeconfig", self.name) } } },
        });
        let apps_path = format!("/apis/{group}/v1/namespaces/{second}/kustomizations/apps");
        world.until_served(&apps_path, &apps).await?;
        let remove = format!(
            "keyferry offboard tenant {second} --target {} --remove",
            self.name
        );
        assert_snapshot!("a-tenant-that-is-in-use", self.refused(&remove).await?);
        let access = world
            .hub
            .admin()
            .get(&access_path(&second, self.name))
            .await?;
        assert!(access["metadata"]["deletionTimestamp"].is_null());

        world.hub.admin().delete(&apps_path).await?;
        let (code, said) = self.run(&remove).await?;
        assert_eq!(code, Some(0), "{said}");
        let target: Value = world.hub.admin().get(&self.target_path()).await?;
        let rules = target["spec"]["allow"].to_string();
        assert!(
            rules.contains(&first) && !rules.contains(&second),
            "{rules}"
        );
        // No Flux object uses its Secret any more, so the drain ends before the token expires.
        world.until_gone(&access_path(&second, self.name)).await?;

        let remove = format!("keyferry offboard target {} --remove", self.name);
        assert_snapshot!("a-target-with-accesses", self.refused(&remove).await?);
        let (code, said) = self.run(&format!("{remove} --with-accesses")).await?;
        assert_eq!(code, Some(3), "{said}");
        assert!(
            said.contains("next: at the target, remove the entry with issuer.url")
                && said.contains("--entry-removed"),
            "{said}"
        );
        assert!(
            world.is_there(&self.target_path()).await?,
            "the entry goes first"
        );
        let (code, said) = self.run(&format!("{remove} --entry-removed")).await?;
        assert_eq!(code, Some(0), "{said}");
        let ca = format!("kubectl delete secret {}-ca", self.name);
        assert!(said.contains(&ca), "{said}");
        let (code, said) = self
            .run(&format!("keyferry token {first}/{}", self.name))
            .await?;
        assert_ne!(code, Some(0), "{said}");
        Ok(())
    }

    /// Runs a command that waits for the target's admin, and is that admin.
    pub(super) async fn guided(&self, command: &str, label: &str) -> TestResult {
        let (out, err) = (format!("{label}.out"), format!("{label}.err"));
        let typed = format!("{command} > {out} 2> {err}");
        let folder = self.shell.folder();
        let (ended, written) = tokio::join!(
            self.shell.run(&typed),
            self.write_what_is_shown(folder.join(&out), folder.join(&err)),
        );
        let (ended, said) = (
            ended?,
            std::fs::read_to_string(folder.join(&out))?
                + &std::fs::read_to_string(folder.join(&err))?,
        );
        written.map_err(|error| format!("{error}: {said}"))?;
        assert_eq!(ended.status.code(), Some(0), "{said}");
        assert!(
            said.contains("proven: the target accepted a token"),
            "{said}"
        );
        Ok(())
    }

    async fn write_what_is_shown(&self, out: PathBuf, err: PathBuf) -> TestResult {
        let started = Instant::now();
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        // The command says that it tries a token once it has shown everything.
        while !read(&err).contains("trying a token") {
            if started.elapsed() > Duration::from_secs(110) {
                return Err("nothing was shown for the target".into());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let shown = read(&out);
        let (_, file) = shown.split_once(NODES).ok_or("no file is shown")?;
        let file = file.split("\n== ").next().unwrap_or_default();
        self.plane
            .set_authentication_config(&format!("{file}\n"))
            .await?;
        Ok(())
    }

    /// Runs a command that must fail, and returns all that a person sees. It is the same for each
    /// target.
    pub(super) async fn refused(&self, text: &str) -> Result<Transcript, TestError> {
        let output = self.shell.run(text).await?;
        assert_eq!(output.status.code(), Some(1), "{text}");
        let site = &self.site.world;
        Ok(Transcript::new(text, &[], &output)
            .with_name(self.name, "NAME")
            .with_name(&site.hub.url(), "https://HUB")
            .with_name(&self.plane.url(), "https://TARGET")
            .with_name(&self.shell.folder().display().to_string(), "FOLDER")
            .without_random_words())
    }

    pub(super) async fn run(&self, text: &str) -> Result<(Option<i32>, String), TestError> {
        let Output {
            status,
            stdout,
            stderr,
        } = self.shell.run(text).await?;
        let said = format!(
            "$ {text}\n{}{}",
            String::from_utf8_lossy(&stdout),
            String::from_utf8_lossy(&stderr)
        );
        Ok((status.code(), said))
    }
}
