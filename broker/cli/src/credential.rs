//! `keyferry credential`: the exec plugin of kubectl and client-go.
//!
//! With a cached token, a call reads a few files and prints. Network clients are created only when
//! a token must be fetched.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use keyferry_api::name::AccessName;
use keyferry_client::caller_token;
use keyferry_client::ci_token::CiTokenSource;
use keyferry_client::credential_cache::{CacheKey, CachedToken, CredentialCache};
use keyferry_client::plugin_folders::PluginFolders;
use keyferry_client::server::ClusterToken;
use keyferry_core::exec_credential::{self, EXEC_INFO, ExecInfo, NamedByCluster};
use keyferry_core::public_cluster::ClaimedCluster;
use keyferry_hub::client::ProxyVariables;
use keyferry_keys::jwt::UnverifiedJwt;
use keyferry_platform::clock::{Clock, SystemClock};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::Value;

use crate::args::access::{AccessNameArgs, ServerArgs};
use crate::args::client_config::{Reach, home_folder};
use crate::command_error::CommandError;
use crate::{local_file, ui};

/// The file to write where no argument says what would be in it.
const EXAMPLE_FILE: &str = "\
apiVersion: config.keyferry.dev/v1alpha1
kind: ClientConfiguration
server: https://keyferry.example.com
certificateAuthority: ca.crt
tokenFile: /var/run/secrets/keyferry.dev/token
";
const MAX_CA_BYTES: usize = 1 << 20;

/// The help of the access's name: the client that runs the plugin may give it.
const ACCESS: &str = "The TargetAccess, as NAME with -n, or as NAMESPACE/NAME [default: \
    clusterName of the cluster's exec extension]";

/// The help of the namespace: the plugin reads no context of the hub for it.
const NAMESPACE: &str = "Namespace on the hub";

#[derive(Args)]
#[command(mut_arg("access", |access| access.help(ACCESS).long_help(ACCESS)))]
#[command(mut_arg("namespace", |namespace| namespace.help(NAMESPACE).long_help(NAMESPACE)))]
pub(super) struct CredentialArgs {
    #[command(flatten)]
    access: AccessNameArgs,
    #[command(flatten)]
    server: ServerArgs,
    /// Where tokens are kept between calls [default: $XDG_CACHE_HOME/keyferry/credentials]
    ///
    /// It has no effect if client.yaml has cacheDir, githubOIDC or tokenEnv.
    #[arg(
        long,
        env = "KEYFERRY_CACHE_DIR",
        value_name = "DIR",
        hide_short_help = true
    )]
    cache_dir: Option<PathBuf>,
}

pub(super) fn run(args: &CredentialArgs) -> ExitCode {
    let clock = SystemClock::start();
    let answered = obtain_credential(args, &clock);
    match answered {
        Ok(answer) => ui::finish(answer.expose_secret()),
        Err(error) => ui::command_failed(&error),
    }
}

fn obtain_credential(
    args: &CredentialArgs,
    clock: &SystemClock,
) -> Result<secrecy::SecretString, CommandError> {
    let argument = args.access.name()?;
    let exec_info = std::env::var_os(EXEC_INFO);
    let exec_info = ExecInfo::read(
        exec_info
            .as_deref()
            .map(std::os::unix::ffi::OsStrExt::as_bytes),
    );
    let exec_info = exec_info.map_err(|error| {
        CommandError::with_fix(
            error.to_string(),
            "kubectl and client-go set it; see docs/guides/tenant.md",
        )
    })?;
    let reach = reach(&args.server)?;
    if exec_info.cluster.is_none() && !reach.allow_unpinned_server {
        return Err(CommandError::with_fix(
            format!("{EXEC_INFO} names no cluster, so the token could go to any server"),
            "write provideClusterInfo: true into the exec stanza; for a client that cannot, \
             allowUnpinnedServer into your own client file",
        ));
    }
    let access = match argument {
        Some(access) => access,
        None => named_by_cluster(&exec_info.named, &reach)?,
    };
    let token = through_cache(args, &access, &reach, exec_info.cluster.as_ref(), clock)?;
    let answer =
        exec_credential::render_credential(exec_info.version, &token.token, token.expiration);
    answer.map_err(|error| CommandError::with_fix(error.to_string(), "run the command again"))
}

/// Returns the server and the caller of the user's own file. Without one, nothing is sent, whatever
/// the arguments say: their author may be someone who wants the caller's token.
fn reach(flags: &ServerArgs) -> Result<Reach, CommandError> {
    let folders = PluginFolders::of_this_user();
    let Some(mut reach) = flags.reach_of_plugin(&folders)? else {
        return Err(no_client_file(flags, &folders));
    };
    let caller = &mut reach.caller;
    // The client that runs the plugin may have the target's kubeconfig in KUBECONFIG, whose user is
    // this plugin again.
    caller.hub.search.clear();
    // Its author also sets the plugin's variables, and must not see where the hub is.
    caller.hub.proxy = ProxyVariables::default();
    let named = caller.token_file.is_some() || caller.ci.is_some();
    if caller.service_account.is_some() && caller.hub.kubeconfig.is_none() && !named {
        return Err(CommandError::with_fix(
            "the client configuration names a serviceAccount and no kubeconfig of the hub; the \
             exec plugin does not take the hub from the Pod's variables, which a stanza can set",
            "write kubeconfig into the file, or tokenFile with a projected token",
        ));
    }
    Ok(reach)
}

/// Says which file to write. It has the values of the arguments, for the user to judge.
fn no_client_file(flags: &ServerArgs, folders: &PluginFolders) -> CommandError {
    let error = CommandError::with_fix(
        format!(
            "the exec plugin takes the server and the caller only from your own file, and there \
             is no client.yaml in {folders}"
        ),
        "write this into client.yaml there, if it is the Keyferry server that you trust",
    );
    let named = flags.reach_by_flags().ok().flatten();
    match named.map(|reach| reach.client_file()) {
        Some(Ok(text)) => error.with_file(text),
        // The arguments name no server, or a caller that no file can name.
        Some(Err(_)) | None => error.with_file(EXAMPLE_FILE.to_owned()),
    }
}

/// Returns the access that the cluster entry names. The author of the entry chooses among the
/// caller's own accesses, and each token is only for its access's own target. So this is refused
/// where the target server may be unnamed.
fn named_by_cluster(named: &NamedByCluster, reach: &Reach) -> Result<AccessName, CommandError> {
    let fix =
        "write the access into the exec stanza's arguments: keyferry credential NAMESPACE/NAME";
    match named {
        NamedByCluster::Access(_) if reach.allow_unpinned_server => Err(CommandError::with_fix(
            "with allowUnpinnedServer the access is not taken from the cluster's config",
            fix,
        )),
        NamedByCluster::Access(access) => Ok(access.clone()),
        NamedByCluster::Nothing => Err(CommandError::with_fix(
            "no access is named, neither by an argument nor by clusterName of the cluster's config",
            fix,
        )),
        NamedByCluster::Unreadable => Err(CommandError::with_fix(
            "clusterName of the cluster's config is no <namespace>/<name>",
            "a ClusterProfile that Keyferry writes has it",
        )),
    }
}

/// Returns the folder of the cache; `None` for no cache.
///
/// The next job on a CI runner may have the same user, and needs only to read the file. The author
/// of a stanza is not the owner of the runner, so neither an argument nor a variable puts the token
/// of a job onto its disk: only the user's own file does.
fn cache_folder(args: &CredentialArgs, reach: &Reach) -> Option<PathBuf> {
    let in_file = reach.cache_dir.clone();
    let is_job = reach.caller.ci.is_some();
    if args.cache_dir.is_some() && in_file.is_none() && is_job {
        ui::note_with_fix(
            "keyferry: --cache-dir has no effect: no token of a CI job is kept on the disk",
            "remove it, or write cacheDir into your own client.yaml",
        );
    }
    if in_file.is_some() || is_job {
        return in_file;
    }
    let default = || home_folder("XDG_CACHE_HOME", ".cache").map(|it| it.join("credentials"));
    let folder = args.cache_dir.clone().or_else(default);
    if folder.is_none() {
        ui::note("keyferry: no cache is used: neither --cache-dir nor HOME is set");
    }
    folder
}

/// Returns a token from the cache, or fetches one. One process holds the lock and fetches; the
/// others wait and then read its result.
fn through_cache(
    args: &CredentialArgs,
    access: &AccessName,
    reach: &Reach,
    cluster: Option<&ClaimedCluster>,
    clock: &SystemClock,
) -> Result<CachedToken, CommandError> {
    let Some(folder) = cache_folder(args, reach) else {
        return fetch(access, reach, cluster, clock);
    };
    let cache = match CredentialCache::open(&folder) {
        Ok(cache) => cache,
        Err(error) => {
            ui::note(&format!("keyferry: {error}"));
            return fetch(access, reach, cluster, clock);
        }
    };
    let key = key(access, reach, cluster);
    if let Some(token) = cache.get_token(&key, clock.now().wall) {
        return Ok(token);
    }
    let lock = cache.lock_entry(&key);
    match &lock {
        Some(_) => {
            if let Some(token) = cache.get_token(&key, clock.now().wall) {
                return Ok(token);
            }
        }
        None => {
            ui::note("keyferry: another process holds the cache's lock; this one gets a new token")
        }
    }
    let token = fetch(access, reach, cluster, clock)?;
    if let Err(error) = cache.put_token(&key, &token, clock.now().wall) {
        ui::note(&format!("keyferry: {error}"));
    }
    Ok(token)
}

/// Derives the cache key from everything that determines the token.
fn key(access: &AccessName, reach: &Reach, cluster: Option<&ClaimedCluster>) -> CacheKey {
    let path = |path: Option<&std::path::Path>| {
        path.map(|path| path.as_os_str().as_encoded_bytes().to_vec())
    };
    let text = |text: Option<&str>| text.map(|text| text.as_bytes().to_vec());
    let authority = reach.server.certificate_authority.as_deref();
    let pair = reach.caller.client_certificate.as_ref();
    let certificate = pair.map(|pair| pair.certificate.as_path());
    let claimed = |part: fn(&ClaimedCluster) -> &str| {
        cluster.map(|cluster| part(cluster).as_bytes().to_vec())
    };
    let ci = reach.caller.ci.as_ref();
    // A runner may run jobs of several projects under one user.
    let job = ci.and_then(CiTokenSource::job_id);
    let parts = [
        ci.map(|source| format!("{source:?}").into_bytes()),
        job.map(|job| job.expose_secret().as_bytes().to_vec()),
        text(Some(&access.to_string())),
        text(Some(&reach.server.url)),
        path(authority),
        authority.and_then(|file| local_file::read(file, "CA certificates", MAX_CA_BYTES).ok()),
        path(reach.token_file()),
        reach.token_file().and_then(identity),
        // The certificate alone: the key is not read for this.
        path(certificate),
        certificate.and_then(|file| local_file::read(file, "certificate", MAX_CA_BYTES).ok()),
        text(
            reach
                .caller
                .service_account
                .as_ref()
                .map(|name| name.as_str()),
        ),
        text(
            reach
                .caller
                .audience
                .as_ref()
                .map(|audience| audience.as_str()),
        ),
        path(reach.caller.hub.kubeconfig.as_deref()),
        text(reach.caller.hub.context.as_deref()),
        claimed(|cluster| &cluster.server),
        claimed(|cluster| &cluster.tls_server_name),
        claimed(|cluster| &cluster.certificate_authority_data),
        claimed(|cluster| &cluster.proxy_url),
        claimed(|cluster| {
            if cluster.insecure_skip_tls_verify {
                "insecure"
            } else {
                ""
            }
        }),
        Some(rustix::process::geteuid().as_raw().to_be_bytes().to_vec()),
    ];
    CacheKey::of_parts(&parts.each_ref().map(Option::as_deref))
}

/// The claim `kubernetes.io` of a token of a hub, reduced to its ServiceAccount.
#[derive(Deserialize)]
struct HubClaims {
    serviceaccount: ClaimedAccount,
}

#[derive(Deserialize)]
struct ClaimedAccount {
    /// As it was written, because it is only compared.
    uid: Option<Value>,
}

/// Returns the caller that a token file claims. The same file may later contain another caller's
/// token, as in the jobs of one runner.
fn identity(file: &std::path::Path) -> Option<Vec<u8>> {
    let token = caller_token::read_token_file(file).ok()?;
    let token = UnverifiedJwt::parse(token.expose_secret()).ok()?;
    let claims = token.claims();
    let own = claims.get("kubernetes.io").map(HubClaims::deserialize);
    let uid = own.and_then(|own| own.ok()?.serviceaccount.uid);
    let identity = [claims.get("iss").cloned(), claims.get("sub").cloned(), uid]
        .map(|part| part.unwrap_or(Value::Null));
    serde_json::to_vec(&identity).ok()
}

fn fetch(
    access: &AccessName,
    reach: &Reach,
    cluster: Option<&ClaimedCluster>,
    clock: &SystemClock,
) -> Result<CachedToken, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| CommandError::new(format!("starting: {error}")))?;
    let fetched = runtime.block_on(async {
        let caller =
            caller_token::find_caller_proof(&reach.caller, access.namespace.as_str()).await?;
        reach.server.cluster_token(&caller, access).await
    })?;
    let ClusterToken {
        token,
        cluster: target,
    } = fetched;
    if let Some(claimed) = cluster {
        let target = target.ok_or_else(|| {
            CommandError::with_fix(
                "the server does not report the target's address, so it cannot be compared",
                "update the Keyferry server",
            )
        })?;
        target.is_what(claimed).map_err(|other| {
            CommandError::with_fix(
                format!("the token for {access} is not printed: in the kubeconfig, {other}"),
                "take the cluster from `keyferry kubeconfig --exec`",
            )
        })?;
    }
    let jwt = UnverifiedJwt::parse(token.token.expose_secret());
    let expiration = jwt.ok().and_then(|jwt| {
        exec_credential::refresh_time(&jwt, token.remaining_lifetime, clock.now().wall)
    });
    let expiration = expiration.ok_or_else(|| {
        CommandError::with_fix(
            "the server's token has less than 10 s to go by this machine's clock, or no expiry",
            "correct the clocks",
        )
    })?;
    Ok(CachedToken {
        token: token.token,
        expiration,
    })
}
