//! Answers: yes with its ways, no with its nearest miss, or undetermined with what would decide it.

mod arrival;
mod judge;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use keyferry_api::name::ObjectName;
use keyferry_kube_rbac::Attributes;

use self::judge::SubjectActs;
pub(crate) use self::judge::{DoorWay, Judge, WayKey, WayUser, WaysByDoor};
pub use self::verdict::{Verdict, Way};
use crate::act::Act;
use crate::cut::smallest_meeting_set;
use crate::hub_search::HubSearch;
use crate::list::ListKind;
use crate::subject::Subject;
use crate::way::Removal;
use crate::world::World;

/// How often a cut is tried again with the ways that it left.
const MAX_CUT_ROUNDS: usize = 24;
/// For how many sets of acts the question is asked again.
const MAX_WORLDS_AFTER_ACTS: usize = 16;
/// For how many answers a cut is looked for.
const MAX_CUTS: usize = 16;

/// A question about subjects, targets and perhaps one request.
#[derive(Clone, Debug)]
pub struct Question {
    /// What is done at the target; `None` to ask only whether the target accepts a token.
    pub request: Option<Attributes>,
    /// The targets; empty for all.
    pub targets: BTreeSet<ObjectName>,
    /// The only subject, or `None` for all.
    pub subject: Option<Subject>,
    /// Whether every way, cut and no is worth its time.
    pub is_thorough: bool,
    /// The time of the imagined tokens.
    pub now: Timestamp,
}

/// The answer about one subject and one target.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The subject.
    pub subject: Subject,
    /// The target.
    pub target: ObjectName,
    /// Yes, no or undetermined.
    pub verdict: Verdict,
    /// The fewest removals that make a yes a no; `None` if there are none, or none were looked for.
    pub cut: Option<BTreeSet<Removal>>,
}

/// All answers to a question.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// The answers by target and subject. Without [`Question::is_thorough`], no is left out.
    pub answers: Vec<Answer>,
    /// How many subjects have each answer, by target: yes, no, undetermined.
    pub counts: BTreeMap<ObjectName, [usize; 3]>,
    /// The lists that may have more subjects.
    pub unread_subjects: Vec<crate::Doubt>,
    /// The fewest removals that make every yes at the only target a no.
    pub cut: Option<BTreeSet<Removal>>,
}

/// Answers a question about what was read.
pub fn answer_question(world: &World, question: &Question) -> Answers {
    let policy = world.hub.policy();
    let search = HubSearch::new(world, &policy);
    let judge = Judge::new(&search, question);
    let subjects = match &question.subject {
        Some(subject) => BTreeSet::from([subject.clone()]),
        None => search.subjects(),
    };
    let mut answers = Answers {
        unread_subjects: unread_subjects(world, question),
        ..Answers::default()
    };
    for target in &judge.targets {
        let counts = answers.counts.entry(target.name.clone()).or_default();
        counts[1] = subjects.len();
    }
    for ((subject, target), verdict) in judge_subjects(world, question, &judge, &subjects) {
        answers.add(question, subject, target, verdict);
    }
    answers
        .answers
        .sort_by(|one, two| (&one.target, &one.subject).cmp(&(&two.target, &two.subject)));
    if question.is_thorough {
        add_cuts(world, question, &mut answers);
    }
    answers
}

impl Answers {
    fn add(&mut self, question: &Question, subject: Subject, target: ObjectName, verdict: Verdict) {
        let counts = self.counts.entry(target.clone()).or_default();
        let [yes, no, undetermined] = counts;
        match verdict {
            Verdict::Yes { .. } => (*yes, *no) = (*yes + 1, no.saturating_sub(1)),
            Verdict::Undetermined { .. } => {
                (*undetermined, *no) = (*undetermined + 1, no.saturating_sub(1));
            }
            Verdict::No { .. } if !question.is_thorough => return,
            Verdict::No { .. } => {}
        }
        self.answers.push(Answer {
            subject,
            target,
            verdict,
            cut: None,
        });
    }

    /// Whether an answer, or the list of subjects, is not decided.
    pub fn has_undetermined(&self) -> bool {
        !self.unread_subjects.is_empty() || self.counts.values().any(|counts| counts[2] > 0)
    }
}

type Verdicts = BTreeMap<(Subject, ObjectName), Verdict>;

/// The verdicts about subjects, also after what they can change on the hub.
fn judge_subjects(
    world: &World,
    question: &Question,
    judge: &Judge<'_, '_>,
    subjects: &BTreeSet<Subject>,
) -> Verdicts {
    let mut verdicts = Verdicts::new();
    let mut waiting: BTreeMap<BTreeSet<Act>, Vec<(Subject, SubjectActs)>> = BTreeMap::new();
    let wait = |waiting: &mut BTreeMap<_, Vec<_>>, subject: &Subject, acts: SubjectActs| {
        let group = waiting.entry(acts.acts.clone()).or_default();
        group.push((subject.clone(), acts));
    };
    for subject in subjects {
        let judged = judge.judge_subject(subject);
        if !judged.acts.acts.is_empty() {
            wait(&mut waiting, subject, judged.acts);
        }
        let of_subject = judged.verdicts.into_iter();
        verdicts.extend(of_subject.map(|(target, it)| ((subject.clone(), target), it)));
    }
    let mut worlds = 0;
    while let Some((acts, group)) = waiting.pop_first() {
        worlds += 1;
        let after = match worlds <= MAX_WORLDS_AFTER_ACTS {
            true => world.after(&acts, &question.targets),
            false => None,
        };
        let Some(after) = after else {
            for (subject, acts) in group {
                for target in &judge.targets {
                    replace(&mut verdicts, &subject, target.name, acts.undecided());
                }
            }
            continue;
        };
        let policy = after.hub.policy();
        let search = HubSearch::new(&after, &policy);
        let later = Judge::new(&search, question);
        for (subject, mut acts) in group {
            let judged = later.judge_subject(&subject);
            for (target, verdict) in judged.verdicts {
                replace(
                    &mut verdicts,
                    &subject,
                    &target,
                    acts.verdict_before(verdict, judge.policy()),
                );
            }
            let before = acts.acts.len();
            acts.add(judged.acts);
            if acts.acts.len() > before {
                wait(&mut waiting, &subject, acts);
            }
        }
    }
    verdicts
}

/// Replaces a verdict, unless there is a way without any act.
fn replace(verdicts: &mut Verdicts, subject: &Subject, target: &ObjectName, verdict: Verdict) {
    let key = (subject.clone(), target.clone());
    if !matches!(verdicts.get(&key), Some(Verdict::Yes { .. })) {
        verdicts.insert(key, verdict);
    }
}

fn unread_subjects(world: &World, question: &Question) -> Vec<crate::Doubt> {
    if question.subject.is_some() {
        return Vec::new();
    }
    let lists = &world.hub.lists;
    [
        ListKind::ServiceAccounts,
        ListKind::ClusterRoleBindings,
        ListKind::RoleBindings,
    ]
    .into_iter()
    .filter(|kind| !lists.is_whole(*kind))
    .map(crate::Doubt::list)
    .collect()
}

/// Adds the cut of each yes, and of all at the only target, each tried on a world without it.
fn add_cuts(world: &World, question: &Question, answers: &mut Answers) {
    let is_yes = |answer: &Answer| matches!(answer.verdict, Verdict::Yes { .. });
    let of_one_target = answers.counts.len() == 1;
    let mut all = Vec::new();
    let mut subjects = BTreeSet::new();
    let yes = answers.answers.iter_mut().filter(|answer| is_yes(answer));
    for answer in yes.take(MAX_CUTS + 1) {
        if subjects.len() == MAX_CUTS {
            return;
        }
        let ways = answer.verdict.removals();
        all.extend(ways.iter().cloned());
        subjects.insert(answer.subject.clone());
        let targets = BTreeSet::from([answer.target.clone()]);
        let question = Question {
            targets,
            ..question.clone()
        };
        let subject = BTreeSet::from([answer.subject.clone()]);
        answer.cut = find_cut(world, &question, &subject, ways, &BTreeMap::new());
    }
    if of_one_target && subjects.len() > 1 {
        let own = answers.answers.iter();
        let own = own.filter_map(|answer| Some((answer.subject.clone(), answer.cut.clone()?)));
        answers.cut = find_cut(world, question, &subjects, all, &own.collect());
    } else if let Some(answer) = answers.answers.iter().find(|answer| is_yes(answer))
        && of_one_target
    {
        answers.cut.clone_from(&answer.cut);
    }
}

/// Finds the fewest removals after which the answer is no for each subject. Removing what closes
/// the known ways may leave others, which are then closed too. A subject that is undetermined without
/// a cut needs its own.
fn find_cut(
    world: &World,
    question: &Question,
    subjects: &BTreeSet<Subject>,
    mut ways: Vec<BTreeSet<Removal>>,
    own: &BTreeMap<Subject, BTreeSet<Removal>>,
) -> Option<BTreeSet<Removal>> {
    ways.sort();
    ways.dedup();
    for _ in 0..MAX_CUT_ROUNDS {
        let cut = smallest_meeting_set(&ways)?;
        let (left, undetermined) = ways_without(world, question, subjects, &cut);
        if left.is_empty() && undetermined.is_empty() {
            return Some(cut);
        }
        let before = ways.len();
        ways.extend(left);
        for subject in undetermined {
            let needed = own.get(&subject)?.iter();
            ways.extend(needed.map(|removal| BTreeSet::from([removal.clone()])));
        }
        ways.sort();
        ways.dedup();
        if ways.len() <= before {
            return None;
        }
    }
    None
}

/// What takes away the ways that are left without some objects, and who is then undetermined.
fn ways_without(
    world: &World,
    question: &Question,
    subjects: &BTreeSet<Subject>,
    removals: &BTreeSet<Removal>,
) -> (Vec<BTreeSet<Removal>>, Vec<Subject>) {
    let world = world.without(removals);
    let policy = world.hub.policy();
    let search = HubSearch::new(&world, &policy);
    let judge = Judge::new(&search, question);
    let (mut ways, mut undetermined) = (Vec::new(), Vec::new());
    for ((subject, _), verdict) in judge_subjects(&world, question, &judge, subjects) {
        ways.extend(verdict.removals());
        if matches!(verdict, Verdict::Undetermined { .. }) {
            undetermined.push(subject);
        }
    }
    (ways, undetermined)
}
