//! Compares keyferry-kube-authn with kube-apiserver's own authenticator on the files of
//! `auth-configs/`, on random cases, and on random texts that are YAML or nearly so.
//!
//! A longer run, or another one: `KEYFERRY_DIFFERENTIAL_CASES=100000 KEYFERRY_DIFFERENTIAL_SEED=7
//! cargo test --workspace --test suites -- differential::`. `KEYFERRY_DIFFERENTIAL_FIRST` starts at
//! another case, `_SHOWN` says how many disagreements are shrunk and printed with both answers
//! (12), and `_WORDS=1` prints texts that differ where none is said to be kube-apiserver's own.
//!
//! `KEYFERRY_DIFFERENTIAL_WEEKLY=1` asks the oracles of all minor versions, 1.30 to 1.37, about
//! 20,000 cases. Go builds the further five once, which takes some minutes.
//!
//! `KEYFERRY_WRITE_COPIES=1 cargo test --workspace --test suites -- differential::the_recorded`
//! asks the oracles of all minor versions about the expressions that `keyferry-cel-kubernetes`
//! replays, and writes what they say. Without it, the test compares what is written with the oracles.
//!
//! The run prints how often both sides agree, for each family of cases. It fails on any
//! disagreement, when less than 98 % of the judgements of a family are decided, or when no case met
//! some class of refusals.

use std::time::Duration;

use keyferry_integration::differential::{self, Cases, Settings};
use keyferry_integration::oracle::Oracles;
use keyferry_integration::parts::{OracleRelease, Part};
use keyferry_integration::runner::{BoxedSuite, Needed, Suite};

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(Oracles::start)
        .needs(OracleRelease::ALL.map(|release| Needed::Part(Part::Oracle(release))))
        .limit(Duration::from_secs(3600))
        .test(
            "the_oracles_say_what_real_servers_said",
            |oracles| async move { differential::hold(&oracles).await },
        )
        .test(
            "both_say_the_same_of_the_shipped_files",
            |oracles| async move { differential::shipped(&oracles).await },
        )
        .test(
            "the_recorded_observations_are_the_oracles",
            |oracles| async move { differential::recorded(&oracles).await },
        )
        .test("both_say_the_same", |oracles| async move {
            differential::differ(&oracles, Settings::from_environment(Cases::All)).await
        })
        .test("both_say_the_same_of_yaml", |oracles| async move {
            differential::differ(&oracles, Settings::from_environment(Cases::Yaml)).await
        })
        .boxed()
}
