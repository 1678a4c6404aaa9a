//! Writes the report of `doctor` for a person, and its exit code.

use keyferry_client::doctor::diagnosis::{Report, ReportedHop, Status, Verdict};
use keyferry_kube_authn::Code;

use crate::ui;

/// The exit code if it is unknown whether, or where, the path is broken.
pub(crate) const UNDETERMINED: u8 = 3;

/// The exit code of a verdict. The code 2, for wrong input, is that of `ui::command_misused`.
pub(crate) fn exit_code(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Well => 0,
        Verdict::Broken => 1,
        Verdict::Undetermined => UNDETERMINED,
    }
}

/// Writes the report for a person, with the missing RBAC.
pub(crate) fn table(report: &Report, yaml: Option<&str>) -> String {
    let word = |status| match status {
        Status::Well => "ok",
        Status::Warning => "warning",
        Status::Broken => "BROKEN",
        Status::Undetermined => "undetermined",
        Status::NotAsked => "-",
    };
    let rows: Vec<Vec<String>> = report
        .hops
        .iter()
        .map(|hop| {
            vec![
                format!("{:?}", hop.hop),
                word(hop.status).to_owned(),
                hop.reason.map_or("", |reason| reason.name()).to_owned(),
                hop.detail.clone(),
            ]
        })
        .collect();
    let name = |hop: &ReportedHop| hop.reason.map_or("", |reason| reason.name());
    let mut end = match (&report.broken, report.verdict) {
        (Some(hop), _) => {
            let fix = hop.fix.unwrap_or_default();
            format!(
                "the first broken hop is {:?}: {}: {}\nfix: {fix}",
                hop.hop,
                name(hop),
                hop.detail
            )
        }
        (None, Verdict::Well) => {
            let warned: Vec<&ReportedHop> = report
                .hops
                .iter()
                .filter(|hop| hop.status == Status::Warning)
                .collect();
            let fixes: Vec<String> = warned
                .iter()
                .map(|hop| {
                    format!(
                        "\nwarning: {:?}: {}\nfix: {}",
                        hop.hop,
                        name(hop),
                        hop.fix.unwrap_or_default()
                    )
                })
                .collect();
            format!(
                "every hop holds{}{}",
                if warned.is_empty() {
                    ""
                } else {
                    ", with warnings"
                },
                fixes.concat()
            )
        }
        (None, _) => undetermined(report),
    };
    if let Some(yaml) = yaml {
        end.push_str(&format!(
            "\nthis binding would grant it; review and apply it at the target:\n{yaml}"
        ));
    }
    for command in &report.next {
        end.push_str(&format!("\nnext: {command}"));
    }
    format!("{}\n\n{end}", ui::table(&rows))
}

fn undetermined(report: &Report) -> String {
    let refused = |hop: &&ReportedHop| {
        hop.status == Status::Broken && hop.reason == Some(Code::TokenRefused.into())
    };
    if !report.hops.iter().any(|hop| refused(&hop)) {
        return "undetermined: the hops above show what is missing".to_owned();
    }
    // The most frequent cause comes first.
    "undetermined: the target refuses the token, and does not report why to the bearer. Likely, the most frequent first:\n\
     - its AuthenticationConfiguration is not active: kube-apiserver was not started with it, or refused a change of it\n\
     - issuer.audiences does not have the token's audience\n\
     - issuer.url is not the token's iss byte for byte\n\
     - certificateAuthority or discoveryURL is wrong, so that the target has no keys"
        .to_owned()
}
