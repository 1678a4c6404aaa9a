//! Clients of every kind that a rehearsal speaks of. Each calls once a second, and writes down how
//! that ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use keyferry_integration::http_client::{names_unknown_issuer, trusting};
use keyferry_integration::runner::TestError;
use keyferry_integration::world::on_hub::{OnHub, audience, secret_path};
use keyferry_integration::world::{CALLER_AUDIENCE, claims};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

const CALL_INTERVAL: Duration = Duration::from_secs(1);
/// A call that takes longer counts as refused: no client waits longer.
const CALL_LIMIT: Duration = Duration::from_secs(40);
/// How long a reader waits for the hub before it uses what it read last.
const READ_LIMIT: Duration = Duration::from_secs(2);
/// The life of callers' tokens: longer than any scenario.
const CALLER_TOKEN_SECONDS: u64 = 3600;
/// A client that has not called before calls this often.
const NEW_CALLER_INTERVAL: Duration = Duration::from_secs(3);

/// One call, and how it ended.
#[derive(Debug)]
pub(super) struct ObservedCall {
    /// The callers of the prediction that it stands for.
    pub(super) classes: &'static [&'static str],
    pub(super) access: String,
    pub(super) target: &'static str,
    pub(super) sent: Timestamp,
    pub(super) answered: Timestamp,
    /// The reason, if it was refused.
    pub(super) refused: Option<String>,
}

/// An access, and who uses it in which way.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) way: Way,
    pub(super) tenant: &'static str,
    pub(super) access: String,
    /// The ServiceAccount that it is, and mints for.
    pub(super) account: String,
    pub(super) target: &'static str,
}

/// How a client gets its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// It reads the delivered Secret before each call, and uses the last one it read while the hub
    /// does not answer.
    ReadsSecret,
    /// It mints by the hub before each call, and makes none if the hub does not mint.
    MintsItself,
    /// It asks Keyferry with a token that it has used before.
    AsksKeyferry,
    /// It asks Keyferry with another token each time.
    AsksAsNewCaller,
    /// It asks Keyferry for an access of which nobody asked before, once it is told to.
    AsksForNewAccess,
}

impl Way {
    fn classes(self) -> &'static [&'static str] {
        match self {
            Self::ReadsSecret => &["objectReader"],
            Self::MintsItself => &["ownMinter"],
            Self::AsksKeyferry => &["confirmedCaller", "anyCaller"],
            Self::AsksAsNewCaller => &["unconfirmedCaller", "anyCaller"],
            Self::AsksForNewAccess => &["callerWithoutToken", "unconfirmedCaller", "anyCaller"],
        }
    }
}

/// Clients that call until they are told to stop.
pub(super) struct Consumers {
    phase: watch::Sender<Phase>,
    running: JoinSet<Result<Vec<ObservedCall>, TestError>>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Phase {
    Before,
    Begun,
    Ended,
}

impl Consumers {
    /// Starts them. Callers that need a token for themselves get it before that.
    pub(super) async fn start(
        world: &Arc<OnHub>,
        clients: &[Client],
        new_callers: usize,
    ) -> Result<Self, TestError> {
        let phase = watch::Sender::new(Phase::Before);
        let mut running = JoinSet::new();
        for client in clients {
            let tokens = match client.way {
                Way::AsksKeyferry | Way::AsksForNewAccess => 1,
                Way::AsksAsNewCaller => new_callers,
                Way::ReadsSecret | Way::MintsItself => 0,
            };
            let mut caller_tokens = Vec::new();
            for _ in 0..tokens {
                let minted = world
                    .hub
                    .token_request(
                        client.tenant,
                        &client.account,
                        &[CALLER_AUDIENCE],
                        CALLER_TOKEN_SECONDS,
                    )
                    .await?;
                caller_tokens.push(minted.token);
            }
            let consumer = Consumer {
                world: Arc::clone(world),
                client: client.clone(),
                caller_tokens,
                last_read: None,
                http: BTreeMap::new(),
            };
            running.spawn(consumer.call_until_ended(phase.subscribe()));
        }
        Ok(Self { phase, running })
    }

    /// Lets those begin that ask for an access of which nobody asked before.
    pub(super) fn begin(&self) {
        self.phase.send_replace(Phase::Begun);
    }

    /// Stops them, and returns their calls.
    pub(super) async fn end(mut self) -> Result<Vec<ObservedCall>, TestError> {
        self.phase.send_replace(Phase::Ended);
        let mut calls = Vec::new();
        while let Some(of_one) = self.running.join_next().await {
            calls.extend(of_one??);
        }
        Ok(calls)
    }
}

/// A client, and what it holds.
struct Consumer {
    world: Arc<OnHub>,
    client: Client,
    caller_tokens: Vec<String>,
    last_read: Option<Credential>,
    /// By the CA that it trusts.
    http: BTreeMap<String, reqwest::Client>,
}

/// What a delivered kubeconfig has.
#[derive(Clone)]
struct Credential {
    token: String,
    ca_pem: String,
}

impl Consumer {
    async fn call_until_ended(
        mut self,
        mut phase: watch::Receiver<Phase>,
    ) -> Result<Vec<ObservedCall>, TestError> {
        if self.client.way == Way::AsksForNewAccess {
            phase.wait_for(|phase| *phase >= Phase::Begun).await?;
        }
        let interval = match self.client.way {
            Way::AsksAsNewCaller => NEW_CALLER_INTERVAL,
            _ => CALL_INTERVAL,
        };
        let mut ticks = tokio::time::interval_at(Instant::now(), interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut calls = Vec::new();
        loop {
            tokio::select! {
                _ = phase.wait_for(|phase| *phase == Phase::Ended) => return Ok(calls),
                _ = ticks.tick() => {}
            }
            calls.extend(self.call().await?);
        }
    }

    /// Makes one call; `None` if it had nothing to call with.
    async fn call(&mut self) -> Result<Option<ObservedCall>, TestError> {
        let credential = match self.client.way {
            Way::ReadsSecret => self.read_secret().await,
            Way::MintsItself => self.mint().await,
            _ => return self.ask_keyferry().await,
        };
        let Some(credential) = credential else {
            return Ok(None);
        };
        let sent = Timestamp::now();
        let refused = self.call_target(&credential).await?;
        Ok(Some(self.observed(sent, refused)))
    }

    fn observed(&self, sent: Timestamp, refused: Option<String>) -> ObservedCall {
        ObservedCall {
            classes: self.client.way.classes(),
            access: format!("{}/{}", self.client.tenant, self.client.access),
            target: self.client.target,
            sent,
            answered: Timestamp::now(),
            refused,
        }
    }

    /// The delivered credential: as it is now, or as it was read last.
    async fn read_secret(&mut self) -> Option<Credential> {
        let path = secret_path(
            self.client.tenant,
            &format!("{}-kubeconfig", self.client.access),
        );
        let read = tokio::time::timeout(READ_LIMIT, self.world.hub.admin().get(&path)).await;
        if let Ok(Ok(secret)) = read
            && let Some(credential) = Credential::of_secret(&secret)
        {
            self.last_read = Some(credential);
        }
        self.last_read.clone()
    }

    /// A token that the hub mints for the target, as Flux does.
    async fn mint(&self) -> Option<Credential> {
        let audiences = [audience(self.client.target)];
        let audiences: Vec<&str> = audiences.iter().map(String::as_str).collect();
        let minted = self.world.hub.token_request(
            self.client.tenant,
            &self.client.account,
            &audiences,
            3600,
        );
        let minted = tokio::time::timeout(READ_LIMIT, minted).await.ok()?.ok()?;
        // Its CA is the one that the platform admin gave last.
        let path = format!(
            "/apis/keyferry.dev/v1alpha1/targetclusters/{}",
            self.client.target
        );
        let read = self.world.hub.admin().get(&path);
        let target = tokio::time::timeout(READ_LIMIT, read).await.ok()?.ok()?;
        Some(Credential {
            token: minted.token,
            ca_pem: target["spec"]["caBundle"].as_str()?.to_owned(),
        })
    }

    /// Why the target refused, if it did.
    async fn call_target(&mut self, credential: &Credential) -> Result<Option<String>, TestError> {
        let target = self
            .world
            .targets
            .iter()
            .find(|target| target.name() == self.client.target)
            .ok_or("no such target")?;
        let http = match self.http.get(&credential.ca_pem) {
            Some(http) => http.clone(),
            None => {
                let http = trusting(&credential.ca_pem)?;
                self.http.insert(credential.ca_pem.clone(), http.clone());
                http
            }
        };
        let review =
            json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
        let answer = http
            .post(format!(
                "{}/apis/authentication.k8s.io/v1/selfsubjectreviews",
                target.url()
            ))
            .bearer_auth(&credential.token)
            .timeout(CALL_LIMIT)
            .json(&review)
            .send()
            .await;
        match answer {
            Ok(answer) if answer.status() == 201 => Ok(None),
            Ok(answer) if answer.status() == 401 => Ok(Some(credential.refusal()?.to_owned())),
            Ok(answer) => Err(format!("{:?}: {}", self.client, answer.status()).into()),
            Err(error) if names_unknown_issuer(&error) => Ok(Some("TargetUntrusted".to_owned())),
            Err(error) => Err(error.into()),
        }
    }

    async fn ask_keyferry(&mut self) -> Result<Option<ObservedCall>, TestError> {
        let token = match self.client.way {
            Way::AsksAsNewCaller => self.caller_tokens.pop(),
            _ => self.caller_tokens.last().cloned(),
        };
        let Some(token) = token else {
            return Ok(None);
        };
        let access = format!("{}/{}", self.client.tenant, self.client.access);
        let sent = Timestamp::now();
        let exchange = self.world.broker.exchange(&token, &access);
        let refused = match tokio::time::timeout(CALL_LIMIT, exchange).await {
            Ok(Ok(answer)) if answer.status == 200 => None,
            // A server that has just started answers before it judges, without a record.
            Ok(Ok(answer)) if answer.request_id.is_empty() => Some(
                answer.json()?["error"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned(),
            ),
            Ok(Ok(answer)) => {
                let record = self.world.broker.audit_of(&answer.request_id)?;
                Some(record["reason"].as_str().unwrap_or_default().to_owned())
            }
            Ok(Err(_)) | Err(_) => Some("NoConnection".to_owned()),
        };
        Ok(Some(self.observed(sent, refused)))
    }
}

impl Credential {
    fn of_secret(secret: &Value) -> Option<Self> {
        let kubeconfig = STANDARD.decode(secret["data"]["value"].as_str()?).ok()?;
        let kubeconfig: Value =
            serde_saphyr::from_str(&String::from_utf8(kubeconfig).ok()?).ok()?;
        let ca = kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"].as_str()?;
        Some(Self {
            token: kubeconfig["users"][0]["user"]["token"].as_str()?.to_owned(),
            ca_pem: String::from_utf8(STANDARD.decode(ca).ok()?).ok()?,
        })
    }

    /// Why a target refuses it, which its answer does not say.
    fn refusal(&self) -> Result<&'static str, TestError> {
        let expires_at = claims(&self.token)?["exp"].as_i64().ok_or("no exp")?;
        Ok(if Timestamp::now().as_second() >= expires_at {
            "TokenExpired"
        } else {
            "SignatureInvalid"
        })
    }
}
