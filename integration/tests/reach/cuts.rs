//! Cuts that are really made: what an answer says would close every way is removed from the hub, and
//! then the subject gets no token any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::runner::{TestError, TestResult};
use keyferry_reach::Subject;
use keyferry_reach::answer::{Answer, Question, Verdict, answer_question};
use keyferry_reach::way::Removal;
use keyferry_reach::world::World;

use super::changes::{Change, apply, collect, restore, until_collected};
use super::stage::{SUBJECTS, Stage, TENANTS};
use super::truth::Truth;

/// How many cuts are made alone, before all of them together.
const ALONE: usize = 3;
/// How late an authorizer of the hub may be.
const LATE: Duration = Duration::from_secs(10);

/// Kind, namespace and name of each removed object.
type Removed = BTreeSet<(String, String, String)>;

pub(super) async fn a_removed_cut_leaves_no_way(world: Arc<Stage>) -> TestResult {
    let began = Instant::now();
    let before = collect(&world).await?;
    let truth = Truth::new(&world).await?;
    let mut cuts: BTreeMap<Removed, Vec<Answer>> = BTreeMap::new();
    for answer in answers(&before) {
        if let Some(removed) = removable(&answer) {
            cuts.entry(removed).or_default().push(answer);
        }
    }
    assert!(cuts.len() >= 10, "{cuts:?}");
    for (removed, answers) in cuts.iter().take(ALONE) {
        make_cut(&world, &truth, &before, removed, &answers[..1]).await?;
    }
    let all: Removed = cuts.keys().flatten().cloned().collect();
    let firsts: Vec<Answer> = cuts.values().map(|answers| answers[0].clone()).collect();
    make_cut(&world, &truth, &before, &all, &firsts).await?;
    eprintln!(
        "reach: {ALONE} cuts really made alone, and all {} of {} objects together; {:?}",
        cuts.len(),
        all.len(),
        began.elapsed()
    );
    Ok(())
}

/// Removes the objects, sees that each subject of the answers loses its way, and puts them back.
async fn make_cut(
    world: &Stage,
    truth: &Truth<'_>,
    before: &World,
    removed: &Removed,
    cut_off: &[Answer],
) -> TestResult {
    let planes = world.planes();
    let has_token = async |answer: &Answer| -> Result<bool, TestError> {
        let tokens = truth.tokens_of(&answer.subject).await?;
        let is_of_target = |index: usize| planes[index].name() == answer.target.as_str();
        Ok(tokens.iter().any(|(index, _)| is_of_target(*index)))
    };
    for answer in cut_off {
        assert!(has_token(answer).await?, "{answer:?}: it has no way before");
    }
    let change = Change {
        name: format!("without {removed:?}"),
        target: None,
        applied: Vec::new(),
        removed: removed.iter().cloned().collect(),
    };
    let undo = apply(world, &change).await?;
    let limit = Instant::now() + LATE;
    for answer in cut_off {
        while has_token(answer).await? {
            if Instant::now() > limit {
                return Err(format!("{}: a way is left: {answer:?}", change.name).into());
            }
        }
    }
    let left = answers(&collect(world).await?);
    let again = left.iter().find(|left| {
        let is_same =
            |answer: &&Answer| (&answer.subject, &answer.target) == (&left.subject, &left.target);
        cut_off.iter().any(|answer| is_same(&answer))
    });
    assert!(again.is_none(), "{}: {again:?}", change.name);
    restore(world, &change, undo).await?;
    until_collected(world, "what was before", before).await
}

/// Each yes about a token, with its cut, of the subjects whose doors the truth opens.
fn answers(world: &World) -> Vec<Answer> {
    let question = Question {
        request: None,
        targets: BTreeSet::new(),
        subject: None,
        is_thorough: true,
        now: jiff::Timestamp::now(),
    };
    let mut answers = answer_question(world, &question).answers;
    answers.retain(|answer| {
        let is_tried = match &answer.subject {
            Subject::ServiceAccount(namespace, _) => {
                namespace == SUBJECTS || TENANTS.contains(&namespace.as_str())
            }
            Subject::User(name) => name == "minter",
            Subject::Group(name) => name == "minters",
        };
        is_tried && matches!(answer.verdict, Verdict::Yes { .. })
    });
    answers
}

/// Kind, namespace and name of each object of the cut, if all are objects of the hub.
fn removable(answer: &Answer) -> Option<Removed> {
    let cut = answer.cut.as_ref().filter(|cut| !cut.is_empty())?;
    cut.iter()
        .map(|removal| match removal {
            Removal::Binding(None, id) => {
                Some((id.kind.to_string(), id.namespace.clone(), id.name.clone()))
            }
            Removal::Binding(Some(_), _) => None,
            Removal::Access(name) => Some((
                "TargetAccess".to_owned(),
                name.namespace.to_string(),
                name.name.to_string(),
            )),
        })
        .collect()
}
