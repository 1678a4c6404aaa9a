//! A network namespace with one link to this machine, as a Pod or a node has one. It has no default
//! route and no resolver, and it counts what its processes try to send.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::process::Command;

use crate::process::{Process, ProcessError, ProcessSpec};

/// The number of /30 networks in 198.18.0.0/15, which RFC 2544 reserves for tests.
const NETWORK_COUNT: u32 = 1 << 15;
const TRIES: u32 = 64;
const PROBE_LIMIT: Duration = Duration::from_secs(5);
const UP_WITHIN: Duration = Duration::from_secs(10);

/// Why there is no network namespace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkNamespaceError {
    /// This machine does not let the test create one.
    #[error("no network namespace here: {0}; run the tests as root, with iproute2 and util-linux")]
    Unavailable(String),
    /// A command about it failed.
    #[error("{command}: {said}")]
    Command {
        /// The command line.
        command: String,
        /// What it printed.
        said: String,
    },
    /// The process that keeps it did not start.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The system's error.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// The error.
        source: io::Error,
    },
}

/// A network namespace. It ends, with its link, when this and every process in it have ended.
#[derive(Debug)]
pub struct NetworkNamespace {
    holder: Process,
    id: u32,
    /// The interface of this machine.
    interface: String,
    host: Ipv4Addr,
    address: Ipv4Addr,
    probes: AtomicU64,
}

/// What the processes of a namespace have tried to send since its creation (proc_net_snmp).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// TCP connections that were begun.
    pub connections: u64,
    /// UDP datagrams, and so every question to a DNS server.
    pub datagrams: u64,
    /// Packets, and attempts to connect, for which there was no route.
    pub unroutable: u64,
}

impl NetworkNamespace {
    /// Creates a namespace whose link has an address at both ends. Its log is in the folder.
    ///
    /// # Errors
    /// [`NetworkNamespaceError::Unavailable`] without root or the programs, which counts as a
    /// missing part.
    pub async fn start(folder: &Path) -> Result<Self, NetworkNamespaceError> {
        Self::kept_by(folder, &["--net", "sleep", "infinity"]).await
    }

    /// As [`Self::start`], with these arguments of `unshare`, which make the namespace and start the
    /// process that keeps it.
    pub(crate) async fn kept_by(
        folder: &Path,
        unshare: &[&str],
    ) -> Result<Self, NetworkNamespaceError> {
        if !rustix::process::geteuid().is_root() {
            let why = "it needs root".to_owned();
            return Err(NetworkNamespaceError::Unavailable(why));
        }
        let keeper = start_holder(folder, unshare).await?;
        let id = keeper
            .id()
            .ok_or_else(|| NetworkNamespaceError::Unavailable(keeper.logs_tail(5)))?;
        until_own_namespace(id, &keeper).await?;
        let (interface, host, address) = link(id).await?;
        Ok(Self {
            holder: keeper,
            id,
            interface,
            host,
            address,
            probes: AtomicU64::new(0),
        })
    }

    /// The address of its end of the link. This machine reaches it without a relay.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The address of this machine's end of the link, the only other address that the namespace
    /// reaches.
    pub fn host_address(&self) -> Ipv4Addr {
        self.host
    }

    /// Listens inside the namespace, for a server that runs in the test process.
    ///
    /// # Errors
    /// The namespace cannot be entered, or the address is in use.
    pub fn listen(&self, address: SocketAddr) -> Result<TcpListener, NetworkNamespaceError> {
        let listener = self.inside(move || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        listener.map_err(|source| system(format!("listening on {address} inside"), source))
    }

    /// Requests a path as the kubelet of this node does, and returns the status. `None` if nothing
    /// answers. It is not counted in [`Self::sent`].
    pub fn probe(&self, address: SocketAddr, path: &str) -> Option<u16> {
        self.probes.fetch_add(1, Ordering::Relaxed);
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        let answer = self.inside(move || {
            let mut stream = TcpStream::connect_timeout(&address, PROBE_LIMIT)?;
            stream.set_read_timeout(Some(PROBE_LIMIT))?;
            stream.write_all(request.as_bytes())?;
            let mut head = [0; "HTTP/1.1 200".len()];
            stream.read_exact(&mut head)?;
            Ok(String::from_utf8_lossy(&head).into_owned())
        });
        answer.ok()?.rsplit(' ').next()?.parse().ok()
    }

    /// Whether a DNS server inside the namespace answers with an address of this name (RFC 1035
    /// section 4.1).
    pub fn resolves(&self, server: Ipv4Addr, name: &str) -> bool {
        // One question, recursion desired; the type A of the class IN.
        let mut query = vec![0x4b, 0x46, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            query.push(u8::try_from(label.len()).unwrap_or_default());
            query.extend(label.bytes());
        }
        query.extend([0, 0, 1, 0, 1]);
        let answer = self.inside(move || {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            socket.set_read_timeout(Some(PROBE_LIMIT))?;
            socket.send_to(&query, (server, 53))?;
            let mut head = [0; 512];
            socket.recv_from(&mut head)?;
            let (no_error, answers) = (head[3] & 0x0f == 0, head[6..8] != [0, 0]);
            Ok(no_error && answers)
        });
        answer.unwrap_or(false)
    }

    /// Runs a call in a thread of its own, which alone enters the namespace. A socket stays in the
    /// namespace in which it was created.
    fn inside<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let opened = File::open(self.path())?;
        let thread = std::thread::spawn(move || {
            move_into_link_name_space(opened.as_fd(), Some(LinkNameSpaceType::Network))?;
            call()
        });
        thread
            .join()
            .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    }

    /// The arguments of `nsenter` that enter it.
    pub fn nsenter(&self) -> Vec<OsString> {
        let mut network = OsString::from("--net=");
        network.push(self.path());
        vec![network]
    }

    /// What its processes have tried to send.
    ///
    /// # Errors
    /// The kernel's counters cannot be read.
    pub fn sent(&self) -> Result<Sent, NetworkNamespaceError> {
        let read = |name: &str| {
            let path = format!("/proc/{}/net/{name}", self.id);
            std::fs::read_to_string(&path).map_err(|source| system(&path, source))
        };
        let (four, six) = (read("snmp")?, read("snmp6")?);
        let counter = |protocol, name| of_snmp(&four, protocol, name);
        Ok(Sent {
            // The counters of TCP contain IPv6.
            connections: counter("Tcp", "ActiveOpens")
                .saturating_sub(self.probes.load(Ordering::Relaxed)),
            datagrams: counter("Udp", "OutDatagrams") + of_snmp6(&six, "Udp6OutDatagrams"),
            unroutable: counter("Ip", "OutNoRoutes") + of_snmp6(&six, "Ip6OutNoRoutes"),
        })
    }

    /// The process that keeps it.
    pub(crate) fn keeper_id(&self) -> u32 {
        self.id
    }

    /// Runs `ip` inside.
    pub(crate) async fn ip(&self, args: &[&str]) -> Result<(), NetworkNamespaceError> {
        ip(Some(self.id), args).await
    }

    /// Starts a thread inside that ends when the call does.
    pub(crate) fn thread(
        &self,
        call: impl FnOnce() + Send + 'static,
    ) -> Result<std::thread::JoinHandle<io::Result<()>>, NetworkNamespaceError> {
        let path = self.path();
        let opened = File::open(&path).map_err(|source| system(path.display(), source))?;
        Ok(std::thread::spawn(move || {
            move_into_link_name_space(opened.as_fd(), Some(LinkNameSpaceType::Network))?;
            call();
            Ok(())
        }))
    }

    /// The end of the log of the process that keeps it.
    pub fn log(&self) -> String {
        self.holder.logs_tail(5)
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.id))
    }
}

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        // A socket that a test has opened inside keeps the namespace, and so the link.
        let _ = std::process::Command::new("ip")
            .args(["link", "delete", &self.interface])
            .stderr(std::process::Stdio::null())
            .status();
    }
}

/// Starts the process whose namespace it is. It ends with the test process, even if that is killed,
/// so nothing is left on the machine.
async fn start_holder(folder: &Path, unshare: &[&str]) -> Result<Process, NetworkNamespaceError> {
    let spec = ProcessSpec {
        name: "network-namespace".to_owned(),
        program: "unshare".into(),
        args: unshare.iter().map(OsString::from).collect(),
        env: Vec::new(),
        log: folder.join("network-namespace.log"),
    };
    match Process::spawn(&spec).await {
        Err(ProcessError::Start { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            let why = "there is no program unshare".to_owned();
            Err(NetworkNamespaceError::Unavailable(why))
        }
        started => Ok(started?),
    }
}

/// Waits until the process has left this process's namespace.
async fn until_own_namespace(id: u32, keeper: &Process) -> Result<(), NetworkNamespaceError> {
    let ours = std::fs::read_link("/proc/self/ns/net");
    let ours = ours.map_err(|source| system("/proc/self/ns/net", source))?;
    let deadline = Instant::now() + UP_WITHIN;
    loop {
        match std::fs::read_link(format!("/proc/{id}/ns/net")) {
            Ok(theirs) if theirs != ours => return Ok(()),
            Err(_) => return Err(NetworkNamespaceError::Unavailable(keeper.logs_tail(5))),
            Ok(_) if Instant::now() > deadline => {
                return Err(NetworkNamespaceError::Unavailable(keeper.logs_tail(5)));
            }
            Ok(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

/// Connects it with a pair of virtual interfaces. The interface's name is that of the network, so a
/// network that another run uses is not taken again.
async fn link(id: u32) -> Result<(String, Ipv4Addr, Ipv4Addr), NetworkNamespaceError> {
    let first = std::process::id().wrapping_mul(TRIES);
    let mut last = None;
    for attempt in 0..TRIES {
        let network = first.wrapping_add(attempt) % NETWORK_COUNT;
        let name = format!("keyferry{network:x}");
        let keeper = id.to_string();
        let pair = [
            "link", "add", &name, "type", "veth", "peer", "name", "eth0", "netns", &keeper,
        ];
        if let Err(error) = ip(None, &pair).await {
            last = Some(error);
            continue;
        }
        let base = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + network * 4;
        let (host, address) = (Ipv4Addr::from(base + 1), Ipv4Addr::from(base + 2));
        let [host_net, inner_net] = [host, address].map(|one| format!("{one}/30"));
        ip(None, &["address", "add", &host_net, "dev", &name]).await?;
        ip(None, &["link", "set", &name, "up"]).await?;
        ip(Some(id), &["link", "set", "lo", "up"]).await?;
        ip(Some(id), &["address", "add", &inner_net, "dev", "eth0"]).await?;
        ip(Some(id), &["link", "set", "eth0", "up"]).await?;
        return Ok((name, host, address));
    }
    let why = last.map(|error| error.to_string()).unwrap_or_default();
    Err(NetworkNamespaceError::Unavailable(why))
}

/// Runs `ip`, in the namespace of a process if one is given.
async fn ip(inside: Option<u32>, args: &[&str]) -> Result<(), NetworkNamespaceError> {
    let mut command = match inside {
        None => Command::new("ip"),
        Some(id) => {
            let mut command = Command::new("nsenter");
            command.args([&format!("--net=/proc/{id}/ns/net"), "ip"]);
            command
        }
    };
    let shown = format!("ip {}", args.join(" "));
    let output = command.args(args).kill_on_drop(true).output().await;
    let output = output.map_err(|source| system(&shown, source))?;
    if output.status.success() {
        return Ok(());
    }
    Err(NetworkNamespaceError::Command {
        command: shown,
        said: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

/// A counter of `/proc/net/snmp`: a line of names and a line of values for each protocol.
fn of_snmp(text: &str, protocol: &str, name: &str) -> u64 {
    let mut lines = text
        .lines()
        .filter_map(|line| line.strip_prefix(protocol)?.strip_prefix(": "));
    let (names, values) = (lines.next(), lines.next());
    let mut pairs = names
        .unwrap_or_default()
        .split(' ')
        .zip(values.unwrap_or_default().split(' '));
    let value = pairs.find_map(|(one, value)| (one == name).then_some(value));
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// A counter of `/proc/net/snmp6`: a name and a value on each line.
fn of_snmp6(text: &str, name: &str) -> u64 {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.unwrap_or(0)
}

fn system(what: impl ToString, source: io::Error) -> NetworkNamespaceError {
    NetworkNamespaceError::System {
        what: what.to_string(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_their_names() {
        let text = "Ip: Forwarding OutNoRoutes\nIp: 1 7\nUdp: InDatagrams OutDatagrams\nUdp: 3 5\n\
                    UdpLite: InDatagrams OutDatagrams\nUdpLite: 8 9\n";
        assert_eq!(of_snmp(text, "Ip", "OutNoRoutes"), 7);
        assert_eq!(of_snmp(text, "Udp", "OutDatagrams"), 5);
        assert_eq!(of_snmp(text, "Tcp", "ActiveOpens"), 0);
        let text = "Ip6OutNoRoutes                  \t4\nUdp6OutDatagrams                \t2\n";
        assert_eq!(of_snmp6(text, "Ip6OutNoRoutes"), 4);
        assert_eq!(of_snmp6(text, "Udp6OutDatagrams"), 2);
    }
}
