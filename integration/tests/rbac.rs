//! Compares keyferry-kube-rbac with the authorizer of real kube-apiservers, on generated policies
//! and questions. Every question is a SubjectAccessReview.
//!
//! Each run asks 20,000 questions of each apiserver. `KEYFERRY_RBAC_SEED=7` asks others, and
//! `KEYFERRY_RBAC_QUESTIONS=1000` sets their number. The suite `rbac_at_scale`, on request, asks
//! 200,000 of 1.33, 1.36 and 1.37 each.

mod aggregation;
mod mistakes;

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::control_plane::ControlPlaneSpec;
use keyferry_integration::fleet::{Fleet, FleetSpec};
use keyferry_integration::parts::{Minor, Part};
use keyferry_integration::pki::SigningKeyKind;
use keyferry_integration::rbac_questions::{Round, collect_round, compare};
use keyferry_integration::runner::{
    BoxedSuite, Fixture, Needed, NotStarted, Suite, TestError, TestResult,
};
use tokio::sync::OnceCell;

/// The control plane with a kube-controller-manager.
const CONTROLLED: &str = "rbac-controlled";
const SEED: &str = "KEYFERRY_RBAC_SEED";
const QUESTIONS: &str = "KEYFERRY_RBAC_QUESTIONS";
const DEFAULT_SEED: u64 = 2026;
const DEFAULT_QUESTIONS: usize = 20_000;
const QUESTIONS_AT_SCALE: usize = 200_000;
/// After so many questions, the next ones are about another policy.
const QUESTIONS_OF_ROUND: usize = 5000;
/// So many differences are printed.
const MAX_SHOWN: usize = 12;

/// The apiservers, and the answers that several tests use.
pub(crate) struct RbacFleet {
    fleet: Fleet,
    of_the_newest: OnceCell<Vec<Round>>,
}

impl Fixture for RbacFleet {
    fn log_tails(&self) -> String {
        self.fleet.log_tails()
    }
}

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(|| start(vec![Minor::newest(), Minor::V1_33], Some(CONTROLLED)))
        .test("answers_match_the_newest", |fixture| async move {
            let rounds = fixture.rounds_of_the_newest().await?;
            rounds.iter().try_for_each(must_match)
        })
        .test("answers_match_1_33", |fixture| async move {
            answers_match(&fixture, Minor::V1_33, DEFAULT_QUESTIONS).await
        })
        .test(
            "each_planted_mistake_is_found",
            mistakes::each_planted_mistake_is_found,
        )
        .test(
            "aggregation_matches_the_controller",
            aggregation::aggregation_matches_the_controller,
        )
        .boxed()
}

/// The long run, on request.
pub(crate) fn at_scale() -> BoxedSuite {
    let minors = || vec![Minor::V1_33, Minor::V1_36, Minor::V1_37];
    let of_minor = |minor: Minor| {
        move |fixture: Arc<RbacFleet>| async move {
            answers_match(&fixture, minor, QUESTIONS_AT_SCALE).await
        }
    };
    Suite::new(move || start(minors(), None))
        .needs([Needed::Part(Part::ApiServer(Minor::V1_36))])
        .only_on_request()
        .concurrent_tests(2)
        .limit(Duration::from_secs(3600))
        .test("answers_match_1_33", of_minor(Minor::V1_33))
        .test("answers_match_1_36", of_minor(Minor::V1_36))
        .test("answers_match_1_37", of_minor(Minor::V1_37))
        .boxed()
}

/// Starts an apiserver of each minor version. No controller runs beside them, so aggregated
/// ClusterRoles keep the rules that were written; `controlled` names one more that has one.
async fn start(minors: Vec<Minor>, controlled: Option<&str>) -> Result<RbacFleet, NotStarted> {
    let mut control_planes: Vec<ControlPlaneSpec> = minors
        .into_iter()
        .map(|minor| ControlPlaneSpec {
            minor,
            signing_key: SigningKeyKind::EcdsaP256,
            ..ControlPlaneSpec::named(&plane_name(minor))
        })
        .collect();
    control_planes.extend(controlled.map(|name| ControlPlaneSpec {
        controller_manager: true,
        ..ControlPlaneSpec::named(name)
    }));
    Ok(RbacFleet {
        fleet: Fleet::start(FleetSpec { control_planes }).await?,
        of_the_newest: OnceCell::new(),
    })
}

fn plane_name(minor: Minor) -> String {
    format!("rbac-{}", minor.number())
}

impl RbacFleet {
    /// The answers of the newest apiserver, which are collected once.
    async fn rounds_of_the_newest(&self) -> Result<&Vec<Round>, TestError> {
        let collect = async || {
            let questions = number_from_environment(QUESTIONS, DEFAULT_QUESTIONS)?;
            let plane = self.fleet.control_plane(&plane_name(Minor::newest()))?;
            let mut rounds = Vec::new();
            for (round, count) in rounds_of(questions) {
                rounds.push(collect_round(&plane, seed()?, round, count).await?);
            }
            Ok(rounds)
        };
        self.of_the_newest.get_or_try_init(collect).await
    }
}

/// Asks the apiserver of a minor version, and forgets the answers of a round after it.
async fn answers_match(fixture: &RbacFleet, minor: Minor, questions: usize) -> TestResult {
    let plane = fixture.fleet.control_plane(&plane_name(minor))?;
    for (round, count) in rounds_of(number_from_environment(QUESTIONS, questions)?) {
        must_match(&collect_round(&plane, seed()?, round, count).await?)?;
    }
    Ok(())
}

/// Each round and the number of its questions.
fn rounds_of(questions: usize) -> impl Iterator<Item = (u64, usize)> {
    let starts = (0..questions).step_by(QUESTIONS_OF_ROUND);
    let counts = starts.map(move |start| QUESTIONS_OF_ROUND.min(questions - start));
    (0..).zip(counts)
}

fn seed() -> Result<u64, TestError> {
    number_from_environment(SEED, DEFAULT_SEED)
}

fn number_from_environment<T: FromStr>(name: &str, otherwise: T) -> Result<T, TestError> {
    match std::env::var(name) {
        Err(_) => Ok(otherwise),
        Ok(text) => text
            .parse()
            .map_err(|_| format!("{name} is {text}, which is no number").into()),
    }
}

fn must_match(round: &Round) -> TestResult {
    let Round { policy, truths } = round;
    let differences: Vec<String> = truths
        .iter()
        .filter_map(|truth| compare(policy, truth))
        .map(|difference| difference.to_string())
        .collect();
    if !differences.is_empty() {
        let shown = differences[..differences.len().min(MAX_SHOWN)].join("\n");
        let (differing, all) = (differences.len(), truths.len());
        return Err(format!("{differing} of {all} answers differ\n{shown}").into());
    }
    // Questions that are nearly all refused, or nearly all allowed, would prove little.
    let allowed = truths.iter().filter(|truth| truth.allowed).count();
    let percent = allowed * 100 / truths.len().max(1);
    assert!((15..=85).contains(&percent), "{percent} % are allowed");
    Ok(())
}
