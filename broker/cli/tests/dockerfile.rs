//! The Dockerfile, read as a builder reads it. No image is built here: that needs a container
//! daemon, which the tests do not.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap()
}

/// One instruction: its word and the rest, continued lines joined.
struct Instruction {
    word: String,
    rest: String,
}

fn instructions() -> Vec<Instruction> {
    let text = read("examples/install/Dockerfile");
    let mut instructions = Vec::new();
    let mut open = String::new();
    for line in text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#') && !line.trim().is_empty())
    {
        let (part, goes_on) = line
            .strip_suffix('\\')
            .map_or((line, false), |part| (part, true));
        open.push_str(part);
        open.push(' ');
        if !goes_on {
            let (word, rest) = open
                .trim()
                .split_once(' ')
                .expect("an instruction has a word and more");
            instructions.push(Instruction {
                word: word.to_owned(),
                rest: rest.trim().to_owned(),
            });
            open.clear();
        }
    }
    assert!(open.is_empty(), "the last line goes on");
    instructions
}

#[test]
fn every_instruction_is_one() {
    let known = [
        "ARG",
        "FROM",
        "RUN",
        "WORKDIR",
        "COPY",
        "LABEL",
        "USER",
        "EXPOSE",
        "ENTRYPOINT",
        "CMD",
    ];
    let all = instructions();
    assert!(
        all.iter().all(|one| known.contains(&one.word.as_str())),
        "only what a builder knows, and no ADD, which fetches"
    );
    let first = all.iter().position(|one| one.word == "FROM").unwrap();
    assert!(
        all[..first].iter().all(|one| one.word == "ARG"),
        "only ARG goes before the first FROM"
    );
}

#[test]
fn the_image_is_a_static_binary_of_this_workspace_and_its_user() {
    let all = instructions();
    let bases: Vec<&str> = all
        .iter()
        .filter(|one| one.word == "FROM")
        .map(|one| one.rest.as_str())
        .collect();
    assert_eq!(
        bases,
        ["rust:${RUST_VERSION}-alpine AS build", "scratch"],
        "nothing but the binary is in the image"
    );
    let workspace = read("Cargo.toml");
    let rust = workspace
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "))
        .unwrap()
        .trim_matches('"');
    assert!(
        all.iter()
            .any(|one| one.word == "ARG" && one.rest == format!("RUST_VERSION={rust}")),
        "the workspace wants Rust {rust}"
    );
    assert!(all.iter().any(|one| {
        one.word == "RUN"
            && one.rest.contains(
                "cargo build --release --locked -p keyferry --no-default-features --bin keyferry",
            )
    }));

    let last = all.iter().rposition(|one| one.word == "FROM").unwrap();
    let stage: BTreeMap<&str, &str> = all[last..]
        .iter()
        .map(|one| (one.word.as_str(), one.rest.as_str()))
        .collect();
    let (user, group) = stage["USER"].split_once(':').expect("user and group");
    assert!(
        [user, group]
            .iter()
            .all(|id| id.parse::<u32>().is_ok_and(|id| id >= 1000)),
        "numbers, and not root: {}",
        stage["USER"]
    );
    assert!(
        all.iter()
            .any(|one| one.rest.contains(&format!("nonroot:x:{user}:{group}:"))),
        "the user is in /etc/passwd"
    );
    assert_eq!(stage["COPY"], "--from=build /image/ /");
    for form in [stage["ENTRYPOINT"], stage["CMD"]] {
        let words: Vec<String> =
            serde_json::from_str(form).expect("there is no shell, so the exec form");
        assert!(!words.is_empty());
    }
    assert!(
        all.iter()
            .any(|one| one.rest.contains("/image/usr/bin/keyferry"))
            && stage["ENTRYPOINT"].contains("/usr/bin/keyferry")
    );
    assert_eq!(stage["EXPOSE"], "8443 9443 8080");
    for label in [
        "title",
        "description",
        "source",
        "documentation",
        "licenses",
        "version",
        "revision",
    ] {
        assert!(
            stage["LABEL"].contains(&format!("org.opencontainers.image.{label}=\"")),
            "no label {label}"
        );
    }
    let licence = workspace
        .lines()
        .find_map(|line| line.strip_prefix("license = "))
        .unwrap();
    assert!(stage["LABEL"].contains(&format!("licenses={licence}")));
}

#[test]
fn what_is_copied_is_there_and_let_through() {
    let ignore = read("examples/install/Dockerfile.dockerignore");
    assert!(
        ignore.lines().any(|line| line == "*"),
        "by default nothing goes to the builder"
    );
    let mut copied = Vec::new();
    for copy in instructions()
        .iter()
        .filter(|one| one.word == "COPY" && !one.rest.starts_with("--from"))
    {
        let parts: Vec<&str> = copy.rest.split_whitespace().collect();
        let (_, sources) = parts.split_last().unwrap();
        for source in sources {
            assert!(repository().join(source).exists(), "{source} is not there");
            assert!(
                ignore
                    .lines()
                    .any(|line| line.strip_prefix('!') == Some(source)),
                "{source} does not get to the builder"
            );
            copied.push((*source).to_owned());
        }
    }
    // A workspace is read as a whole, and what is compiled in must be there too.
    let workspace = read("Cargo.toml");
    let (_, members) = workspace.split_once("\nmembers = [").unwrap();
    let members = members.split(']').next().unwrap();
    for member in members.split('"').skip(1).step_by(2) {
        assert!(
            copied
                .iter()
                .any(|one| one == member || member.starts_with(&format!("{one}/"))),
            "{member} is not copied"
        );
    }
    assert!(copied.iter().any(|one| one == "Cargo.lock"));
    let mut compiled_in = 0;
    for source in [
        "broker/api/src",
        "broker/cel-kubernetes/src",
        "broker/cli/src",
        "broker/client/src",
        "broker/controller/src",
        "broker/core/src",
        "broker/go-formats/src",
        "broker/hub/src",
        "broker/issuer/src",
        "broker/keys/src",
        "broker/kube-authn/src",
        "broker/kube-rbac/src",
        "broker/listener/src",
        "broker/platform/src",
        "broker/server/src",
        "broker/testing/src",
    ]
    .iter()
    .flat_map(|folder| sources(&repository().join(folder)))
    {
        let text = std::fs::read_to_string(&source).unwrap();
        for path in text
            .split("include_str!(\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
        {
            let file = source.parent().unwrap().join(path).canonicalize().unwrap();
            let within = file
                .strip_prefix(repository().canonicalize().unwrap())
                .unwrap()
                .to_string_lossy()
                .into_owned();
            assert!(
                copied
                    .iter()
                    .any(|one| within.starts_with(&format!("{one}/"))),
                "{within} is compiled in and not copied"
            );
            compiled_in += 1;
        }
    }
    assert!(compiled_in > 3, "the sources were read: {compiled_in}");
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}
