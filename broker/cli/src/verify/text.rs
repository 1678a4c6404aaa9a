//! Renders a report as text.

use keyferry_kube_authn::report::{Answer, Reason, Report};
use keyferry_kube_authn::verify::{SignatureCheck, User};

use super::About;
use crate::ui;

/// Renders the report in lines.
pub(super) fn of(report: &Report, about: &About) -> String {
    let mut lines = vec![
        format!("target: {}", about.target),
        format!("file:   {}", about.file),
    ];
    if !about.subject.is_empty() {
        lines.push(format!("token:  {}", ui::plain(&about.subject)));
    }
    push_authenticators(&mut lines, report);
    if report.verdict == Answer::Skipped && !about.compared.is_empty() {
        lines.push(String::new());
        lines.push(format!("compared: {}", ui::plain(&about.compared)));
    }
    for problem in &report.problems {
        lines.push(String::new());
        lines.push(format!(
            "problem: {}: {}",
            problem.code,
            ui::block(&problem.message).replace('\n', "\n  ")
        ));
        lines.push(format!("  fix: {}", problem.fix));
    }
    lines.push(String::new());
    lines.push(format!("verdict: {}", verdict(report)));
    if !report.assumed.is_empty() {
        lines.push(format!(
            "assumed: {}, which the hub writes when it mints",
            report.assumed.join(", ")
        ));
    }
    lines.extend(signature(report, about));
    lines.join("\n")
}

/// What each entry of the file makes of the token; without any entry, what is wrong with the file.
fn push_authenticators(lines: &mut Vec<String>, report: &Report) {
    for (index, authenticator) in report.authenticators.iter().enumerate() {
        lines.push(String::new());
        let name = format!("jwt[{index}] {}", ui::plain(&authenticator.issuer));
        match (&authenticator.reason, &authenticator.user) {
            (_, Some(user)) => {
                lines.push(format!("{name}: accepted"));
                push_user(lines, user);
            }
            (Some(reason), None) => push_reason(
                lines,
                &format!("{name}: {}", word(authenticator.verdict)),
                authenticator.verdict,
                reason,
            ),
            (None, None) => lines.push(format!("{name}: {}", word(authenticator.verdict))),
        }
    }
    let (true, Some(reason)) = (report.authenticators.is_empty(), &report.reason) else {
        return;
    };
    lines.push(String::new());
    push_reason(lines, word(report.verdict), report.verdict, reason);
    let others = report.errors.iter();
    for error in others.filter(|error| error.code != reason.code) {
        lines.push(format!(
            "  error           {}: {}",
            error.code,
            ui::block(&error.message).replace('\n', "\n                  ")
        ));
        lines.push(format!("    fix           {}", error.code.fix()));
    }
}

/// Whether the signature was checked, where the verdict depends on it.
fn signature(report: &Report, about: &About) -> Option<String> {
    let accepted = report.verdict == Answer::Accepted;
    if accepted && !report.assumed.is_empty() {
        return Some(
            "signature: there is none yet; the target accepts only if the hub's key is one \
            of the issuer's"
                .to_owned(),
        );
    }
    match report.signature {
        SignatureCheck::NotChecked if accepted => Some(format!(
            "signature: not checked ({}); the target accepts only if it is good: \
            --jwks or --live checks it",
            about.keys
        )),
        SignatureCheck::Checked => Some(format!("signature: checked with {}", about.keys)),
        _ => None,
    }
}

fn push_user(lines: &mut Vec<String>, user: &User) {
    lines.push(format!("  username        {}", ui::plain(&user.username)));
    for (index, group) in user.groups.iter().enumerate() {
        lines.push(format!(
            "  {}          {}",
            if index == 0 { "groups" } else { "      " },
            ui::plain(group)
        ));
    }
    if user.groups.is_empty() {
        lines.push("  groups          none but system:authenticated".to_owned());
    }
    if !user.uid.is_empty() {
        lines.push(format!("  uid             {}", ui::plain(&user.uid)));
    }
    for (key, values) in &user.extra {
        lines.push(format!(
            "  extra           {} = {}",
            ui::plain(key),
            ui::plain(&values.join(", "))
        ));
    }
}

fn push_reason(lines: &mut Vec<String>, name: &str, verdict: Answer, reason: &Reason) {
    let stage = reason
        .stage
        .map(|stage| format!(" at {stage:?}"))
        .unwrap_or_default();
    lines.push(format!("{name}{stage}, {}", reason.code));
    lines.push(format!("  cause           {}", reason.code.cause()));
    let says = match verdict {
        Answer::Rejected | Answer::ConfigurationRefused if reason.exact => Some("apiserver says  "),
        Answer::Rejected | Answer::ConfigurationRefused => Some("says about      "),
        Answer::Undetermined => Some("undetermined    "),
        Answer::Skipped | Answer::Accepted => None,
    };
    if let Some(says) = says {
        lines.push(format!(
            "  {says}{}",
            ui::block(&reason.message).replace('\n', "\n                  ")
        ));
    }
    for other in &reason.alternatives {
        lines.push(format!("  or              {}", ui::plain(&other.message)));
    }
    lines.push(format!("  fix             {}", ui::plain(&reason.fix)));
}

fn word(answer: Answer) -> &'static str {
    match answer {
        Answer::Accepted => "accepted",
        Answer::Rejected => "rejected",
        Answer::Skipped => "skipped",
        Answer::Undetermined => "undetermined",
        Answer::ConfigurationRefused => "the target refuses the file",
    }
}

fn verdict(report: &Report) -> String {
    let code = report
        .reason
        .as_ref()
        .map(|reason| format!(", {}", reason.code))
        .unwrap_or_default();
    match report.verdict {
        Answer::Accepted if !report.problems.is_empty() => {
            "accepted, but with the problems above".to_owned()
        }
        Answer::Accepted => "accepted".to_owned(),
        Answer::Rejected => format!("refused with 401{code}"),
        Answer::Skipped => {
            format!("refused with 401, because no entry of the file accepts the token{code}")
        }
        Answer::Undetermined => format!("undetermined{code}"),
        Answer::ConfigurationRefused => {
            format!("the target keeps the file it had, or does not start{code}")
        }
    }
}
