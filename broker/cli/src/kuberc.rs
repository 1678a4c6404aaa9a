//! kubectl's own rules for exec plugins (KEP-3104): its file `kuberc` may forbid them, or name those
//! that kubectl runs. The rules are those of `ValidatePluginPolicy` and `checkAllowlistLocked` in
//! client-go's `plugin/pkg/client/auth/exec/exec.go`, as of 1.36 and 1.37.

use std::fmt;
use std::path::{Path, PathBuf};

use keyferry_platform::regular_file;
use serde::Deserialize;
use serde_json::Value;

/// What to do about a kuberc that refuses the plugin.
pub(crate) const FIX: &str = "give credentialPluginAllowlist there the entry that keyferry \
    kubeconfig --exec prints";

/// The largest file that is read.
const MAX_BYTES: u64 = 256 * 1024;
const GROUP: &str = "kubectl.config.k8s.io/";
/// The first version of the format cannot state rules for plugins.
const WITHOUT_RULES: &str = "v1alpha1";

/// Why kubectl would not run the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No plugin is allowed.
    DenyAll,
    /// The plugin is not in the list.
    NotListed,
    /// kubectl refuses the file, and with it every command.
    Invalid(&'static str),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DenyAll => f.write_str("credentialPluginPolicy is DenyAll"),
            Self::NotListed => f.write_str("credentialPluginAllowlist does not name the plugin"),
            Self::Invalid(why) => write!(f, "kubectl refuses the file: {why}"),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Preference {
    #[serde(default)]
    credential_plugin_policy: Option<String>,
    #[serde(default)]
    credential_plugin_allowlist: Option<Vec<Entry>>,
}

#[derive(Deserialize)]
struct Entry {
    /// The old spelling of `command`.
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    command: Option<String>,
}

/// Returns the lines of a `kuberc` with an allow-list that names the plugin.
pub(super) fn stanza(program: &str) -> String {
    format!(
        "credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist:\n- command: {}",
        Value::from(program)
    )
}

/// Describes why kubectl would not run `keyferry` as exec plugin, by the user's `kuberc`. `None` if
/// kubectl would, or if there is no such file that can be read.
pub(super) fn note() -> Option<String> {
    let variable = std::env::var_os("KUBERC").filter(|value| !value.is_empty());
    let path = match variable {
        Some(value) if value == "off" => return None,
        Some(value) => PathBuf::from(value),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".kube/kuberc"),
    };
    let bytes = regular_file::read_regular_file(&path, MAX_BYTES).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let own = std::env::current_exe().ok();
    let own = own.as_deref().and_then(Path::to_str);
    let found = refusal(&text, "keyferry", look_path)?;
    // A kubeconfig may also run the program by its path.
    if found == Refusal::NotListed
        && own.is_some_and(|own| refusal(&text, own, look_path).is_none())
    {
        return None;
    }
    Some(format!(
        "note: kubectl would refuse the exec plugin keyferry: {found} in {}",
        path.display()
    ))
}

/// Decides whether kubectl refuses to run `program`. `look_path` finds a program as a shell does.
fn refusal(
    text: &str,
    program: &str,
    look_path: impl Fn(&str) -> Option<PathBuf>,
) -> Option<Refusal> {
    let Preference {
        credential_plugin_policy: policy,
        credential_plugin_allowlist: list,
    } = preference(text)?;
    match (policy.as_deref().unwrap_or_default(), list) {
        ("" | "AllowAll" | "DenyAll", Some(_)) => Some(Refusal::Invalid(
            "it has credentialPluginAllowlist without credentialPluginPolicy: Allowlist",
        )),
        ("" | "AllowAll", None) => None,
        ("DenyAll", None) => Some(Refusal::DenyAll),
        ("Allowlist", list) => {
            let commands: Option<Vec<String>> = list
                .unwrap_or_default()
                .into_iter()
                .map(Entry::program)
                .collect();
            match commands {
                Some(commands) if !commands.is_empty() => {
                    (!is_listed(&commands, program, look_path)).then_some(Refusal::NotListed)
                }
                _ => Some(Refusal::Invalid(
                    "credentialPluginAllowlist is empty, or has an entry without a command",
                )),
            }
        }
        _ => Some(Refusal::Invalid("its credentialPluginPolicy is unknown")),
    }
}

/// Returns the first document that kubectl uses.
fn preference(text: &str) -> Option<Preference> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_events: 50_000, max_depth: 32, max_documents: 64, max_aliases: 0, max_anchors: 0 },
    };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options).ok()?;
    let used = documents.into_iter().find(|document| {
        let member = |name: &str| document.get(name).and_then(Value::as_str);
        member("kind") == Some("Preference")
            && member("apiVersion").is_some_and(|version| version.starts_with(GROUP))
    })?;
    if used.get("apiVersion")?.as_str()?.strip_prefix(GROUP) == Some(WITHOUT_RULES) {
        return None;
    }
    serde_json::from_value(used).ok()
}

impl Entry {
    /// Returns the one program of the entry; `None` if it has none, or two.
    fn program(self) -> Option<String> {
        let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
        match (filled(self.name), filled(self.command)) {
            (Some(name), Some(command)) if name != command => None,
            (name, command) => command.or(name),
        }
    }
}

fn is_listed(
    commands: &[String],
    program: &str,
    look_path: impl Fn(&str) -> Option<PathBuf>,
) -> bool {
    let found = look_path(program);
    commands.iter().any(|command| {
        command == program
            || found.as_deref().is_some_and(|found| {
                Path::new(command) == found
                    || Path::new(command).file_name() == found.file_name()
                        && look_path(command).as_deref() == Some(found)
            })
    })
}

/// Finds a program in `PATH`, or takes the path that is given.
fn look_path(program: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;

    let is_program = |path: &PathBuf| {
        std::fs::metadata(path)
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(is_program);
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(is_program)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{Refusal, refusal, stanza};

    const HEAD: &str = "apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\n";

    /// Here `keyferry` is `/usr/bin/keyferry`.
    fn look_path(program: &str) -> Option<PathBuf> {
        match program {
            "keyferry" | "/usr/bin/keyferry" => Some("/usr/bin/keyferry".into()),
            "/opt/keyferry" => Some("/opt/keyferry".into()),
            _ => None,
        }
    }

    fn judged(rest: &str) -> Option<Refusal> {
        refusal(&format!("{HEAD}{rest}"), "keyferry", look_path)
    }

    fn listed(entry: &str) -> Option<Refusal> {
        judged(&format!(
            "credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist:\n- {entry}\n"
        ))
    }

    #[test]
    fn the_rules_are_kubectls() {
        assert_eq!(judged("aliases: []\n"), None);
        assert_eq!(judged("credentialPluginPolicy: \"\"\n"), None);
        assert_eq!(judged("credentialPluginPolicy: AllowAll\n"), None);
        assert_eq!(
            judged("credentialPluginPolicy: DenyAll\n"),
            Some(Refusal::DenyAll)
        );
        for entry in [
            "command: keyferry",
            "name: keyferry",
            "command: /usr/bin/keyferry",
            "{ name: keyferry, command: keyferry }",
        ] {
            assert_eq!(listed(entry), None, "{entry}");
        }
        for entry in [
            "command: kubelogin",
            "command: /opt/keyferry",
            "command: Keyferry",
        ] {
            assert_eq!(listed(entry), Some(Refusal::NotListed), "{entry}");
        }
        for invalid in [
            "credentialPluginPolicy: Allowlist\n",
            "credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist: []\n",
            "credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist: [{}]\n",
            "credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist: [{ name: a, command: keyferry }]\n",
            "credentialPluginPolicy: DenyAll\ncredentialPluginAllowlist: [{ command: keyferry }]\n",
            "credentialPluginAllowlist: [{ command: keyferry }]\n",
            "credentialPluginPolicy: Sometimes\n",
        ] {
            assert!(
                matches!(judged(invalid), Some(Refusal::Invalid(_))),
                "{invalid}"
            );
        }
    }

    #[test]
    fn the_printed_stanza_allows_the_plugin() {
        assert_eq!(judged(&stanza("keyferry")), None);
        let text = format!("{HEAD}{}", stanza("/opt/keyferry"));
        assert_eq!(refusal(&text, "/opt/keyferry", look_path), None);
        assert_eq!(judged(&stanza("a: b")), Some(Refusal::NotListed));
    }

    #[test]
    fn other_files_say_nothing() {
        let denies = "credentialPluginPolicy: DenyAll\n";
        for text in [
            String::new(),
            "{".to_owned(),
            "[1]".to_owned(),
            denies.to_owned(),
            format!("apiVersion: kubectl.config.k8s.io/v1alpha1\nkind: Preference\n{denies}"),
            format!("apiVersion: v1\nkind: Preference\n{denies}"),
            format!("{HEAD}aliases: &a [*a]\n{denies}"),
            "a: ".repeat(100_000),
        ] {
            assert_eq!(refusal(&text, "keyferry", look_path), None, "{text:.60}");
        }
        let second = format!("apiVersion: v1\nkind: Config\n---\n{HEAD}{denies}");
        assert_eq!(
            refusal(&second, "keyferry", look_path),
            Some(Refusal::DenyAll)
        );
    }
}
