//! Cuts that are really made: what an answer says would close every way is removed from the hub, and
//! then the subject gets no token any more.

use std::collections::BTreeSet;
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

/// How many different cuts are made.
const MAX_CUTS: usize = 16;
/// How late an authorizer of the hub may be.
const LATE: Duration = Duration::from_secs(10);

pub(super) async fn a_removed_cut_leaves_no_way(world: Arc<Stage>) -> TestResult {
    let began = Instant::now();
    let before = collect(&world).await?;
    let truth = Truth::new(&world).await?;
    let mut made = BTreeSet::new();
    for answer in answers(&before) {
        let Some(removed) = removable(&answer) else {
            continue;
        };
        if made.len() == MAX_CUTS || !made.insert(removed.clone()) {
            continue;
        }
        let planes = world.planes();
        let index = planes
            .iter()
            .position(|plane| plane.name() == answer.target.as_str())
            .ok_or("a target that is not of this stage")?;
        let has_token = async || -> Result<bool, TestError> {
            let tokens = truth.tokens_of(&answer.subject).await?;
            Ok(tokens.iter().any(|(target, _)| *target == index))
        };
        let name = format!(
            "{} at {} without {removed:?}",
            answer.subject, answer.target
        );
        assert!(has_token().await?, "{name}: it has no way before");
        let change = Change {
            name: name.clone(),
            target: None,
            applied: Vec::new(),
            removed: removed.into_iter().collect(),
        };
        let undo = apply(&world, &change).await?;
        let limit = Instant::now() + LATE;
        while has_token().await? {
            if Instant::now() > limit {
                return Err(format!("{name}: a way is left").into());
            }
        }
        let left = answers(&collect(&world).await?);
        let again = left
            .iter()
            .find(|other| other.subject == answer.subject && other.target == answer.target);
        assert!(again.is_none(), "{name}: {again:?}");
        restore(&world, &change, undo).await?;
        until_collected(&world, "what was before", &before).await?;
    }
    let objects: usize = made.iter().map(BTreeSet::len).sum();
    eprintln!(
        "reach: {} cuts of {objects} objects really made, no way left; {:?}",
        made.len(),
        began.elapsed()
    );
    assert!(made.len() >= 10, "{made:?}");
    assert!(objects > made.len(), "one cut has several objects");
    Ok(())
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
fn removable(answer: &Answer) -> Option<BTreeSet<(String, String, String)>> {
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
