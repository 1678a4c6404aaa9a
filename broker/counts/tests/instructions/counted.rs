//! The process that callgrind runs: each subject in turn, between two marks.

use std::hint::black_box;
use std::path::Path;

use keyferry_controller::delivery::Next;
use keyferry_issuer::testing::SmallWorld;
use secrecy::SecretString;
use tokio::runtime::Runtime;

use super::server::{Connection, Served};
use crate::subjects;
use crate::subjects::delivery::Delivery;
use crate::subjects::evaluation::Evaluation;

/// The variable that makes this binary the counted process, with the folder for what it says.
pub const FOLDER: &str = "KEYFERRY_COUNTED";
/// The file in that folder with the features of the emulated processor.
pub const PROCESSOR: &str = "processor";
/// How often each subject is counted.
pub const ROUNDS: usize = 5;
/// Exchanges before the first that counts: caches are filled, and buffers have grown.
const WARM_UP: usize = 100;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    Exchange,
    ClientAssertion,
    EmptyHandler,
    Delivery,
    Kubeconfig,
    Verify,
    Evaluation,
    Signature,
}

impl Subject {
    /// All, in the order in which they are counted.
    pub const ALL: [Self; 8] = [
        Self::Exchange,
        Self::ClientAssertion,
        Self::EmptyHandler,
        Self::Delivery,
        Self::Kubeconfig,
        Self::Verify,
        Self::Evaluation,
        Self::Signature,
    ];

    /// Its name in the record.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exchange => "exchange",
            Self::ClientAssertion => "exchange by client_assertion",
            Self::EmptyHandler => "empty handler",
            Self::Delivery => "delivery",
            Self::Kubeconfig => "kubeconfig alone",
            Self::Verify => "verify, with the file",
            Self::Evaluation => "verify, one more token",
            Self::Signature => "ES256 check alone",
        }
    }

    /// How often it is done in a round.
    pub fn repetitions(self) -> usize {
        match self {
            Self::Exchange | Self::ClientAssertion | Self::EmptyHandler => 200,
            Self::Delivery => 10,
            Self::Verify => 20,
            Self::Kubeconfig | Self::Evaluation | Self::Signature => 100,
        }
    }
}

/// Callgrind writes what it counted so far in the thread that enters this function.
#[inline(never)]
pub fn mark_of_a_part(at: usize) {
    black_box(at);
}

/// Does the work between two marks of this thread.
fn count<T>(subject: Subject, work: impl FnMut(usize) -> T) {
    count_between(&|| mark_of_a_part(0), subject, work);
}

fn count_between<T>(mark: &dyn Fn(), subject: Subject, mut work: impl FnMut(usize) -> T) {
    mark();
    for repetition in 0..subject.repetitions() {
        black_box(work(repetition));
    }
    mark();
}

/// Runs every subject in every round.
pub fn run_all(folder: &Path) {
    std::fs::write(folder.join(PROCESSOR), processor_features()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let world = runtime.block_on(subjects::start_world());
    let served = Served::start();
    let mut exchange = Connection::open(&served, served.exchange);
    let requests = [&served.subject_token, &served.client_assertion];
    for request in requests.iter().cycle().take(WARM_UP) {
        exchange.ask(request);
    }
    let mut empty = Connection::open(&served, served.empty);
    for _ in 0..WARM_UP {
        empty.ask(&served.subject_token);
    }
    let evaluation = Evaluation::new(&world);
    assert!(evaluation.evaluate_token());
    let mark = || served.mark();
    for subject in [Subject::ALL; ROUNDS].into_iter().flatten() {
        match subject {
            Subject::Exchange => {
                count_between(&mark, subject, |_| exchange.ask(&served.subject_token));
            }
            Subject::ClientAssertion => {
                count_between(&mark, subject, |_| exchange.ask(&served.client_assertion));
            }
            Subject::EmptyHandler => {
                count_between(&mark, subject, |_| empty.ask(&served.subject_token));
            }
            Subject::Delivery => count_deliveries(&runtime, &world),
            Subject::Kubeconfig => {
                let delivery = new_delivery(&runtime, &world);
                let token = SecretString::from(served.token.clone());
                count(subject, |_| delivery.render_kubeconfig(&token));
            }
            Subject::Verify => count(subject, |_| assert!(evaluation.verify_from_file())),
            Subject::Evaluation => count(subject, |_| assert!(evaluation.evaluate_token())),
            Subject::Signature => {
                let is_valid = evaluation.signature_check();
                count(subject, |_| assert!(is_valid()));
            }
        }
    }
}

/// Delivers by processes that have just started. The hub has answered the same request before.
fn count_deliveries(runtime: &Runtime, world: &SmallWorld) {
    let mut prepared: Vec<Delivery> = (0..=Subject::Delivery.repetitions())
        .map(|_| new_delivery(runtime, world))
        .collect();
    let first = prepared.pop().unwrap();
    let next = runtime.block_on(first.deliver());
    first.assert_delivered();
    assert!(matches!(next, Next::After(_)), "{next:?}");
    count(Subject::Delivery, |repetition| {
        runtime.block_on(prepared[repetition].deliver())
    });
    prepared.iter().for_each(Delivery::assert_delivered);
}

fn new_delivery(runtime: &Runtime, world: &SmallWorld) -> Delivery {
    let _context = runtime.enter();
    Delivery::new(world, super::server::audit_log())
}

/// What AWS-LC and libc choose their code by, as far as callgrind offers it.
fn processor_features() -> String {
    #[cfg(target_arch = "x86_64")]
    let features = [
        ("aes", std::is_x86_feature_detected!("aes")),
        ("pclmulqdq", std::is_x86_feature_detected!("pclmulqdq")),
        ("avx2", std::is_x86_feature_detected!("avx2")),
        ("bmi2", std::is_x86_feature_detected!("bmi2")),
        ("adx", std::is_x86_feature_detected!("adx")),
        ("sha", std::is_x86_feature_detected!("sha")),
        ("rdrand", std::is_x86_feature_detected!("rdrand")),
        ("avx512f", std::is_x86_feature_detected!("avx512f")),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let features = [("unknown", true)];
    let present = features.iter().filter(|(_, is_present)| *is_present);
    let names: Vec<&str> = present.map(|(name, _)| *name).collect();
    names.join(" ")
}
