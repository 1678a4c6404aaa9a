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
            "admission-policies",
            "tls",
            "inputs",
            "approve-certificates",
            "export",
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
        &["doctor", "whoami", "can-i", "verify", "lint", "explain"],
    ),
    ("Other", &["completion", "demo", "help"]),
];

/// One example of each command. A test checks that the command line accepts them.
const EXAMPLES: [(&str, &str); 28] = [
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
    ("keys", "keyferry keys -o timeline"),
    (
        "revoke",
        "keyferry revoke --kid KID --config config.yaml --witness old.token",
    ),
    (
        "doctor",
        "keyferry doctor kustomization/apps -n tenant-a --discovery-ca ca.crt",
    ),
    (
        "whoami",
        "keyferry whoami secret/prod-kubeconfig -n tenant-a",
    ),
    (
        "can-i",
        "keyferry can-i apply kustomization/apps -n tenant-a -f ./apps",
    ),
    (
        "export",
        "keyferry export ./site --config config.yaml --public-url https://keys.example.com",
    ),
    (
        "verify",
        "keyferry verify --auth-config authentication.yaml --target-token-file token --live",
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
    ("crds", "keyferry crds > crds.yaml"),
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

/// Adds groups and examples to the command line's help.
pub(super) fn presented(mut command: Command) -> Command {
    for (name, example) in EXAMPLES {
        if command.find_subcommand(name).is_some() {
            command = command.mut_subcommand(name, |command| {
                command.after_help(format!("Example:\n  {example}"))
            });
        }
    }
    let template = format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} \
         {{usage}}\n\n{}\n\nOptions:\n{{options}}{{after-help}}",
        grouped(&command)
    );
    command.help_template(template)
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

/// Returns a hint that the parser's own message lacks.
pub(super) fn hint(kind: ErrorKind, words: &[OsString]) -> Option<&'static str> {
    let exec =
        words.first().is_some_and(|word| word == "exec") && !words.iter().any(|word| word == "--");
    let mistaken = matches!(
        kind,
        ErrorKind::UnknownArgument | ErrorKind::MissingRequiredArgument
    );
    (exec && mistaken).then_some(
        "put -- before the command, as in: keyferry exec tenant-a/prod -- kubectl get pods",
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    #[test]
    fn each_command_stands_in_one_group_and_has_an_example_that_is_taken() {
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
            let Some((_, example)) = EXAMPLES.iter().find(|(of, _)| of == name) else {
                let own = command
                    .find_subcommand(name)
                    .and_then(Command::get_after_help)
                    .map(ToString::to_string)
                    .unwrap_or_default();
                assert!(
                    own.contains(&format!("  keyferry {name}")),
                    "{name} has no example"
                );
                continue;
            };
            let words = example
                .split_whitespace()
                .take_while(|word| *word != ">" && *word != "|");
            let matches = presented(Cli::command()).try_get_matches_from(words);
            let matches = matches.unwrap_or_else(|error| panic!("{example}: {error}"));
            assert_eq!(matches.subcommand_name(), Some(*name), "{example}");
        }
        let known = |name: &&str| {
            names.contains(name)
                || *name == "help"
                || (*name == "demo" && cfg!(not(feature = "demo")))
        };
        assert!(grouped.iter().all(known), "{grouped:?}");
    }

    #[test]
    fn help_groups_the_commands_and_keeps_the_options() {
        let help = presented(Cli::command()).render_help().to_string();
        for (heading, names) in GROUPS {
            assert!(
                help.contains(&format!("\n{heading}:\n  {}", names.first().unwrap())),
                "{heading}: {help}"
            );
        }
        assert!(
            help.contains("--version") && help.contains("Usage: keyferry"),
            "{help}"
        );
        let exec = presented(Cli::command())
            .find_subcommand_mut("exec")
            .unwrap()
            .render_help()
            .to_string();
        assert!(
            exec.contains("Example:\n  keyferry exec tenant-a/prod -- kubectl get pods"),
            "{exec}"
        );
        for heading in ["Hub:", "Keyferry server:"] {
            assert!(exec.contains(heading), "{exec}");
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
}
