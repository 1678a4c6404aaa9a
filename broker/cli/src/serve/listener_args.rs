//! The flags of `keyferry serve` about listeners, and which of them come first.

use std::net::SocketAddr;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use keyferry_api::config::{ListenerOverrides, listen_address};
use keyferry_api::name::{NameError, ObjectName};

/// The flags about listeners. A flag comes before every variable: `--tls-secret` overrides the
/// variable of a single listener too.
pub(super) struct ListenerArgs(ListenerOverrides);

impl ListenerArgs {
    pub(super) fn overrides(&self) -> ListenerOverrides {
        self.0.clone()
    }
}

#[derive(Args)]
struct Flags {
    /// Secret of type kubernetes.io/tls with the serving certificate of all listeners.
    ///
    /// It is in Keyferry's namespace. Overrides tls of the file.
    #[arg(long, env = "KEYFERRY_TLS_SECRET", value_name = "NAME", value_parser = secret_name, hide_short_help = true)]
    tls_secret: Option<ObjectName>,
    /// As --tls-secret, for the token API alone.
    #[arg(
        long,
        env = "KEYFERRY_API_TLS_SECRET",
        value_name = "NAME",
        value_parser = secret_name, hide_short_help = true)]
    api_tls_secret: Option<ObjectName>,
    /// As --tls-secret, for the published documents alone.
    #[arg(
        long,
        env = "KEYFERRY_DISCOVERY_TLS_SECRET",
        value_name = "NAME",
        value_parser = secret_name, hide_short_help = true)]
    discovery_tls_secret: Option<ObjectName>,
    /// As --tls-secret, for metrics alone.
    #[arg(
        long,
        env = "KEYFERRY_METRICS_TLS_SECRET",
        value_name = "NAME",
        value_parser = secret_name, hide_short_help = true)]
    metrics_tls_secret: Option<ObjectName>,
    /// Address of the token API, as ip:port or :port [default: :9443]
    ///
    /// Overrides api.address of the file.
    #[arg(
        long,
        env = "KEYFERRY_API_HTTPS_ADDR",
        value_name = "ADDRESS",
        value_parser = listen_address, hide_short_help = true)]
    api_https_addr: Option<SocketAddr>,
    /// Address of the published documents [default: :8443]
    ///
    /// Overrides discovery.address of the file.
    #[arg(
        long,
        env = "KEYFERRY_DISCOVERY_HTTPS_ADDR",
        value_name = "ADDRESS",
        value_parser = listen_address, hide_short_help = true)]
    discovery_https_addr: Option<SocketAddr>,
    /// Address of a plain-HTTP listener that only redirects to the documents [default: none]
    ///
    /// Overrides discovery.httpAddress of the file.
    #[arg(
        long,
        env = "KEYFERRY_DISCOVERY_HTTP_ADDR",
        value_name = "ADDRESS",
        value_parser = listen_address, hide_short_help = true)]
    discovery_http_addr: Option<SocketAddr>,
    /// Address of health and metrics [default: 127.0.0.1:8080]
    ///
    /// Overrides health.address of the file.
    #[arg(
        long,
        env = "KEYFERRY_HEALTH_ADDR",
        value_name = "ADDRESS",
        value_parser = listen_address, hide_short_help = true)]
    health_addr: Option<SocketAddr>,
    /// Address of metrics with TLS, for readers that the hub permits [default: none, metrics are
    /// beside health]
    ///
    /// Overrides metrics.address of the file.
    #[arg(
        long,
        env = "KEYFERRY_METRICS_HTTPS_ADDR",
        value_name = "ADDRESS",
        value_parser = listen_address, hide_short_help = true)]
    metrics_https_addr: Option<SocketAddr>,
}

impl Args for ListenerArgs {
    fn augment_args(command: Command) -> Command {
        Flags::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Flags::augment_args_for_update(command)
    }
}

impl FromArgMatches for ListenerArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given_to_all = matches.value_source("tls_secret") == Some(ValueSource::CommandLine);
        let is_overridden =
            |id: &str| given_to_all && matches.value_source(id) == Some(ValueSource::EnvVariable);
        let flags = Flags::from_arg_matches(matches)?;
        let of_one = |secret: Option<ObjectName>, id| secret.filter(|_| !is_overridden(id));
        Ok(Self(ListenerOverrides {
            tls_secret: flags.tls_secret,
            api_tls_secret: of_one(flags.api_tls_secret, "api_tls_secret"),
            discovery_tls_secret: of_one(flags.discovery_tls_secret, "discovery_tls_secret"),
            metrics_tls_secret: of_one(flags.metrics_tls_secret, "metrics_tls_secret"),
            api_address: flags.api_https_addr,
            discovery_address: flags.discovery_https_addr,
            discovery_http_address: flags.discovery_http_addr,
            health_address: flags.health_addr,
            metrics_address: flags.metrics_https_addr,
            tls_may_be_unset: false,
        }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The argument is not the name of a Secret.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the name of the Secret {0}")]
struct SecretNameError(#[from] NameError);

fn secret_name(text: &str) -> Result<ObjectName, SecretNameError> {
    Ok(ObjectName::new(text)?)
}
