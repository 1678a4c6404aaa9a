//! Replicas that read, write, restart and disagree about the time, over one store with
//! compare-and-swap.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const REPLICAS: usize = 3;
/// Clocks of replicas that have just started differ from the true time by less than this. A replica
/// whose clock differs more does not start.
const SKEW: i64 = 25;

#[derive(Clone, Debug)]
enum Step {
    /// Time passes.
    Wait(u64),
    /// A replica reads the store.
    Read(usize),
    /// A replica writes the change that is due by its last reading.
    Write(usize),
    /// A replica signs, if it is allowed to.
    Sign(usize),
    /// A replica restarts without any observations.
    Restart(usize, i64),
    /// A replica's wall clock jumps.
    Jump(usize, i64),
    /// A user requests a rotation.
    Ask,
}

fn step() -> impl Strategy<Value = Step> {
    let one = || 0..REPLICAS;
    prop_oneof![
        4 => (1u64..40).prop_map(Step::Wait),
        1 => (3600u64..20 * 3600).prop_map(Step::Wait),
        6 => one().prop_map(Step::Read),
        4 => one().prop_map(Step::Write),
        4 => one().prop_map(Step::Sign),
        1 => (one(), -SKEW..SKEW).prop_map(|(replica, skew)| Step::Restart(replica, skew)),
        1 => (one(), -3 * 86_400i64..3 * 86_400).prop_map(|(replica, by)| Step::Jump(replica, by)),
        1 => Just(Step::Ask),
    ]
}

struct Stored {
    text: String,
    version: usize,
}

#[derive(Default)]
struct Replica {
    skew: i64,
    started: bool,
    sightings: Sightings,
    read: Option<(u64, usize, KeySet)>,
    /// The kid that it may sign with until the reading is too old.
    signs: Option<String>,
}

struct World {
    now: u64,
    fresh: usize,
    asked: usize,
    store: Stored,
    /// When each key was first in the store.
    stored_at: BTreeMap<String, u64>,
    /// When the last token of each key expires.
    good_until: BTreeMap<String, u64>,
    replicas: Vec<Replica>,
}

impl World {
    fn new() -> Self {
        let set = first(at(0));
        let stored_at = set
            .public_keys()
            .map(|(key, _)| (key.kid().to_owned(), 0))
            .collect();
        let store = Stored {
            text: write_key_set(&set).to_string(),
            version: 1,
        };
        let replicas = (0..REPLICAS).map(|_| Replica::default()).collect();
        Self {
            now: 0,
            fresh: 2,
            asked: 0,
            store,
            stored_at,
            good_until: BTreeMap::new(),
            replicas,
        }
    }

    fn moment(&self, replica: usize) -> Moment {
        with_wall(at(self.now), self.replicas[replica].skew)
    }

    fn request(&self) -> Option<String> {
        (self.asked > 0).then(|| self.asked.to_string())
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Wait(seconds) => self.now += seconds,
            Step::Read(replica) => self.read(replica),
            Step::Write(replica) => self.write(replica),
            Step::Sign(replica) => self.sign(replica),
            Step::Restart(replica, skew) => {
                self.replicas[replica] = Replica {
                    skew,
                    ..Replica::default()
                }
            }
            // A replica with a wrong clock before its first reading would not have started.
            Step::Jump(replica, by) if self.replicas[replica].started => {
                self.replicas[replica].skew += by
            }
            Step::Jump(..) => {}
            Step::Ask => self.asked += 1,
        }
        self.check();
    }

    fn read(&mut self, replica: usize) {
        let moment = self.moment(replica);
        let set = super::read_key_set(self.store.text.as_bytes()).unwrap();
        let it = &mut self.replicas[replica];
        it.started = true;
        it.sightings.note_reading(&set, "one", WAIT, moment);
        it.signs = it
            .sightings
            .is_active(set.current.key.kid(), moment)
            .then(|| set.current.key.kid().to_owned());
        it.read = Some((self.now, self.store.version, set));
    }

    fn write(&mut self, replica: usize) {
        let (moment, request, fresh) = (self.moment(replica), self.request(), self.fresh);
        let Some((_, version, set)) = self.replicas[replica].read.take() else {
            return;
        };
        let seen = &self.replicas[replica].sightings;
        let Some(change) = due_change(&set, seen, request.as_deref(), &POLICY, moment) else {
            return;
        };
        if version != self.store.version || fresh >= POOL.len() {
            return;
        }
        let change = match change {
            Change::Promote => ReadyChange::Promote {
                fresh: key(fresh),
                asked_for: request,
            },
            Change::Tidy => ReadyChange::Tidy,
        };
        let set = set.apply_change(change, seen, moment);
        for (key, _) in set.public_keys() {
            self.stored_at
                .entry(key.kid().to_owned())
                .or_insert(self.now);
        }
        self.fresh += 1;
        self.store = Stored {
            text: super::write_key_set(&set).to_string(),
            version: version + 1,
        };
    }

    fn sign(&mut self, replica: usize) {
        let it = &self.replicas[replica];
        let Some((read_at, ..)) = it.read else { return };
        let (Some(kid), true) = (&it.signs, self.now - read_at <= READING_GOOD_FOR.as_secs())
        else {
            return;
        };
        let soaked = i64::try_from(self.now - self.stored_at[kid]).unwrap();
        assert!(
            soaked + 2 * SKEW >= i64::try_from(WAIT.as_secs()).unwrap(),
            "signed {soaked} s after the key was published"
        );
        let until = self.good_until.entry(kid.clone()).or_default();
        *until = (*until).max(self.now + lifetime::MAX.as_secs());
    }

    /// Checks that each replica with a recent reading publishes every key that signed a valid
    /// token.
    fn check(&self) {
        for (index, it) in self.replicas.iter().enumerate() {
            let Some((read_at, ..)) = it.read else {
                continue;
            };
            if self.now - read_at > READING_GOOD_FOR.as_secs() {
                continue;
            }
            let published = it.sightings.published_keys().unwrap();
            for (kid, until) in &self.good_until {
                assert!(
                    *until <= self.now || published.get(kid).is_some(),
                    "replica {index} does not publish {kid} at {}",
                    self.now
                );
            }
            assert!(published.len() <= MAX_PUBLISHED);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_token_is_signed_before_its_key_is_active_and_none_outlives_its_key(steps in prop::collection::vec(step(), 1..250)) {
        let mut world = World::new();
        // The first minutes have no jumps: for a first set, no earlier observation exists to rely
        // on.
        for replica in 0..REPLICAS {
            world.take(Step::Read(replica));
        }
        world.take(Step::Wait(WAIT.as_secs()));
        for step in steps {
            world.take(step);
        }
    }
}

#[test]
fn the_simulation_rotates_and_signs() {
    let mut world = World::new();
    let mut signed = std::collections::BTreeSet::new();
    for round in 0..40 {
        for replica in 0..REPLICAS {
            for step in [
                Step::Read(replica),
                Step::Write(replica),
                Step::Read(replica),
                Step::Sign(replica),
            ] {
                world.take(step);
            }
        }
        signed.extend(world.good_until.keys().cloned());
        world.take(Step::Wait(20));
        if round % 8 == 0 {
            world.take(Step::Ask);
        }
    }
    assert!(signed.len() >= 4, "only {} keys signed", signed.len());
}
