//! What each task runs.

use std::fmt;

/// The crates that must also compile without the features that others of the workspace enable.
const CRATES_ALONE: [&str; 7] = [
    "keyferry-api",
    "keyferry-keys",
    "keyferry-core",
    "keyferry-go-formats",
    "keyferry-cel-kubernetes",
    "keyferry-kube-authn",
    "keyferry-kube-rbac",
];
/// What makes a build report to libFuzzer which code an input reaches. It is what cargo-fuzz sets,
/// without a sanitizer, which would need a nightly compiler and finds little in code without
/// `unsafe`.
const COVERAGE_FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";
/// How long a target is explored if nobody says otherwise, in seconds.
const FUZZ_SECONDS: &str = "600";
/// The checker of Markdown, run by npm's `npx`.
const MARKDOWN_LINT: &str = "markdownlint-cli2@0.22.1";

/// A task that a contributor calls by its name.
pub(crate) struct Task {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// What it takes after the name.
    pub(crate) arguments: &'static str,
    /// What it does, in one line.
    pub(crate) about: &'static str,
    /// Its steps, for the words after the name.
    pub(crate) steps: fn(&[String]) -> Result<Vec<Step>, String>,
}

/// One program of a task.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The program, found by PATH.
    pub(crate) program: &'static str,
    /// Its arguments.
    pub(crate) arguments: Vec<String>,
    /// What is added to its environment.
    pub(crate) variables: Vec<(&'static str, String)>,
    /// What to do if the program cannot be started.
    pub(crate) fix: &'static str,
}

impl Step {
    fn cargo(line: &str) -> Self {
        Self {
            program: "cargo",
            arguments: line.split(' ').map(str::to_owned).collect(),
            variables: Vec::new(),
            fix: "install Rust",
        }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((name, value.into()));
        self
    }
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.variables {
            write!(formatter, "{name}={value:?} ")?;
        }
        write!(formatter, "{} {}", self.program, self.arguments.join(" "))
    }
}

/// Every task, in the order in which one needs them.
pub(crate) const TASKS: [Task; 10] = [
    Task {
        name: "test",
        arguments: "",
        about: "the tests that need Rust alone",
        steps: |words| none_of(words, || vec![Step::cargo("test --locked")]),
    },
    Task {
        name: "suite",
        arguments: "NAME…",
        about: "suites, or tests of them, on real control planes (needs Go)",
        steps: suites,
    },
    Task {
        name: "lint",
        arguments: "",
        about: "format, clippy, and the crates that must compile alone",
        steps: |words| none_of(words, lint),
    },
    Task {
        name: "docs",
        arguments: "",
        about: "the documents of the code, and the Markdown (needs npx)",
        steps: |words| none_of(words, docs),
    },
    Task {
        name: "snapshots",
        arguments: "",
        about: "writes every file that is printed from the code",
        steps: |words| none_of(words, snapshots),
    },
    Task {
        name: "coverage",
        arguments: "",
        about: "line coverage of the tests that need Rust alone (needs cargo-llvm-cov)",
        steps: |words| {
            none_of(words, || {
                // The harness of the control planes is run by other tests.
                vec![Step::cargo(
                    "llvm-cov --locked --summary-only --ignore-filename-regex integration/",
                )]
            })
        },
    },
    Task {
        name: "fuzz",
        arguments: "TARGET [SECONDS]",
        about: "explores a target of broker/fuzz, or with merge keeps what was found (needs C++)",
        steps: fuzz,
    },
    Task {
        name: "mutants",
        arguments: "[REGEX…]",
        about: "changes the code that decides, and fails if no test notices (needs cargo-mutants)",
        steps: |words| Ok(vec![mutants(words)]),
    },
    Task {
        name: "full",
        arguments: "[STAGE…]",
        about: "the stages of .ci/full, or the named ones, and records what passed",
        steps: full,
    },
    Task {
        name: "ci",
        arguments: "",
        about: "all that CI runs",
        steps: |words| none_of(words, || vec![script(".ci/run", Vec::new())]),
    },
];

/// The task of this name.
pub(crate) fn find(name: &str) -> Option<&'static Task> {
    TASKS.iter().find(|task| task.name == name)
}

fn none_of(words: &[String], steps: fn() -> Vec<Step>) -> Result<Vec<Step>, String> {
    match words.first() {
        None => Ok(steps()),
        Some(word) => Err(format!("this task takes no argument, not {word:?}")),
    }
}

fn suites(words: &[String]) -> Result<Vec<Step>, String> {
    if words.is_empty() {
        return Err(
            "name a suite, as `rotation::`, or a test. fix: list them by \
             `cargo test --workspace --test suites -- --list`"
                .to_owned(),
        );
    }
    let mut step = Step::cargo("test --workspace --locked --test suites -- --include-ignored");
    step.arguments.extend_from_slice(words);
    // A name is a wish: no suite is left out because it is a stage of its own.
    let step = step.with("KEYFERRY_REQUIRE_REAL", "1");
    Ok(vec![step.with("KEYFERRY_SKIP_SUITES", "")])
}

fn lint() -> Vec<Step> {
    let mut steps = vec![
        Step::cargo("fmt --all --check"),
        Step::cargo("clippy --workspace --all-targets --locked -- -D warnings"),
    ];
    let alone = CRATES_ALONE.map(|name| Step::cargo(&format!("check --locked --package {name}")));
    steps.extend(alone);
    // Beside `keyferry-integration`, so that other crates keep their features and are not checked
    // again.
    steps.push(Step::cargo(
        "check --locked --package keyferry --package keyferry-integration --no-default-features",
    ));
    steps
}

fn docs() -> Vec<Step> {
    let rustdoc = Step::cargo("doc --workspace --no-deps --locked --quiet");
    let markdown = Step {
        program: "npx",
        arguments: vec!["--yes".to_owned(), MARKDOWN_LINT.to_owned()],
        variables: Vec::new(),
        fix: "install Node.js with npm",
    };
    vec![rustdoc.with("RUSTDOCFLAGS", "-D warnings"), markdown]
}

fn snapshots() -> Vec<Step> {
    let tests = [
        "test --workspace --locked --test definitions --test chart --test reference \
         --test monitoring --test troubleshooting --test commands --test demo --test exec_plugin \
         --test import --test impersonation --test kubectl_plugin --test serve_check \
         --test trust_tools",
        "test --workspace --locked --lib",
    ];
    tests
        .map(|arguments| {
            Step::cargo(arguments)
                .with("KEYFERRY_WRITE_COPIES", "1")
                .with("INSTA_UPDATE", "always")
        })
        .into()
}

/// Explores a target and writes inputs that reach new code below `target/fuzz/found`, or adds the
/// fewest of them that reach it to the corpus.
fn fuzz(words: &[String]) -> Result<Vec<Step>, String> {
    let (target, limit) = match words {
        [target] => (target, FUZZ_SECONDS),
        [target, limit] => (target, limit.as_str()),
        _ => return Err("name a target, a folder of broker/fuzz/corpus".to_owned()),
    };
    let found = format!("target/fuzz/found/{target}");
    let corpus = format!("broker/fuzz/corpus/{target}");
    let (limit, first, second) = match limit {
        "merge" => ("-merge=1".to_owned(), &corpus, &found),
        seconds => (format!("-max_total_time={seconds}"), &found, &corpus),
    };
    let mut folder = script("mkdir", vec!["-p".to_owned(), found.clone()]);
    folder.fix = "call it on Linux";
    let mut run = Step::cargo(
        "run --locked --package keyferry-fuzz --features engine --profile fuzz \
         --target host-tuple --target-dir target/fuzz -- -timeout=10 -rss_limit_mb=1024 \
         -artifact_prefix=target/fuzz/",
    );
    run.arguments.extend([limit, first.clone(), second.clone()]);
    let run = run.with("RUSTFLAGS", COVERAGE_FLAGS);
    Ok(vec![folder, run.with("KEYFERRY_FUZZ_TARGET", target)])
}

/// Tests the mutants of the files that `.cargo/mutants.toml` lists, or those of them whose path,
/// line or description matches an expression. cargo-mutants changes a copy of the workspace.
fn mutants(patterns: &[String]) -> Step {
    let mut step = Step::cargo("mutants --colors never");
    for pattern in patterns {
        step.arguments.extend(["--re".to_owned(), pattern.clone()]);
    }
    // Only one function differs between two builds, and generated inputs find what they find early.
    step.with("CARGO_INCREMENTAL", "1")
        .with("CARGO_PROFILE_DEV_DEBUG", "none")
        .with("PROPTEST_CASES", "32")
}

fn full(words: &[String]) -> Result<Vec<Step>, String> {
    let mut arguments = Vec::new();
    if !words.is_empty() {
        arguments.push("only".to_owned());
        arguments.extend_from_slice(words);
    }
    Ok(vec![script(".ci/full", arguments)])
}

fn script(program: &'static str, arguments: Vec<String>) -> Step {
    Step {
        program,
        arguments,
        variables: Vec::new(),
        fix: "call it in the folder of Cargo.toml",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(name: &str, words: &[&str]) -> Result<Vec<String>, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let task = find(name).ok_or("no task")?;
        let steps = (task.steps)(&words)?;
        Ok(steps.iter().map(Step::to_string).collect())
    }

    #[test]
    fn a_named_suite_needs_its_parts_and_leaves_none_out() {
        assert_eq!(
            printed("suite", &["d2::", "rotation::"]).unwrap(),
            [
                "KEYFERRY_REQUIRE_REAL=\"1\" KEYFERRY_SKIP_SUITES=\"\" cargo test --workspace \
                 --locked --test suites -- --include-ignored d2:: rotation::"
            ]
        );
        assert!(printed("suite", &[]).is_err());
    }

    #[test]
    fn the_full_run_takes_stages() {
        assert_eq!(printed("full", &[]).unwrap(), [".ci/full "]);
        assert_eq!(printed("full", &["d2"]).unwrap(), [".ci/full only d2"]);
    }

    #[test]
    fn a_target_is_explored_or_its_corpus_grows() {
        let last = |words: &[&str]| {
            let steps = printed("fuzz", words).unwrap();
            let (_, limits) = steps[1]
                .split_once(" -artifact_prefix=target/fuzz/ ")
                .unwrap();
            limits.to_owned()
        };
        assert_eq!(
            last(&["jwt"]),
            "-max_total_time=600 target/fuzz/found/jwt broker/fuzz/corpus/jwt"
        );
        assert_eq!(
            last(&["jwt", "merge"]),
            "-merge=1 broker/fuzz/corpus/jwt target/fuzz/found/jwt"
        );
        assert!(printed("fuzz", &[]).is_err());
    }

    #[test]
    fn mutants_of_all_files_or_of_the_named_ones_are_tested() {
        let last = |words: &[&str]| {
            let steps = printed("mutants", words).unwrap();
            let (_, command) = steps[0].split_once(" cargo ").unwrap();
            command.to_owned()
        };
        assert_eq!(last(&[]), "mutants --colors never");
        assert_eq!(
            last(&["jwt.rs", "approval"]),
            "mutants --colors never --re jwt.rs --re approval"
        );
    }

    #[test]
    fn a_word_too_many_is_refused() {
        for task in TASKS.iter().filter(|task| task.arguments.is_empty()) {
            assert!(printed(task.name, &["now"]).is_err(), "{}", task.name);
        }
    }

    /// `.ci/run` runs these tasks, so that nothing is checked in one of the two only.
    #[test]
    fn ci_runs_the_tasks() {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/run");
        let script = std::fs::read_to_string(file).unwrap();
        for name in ["lint", "docs"] {
            assert!(script.contains(&format!("cargo xtask {name}")), "{name}");
        }
    }
}
