//! Proves a federation: a token of a TargetAccess is issued and tried at the target until every hop
//! holds, or the time is over.

use std::process::ExitCode;
use std::time::Duration;

use keyferry_api::name::AccessName;
use keyferry_api::reason::Reason;
use keyferry_api::status::TargetClusterStatus;
use keyferry_client::ClientError;
use keyferry_client::direct::Direct;
use keyferry_client::doctor::diagnosis::{
    Hop, Mode, Problem, Report, ReportedHop, Status, TokenEvidence, examine,
};
use keyferry_client::doctor::flux::from_config_map;
use keyferry_client::doctor::plan::{Permission, Plan};
use keyferry_client::doctor::start::{from_access, from_secret};
use keyferry_client::doctor::{Means, found_kubeconfig, gather_evidence};
use keyferry_client::object_view::{AccessView, DeliveryView};
use keyferry_platform::address_guard::AddressGuard;
use secrecy::ExposeSecret;

use super::place::Deadline;
use super::progress::Progress;
use crate::args::access::{self, ServerArgs};
use crate::command_error::CommandError;
use crate::{doctor_report, ui};

/// The pause between two tries. Each issues a token.
const RETRY_INTERVAL: Duration = Duration::from_secs(3);

/// Part of what doctor says of a token that is accepted without a user name.
const WITHOUT_NAME: &str = "does not return a username";
/// The beginning of what is left to do on the nodes, which a proven token shows to be done.
pub(super) const NODES: &str = "on every control plane node";

/// Where the token comes from. A TargetAccess that only delivers objects gives none on request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TokenSource {
    /// It is issued on request.
    OnRequest,
    /// It is in a delivered Secret.
    Secret(String),
    /// It is issued by what a delivered ConfigMap says, as Flux does.
    ConfigMap(String),
}

impl TokenSource {
    /// Chooses by the deliveries of a TargetAccess that is Ready. `None` if none of them has a
    /// token that can be tried here.
    pub(super) fn of_access(access: &AccessView) -> Option<Self> {
        let mut wanted = access.spec.deliveries.iter();
        let is_on_request = |one: &DeliveryView| matches!(&*one.delivery_type, "HTTP" | "Exec");
        if access.spec.deliveries.is_empty() || wanted.any(is_on_request) {
            return Some(Self::OnRequest);
        }
        access.status.deliveries.iter().find_map(|delivered| {
            let object = delivered.object.clone()?;
            match delivered.delivery_type.as_str() {
                "KubeConfigSecret" | "ClusterAPISecret" => Some(Self::Secret(object)),
                "FluxConfigMap" => Some(Self::ConfigMap(object)),
                _ => None,
            }
        })
    }
}

/// What is tried, and for how long.
pub(super) struct Proof {
    /// The hub, with the user's own rights.
    pub(super) direct: Direct,
    /// The TargetAccess whose token is tried.
    pub(super) access: AccessName,
    /// Where its token comes from.
    pub(super) source: TokenSource,
    /// The server that issues it on request. `None` means with the user's own rights on the hub.
    pub(super) server: Option<ServerArgs>,
    /// The status of the TargetCluster, if it is on the hub.
    pub(super) target: Option<TargetClusterStatus>,
    /// CA certificates of the server of the discovery documents, if the user gives them.
    pub(super) discovery_ca: Option<Vec<u8>>,
    /// What else is known about the target.
    pub(super) means: Means,
    /// Where requests may go.
    pub(super) guard: AddressGuard,
    /// How long to try.
    pub(super) deadline: Deadline,
}

/// The end of a command that cannot try the token of a TargetAccess.
pub(super) fn untried(access: &AccessName) -> ExitCode {
    let (namespace, name) = (&access.namespace, &access.name);
    incomplete(&format!(
        "TargetAccess {access} is Ready, but what it delivers cannot be tried here; next: kubectl \
         get targetaccess {name} -n {namespace}, whose column TARGET-OK shows what the target made \
         of a token"
    ))
}

impl Proof {
    /// Tries until every hop holds or the time is over, and prints doctor's report of the last try.
    ///
    /// # Errors
    /// An input of the diagnosis cannot be used.
    pub(super) async fn run(&self, progress: &mut Progress) -> Result<ExitCode, CommandError> {
        let left = self.deadline.limit.saturating_sub(self.deadline.passed());
        ui::note(&format!(
            "trying a token of TargetAccess {} at the target, for up to {} s",
            self.access,
            left.as_secs()
        ));
        let mut printed = String::new();
        loop {
            let report = self.diagnose().await?;
            let is_named = !is_starting(&report);
            if (is_proven(&report) && is_named) || self.deadline.is_over() {
                if is_proven(&report) {
                    progress.done(|left| left.starts_with(NODES));
                }
                return Ok(self.end(&report));
            }
            let why = match is_named {
                true => waiting_for(&report),
                false => "the target accepts the token but refuses SelfSubjectReview: it may \
                          still be starting"
                    .to_owned(),
            };
            if why != printed {
                ui::note(&format!("waiting: {why}"));
                printed = why;
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    async fn diagnose(&self) -> Result<Report, CommandError> {
        let (hub, namespace) = (&self.direct.hub, &self.access.namespace);
        let plan = match (&self.source, &self.server) {
            (TokenSource::OnRequest, Some(server)) => self.plan_by_server(server).await?,
            (TokenSource::OnRequest, None) => from_access(&self.access, &self.direct).await,
            (TokenSource::Secret(name), _) => from_secret(hub, namespace, name, None).await,
            (TokenSource::ConfigMap(name), _) => from_config_map(hub, namespace, name).await,
        };
        let mut plan = plan
            .admit(&self.direct.source, hub, Permission::default())
            .await;
        let stated = self.target.clone().unwrap_or_default();
        let authority = stated
            .discovery_certificate_authority
            .map(String::into_bytes);
        plan.discovery_ca = self.discovery_ca.clone().or(authority);
        plan.discovery_url = stated.discovery_url;
        plan.guard = self.guard.clone();
        let config = hub.config().await?;
        plan.own_documents = vec![config.cluster_url.to_string()];
        plan.issuer = stated.issuer.or(plan.issuer);
        let prefix = stated.username_prefix.as_deref();
        if let Some(name) = prefix.and_then(|prefix| prefix.strip_suffix(':')) {
            plan.hub_name = Some(name.to_owned());
            // The status of a role states its name with the hub's.
            plan.role = None;
        }
        let start = plan.start.clone();
        let mut modes = vec![Mode::Network];
        modes.extend(
            self.means
                .target_kubeconfig
                .is_some()
                .then_some(Mode::TargetKubeconfig),
        );
        let evidence = gather_evidence(plan, &self.means).await?;
        Ok(Report::of(&start, modes, &examine(&evidence)))
    }

    /// Asks the server for the access's kubeconfig. A refusal is evidence: it may pass.
    async fn plan_by_server(&self, server: &ServerArgs) -> Result<Plan, CommandError> {
        let source = access::source(self.access.clone(), server, None)?;
        let mut plan = Plan::named(format!("access/{} at the server", self.access));
        match source.kubeconfig().await {
            Ok(kubeconfig) => {
                let found = found_kubeconfig::read(kubeconfig.expose_secret());
                plan.take(found.map_err(|error| {
                    CommandError::new(format!("reading the server's kubeconfig: {error}"))
                })?);
                // The token is sent only to the target that the TargetCluster names.
                plan.target_is_tenants = true;
            }
            Err(ClientError::Refused { reason, detail, .. }) => {
                plan.token_evidence = TokenEvidence::Failed(Problem::new(reason, detail));
            }
            Err(error) => {
                plan.token_evidence =
                    TokenEvidence::Failed(Problem::new(Reason::MintFailed, error.to_string()));
            }
        }
        Ok(plan)
    }

    fn end(&self, report: &Report) -> ExitCode {
        let text = doctor_report::table(report, None);
        let (namespace, name) = (&self.access.namespace, &self.access.name);
        let (code, end) = if is_proven(report) {
            let next = self.next();
            (
                0,
                format!("proven: the target accepted a token\nnext: {next}"),
            )
        } else {
            let code = doctor_report::exit_code(report.verdict).max(1);
            let end = format!(
                "NOT PROVEN: the hops above do not all hold for a token of \
                 {namespace}/{name}\nnext: keyferry doctor targetaccess/{name} -n {namespace}"
            );
            (code, end)
        };
        ui::finish_with(&format!("{text}\n\n{end}"), code)
    }
}

impl Proof {
    /// The command to type once a token was accepted.
    fn next(&self) -> String {
        let (namespace, name) = (&self.access.namespace, &self.access.name);
        match &self.source {
            TokenSource::OnRequest => {
                format!("keyferry exec {namespace}/{name} -- kubectl get pods")
            }
            TokenSource::Secret(object) => {
                format!(
                    "refer to Secret {object} of {namespace}, for Flux in spec.kubeConfig.secretRef"
                )
            }
            TokenSource::ConfigMap(object) => {
                format!(
                    "refer to ConfigMap {object} of {namespace} in spec.kubeConfig.configMapRef"
                )
            }
        }
    }
}

/// Whether the target has authenticated the token, and no hop is broken. What the user may do there
/// is the target admin's affair.
fn is_proven(report: &Report) -> bool {
    let authenticated = |hop: &ReportedHop| {
        hop.hop == Hop::Authentication && matches!(hop.status, Status::Well | Status::Warning)
    };
    report.broken.is_none() && report.hops.iter().any(authenticated)
}

/// Whether the target accepts the token and does not say whose it is. An apiserver answers so in
/// its first second, until its authorizer has read the roles.
fn is_starting(report: &Report) -> bool {
    let identified =
        |hop: &ReportedHop| hop.hop == Hop::Authentication && hop.status == Status::Well;
    report.broken.is_none()
        && report
            .hops
            .iter()
            .any(|hop| identified(hop) && hop.detail.contains(WITHOUT_NAME))
}

/// Names the hop that is waited for.
fn waiting_for(report: &Report) -> String {
    let hop = report
        .broken
        .as_ref()
        .or_else(|| report.hops.iter().find(|hop| hop.status == Status::Broken));
    match hop {
        Some(hop) => format!(
            "{:?}: {}: {}",
            hop.hop,
            hop.reason.map_or("undetermined", |reason| reason.name()),
            hop.detail
        ),
        None => "the diagnosis is undetermined".to_owned(),
    }
}

/// Ends the command where the federation is not proven yet.
pub(super) fn incomplete(why: &str) -> ExitCode {
    ui::note(&format!("NOT PROVEN: {why}"));
    ExitCode::from(doctor_report::UNDETERMINED)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{AccessView, TokenSource};

    fn access(types: &[&str]) -> AccessView {
        let spec: Vec<Value> = types
            .iter()
            .map(|one| json!({ "name": "a", "type": one }))
            .collect();
        let status: Vec<Value> = types
            .iter()
            .map(|one| json!({ "name": "a", "type": one, "object": format!("of-{one}") }))
            .collect();
        let object = json!({
            "spec": { "deliveries": spec }, "status": { "deliveries": status },
        });
        AccessView::of(&object)
    }

    #[test]
    fn the_token_comes_from_what_the_access_delivers() {
        let source = |types: &[&str]| TokenSource::of_access(&access(types));
        assert_eq!(source(&[]), Some(TokenSource::OnRequest));
        assert_eq!(
            source(&["FluxConfigMap", "HTTP"]),
            Some(TokenSource::OnRequest)
        );
        assert_eq!(
            source(&["KubeConfigSecret"]),
            Some(TokenSource::Secret("of-KubeConfigSecret".to_owned()))
        );
        assert_eq!(
            source(&["FluxConfigMap"]),
            Some(TokenSource::ConfigMap("of-FluxConfigMap".to_owned()))
        );
        assert_eq!(source(&["ArgoCDSecret"]), None);
        assert_eq!(
            TokenSource::of_access(&AccessView::default()),
            Some(TokenSource::OnRequest)
        );
    }
}
