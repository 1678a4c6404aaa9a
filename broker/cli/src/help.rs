//! The parts of `--help` beside the flags: the commands grouped by purpose, and an example of each.

use std::ffi::OsString;

use clap::Command;
use clap::error::ErrorKind;

/// The commands grouped by purpose. A command without a group is listed in the last one.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Use a target",
        &["exec", "kubeconfig", "token", "credential", "agent"],
    ),
    (
        "Operate",
        &[
            "serve",
            "keys",
            "revoke",
            "rehearse",
            "admission-policies",
            "tls",
            "inputs",
            "approve-certificates",
            "export",
            "fleet",
            "dashboard",
            "snapshot",
            "targets",
        ],
    ),
    (
        "Onboard",
        &[
            "onboard",
            "offboard",
            "import",
            "trust",
            "proxy-role",
            "runtime-info",
            "crds",
        ],
    ),
    (
        "Diagnose",
        &[
            "doctor", "tree", "whoami", "can-i", "who-can", "reach", "what-if", "verify",
            "inspect", "trace", "lint", "explain",
        ],
    ),
    ("Other", &["completion", "demo", "help"]),
];

/// One example of each command, and of each command below it. A test checks that the command line
/// accepts them.
const EXAMPLES: &[(&str, &str)] = &[
    (
        "serve",
        "keyferry serve --config config.yaml --kubeconfig hub.kubeconfig",
    ),
    ("token", "keyferry token tenant-a/prod --config config.yaml"),
    (
        "kubeconfig",
        "keyferry kubeconfig tenant-a/prod --exec --server https://keyferry.example.com > \
         prod.kubeconfig",
    ),
    ("credential", "keyferry credential tenant-a/prod"),
    (
        "agent",
        "keyferry agent tenant-a/prod --dir /var/run/keyferry/prod --server \
         https://keyferry.example.com",
    ),
    ("exec", "keyferry exec tenant-a/prod -- kubectl get pods"),
    (
        "import",
        "keyferry import kubeconfig --context prod --audience https://prod.example.com > \
         target.yaml",
    ),
    ("targets", "keyferry targets --config config.yaml"),
    ("fleet", "keyferry fleet --snapshot ./snapshot"),
    ("dashboard", "keyferry dashboard --snapshot ./snapshot"),
    ("snapshot", "keyferry snapshot ./snapshot"),
    ("keys", "keyferry keys -o timeline"),
    (
        "revoke",
        "keyferry revoke --kid KID --config config.yaml --witness old.token",
    ),
    ("rehearse", "keyferry rehearse hub-outage --for 4h"),
    (
        "rehearse hub-outage",
        "keyferry rehearse hub-outage --for 4h --at 2026-11-23T14:00:00Z",
    ),
    (
        "rehearse key-rotation",
        "keyferry rehearse key-rotation --publish-first",
    ),
    (
        "rehearse remove-key",
        "keyferry rehearse remove-key KID -o json",
    ),
    (
        "rehearse ca-change",
        "keyferry rehearse ca-change target prod",
    ),
    ("rehearse revoke", "keyferry rehearse revoke KID"),
    (
        "rehearse keyferry-outage",
        "keyferry rehearse keyferry-outage --for 30m --snapshot fleet",
    ),
    (
        "doctor",
        "keyferry doctor kustomization/apps -n tenant-a --discovery-ca ca.crt",
    ),
    ("tree", "keyferry tree tenant-a/prod"),
    (
        "whoami",
        "keyferry whoami secret/prod-kubeconfig -n tenant-a",
    ),
    (
        "can-i",
        "keyferry can-i apply kustomization/apps -n tenant-a -f ./apps",
    ),
    (
        "who-can",
        "keyferry who-can delete deployments.apps --target-namespace apps --target prod --snapshot \
         fleet",
    ),
    ("reach", "keyferry reach tenant-a/ci --snapshot fleet"),
    (
        "what-if",
        "keyferry what-if -f change.yaml --snapshot fleet --check no-new-access -o markdown",
    ),
    (
        "export",
        "keyferry export ./site --config config.yaml --public-url https://keys.example.com",
    ),
    (
        "verify",
        "keyferry verify --auth-config authentication.yaml --target-token-file token --live",
    ),
    (
        "inspect",
        "kubectl create token reconciler -n tenant-a | keyferry inspect -",
    ),
    (
        "trace",
        "keyferry trace --hub-audit hub.log --audit keyferry.jsonl --target-audit prod.log --keys \
         keys.json",
    ),
    ("lint", "keyferry lint --network authentication.yaml"),
    (
        "trust",
        "keyferry trust prod --config config.yaml --format kubeadm --discovery-ca ca.crt",
    ),
    (
        "onboard",
        "keyferry onboard target prod --target-kubeconfig prod.kubeconfig --tenant \
         tenant-a/reconciler --apply",
    ),
    (
        "offboard",
        "keyferry offboard tenant tenant-a --target prod --remove",
    ),
    (
        "proxy-role",
        "keyferry proxy-role charts-0 -n charts --port 8080 --account tenant-a/reader",
    ),
    (
        "approve-certificates",
        "keyferry approve-certificates --config config.yaml --once",
    ),
    (
        "admission-policies",
        "keyferry admission-policies | kubectl apply --server-side -f -",
    ),
    ("crds", "keyferry crds > crds.yaml"),
    ("keys rotate", "keyferry keys rotate --target prod"),
    (
        "onboard target",
        "keyferry onboard target prod --target-kubeconfig prod.kubeconfig --tenant \
         tenant-a/reconciler --apply",
    ),
    (
        "onboard tenant",
        "keyferry onboard tenant tenant-a --service-account reconciler --target prod --apply",
    ),
    (
        "offboard target",
        "keyferry offboard target prod --with-accesses --remove",
    ),
    (
        "offboard tenant",
        "keyferry offboard tenant tenant-a --target prod --remove",
    ),
    (
        "tls init",
        "keyferry tls init https://keyferry.example.com > keyferry-tls.yaml",
    ),
    (
        "tls renew",
        "kubectl get secret keyferry-ca -n keyferry-ca -o yaml | keyferry tls renew \
         https://keyferry.example.com --ca-secret -",
    ),
    (
        "inputs credential",
        "keyferry inputs credential new prod-eu --cluster prod-eu.fleet.example.com",
    ),
    (
        "inputs credential new",
        "keyferry inputs credential new prod-eu --cluster prod-eu.fleet.example.com",
    ),
    (
        "inputs credential rotate",
        "keyferry inputs credential rotate --hub-secret secret.yaml --child-file child.yaml",
    ),
    (
        "inputs credential revoke",
        "keyferry inputs credential revoke --hub-secret secret.yaml",
    ),
    (
        "tls",
        "keyferry tls init https://keyferry.example.com > keyferry-tls.yaml",
    ),
    (
        "inputs",
        "keyferry inputs credential new prod-eu --cluster prod-eu.fleet.example.com",
    ),
    (
        "runtime-info",
        "keyferry runtime-info prod --config config.yaml --internal-api-url \
         https://keyferry.example.com:9443",
    ),
    ("completion", "keyferry completion bash > keyferry.bash"),
    ("explain", "keyferry explain TokenRefused"),
    ("demo", "keyferry demo --once"),
];

/// Adds groups and examples to the command line's help. The help says which variable a flag has, and
/// not its value, so it is the same everywhere.
pub(super) fn presented(command: Command) -> Command {
    let command = with_examples(command, "");
    let template = format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} \
         {{usage}}\n\n{}\n\nOptions:\n{{options}}{{after-help}}",
        grouped(&command)
    );
    command.help_template(template)
}

/// Adds the examples of the commands below `command`, whose words are `path`.
fn with_examples(command: Command, path: &str) -> Command {
    let command = command.mut_args(|argument| argument.hide_env_values(true));
    let names: Vec<String> = command
        .get_subcommands()
        .map(|command| command.get_name().to_owned())
        .collect();
    names.into_iter().fold(command, |command, name| {
        let path = format!("{path} {name}").trim_start().to_owned();
        let example = EXAMPLES.iter().find(|(of, _)| *of == path);
        command.mut_subcommand(name, |command| {
            let command = with_examples(command, &path);
            match example {
                Some((_, example)) => command.after_help(format!("Example:\n  {example}")),
                None => command,
            }
        })
    })
}

fn grouped(command: &Command) -> String {
    let shown: Vec<&Command> = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .collect();
    let width = shown
        .iter()
        .map(|command| command.get_name().len())
        .max()
        .unwrap_or_default();
    let group_of = |name: &str| {
        GROUPS
            .iter()
            .position(|(_, names)| names.contains(&name))
            .unwrap_or(GROUPS.len() - 1)
    };
    let line = |command: &Command| {
        let about = command
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default();
        format!("  {:width$}  {about}", command.get_name())
    };
    let groups = GROUPS.iter().enumerate().map(|(index, (heading, names))| {
        let mut members: Vec<&Command> = shown
            .iter()
            .copied()
            .filter(|command| group_of(command.get_name()) == index)
            .collect();
        members.sort_by_key(|command| names.iter().position(|name| *name == command.get_name()));
        let lines: Vec<String> = members.into_iter().map(line).collect();
        format!("{heading}:\n{}", lines.join("\n"))
    });
    groups.collect::<Vec<_>>().join("\n\n")
}

/// What people type from other tools, and what does the same here.
const FOREIGN_COMMANDS: &[(&str, &str)] = &[
    (
        "login",
        "there is nothing to log in to: run keyferry exec NAMESPACE/NAME -- COMMAND",
    ),
    (
        "get",
        "list the accesses and their targets: keyferry targets",
    ),
    (
        "accesses",
        "list the accesses and their targets: keyferry targets",
    ),
];

/// Returns a hint that the parser's own message lacks.
pub(super) fn hint(kind: ErrorKind, words: &[OsString]) -> Option<&'static str> {
    let command = words.first()?.to_str()?;
    let has = |flag: &str| {
        let is_flag = |word: &str| {
            word == flag
                || word
                    .strip_prefix(flag)
                    .is_some_and(|rest| rest.starts_with('='))
        };
        words.iter().filter_map(|word| word.to_str()).any(is_flag)
    };
    match (kind, command) {
        (ErrorKind::InvalidSubcommand, _) => FOREIGN_COMMANDS
            .iter()
            .find_map(|(foreign, hint)| (*foreign == command).then_some(*hint)),
        (ErrorKind::UnknownArgument, "token") if has("--audience") => Some(
            "leave --audience out: the TargetCluster fixes its audience, so the access chooses it",
        ),
        (ErrorKind::UnknownArgument | ErrorKind::MissingRequiredArgument, "exec") if !has("--") => {
            Some(
                "put -- before the command, as in: keyferry exec tenant-a/prod -- kubectl get pods",
            )
        }
        (ErrorKind::UnknownArgument, "exec") if has("--as") => Some(
            "put --as after --, for kubectl, as in: keyferry exec tenant-a/prod -- kubectl --as jane \
             get pods",
        ),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    /// The most characters of a command's first line, so that a list of commands fits a screen.
    const MAX_ABOUT_CHARS: usize = 75;
    /// The most lines of `-h`, so that it fits a screen.
    const MAX_SHORT_HELP_LINES: usize = 45;

    /// Calls `visit` with each command that help shows, and its words after `keyferry`.
    fn walk(visit: &mut impl FnMut(&mut Command, &str)) {
        fn below(command: &mut Command, path: &str, visit: &mut impl FnMut(&mut Command, &str)) {
            for command in command.get_subcommands_mut() {
                if command.get_name() != "help" && !command.is_hide_set() {
                    let path = format!("{path} {}", command.get_name());
                    let path = path.trim_start();
                    visit(command, path);
                    below(command, path, visit);
                }
            }
        }
        let mut command = presented(Cli::command());
        command.build();
        below(&mut command, "", visit);
    }

    fn text(text: Option<&clap::builder::StyledStr>) -> String {
        text.map(ToString::to_string).unwrap_or_default()
    }

    #[test]
    fn each_command_is_in_one_group() {
        let command = Cli::command();
        let names: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        let grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| names.iter().copied())
            .collect();
        for name in &names {
            assert_eq!(
                grouped.iter().filter(|grouped| grouped == &name).count(),
                1,
                "{name}"
            );
        }
        let known = |name: &&str| {
            names.contains(name)
                || *name == "help"
                // Without their features, the demo and the commands about a fleet are missing.
                || cfg!(not(feature = "demo"))
        };
        assert!(grouped.iter().all(known), "{grouped:?}");
    }

    #[test]
    fn each_command_has_one_example_that_the_command_line_accepts() {
        walk(&mut |command, path| {
            let (_, example) = EXAMPLES
                .iter()
                .find(|(of, _)| *of == path)
                .unwrap_or_else(|| panic!("{path} has no example"));
            assert_eq!(
                text(command.get_after_help()),
                format!("Example:\n  {example}")
            );
            let words = example
                .split_whitespace()
                .skip_while(|word| *word != "keyferry")
                .take_while(|word| *word != ">" && *word != "|");
            let matches = Cli::command().try_get_matches_from(words);
            let matches = matches.unwrap_or_else(|error| panic!("{example}: {error}"));
            let name = path.split(' ').next();
            assert_eq!(matches.subcommand_name(), name, "{example}");
        });
    }

    #[test]
    fn the_first_line_of_a_command_is_short() {
        walk(&mut |command, path| {
            let about = text(command.get_about());
            assert!(
                !about.is_empty()
                    && about.chars().count() <= MAX_ABOUT_CHARS
                    && !about.contains('\n')
                    && !about.contains(". "),
                "{path}: {about}"
            );
            assert!(
                !about.to_lowercase().contains("offline"),
                "{path}: {about}; say in a second paragraph what the command works without"
            );
        });
    }

    #[test]
    fn short_help_shows_what_is_needed() {
        walk(&mut |command, path| {
            let help = command.render_help().to_string();
            assert!(
                help.lines().count() <= MAX_SHORT_HELP_LINES,
                "{path}: hide what few need, by hide_short_help: {help}"
            );
            for argument in command.get_arguments() {
                assert!(
                    !argument.is_required_set() || !argument.is_hide_short_help_set(),
                    "{path}: {argument} is required"
                );
            }
        });
    }

    #[test]
    fn defaults_and_repetitions_have_one_form() {
        walk(&mut |command, path| {
            for argument in command.get_arguments().filter(|it| !it.is_hide_set()) {
                let place = format!("{path} {argument}");
                let help = text(argument.get_help());
                let whole = format!("{help} {}", text(argument.get_long_help())).to_lowercase();
                for other in ["repeatable", "given again", "be repeated.", "defaults to"] {
                    assert!(!whole.contains(other), "{place}: {other:?} in {whole}");
                }
                let is_repeated = matches!(argument.get_action(), clap::ArgAction::Append)
                    && !argument.is_last_set();
                assert_eq!(
                    help.contains("(may be repeated)"),
                    is_repeated,
                    "{place}: {help}"
                );
                if let Some((_, default)) = help.split_once(" [default: ") {
                    assert!(
                        default.find(']') == Some(default.len() - 1),
                        "{place}: the default is at the end: {help}"
                    );
                    assert!(
                        argument.get_default_values().is_empty(),
                        "{place}: clap prints the default too"
                    );
                }
                assert!(!help.contains("without it"), "{place}: {help}");
                assert!(!help.contains("Without it"), "{place}: {help}");
            }
        });
    }

    /// Removes the blanks that clap writes at the end of lines.
    fn trimmed(text: &str) -> String {
        text.lines()
            .map(|line| format!("{}\n", line.trim_end()))
            .collect()
    }

    #[test]
    fn the_help_of_each_command_is_as_recorded() {
        walk(&mut |command, path| {
            let help = format!(
                "$ keyferry {path} -h\n{}\n$ keyferry {path} --help\n{}",
                command.render_help(),
                command.render_long_help()
            );
            insta::assert_snapshot!(format!("help {path}").replace(' ', "-"), trimmed(&help));
        });
        let mut command = presented(Cli::command());
        command.build();
        // Without the demo, a command is missing in the list.
        if cfg!(feature = "demo") {
            insta::assert_snapshot!("help", command.render_help());
        }
    }

    #[test]
    fn exec_without_the_two_dashes_is_told_where_they_belong() {
        let said = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let error = Cli::command()
                .try_get_matches_from(line_of(&words))
                .unwrap_err();
            hint(error.kind(), &words)
        };
        fn line_of(words: &[OsString]) -> Vec<OsString> {
            std::iter::once(OsString::from("keyferry"))
                .chain(words.iter().cloned())
                .collect()
        }
        assert!(said("exec tenant-a/prod kubectl get pods").is_some());
        assert!(said("exec tenant-a/prod").is_some());
        assert_eq!(said("exec --none tenant-a/prod -- kubectl"), None);
        assert_eq!(said("token tenant-a/prod kubectl"), None);
    }

    #[test]
    fn words_of_other_tools_lead_to_the_command() {
        let hints: Vec<_> = [
            &["login"][..],
            &["get", "targets"],
            &["accesses"],
            &["token", "tenant-a/prod", "--audience", "x"],
            &["token", "tenant-a/prod", "--audience=x"],
            &["token", "tenant-a/prod", "--audiences=x"],
            &["exec", "tenant-a/prod", "--kubeconfig", "x"],
            &["exec", "tenant-a/prod", "--kubeconfig", "x", "--", "true"],
            &["exec", "tenant-a/prod", "--as", "jane", "--", "true"],
        ]
        .into_iter()
        .map(|words| {
            let error = Cli::command()
                .try_get_matches_from(std::iter::once(&"keyferry").chain(words))
                .err();
            let kind = error.map(|error| error.kind());
            let given: Vec<OsString> = words.iter().map(OsString::from).collect();
            let hint = kind.and_then(|kind| hint(kind, &given));
            format!("{}: {}", words.join(" "), hint.unwrap_or("-"))
        })
        .collect();
        insta::assert_snapshot!(hints.join("\n"));
    }
}
