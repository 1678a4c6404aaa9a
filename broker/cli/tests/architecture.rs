//! The walls between the crates, and the paths in docs/development/architecture.md.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.file_stem().is_some_and(|stem| stem == "tests") {
            // Tests may reach for whatever they need.
        } else if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The source without its tests and comments: what it names itself.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    code.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The workspace's own crates that a crate's manifest names, without those for tests.
fn own_dependencies(name: &str) -> BTreeSet<String> {
    let path = repository().join("broker").join(name).join("Cargo.toml");
    let manifest = std::fs::read_to_string(path).unwrap();
    let (_, dependencies) = manifest.split_once("\n[dependencies]").unwrap();
    let dependencies = dependencies.split("\n[").next().unwrap();
    dependencies
        .lines()
        .filter(|line| !line.contains("optional = true"))
        .filter_map(|line| line.strip_prefix("keyferry-"))
        .filter_map(|line| line.split(['.', ' ']).next())
        .map(str::to_owned)
        .collect()
}

/// A crate's own dependencies, and theirs.
fn all_own_dependencies(name: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut next = vec![name.to_owned()];
    while let Some(name) = next.pop() {
        for dependency in own_dependencies(&name) {
            if all.insert(dependency.clone()) {
                next.push(dependency);
            }
        }
    }
    all
}

/// The compiler holds most walls: a crate cannot name what its manifest does not. What is left is
/// that nobody adds the wrong line to a manifest.
#[test]
fn the_manifests_hold_the_walls() {
    for (name, allowed) in [
        ("api", &[][..]),
        ("keys", &["api"]),
        ("core", &["api", "keys"]),
        ("fleet", &["api", "core", "keys"]),
        (
            "reach",
            &[
                "api",
                "cel-kubernetes",
                "core",
                "go-formats",
                "keys",
                "kube-authn",
                "kube-rbac",
            ],
        ),
        // It knows no hub: its manifest has no client of Kubernetes, as the next test holds.
        ("platform", &["api", "core", "keys"]),
        ("hub", &["api", "core", "keys", "platform"]),
        ("issuer", &["api", "core", "hub", "keys", "platform"]),
        (
            "controller",
            &["api", "core", "hub", "issuer", "keys", "platform"],
        ),
        // Every client reaches it before anything is known of the client.
        ("listener", &["api", "keys"]),
        // No request may reach the controller, foreign expressions or a fake cluster.
        (
            "server",
            &[
                "api", "core", "hub", "issuer", "keys", "listener", "platform",
            ],
        ),
        // Facts and their pages: what reads a hub is in the binary and in `client`.
        ("fleet", &["api", "core", "keys"]),
        (
            "pages",
            &[
                "api",
                "cel-kubernetes",
                "core",
                "fleet",
                "go-formats",
                "keys",
                "kube-authn",
                "kube-rbac",
                "reach",
            ],
        ),
        // These four know nothing of Keyferry.
        ("go-formats", &[]),
        ("cel-kubernetes", &["go-formats"]),
        ("kube-authn", &["cel-kubernetes", "go-formats"]),
        ("kube-rbac", &["go-formats"]),
        // The embedded target decides by the rules of a real one.
        ("testing", &["go-formats", "kube-rbac"]),
        ("image", &[]),
        ("simulation", &[]),
        ("counts", &[]),
        // What reads foreign bytes, and nothing that would be fuzzed along.
        (
            "fuzz",
            &[
                "api",
                "cel-kubernetes",
                "core",
                "fleet",
                "go-formats",
                "keys",
                "kube-authn",
            ],
        ),
    ] {
        let found = all_own_dependencies(name);
        let allowed: BTreeSet<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(found, allowed, "the dependencies of broker/{name}");
    }
    // A command runs where its user is. Only the binary wires the server.
    let found = all_own_dependencies("client");
    assert!(
        ["server", "controller", "listener", "testing"]
            .iter()
            .all(|name| !found.contains(*name)),
        "the dependencies of broker/client: {found:?}"
    );
}

/// The embedded clusters come with the feature `demo`, and what shows a fleet with `view`. The image
/// has neither. Cargo decides it, because one crate can turn on a feature of another.
#[test]
fn the_image_has_no_embedded_cluster_and_no_view() {
    let linked = std::process::Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--package", "keyferry"])
        .args(["--no-default-features", "--edges", "normal"])
        .args(["--prefix", "none", "--format", "{lib}"])
        .current_dir(repository())
        .output()
        .unwrap();
    let linked = String::from_utf8(linked.stdout).unwrap();
    let linked: BTreeSet<&str> = linked.lines().collect();
    assert!(linked.contains("keyferry_server"), "{linked:?}");
    for left_out in ["fleet", "kube_rbac", "pages", "reach", "testing"] {
        let name = format!("keyferry_{left_out}");
        assert!(!linked.contains(name.as_str()), "the image has {name}");
    }
    assert!(!linked.contains("maud"), "the image has maud");
}

/// The lines of a crate's `[dependencies]`, without those for tests.
fn dependency_lines(name: &str) -> Vec<String> {
    let path = repository().join("broker").join(name).join("Cargo.toml");
    let manifest = std::fs::read_to_string(path).unwrap();
    let (_, dependencies) = manifest.split_once("\n[dependencies]").unwrap();
    let dependencies = dependencies.split("\n[").next().unwrap();
    dependencies.lines().map(str::to_owned).collect()
}

#[test]
fn only_the_listener_opens_sockets_and_only_the_server_serves() {
    for name in [
        "api",
        "keys",
        "core",
        "fleet",
        "platform",
        "hub",
        "issuer",
        "controller",
        "cli",
        "client",
        "server",
    ]
    .iter()
    {
        let foreign = match *name {
            // It has axum's routes, but no connections.
            "server" => ["axum-server", "hyper"],
            _ => ["axum", "hyper"],
        };
        for line in dependency_lines(name) {
            assert!(
                !foreign.iter().any(|foreign| line.starts_with(foreign)),
                "broker/{name} depends on {line}"
            );
        }
    }
}

/// The clock, the metrics and the HTTPS client are needed where no hub may be.
#[test]
fn the_platform_knows_no_hub() {
    for line in dependency_lines("platform") {
        for foreign in ["kube", "k8s-openapi", "keyferry-hub"] {
            assert!(
                !line.starts_with(foreign),
                "broker/platform depends on {line}"
            );
        }
    }
}

/// `server` has axum for its routes. Sockets with no limits would be one call of it away.
#[test]
fn the_server_opens_no_socket() {
    let mut files = sources(&repository().join("broker/server/src"));
    // What wires the server has its listeners.
    files.extend(sources(&repository().join("broker/cli/src/wiring")));
    files.push(repository().join("broker/cli/src/wiring.rs"));
    for file in files {
        let code = code(&file);
        for opener in ["axum::serve", "TcpListener", "UnixListener"] {
            assert!(!code.contains(opener), "{}: {opener}", file.display());
        }
    }
}

#[test]
fn fakes_and_faults_are_for_tests_alone() {
    for name in [
        "platform",
        "hub",
        "issuer",
        "controller",
        "listener",
        "server",
        "cli",
        "client",
        "testing",
    ]
    .iter()
    {
        for line in dependency_lines(name) {
            assert!(
                !line.contains("\"testing\"") && !line.contains("\"faults\""),
                "broker/{name} depends on {line}"
            );
        }
    }
}

#[test]
fn a_token_request_is_written_in_one_place() {
    // Its type has one audience that is not empty; a copy of it could leave the audience out, and
    // get a credential of the hub.
    let broker = repository().join("broker");
    let writes = |file: &PathBuf| code(file).contains("\"TokenRequest\"");
    let writers: Vec<PathBuf> = [
        "api",
        "keys",
        "core",
        "fleet",
        "platform",
        "hub",
        "issuer",
        "controller",
        "listener",
        "server",
        "cli",
        "client",
    ]
    .iter()
    .flat_map(|name| sources(&broker.join(name).join("src")))
    .filter(writes)
    .collect();
    assert_eq!(writers, [broker.join("hub/src/token_request.rs")]);
}

#[test]
fn markup_that_is_not_escaped_is_written_in_one_place() {
    // Names and messages of tenants are on every page; one wrapper too many would let them be tags.
    let broker = repository().join("broker");
    let writes = |file: &PathBuf| code(file).contains("PreEscaped");
    let writers: Vec<PathBuf> = ["cli", "client", "fleet", "pages", "server"]
        .iter()
        .flat_map(|name| sources(&broker.join(name).join("src")))
        .filter(writes)
        .collect();
    assert_eq!(writers, [broker.join("pages/src/style.rs")]);
}

#[test]
fn decisions_reach_for_nothing_outside() {
    for name in [
        "api",
        "keys",
        "core",
        "fleet",
        "kube-rbac",
        "pages",
        "reach",
    ] {
        for line in dependency_lines(name) {
            for foreign in ["tokio", "kube", "axum", "reqwest", "hyper", "rustls."] {
                // The schemas of the objects are derived with these two, which have no client.
                let derives = name == "api"
                    && ["kube-core.workspace = true", "kube-derive.workspace = true"]
                        .contains(&line.as_str());
                assert!(
                    !line.starts_with(foreign) || derives,
                    "broker/{name} depends on {line}"
                );
            }
        }
        for file in sources(&repository().join("broker").join(name).join("src")) {
            let code = code(&file);
            for reach in [
                "std::fs",
                "TcpStream",
                "TcpListener",
                "UdpSocket",
                "ToSocketAddrs",
                "std::env",
                "SystemTime::now",
                "Instant::now",
                "Timestamp::now",
                "async fn",
            ] {
                assert!(
                    !code.contains(reach),
                    "{} reaches for {reach}",
                    file.display()
                );
            }
        }
    }
}

#[test]
fn every_path_of_the_table_exists() {
    let page = "docs/development/architecture.md";
    let text = std::fs::read_to_string(repository().join(page)).unwrap();
    let places: Vec<&str> = text
        .lines()
        .filter_map(|line| line.rsplit_once("| `")?.1.strip_suffix("` |"))
        .collect();
    assert!(places.len() > 20, "the table was read: {places:?}");
    for place in places {
        assert!(
            repository().join(place).exists(),
            "{page} names {place}, which is not there"
        );
    }
}

#[test]
fn no_file_is_a_drawer() {
    for folder in ["broker", "integration/src"] {
        for file in sources(&repository().join(folder)) {
            let name = file.file_stem().unwrap().to_string_lossy().into_owned();
            assert!(
                !["mod", "utils", "util", "helpers", "common", "misc"].contains(&name.as_str()),
                "{}",
                file.display()
            );
        }
    }
}
