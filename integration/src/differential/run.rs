//! Runs many cases and reports the result.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::case::Case;
use super::class;
use super::compare::{Comparison, Difference, Tally, compare};
use super::generate::{self, Family};
use super::judge;
use super::keys::SigningKeys;
use super::minimise::minimise;
use super::verdict::Ruling;
use crate::oracle::{Oracle, OracleError, Oracles, Question};
use crate::parts::OracleRelease;
use crate::runner::{TestError, TestResult};

const CHUNK: u64 = 200;
/// The run fails if fewer judgements of a thousand are decided in one of the families.
const DECIDED_PER_MILLE: usize = 980;
/// With at least this many cases, a run must meet every class of refusals.
const ENOUGH_FOR_ALL: u64 = 5000;

/// The kind of cases to generate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cases {
    /// Every kind.
    All,
    /// Only configurations, as YAML of every kind and as nearly valid YAML.
    Yaml,
}

/// The settings of a run: its cases, and how much it reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The kind of cases.
    pub kind: Cases,
    /// The number of cases.
    pub cases: u64,
    /// The seed of the random cases.
    pub seed: u64,
    /// The number of the first case.
    pub first: u64,
    /// The number of disagreements that are shrunk and shown.
    pub shown: usize,
    /// Whether to ask the oracles of all minor versions instead of only those of every run.
    pub every_minor: bool,
}

impl Settings {
    /// Reads `KEYFERRY_DIFFERENTIAL_CASES`, `_SEED`, `_FIRST` and `_SHOWN`. The default is 5,000
    /// cases of seed 1. With `_WEEKLY`, it is 20,000 cases at every minor version.
    pub fn from_environment(kind: Cases) -> Self {
        let number = |name: &str, otherwise: u64| {
            std::env::var(format!("KEYFERRY_DIFFERENTIAL_{name}"))
                .ok()
                .and_then(|text| text.parse().ok())
                .unwrap_or(otherwise)
        };
        let every_minor = number("WEEKLY", 0) > 0;
        Self {
            kind,
            every_minor,
            cases: number("CASES", if every_minor { 20_000 } else { 5000 }),
            seed: number("SEED", 1),
            first: number("FIRST", 0),
            shown: usize::try_from(number("SHOWN", 12)).unwrap_or(usize::MAX),
        }
    }

    fn family(self, number: u64) -> Family {
        match self.kind {
            Cases::All => Family::of(self.seed, number),
            Cases::Yaml => Family::Texts,
        }
    }

    fn case(self, number: u64, keys: &SigningKeys) -> Case {
        match self.kind {
            Cases::All => generate::case(self.seed, number, keys),
            Cases::Yaml => generate::yaml_case(self.seed, number, keys),
        }
    }
}

/// A disagreement that the report shows.
#[derive(Debug)]
struct Found {
    release: usize,
    number: u64,
    kind: String,
}

#[derive(Debug, Default)]
struct Report {
    tallies: Vec<Tally>,
    /// How often each kind of disagreement occurred, by release.
    kinds: BTreeMap<(String, usize), usize>,
    reasons: BTreeMap<String, usize>,
    words: BTreeSet<(String, String)>,
    mismatches: Vec<Found>,
    /// The classes of refusals that the oracles gave.
    classes: BTreeSet<&'static str>,
    /// The tallies of each family of cases, by release.
    families: BTreeMap<(Family, usize), Tally>,
}

/// Asks both sides about every case. Fails on any disagreement, or when too few judgements are
/// decided.
///
/// # Errors
/// The report, with the shrunk disagreements.
pub async fn differ(oracles: &Oracles, settings: Settings) -> TestResult {
    if settings.every_minor {
        let every = Oracles::of(&OracleRelease::EVERY_MINOR)
            .await
            .map_err(|error| format!("{error:?}"))?;
        return Box::pin(differ(
            &every,
            Settings {
                every_minor: false,
                ..settings
            },
        ))
        .await;
    }
    let keys = Arc::new(SigningKeys::generate().map_err(|_| "no signing keys")?);
    let mut report = Report {
        tallies: vec![Tally::default(); oracles.all().len()],
        ..Report::default()
    };
    let mut first = settings.first;
    let end = settings.first + settings.cases;
    while first < end {
        let last = end.min(first + CHUNK);
        chunk(oracles, &keys, settings, first..last, &mut report).await?;
        first = last;
    }
    print(oracles, &report);
    let mut shown = String::new();
    for found in report.mismatches.iter().take(settings.shown) {
        shown.push_str(&shrunk(oracles, &keys, settings, found).await?);
    }
    let disagreed: usize = report.tallies.iter().map(|tally| tally.disagreed).sum();
    if disagreed > 0 {
        return Err(format!("{disagreed} disagreements\n{shown}").into());
    }
    let unmet: Vec<&str> = class::of_rejections()
        .filter(|class| !report.classes.contains(class))
        .collect();
    if settings.kind == Cases::All && settings.cases >= ENOUGH_FOR_ALL && !unmet.is_empty() {
        return Err(
            format!("no case was refused as {unmet:?}: the generator misses something").into(),
        );
    }
    match report
        .families
        .iter()
        .map(|((family, _), tally)| (tally.decided_per_mille(), family))
        .min()
    {
        Some((least, family)) if least < DECIDED_PER_MILLE => Err(format!(
            "only {least} of 1000 judgements of the family {family:?} are decided"
        )
        .into()),
        _ => Ok(()),
    }
}

async fn chunk(
    oracles: &Oracles,
    keys: &Arc<SigningKeys>,
    settings: Settings,
    numbers: std::ops::Range<u64>,
    report: &mut Report,
) -> TestResult {
    let cases: Vec<(Case, u64)> = numbers
        .map(|number| (settings.case(number, keys), number))
        .collect();
    let questions: Arc<Vec<Question>> = Arc::new(
        cases
            .iter()
            .map(|(case, number)| case.question(*number, keys))
            .collect(),
    );
    let releases: Vec<OracleRelease> = oracles.all().iter().map(Oracle::release).collect();
    let ours = tokio::task::spawn_blocking({
        let (questions, releases) = (Arc::clone(&questions), releases.clone());
        move || -> Vec<Vec<Ruling>> {
            let both = |release: &OracleRelease| {
                cases
                    .iter()
                    .zip(questions.iter())
                    .map(|((case, _), question)| judge::rule(case, question, *release))
                    .collect()
            };
            releases.iter().map(both).collect()
        }
    });
    let (ours, theirs) = tokio::join!(ours, oracles.ask(&questions));
    let (ours, theirs) = (ours?, theirs?);
    for (release, (rulings, answers)) in ours.iter().zip(&theirs).enumerate() {
        for (question, (ruling, answer)) in questions.iter().zip(rulings.iter().zip(answers)) {
            let comparison = compare(ruling, answer);
            let family = settings.family(question.id);
            let tally = report.families.entry((family, release)).or_default();
            tally.add(comparison.tally);
            report.add(release, question.id, comparison);
            let refusals = answer
                .tokens
                .iter()
                .flatten()
                .filter_map(|verdict| verdict.error.as_deref());
            report.classes.extend(refusals.map(class::of_rejection));
        }
    }
    Ok(())
}

impl Report {
    fn add(&mut self, release: usize, number: u64, comparison: Comparison) {
        if let Some(tally) = self.tallies.get_mut(release) {
            tally.add(comparison.tally);
        }
        for why in comparison.reasons {
            // The cause follows the expression.
            let cause = why.rsplit(": ").next().unwrap_or_default();
            *self.reasons.entry(without_quoted(cause)).or_default() += 1;
        }
        if self.words.len() < 2000 {
            self.words.extend(comparison.words);
        }
        for difference in comparison.differences {
            let seen = self
                .kinds
                .entry((difference.kind.clone(), release))
                .or_default();
            *seen += 1;
            // One kind may have several causes. Skip a case that already shows this kind on another
            // release, because it rarely shows another cause.
            let elsewhere = self
                .mismatches
                .iter()
                .any(|found| found.number == number && found.kind == difference.kind);
            if *seen <= 12 && !elsewhere {
                self.mismatches.push(Found {
                    release,
                    number,
                    kind: difference.kind,
                });
            }
        }
    }
}

/// A reason without the values that it quotes, so that reasons of one kind are counted together.
fn without_quoted(reason: &str) -> String {
    match (reason.find('"'), reason.rfind('"')) {
        (Some(first), Some(last)) if first < last => {
            format!("{}…{}", &reason[..first], &reason[last + 1..])
        }
        _ => reason.to_owned(),
    }
}

fn print(oracles: &Oracles, report: &Report) {
    for (oracle, tally) in oracles.all().iter().zip(&report.tallies) {
        eprintln!(
            "{:?}: {tally}; decided {} of 1000",
            oracle.release(),
            tally.decided_per_mille()
        );
    }
    for ((family, release), tally) in &report.families {
        if let Some(oracle) = oracles.all().get(*release) {
            eprintln!(
                "{:?}, {family:?}: {tally}; decided {} of 1000",
                oracle.release(),
                tally.decided_per_mille()
            );
        }
    }
    for ((kind, release), count) in &report.kinds {
        eprintln!(
            "  {count} x {kind} ({:?})",
            oracles.all().get(*release).map(Oracle::release)
        );
    }
    let mut reasons: Vec<_> = report.reasons.iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    for (why, count) in reasons.iter().take(30) {
        eprintln!("  undetermined {count} x {why}");
    }
    if std::env::var_os("KEYFERRY_DIFFERENTIAL_WORDS").is_some() {
        for (ours, theirs) in &report.words {
            eprintln!("  in other words:\n    ours   {ours}\n    theirs {theirs}");
        }
    }
}

/// Shrinks the disagreement and returns it as text.
async fn shrunk(
    oracles: &Oracles,
    keys: &Arc<SigningKeys>,
    settings: Settings,
    found: &Found,
) -> Result<String, TestError> {
    let oracle = oracles.all().get(found.release).ok_or("no such oracle")?;
    let (seed, whole) = (settings.seed, settings.case(found.number, keys));
    let still = |case: Case| async move {
        difference(oracle, keys, &case, &found.kind)
            .await
            .is_ok_and(|difference| difference.is_some())
    };
    let small = minimise(whole, still).await;
    let difference = difference(oracle, keys, &small, &found.kind).await?;
    let (ours, theirs) = difference
        .map(|difference| (difference.ours, difference.theirs))
        .unwrap_or_default();
    let mut text = format!(
        "\n--- {} ({:?}, seed {seed}, case {})\n{}\n",
        found.kind,
        oracle.release(),
        found.number,
        small.config.text()
    );
    for token in &small.tokens {
        text.push_str(&format!(
            "token {} . {} (signed {:?} {}, {:?})\n",
            token.header.json(),
            token.claims.json(),
            token.key,
            token.algorithm,
            token.damage
        ));
    }
    if !small.disallowed_issuers.is_empty() {
        text.push_str(&format!("disallowed {:?}\n", small.disallowed_issuers));
    }
    if found.kind.contains("key") || found.kind.contains("signature") {
        for published in &small.issuers {
            text.push_str(&format!(
                "keys of {}: {}\n",
                published.issuer,
                published.key_set.json()
            ));
        }
    }
    text.push_str(&format!("ours   {ours}\ntheirs {theirs}\n"));
    Ok(text)
}

async fn difference(
    oracle: &Oracle,
    keys: &SigningKeys,
    case: &Case,
    kind: &str,
) -> Result<Option<Difference>, OracleError> {
    let question = case.question(0, keys);
    let answers = oracle.ask(std::slice::from_ref(&question)).await?;
    let ruling = judge::rule(case, &question, oracle.release());
    Ok(answers.first().and_then(|answer| {
        compare(&ruling, answer)
            .differences
            .into_iter()
            .find(|difference| difference.kind == kind)
    }))
}
