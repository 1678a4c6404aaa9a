//! Answers for people: a tree of ways, or a table.

use keyferry_reach::report::{Report, ReportedAnswer, ReportedHop, ReportedWay, TargetCounts};

use crate::ui;

/// How many answers that are no are shown with their nearest miss.
const MAX_MISSES: usize = 10;

/// The answers, each with its ways, below a sentence that answers the question.
pub(super) fn tree(report: &Report) -> String {
    let disagreements = report.disagreements.iter();
    let mut lines: Vec<String> = disagreements
        .map(|text| format!("disagrees: {text}; what rests on it is undetermined"))
        .collect();
    for counts in &report.targets {
        let answers: Vec<&ReportedAnswer> = report
            .answers
            .iter()
            .filter(|answer| answer.target == counts.target)
            .collect();
        if report.question.subject.is_none() {
            lines.push(sentence(counts, &answers));
        }
        push_answers(report, &answers, &mut lines);
    }
    if report.targets.is_empty() {
        lines.push("there is no target".to_owned());
    }
    for missing in &report.unread_subjects {
        lines.push(format!(
            "subjects may be missing: {}; to decide: {}",
            missing.description, missing.decide
        ));
    }
    if let Some(cut) = report
        .cut
        .as_ref()
        .filter(|_| report.question.subject.is_none())
    {
        lines.push(format!("cut of all: {}", joined(cut)));
    }
    lines.push(format!("assumes: {}", report.assumptions.join("; ")));
    lines.push(format!(
        "doors {} of list {} were evaluated; {}",
        report
            .evaluated_doors
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", "),
        report.doors,
        report.checked_words()
    ));
    lines.join("\n")
}

fn sentence(counts: &TargetCounts, answers: &[&ReportedAnswer]) -> String {
    let ways: usize = answers.iter().map(|answer| answer.ways.len()).sum();
    let more = match answers.iter().any(|answer| answer.has_more_ways) {
        true => " or more",
        false => "",
    };
    format!(
        "{}: yes: {} by {ways} ways{more}; undetermined: {}; no: {}",
        counts.target, counts.yes, counts.undetermined, counts.no
    )
}

fn push_answers(report: &Report, answers: &[&ReportedAnswer], lines: &mut Vec<String>) {
    for answer in answers.iter().filter(|answer| answer.answer == "yes") {
        lines.push(match report.question.subject {
            Some(_) => format!(
                "yes: {} {} reaches {}",
                answer.kind, answer.subject, answer.target
            ),
            None => format!("{} {}", answer.kind, answer.subject),
        });
        for (index, way) in answer.ways.iter().enumerate() {
            let is_last = index + 1 == answer.ways.len();
            let branch = if is_last { "└──" } else { "├──" };
            lines.push(format!("{branch} {}", way_words(way)));
        }
        if let Some(cut) = &answer.cut {
            lines.push(format!("    cut: {}", joined(cut)));
        }
    }
    for answer in answers
        .iter()
        .filter(|answer| answer.answer == "undetermined")
    {
        lines.push(format!("undetermined: {} {}", answer.kind, answer.subject));
        for fact in &answer.undecided {
            lines.push(format!(
                "    {}; to decide: {}",
                fact.description, fact.decide
            ));
        }
    }
    let no = answers.iter().filter(|answer| answer.answer == "no");
    let is_asked = report.question.subject.is_some();
    let near = no.filter(|answer| is_asked || answer.nearest_miss.is_some());
    for answer in near.take(MAX_MISSES) {
        let miss = match &answer.nearest_miss {
            Some(miss) => miss.to_string(),
            None => "no door leads to a token for it".to_owned(),
        };
        lines.push(format!(
            "no: {} {} at {}: {miss}",
            answer.kind, answer.subject, answer.target
        ));
    }
}

fn way_words(way: &ReportedWay) -> String {
    let hub = way.hub.iter().map(hop_words);
    let user = std::iter::once(way.user.to_string());
    let target = way.target.iter().map(hop_words);
    let words: Vec<String> = hub.chain(user).chain(target).collect();
    words.join(" → ")
}

fn hop_words(hop: &ReportedHop) -> String {
    match hop.door {
        Some(door) => format!("[{door}] {}", hop.step),
        None => hop.step.to_string(),
    }
}

fn joined(texts: &[keyferry_api::foreign_text::ForeignText]) -> String {
    let texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

/// One row for each answer.
pub(super) fn table(report: &Report) -> String {
    let head = ["TARGET", "SUBJECT", "ANSWER", "DOORS", "DETAIL"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for answer in &report.answers {
        let way = answer.ways.first();
        let doors: Vec<String> = way
            .into_iter()
            .flat_map(|way| &way.hub)
            .filter_map(|hop| hop.door)
            .map(|door| door.to_string())
            .collect();
        let detail = match (way, answer.undecided.first(), &answer.nearest_miss) {
            (Some(way), ..) => format!("as {}", way.user),
            (None, Some(fact), _) => fact.description.to_string(),
            (None, None, Some(miss)) => miss.to_string(),
            (None, None, None) => String::new(),
        };
        rows.push(vec![
            answer.target.to_string(),
            format!("{} {}", answer.kind, answer.subject),
            answer.answer.to_owned(),
            doors.join(","),
            detail,
        ]);
    }
    ui::table(&rows)
}
