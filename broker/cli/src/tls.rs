//! `keyferry tls`: prints a CA and the Secrets with Keyferry's serving certificates, for hubs
//! without cert-manager. It writes nothing to the hub.

mod authority;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use keyferry_api::issuer::{PublicUrl, PublicUrlError};
use keyferry_api::name::{NameError, Namespace};
use keyferry_hub::ports::HubError;
use keyferry_platform::clock::{Clock, SystemClock};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};

use self::authority::{Authority, AuthorityError, Certified};
use crate::args::HubArgs;
use crate::args::output_format::ManifestFormatArgs;
use crate::local_file::{self, ReadError};
use crate::ui;
use crate::yaml_document::{YamlError, yaml_document};

/// Asks for an object without its content.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
/// The largest Secret that is read.
const MAX_BYTES: usize = 1 << 20;
const DAY: Duration = Duration::from_secs(24 * 3600);

#[derive(Args)]
pub(super) struct TlsArgs {
    #[command(subcommand)]
    command: TlsCommand,
}

#[derive(Subcommand)]
enum TlsCommand {
    /// Print a new CA and both serving certificates as Secrets.
    Init(InitArgs),
    /// Print both serving certificates again, with new keys.
    ///
    /// They are signed by the CA of init.
    Renew(RenewArgs),
}

#[derive(Args)]
struct InitArgs {
    #[command(flatten)]
    certificates: CertificateArgs,
    /// Namespace of the Secret with the CA's key.
    ///
    /// Not Keyferry's, which may read its own Secrets.
    #[arg(long, value_name = "NAMESPACE", default_value = "keyferry-ca", value_parser = namespace, hide_short_help = true)]
    ca_namespace: Namespace,
    /// Days that the CA is valid.
    #[arg(
        long,
        value_name = "DAYS",
        default_value_t = 1825,
        value_parser = clap::value_parser!(u32).range(1..=7300), hide_short_help = true)]
    ca_days: u32,
    /// Make another CA although the hub has one.
    ///
    /// Every client has to trust both before the new one is used.
    #[arg(long, hide_short_help = true)]
    replace_ca: bool,
    #[command(flatten)]
    hub: HubArgs,
}

#[derive(Args)]
struct RenewArgs {
    #[command(flatten)]
    certificates: CertificateArgs,
    /// The CA's Secret as YAML or JSON, or - for standard input.
    #[arg(long, value_name = "FILE")]
    ca_secret: PathBuf,
}

#[derive(Args)]
struct CertificateArgs {
    /// The publicURL that targets reach.
    ///
    /// Its host is the name in the discovery certificate.
    #[arg(value_name = "PUBLIC_URL", value_parser = public_url)]
    public_url: PublicUrl,
    /// A host name or IP address of the token API (may be repeated) [default: those of Service
    /// keyferry]
    #[arg(long, value_name = "HOST")]
    api_host: Vec<String>,
    /// Namespace of the Secrets with the serving certificates.
    ///
    /// Keyferry's.
    #[arg(
        long,
        value_name = "NAMESPACE",
        default_value = "keyferry-system",
        value_parser = namespace, hide_short_help = true)]
    tls_namespace: Namespace,
    /// Days that the serving certificates are valid.
    #[arg(
        long,
        value_name = "DAYS",
        default_value_t = 90,
        value_parser = clap::value_parser!(u32).range(1..=825), hide_short_help = true)]
    days: u32,
    #[command(flatten)]
    _format: ManifestFormatArgs,
}

/// The argument is not the name of a namespace.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the namespace {0}")]
struct NamespaceError(#[from] NameError);

fn namespace(text: &str) -> Result<Namespace, NamespaceError> {
    Ok(Namespace::new(text)?)
}

fn public_url(text: &str) -> Result<PublicUrl, PublicUrlError> {
    PublicUrl::new(text)
}

/// Why nothing is printed.
#[derive(Debug, thiserror::Error)]
enum TlsError {
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The parser's message is dropped, because it would quote the key.
    #[error("reading the CA: the file is not one Secret of type kubernetes.io/tls")]
    NotSecret,
    #[error("reading the CA: {0} of the Secret is missing or not base64 of PEM text")]
    Entry(&'static str),
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// The new CA would take the place of the one that all clients trust.
    #[error(
        "making a CA: the hub has Secret {0}/keyferry-ca already, and clients that trust that CA \
         would refuse certificates of another"
    )]
    Exists(Namespace),
}

impl TlsError {
    fn fix(&self) -> Option<&'static str> {
        match self {
            Self::Authority(AuthorityError::Host(_)) => {
                Some("write hosts without scheme or port, such as keyferry.example.com")
            }
            Self::Authority(AuthorityError::Certificate(_)) => Some(
                "make a new CA by keyferry tls init, and let all clients trust both until it is \
                 in use",
            ),
            Self::Authority(AuthorityError::Key | AuthorityError::OtherKey)
            | Self::NotSecret
            | Self::Entry(_) => Some(
                "pipe the Secret that keyferry tls init made: kubectl get secret keyferry-ca -n \
                 keyferry-ca -o yaml | keyferry tls renew PUBLIC_URL --ca-secret -",
            ),
            Self::Exists(_) => Some(
                "for new certificates of the same CA: keyferry tls renew; to change the CA, add \
                 --replace-ca and follow docs/guides/hub.md, From one CA to the next",
            ),
            Self::Authority(AuthorityError::Library(_)) | Self::Read(_) | Self::Yaml(_) => None,
        }
    }
}

pub(super) async fn run(args: &TlsArgs) -> ExitCode {
    // Certificates hold whole seconds.
    let now = SystemClock::start().now().wall;
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let printed = match &args.command {
        TlsCommand::Init(args) => match refuse_existing(args).await {
            Ok(()) => init(args, now),
            Err(error) => Err(error),
        },
        TlsCommand::Renew(args) => renew(args, now),
    };
    match printed {
        Ok(text) => ui::finish(text.trim_end()),
        Err(error) => ui::fail(&error.to_string(), error.fix()),
    }
}

/// Fails if the hub has a CA. Reads its metadata alone, never its key. A hub that cannot be asked is
/// no obstacle: what is printed is created, not applied.
async fn refuse_existing(args: &InitArgs) -> Result<(), TlsError> {
    if args.replace_ca {
        return Ok(());
    }
    let namespace = &args.ca_namespace;
    let path = format!("/api/v1/namespaces/{namespace}/secrets/keyferry-ca");
    let answer = match args.hub.client().await {
        Ok(client) => client
            .get(&path, METADATA)
            .await
            .map_err(|error| (matches!(error, HubError::NotFound(_)), error.to_string())),
        Err(error) => Err((false, error.to_string())),
    };
    match answer {
        Ok(_) => Err(TlsError::Exists(namespace.clone())),
        Err((true, _)) => Ok(()),
        Err((false, why)) => {
            ui::note(&format!(
                "whether the hub has a CA already is unknown: {why}; kubectl create does not replace \
                 one"
            ));
            Ok(())
        }
    }
}

fn init(args: &InitArgs, now: Timestamp) -> Result<String, TlsError> {
    let authority = Authority::new(DAY * args.ca_days, now)?;
    let mut documents = vec![
        yaml_document(&json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": args.ca_namespace.as_str() },
        }))?,
        format!(
            "# The CA. An account that can read this Secret can pretend to be Keyferry to every client that trusts the CA.\n\
             # Keyferry never reads it: keep it here, or offline, and give no account the right to get it.\n{}",
            yaml_document(&secret(
                "keyferry-ca",
                &args.ca_namespace,
                &authority.certified,
                None
            ))?
        ),
    ];
    documents.extend(serving(&args.certificates, &authority, now)?);
    ui::note(&format!(
        "the output holds the private key of the CA, valid until {}: create it by kubectl create \
         -f -, which replaces nothing, and keep no copy",
        authority.certified.not_after
    ));
    Ok(documents.join("---\n"))
}

fn renew(args: &RenewArgs, now: Timestamp) -> Result<String, TlsError> {
    let bytes = local_file::read(&args.ca_secret, "the CA's Secret", MAX_BYTES)?;
    let (certificate, key) = read_secret(&bytes)?;
    let authority = Authority::read(&certificate, &key, now)?;
    Ok(serving(&args.certificates, &authority, now)?.join("---\n"))
}

/// The Secrets of both listeners.
fn serving(
    args: &CertificateArgs,
    authority: &Authority,
    now: Timestamp,
) -> Result<[String; 2], TlsError> {
    let life = DAY * args.days;
    let host = args.public_url.host();
    // A URL writes an IPv6 address in brackets, a certificate does not.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let api_hosts = if args.api_host.is_empty() {
        let service = format!("keyferry.{}.svc", args.tls_namespace);
        vec![format!("{service}.cluster.local"), service]
    } else {
        args.api_host.clone()
    };
    let print = |name: &str, hosts: &[String]| {
        let certified = authority.serving(hosts, life, now)?;
        ui::note(&format!(
            "Secret {}/{name}: for {}, until {}",
            args.tls_namespace,
            hosts.join(" and "),
            certified.not_after
        ));
        let ca = Some(authority.certified.certificate.as_str());
        Ok::<_, TlsError>(yaml_document(&secret(
            name,
            &args.tls_namespace,
            &certified,
            ca,
        ))?)
    };
    Ok([
        print("keyferry-discovery-tls", &[host.to_owned()])?,
        print("keyferry-api-tls", &api_hosts)?,
    ])
}

fn secret(name: &str, namespace: &Namespace, certified: &Certified, ca: Option<&str>) -> Value {
    let mut data = json!({
        "tls.crt": certified.certificate,
        "tls.key": certified.key.expose_secret(),
    });
    if let Some(ca) = ca {
        data["ca.crt"] = json!(ca);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": name, "namespace": namespace.as_str() },
        "type": "kubernetes.io/tls",
        "stringData": data,
    })
}

/// A Secret as `kubectl get -o yaml` prints it, or as init did.
#[derive(Deserialize)]
struct StoredSecret {
    kind: String,
    #[serde(rename = "type")]
    secret_type: String,
    #[serde(default)]
    data: Entries,
    #[serde(default, rename = "stringData")]
    text: Entries,
}

#[derive(Default, Deserialize)]
struct Entries {
    #[serde(rename = "tls.crt")]
    certificate: Option<String>,
    #[serde(rename = "tls.key")]
    key: Option<SecretString>,
}

fn read_secret(bytes: &[u8]) -> Result<(String, SecretString), TlsError> {
    let text = str::from_utf8(bytes).map_err(|_| TlsError::NotSecret)?;
    let secret: StoredSecret = serde_saphyr::from_str(text).map_err(|_| TlsError::NotSecret)?;
    if secret.kind != "Secret" || secret.secret_type != "kubernetes.io/tls" {
        return Err(TlsError::NotSecret);
    }
    let decoded = |encoded: &str| String::from_utf8(STANDARD.decode(encoded).ok()?).ok();
    let certificate = match (secret.text.certificate, secret.data.certificate) {
        (Some(text), _) => Some(text),
        (None, encoded) => encoded.and_then(|encoded| decoded(&encoded)),
    };
    let key = match (secret.text.key, secret.data.key) {
        (Some(text), _) => Some(text),
        (None, encoded) => encoded
            .and_then(|encoded| decoded(encoded.expose_secret()))
            .map(SecretString::from),
    };
    Ok((
        certificate.ok_or(TlsError::Entry("tls.crt"))?,
        key.ok_or(TlsError::Entry("tls.key"))?,
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use secrecy::ExposeSecret;

    use super::{TlsError, read_secret};

    #[test]
    fn a_ca_is_read_from_both_forms_of_a_secret_and_never_quoted() {
        let [certificate, key] = ["a certificate\n", "a key\n"].map(|text| STANDARD.encode(text));
        let head = "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\n";
        for text in [
            format!("{head}data: {{tls.crt: {certificate}, tls.key: {key}}}\n"),
            format!(
                "{head}stringData:\n  tls.crt: |\n    a certificate\n  tls.key: |\n    a key\n"
            ),
        ] {
            let (certificate, key) = read_secret(text.as_bytes()).unwrap();
            assert_eq!(
                (certificate.as_str(), key.expose_secret()),
                ("a certificate\n", "a key\n")
            );
        }
        for text in [
            format!("kind: Secret\ntype: Opaque\ndata: {{tls.crt: {certificate}, tls.key: {key}}}"),
            format!("{head}data: {{tls.crt: {certificate}, tls.key: secret-words}}"),
            format!("{head}data: {{tls.crt: {certificate}}}"),
            "secret-words: [".to_owned(),
        ] {
            let error: TlsError = read_secret(text.as_bytes()).err().unwrap();
            let said = error.to_string();
            assert!(
                said.starts_with("reading the CA: ") && !said.contains("words"),
                "{said}"
            );
            assert!(error.fix().is_some());
        }
    }
}
