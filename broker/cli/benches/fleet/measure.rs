//! Measures one fleet: creates it, watches it, adds accesses, and revokes some.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;

use std::time::{Duration, Instant};

use super::calls::{self, Call, Kind};
use super::credential;
use super::figures::{Figures, Process, Rise, Steady};
use super::hub::Hub;
use super::in_process;
use super::plan::{Access, Plan};
use super::revoke;
use super::seen::{ACCESSES, Seen, TARGET_CLUSTERS, WRITTEN};
use crate::harness::Outcome;
use crate::harness::process::{self, now};
use crate::harness::spread::Spread;

/// How long all accesses together may take to become ready.
const PATIENCE: Duration = Duration::from_secs(900);
/// How long the process is idle before its memory is read.
const REST: Duration = Duration::from_secs(5);
/// The lifetime of the short-lived tokens, in seconds.
const SHORT_LIFETIME: f64 = 600.0;

/// Measures everything.
pub async fn all(plan: Plan) -> Outcome<Figures> {
    process::complain("a hub with its tenants and targets ...\n")?;
    let hub = Hub::start(plan.targets).await?;
    let targets = Seen::watch(&hub.plane, TARGET_CLUSTERS);
    let (seen, secrets) = (
        Seen::watch(&hub.plane, ACCESSES),
        Seen::watch(&hub.plane, WRITTEN[0]),
    );
    let written = [secrets, Seen::watch(&hub.plane, WRITTEN[1])];
    targets
        .until(PATIENCE, "every TargetCluster being ready", |targets| {
            targets.ready() == plan.targets
        })
        .await?;
    tokio::time::sleep(REST).await;
    let machine = process::machine();
    let mut weighed = Weighed::start(hub.keyferry()?);
    weighed.note("idle, with its targets and no access");

    process::complain("the fleet ...\n")?;
    let accesses = plan.accesses();
    // Create the short-lived ones first, so that they are renewed while the fleet is watched.
    let everything = [plan.short_lived(), accesses.clone()].concat();
    let rise = rise(&hub, &everything, &seen).await?;
    weighed.note("when the last access is ready");
    tokio::time::sleep(REST).await;

    process::complain(&format!("watched for {:?} ...\n", plan.watched))?;
    weighed.note("a moment later");
    let steady = watched(&hub, plan).await?;
    weighed.note("after it was watched");
    process::complain("newcomers ...\n")?;
    let newcomers = newcomers(&hub, &plan.newcomers(), &seen).await?;
    process::complain("the exec plugin ...\n")?;
    let offered = accesses
        .get(plan.per_tenant)
        .ok_or("there is one tenant only")?;
    let credential = credential::measure(&hub, offered).await?;
    process::complain("a token for a program that runs ...\n")?;
    let in_process = in_process::measure(&hub, &accesses).await?;
    process::complain("an entry of allow[] ...\n")?;
    let revoked = revoke::measure(&hub, &accesses, &seen, &written).await?;
    Ok(Figures {
        machine,
        accesses: accesses.len(),
        targets: plan.targets,
        rise,
        steady,
        newcomers,
        credential,
        in_process,
        revoked,
        process: weighed.rows,
    })
}

async fn rise(hub: &Hub, everything: &[Access], seen: &Seen) -> Outcome<Rise> {
    let before = calls::so_far(&hub.plane)?.len();
    let made: Mutex<HashMap<String, Instant>> = Mutex::default();
    let begin = now();
    hub.make(everything, |access| {
        made.lock().insert(access.id(), now());
    })
    .await?;
    let last_made = now();
    let ready = seen
        .until(PATIENCE, "every access being ready", |seen| {
            seen.ready() == everything.len()
        })
        .await;
    if let Err(error) = ready {
        return Err(format!("{error}: {:?}", hub.first_unready().await?).into());
    }
    let made = made.into_inner();
    let mut each: Vec<f64> = made
        .iter()
        .filter_map(|(id, at)| {
            Some(
                seen.of(id)
                    .ready?
                    .saturating_duration_since(*at)
                    .as_secs_f64(),
            )
        })
        .collect();
    each.sort_unstable_by(f64::total_cmp);
    let last_ready = made
        .keys()
        .filter_map(|id| seen.of(id).ready)
        .max()
        .ok_or("nothing became ready")?;
    let calls = calls::so_far(&hub.plane)?.split_off(before);
    Ok(Rise {
        making: last_made - begin,
        until_ready: last_ready.saturating_duration_since(last_made),
        each,
        calls,
    })
}

async fn watched(hub: &Hub, plan: Plan) -> Outcome<Steady> {
    let before = calls::so_far(&hub.plane)?.len();
    tokio::time::sleep(plan.watched).await;
    let mut all = calls::so_far(&hub.plane)?;
    let per_lifetime = per_lifetime(&all);
    let calls = all.split_off(before);
    Ok(Steady {
        watched: plan.watched,
        calls,
        intervals: per_lifetime.len(),
        per_lifetime: Spread::of(per_lifetime),
    })
}

/// For each two successive TokenRequests of one short-lived key, how many such requests fit into a
/// lifetime.
fn per_lifetime(calls: &[Call]) -> Vec<f64> {
    let mut requests: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for call in calls
        .iter()
        .filter(|call| call.is_short_lived() && call.kind() == Kind::Token && call.code < 300)
    {
        requests.entry(&call.name).or_default().push(call.at);
    }
    let pairs = requests
        .values()
        .flat_map(|times| times.iter().zip(times.iter().skip(1)));
    pairs
        .map(|(one, next)| SHORT_LIFETIME / (next - one))
        .collect()
}

async fn newcomers(hub: &Hub, accesses: &[Access], seen: &Seen) -> Outcome<Option<Spread>> {
    let mut each = Vec::new();
    for access in accesses {
        hub.make(std::slice::from_ref(access), |_| {}).await?;
        let made = now();
        seen.until(PATIENCE, "a further access being ready", |seen| {
            seen.of(&access.id()).ready.is_some()
        })
        .await?;
        each.extend(
            seen.of(&access.id())
                .ready
                .map(|ready| ready.saturating_duration_since(made).as_secs_f64()),
        );
    }
    Ok(Spread::of(each))
}

/// The memory and CPU time of a process at several times.
struct Weighed {
    id: u32,
    at: Instant,
    cpu: Option<Duration>,
    rows: Vec<Process>,
}

impl Weighed {
    fn start(id: u32) -> Self {
        Self {
            id,
            at: now(),
            cpu: process::cpu_time_of(id),
            rows: Vec::new(),
        }
    }

    fn note(&mut self, when: &'static str) {
        let (at, cpu) = (now(), process::cpu_time_of(self.id));
        let spent = cpu
            .zip(self.cpu)
            .map(|(now, before)| now.saturating_sub(before));
        let elapsed = at.saturating_duration_since(self.at);
        self.rows.push(Process {
            when,
            resident: process::resident_kib(self.id),
            peak: process::peak_kib(self.id),
            cpu: spent,
            elapsed,
        });
        (self.at, self.cpu) = (at, cpu);
    }
}
