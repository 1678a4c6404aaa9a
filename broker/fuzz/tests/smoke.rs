//! A bounded run of every property: each seed of its corpus, and mutations of the seeds that are the
//! same in every run. `cargo xtask fuzz TARGET` runs a property without end.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use keyferry_fuzz::{TARGETS, certificates, now, tokens};
use proptest::prelude::{any, prop};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// The mutated inputs of each target.
const CASES: u32 = 300;
/// The largest corpus of all targets together: it is in git for good.
const MAX_CORPUS_BYTES: usize = 300_000;

#[test]
fn every_property_holds_for_its_corpus_and_mutations_of_it() {
    let workers: Vec<_> = TARGETS
        .map(|(target, property)| std::thread::spawn(move || run(target, property)))
        .into();
    let failed: Vec<&str> = workers
        .into_iter()
        .zip(TARGETS)
        .filter_map(|(worker, (target, _))| worker.join().is_err().then_some(target))
        .collect();
    assert_eq!(
        failed,
        Vec::<&str>::new(),
        "the targets with a property that does not hold"
    );
}

#[test]
fn every_target_has_a_small_corpus_and_no_corpus_is_without_a_target() {
    let folders: BTreeSet<String> = children(&corpus())
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    let targets = TARGETS.map(|(target, _)| target.to_owned());
    assert_eq!(folders, targets.clone().into());
    let bytes: usize = targets
        .iter()
        .flat_map(|target| seeds(target))
        .map(|seed| seed.len())
        .sum();
    assert!(bytes < MAX_CORPUS_BYTES, "{bytes} bytes");
}

/// Otherwise the properties would hold because nothing is accepted.
#[test]
fn the_seeds_that_are_good_are_accepted() {
    use keyferry_keys::ca_bundle::CaBundle;
    use keyferry_keys::caller_certificate::PresentedChain;
    use keyferry_keys::discovery::ProviderMetadata;
    use keyferry_keys::jwks::{KeySetLimits, PublicKeySet};
    use keyferry_keys::jwt::UnverifiedJwt;
    use keyferry_keys::verify::verify_signature;

    let (keys, rejected) =
        PublicKeySet::from_upstream(tokens::KEYS, KeySetLimits::default()).unwrap();
    assert!(rejected.is_empty());
    let token = include_str!("../corpus/jwt/plain").trim_end();
    let jwt = UnverifiedJwt::parse(token).unwrap();
    let claims = verify_signature(&jwt, &keys).unwrap().claims().unwrap();
    assert!(claims.registered.expires_at > now());
    let document = include_bytes!("../corpus/discovery/plain.json");
    assert!(ProviderMetadata::from_upstream(document, tokens::ISSUER).is_ok());
    let bundle = include_bytes!("../corpus/ca_bundle/two_and_a_key.pem");
    let bundle = CaBundle::from_pem(bundle, now()).unwrap();
    assert_eq!(
        (bundle.certificates().len(), bundle.ignored_blocks()),
        (2, 1)
    );
    let certificate = include_bytes!("../corpus/caller_certificate/good.der");
    let chain = PresentedChain::new(&[certificate.as_slice().into()]).unwrap();
    certificates::caller_rules()
        .identify_caller(&chain, now())
        .unwrap();
}

/// Runs a property on every seed of a target, then on seeds with bytes replaced, cut out or joined.
fn run(target: &str, property: fn(&[u8])) {
    let seeds = seeds(target);
    for seed in &seeds {
        property(seed);
    }
    let edit = (
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
        prop::collection::vec(any::<u8>(), 0..3),
    );
    let input = (
        prop::sample::select(seeds),
        prop::collection::vec(edit, 0..4),
    );
    let config = Config {
        cases: CASES,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let outcome = TestRunner::new_with_rng(config, rng).run(&input, |(mut data, edits)| {
        for (start, length, bytes) in edits {
            let start = start.index(data.len() + 1);
            let end = start + length.index(4).min(data.len() - start);
            data.splice(start..end, bytes);
        }
        property(&data);
        Ok(())
    });
    outcome.unwrap();
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.read_dir().unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let paths = children(&corpus().join(target));
    assert!(paths.len() >= 3, "{target} has too few seeds");
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}
