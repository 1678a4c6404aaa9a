//! `keyferry proxy-role`: prints the role by which a client certificate reads one port of one Pod
//! through the hub's apiserver.

use std::process::ExitCode;

use clap::Args;
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_api::service_account::ServiceAccount;
use keyferry_core::client_certificate::user_of;
use serde_json::{Value, json};

use crate::args::output_format::ManifestFormatArgs;
use crate::command_error::CommandError;
use crate::{role_manifest, ui};

#[derive(Args)]
pub(super) struct ProxyRoleArgs {
    /// The name of the Pod, as in its path below the apiserver.
    #[arg(value_name = "POD")]
    pod: String,
    /// Namespace on the hub.
    ///
    /// The Pod's.
    #[arg(short, long, value_name = "NAME")]
    namespace: String,
    /// The Pod's port: its number or its name.
    #[arg(long, value_name = "PORT")]
    port: String,
    /// The scheme in the path: http or https.
    #[arg(long, value_name = "SCHEME", default_value = "http", value_parser = ["http", "https"])]
    scheme: String,
    /// The ServiceAccount that the certificate is for.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    account: String,
    #[command(flatten)]
    _format: ManifestFormatArgs,
}

pub(super) fn run(args: &ProxyRoleArgs) -> ExitCode {
    match manifest(args) {
        Ok(text) => ui::finish(&text),
        Err(error) => ui::command_failed(&error),
    }
}

fn manifest(args: &ProxyRoleArgs) -> Result<String, CommandError> {
    let wrong = |what: &str, problem: String| {
        CommandError::with_fix(
            format!("{what}: {problem}"),
            "keyferry proxy-role --help shows the form of each",
        )
    };
    let pod = ObjectName::new(args.pod.as_str()).map_err(|e| wrong("POD", e.to_string()))?;
    let namespace =
        Namespace::new(args.namespace.as_str()).map_err(|e| wrong("--namespace", e.to_string()))?;
    let account = args
        .account
        .split_once('/')
        .and_then(|(namespace, name)| {
            Some(ServiceAccount {
                namespace: Namespace::new(namespace).ok()?,
                name: ObjectName::new(name).ok()?,
            })
        })
        .ok_or_else(|| wrong("--account", "is not NAMESPACE/NAME".to_owned()))?;
    if !is_port(&args.port) {
        let problem = "is neither a number from 1 to 65535 nor the name of a port".to_owned();
        return Err(wrong("--port", problem));
    }
    let user = user_of(&account);
    let objects = objects(&pod, &namespace, &args.port, &args.scheme, &user);
    Ok(role_manifest::documents(objects))
}

/// A port as a Pod has it: its number, or its name (RFC 6335 section 5.1).
fn is_port(text: &str) -> bool {
    let name = || {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        text.len() <= 15
            && text.chars().all(allowed)
            && text.contains(|c: char| c.is_ascii_lowercase())
            && !text.starts_with('-')
            && !text.ends_with('-')
            && !text.contains("--")
    };
    text.parse::<u16>().map_or_else(|_| name(), |port| port > 0)
}

/// The apiserver authorises the name as the path has it: `[https:]<pod>:<port>` (kubernetes
/// pkg/registry/core/pod/strategy.go `ResourceLocation`), so a role for one port does not reach
/// another.
fn objects(
    pod: &ObjectName,
    namespace: &Namespace,
    port: &str,
    scheme: &str,
    user: &str,
) -> [Value; 2] {
    let prefix = if scheme == "https" { "https:" } else { "" };
    let name = format!("keyferry-proxy-{pod}-{port}");
    let metadata = json!({ "name": name, "namespace": namespace });
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": metadata,
        "rules": [{
            "apiGroups": [""], "resources": ["pods/proxy"],
            "resourceNames": [format!("{prefix}{pod}:{port}")], "verbs": ["get"],
        }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }],
    });
    [role, binding]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use insta::assert_snapshot;

    use super::{ProxyRoleArgs, is_port, manifest};

    fn args(port: &str, scheme: &str, account: &str) -> ProxyRoleArgs {
        ProxyRoleArgs {
            pod: "charts-0".to_owned(),
            namespace: "charts".to_owned(),
            port: port.to_owned(),
            scheme: scheme.to_owned(),
            account: account.to_owned(),
            _format: Default::default(),
        }
    }

    #[test]
    fn the_role_reaches_one_port_of_one_pod() {
        let text = manifest(&args("8080", "http", "tenant-a/reader")).unwrap();
        assert_snapshot!("by-the-number-of-a-port", text);
        let text = manifest(&args("web", "https", "tenant-a/reader")).unwrap();
        assert_snapshot!("by-the-name-of-a-port", text);
    }

    #[test]
    fn what_no_pod_or_account_has_is_refused() {
        assert!(manifest(&args("8080", "http", "reader")).is_err());
        assert!(manifest(&args("8080", "http", "a/b/c")).is_err());
        for port in [
            "0",
            "65536",
            "",
            "*",
            "Web",
            "-a",
            "a--b",
            "a:b",
            "abcdefghijklmnop",
        ] {
            assert!(!is_port(port), "{port}");
            assert!(manifest(&args(port, "http", "tenant-a/reader")).is_err());
        }
        assert!(is_port("1") && is_port("65535") && is_port("web-2"));
    }
}
