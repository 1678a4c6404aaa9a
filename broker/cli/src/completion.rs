//! Completion: a script for a shell, and candidates for kubectl, which calls its plugins for
//! completion.

mod names;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, Args, Command};
use clap_complete::Shell;

use crate::ui;

/// The most words that are read.
const MAX_WORDS: usize = 1000;
/// The directives below the candidates (cobra's ShellCompDirective): file names may follow, or
/// nothing else.
const FILES: &str = ":0";
const NO_FILES: &str = ":4";

#[derive(Args)]
pub(super) struct CompletionArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// The first argument of a call that asks for names of accesses and targets.
pub(super) const NAMES: &str = "__names";

/// The end of the script for bash: adds the names that the hub lists to the words of the script.
const NAMES_IN_BASH: &str = r#"
_keyferry_with_names() {
    _keyferry "$@"
    local name
    while IFS= read -r name; do
        [[ -n "$name" ]] && COMPREPLY+=("$name")
    done < <("$1" __names "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _keyferry_with_names -o nosort -o bashdefault -o default keyferry
else
    complete -F _keyferry_with_names -o bashdefault -o default keyferry
fi
"#;

/// Prints the completion script of a shell.
pub(super) fn run(args: &CompletionArgs, mut command: Command) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "keyferry", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if args.shell == Shell::Bash {
        script.push_str(NAMES_IN_BASH);
    }
    ui::finish(script.trim_end())
}

/// Answers kubectl. `words` follow `kubectl keyferry`; the last one is still being typed.
pub(super) fn answer_kubectl(
    words: impl Iterator<Item = OsString>,
    mut command: Command,
) -> ExitCode {
    command.build();
    let words = bounded(words);
    let mut lines = candidates(&words, command.clone());
    // The directive stays last.
    let end = lines.len().saturating_sub(1);
    drop(lines.splice(end..end, names::matching(&words, &command)));
    ui::finish(&lines.join("\n"))
}

/// Answers a shell's script: prints the names that the last word can become. `words` follow the
/// program's name.
pub(super) fn answer_names(
    words: impl Iterator<Item = OsString>,
    mut command: Command,
) -> ExitCode {
    command.build();
    ui::finish(&names::matching(&bounded(words), &command).join("\n"))
}

fn bounded(words: impl Iterator<Item = OsString>) -> Vec<String> {
    words
        .take(MAX_WORDS)
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

/// Returns one candidate per line, with a tab before its description, and the directive last.
fn candidates(words: &[String], mut command: Command) -> Vec<String> {
    let Some((typed, before)) = words.split_last() else {
        return vec![NO_FILES.to_owned()];
    };
    command.build();
    let mut current = &command;
    let mut waiting = None;
    for word in before {
        if waiting.take().is_some() {
            continue;
        }
        match word.strip_prefix('-') {
            // Arguments after `--` are for another program.
            Some("-") => return vec![FILES.to_owned()],
            Some(_) => {
                waiting = flag(current, word).filter(|arg| takes_value(arg) && !word.contains('='))
            }
            None => current = current.find_subcommand(word).unwrap_or(current),
        }
    }
    if let Some(arg) = waiting {
        return values(arg, "", typed);
    }
    if let Some((name, value)) = typed.split_once('=').filter(|_| typed.starts_with("--")) {
        return flag(current, name).map_or_else(
            || vec![NO_FILES.to_owned()],
            |arg| values(arg, &format!("{name}="), value),
        );
    }
    if typed.starts_with('-') {
        let flags = current
            .get_arguments()
            .filter(|arg| !arg.is_hide_set())
            .filter_map(|arg| {
                let name = format!("--{}", arg.get_long()?);
                Some(described(&name, arg.get_help().map(ToString::to_string)))
            });
        return of(flags, typed, NO_FILES);
    }
    let commands = current.get_subcommands().filter(|sub| !sub.is_hide_set());
    let commands: Vec<String> = commands
        .map(|sub| described(sub.get_name(), sub.get_about().map(ToString::to_string)))
        .collect();
    match current.get_positionals().next() {
        Some(arg) if commands.is_empty() => values(arg, "", typed),
        _ => of(commands.into_iter(), typed, NO_FILES),
    }
}

fn flag<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let name = word.split('=').next().unwrap_or_default();
    command
        .get_arguments()
        .find(|arg| match name.strip_prefix("--") {
            Some(long) => arg.get_long() == Some(long),
            None => arg
                .get_short()
                .is_some_and(|short| name == format!("-{short}")),
        })
}

fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}

/// Returns the known values of an argument, or the directive for file names.
fn values(arg: &Arg, prefix: &str, typed: &str) -> Vec<String> {
    let possible_values: Vec<PossibleValue> = arg.get_possible_values();
    let names = arg.get_value_names().unwrap_or_default();
    let directive = if names
        .iter()
        .any(|name| matches!(name.as_str(), "FILE" | "DIR" | "PROGRAM"))
    {
        FILES
    } else {
        NO_FILES
    };
    let known = possible_values.iter().map(|value| {
        described(
            &format!("{prefix}{}", value.get_name()),
            value.get_help().map(ToString::to_string),
        )
    });
    of(known, &format!("{prefix}{typed}"), directive)
}

fn described(name: &str, help: Option<String>) -> String {
    let line: String = help
        .as_deref()
        .and_then(|help| help.lines().next())
        .unwrap_or_default()
        .replace('\t', " ");
    if line.is_empty() {
        name.to_owned()
    } else {
        format!("{name}\t{line}")
    }
}

fn of(candidates: impl Iterator<Item = String>, typed: &str, directive: &str) -> Vec<String> {
    candidates
        .filter(|candidate| candidate.starts_with(typed))
        .chain([directive.to_owned()])
        .collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::candidates;
    use crate::Cli;

    fn names(words: &[&str]) -> Vec<String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let lines = candidates(&words, Cli::command());
        lines
            .iter()
            .map(|line| line.split('\t').next().unwrap_or_default().to_owned())
            .collect()
    }

    #[test]
    fn what_can_follow_is_listed() {
        assert!(
            names(&[""]).contains(&"token".to_owned())
                && names(&[""]).contains(&"credential".to_owned())
        );
        assert_eq!(names(&["tok"]), ["token", ":4"]);
        assert_eq!(
            names(&["token", "--ser"]),
            ["--server", "--service-account", ":4"]
        );
        assert_eq!(names(&["token", "-o", ""]), ["token", "json", "yaml", ":4"]);
        assert_eq!(names(&["token", "--output=j"]), ["--output=json", ":4"]);
        assert_eq!(names(&["token", "--token-file", ""]), [":0"], "file names");
        assert_eq!(names(&["import", ""]), [":0"]);
        assert_eq!(
            names(&["token", "-n", "tenant-a", "prod", "--output", "js"]),
            ["json", ":4"]
        );
        assert_eq!(
            names(&["exec", "a/b", "--", "kub"]),
            [":0"],
            "the words of another program"
        );
        assert_eq!(names(&["completion", "b"]), ["bash", ":4"]);
    }

    #[test]
    fn no_words_make_it_fail() {
        for words in [
            &[][..],
            &["--nothing", ""],
            &["token", "--output=x=y"],
            &["-"],
            &["nothing", "a"],
            &["--=", "="],
            &["--", ""],
        ] {
            assert!(
                names(words)
                    .last()
                    .is_some_and(|last| last.starts_with(':')),
                "{words:?}"
            );
        }
    }
}
