//! `keyferry revoke`: a key goes now and never comes back, and each target is made to forget it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use keyferry_core::ca_bundle::CaBundle;
use keyferry_core::config::{CertificateSource, Configuration, Overrides, TargetCluster, TokenIssuer};
use keyferry_core::issuer::Issuer;
use keyferry_core::jwt::UnverifiedJwt;
use secrecy::{ExposeSecret, SecretString};

use super::{HUB, HubArgs, keys, local_file, ui};
use crate::client::key_records::KeyRecordsClient;
use crate::client::poked_target::PokedTarget;
use crate::clock::{Clock, SystemClock};
use crate::controller::config_file;
use crate::kube::certificate_secret::KubeCertificateSecrets;
use crate::kube::client::HubClient;
use crate::ports::{CertificateSecrets, ProbeAnswer, ProbedTarget};

/// How often a target is poked: within its last 30 s a cached key set can be replaced.
const POKES_EVERY: Duration = Duration::from_secs(5);
/// How long replicas take to follow.
const FOLLOWED: Duration = Duration::from_secs(15);
/// How much longer than `maxAge` a target is given: a decision at a target stands for 10 s.
const BEYOND_MAX_AGE: Duration = Duration::from_secs(60);

/// More than any token has.
const MAX_WITNESS_BYTES: usize = 16 * 1024;

#[derive(Args)]
pub(super) struct RevokeArgs {
    /// The key, as `keyferry keys` names it.
    #[arg(long)]
    kid: String,
    /// Keyferry's own namespace on the hub.
    #[arg(long, alias = "namespace", short_alias = 'n', value_name = "NAMESPACE", default_value = "keyferry-system", help_heading = HUB)]
    keyferry_namespace: String,
    /// Keyferry's configuration file: its targets are made to forget the key.
    #[arg(long, env = "KEYFERRY_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// A token that the key signed, as proof: its target must take it before and refuse it afterwards. Once for each target.
    #[arg(long, value_name = "FILE")]
    witness: Vec<PathBuf>,
    #[command(flatten)]
    hub: HubArgs,
}

struct Case {
    target: TargetCluster,
    probe: Option<PokedTarget>,
    witness: Option<SecretString>,
    outcome: &'static str,
    /// Whether it refused a poke when its copy of the keys could no longer be an old one.
    reached_late: bool,
}

impl Case {
    async fn poke(&mut self, issuer: &Issuer, now: Timestamp, late: bool) {
        let Some(probe) = &self.probe else { return };
        let refused = probe.poke(issuer, &self.target.audience, now).await == ProbeAnswer::Refused;
        self.reached_late |= refused && late;
        if let Some(witness) = &self.witness
            && probe.takes(witness).await == ProbeAnswer::Refused
        {
            self.outcome = "forgotten: it refuses the witness";
        }
    }
}

pub(super) async fn run(args: RevokeArgs) -> ExitCode {
    match revoke(&args).await {
        Ok(code) => code,
        Err(problem) => ui::fail(&problem, None),
    }
}

async fn revoke(args: &RevokeArgs) -> Result<ExitCode, String> {
    let configuration = args
        .config
        .as_deref()
        .map(|path| config_file::read(path, Overrides::of_a_reader()))
        .transpose()
        .map_err(|error| error.to_string())?;
    ui::note(&format!("hub: {}", args.hub.access().description().await.map_err(|error| error.to_string())?));
    let clock = SystemClock::start();
    let mut cases = match &configuration {
        Some(configuration) => cases(args, configuration, clock.now().wall).await?,
        None => Vec::new(),
    };
    for case in &mut cases {
        if let (Some(probe), Some(witness)) = (&case.probe, &case.witness)
            && !matches!(probe.takes(witness).await, ProbeAnswer::Accepted(_))
        {
            return Err(format!(
                "trying the witness at {}: it is not taken, so it could prove nothing; nothing was revoked",
                case.target.name
            ));
        }
    }
    let client = KeyRecordsClient::connect(&args.hub.access(), keys::namespace(&args.keyferry_namespace)?).await;
    let client = client.map_err(|error| error.to_string())?;
    let known = client.read().await.map_err(|error| error.to_string())?;
    if known.keys.len() == 1 && known.keys.contains_key(&args.kid) {
        ui::note("it is the only key: nothing is handed out until another one of the hub has settled");
    }
    let ledger = client.revoke(&args.kid, clock.now().wall).await.map_err(|error| error.to_string())?;
    ui::note(&format!("revoked {:?}: every replica stops publishing it within 10 s, and no token signed with it leaves", args.kid));
    let Some(configuration) = configuration else {
        return Ok(ui::finish(
            "targets go on trusting it until they read the keys again: give --config to have them do so, or restart their apiservers, \
             or change a byte of their AuthenticationConfiguration",
        ));
    };
    let patience = configuration.server.max_age + BEYOND_MAX_AGE;
    ui::note(&format!("making {} target(s) forget it; this takes up to {} s", cases.len(), patience.as_secs()));
    let from = clock.now().mono;
    while clock.now().mono.saturating_sub(from) < patience && cases.iter().any(|case| case.outcome.is_empty()) {
        let late = clock.now().mono.saturating_sub(from) > configuration.server.max_age + FOLLOWED;
        let now = clock.now().wall;
        let open = cases.iter_mut().filter(|case| case.outcome.is_empty());
        futures::future::join_all(open.map(|case| case.poke(&ledger.issuer, now, late))).await;
        tokio::time::sleep(POKES_EVERY).await;
    }
    Ok(report(&cases))
}

async fn cases(args: &RevokeArgs, configuration: &Configuration, now: Timestamp) -> Result<Vec<Case>, String> {
    let mut witnesses = Vec::new();
    for path in &args.witness {
        let bytes = local_file::read(path, "the witness", MAX_WITNESS_BYTES)?;
        let text = String::from_utf8_lossy(&bytes);
        let token = SecretString::from(text.trim().to_owned());
        let jwt =
            UnverifiedJwt::parse(token.expose_secret()).map_err(|_| format!("reading the witness {}: it is no JWT", path.display()))?;
        if jwt.kid() != Some(args.kid.as_str()) {
            return Err(format!("reading the witness {}: another key signed it", path.display()));
        }
        let audiences = jwt.claims().get("aud").cloned().unwrap_or_default();
        witnesses.push((audiences, token));
    }
    let mut cases = Vec::new();
    // An own issuer's keys are not the hub's.
    for target in configuration.policy.targets.values().filter(|target| target.issuer == TokenIssuer::Hub) {
        let names = |audiences: &serde_json::Value| {
            let audience = target.audience.as_str();
            audiences.as_str() == Some(audience)
                || audiences.as_array().is_some_and(|all| all.iter().any(|one| one.as_str() == Some(audience)))
        };
        let witness = witnesses.iter().find(|(audiences, _)| names(audiences)).map(|(_, token)| token.clone());
        let probe = probe(args, configuration, target, now).await;
        let outcome = if probe.is_some() { "" } else { "not poked: its CA cannot be read" };
        cases.push(Case { target: target.clone(), probe, witness, outcome, reached_late: false });
    }
    Ok(cases)
}

async fn probe(args: &RevokeArgs, configuration: &Configuration, target: &TargetCluster, now: Timestamp) -> Option<PokedTarget> {
    let ca_pem = match &target.certificate {
        CertificateSource::System => None,
        CertificateSource::Inline(pem) => Some(pem.clone().into_bytes()),
        CertificateSource::Secret(name) => {
            let client = HubClient::new(args.hub.access().config().await.ok()?).ok()?;
            let secrets = KubeCertificateSecrets::new(client, configuration.server.cluster_resource_namespace.clone());
            Some(secrets.certificate(name).await.ok()?.pem?)
        }
    };
    let ca_pem = match ca_pem {
        Some(pem) => Some(CaBundle::from_pem(&pem, now).ok()?.to_pem().into()),
        None => None,
    };
    let (tls_server_name, proxy_url) = (target.tls_server_name.clone(), target.proxy_url.clone());
    Some(PokedTarget::new(ProbedTarget { address: target.address.clone(), tls_server_name, proxy_url, ca_pem }))
}

fn report(cases: &[Case]) -> ExitCode {
    let mut rows = vec![vec!["TARGET".to_owned(), "RESULT".to_owned()]];
    let mut proven = true;
    for case in cases {
        let outcome = match (case.outcome, &case.witness) {
            ("", None) if case.reached_late => "has read the keys anew; no witness, so not proven",
            ("", None) => {
                proven = false;
                "NOT REACHED: restart its apiserver, or change a byte of its AuthenticationConfiguration"
            }
            ("", Some(_)) => {
                proven = false;
                "STILL TAKES the witness: restart its apiserver, or change a byte of its AuthenticationConfiguration"
            }
            (outcome, _) => outcome,
        };
        rows.push(vec![case.target.name.to_string(), outcome.to_owned()]);
    }
    let printed = ui::finish(&ui::table(&rows));
    if proven { printed } else { ExitCode::FAILURE }
}
