//! Onboards targets that trust no issuer yet, and tenants, as a platform admin would, and offboards
//! them. The files that the command shows are written to the targets unchanged.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::parts::Minor;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::on_hub::access_path;
use serde_json::{Value, json};

use super::onboarding_by_file::by_configuration_file;
use super::place::{Here, Shell};

/// A target whose apiserver reads a file without any issuer.
const TRUSTS_NOBODY: &str =
    "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\njwt: []\n";
const NODES: &str = "== on the control plane nodes of the target\n";

/// A target and its tenants on the way from nothing to the first request.
pub(super) struct Journey {
    pub(super) place: Here,
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
    journey.a_target_with_its_first_tenant().await?;
    journey.another_tenant().await?;
    journey.off_again().await?;
    // Each on one target, for time.
    match minor {
        Minor::V1_33 => by_configuration_file(journey.place, journey.plane).await,
        _ => journey.goes_on_after_an_interruption().await,
    }
}

impl Journey {
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
        Ok(Self {
            place,
            plane,
            shell,
            name,
        })
    }

    fn target_path(&self) -> String {
        format!("/apis/keyferry.dev/v1alpha1/targetclusters/{}", self.name)
    }

    fn tenants(&self) -> [String; 2] {
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
            assert!(!self.place.world.is_there(&self.target_path()).await?);
        }
        Ok(())
    }

    /// The hub, taken for a target, has the hub's issuer.
    async fn a_collision_is_refused(&self) -> TestResult {
        let (code, said) = self
            .run("keyferry onboard target itself --target-kubeconfig hub.kubeconfig --apply")
            .await?;
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("IssuerCollision"), "{said}");
        let path = "/apis/keyferry.dev/v1alpha1/targetclusters/itself";
        assert!(!self.place.world.is_there(path).await?);
        Ok(())
    }

    async fn a_target_with_its_first_tenant(&self) -> TestResult {
        let [tenant, _] = self.tenants();
        let command = format!(
            "keyferry onboard target {} --target-kubeconfig fresh.kubeconfig --tenant {tenant}/app \
             --bind pod-reader --apply",
            self.name
        );
        self.guided(&command, "first").await?;
        let target = self
            .place
            .world
            .hub
            .admin()
            .get(&self.target_path())
            .await?;
        assert_eq!(
            target["spec"]["targetIssuer"],
            format!("https://{}.keyferry.test", self.name)
        );
        let wanted = json!({ "name": format!("{}-ca", self.name) });
        assert_eq!(target["spec"]["certSecretRef"], wanted);
        // The next command, as it is printed.
        let (code, said) = self
            .run(&format!(
                "keyferry exec {tenant}/{} -- kubectl get pods",
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

    async fn another_tenant(&self) -> TestResult {
        let [_, tenant] = self.tenants();
        let command = format!(
            "keyferry onboard tenant {tenant} --service-account ci --target {} --delivery \
             KubeConfigSecret --author alice --apply",
            self.name
        );
        self.guided(&command, "second").await?;
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
        let world = &self.place.world;
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
        let (code, said) = self.run(&remove).await?;
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("Kustomization apps"), "{said}");
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
        let (code, said) = self.run(&remove).await?;
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(&format!("{first}/{}", self.name)), "{said}");
        let (code, said) = self.run(&format!("{remove} --with-accesses")).await?;
        assert_eq!(code, Some(0), "{said}");
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
