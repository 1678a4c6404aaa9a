//! The rooms and the arrows between them, held by reading the sources.

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

/// The source without its tests and comments: what a line of the room may name.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    code.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The modules of the crate that a source names.
fn named_rooms(path: &Path) -> BTreeSet<String> {
    let code = code(path);
    let names = code.split("crate::").skip(1);
    names
        .map(|rest| {
            rest.chars()
                .take_while(|character| character.is_alphanumeric() || *character == '_')
                .collect()
        })
        .collect()
}

#[test]
fn rooms_name_only_what_they_may() {
    // Room -> what it must never name. Foreign crates are written with a `::` before a path of
    // theirs.
    let walls: &[(&str, &[&str])] = &[
        (
            "http",
            &["kube", "cli", "controller", "client", "serve", "ports"],
        ),
        (
            "kube",
            &[
                "http",
                "broker",
                "mint",
                "cli",
                "controller",
                "policy_store",
                "client",
                "serve",
            ],
        ),
        ("controller", &["http", "cli", "broker", "client"]),
        (
            "mint",
            &["http", "cli", "controller", "kube", "serve", "policy_store"],
        ),
        (
            "embedded",
            &[
                "http",
                "cli",
                "controller",
                "kube",
                "serve",
                "broker",
                "mint",
            ],
        ),
        ("client", &["http", "cli", "serve", "broker"]),
    ];
    let src = repository().join("broker/src");
    for (room, forbidden) in walls {
        let mut files = sources(&src.join(room));
        files.push(src.join(format!("{room}.rs")));
        for file in &files {
            let named = named_rooms(file);
            for other in *forbidden {
                assert!(
                    !named.contains(*other),
                    "{} names crate::{other}, which room {room} must not",
                    file.display()
                );
            }
        }
    }
}

#[test]
fn only_serve_and_the_command_line_join_rooms() {
    let src = repository().join("broker/src");
    for file in sources(&src) {
        let relative = file
            .strip_prefix(&src)
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let joins = named_rooms(&file).contains("serve");
        let may = relative.starts_with("cli")
            || relative == "serve.rs"
            || relative == "lib.rs"
            || relative.starts_with("serve/");
        assert!(!joins || may, "{relative} names crate::serve");
    }
}

#[test]
fn the_server_never_runs_what_targets_run() {
    // Foreign expressions are for the command line alone: no request can reach their evaluator.
    let src = repository().join("broker/src");
    let mut named = 0;
    for file in sources(&src) {
        let relative = file
            .strip_prefix(&src)
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let names = code(&file).contains("keyferry_kube_authn");
        let may = relative.starts_with("cli/") || relative.starts_with("client/doctor");
        assert!(
            !names || may,
            "{relative} names keyferry_kube_authn, which is for the command line alone"
        );
        named += usize::from(names);
    }
    assert!(
        named > 3,
        "the sources were read: {named} name keyferry_kube_authn"
    );
    for file in [
        "serve", "access", "exec", "keys", "revoke", "export", "targets",
    ] {
        let path = src.join(format!("cli/{file}.rs"));
        assert!(
            !code(&path).contains("keyferry_kube_authn"),
            "{}",
            path.display()
        );
    }
}

#[test]
fn a_token_request_is_written_in_one_place() {
    // Its type has one audience that is not empty; a copy of it could leave the audience out, and
    // get a credential of the hub.
    let src = repository().join("broker/src");
    let writes = |file: &PathBuf| {
        code(file).contains("\"TokenRequest\"") && !file.starts_with(src.join("embedded"))
    };
    let found: Vec<PathBuf> = sources(&src).into_iter().filter(writes).collect();
    assert_eq!(found, [src.join("kube/token_request.rs")]);
}

#[test]
fn the_core_reaches_for_nothing_outside() {
    let manifest = std::fs::read_to_string(repository().join("broker/core/Cargo.toml")).unwrap();
    let dependencies = manifest.split("[dev-dependencies]").next().unwrap();
    for crate_name in [
        "tokio", "kube", "axum", "reqwest", "hyper", "cel", "rustls.",
    ] {
        assert!(
            !dependencies.contains(&format!("\n{crate_name}")),
            "core depends on {crate_name}"
        );
    }
    for file in sources(&repository().join("broker/core/src")) {
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

#[test]
fn every_place_in_the_table_is_there() {
    let text = std::fs::read_to_string(repository().join("docs/architecture.md")).unwrap();
    let (_, table) = text.split_once("## Where is").unwrap();
    let places: Vec<&str> = table
        .lines()
        .filter_map(|line| line.rsplit_once("| `")?.1.strip_suffix("` |"))
        .collect();
    assert!(places.len() > 25, "the table was read: {places:?}");
    for place in places {
        assert!(
            repository().join(place).exists(),
            "docs/architecture.md names {place}, which is not there"
        );
    }
}

#[test]
fn there_are_no_drawers() {
    for folder in [
        "broker/src",
        "broker/cel-kubernetes/src",
        "broker/core/src",
        "broker/go-formats/src",
        "broker/kube-authn/src",
        "integration/src",
    ] {
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
