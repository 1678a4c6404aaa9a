//! The namespaces and the cgroup in which a node runs, so that the machine keeps nothing of it: the
//! kernel ends its processes, mounts and interfaces together.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::network_namespace::{NetworkNamespace, NetworkNamespaceError};
use crate::process::{Process, ProcessSpec};
use crate::runner::TestError;

/// The first process of the node. It mounts private copies over the paths outside of the node's
/// folder that the node writes, and collects orphans. A kubelet sets six settings of its machine
/// and exits if it cannot, so it finds them already set in private files.
const FIRST: &str = "set -eu
mount --make-rshared /
for folder in /run /var/lib /var/log; do mount -t tmpfs tmpfs $folder; done
for folder in kernel vm; do
  mount --bind /proc/sys/$folder /proc/sys/$folder
  mount -o remount,bind,ro /proc/sys/$folder
done
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
  kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  name=${setting%=*}
  mkdir -p /run/settings/${name%/*}
  echo ${setting#*=} > /run/settings/$name
  mount --bind /run/settings/$name /proc/sys/$name
done
echo prepared
while sleep 2; do :; done";
const UNSHARE: [&str; 11] = [
    "--net",
    "--mount",
    "--propagation=private",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "--uts",
    "sh",
    "-c",
    FIRST,
];

const CGROUPS: &str = "/sys/fs/cgroup";
const PREPARED_WITHIN: Duration = Duration::from_secs(10);
const ENDED_WITHIN: Duration = Duration::from_secs(20);

/// Namespaces for the network, mounts and processes, and a cgroup in each hierarchy.
#[derive(Debug)]
pub(super) struct Machine {
    folder: PathBuf,
    // Ended, with all its processes, before the cgroups can be removed.
    network: Option<NetworkNamespace>,
    cgroup: Cgroup,
}

impl Machine {
    pub(super) async fn start(folder: &Path) -> Result<Self, TestError> {
        let network = NetworkNamespace::kept_by(folder, &UNSHARE).await?;
        let deadline = Instant::now() + PREPARED_WITHIN;
        while !network.log().contains("prepared") {
            if Instant::now() > deadline {
                let why = format!("its namespaces were not made: {}", network.log());
                return Err(NetworkNamespaceError::Unavailable(why).into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // Every address of these networks is the node's own: Services, servers outside, and the one
        // where clouds have their metadata services.
        for network_of_node in ["10.96.0.0/24", "172.31.0.0/24", "169.254.169.254/32"] {
            let route_args = ["route", "add", "local", network_of_node, "dev", "lo"];
            network.ip(&route_args).await?;
        }
        let machine = Self {
            folder: folder.to_owned(),
            network: Some(network),
            cgroup: Cgroup::create()?,
        };
        Ok(machine)
    }

    pub(super) fn network(&self) -> &NetworkNamespace {
        // It is taken by `drop` alone.
        #[allow(clippy::expect_used)]
        self.network.as_ref().expect("the machine still runs")
    }

    /// The name of its cgroup in every hierarchy.
    pub(super) fn cgroup(&self) -> &str {
        &self.cgroup.name
    }

    /// Starts a program in the namespaces. It ends with this test process.
    pub(super) async fn spawn(
        &self,
        name: &str,
        program: &Path,
        args: Vec<OsString>,
    ) -> Result<Process, TestError> {
        self.spawn_with(name, program, args, Vec::new()).await
    }

    /// As [`Self::spawn`], with environment variables.
    pub(super) async fn spawn_with(
        &self,
        name: &str,
        program: &Path,
        args: Vec<OsString>,
        env: Vec<(String, OsString)>,
    ) -> Result<Process, TestError> {
        let mut all = self.enter();
        // Killing nsenter does not kill the program, whose process ID nsenter does not have.
        all.extend(["setpriv", "--pdeathsig", "KILL"].map(Into::into));
        all.push(program.into());
        all.extend(args);
        let spec = ProcessSpec {
            name: name.to_owned(),
            program: "nsenter".into(),
            args: all,
            env,
            log: self.folder.join(format!("{name}.log")),
        };
        Ok(Process::spawn(&spec).await?)
    }

    /// Runs a program in the namespaces until it ends, and returns what it printed.
    pub(super) async fn run(
        &self,
        program: &Path,
        args: Vec<OsString>,
    ) -> Result<String, TestError> {
        self.run_with(program, args, Vec::new()).await
    }

    /// As [`Self::run`], with environment variables.
    pub(super) async fn run_with(
        &self,
        program: &Path,
        args: Vec<OsString>,
        env: Vec<(String, OsString)>,
    ) -> Result<String, TestError> {
        let mut all = self.enter();
        all.push(program.into());
        all.extend(args);
        let output = tokio::process::Command::new("nsenter")
            .args(&all)
            .envs(env)
            .kill_on_drop(true)
            .output()
            .await?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(format!("{all:?}: {said}").into());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn enter(&self) -> Vec<OsString> {
        let id = self.network().keeper_id();
        [
            ("net", "net"),
            ("mount", "mnt"),
            ("uts", "uts"),
            ("pid", "pid_for_children"),
        ]
        .map(|(flag, file)| format!("--{flag}=/proc/{id}/ns/{file}").into())
        .to_vec()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The kernel kills every process of the node with the first one.
        drop(self.network.take());
    }
}

/// A cgroup of the same name in each hierarchy (version 1), or in the only one (version 2).
#[derive(Debug)]
struct Cgroup {
    name: String,
    folders: Vec<PathBuf>,
}

impl Cgroup {
    fn create() -> Result<Self, NetworkNamespaceError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("keyferry-node-{}-{number}", std::process::id());
        let unavailable = |what: &dyn std::fmt::Display| {
            NetworkNamespaceError::Unavailable(format!("cgroups at {CGROUPS}: {what}"))
        };
        let mounts =
            std::fs::read_to_string("/proc/self/mounts").map_err(|error| unavailable(&error))?;
        let mut cgroup = Self {
            folders: Vec::new(),
            name,
        };
        let (used, others) = hierarchies(&mounts);
        let any = !used.is_empty();
        for hierarchy in others {
            remove_old(&hierarchy);
            // On a hybrid machine, runc makes one in the other version too.
            cgroup.folders.push(hierarchy.join(&cgroup.name));
        }
        for hierarchy in used {
            remove_old(&hierarchy);
            let folder = hierarchy.join(&cgroup.name);
            std::fs::create_dir(&folder).map_err(|error| unavailable(&error))?;
            cgroup.folders.push(folder.clone());
            // In version 1, a new cpuset is empty and takes no process.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if let Ok(all) = std::fs::read_to_string(hierarchy.join(file)) {
                    std::fs::write(folder.join(file), all).map_err(|error| unavailable(&error))?;
                }
            }
        }
        match any {
            true => Ok(cgroup),
            false => Err(unavailable(&"none is mounted")),
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let deadline = Instant::now() + ENDED_WITHIN;
        for folder in &self.folders {
            while !removed(folder) {
                if Instant::now() > deadline {
                    eprintln!(
                        "{} is left: a process of the node has not ended",
                        folder.display()
                    );
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// Where the hierarchies are mounted, by `/proc/mounts`: those that the kubelet uses, and the others
/// of a hybrid machine. Such a machine has both versions; the kubelet then uses version 1.
fn hierarchies(mounts: &str) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let of = |kind: &str| -> Vec<PathBuf> {
        let lines = mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>());
        let found = lines.filter_map(|fields| match fields.as_slice() {
            [_, at, found, ..] if *found == kind && at.starts_with(CGROUPS) => {
                Some(PathBuf::from(at))
            }
            _ => None,
        });
        found.collect()
    };
    let (first, second) = (of("cgroup"), of("cgroup2"));
    match first.is_empty() {
        true => (second, first),
        false => (first, second),
    }
}

/// Removes a cgroup with those below it. It fails while a process is in one of them.
fn removed(folder: &Path) -> bool {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            removed(&entry.path());
        }
    }
    match std::fs::remove_dir(folder) {
        Ok(()) => true,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// Removes what a killed test process has left.
fn remove_old(hierarchy: &Path) {
    for entry in std::fs::read_dir(hierarchy).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let id = name
            .strip_prefix("keyferry-node-")
            .and_then(|rest| rest.split('-').next());
        if id.is_some_and(|id| !Path::new("/proc").join(id).exists()) {
            removed(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_those_of_version_1_where_there_are_any() {
        let two = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\nproc /proc proc rw 0 0\n";
        let [unified, all] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(PathBuf::from);
        assert_eq!(hierarchies(two), (vec![all], Vec::new()));
        let hybrid = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let cpu = PathBuf::from("/sys/fs/cgroup/cpu");
        assert_eq!(hierarchies(hybrid), (vec![cpu], vec![unified]));
        assert_eq!(hierarchies(""), (Vec::new(), Vec::new()));
    }
}
