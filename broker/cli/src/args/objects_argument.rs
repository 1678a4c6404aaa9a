//! The flag `-f` of commands that read TargetClusters and TargetAccesses: a file with objects of
//! the hub, instead of the hub.

use std::path::{Path, PathBuf};

use clap::Args;
use keyferry_api::config::MAX_CONFIG_BYTES;
use keyferry_client::ClientError;
use keyferry_client::configuration_source::ConfigurationSource;
use keyferry_client::objects_file::ObjectsFile;

use crate::args::by_flag;
use crate::command_error::CommandError;
use crate::local_file;

/// Where the hub's objects are read, for commands that only read them.
#[derive(Args)]
pub(crate) struct ObjectsArgs {
    /// Keyferry's configuration file.
    ///
    /// Without it, and where it says `objects: CustomResources`, the objects of the hub are read.
    #[arg(long, env = "KEYFERRY_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Objects from a file, or - for standard input.
    ///
    /// The hub's TargetClusters and TargetAccesses as `kubectl get targetclusters,targetaccesses -A
    /// -o yaml` prints them, instead of the hub.
    #[arg(short, long, visible_alias = "objects", value_name = "PATH")]
    filename: Option<PathBuf>,
}

impl ObjectsArgs {
    /// Chooses the file that the flags name, else the hub.
    ///
    /// # Errors
    /// Both flags are given, or the file of `-f` cannot be used.
    pub(crate) fn source(&self) -> Result<ConfigurationSource, CommandError> {
        source(self.config.as_ref(), self.filename.as_deref())
    }
}

/// Chooses the objects of `-f`, else the file of `--config`, else the hub. A flag overrides the
/// variable of `--config`.
///
/// # Errors
/// Both flags are given, or the file of `-f` cannot be used.
pub(crate) fn source(
    config: Option<&PathBuf>,
    filename: Option<&Path>,
) -> Result<ConfigurationSource, CommandError> {
    let Some(path) = filename else {
        return Ok(ConfigurationSource::file_or_hub(config.cloned()));
    };
    if by_flag(config.map(|path| path.as_os_str()), "KEYFERRY_CONFIG") {
        return Err(CommandError::with_fix(
            "both --config and -f are given",
            "keep --config for the server's configuration file, or -f for objects of the hub as \
             kubectl get -o yaml prints them",
        ));
    }
    let bytes = local_file::read(path, "the hub's objects", MAX_CONFIG_BYTES)?;
    let file = ObjectsFile::parse_objects(path, bytes).map_err(ClientError::from)?;
    Ok(ConfigurationSource::Objects(file))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::PathBuf;

    use keyferry_client::configuration_source::ConfigurationSource;

    use super::source;

    #[test]
    fn a_file_of_objects_replaces_the_hub_and_not_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("objects.yaml");
        std::fs::write(&list, "apiVersion: v1\nkind: List\nitems: []\n").unwrap();
        let config = PathBuf::from("/keyferry.yaml");
        assert_eq!(source(None, None).unwrap(), ConfigurationSource::Hub);
        assert_eq!(
            source(Some(&config), None).unwrap(),
            ConfigurationSource::File(config.clone())
        );
        let named = source(None, Some(&list)).unwrap();
        assert!(
            matches!(named, ConfigurationSource::Objects(_)),
            "{named:?}"
        );
        let both = source(Some(&config), Some(&list)).unwrap_err();
        assert_eq!(both.problem, "both --config and -f are given");
        assert!(both.fix.is_some_and(|fix| fix.contains("keep --config")));
    }

    #[test]
    fn a_file_that_is_not_of_objects_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret.yaml");
        let refused = |text: &str| {
            std::fs::write(&path, text).unwrap();
            source(None, Some(&path)).unwrap_err()
        };
        let secret = refused("apiVersion: v1\nkind: Secret\ndata: { token: hunter2 }\n");
        assert!(secret.problem.contains("secret.yaml"), "{secret}");
        let [cause] = secret.causes.as_slice() else {
            panic!("{secret}");
        };
        assert!(
            cause.contains("line 1") && cause.contains("kubectl get targetclusters"),
            "{cause}"
        );
        assert!(!secret.to_string().contains("hunter2"), "{secret}");
        let unreadable = refused("\u{feff}a: [").to_string();
        assert!(
            unreadable.contains("the YAML cannot be read"),
            "{unreadable}"
        );
        for path in [folder.path().to_owned(), folder.path().join("none")] {
            assert!(source(None, Some(&path)).is_err());
        }
    }
}
