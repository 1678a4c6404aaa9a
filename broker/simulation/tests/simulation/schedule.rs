//! Runs one schedule: the replicas, their callers, and what the plan does to them.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keyferry_api::config::DeliveryType;
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_core::caller::PresentedToken;
use keyferry_hub::key_record_store::KeyRecordStore;
use keyferry_hub::ports::{SecretStore, StoredSecret};
use keyferry_listener::Source;
use keyferry_server::broker::{Broker, Credential, Request};
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::{sleep, timeout};
use zeroize::Zeroizing;

use crate::draw::{SeededRandomness, draw};
use crate::hub_keys::HUB_KEYS;
use crate::mistake::Mistake;
use crate::objects::{self, ACCESSES, ACCOUNTS, TARGETS};
use crate::oracle::{self, Counts, IssuedToken};
use crate::plan::{Event, Planned, SCHEDULE_LENGTH, draw_plan};
use crate::replica::Replica;
use crate::world::{Link, REPLICAS, World};

/// The callers: the ServiceAccount, and the access that it asks for.
const CALLERS: [(usize, usize); 3] = [(0, 0), (1, 1), (2, 0)];
/// How long a caller waits for an answer.
const CALLER_PATIENCE: Duration = Duration::from_secs(40);
/// How long a replica that was killed is away.
const RESTART_PAUSE: Duration = Duration::from_secs(2);

/// What a schedule brought.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Equal for equal seeds.
    pub(crate) hash: u64,
    pub(crate) violations: Vec<String>,
    pub(crate) counts: Counts,
    pub(crate) lines: Vec<String>,
}

/// What somebody writes in the place of the key journal's seal.
pub(crate) const BROKEN_SEAL: &[u8] = b"no seal";

type Replicas = Arc<Mutex<[Option<Replica>; REPLICAS]>>;

/// Runs the schedule of a seed, in virtual time.
pub(crate) fn run_schedule(seed: u64, mistake: Option<Mistake>, keeps_lines: bool) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let outcome = runtime.block_on(run_plan(seed, mistake, keeps_lines));
    runtime.shutdown_background();
    outcome
}

async fn run_plan(seed: u64, mistake: Option<Mistake>, keeps_lines: bool) -> Outcome {
    let world = Arc::new(World::new(seed, mistake, keeps_lines));
    objects::create_all(&world);
    let replicas: Replicas = Arc::default();
    for replica in 0..REPLICAS {
        replicas.lock()[replica] = Some(Replica::start(&world, replica, 0));
        // The first replica writes the first journal alone, as after an installation.
        sleep(Duration::from_millis(700)).await;
    }
    for caller in 0..CALLERS.len() {
        tokio::spawn(run_caller(
            Arc::clone(&world),
            Arc::clone(&replicas),
            caller,
        ));
    }
    let mut restarts = 0;
    for planned in draw_plan(seed) {
        let at = Duration::from_millis(planned.at);
        sleep(at.saturating_sub(world.now())).await;
        world.note(&format!("event {:?}", planned.event));
        if let Event::Restart(replica) = planned.event {
            restarts += 1;
            restart_replica(&world, &replicas, replica, restarts);
        } else {
            let world = Arc::clone(&world);
            // A revocation waits for the hub, and other events do not wait for it.
            tokio::spawn(async move { apply_event(&world, planned).await });
        }
    }
    sleep(Duration::from_millis(SCHEDULE_LENGTH).saturating_sub(world.now())).await;
    oracle::observe(&world);
    let (hash, lines) = world.finish_trace();
    let mut oracle = world.oracle.lock();
    Outcome {
        hash,
        violations: std::mem::take(&mut oracle.violations),
        counts: oracle.counts,
        lines,
    }
}

fn restart_replica(world: &Arc<World>, replicas: &Replicas, replica: usize, process: u64) {
    if let Some(running) = replicas.lock()[replica].take() {
        running.kill();
    }
    let (world, replicas) = (Arc::clone(world), Arc::clone(replicas));
    tokio::spawn(async move {
        sleep(RESTART_PAUSE).await;
        let slot = &mut replicas.lock()[replica];
        if slot.is_none() {
            world.correct_clock(replica);
            *slot = Some(Replica::start(&world, replica, process));
        }
    });
}

async fn apply_event(world: &Arc<World>, planned: Planned) {
    let now = world.now();
    match planned.event {
        Event::StepClock(replica, seconds) => world.step_clock(replica, seconds),
        Event::ListKey => {
            let mut hub = world.hub.lock();
            let next = hub
                .listed
                .last()
                .map_or(0, |last| last + 1)
                .max(hub.signing);
            if next < HUB_KEYS.len() {
                hub.listed.insert(next);
            }
        }
        Event::SignWithNext => {
            let mut hub = world.hub.lock();
            hub.signing = (hub.signing + 1).min(HUB_KEYS.len() - 1);
        }
        Event::UnlistOthers => {
            let mut hub = world.hub.lock();
            hub.listed = [hub.signing].into();
        }
        Event::Revoke => revoke_key(world).await,
        Event::RotateManaged => {
            if world.issuer_keys.object.lock().unwrap().is_some() {
                let request = now.as_millis().to_string();
                world
                    .issuer_keys
                    .edit(|object| object.request = Some(request));
            }
        }
        Event::Deny(target) => {
            world.oracle.lock().note_denial(TARGETS[target], now);
            objects::set_allowed(world, target, false);
        }
        Event::Allow(target) => {
            // A target that drains allows nobody again.
            if !objects::is_draining(world, target) {
                world.oracle.lock().note_permission(TARGETS[target]);
            }
            objects::set_allowed(world, target, true);
        }
        Event::Recreate(account) => recreate_account(world, account),
        Event::Drain(target) => {
            world.oracle.lock().note_denial(TARGETS[target], now);
            objects::delete_target(world, target);
        }
        Event::BreakSeal => break_seal(world).await,
        lasting => world.start_failure(lasting, Duration::from_millis(planned.lasts)),
    }
    world.note_object_write();
}

/// Runs `keyferry revoke`, for a key that another one has replaced if there is one.
async fn revoke_key(world: &Arc<World>) {
    let kid = {
        let hub = world.hub.lock();
        HUB_KEYS[hub.signing.saturating_sub(1)].kid.clone()
    };
    let secrets = Arc::new(crate::admin::AdminSecrets(Arc::clone(world)));
    let store = KeyRecordStore::new(secrets, Arc::new(SeededRandomness::new(world.seed)));
    for _ in 0..10 {
        let Ok(Some(found)) = store.read_record().await else {
            return;
        };
        let revoked = found
            .sealed_journal()
            .and_then(|journal| journal.with_revoked(&kid, world.wall()));
        let Some(revoked) = revoked else { return };
        if store
            .write_record(Some(&found), &revoked)
            .await
            .is_ok_and(|written| written)
        {
            world.oracle.lock().note_revocation(&kid, world.now());
            return world.note(&format!("revoked {kid}"));
        }
    }
}

/// A ServiceAccount is another one from now on: what was granted to the old one is withdrawn.
fn recreate_account(world: &World, account: usize) {
    let mut hub = world.hub.lock();
    let (namespace, name) = ACCOUNTS[account];
    hub.accounts_version += 1;
    let uid = format!("{namespace}-{name}-{}", hub.accounts_version);
    let former = hub
        .accounts
        .insert((namespace.to_owned(), name.to_owned()), uid);
    drop(hub);
    world
        .oracle
        .lock()
        .note_denial(&former.unwrap(), world.now());
}

async fn break_seal(world: &World) {
    let name = ObjectName::new("keyferry-keys").unwrap();
    if let Ok(Some(StoredSecret { version, mut data })) = world.secrets.get(&name).await {
        data.insert("seal".to_owned(), Zeroizing::new(BROKEN_SEAL.to_vec()));
        let _ = world.secrets.replace(&name, &version, &data).await;
    }
}

/// Asks for tokens until the schedule ends.
async fn run_caller(world: Arc<World>, replicas: Replicas, caller: usize) {
    let (account, access) = CALLERS[caller];
    let mut token: Option<(String, SecretString)> = None;
    for count in 0.. {
        let drawn = draw(world.seed, &format!("caller {caller}"), count);
        sleep(Duration::from_millis(500 + drawn % 7_000)).await;
        let replica = (drawn >> 32) as usize % REPLICAS;
        let running = replicas.lock()[replica]
            .as_ref()
            .map(|running| (Arc::clone(&running.link), Arc::clone(&running.broker)));
        let Some((link, broker)) = running else {
            continue;
        };
        let uid = present_uid(&world, account);
        if token.as_ref().is_none_or(|(of, _)| *of != uid) {
            let (namespace, name) = ACCOUNTS[account];
            let fresh = world.caller_token(namespace, name, &format!("{drawn:x}"));
            token = Some((uid, SecretString::from(fresh)));
        }
        if let Some((_, token)) = &token {
            ask_for_token(&link, &broker, token, ACCESSES[access], caller).await;
        }
    }
}

fn present_uid(world: &World, account: usize) -> String {
    let (namespace, name) = ACCOUNTS[account];
    let hub = world.hub.lock();
    hub.accounts[&(namespace.to_owned(), name.to_owned())].clone()
}

async fn ask_for_token(
    link: &Link,
    broker: &Broker,
    token: &SecretString,
    access: &str,
    caller: usize,
) {
    let request = Request {
        route: "exchange",
        credential: Credential::Token(PresentedToken::new(token.expose_secret())),
        access: AccessName::parse(access).unwrap(),
        min_ttl: None,
        scope: None,
        needs_cluster: false,
        deliveries: &[DeliveryType::HTTP],
        request_id: (caller as u64).into(),
        source: Source::default(),
    };
    match timeout(CALLER_PATIENCE, broker.issue_credential(&request)).await {
        Ok(Ok(issued)) => {
            let token = IssuedToken {
                route: "exchange",
                token_id: issued.token.token_id(),
                kid: issued.token.kid(),
                target: issued.target.as_str(),
                uid: Some(uid_of(issued.token.secret().expose_secret())),
            };
            oracle::check_issuance(link, &token);
        }
        Ok(Err(refusal)) => {
            link.world.oracle.lock().counts.refusals += 1;
            link.note(&format!("refused {caller} {}", refusal.reason.as_str()));
        }
        Err(_) => link.note(&format!("caller {caller} gave up")),
    }
}

/// The UID of the ServiceAccount that a token is for.
fn uid_of(token: &str) -> String {
    let payload = URL_SAFE_NO_PAD
        .decode(token.split('.').nth(1).unwrap())
        .unwrap();
    let claims: serde_json::Value = serde_json::from_slice(&payload).unwrap();
    let uid = &claims["kubernetes.io"]["serviceaccount"]["uid"];
    uid.as_str().unwrap().to_owned()
}
