//! Two small models of the protocols between replicas, explored in every order of their steps: the
//! key journal with a target's cache, and the Lease.
//!
//! They are models: what holds here is the argument for the constants and the order of the steps in
//! the code, and `tests/simulation` runs the code itself. Time is counted in steps of 10 s, roughly.
//! Each model also runs with a constant that is too small, and with a step left out: a model that
//! cannot fail proves nothing.

#![allow(clippy::indexing_slicing, missing_docs)]

use std::collections::HashSet;
use std::hash::Hash;

const REPLICAS: usize = 2;
/// More states than either model has.
const MAX_STATES: usize = 5_000_000;

/// Visits every state that can be reached, and returns their number, or the first bad state.
fn explore<S: Clone + Eq + Hash + std::fmt::Debug>(
    initial: S,
    successors: impl Fn(&S) -> Vec<S>,
    is_bad: impl Fn(&S) -> bool,
) -> Result<usize, S> {
    let (mut visited, mut pending) = (HashSet::from([initial.clone()]), vec![initial]);
    while let Some(state) = pending.pop() {
        if is_bad(&state) {
            return Err(state);
        }
        assert!(visited.len() < MAX_STATES, "the model is too large");
        for next in successors(&state) {
            if visited.insert(next.clone()) {
                pending.push(next);
            }
        }
    }
    Ok(visited.len())
}

mod journal {
    //! One new key of the hub: replicas see it, record it, and sign with it once it is active; a
    //! target fetches the key set of any replica that is not cut off. An administrator may revoke
    //! the key at any time.

    use super::{REPLICAS, explore};

    /// For how long a replica that does not read the journal may issue, and is reachable.
    const MAX_UNREAD_AGE: u8 = 2;
    /// For how long a target uses the key set that it has.
    const MAX_AGE: u8 = 2;

    /// The rules of one run.
    #[derive(Clone, Copy, Debug)]
    struct Rules {
        /// For how long a key must have been recorded before it signs.
        delay: u8,
        /// Whether a write of the journal needs the version that was read.
        compares: bool,
        /// Whether a replica that has not read the journal for long issues nothing.
        refuses_when_unread: bool,
    }

    const REAL: Rules = Rules {
        delay: MAX_UNREAD_AGE + MAX_AGE + 1,
        compares: true,
        refuses_when_unread: true,
    };

    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    struct Journal {
        has_key: bool,
        is_revoked: bool,
    }

    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    struct Replica {
        publishes: bool,
        /// How long ago the key was recorded, as this replica knows it.
        recorded: Option<u8>,
        /// How long ago it read the journal; `None` in a process that never has.
        read: Option<u8>,
        /// What it read, until it writes.
        draft_of: Option<Journal>,
    }

    #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
    struct State {
        journal: Journal,
        journal_age: u8,
        /// How long ago the key was revoked, whatever the journal says now.
        revoked_for: Option<u8>,
        replicas: [Replica; REPLICAS],
        target_has_key: bool,
        target_age: u8,
    }

    impl Replica {
        fn is_fresh(self) -> bool {
            self.read.is_some_and(|age| age <= MAX_UNREAD_AGE)
        }

        fn issues(self, rules: Rules) -> bool {
            self.publishes
                && self.recorded.is_some_and(|age| age >= rules.delay)
                && (self.is_fresh() || !rules.refuses_when_unread)
        }
    }

    impl State {
        /// Time passes. Somebody always reaches the hub, and the target fetches in time.
        fn tick(&self, rules: Rules) -> Option<Self> {
            let mut next = self.clone();
            let older = |age: u8, most: u8| (age + 1).min(most);
            next.journal_age = older(next.journal_age, rules.delay);
            next.revoked_for = next.revoked_for.map(|age| older(age, MAX_UNREAD_AGE + 1));
            for replica in &mut next.replicas {
                replica.read = replica.read.map(|age| older(age, MAX_UNREAD_AGE + 1));
                replica.recorded = replica.recorded.map(|age| older(age, rules.delay));
            }
            next.target_age += 1;
            let is_possible =
                self.target_age < MAX_AGE && next.replicas.iter().any(|replica| replica.is_fresh());
            is_possible.then_some(next)
        }

        fn read_journal(&self, index: usize) -> Self {
            let mut next = self.clone();
            let (journal, age) = (self.journal, self.journal_age);
            let replica = &mut next.replicas[index];
            if journal.is_revoked {
                (replica.publishes, replica.recorded) = (false, None);
            } else if journal.has_key && replica.recorded.is_none() {
                // Not earlier than the last reading without it.
                let recorded = replica.read.map_or(age, |before| before.min(age));
                (replica.publishes, replica.recorded) = (true, Some(recorded));
            }
            replica.read = Some(0);
            replica.draft_of = Some(journal);
            next
        }

        fn write_journal(&self, index: usize, rules: Rules) -> Option<Self> {
            let mut next = self.clone();
            let replica = &mut next.replicas[index];
            let draft = replica.draft_of.take()?;
            if !replica.publishes || draft.has_key || draft.is_revoked {
                return None;
            }
            if draft == self.journal || !rules.compares {
                replica.recorded = Some(0);
                next.journal = Journal {
                    has_key: true,
                    is_revoked: false,
                };
                next.journal_age = 0;
            }
            Some(next)
        }

        fn successors(&self, rules: Rules) -> Vec<Self> {
            let mut all: Vec<Self> = self.tick(rules).into_iter().collect();
            for index in 0..REPLICAS {
                all.push(self.read_journal(index));
                all.extend(self.write_journal(index, rules));
                let change = |act: &dyn Fn(&mut Self)| {
                    let mut next = self.clone();
                    act(&mut next);
                    next
                };
                let replica = self.replicas[index];
                if replica.read.is_some() && !self.journal.is_revoked {
                    // The hub lists the key.
                    all.push(change(&|next| next.replicas[index].publishes = true));
                }
                if replica.is_fresh() {
                    all.push(change(&|next| {
                        (next.target_has_key, next.target_age) = (replica.publishes, 0);
                    }));
                }
                // It restarts without memory.
                all.push(change(&|next| next.replicas[index] = Replica::default()));
            }
            if self.journal.has_key && !self.journal.is_revoked {
                let mut next = self.clone();
                (next.journal.is_revoked, next.revoked_for) = (true, Some(0));
                all.push(next);
            }
            all
        }

        fn is_bad(&self, rules: Rules) -> bool {
            let issues = self.replicas.iter().any(|replica| replica.issues(rules));
            let target_lacks = !self.target_has_key && self.revoked_for.is_none();
            let too_late = self.revoked_for.is_some_and(|age| age > MAX_UNREAD_AGE);
            issues && (target_lacks || too_late)
        }
    }

    fn run(rules: Rules) -> Result<usize, State> {
        let is_bad = |state: &State| state.is_bad(rules);
        explore(State::default(), |state| state.successors(rules), is_bad)
    }

    #[test]
    fn no_token_is_issued_whose_key_a_target_may_lack_or_that_was_revoked() {
        let states = run(REAL).unwrap_or_else(|state| panic!("{state:#?}"));
        assert!(states > 10_000, "{states} states");
    }

    #[test]
    fn each_rule_is_needed() {
        let too_short = REAL.delay - 1;
        for rules in [
            Rules {
                delay: too_short,
                ..REAL
            },
            Rules {
                compares: false,
                ..REAL
            },
            Rules {
                refuses_when_unread: false,
                ..REAL
            },
        ] {
            assert!(run(rules).is_err(), "{rules:?} is as good");
        }
    }
}

mod lease {
    //! Replicas take and renew one Lease. A call takes time, its answer too, and the holder counts
    //! its term from before the call. One that stops gives the Lease back.

    use super::{REPLICAS, explore};

    /// For how long the holder leads after a renewal.
    const TERM: u8 = 6;
    /// The longest time that a call takes.
    const MAX_CALL: u8 = 7;

    #[derive(Clone, Copy, Debug)]
    struct Rules {
        /// For how long another replica must see the Lease unchanged.
        wait: u8,
        /// Whether a write needs the version that was read.
        compares: bool,
        /// Whether the term counts from before the call, or from its answer.
        counts_from_call: bool,
        /// Whether a replica that stops ends its lead before it gives the Lease back.
        ends_first: bool,
    }

    const REAL: Rules = Rules {
        wait: TERM,
        compares: true,
        counts_from_call: true,
        ends_first: true,
    };

    /// A call that is under way.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    struct Call {
        age: u8,
        /// Whether the Lease is as it was read.
        is_current: bool,
        is_written: bool,
    }

    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    struct Replica {
        call: Option<Call>,
        /// How long it still leads.
        leads_for: u8,
        /// For how long it has seen the Lease as it is.
        seen_for: Option<u8>,
        /// Whether it has stopped. What it had sent may still arrive.
        has_stopped: bool,
    }

    #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
    struct State {
        holder: Option<usize>,
        replicas: [Replica; REPLICAS],
    }

    impl State {
        fn tick(&self) -> Self {
            let mut next = self.clone();
            for replica in &mut next.replicas {
                replica.leads_for = replica.leads_for.saturating_sub(1);
                replica.seen_for = replica.seen_for.map(|age| (age + 1).min(TERM));
                // Its client gives up, whether or not the write arrived.
                replica.call = replica.call.and_then(|call| {
                    let age = call.age + 1;
                    (age <= MAX_CALL).then_some(Call { age, ..call })
                });
            }
            next
        }

        fn read(&self, index: usize, rules: Rules) -> Self {
            let mut next = self.clone();
            let is_own = self.holder.is_none_or(|holder| holder == index);
            let replica = &mut next.replicas[index];
            if is_own || replica.seen_for.is_some_and(|age| age >= rules.wait) {
                replica.call = Some(Call {
                    age: 0,
                    is_current: true,
                    is_written: false,
                });
            } else {
                replica.seen_for = replica.seen_for.or(Some(0));
            }
            next
        }

        fn write(&self, index: usize, rules: Rules) -> Option<Self> {
            let call = self.replicas[index].call.filter(|call| !call.is_written)?;
            let mut next = self.clone();
            if !call.is_current && rules.compares {
                next.replicas[index].call = None;
                return Some(next);
            }
            next.set_holder(Some(index));
            next.replicas[index].call = Some(Call {
                is_written: true,
                ..call
            });
            Some(next)
        }

        fn set_holder(&mut self, holder: Option<usize>) {
            self.holder = holder;
            for replica in &mut self.replicas {
                replica.seen_for = None;
                if let Some(call) = &mut replica.call {
                    call.is_current = false;
                }
            }
        }

        /// The replica stops, and gives the Lease back by a write that needs the version that it has
        /// just read.
        fn stop(&self, index: usize, rules: Rules) -> Self {
            let mut next = self.clone();
            next.replicas[index].has_stopped = true;
            if rules.ends_first {
                next.replicas[index].leads_for = 0;
            }
            if self.holder == Some(index) {
                next.set_holder(None);
            }
            next
        }

        fn answer_call(&self, index: usize, rules: Rules) -> Option<Self> {
            let call = self.replicas[index].call.filter(|call| call.is_written)?;
            let mut next = self.clone();
            let passed = if rules.counts_from_call { call.age } else { 0 };
            next.replicas[index].call = None;
            if !self.replicas[index].has_stopped {
                next.replicas[index].leads_for = TERM.saturating_sub(passed);
            }
            Some(next)
        }

        fn successors(&self, rules: Rules) -> Vec<Self> {
            let mut all = vec![self.tick()];
            for index in 0..REPLICAS {
                if !self.replicas[index].has_stopped {
                    all.push(self.stop(index, rules));
                    if self.replicas[index].call.is_none() {
                        all.push(self.read(index, rules));
                    }
                }
                all.extend(self.write(index, rules));
                all.extend(self.answer_call(index, rules));
            }
            all
        }

        fn has_two_leaders(&self) -> bool {
            let leaders = self.replicas.iter().filter(|replica| replica.leads_for > 0);
            leaders.count() > 1
        }
    }

    fn run(rules: Rules) -> Result<usize, State> {
        explore(
            State::default(),
            |state| state.successors(rules),
            State::has_two_leaders,
        )
    }

    #[test]
    fn no_two_replicas_lead() {
        let states = run(REAL).unwrap_or_else(|state| panic!("{state:#?}"));
        assert!(states > 1_000, "{states} states");
    }

    #[test]
    fn each_rule_is_needed() {
        let too_short = REAL.wait - 1;
        for rules in [
            Rules {
                wait: too_short,
                ..REAL
            },
            Rules {
                compares: false,
                ..REAL
            },
            Rules {
                counts_from_call: false,
                ..REAL
            },
            Rules {
                ends_first: false,
                ..REAL
            },
        ] {
            assert!(run(rules).is_err(), "{rules:?} is as good");
        }
    }
}
