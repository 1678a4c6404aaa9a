//! The names of accesses and targets for completion. The hub lists them, with the user's own
//! rights. Whatever goes wrong or takes too long, there are no names and no message.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

use clap::{Arg, ArgAction, Command};
use keyferry_api::name::Namespace;
use keyferry_client::objects_of_hub::{access_names, target_names};
use keyferry_hub::client::HubClient;

use super::{flag, takes_value};
use crate::args::HubArgs;

/// How long the shell waits for names, unless [`LIMIT_VARIABLE`] says otherwise.
const LIMIT: Duration = Duration::from_secs(1);
/// The variable that sets another limit, in seconds, for a hub that answers slowly.
const LIMIT_VARIABLE: &str = "KEYFERRY_COMPLETION_SECONDS";
/// The largest limit that the variable can set.
const MOST_SECONDS: u64 = 60;
/// The most names that are offered.
const MAX_NAMES: usize = 500;

/// What the word that is being typed can name, and where the hub is.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    kind: NamedKind,
    typed: String,
    namespace: Option<String>,
    kubeconfig: Option<String>,
    context: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamedKind {
    Access,
    Target,
}

/// Returns the names that the last word can become. `words` follow the program's name.
pub(super) fn matching(words: &[String], command: &Command) -> Vec<String> {
    let Some(wanted) = wanted(words, command, |name| std::env::var(name).ok()) else {
        return reason_codes(words);
    };
    let limit = limit(std::env::var(LIMIT_VARIABLE).ok().as_deref());
    let typed = wanted.typed.clone();
    // A kubeconfig may run a program for the credentials, which would block this thread for longer.
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let names = runtime
            .ok()
            .and_then(|runtime| runtime.block_on(listed(&wanted)));
        // The receiver is gone once the time is over.
        let _ = sender.send(names);
    });
    let names = receiver.recv_timeout(limit).ok().flatten();
    names
        .unwrap_or_default()
        .into_iter()
        .filter(|name| name.starts_with(&typed))
        .take(MAX_NAMES)
        .collect()
}

/// Returns the reason codes that the word after `explain` can become. No hub is asked for them.
fn reason_codes(words: &[String]) -> Vec<String> {
    match words {
        [command, typed] if command == "explain" => crate::explain::codes()
            .into_iter()
            .filter(|code| code.starts_with(typed.as_str()))
            .map(str::to_owned)
            .collect(),
        _ => Vec::new(),
    }
}

/// How long to wait, by the variable's text. Anything but a number of seconds is no reason to fail.
fn limit(text: Option<&str>) -> Duration {
    text.and_then(|text| text.parse().ok())
        .map_or(LIMIT, |seconds: u64| {
            Duration::from_secs(seconds.clamp(1, MOST_SECONDS))
        })
}

/// Decides what the last word can name; `None` if no name can stand there. A flag overrides its
/// `variable`.
fn wanted(
    words: &[String],
    command: &Command,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<Wanted> {
    let (typed, before) = words.split_last()?;
    let (mut current, mut waiting) = (command, None::<&Arg>);
    let (mut positionals, mut values) = (0, BTreeMap::new());
    for word in before {
        // bash makes three words of --flag=value.
        if word == "=" {
            continue;
        }
        if let Some(arg) = waiting.take() {
            values.insert(arg.get_id().as_str(), word.clone());
        } else if word == "--" {
            return None;
        } else if word.starts_with('-') {
            let arg = flag(current, word).filter(|arg| takes_value(arg));
            match (arg, word.split_once('=')) {
                (Some(arg), Some((_, value))) => {
                    values.insert(arg.get_id().as_str(), value.to_owned());
                }
                (arg, _) => waiting = arg,
            }
        } else {
            match current.find_subcommand(word).filter(|_| positionals == 0) {
                Some(subcommand) => current = subcommand,
                None => positionals += 1,
            }
        }
    }
    let typed = if typed == "=" { "" } else { typed };
    if typed.starts_with('-') {
        return None;
    }
    let positional = || {
        let next = current.get_positionals().nth(positionals);
        next.or_else(|| {
            current
                .get_positionals()
                .last()
                .filter(|arg| matches!(arg.get_action(), ArgAction::Append))
        })
    };
    let arg = waiting.or_else(positional)?;
    let kind = match (current.get_name(), arg.get_id().as_str()) {
        (_, "access" | "accesses") | ("doctor" | "whoami", "start") => NamedKind::Access,
        ("trust" | "rotate" | "ca-change", "target") => NamedKind::Target,
        _ => return None,
    };
    let mut value = |id: &str, name: &str| {
        values
            .remove(id)
            .or_else(|| variable(name))
            .filter(|value| !value.is_empty())
    };
    Some(Wanted {
        kind,
        typed: typed.to_owned(),
        namespace: value("namespace", "KEYFERRY_NAMESPACE"),
        kubeconfig: value("kubeconfig", "KEYFERRY_KUBECONFIG"),
        context: value("context", "KEYFERRY_CONTEXT"),
    })
}

/// Asks the hub; `None` if it does not answer.
async fn listed(wanted: &Wanted) -> Option<Vec<String>> {
    let hub = HubArgs {
        kubeconfig: wanted.kubeconfig.as_ref().map(Into::into),
        context: wanted.context.clone(),
    };
    let config = hub.access().config().await.ok()?;
    let own_namespace = Namespace::new(config.default_namespace.as_str());
    let client = HubClient::new(config).ok()?;
    if wanted.kind == NamedKind::Target {
        let names = target_names(&client).await.ok()?;
        return Some(names.iter().map(ToString::to_string).collect());
    }
    if let Some((namespace, _)) = wanted.typed.split_once('/') {
        let namespace = Namespace::new(namespace).ok()?;
        let names = access_names(&client, Some(&namespace)).await.ok()?;
        return Some(names.iter().map(ToString::to_string).collect());
    }
    if let Some(namespace) = &wanted.namespace {
        let namespace = Namespace::new(namespace.as_str()).ok()?;
        let names = access_names(&client, Some(&namespace)).await.ok()?;
        return Some(names.iter().map(|access| access.name.to_string()).collect());
    }
    let names = match access_names(&client, None).await {
        Ok(names) => names,
        // A tenant may list the accesses of its own namespace only.
        Err(_) => access_names(&client, Some(&own_namespace.ok()?))
            .await
            .ok()?,
    };
    Some(names.iter().map(ToString::to_string).collect())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{LIMIT, NamedKind, Wanted, limit, matching, wanted};
    use crate::Cli;

    fn of(words: &[&str]) -> Option<Wanted> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        wanted(&words, &Cli::command(), |name| {
            (name == "KEYFERRY_CONTEXT").then(|| "of-variable".to_owned())
        })
    }

    #[test]
    fn the_shell_waits_a_second_or_as_long_as_its_user_says() {
        for text in [None, Some(""), Some("soon"), Some("-1"), Some("1.5")] {
            assert_eq!(limit(text), LIMIT, "{text:?}");
        }
        let seconds = |text| limit(Some(text)).as_secs();
        assert_eq!((seconds("0"), seconds("5"), seconds("1000")), (1, 5, 60));
    }

    #[test]
    fn accesses_and_targets_are_where_commands_take_them() {
        for words in [
            &["token", "ten"][..],
            &["kubeconfig", "--exec", "ten"],
            &["exec", "--server", "https://k", "ten"],
            &["credential", "ten"],
            &["agent", "tenant-a/one", "ten"],
            &["doctor", "ten"],
            &["whoami", "--config", "keyferry.yaml", "ten"],
        ] {
            let wanted = of(words);
            assert!(
                wanted.as_ref().is_some_and(|wanted| wanted.kind == NamedKind::Access
                    && wanted.typed == "ten"),
                "{words:?}: {wanted:?}"
            );
        }
        for words in [
            &["trust", ""][..],
            &["keys", "rotate", "--target", ""],
            &["keys", "rotate", "--target", "="],
            &["rehearse", "ca-change", "target", ""],
        ] {
            let wanted = of(words);
            assert!(
                wanted.as_ref().is_some_and(
                    |wanted| wanted.kind == NamedKind::Target && wanted.typed.is_empty()
                ),
                "{words:?}: {wanted:?}"
            );
        }
    }

    #[test]
    fn the_hub_is_that_of_the_typed_flags() {
        let words = [
            "token",
            "-n",
            "tenant-a",
            "--kubeconfig",
            "=",
            "hub",
            "--output=json",
            "p",
        ];
        assert_eq!(
            of(&words),
            Some(Wanted {
                kind: NamedKind::Access,
                typed: "p".to_owned(),
                namespace: Some("tenant-a".to_owned()),
                kubeconfig: Some("hub".to_owned()),
                context: Some("of-variable".to_owned()),
            })
        );
    }

    #[test]
    fn the_codes_follow_explain() {
        let codes = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            matching(&words, &Cli::command())
        };
        assert_eq!(codes(&["explain", "IssuerC"]), ["IssuerCollision"]);
        assert!(codes(&["explain", ""]).len() > 100);
        assert!(codes(&["explain", "IssuerCollision", ""]).is_empty());
        assert!(codes(&["lint", "Iss"]).is_empty());
    }

    #[test]
    fn no_hub_is_asked_for_other_words() {
        for words in [
            &[][..],
            &[""],
            &["tok"],
            &["token", "--out"],
            &["token", "-o", ""],
            &["token", "tenant-a/prod", ""],
            &["exec", "tenant-a/prod", "--", ""],
            &["trust", "prod", ""],
            &["lint", ""],
            &["nothing", "a"],
        ] {
            assert_eq!(of(words), None, "{words:?}");
        }
    }
}
