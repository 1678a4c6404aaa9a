//! Objects of a made-up hub, with the statuses that the controller writes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use keyferry_api::condition::{Finding, conditions, format_seconds};
use keyferry_api::reason::Reason;
use keyferry_api::status::{ClusterStatus, DeliveryStatus, ProbeCounts, TargetClusterStatus};
use keyferry_api::summary::{SilenceCause, TargetAnswers, summarize_target};
use keyferry_core::access_status::{AccessReport, TargetIdentity};
use serde_json::{Value, json};

use super::certificate::authority_pem;

/// The issuer of the made-up hub.
pub(super) const ISSUER: &str = "https://kubernetes.hub.example.com";
/// The key that signs.
pub(super) const KEY: &str = "hub-key-3";
/// The key that signed before.
pub(super) const OLD_KEY: &str = "hub-key-2";

/// How a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetState {
    /// It accepts the tokens of its accesses.
    Ready,
    /// It refuses connections.
    Unreachable,
    /// It answers tokens with 401.
    Refusing,
    /// Its CA certificate ends in a few days.
    AuthorityEnds,
    /// It accepts users that no rule of it names.
    Unrestricted,
    /// Its admin has suspended it.
    Suspended,
    /// The controller has written no status of it.
    Unwritten,
}

/// One target of a made-up fleet.
#[derive(Clone, Debug)]
pub struct TargetPlan {
    /// Its name.
    pub name: String,
    /// How it is.
    pub state: TargetState,
    /// When its CA certificate ends.
    pub authority_ends: Timestamp,
    /// When it was last asked about a token.
    pub asked_at: Timestamp,
    /// The moment of the fleet.
    pub now: Timestamp,
    /// How many namespaces its rule allows.
    pub namespaces: usize,
}

/// One access of a made-up fleet.
#[derive(Clone, Debug)]
pub struct AccessPlan {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The index of its target.
    pub target: usize,
    /// Whether it writes a token into a Secret.
    pub writes_secret: bool,
    /// Whether it only answers callers.
    pub only_callers: bool,
    /// How long ago its token was written.
    pub written_ago: SignedDuration,
    /// Whether the key before the newest signed it.
    pub signed_by_old_key: bool,
}

fn uid(text: &str) -> String {
    let sum = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!(
        "{:08x}-0000-4000-8000-{:012x}",
        sum >> 32,
        sum & 0xffff_ffff_ffff
    )
}

impl TargetPlan {
    /// Returns the TargetCluster, which `users` accesses name.
    pub fn object(&self, users: u32) -> Value {
        let name = &self.name;
        let namespaces: Vec<String> = (1..=self.namespaces.min(256))
            .map(|index| format!("tenant-{index:03}"))
            .collect();
        let rest: Vec<String> = (257..=self.namespaces)
            .map(|index| format!("tenant-{index:03}"))
            .collect();
        let rule = |namespaces: Vec<String>| {
            json!({ "namespaces": namespaces, "serviceAccounts": ["reconciler"],
                    "deliveries": ["FluxConfigMap", "HTTP", "Exec", "KubeConfigSecret"] })
        };
        let mut allow = vec![rule(namespaces)];
        if !rest.is_empty() {
            allow.push(rule(rest));
        }
        let mut object = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
            "metadata": {
                "name": name, "uid": uid(name), "generation": 1, "resourceVersion": "7",
                "creationTimestamp": format_seconds(self.now - SignedDuration::from_hours(2_000)),
            },
            "spec": {
                "address": format!("https://{name}.example.com:6443"),
                "audience": format!("https://{name}.example.com"),
                "issuer": "Hub",
                "certSecretRef": { "name": format!("{name}-ca") },
                "allow": allow,
                "suspend": self.state == TargetState::Suspended,
            },
        });
        if self.state != TargetState::Unwritten {
            object["status"] = json!(self.status(users));
        }
        object
    }

    fn counts(&self, users: u32) -> ProbeCounts {
        let mut counts = ProbeCounts {
            total: users,
            ..ProbeCounts::default()
        };
        match self.state {
            TargetState::Unreachable => counts.unanswered = users,
            TargetState::Refusing => counts.refused = users,
            _ => counts.accepted = users,
        }
        counts
    }

    fn status(&self, users: u32) -> TargetClusterStatus {
        let ready = match self.state {
            TargetState::Suspended => Finding::failed(
                Reason::TargetSuspended,
                "nothing is minted while spec.suspend is true",
            ),
            _ => Finding::ok("declared: its spec and CA certificates are valid"),
        };
        let is_asked = self.state != TargetState::Suspended;
        let counts = is_asked.then(|| self.counts(users));
        let is_silent = self.state == TargetState::Unreachable;
        let reachable = match is_silent {
            true => Finding::failed(
                Reason::ProbeUnanswered,
                format!("connection refused at {}.example.com:6443", self.name),
            ),
            false => Finding::ok("the target answers tokens of its accesses"),
        };
        let detail = format!("of {users} accesses, the target accepts some");
        let authenticates = match self.state {
            TargetState::Refusing => Finding::failed(Reason::ProbeRefused, detail),
            TargetState::Unreachable => Finding::unknown(Reason::ProbeUnanswered, detail),
            _ => Finding::ok(detail),
        };
        let unrestricted = Finding::problem(
            Reason::TargetUnrestricted,
            "the target accepted a token of Keyferry's canary, which has no rights",
        );
        let mut findings = vec![("Ready", &ready)];
        if is_asked {
            findings.push(("TargetReachable", &reachable));
            if users > 0 {
                findings.push(("TargetAuthenticates", &authenticates));
            }
        }
        if self.state == TargetState::Unrestricted {
            findings.push(("TargetUnrestricted", &unrestricted));
        }
        let answers = TargetAnswers {
            accesses: counts,
            silence: is_silent.then_some(SilenceCause::ConnectionRefused),
            address_refused: false,
        };
        TargetClusterStatus {
            observed_generation: Some(1),
            summary: Some(summarize_target(&ready, &findings, &answers)),
            conditions: conditions(&json!({}), 1, self.asked_at, &findings),
            accesses: counts,
            last_probe_time: is_asked.then(|| format_seconds(self.asked_at)),
            issuer: Some(ISSUER.to_owned()),
            discovery_url: Some(format!("{ISSUER}/.well-known/openid-configuration")),
            username_prefix: Some("hub:".to_owned()),
            cluster_resource_namespace: Some("keyferry-system".to_owned()),
            certificate_authority: Some("Secret".to_owned()),
            ..TargetClusterStatus::default()
        }
    }

    fn cluster(&self) -> ClusterStatus {
        let begins = self.now - SignedDuration::from_hours(2_000);
        let pem = authority_pem(&self.name, begins, self.authority_ends);
        ClusterStatus {
            server: Some(format!("https://{}.example.com:6443", self.name)),
            certificate_authority_data: Some(STANDARD.encode(pem)),
            tls_server_name: None,
            proxy_url: None,
            audience: Some(format!("https://{}.example.com", self.name)),
        }
    }
}

impl AccessPlan {
    /// Returns the TargetAccess for this target.
    pub fn object(&self, target: &TargetPlan) -> Value {
        let (namespace, name) = (&self.namespace, &self.name);
        let delivery = match (self.only_callers, self.writes_secret) {
            (true, _) => json!([]),
            (false, true) => json!([{ "name": "secret", "type": "KubeConfigSecret" }]),
            (false, false) => json!([{ "name": "flux", "type": "FluxConfigMap" }]),
        };
        let mut object = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess",
            "metadata": {
                "name": name, "namespace": namespace, "uid": uid(&format!("{namespace}/{name}")),
                "generation": 1, "resourceVersion": "8",
                "creationTimestamp": format_seconds(target.now - SignedDuration::from_hours(1_000)),
            },
            "spec": {
                "targetClusterRef": { "name": target.name }, "serviceAccountName": "reconciler",
                "deliveries": delivery,
            },
        });
        if target.state != TargetState::Unwritten {
            object["status"] = self.status(target);
        }
        object
    }

    fn status(&self, target: &TargetPlan) -> Value {
        let suspended = Finding::failed(Reason::TargetSuspended, "the target is suspended");
        let ok = || Finding::ok("policy grants every delivery");
        let is_suspended = target.state == TargetState::Suspended;
        let is_asked = !self.only_callers && !is_suspended;
        let (reachable, authenticates) = match target.state {
            TargetState::Unreachable => (
                Finding::failed(Reason::ProbeUnanswered, "connection refused"),
                Finding::unknown(Reason::ProbeUnanswered, "connection refused"),
            ),
            TargetState::Refusing => (
                Finding::ok("the target answers"),
                Finding::failed(
                    Reason::ProbeRefused,
                    "the target answered 401 to a token of this access",
                ),
            ),
            _ => (
                Finding::ok("the target answers"),
                Finding::ok("the target accepted a token of this access"),
            ),
        };
        let is_accepted = is_asked && authenticates.is_true();
        let username = format!("hub:system:serviceaccount:{}:reconciler", self.namespace);
        let report = AccessReport {
            authorized: if is_suspended { suspended } else { ok() },
            delivered: Finding::ok("every object is as rendered"),
            reachable: is_asked.then_some(reachable),
            authenticates: is_asked.then_some(authenticates),
            silence: (target.state == TargetState::Unreachable)
                .then_some(SilenceCause::ConnectionRefused),
            probed_at: is_asked.then_some(target.asked_at),
            identity: is_accepted.then(|| TargetIdentity {
                username,
                uid: String::new(),
                groups: vec![format!("hub:system:serviceaccounts:{}", self.namespace)],
            }),
            passes: is_suspended,
            deliveries: Vec::new(),
            left_over: self.report(target).into_iter().collect(),
            exposure_until: self.token_ends(target),
            handled: None,
        };
        let status = report.status(&json!({}), 1, target.now, Some(target.cluster()));
        json!(status)
    }

    /// When the token in its Secret ends: tokens live for twelve hours.
    fn token_ends(&self, target: &TargetPlan) -> Option<Timestamp> {
        let is_written = self.writes_secret && !self.only_callers;
        let ends = target.now - self.written_ago + SignedDuration::from_hours(12);
        is_written.then_some(ends)
    }

    fn report(&self, target: &TargetPlan) -> Option<DeliveryStatus> {
        if self.only_callers {
            return None;
        }
        let ends = self.token_ends(target);
        let renews = ends.map(|ends| ends - SignedDuration::from_hours(4));
        let key = if self.signed_by_old_key { OLD_KEY } else { KEY };
        let (delivery, object) = match self.writes_secret {
            true => ("KubeConfigSecret", format!("{}-kubeconfig", self.name)),
            false => ("FluxConfigMap", self.name.clone()),
        };
        Some(DeliveryStatus {
            name: if self.writes_secret { "secret" } else { "flux" }.to_owned(),
            delivery_type: delivery.to_owned(),
            object: Some(object),
            reason: "Delivered".to_owned(),
            message: None,
            expires_at: ends.map(format_seconds),
            renew_at: renews.map(format_seconds),
            token_id: ends.map(|_| uid(&self.name)),
            key_id: ends.map(|_| key.to_owned()),
        })
    }
}
