//! Where a command without a server reads Keyferry's settings and objects: from the server's
//! configuration file, or from the objects of the hub and their statuses, which may be in a file.

use std::path::PathBuf;

use keyferry_api::config::{
    Configuration, ObjectSource, Overrides, ServerConfiguration, StoredTarget,
};
use keyferry_hub::client::HubClient;
use keyferry_platform::config_file;

use super::ClientError;
use super::object_view::TargetView;
use super::objects_file::ObjectsFile;
use super::objects_of_hub::{
    self, published_issuer, with_access, with_all_objects, with_cluster, with_target,
};
use super::stated_settings::settings_in;
use super::wanted_objects::Wanted;

/// Where the settings and the objects are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigurationSource {
    /// The server's configuration file. With `objects: CustomResources`, the objects are on the hub.
    File(PathBuf),
    /// The hub. The statuses of its TargetClusters state the settings that matter to a reader; all
    /// others have their defaults.
    Hub,
    /// Objects of the hub in a file. They mean what they mean on the hub.
    Objects(ObjectsFile),
}

impl ConfigurationSource {
    /// The file, if one is named, else the hub.
    pub fn file_or_hub(file: Option<PathBuf>) -> Self {
        file.map_or(Self::Hub, Self::File)
    }

    /// Describes the place of the objects.
    pub fn describe_place(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Hub => "the hub".to_owned(),
            Self::Objects(file) => file.path().display().to_string(),
        }
    }

    /// Reads the settings, and at least the wanted objects.
    ///
    /// `client` connects to the hub and is called only if something is there.
    ///
    /// # Errors
    /// [`ClientError`]: a file cannot be used, or the hub's objects cannot be read.
    pub async fn read_configuration<F>(
        &self,
        client: impl FnOnce() -> F,
        wanted: Wanted<'_>,
    ) -> Result<Configuration, ClientError>
    where
        F: Future<Output = Result<HubClient, ClientError>>,
    {
        let settings = match self {
            Self::File(path) => {
                let configuration = config_file::read_config_file(path, Overrides::of_a_reader())?;
                if configuration.server.objects == ObjectSource::File {
                    return Ok(configuration);
                }
                Some(configuration)
            }
            Self::Hub => None,
            Self::Objects(file) => return Ok(file.read_configuration(wanted)?),
        };
        let client = client().await?;
        let settings = match settings {
            Some(settings) => settings,
            None => settings_of_hub(&client, wanted).await?,
        };
        match wanted {
            Wanted::All => with_all_objects(settings, &client).await,
            Wanted::Access(access) => with_access(settings, &client, access).await,
            Wanted::Target(target) => with_target(settings, &client, target).await,
            Wanted::Cluster(target) => with_cluster(settings, &client, target).await,
        }
    }
}

/// Reads the server's settings from the statuses of the hub's TargetClusters, with the hub's issuer
/// if they agree on one. All other settings have their defaults.
///
/// # Errors
/// [`ClientError`]: the TargetClusters cannot be listed, or no status has the settings.
pub async fn server_of_hub(client: &HubClient) -> Result<ServerConfiguration, ClientError> {
    let targets = objects_of_hub::target_values(client).await?;
    if targets.is_empty() {
        return Err(ClientError::NoTargetClusters);
    }
    let stated = |object| settings_in(&TargetView::of(object));
    let settings = targets.iter().find_map(stated);
    let mut server = settings.ok_or(ClientError::NoSettings)?.server;
    let stored: Vec<StoredTarget> = targets
        .iter()
        .filter_map(|object| StoredTarget::read(object, &server))
        .map(|(_, target)| target)
        .collect();
    server.hub_issuer = published_issuer(stored.iter());
    Ok(server)
}

/// Reads the settings from the status of a TargetCluster that the wanted objects contain.
async fn settings_of_hub(
    client: &HubClient,
    wanted: Wanted<'_>,
) -> Result<Configuration, ClientError> {
    let targets = match wanted {
        Wanted::All => objects_of_hub::target_values(client).await?,
        Wanted::Access(access) => objects_of_hub::target_of_access(client, access)
            .await?
            .into_iter()
            .collect(),
        Wanted::Target(target) | Wanted::Cluster(target) => {
            objects_of_hub::target_value(client, target)
                .await?
                .into_iter()
                .collect()
        }
    };
    targets
        .iter()
        .find_map(|object| settings_in(&TargetView::of(object)))
        .ok_or_else(|| match wanted {
            Wanted::All if targets.is_empty() => ClientError::NoTargetClusters,
            Wanted::Target(target) | Wanted::Cluster(target) if targets.is_empty() => {
                ClientError::NoSuchTarget(target.to_string())
            }
            // Absent and without a target look the same to the caller of an access.
            Wanted::Access(access) if targets.is_empty() => {
                ClientError::NoSuchAccess(access.to_string())
            }
            _ => ClientError::NoSettings,
        })
}
