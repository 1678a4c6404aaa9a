//! Runs a container of a rendered Pod as a process: with its arguments, its environment and nothing
//! else, its volumes at their paths, and the network namespace of its Pod. It does what the kubelet
//! does with these fields. It applies no security context, because it has to be root to mount.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::network_namespace::NetworkNamespace;
use crate::process::{Process, ProcessSpec};
use crate::runner::TestError;

/// Where the ServiceAccount's token is, in every Pod that mounts it.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Hides the machine's own files, such as `/etc/resolv.conf`, and mounts the volumes.
const MOUNT_AND_RUN: &str = "set -eu
for folder in /etc /var/run /var/lib; do mount -t tmpfs tmpfs $folder; done
while [ \"$1\" != run ]; do
  mkdir -p \"$2\"
  mount --bind \"$1\" \"$2\"
  [ \"$3\" = rw ] || mount -o remount,bind,ro \"$2\"
  shift 3
done
shift
exec \"$@\"";

/// The data of ConfigMaps and Secrets by their names.
pub type DataByName = BTreeMap<String, BTreeMap<String, String>>;

/// What the kubelet fills a Pod with.
#[derive(Debug, Clone, Default)]
pub struct PodSources {
    /// The Pod's namespace.
    pub namespace: String,
    /// The Pod's name.
    pub name: String,
    /// The Pod's UID.
    pub uid: String,
    /// `status.hostIP`: the address of its node.
    pub host_ip: String,
    /// The data of ConfigMaps.
    pub config_maps: DataByName,
    /// The data of Secrets.
    pub secrets: DataByName,
    /// The token of its ServiceAccount.
    pub token: String,
    /// The variables that the kubelet adds. Those of the container come first.
    pub injected: BTreeMap<String, String>,
}

/// A Pod whose containers can be started.
#[derive(Debug)]
pub struct Pod<'a> {
    spec: &'a Value,
    sources: PodSources,
    network: &'a NetworkNamespace,
    folder: PathBuf,
}

/// One mounted volume.
struct Mount {
    from: PathBuf,
    to: String,
    read_only: bool,
}

impl<'a> Pod<'a> {
    /// Writes the volumes of a Pod into a folder. `spec` is that of a Pod or of a Pod template.
    ///
    /// # Errors
    /// A volume has a source that this does not know, or names an object that is not given.
    pub fn prepare(
        spec: &'a Value,
        sources: PodSources,
        network: &'a NetworkNamespace,
        folder: PathBuf,
    ) -> Result<Self, TestError> {
        let pod = Self {
            spec,
            sources,
            network,
            folder,
        };
        for volume in array(&spec["volumes"]) {
            let files = pod.volume(volume)?;
            write(&pod.volume_folder(text(&volume["name"])?), &files)?;
        }
        // The admission plugin ServiceAccount mounts this into Pods that do not opt out.
        write(&pod.volume_folder(AUTOMOUNTED), &pod.service_account())?;
        Ok(pod)
    }

    /// Starts a container's process with this binary, which stands for its image.
    ///
    /// # Errors
    /// There is no such container, it has a variable of a source that this does not know, or the
    /// process does not start.
    pub async fn start(&self, container: &str, program: &Path) -> Result<Process, TestError> {
        let container_spec = array(&self.spec["containers"]).find(|one| one["name"] == container);
        let container_spec =
            container_spec.ok_or_else(|| format!("the Pod has no container {container}"))?;
        let environment = self.environment(container_spec)?;
        let mut args = self.network.nsenter();
        args.extend(["unshare", "--mount", "sh", "-c", MOUNT_AND_RUN, "mount"].map(Into::into));
        let mut mounts = self.mounts(container_spec)?;
        // The sources are below /tmp, so what is mounted there comes last.
        mounts.sort_by_key(|mount| mount.to.starts_with("/tmp"));
        for mount in mounts {
            let mode = if mount.read_only { "ro" } else { "rw" };
            args.extend([mount.from.into(), mount.to.into(), mode.into()]);
        }
        // The process gets nothing of the test's own environment.
        args.extend(["run", "env", "-i"].map(OsString::from));
        let variables = environment.iter();
        args.extend(variables.map(|(name, value)| format!("{name}={value}").into()));
        args.push(program.into());
        for arg in array(&container_spec["args"]) {
            args.push(expanded(text(arg)?, &environment).into());
        }
        let spec = ProcessSpec {
            name: container.to_owned(),
            program: "nsenter".into(),
            args,
            env: Vec::new(),
            log: self.folder.join(format!("{container}.log")),
        };
        Ok(Process::spawn(&spec).await?)
    }

    fn environment(&self, container: &Value) -> Result<BTreeMap<String, String>, TestError> {
        let mut all = self.sources.injected.clone();
        for variable in array(&container["env"]) {
            let name = text(&variable["name"])?;
            let value = match variable["value"].as_str() {
                Some(value) => expanded(value, &all),
                None => self.field(&variable["valueFrom"], container)?,
            };
            all.insert(name.to_owned(), value);
        }
        Ok(all)
    }

    fn field(&self, from: &Value, container: &Value) -> Result<String, TestError> {
        match from["fieldRef"]["fieldPath"].as_str() {
            Some("status.hostIP") => return Ok(self.sources.host_ip.clone()),
            Some("metadata.namespace") => return Ok(self.sources.namespace.clone()),
            Some("metadata.name") => return Ok(self.sources.name.clone()),
            Some("metadata.uid") => return Ok(self.sources.uid.clone()),
            _ => {}
        }
        // In bytes, as the kubelet does it; Kubernetes' own units of two letters suffice here.
        let resource = from["resourceFieldRef"]["resource"].as_str();
        if resource == Some("limits.memory")
            && let Some(limit) = container["resources"]["limits"]["memory"].as_str()
            && let Some((number, unit)) = limit.split_at_checked(limit.len().saturating_sub(2))
        {
            let shift = match unit {
                "Mi" => 20,
                "Gi" => 30,
                _ => return Err(format!("a limit of {limit}").into()),
            };
            return Ok((number.parse::<u64>()? << shift).to_string());
        }
        Err(format!("a variable of {from}, which no test has needed yet").into())
    }

    fn mounts(&self, container: &Value) -> Result<Vec<Mount>, TestError> {
        let mut mounts = Vec::new();
        for mount in array(&container["volumeMounts"]) {
            mounts.push(Mount {
                from: self.volume_folder(text(&mount["name"])?),
                to: text(&mount["mountPath"])?.to_owned(),
                read_only: mount["readOnly"] == true,
            });
        }
        if self.spec["automountServiceAccountToken"] != false {
            mounts.push(Mount {
                from: self.volume_folder(AUTOMOUNTED),
                to: SERVICE_ACCOUNT.to_owned(),
                read_only: true,
            });
        }
        Ok(mounts)
    }

    /// The files of one volume.
    fn volume(&self, volume: &Value) -> Result<BTreeMap<String, String>, TestError> {
        let given = |all: &DataByName, name: &Value| {
            let name = text(name)?;
            let data = all.get(name).cloned();
            data.ok_or_else(|| TestError::from(format!("the test gives no {name}")))
        };
        if !volume["emptyDir"].is_null() {
            Ok(BTreeMap::new())
        } else if !volume["configMap"].is_null() {
            given(&self.sources.config_maps, &volume["configMap"]["name"])
        } else if !volume["secret"].is_null() {
            given(&self.sources.secrets, &volume["secret"]["secretName"])
        } else if !volume["projected"].is_null() {
            // The only projection of the examples is the ServiceAccount's.
            Ok(self.service_account())
        } else {
            Err(format!("a volume that no test has needed yet: {volume}").into())
        }
    }

    fn service_account(&self) -> BTreeMap<String, String> {
        let root = self.sources.config_maps.get("kube-root-ca.crt");
        let authority = root.and_then(|data| data.get("ca.crt")).cloned();
        BTreeMap::from([
            ("token".to_owned(), self.sources.token.clone()),
            ("ca.crt".to_owned(), authority.unwrap_or_default()),
            ("namespace".to_owned(), self.sources.namespace.clone()),
        ])
    }

    fn volume_folder(&self, name: &str) -> PathBuf {
        self.folder.join("volumes").join(name)
    }
}

/// The volume that the admission plugin ServiceAccount adds.
const AUTOMOUNTED: &str = "kube-api-access";

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> Result<&str, TestError> {
    let text = value.as_str();
    text.ok_or_else(|| format!("{value} in the place of a text").into())
}

fn write(folder: &Path, files: &BTreeMap<String, String>) -> Result<(), TestError> {
    std::fs::create_dir_all(folder)?;
    for (name, content) in files {
        std::fs::write(folder.join(name), content)?;
    }
    Ok(())
}

/// Replaces `$(NAME)` by the variable's value, as the kubelet does in values and arguments.
fn expanded(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut all = text.to_owned();
    for (name, value) in variables {
        all = all.replace(&format!("$({name})"), value);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_contain_variables() {
        let variables = BTreeMap::from([("NAMESPACE".to_owned(), "flux-system".to_owned())]);
        assert_eq!(
            expanded("http://events.$(NAMESPACE).svc/$(OTHER)", &variables),
            "http://events.flux-system.svc/$(OTHER)"
        );
    }
}
