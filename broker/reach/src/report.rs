//! Answers as a document for programs: `keyferry.dev/reach/v1`.

use keyferry_api::foreign_text::ForeignText;
use keyferry_api::name::ObjectName;
use serde::Serialize;

use crate::answer::{Answer, Answers, Question, Verdict};
use crate::doors;
use crate::doubt::Doubt;
use crate::way::Hop;

/// The version of the document: `schema` of [`Report`].
pub const SCHEMA: &str = "keyferry.dev/reach/v1";

/// What every answer assumes.
pub const ASSUMPTIONS: [&str; 7] = [
    "authorizers Node,RBAC at the hub and at each target",
    "Keyferry runs, and knows the CA of each target",
    "Keyferry's own account is left out; docs/concepts/security.md says what a stolen one can do",
    "no other admission policy, webhook, quota or Pod Security refuses a TokenRequest or a Pod",
    "no custom controller creates Pods for others, and a Pod's image can read a file",
    "a User is in no group but system:authenticated; each Group is a subject of its own",
    "at a target, doors 7 and 8 alone lead from one user to another",
];

/// What an answer assumes too, if targets and accesses are those of a configuration file.
pub const CONFIGURATION_STAYS: &str =
    "a user who can change Keyferry's configuration file is left out: that opens every door";

/// The answers to a question.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The version of the closed list of doors.
    pub doors: u32,
    /// The doors that were evaluated.
    pub evaluated_doors: Vec<u8>,
    /// What was asked.
    pub question: AskedQuestion,
    /// What every answer assumes.
    pub assumptions: Vec<&'static str>,
    /// How many sampled cells of the hub's RBAC were compared with the hub itself; `None` if none.
    pub checked: Option<usize>,
    /// Why none was compared, if the hub was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_checked: Option<ForeignText>,
    /// Where the hub says something else. What rests on it is undetermined.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disagreements: Vec<ForeignText>,
    /// The lists that may have more subjects.
    pub unread_subjects: Vec<UndecidedFact>,
    /// How many subjects have each answer.
    pub targets: Vec<TargetCounts>,
    /// The answers. Without a target or a subject in the question, those that are no are left out.
    pub answers: Vec<ReportedAnswer>,
    /// The fewest removals that make every yes a no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<Vec<ForeignText>>,
}

/// What was asked.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AskedQuestion {
    /// The request, such as `delete deployments.apps in apps`; `None` for a question about tokens.
    pub request: Option<ForeignText>,
    /// The only subject.
    pub subject: Option<ForeignText>,
}

/// How many subjects have each answer at a target.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetCounts {
    /// The target.
    pub target: ObjectName,
    /// How many can.
    pub yes: usize,
    /// How many cannot.
    pub no: usize,
    /// Of how many it is not known.
    pub undetermined: usize,
}

/// One answer.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportedAnswer {
    /// The kind of the subject.
    pub kind: &'static str,
    /// The name of the subject.
    pub subject: ForeignText,
    /// The target.
    pub target: ObjectName,
    /// `yes`, `no` or `undetermined`.
    pub answer: &'static str,
    /// The ways of a yes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ways: Vec<ReportedWay>,
    /// Whether there are more ways.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_more_ways: bool,
    /// The fewest removals that make the yes a no, each tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<Vec<ForeignText>>,
    /// What a no lacks; `None` if no door leads to a token for the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest_miss: Option<ForeignText>,
    /// What would decide it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub undecided: Vec<UndecidedFact>,
}

/// One way.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportedWay {
    /// The steps on the hub.
    pub hub: Vec<ReportedHop>,
    /// The user at the target.
    pub user: ForeignText,
    /// The steps at the target.
    pub target: Vec<ReportedHop>,
}

/// One step.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportedHop {
    /// The door.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub door: Option<u8>,
    /// The object, and what it gives.
    pub step: ForeignText,
}

/// Something that is not known.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UndecidedFact {
    /// What.
    pub description: ForeignText,
    /// What would decide it.
    pub decide: ForeignText,
}

impl Report {
    /// The document about these answers.
    pub fn of(question: &Question, answers: &Answers) -> Self {
        let text = |text: String| ForeignText::new(&text);
        Self {
            schema: SCHEMA,
            doors: doors::VERSION,
            evaluated_doors: doors::ALL
                .iter()
                .filter(|door| door.is_evaluated)
                .map(|door| door.number)
                .collect(),
            question: AskedQuestion {
                request: question.request.as_ref().map(|it| text(it.to_string())),
                subject: question.subject.as_ref().map(|it| text(it.to_string())),
            },
            assumptions: ASSUMPTIONS.to_vec(),
            checked: None,
            not_checked: None,
            disagreements: Vec::new(),
            unread_subjects: answers.unread_subjects.iter().map(undecided).collect(),
            targets: answers
                .counts
                .iter()
                .map(|(target, [yes, no, undetermined])| TargetCounts {
                    target: target.clone(),
                    yes: *yes,
                    no: *no,
                    undetermined: *undetermined,
                })
                .collect(),
            answers: answers.answers.iter().map(reported).collect(),
            cut: answers.cut.as_ref().map(|cut| {
                cut.iter()
                    .map(|removal| text(removal.to_string()))
                    .collect()
            }),
        }
    }
}

impl Report {
    /// What the comparison with the hub showed.
    pub fn checked_words(&self) -> String {
        match (self.checked, &self.not_checked) {
            (Some(all), _) => {
                let agree = all.saturating_sub(self.disagreements.len());
                format!("{agree} of {all} sampled cells agree with the hub")
            }
            (None, Some(why)) => format!("not checked: {why}"),
            (None, None) => "not checked against a live cluster".to_owned(),
        }
    }
}

fn reported(answer: &Answer) -> ReportedAnswer {
    let mut reported = ReportedAnswer {
        kind: answer.subject.kind(),
        subject: ForeignText::new(&answer.subject.name()),
        target: answer.target.clone(),
        answer: "no",
        ways: Vec::new(),
        has_more_ways: false,
        cut: answer.cut.as_ref().map(|cut| {
            cut.iter()
                .map(|removal| ForeignText::new(&removal.to_string()))
                .collect()
        }),
        nearest_miss: None,
        undecided: Vec::new(),
    };
    match &answer.verdict {
        Verdict::Yes { ways, has_more } => {
            reported.answer = "yes";
            reported.has_more_ways = *has_more;
            let way = |way: &crate::answer::Way| ReportedWay {
                hub: way.hub.iter().map(hop).collect(),
                user: ForeignText::new(&way.user),
                target: way.target.iter().map(hop).collect(),
            };
            reported.ways = ways.iter().map(way).collect();
        }
        Verdict::No { nearest_miss } => {
            reported.nearest_miss = nearest_miss.as_deref().map(ForeignText::new);
        }
        Verdict::Undetermined { doubts } => {
            reported.answer = "undetermined";
            reported.undecided = doubts.iter().map(undecided).collect();
        }
    }
    reported
}

pub(crate) fn hop(hop: &Hop) -> ReportedHop {
    ReportedHop {
        door: hop.door,
        step: ForeignText::new(&hop.text),
    }
}

pub(crate) fn undecided(doubt: &Doubt) -> UndecidedFact {
    UndecidedFact {
        description: ForeignText::new(&doubt.description()),
        decide: ForeignText::new(&doubt.decide()),
    }
}
