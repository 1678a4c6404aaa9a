//! The invariants. Each is judged from outside of the replicas, with the true time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use keyferry_hub::leadership::LeadershipReader;
use keyferry_hub::ports::SecretData;
use keyferry_issuer::managed_issuer::ManagedIssuers;
use keyferry_issuer::publication::PublicationReader;
use keyferry_platform::clock::Clock;

use crate::objects::TARGETS;
use crate::replica::{MAX_AGE, MAX_STALE};
use crate::world::{Link, REPLICAS, World};

/// How long a target may go on using a key set that it has fetched: its max-age, and most of the
/// margin that the activation delay leaves.
const LONGEST_USE_OF_KEYS: Duration = Duration::from_secs(MAX_AGE.as_secs() + 25);
/// A replica that has not read the shared state for this long is cut off. It still serves what it
/// knew, and targets are expected to reach another one.
const CUT_OFF_AFTER: Duration = Duration::from_secs(30);
/// How long a request or a reconciliation that was decided before a withdrawal may still take.
const DECISION_TIME: Duration = Duration::from_secs(10);
/// A replica that is cut off knows of no withdrawal and no revocation, and refuses everything when its
/// watches have failed for `maxStaleAuthorization`.
const BLIND_BOUND: Duration = Duration::from_secs(MAX_STALE.as_secs() + 10);

/// What one process shows to the outside.
pub(crate) struct ReplicaView {
    pub(crate) published: PublicationReader,
    pub(crate) managed: ManagedIssuers,
    pub(crate) leadership: LeadershipReader,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Since when something is withdrawn, and when each replica was shown it.
#[derive(Clone, Debug, Default)]
struct Withdrawal {
    since: Duration,
    seen_at: [Option<Duration>; REPLICAS],
}

impl Withdrawal {
    fn new(since: Duration) -> Self {
        Self {
            since,
            ..Self::default()
        }
    }

    /// Whether the replica should have stopped by now.
    fn is_over(&self, replica: usize, now: Duration) -> bool {
        self.seen_at[replica].is_some_and(|seen| now - seen > DECISION_TIME)
            || now - self.since > BLIND_BOUND
    }
}

/// How often each thing happened, to see that the schedules reach it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) exchanges: u64,
    pub(crate) refusals: u64,
    pub(crate) deliveries: u64,
    pub(crate) leader_changes: u64,
    pub(crate) keys_signing: u64,
    pub(crate) revocations: u64,
}

/// What was seen, and what of it was wrong.
#[derive(Default)]
pub(crate) struct Oracle {
    pub(crate) views: [Option<ReplicaView>; REPLICAS],
    pub(crate) violations: Vec<String>,
    pub(crate) counts: Counts,
    pub(crate) first_journal: Option<SecretData>,
    recorded: BTreeSet<String>,
    signing_kids: BTreeSet<String>,
    /// When a replica that targets reach last published a key set without the key.
    last_lack: BTreeMap<String, Duration>,
    managed_kids: BTreeSet<String>,
    /// By the `kid`; a replica is shown it when it reads the journal.
    revoked: BTreeMap<String, Withdrawal>,
    /// When each replica last read the journal.
    journal_read: [Option<Duration>; REPLICAS],
    key_set_read: [Option<Duration>; REPLICAS],
    /// By target, or by the UID of a ServiceAccount that no longer exists.
    denied: BTreeMap<String, Withdrawal>,
    last_leader: Option<usize>,
}

impl Oracle {
    pub(crate) fn note_record(&mut self, token_id: Option<String>) {
        self.recorded.extend(token_id);
    }

    /// A replica has read the journal, which it asked for at `asked`.
    pub(crate) fn note_journal_read(&mut self, replica: usize, asked: Duration, now: Duration) {
        self.journal_read[replica] = Some(now);
        for revocation in self.revoked.values_mut().filter(|it| it.since < asked) {
            revocation.seen_at[replica].get_or_insert(now);
        }
    }

    pub(crate) fn note_key_set_read(&mut self, replica: usize, now: Duration) {
        self.key_set_read[replica] = Some(now);
    }

    pub(crate) fn note_revocation(&mut self, kid: &str, now: Duration) {
        self.counts.revocations += 1;
        self.revoked
            .entry(kid.to_owned())
            .or_insert(Withdrawal::new(now));
    }

    /// A target stopped allowing its tenant, or the ServiceAccount of this UID was deleted.
    pub(crate) fn note_denial(&mut self, target_or_uid: &str, now: Duration) {
        let withdrawal = Withdrawal::new(now);
        self.denied
            .entry(target_or_uid.to_owned())
            .or_insert(withdrawal);
    }

    pub(crate) fn note_permission(&mut self, target: &str) {
        self.denied.remove(target);
    }

    /// A replica has been told of everything that was withdrawn before `since`.
    pub(crate) fn note_watched(&mut self, replica: usize, since: Duration, now: Duration) {
        for withdrawal in self.denied.values_mut().filter(|it| it.since <= since) {
            withdrawal.seen_at[replica].get_or_insert(now);
        }
    }

    /// A process has ended: what it knew is gone.
    pub(crate) fn forget_replica(&mut self, replica: usize) {
        self.views[replica] = None;
        self.journal_read[replica] = None;
        self.key_set_read[replica] = None;
        for withdrawal in self.denied.values_mut().chain(self.revoked.values_mut()) {
            withdrawal.seen_at[replica] = None;
        }
    }

    fn observe(&mut self, now: Duration) {
        let is_recent = |at: Option<Duration>| at.is_some_and(|at| now - at <= CUT_OFF_AFTER);
        for replica in 0..REPLICAS {
            let Some(view) = &self.views[replica] else {
                continue;
            };
            if is_recent(self.journal_read[replica])
                && let Some(published) = view.published.current()
            {
                for kid in World::hub_kids() {
                    if published.keys.get(kid).is_none() {
                        self.last_lack.insert(kid.to_owned(), now);
                    }
                }
            }
            let managed = view.managed.find_by_name(TARGETS[1]);
            if let Some(documents) = managed.and_then(|managed| managed.documents.clone()) {
                self.managed_kids
                    .extend(documents.keys.kids().map(str::to_owned));
                if is_recent(self.key_set_read[replica]) {
                    let lacks = |kid: &&String| documents.keys.get(kid.as_str()).is_none();
                    for kid in self.managed_kids.iter().filter(lacks) {
                        self.last_lack.insert(kid.clone(), now);
                    }
                }
            }
        }
        self.check_revoked(now);
        self.note_leader();
    }

    /// No withdrawn key comes back: who has read its revocation never publishes it.
    fn check_revoked(&mut self, now: Duration) {
        for replica in 0..REPLICAS {
            let view = self.views[replica].as_ref();
            let Some(published) = view.and_then(|view| view.published.current()) else {
                continue;
            };
            let is_seen = |it: &Withdrawal| it.seen_at[replica].is_some_and(|seen| now > seen);
            for (kid, revocation) in self.revoked.iter().filter(|(_, it)| is_seen(it)) {
                if published.keys.get(kid).is_some() {
                    self.violations.push(format!(
                        "replica {replica} publishes {kid} at {now:?}: {revocation:?}"
                    ));
                }
            }
        }
    }

    fn leaders(&self) -> impl Iterator<Item = usize> {
        (0..REPLICAS).filter(|replica| {
            let view = self.views[*replica].as_ref();
            view.is_some_and(|view| view.leadership.leads(view.clock.now()))
        })
    }

    fn note_leader(&mut self) {
        let leader = self.leaders().next();
        if leader.is_some() && leader != self.last_leader {
            self.counts.leader_changes += 1;
            self.last_leader = leader;
        }
    }

    fn check_key(&mut self, kid: &str, what: &str, now: Duration) {
        if self.signing_kids.insert(kid.to_owned()) {
            self.counts.keys_signing += 1;
        }
        // A revoked key is to be missing: until when its tokens are issued is another question.
        if let Some(lack) = self.last_lack.get(kid)
            && !self.revoked.contains_key(kid)
            && now.saturating_sub(*lack) < LONGEST_USE_OF_KEYS
        {
            self.violations.push(format!(
                "{what}: a target may lack the key at {now:?}: a replica lacked it at {lack:?}"
            ));
        }
    }

    /// Nothing that was withdrawn is issued later than its bound: an access, an account, a key.
    fn check_withdrawal(&mut self, replica: usize, subject: &str, what: &str, now: Duration) {
        let withdrawal = self
            .denied
            .get(subject)
            .or_else(|| self.revoked.get(subject));
        if let Some(withdrawal) = withdrawal.filter(|it| it.is_over(replica, now)) {
            self.violations
                .push(format!("{what}: {subject} at {now:?}: {withdrawal:?}"));
        }
    }
}

/// Looks at what every replica shows now.
pub(crate) fn observe(world: &World) {
    world.oracle.lock().observe(world.now());
}

/// A token that leaves a replica.
pub(crate) struct IssuedToken<'a> {
    pub(crate) route: &'a str,
    pub(crate) token_id: &'a str,
    pub(crate) kid: &'a str,
    pub(crate) target: &'a str,
    /// The UID of its ServiceAccount, where it is known.
    pub(crate) uid: Option<String>,
}

/// Checks a token that leaves a replica.
pub(crate) fn check_issuance(link: &Link, token: &IssuedToken<'_>) {
    let IssuedToken {
        route,
        token_id,
        kid,
        target,
        uid,
    } = token;
    let now = link.world.now();
    let issuance = format!("replica {} {route} for {target}", link.replica);
    let mut oracle = link.world.oracle.lock();
    oracle.observe(now);
    match *route {
        "delivery" => oracle.counts.deliveries += 1,
        _ => oracle.counts.exchanges += 1,
    }
    if !oracle.recorded.contains(*token_id) {
        oracle
            .violations
            .push(format!("{issuance}: no record at {now:?}"));
    }
    oracle.check_key(kid, &issuance, now);
    for subject in [Some(*target), Some(*kid), uid.as_deref()]
        .into_iter()
        .flatten()
    {
        oracle.check_withdrawal(link.replica, subject, &issuance, now);
    }
    drop(oracle);
    link.note(&format!("issued {route} {target}"));
}

/// Checks a write of the controller when it is sent: no two leaders write.
pub(crate) fn check_leadership(link: &Link, verb: &str, path: &str) {
    let now = link.world.now();
    let mut oracle = link.world.oracle.lock();
    let leaders: Vec<usize> = oracle.leaders().collect();
    if leaders != [link.replica] {
        oracle.violations.push(format!(
            "replica {} sends {verb} {path} at {now:?} while {leaders:?} lead",
            link.replica
        ));
    }
}

impl Counts {
    pub(crate) fn add(&mut self, other: Self) {
        self.exchanges += other.exchanges;
        self.refusals += other.refusals;
        self.deliveries += other.deliveries;
        self.leader_changes += other.leader_changes;
        self.keys_signing += other.keys_signing;
        self.revocations += other.revocations;
    }
}
