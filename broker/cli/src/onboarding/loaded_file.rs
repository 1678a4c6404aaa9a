//! Whether a target already has an AuthenticationConfiguration, or `--oidc-*` flags: then a file
//! with the hub's entry alone would end other logins there.

use keyferry_api::foreign_text::one_line;
use keyferry_client::doctor::target_metrics::{active_configuration, has_reloaded};
use keyferry_client::lenient::{or_default, readable_items};
use keyferry_hub::client::HubClient;
use keyferry_kube_authn::Minor;
use keyferry_kube_authn::prediction::hash_of;
use serde::Deserialize;

/// The apiserver's Pods, as kubeadm and what is built on it label them.
const PODS: &str = "/api/v1/namespaces/kube-system/pods?labelSelector=component%3Dkube-apiserver";
/// The longest flag that is shown.
const MAX_FLAG_CHARS: usize = 300;
/// The first release whose metrics show the hash of the loaded file.
const SHOWS_HASH: Minor = Minor::V1_34;

/// What a target's apiserver reads logins from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LoadedFile {
    /// It has loaded a file with one of these hashes.
    Hashes(Vec<String>),
    /// It has a file; which one is unknown.
    Unread(String),
    /// It has these `--oidc-*` flags instead of a file.
    OidcFlags(Vec<String>),
    /// It has neither.
    Absent,
    /// The user may not see it, or the target does not show it.
    Undetermined(String),
}

/// What is done with the file that this run would show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileAdvice {
    /// It is shown for a target that has none.
    First,
    /// It is shown, and replaces a file of which nothing is lost.
    Replace,
    /// The target has loaded exactly this file.
    InPlace,
    /// It is shown with a warning, because it is unknown what it would replace.
    Uncertain(String),
    /// It is not shown, because it would replace what this run has not seen.
    Withheld(String),
}

/// Asks the target's apiserver, with the user of the kubeconfig.
pub(crate) async fn read(client: &HubClient, minor: Option<Minor>) -> LoadedFile {
    let metrics = client.get("/metrics", "text/plain").await.ok();
    let metrics = metrics.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let pods: Option<PodList> = client.get_object(PODS, "list of Pods").await.ok();
    let pods = pods.map(|list| list.items);
    judge(metrics.as_deref(), pods.as_deref(), minor)
}

/// A list of Pods, reduced to the command lines of their containers.
#[derive(Deserialize)]
struct PodList {
    #[serde(default, deserialize_with = "readable_items")]
    items: Vec<Pod>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Pod {
    #[serde(deserialize_with = "or_default")]
    spec: PodSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodSpec {
    #[serde(deserialize_with = "readable_items")]
    containers: Vec<Container>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Container {
    #[serde(deserialize_with = "readable_items")]
    command: Vec<String>,
    #[serde(deserialize_with = "readable_items")]
    args: Vec<String>,
}

fn judge(metrics: Option<&str>, pods: Option<&[Pod]>, minor: Option<Minor>) -> LoadedFile {
    let hashes = metrics.map(|text| active_configuration(text).hashes);
    if let Some(hashes) = hashes.clone().filter(|hashes| !hashes.is_empty()) {
        return LoadedFile::Hashes(hashes);
    }
    let flags: Vec<String> = pods.into_iter().flatten().flat_map(flags_of).collect();
    let with = |name: &str| -> Vec<String> {
        let mut found: Vec<String> = flags
            .iter()
            .filter(|flag| flag.starts_with(name))
            .cloned()
            .collect();
        found.sort();
        found.dedup();
        found
    };
    if let Some(flag) = with("--authentication-config=").first() {
        return LoadedFile::Unread(format!("its Pods in kube-system have {flag}"));
    }
    let oidc = with("--oidc-");
    if !oidc.is_empty() {
        return LoadedFile::OidcFlags(oidc);
    }
    if metrics.is_some_and(has_reloaded) {
        return LoadedFile::Unread("its metrics count reloads of one".to_owned());
    }
    // A Pod that shows its flags shows that it has neither.
    if !flags.is_empty() {
        return LoadedFile::Absent;
    }
    let shows_hash = minor.is_some_and(|minor| minor >= SHOWS_HASH);
    LoadedFile::Undetermined(match hashes {
        Some(_) if shows_hash => "its metrics show no file, but its flags are not readable, so it \
                                  may have --oidc-* flags"
            .to_owned(),
        Some(_) => {
            "before 1.34 its metrics do not show it, and its flags are not readable".to_owned()
        }
        None => "its metrics and its flags are not readable".to_owned(),
    })
}

fn flags_of(pod: &Pod) -> Vec<String> {
    let containers = pod.spec.containers.iter();
    containers
        .flat_map(|container| container.command.iter().chain(&container.args))
        .filter(|word| word.starts_with("--"))
        // The target wrote it: it must not print lines of its own.
        .map(|word| one_line(word, MAX_FLAG_CHARS))
        .collect()
}

impl LoadedFile {
    /// Decides about a file to show. `before` is the file that this run would have shown before it
    /// changed the TargetCluster, and `given` the one of `--merge`.
    pub(crate) fn advise(
        &self,
        file: &str,
        before: Option<&str>,
        given: Option<&[u8]>,
    ) -> FileAdvice {
        match self {
            Self::Absent => FileAdvice::First,
            Self::Hashes(hashes) => {
                let loaded = |bytes: &[u8]| hashes.contains(&hash_of(bytes));
                if loaded(file.as_bytes()) {
                    return FileAdvice::InPlace;
                }
                let is_known = before.is_some_and(|before| loaded(before.as_bytes()));
                match given {
                    _ if is_known => FileAdvice::Replace,
                    Some(given) if loaded(given) => FileAdvice::Replace,
                    Some(given) => FileAdvice::Withheld(format!(
                        "the target has loaded {}, and the file of --merge has the hash {}",
                        hashes.join(", "),
                        hash_of(given)
                    )),
                    None => FileAdvice::Withheld(format!(
                        "the target has loaded another AuthenticationConfiguration, {}",
                        hashes.join(", ")
                    )),
                }
            }
            Self::Unread(_) if given.is_some() => FileAdvice::Replace,
            Self::Unread(how) => FileAdvice::Withheld(format!(
                "the target has an AuthenticationConfiguration: {how}"
            )),
            Self::OidcFlags(flags) => FileAdvice::Withheld(format!(
                "the target's apiserver has {}, and does not start with a file beside them; write a \
                 file with both by keyferry trust --from-oidc-flags",
                flags.join(" ")
            )),
            Self::Undetermined(_) if given.is_some() => FileAdvice::Replace,
            Self::Undetermined(why) => FileAdvice::Uncertain(why.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const METRIC: &str = "apiserver_authentication_config_controller_last_config_info";

    fn pod(flags: &[&str]) -> Vec<Pod> {
        let command: Vec<&str> = ["kube-apiserver"].iter().chain(flags).copied().collect();
        let pod = json!({ "spec": { "containers": [{ "command": command }] } });
        vec![Pod::deserialize(pod).unwrap_or_default()]
    }

    #[test]
    fn a_file_in_use_is_found_by_its_hash_or_by_the_flags() {
        let hash = hash_of(b"a file");
        let metrics = format!("{METRIC}{{apiserver_id_hash=\"x\",hash=\"{hash}\"}} 1\n");
        let newest = Some(Minor::V1_37);
        assert_eq!(
            judge(Some(&metrics), None, newest),
            LoadedFile::Hashes(vec![hash])
        );
        let config = pod(&["--authentication-config=/etc/a.yaml"]);
        assert!(matches!(
            judge(None, Some(&config), newest),
            LoadedFile::Unread(how) if how.contains("/etc/a.yaml")
        ));
        let oidc = pod(&[
            "--oidc-issuer-url=https://idp",
            "--oidc-client-id=k8s",
            "--v=2",
        ]);
        assert_eq!(
            judge(Some(""), Some(&oidc), newest),
            LoadedFile::OidcFlags(vec![
                "--oidc-client-id=k8s".to_owned(),
                "--oidc-issuer-url=https://idp".to_owned()
            ])
        );
        let plain = pod(&["--v=2"]);
        assert_eq!(judge(Some(""), Some(&plain), newest), LoadedFile::Absent);
        let reloads = "apiserver_authentication_config_controller_automatic_reloads_total{status=\"success\"} 1\n";
        assert!(matches!(
            judge(Some(reloads), None, Some(Minor::V1_33)),
            LoadedFile::Unread(_)
        ));
        // No Pod and no metric: nothing is known, and nothing is claimed.
        for (metrics, minor) in [
            (None, newest),
            (Some(""), newest),
            (Some(""), Some(Minor::V1_33)),
        ] {
            assert!(matches!(
                judge(metrics, Some(&[]), minor),
                LoadedFile::Undetermined(_)
            ));
        }
    }

    #[test]
    fn a_file_that_this_run_has_not_seen_is_never_replaced() {
        let hashes = |text: &str| LoadedFile::Hashes(vec![hash_of(text.as_bytes())]);
        let advice = |loaded: &LoadedFile, before, given: Option<&str>| {
            loaded.advise("new", before, given.map(str::as_bytes))
        };
        assert_eq!(advice(&hashes("new"), None, None), FileAdvice::InPlace);
        assert_eq!(
            advice(&hashes("old"), Some("old"), None),
            FileAdvice::Replace
        );
        assert_eq!(
            advice(&hashes("old"), None, Some("old")),
            FileAdvice::Replace
        );
        let company = hashes("company");
        for given in [None, Some("another")] {
            assert!(matches!(
                advice(&company, Some("old"), given),
                FileAdvice::Withheld(_)
            ));
        }
        let unread = LoadedFile::Unread(String::new());
        assert!(matches!(
            advice(&unread, None, None),
            FileAdvice::Withheld(_)
        ));
        assert_eq!(advice(&unread, None, Some("company")), FileAdvice::Replace);
        let flags = LoadedFile::OidcFlags(vec!["--oidc-issuer-url=https://idp".to_owned()]);
        assert!(matches!(
            advice(&flags, None, Some("x")),
            FileAdvice::Withheld(_)
        ));
        let unknown = LoadedFile::Undetermined(String::new());
        assert!(matches!(
            advice(&unknown, None, None),
            FileAdvice::Uncertain(_)
        ));
        assert_eq!(advice(&LoadedFile::Absent, None, None), FileAdvice::First);
    }
}
