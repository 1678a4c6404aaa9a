//! Finds the access of a command that names none: the only TargetAccess of a namespace.

use keyferry_api::config::{ObjectSource, Overrides};
use keyferry_api::name::{AccessName, Namespace};
use keyferry_client::ClientError;
use keyferry_client::configuration_source::ConfigurationSource;
use keyferry_client::objects_of_hub::access_names;
use keyferry_hub::client::{HubAccess, HubClient};
use keyferry_platform::config_file;

use crate::command_error::CommandError;
use crate::ui;

/// The most names that an error lists.
const MAX_LISTED_NAMES: usize = 20;
const NAME_IT: &str = "name it as NAMESPACE/NAME";

/// Returns the only access of `namespace`, or else of the namespace of the hub's context. The
/// accesses are those of the file, if it has them, else those of the hub.
///
/// # Errors
/// There is none or there are several, or they cannot be read.
pub(crate) async fn find(
    namespace: Option<&str>,
    source: &ConfigurationSource,
    hub: &HubAccess,
) -> Result<AccessName, CommandError> {
    // Which hub or server is meant is a question of its own: the access can be named without both.
    let unread = |error: ClientError| {
        let reason = CommandError::from(error).problem;
        let problem = format!("no access is named, and those of the hub are unknown: {reason}");
        CommandError::with_fix(problem, NAME_IT)
    };
    let namespace = match namespace {
        Some(namespace) => namespace.to_owned(),
        None => {
            hub.config()
                .await
                .map_err(|error| unread(error.into()))?
                .default_namespace
        }
    };
    let namespace = Namespace::new(namespace)
        .map_err(|error| CommandError::with_fix(format!("the namespace {error}"), NAME_IT))?;
    let names = match in_file(source, &namespace)? {
        Some(names) => names,
        None => {
            let config = hub.config().await.map_err(|error| unread(error.into()))?;
            let client = HubClient::new(config).map_err(|error| unread(error.into()))?;
            access_names(&client, Some(&namespace))
                .await
                .map_err(unread)?
        }
    };
    let access = only(&namespace, names)?;
    ui::note(&format!("access: {access}, the only one of its namespace"));
    Ok(access)
}

/// Returns the accesses of a namespace in a file; `None` if they are on the hub.
fn in_file(
    source: &ConfigurationSource,
    namespace: &Namespace,
) -> Result<Option<Vec<AccessName>>, CommandError> {
    let all = match source {
        ConfigurationSource::Hub => return Ok(None),
        ConfigurationSource::Objects(file) => file.access_names(),
        ConfigurationSource::File(path) => {
            let file = config_file::read_config_file(path, Overrides::of_a_reader())?;
            if file.server.objects == ObjectSource::CustomResources {
                return Ok(None);
            }
            file.policy.accesses.into_keys().collect()
        }
    };
    let named = all.into_iter();
    Ok(Some(
        named
            .filter(|access| access.namespace == *namespace)
            .collect(),
    ))
}

fn only(namespace: &Namespace, names: Vec<AccessName>) -> Result<AccessName, CommandError> {
    let count = names.len();
    match <[AccessName; 1]>::try_from(names) {
        Ok([access]) => Ok(access),
        Err(_) if count == 0 => Err(CommandError::with_fix(
            format!("no access is named, and namespace {namespace} has none"),
            "name it as NAMESPACE/NAME, or give its namespace with -n",
        )),
        Err(names) => {
            let shown: Vec<&str> = names
                .iter()
                .take(MAX_LISTED_NAMES)
                .map(|access| access.name.as_str())
                .collect();
            let more = if count > MAX_LISTED_NAMES {
                ", ..."
            } else {
                ""
            };
            Err(CommandError::with_fix(
                format!(
                    "no access is named, and namespace {namespace} has {count}: {}{more}",
                    shown.join(", ")
                ),
                "name one of them",
            ))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;

    use keyferry_api::name::{AccessName, Namespace};
    use keyferry_client::configuration_source::ConfigurationSource;
    use keyferry_client::objects_file::ObjectsFile;
    use keyferry_hub::client::HubAccess;

    use super::{find, only};

    fn accesses(names: &[&str]) -> Vec<AccessName> {
        names
            .iter()
            .map(|name| AccessName::parse(&format!("tenant-a/{name}")).unwrap())
            .collect()
    }

    #[test]
    fn one_access_is_taken_and_several_are_listed() {
        let namespace = Namespace::new("tenant-a").unwrap();
        let one = only(&namespace, accesses(&["prod"])).unwrap();
        assert_eq!(one.to_string(), "tenant-a/prod");
        let none = only(&namespace, Vec::new()).unwrap_err();
        assert!(none.problem.contains("tenant-a has none"), "{none}");
        let two = only(&namespace, accesses(&["edge", "prod"])).unwrap_err();
        assert!(two.problem.ends_with("has 2: edge, prod"), "{two}");
        let many: Vec<String> = (0..30).map(|index| format!("a{index:02}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let many = only(&namespace, accesses(&many)).unwrap_err();
        assert!(many.problem.ends_with("a18, a19, ..."), "{many}");
    }

    #[tokio::test]
    async fn a_file_with_the_objects_needs_no_hub() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keyferry.yaml");
        let head = "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nhubName: hub\npublicURL: https://k\n\
            discovery: {tls: {certFile: a, keyFile: b}}\napi: {tls: {certFile: a, keyFile: b}}\n";
        let access = |namespace: &str, name: &str| {
            format!(
                "---\napiVersion: keyferry.dev/v1alpha1\nkind: TargetAccess\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
                 spec: {{targetClusterRef: {{name: prod}}, serviceAccountName: reconciler}}\n"
            )
        };
        let text = [
            head.to_owned(),
            access("tenant-a", "prod"),
            access("tenant-b", "edge"),
            access("tenant-b", "prod"),
        ];
        std::fs::write(&path, text.concat()).unwrap();
        let (hub, path) = (HubAccess::default(), ConfigurationSource::File(path));
        let found = find(Some("tenant-a"), &path, &hub).await.unwrap();
        assert_eq!(found.to_string(), "tenant-a/prod");
        let several = find(Some("tenant-b"), &path, &hub).await.unwrap_err();
        assert!(several.problem.ends_with("edge, prod"), "{several}");
        let wrong = find(Some("../a"), &path, &hub).await.unwrap_err();
        assert!(wrong.problem.starts_with("the namespace"), "{wrong}");
    }
    #[tokio::test]
    async fn a_file_of_objects_needs_no_hub() {
        let access = |namespace: &str, name: &str, more: &str| {
            format!(
                "---\napiVersion: keyferry.dev/v1alpha1\nkind: TargetAccess\nmetadata: {{name: {name}, namespace: {namespace}, \
                 uid: u-{namespace}-{name}, generation: 1, resourceVersion: \"7\", \
                 creationTimestamp: \"2026-01-01T00:00:00Z\"{more}}}\nspec: {{}}\n"
            )
        };
        let leaving = ", deletionTimestamp: \"2026-01-02T00:00:00Z\"";
        let text = [
            access("tenant-a", "prod", ""),
            access("tenant-a", "old", leaving),
            access("tenant-b", "edge", ""),
        ];
        let file = ObjectsFile::parse_objects(Path::new("-"), text.concat().into_bytes()).unwrap();
        let source = ConfigurationSource::Objects(file);
        let found = find(Some("tenant-a"), &source, &HubAccess::default()).await;
        assert_eq!(found.unwrap().to_string(), "tenant-a/prod");
    }
}
